"""Each leg in a process that has seen none of the others, with another hash seed: a flow is all in its token.

Of the transcripts, the flows are played that use the most of a token: several rounds with a step between them, several
questions at once, all three forms, and prompts and resources; beside them the examples. A server is started for every
line of the client, serves that line over stdio, and is ended.
"""

import itertools
import json
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.processes import EXAMPLES, KEY, META, accept, environment
from tests.transcripts import test_transcripts as transcripts

AHEAD = 3
"""So many processes are started before they are needed."""
TITLES = (
    "Rounds, with a step between them",
    "Several questions in one round",
    "Three forms in one function",
    "Prompts and resources ask as well",
)
LAUNCH = r"""
import os, runpy, sys
from turnwise import RequestStateSecurity
# Servers that are given no key take the one that all legs share.
RequestStateSecurity.ephemeral = classmethod(lambda cls, **options: cls(keys=[os.environ["KEY"]]))
runpy.run_path(sys.argv[1])["server"].run("stdio")
"""
TAGGING = r"""
import os
from turnwise import Context, MCPServer
server = MCPServer("tags")

async def save(tags: set[str]) -> int:
    return len(tags)

@server.tool()
async def tag(tags: set[str], ctx: Context) -> str:
    count = await ctx.step(save, tags)
    sure = await ctx.elicit("Sure?", bool, key="sure")
    return f"{count} {sure.data}"
"""
FLOWS = [transcript for transcript in transcripts.TRANSCRIPTS if transcript.title in TITLES]
seeds = itertools.count(1)


class Legs:
    """So many legs of the flows of one server, each a process of its own."""

    def __init__(self, script: Path, count: int, **more: str) -> None:
        self._script = script
        self._count = count
        self._environment = environment(KEY=KEY, **more)
        self._ready: deque[subprocess.Popen[bytes]] = deque()

    def start(self) -> None:
        while self._count > 0 and len(self._ready) < AHEAD:
            self._count -= 1
            process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, str(self._script)],
                env={**self._environment, "PYTHONHASHSEED": str(next(seeds))},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._ready.append(process)

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        self.start()
        process = self._ready.popleft()
        reply, _ = process.communicate(json.dumps(message).encode() + b"\n")
        found: dict[str, Any] = json.loads(reply)
        return found

    def call(self, tool: str, arguments: dict[str, Any], **members: Any) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments, "_meta": META, **members}
        reply = self.exchange({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        result: dict[str, Any] = reply["result"]
        return result

    def close(self) -> None:
        for process in self._ready:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def legs() -> Iterator[Legs]:
    found = Legs(transcripts.SERVER, sum(line.sign == ">" for transcript in FLOWS for line in transcript.lines))
    yield found
    found.close()


@pytest.fixture
def place() -> Iterator[Callable[..., Legs]]:
    """Makes the legs of a script, and ends what is left of them."""
    made: list[Legs] = []

    def make(script: Path, count: int, **more: str) -> Legs:
        made.append(Legs(script, count, **more))
        return made[-1]

    yield make
    for found in made:
        found.close()


@pytest.mark.parametrize("transcript", FLOWS, ids=lambda transcript: transcript.title)
def test_transcript(transcript: transcripts.Transcript, legs: Legs) -> None:
    transcripts.test_transcript(transcript, legs.exchange)


def test_the_flows_that_are_played_are_there() -> None:
    assert tuple(transcript.title for transcript in FLOWS) == TITLES


def test_the_booking_example(place: Callable[..., Legs]) -> None:
    legs = place(EXAMPLES / "booking.py", 2)
    asked = legs.call("book", {"flight": "TW 1"})
    [key] = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"row": 12}}}
    done = legs.call("book", {"flight": "TW 1"}, inputResponses=answers, requestState=asked["requestState"])
    assert done["content"][0]["text"] == "Booked row 12 on TW 1."


def test_the_work_item_example(place: Callable[..., Legs], tmp_path: Path) -> None:
    log = tmp_path / "effects.log"
    names = {"WORK_ITEM_KEY": KEY, "WORK_ITEM_STORE": str(tmp_path / "guards.db"), "WORK_ITEM_LOG": str(log)}
    legs = place(EXAMPLES / "work_item.py", 4, **names)
    arguments = {"workItemId": 4522, "fields": {"System.State": "Resolved"}}
    result = legs.call("update_work_item", arguments)
    for answers in ({}, {"resolution": accept("Duplicate")}, {"duplicate_of": accept(4301)}):
        state = result["requestState"]
        result = legs.call("update_work_item", arguments, inputResponses=answers, requestState=state)
    assert result["content"][0]["text"].endswith("resolution = Duplicate, duplicate_of = 4301")
    effects = [line.split() for line in log.read_text().splitlines()]
    assert [effect for _, effect, _ in effects] == ["read", "write", "comment"]
    assert len({pid for pid, _, _ in effects}) == 2


def test_a_step_is_known_again_by_a_set_that_it_was_given(place: Callable[..., Legs], tmp_path: Path) -> None:
    """A process may hold the members of a set in any order."""
    script = tmp_path / "tagging.py"
    script.write_text(TAGGING)
    legs = place(script, 3)
    tags = {"tags": ["red", "green", "blue", "grey", "black", "white"]}
    asked = legs.call("tag", tags)
    answers = {"sure": accept(True)}
    for _ in range(2):
        done = legs.call("tag", tags, inputResponses=answers, requestState=asked["requestState"])
        assert done["content"][0]["text"] == "6 True"
