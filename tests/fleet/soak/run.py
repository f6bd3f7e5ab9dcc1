"""`python -m tests.fleet.soak.run`: the full size, and the same load on the official SDK; figures to the screen and as
JSON.
"""

import argparse
import asyncio
import gc
import json
import logging
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.fleet.soak.figures import figures, lines
from tests.fleet.soak.people import Load
from tests.fleet.soak.trials import Climate, Trial
from turnwise import __version__

RESULTS = Path(__file__).with_name("results.json")
STORM = Climate(kills=1.2, pairs=0.2, rotation=2.0, upgrade=10.0, upgrade_pause=5.0, ttl=40.0, patience=3.0, spell=0.04)
KILLS = replace(STORM, rotation=None, upgrade=None)
CALM = Climate()
CONTROL = 10
"""So many times fewer orders for the trial that shows that sessions work where there is one instance."""


def trials(users: int, repeats: int, place: Path) -> Iterator[Trial]:
    """All of them, the soak first."""
    people = Load(users, orders_each=10, ramp=8.0, think=(4.0, 14.0), losing=0.1, thieves=0.1, late=0.05)
    replies_lost = replace(people, late=0.0, thieves=0.0)
    hurried = Load(users, orders_each=10)
    live = Load(users, orders_each=10, tool="order_live")
    few = replace(live, users=max(1, users // CONTROL))
    yield Trial("Turnwise: kills, rotation, upgrade", people, STORM, place / "1")
    yield Trial("mcp 2026-07-28: kills", replies_lost, KILLS, place / "2", kind="mcp")
    yield Trial("mcp 2025-11-25: calm", live, CALM, place / "3", kind="sessions")
    yield Trial("mcp 2025-11-25: kills", live, KILLS, place / "4", kind="sessions")
    yield Trial("mcp 2025-11-25: one instance", few, CALM, place / "5", kind="sessions", instances=1)
    for number in range(repeats):
        spot = place / f"speed-{number}"
        yield Trial("Turnwise: speed", hurried, CALM, spot / "1", access_log=False, warm=True)
        yield Trial(
            "Turnwise: speed, unguarded", hurried, CALM, spot / "2", access_log=False, warm=True, breaks="guard"
        )
        yield Trial("mcp 2026-07-28: speed", hurried, CALM, spot / "3", kind="mcp", warm=True)


def medians(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One of each name: the one in the middle by speed."""
    names = dict.fromkeys(trial["name"] for trial in found)
    same = [sorted((one for one in found if one["name"] == name), key=itemgetter("flows_per_second")) for name in names]
    return [{**trials[len(trials) // 2], "speeds": [one["flows_per_second"] for one in trials]} for trials in same]


async def run(users: int, repeats: int, only: str) -> dict[str, Any]:
    """Try all, one after the other."""
    found = []
    with tempfile.TemporaryDirectory(prefix="turnwise-soak-") as place:
        for trial in trials(users, repeats, Path(place)):
            if only not in trial.name:
                continue
            gc.collect()
            found.append(figures(await trial.run()))
            print("\n".join(lines(found[-1])), flush=True)
            for name, wrong in trial.verdict.wrong().items():
                print(f"  {name}, for example: {wrong[0]}", flush=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}
    return {"turnwise": __version__, "mcp": version("mcp"), "machine": machine, "trials": medians(found)}


def main() -> int:
    """Run it; the exit code says whether the soak found something wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=215, help="each makes ten orders; one in twenty comes late")
    parser.add_argument("--repeats", type=int, default=3, help="how often speed is measured, in turns")
    parser.add_argument("--only", default="", help="a part of the name of the trials to run")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that the processes of a trial are ended.
    for name in ("mcp", "httpx2", "turnwise"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    results = asyncio.run(run(options.users, options.repeats, options.only))
    options.results.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(trial["wrong"] for trial in results["trials"] if trial["name"].startswith("Turnwise: kills")) else 0


if __name__ == "__main__":
    sys.exit(main())
