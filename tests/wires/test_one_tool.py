"""One file of tools, unchanged, on every wire: the same answers, the same result.

The clients are written by hand, so that it is the wire that is tested.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import turnwise
from tests.wires import tool
from tests.wires.clients import (
    APPROVED,
    CAPABILITIES,
    FINAL,
    FIRST_DRAFT,
    KINDS,
    MULTI_TURN,
    RELEASED,
    Channel,
    Http,
    Live,
    Stdio,
    Wire,
    in_time,
    opened,
)
from tests.wires.people import Person
from tests.wires.serving import serving

SOURCE = str(Path(turnwise.__file__).parents[1])
WITHOUT_FORMS = RELEASED[:2]
WITHOUT_PAGES = RELEASED[:3]
SAID_BY_SOME = {"resultType", "_meta", "ttlMs", "cacheScope"}
"""Members that some wires have besides; all others are the same on all of them."""


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the steps of all servers leave a line each."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("wires") / "effects.log"
        patch.setenv("EFFECTS", str(path))
        yield path


@pytest.fixture(scope="module")
def url(effects: Path) -> Iterator[str]:
    with serving(tool.make_server().asgi()) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@asynccontextmanager
async def over_http(url: str, always: dict[str, str] | None = None) -> AsyncIterator[Channel]:
    async with aiohttp.ClientSession() as session:
        yield Http(session, url, always)


@asynccontextmanager
async def over_stdio() -> AsyncIterator[Channel]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, tool.__file__, "stdio"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    try:
        yield Stdio(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0


def capabilities(version: str) -> dict[str, Any]:
    """What a client of a version can have to declare."""
    if version in WITHOUT_FORMS:
        return {"sampling": {}, "roots": {}}
    return {**CAPABILITIES, "elicitation": {}} if version in WITHOUT_PAGES else CAPABILITIES


async def told(wire: Wire, person: Person, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A result, without what only some wires say."""
    reply = await wire.call(method, params, person.answer)
    return {name: part for name, part in reply["result"].items() if name not in SAID_BY_SOME}


def trip(city: str) -> dict[str, Any]:
    return {
        "booking": f"a room in {city}",
        "guest": {"name": "Ada", "age": 36},
        "motto": f"Ada: A motto for {city}",
        "folders": ["file:///Ada/36"],
        "meal": "soup for Ada",
        "row": 36,
    }


async def have_it_all(wire: Wire, place: str) -> None:
    """Everything that the wire's version has, once."""
    await have_a_sketch(wire, f"{place}-sketch")
    if wire.version in WITHOUT_FORMS:
        await miss_a_form(wire, f"{place}-form")
        return
    for form in ("inline", "declared", "returned"):
        await have_a_trip(wire, form, f"{place}-{form}")
    await stay_at_home(wire, f"{place}-home")
    await have_a_letter_and_a_ticket(wire, place)
    if wire.version not in WITHOUT_PAGES:
        result = await told(wire, Person(), "tools/call", {"name": "visit", "arguments": {"city": place}})
        assert result["content"] == [{"type": "text", "text": f"{place}: accept"}]


async def have_a_trip(wire: Wire, form: str, city: str) -> None:
    person = Person()
    result = await told(wire, person, "tools/call", {"name": form, "arguments": {"city": city}})
    assert result.keys() == {"content", "structuredContent"}
    assert result["structuredContent"] == trip(city)
    assert sorted(person.asked) == sorted(
        [
            f"Who goes to {city}?",
            "sampling/createMessage",
            "roots/list",
            f"Which meal to {city}?",
            f"Which row to {city}?",
        ]
    )
    rounds = {"inline": 5, "declared": 2, "returned": 3}[form]
    assert wire.rounds == (1 if isinstance(wire, Live) else rounds)


async def have_a_sketch(wire: Wire, city: str) -> None:
    person = Person()
    result = await told(wire, person, "tools/call", {"name": "sketch", "arguments": {"city": city}})
    assert result["structuredContent"]["result"] == [f"a room in {city}", f"Ada: A motto for {city}", "file:///Ada/36"]
    assert person.asked == ["sampling/createMessage", "roots/list"]


async def stay_at_home(wire: Wire, city: str) -> None:
    result = await told(wire, Person(action="decline"), "tools/call", {"name": "inline", "arguments": {"city": city}})
    assert result == {"content": [{"type": "text", "text": f"Nobody goes to {city}: decline"}], "isError": True}


