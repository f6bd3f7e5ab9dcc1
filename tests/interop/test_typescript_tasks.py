"""Tasks driven by the official TypeScript client and its package for tasks: what `ts/tasks.mjs` prints, flow by flow.

On 2026-07-28 the package speaks the extension of SEP-2663, on 2025-11-25 that version's own tasks.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.interop.conftest import played
from tests.interop.visiting import Serve

Line: TypeAlias = dict[str, Any]

HERE = Path(__file__).parent
TIMEOUT = 90
VERSIONS = {"modern": "2026-07-28", "legacy": "2025-11-25"}
FLOWS: dict[str, tuple[Any, list[str]]] = {
    "an ordinary call": ({"kind": "immediate", "status": "completed", "text": "5", "isError": False}, []),
    "a question in the middle": (
        {
            "kind": "task",
            "status": "completed",
            "text": "Figures (2026)",
            "isError": False,
            "asks": True,
            "last": "completed",
        },
        ["elicitation: A title for 4052 figures?"],
    ),
    "a question declined": (
        {"status": "completed", "text": "Nothing: decline", "isError": False},
        ["elicitation: A title for 4050 figures?"],
    ),
    "stopped at work": ({"message": "drumming", "status": "cancelled"}, []),
    "finished by another client": (
        {"status": "completed", "text": "Resumed (2024)", "isError": False},
        ["elicitation: A title for 4048 figures?"],
    ),
    "an unknown task": ({"code": -32602}, []),
}
FAILED = {
    "modern": {"status": "completed", "text": "The paper is jammed", "isError": True},
    "legacy": {"status": "failed", "message": "The paper is jammed"},
}


@pytest.fixture(scope="module")
def press(press_command: list[str], serve: Serve) -> Iterator[str]:
    with serve(press_command) as (url, _):
        yield url


@pytest.fixture(scope="module", params=VERSIONS)
def transcript(request: pytest.FixtureRequest, node_home: Path, press: str) -> tuple[str, dict[str, Line]]:
    """The era, and the lines of one run in it by flow."""
    script = Path(shutil.copy(HERE / "ts" / "tasks.mjs", node_home))
    return request.param, played(script, request.param, press, timeout=TIMEOUT)


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_is_completed(transcript: tuple[str, dict[str, Line]], flow: str) -> None:
    said, asked = FLOWS[flow]
    assert transcript[1][flow] == {"flow": flow, "said": said, "asked": asked, "amiss": []}


def test_the_package_finds_what_the_server_can_do(transcript: tuple[str, dict[str, Line]]) -> None:
    era, lines = transcript
    said = lines["connecting"]["said"]
    assert said["version"] == VERSIONS[era]
    assert said["capabilities"]["execution"]
    assert said["capabilities"]["cancellation"]
    assert said["capabilities"]["inputResponses"] is (era == "modern")


def test_a_tool_that_fails_is_told_as_its_version_tells_it(transcript: tuple[str, dict[str, Line]]) -> None:
    era, lines = transcript
    assert lines["a tool that fails"] == {"flow": "a tool that fails", "said": FAILED[era], "asked": [], "amiss": []}


def test_every_flow_is_looked_at(transcript: tuple[str, dict[str, Line]]) -> None:
    assert set(transcript[1]) == {*FLOWS, "connecting", "a tool that fails"}
