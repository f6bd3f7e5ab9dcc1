"""The official clients of the handshake, unmodified, over HTTP and stdio: what `older/guest.*` print, flow by flow.

The tools are those that the clients of 2026-07-28 call, and what is said and asked is the same.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest

from tests.interop.conftest import NODE
from tests.interop.cutting import Wire, breaking
from tests.interop.test_python_client import Person, client_of, text_of
from tests.interop.test_typescript_client import BOOK, FLOWS, TOOLS, sample

Line: TypeAlias = dict[str, Any]

OLDER = Path(__file__).parent / "older"
PATIENCE = 60
GUESTS = ("mcp 1.30.0", "mcp 2.3.0", "sdk 1.32.2", "client 2.4.0")
VERSION = "2025-11-25"
UNDECLARED = "The client did not declare a required capability: "
LACKING = ["elicitation.form", "elicitation.url", "sampling", "roots", "elicitation.form"]
STEPS = [[1, 3, "holding"], [2, 3, None]]
SLOGANS = [f"{'<['[number % 2]}A slogan for city {number}{'>]'[number % 2]} (model-1)" for number in range(6)]

# What these wires do otherwise, or what only they do.
OWN: dict[str, tuple[Any, list[str]]] = {
    "connecting": (
        {
            "version": VERSION,
            "server": {"name": "travel desk", "title": "Travel desk", "version": "1.2.3"},
            "instructions": "Ask for a table.",
            "offers": ["completions", "logging", "prompts", "resources", "tools"],
        },
        [],
    ),
    "listing tools": (TOOLS.split(), []),
    "a ping": ({}, []),
    "a form refused": ({"failed": "The client did not answer elicitation/create: Not now (-32000)"}, [BOOK]),
    "a page first": ({"pages": [["join-1", "https://desk.example/join"]], "again": True}, []),
    "two clients": (sorted(SLOGANS), [sample(1, 20)] * 3),
    "progress": ({"released": True, "steps": STEPS}, []),
    "logs of any level": ([["info", None, "Starting: packing"], ["debug", None, "Completed step 1"]], []),
    "logs of one level": ([["info", None, "Starting: packing"]], []),
    "logs of no level": ([], []),
    "lists that change": (["prompts", "resources", "tools"], []),
    "a resource that changes": (["one", "two"], []),
    "an unknown resource": ({"code": -32002}, []),
    "a client that cannot answer": ([{"failed": UNDECLARED + lacking} for lacking in LACKING], []),
}
# What they have no use for: a round that is looked at, a call that is handed on, a request that listens.
FOREIGN = {
    "a number that JSON does not have",
    "one round for three kinds",
    "one round for two tasks",
    "one round for three parameters",
    "finished by another client",
    "a state for another call",
    "logs",
    "logs around a question",
    "logs nobody wants",
    "listening for lists",
    "listening for a resource",
}
EXPECTED = {**{flow: told for flow, told in FLOWS.items() if flow not in FOREIGN}, **OWN}

BROKEN: dict[str, Any] = {
    "cancelling a call": {"refused": True, "changed": ["desk://lingered"]},
    "an error after a question": {"code": -32603},
    "cut off before a question": "Told: accept",
    "cut off before the result": {"released": True, "steps": STEPS},
    "sent away": "Rested in Rome",
}
CUT_BEHIND = (b'"about":"to ask"', b'"holding"')


@pytest.fixture(scope="module")
def guest_command(request: pytest.FixtureRequest) -> Callable[[str], list[str]]:
    """How to start a client, by its name."""

    def command(name: str) -> list[str]:
        if name.startswith("mcp"):
            program = request.getfixturevalue("older_python") if name == "mcp 1.30.0" else sys.executable
            return [program, "-W", "ignore", str(OLDER / "guest.py")]
        home = request.getfixturevalue("older_node_home" if name == "sdk 1.32.2" else "node_home")
        script, source = home / "guest.mjs", (OLDER / "guest.mjs").read_bytes()
        if not script.exists() or script.read_bytes() != source:
            script.write_bytes(source)
        return [str(NODE), str(script), name.partition(" ")[0]]

    return command


def play(command: list[str], environment: dict[str, str]) -> dict[str, Line]:
    """The lines of one run, by flow."""
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return {line["flow"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module", params=[f"{guest} over {kind}" for guest in GUESTS for kind in ("http", "stdio")])
def transcript(
    request: pytest.FixtureRequest, guest_command: Callable[[str], list[str]], stdio_environment: dict[str, str]
) -> tuple[str, dict[str, Line]]:
    """The client, and what it printed."""
    guest, _, kind = request.param.partition(" over ")
    address = [request.getfixturevalue("http_url")] if kind == "http" else request.getfixturevalue("stdio_command")
    return guest, play([*guest_command(guest), kind, *address], stdio_environment)


@pytest.mark.parametrize("flow", EXPECTED)
def test_a_flow_is_completed(transcript: tuple[str, dict[str, Line]], flow: str) -> None:
    guest, lines = transcript
    said, asked = EXPECTED[flow]
    if (guest, flow) == ("client 2.4.0", "an unknown resource"):
        said = {"code": -32602}  # Under which code it shows both.
    assert lines[flow] == {"flow": flow, "said": said, "asked": asked, "amiss": []}


def test_every_flow_is_looked_at(transcript: tuple[str, dict[str, Line]]) -> None:
    assert transcript[1].keys() == EXPECTED.keys()


# Streams that break


@pytest.fixture(scope="module")
def broken_runs(
    guest_command: Callable[[str], list[str]], http_url: str, stdio_environment: dict[str, str]
) -> Iterator[dict[str, tuple["Future[dict[str, Line]]", Wire]]]:
    """All clients at once, each on a wire of its own that breaks: most of the time they wait to come back."""
    port = int(http_url.rpartition(":")[2].partition("/")[0])
    runs = {}
    with ExitStack() as wires, ThreadPoolExecutor(len(GUESTS)) as pool:
        for guest in GUESTS:
            with suppress(pytest.skip.Exception):
                command = guest_command(guest)
                wire = wires.enter_context(breaking(port, CUT_BEHIND))
                url = f"http://127.0.0.1:{wire.port}/mcp"
                runs[guest] = pool.submit(play, [*command, "broken", url], stdio_environment), wire
        yield runs


@pytest.fixture(scope="module", params=GUESTS)
def broken(
    request: pytest.FixtureRequest,
    guest_command: Callable[[str], list[str]],
    broken_runs: dict[str, tuple["Future[dict[str, Line]]", Wire]],
) -> tuple[str, dict[str, Line], Wire]:
    """The client, what it printed, and what went over its wire."""
    guest_command(request.param)  # Which says why it is not among them.
    lines, wire = broken_runs[request.param]
    return request.param, lines.result(), wire


@pytest.mark.parametrize("flow", BROKEN)
def test_a_flow_whose_stream_ends_too_soon_is_completed(broken: tuple[str, dict[str, Line], Wire], flow: str) -> None:
    assert broken[1][flow]["said"] == BROKEN[flow]


def test_a_client_comes_back_with_the_id_of_the_last_event(broken: tuple[str, dict[str, Line], Wire]) -> None:
    _, lines, wire = broken
    assert lines.keys() == BROKEN.keys()
    resumed = [got.status for got in wire.of("GET") if got.header("last-event-id") is not None]
    assert wire.cuts == len(CUT_BEHIND)
    # Both that were cut off, and the one that was sent away in each of its two rounds.
    assert resumed.count(200) == wire.cuts + 2


def test_a_client_does_not_come_back_for_what_is_over(broken: tuple[str, dict[str, Line], Wire]) -> None:
    """Some ask for the rest of a call that they cancelled, or of an error; nobody is kept asking."""
    listening = [got for got in broken[2].of("GET") if got.header("last-event-id") is None]
    assert [got.status for got in listening] == [200]


def test_a_session_is_deleted_when_its_client_closes(broken: tuple[str, dict[str, Line], Wire], http_url: str) -> None:
    [deleted] = broken[2].of("DELETE")
    session = deleted.header("mcp-session-id")
    assert deleted.status == 204
    assert session is not None
    headers = {"mcp-session-id": session, "accept": "application/json, text/event-stream"}
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert httpx2.post(http_url, json=ping, headers=headers).status_code == 404


# Both modes of one client


def test_both_modes_of_a_client_are_served_by_one_process_at_once(http_url: str) -> None:
    async def trip(mode: str, city: str) -> tuple[str, str]:
        person = Person([{"city": city}])
        async with replace(client_of(http_url, person), mode=mode) as client:
            return client.protocol_version, text_of(await client.call_tool("prepare"))

    async def both() -> list[tuple[str, str]]:
        modes = ("auto", "legacy") * 5
        return await asyncio.gather(*(trip(mode, f"city {number}") for number, mode in enumerate(modes)))

    papers = "<A motto>; papers at file:///home/ada/papers"
    expected = [(("2026-07-28", VERSION)[number % 2], f"city {number}; {papers}") for number in range(10)]
    assert asyncio.run(both()) == expected