async def miss_a_form(wire: Wire, city: str) -> None:
    person = Person()
    result = await told(wire, person, "tools/call", {"name": "inline", "arguments": {"city": city}})
    assert result["isError"] is True
    assert "did not declare a required capability: elicitation" in result["content"][0]["text"]
    assert person.asked == []


async def have_a_letter_and_a_ticket(wire: Wire, city: str) -> None:
    text = f"A letter about soup for Ada on the way to {city}"
    asked = await told(wire, Person(), "prompts/get", {"name": "letter", "arguments": {"city": city}})
    assert asked["messages"] == [{"role": "user", "content": {"type": "text", "text": text}}]
    read = await told(wire, Person(), "resources/read", {"uri": f"ticket://{city}"})
    assert read == {"contents": [{"uri": f"ticket://{city}", "mimeType": "text/plain", "text": f"{city}, row 36"}]}


def reserved(effects: Path, place: str) -> list[str]:
    """The rooms that were reserved for this place, which is what the step in every tool does."""
    lines = [line.split() for line in effects.read_text().splitlines()]
    return sorted(city.removeprefix(f"{place}-") for _, effect, city in lines if city.startswith(f"{place}-"))


def rooms(version: str) -> list[str]:
    """One for each call: no step is done again, however often its function is played."""
    if version in WITHOUT_FORMS:
        return ["form", "sketch"]
    return ["declared", "home", "inline", "returned", "sketch"]


@pytest.mark.parametrize("version", KINDS)
def test_over_http_every_wire_has_the_same_result(version: str, url: str, effects: Path) -> None:
    async def run() -> None:
        async with over_http(url) as channel:
            wire = await opened(channel, version, capabilities(version))
            await have_it_all(wire, f"http.{version}")
            await wire.close()

    in_time(run())
    assert reserved(effects, f"http.{version}") == rooms(version)


@pytest.mark.parametrize("version", [MULTI_TURN, APPROVED, FIRST_DRAFT])
def test_a_draft_needs_no_handshake_where_the_header_names_it(version: str, url: str, effects: Path) -> None:
    async def run() -> None:
        async with over_http(url) as channel:
            await have_it_all(KINDS[version](channel, version), f"bare.{version}")

    in_time(run())
    assert reserved(effects, f"bare.{version}") == rooms(version)


def test_over_standard_streams_every_wire_has_the_same_result(effects: Path) -> None:
    """One process; a client that opens again in another version is served in that from then on."""
    spoken = [version for version in KINDS if version != MULTI_TURN]

    async def run() -> None:
        async with over_stdio() as channel:
            for version in spoken:
                wire = await opened(channel, version, capabilities(version))
                await have_it_all(wire, f"stdio.{version}")

    in_time(run())
    assert {version: reserved(effects, f"stdio.{version}") for version in spoken} == {
        version: rooms(version) for version in spoken
    }


def test_multi_turn_streams_exist_over_http_only() -> None:
    """Where there is no stream to end, the newest version that both know is spoken."""

    async def run() -> Any:
        async with over_stdio() as channel:
            wire = Wire(channel, MULTI_TURN)
            client = {"protocolVersion": MULTI_TURN, "capabilities": CAPABILITIES, "clientInfo": {"name": "c"}}
            return await wire.one(wire.message("initialize", client), {})

    assert in_time(run())["result"]["protocolVersion"] == RELEASED[-1]


def test_what_every_wire_lists_is_the_same(url: str) -> None:
    async def names(version: str) -> tuple[list[str], ...]:
        async with over_http(url) as channel:
            wire = await opened(channel, version, capabilities(version))
            found = []
            for method, member in (("tools/list", "tools"), ("prompts/list", "prompts")):
                result = await told(wire, Person(), method, {})
                found.append([entry["name"] for entry in result[member]])
            await wire.close()
            return tuple(found)

    for version in KINDS:
        tools, prompts = in_time(names(version))
        assert tools == ["inline", "declared", "returned", "sketch", "visit", "load"], version
        assert prompts == ["letter"], version


def test_a_draft_that_was_not_turned_on_is_not_spoken() -> None:
    server = turnwise.MCPServer("plain")

    async def run(port: int, version: str) -> Any:
        async with over_http(f"http://127.0.0.1:{port}/mcp") as channel:
            wire = Wire(channel, version)
            client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            return await wire.one(wire.message("initialize", client), {})

    with serving(server.asgi()) as port:
        for version in (MULTI_TURN, APPROVED, FIRST_DRAFT, FINAL, "2199-01-01"):
            assert in_time(run(port, version))["result"]["protocolVersion"] == RELEASED[-1]
