"""`make demo` shows two rounds and ends well."""

import os
import re
import subprocess
import sys
from pathlib import Path

import turnwise

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}


def demo(*arguments: str, typed: str = "") -> str:
    """What the demo prints; it fails if the demo does."""
    command = [sys.executable, str(DEMO), *arguments]
    done = subprocess.run(command, input=typed, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=30)
    assert done.stderr == ""
    return done.stdout


def test_the_demo_shows_two_rounds_and_ends_well() -> None:
    printed = demo()
    assert re.findall(r"=== round (\d+) ===", printed) == ["1", "2"]
    first, second = printed.partition("=== round 2 ===")[::2]
    assert '"resultType": "input_required"' in first
    assert '"message": "Which seat on TW 2322?"' in first
    assert '"inputResponses"' in second
    assert '"requestState"' in second
    assert '"resultType": "complete"' in second
    assert "Done in 2 rounds: Booked row 12 on TW 2322." in printed


def test_who_answers_the_demo_at_the_terminal_may_err_and_may_decline() -> None:
    printed = demo("--ask", typed="twelve\n7\n")
    assert "a whole number, please" in printed
    assert "Done in 2 rounds: Booked row 7 on TW 2322." in printed
    assert "Done in 2 rounds: Nothing was booked." in demo("--ask", typed="\n")
