"""Turnwise's client, unmodified, with servers of the official SDKs that ask while the call waits."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.interop.visiting import PAPERS, Serve, Target, Visitor, client_of, text_of, through_json
from turnwise import Client, ConnectionLost, DeadlineExceeded, Unanswerable, VisitDeclined

HANDSHAKE: Any = "2025-11-25"
SDKS = ("mcp 1.30.0", "mcp 2.3.0", "sdk 1.32.2")
PATIENCE = 20
INNS = [f"{sdk} over {transport}" for sdk in SDKS for transport in ("http", "stdio")]


@pytest.fixture
def inn(request: pytest.FixtureRequest) -> Target:
    """The server that the parameter names."""
    sdk, _, transport = request.param.partition(" over ")
    if transport == "http":
        return str(request.getfixturevalue("inn_url")(sdk))
    return [*request.getfixturevalue("inn_command")(sdk), "stdio"]


everywhere = pytest.mark.parametrize("inn", INNS, indirect=True)
over_http = pytest.mark.parametrize("inn", [name for name in INNS if name.endswith("http")], indirect=True)


@asynccontextmanager
async def staying(inn: Target, *answers: Any, **options: Any) -> AsyncIterator[tuple[Client, Visitor]]:
    visitor = Visitor()
    visitor.begin(answers)
    async with asyncio.timeout(PATIENCE), client_of(inn, visitor, **{"mode": HANDSHAKE, **options}) as client:
        yield client, visitor


@everywhere
def test_the_version_is_found_out(inn: Target, request: pytest.FixtureRequest) -> None:
    async def stay() -> tuple[str, str | None]:
        async with staying(inn, mode="auto") as (client, _):
            assert text_of(await client.call_tool("stairs", {"steps": 1})) == "upstairs"
            assert text_of(await client.read_resource("inn://menu")) == "Soup"
            assert client.server_info is not None
            return client.protocol_version, client.server_info.name

    version = "2026-07-28" if "2.3.0" in request.node.name else HANDSHAKE
    assert asyncio.run(stay()) == (version, "inn")


@everywhere
def test_a_tool_asks_the_user_the_model_and_for_folders(inn: Target) -> None:
    async def stay() -> None:
        async with staying(inn, {"guests": 2}, "decline", "accept") as (client, visitor):
            assert text_of(await client.call_tool("book", {"room": "attic"})) == "attic: 2, True"
            assert text_of(await client.call_tool("book", {"room": "attic"})) == "decline"
            assert text_of(await client.call_tool("enter")) == "accept"
            assert text_of(await client.call_tool("tale", {"topic": "a ghost"})) == "<a ghost>"
            assert text_of(await client.call_tool("folders")) == PAPERS
            assert visitor.messages == ["How many in the attic?"] * 2
            assert [asking.target for asking in visitor.asked] == ["book", "book", "enter", "tale", "folders"]
            assert visitor.asked[2].host == "inn.example"

    asyncio.run(stay())


@everywhere
def test_several_calls_ask_at_the_same_time(inn: Target) -> None:
    async def stay() -> None:
        async with staying(inn, *[{"guests": 3}] * 5) as (client, _):
            rooms = [f"room {number}" for number in range(5)]
            booked = await asyncio.gather(*(client.call_tool("book", {"room": room}) for room in rooms))
            assert [text_of(result) for result in booked] == [f"{room}: 3, True" for room in rooms]

    asyncio.run(stay())


@everywhere
def test_progress_and_log_lines_are_heard(inn: Target) -> None:
    async def stay() -> None:
        async with staying(inn) as (client, visitor):
            result = await client.call_tool("stairs", {"steps": 3}, progress_callback=visitor.advance)
            assert text_of(result) == "upstairs"
            assert visitor.progress == [(step, 3, f"step {step}") for step in (1, 2, 3)]
            assert [line for _, _, line in visitor.logs] == ["creak 1", "creak 2", "creak 3"]

    asyncio.run(stay())


@everywhere
def test_a_call_that_is_given_up_is_cancelled_in_the_server(inn: Target) -> None:
    async def stay() -> None:
        async with staying(inn) as (client, visitor):
            before = int(text_of(await client.call_tool("woken")))
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("sleep", read_timeout_seconds=0.5, progress_callback=visitor.advance)
            while int(text_of(await client.call_tool("woken"))) == before:  # noqa: ASYNC110 - it happens elsewhere
                await asyncio.sleep(0.02)
            assert visitor.progress

    asyncio.run(stay())


@everywhere
def test_a_page_that_has_to_be_visited_first_is(inn: Target) -> None:
    async def stay() -> None:
        async with staying(inn, "accept", "decline", "accept") as (client, visitor):
            assert text_of(await client.call_tool("library")) == "A quiet room"
            assert visitor.pages[0].url == "https://inn.example/join"
            with pytest.raises(VisitDeclined):
                await client.call_tool("library")
            assert text_of(await client.call_tool("library")) == "A quiet room"

    asyncio.run(stay())


@over_http
def test_a_call_that_waits_for_a_visit_is_put_down(inn: Target) -> None:
    async def stay() -> None:
        async with asyncio.timeout(PATIENCE), Client(inn, mode=HANDSHAKE) as client:
            pending = through_json(await client.begin("library"))
            done: Any = await client.resume(pending, {"join-1": {"action": "accept"}})
            assert text_of(done.result) == "A quiet room"

    asyncio.run(stay())


@pytest.mark.parametrize("inn", [name for name in INNS if name.startswith("mcp")], indirect=True)
def test_a_live_question_that_nobody_answers_cannot_be_put_down(inn: Target) -> None:
    """The TypeScript SDK does not even ask whoever did not declare that it answers."""

    async def stay() -> None:
        async with asyncio.timeout(PATIENCE), Client(inn, mode=HANDSHAKE) as client:
            with pytest.raises(Unanswerable, match="cannot be put down"):
                await client.begin("book", {"room": "attic"})

    asyncio.run(stay())


@over_http
def test_a_stream_that_the_server_closes_is_asked_for_again(inn: Target) -> None:
    async def stay() -> None:
        async with staying(inn) as (client, _):
            assert text_of(await client.call_tool("nap")) == "rested"

    asyncio.run(stay())


@everywhere
def test_a_server_answers_a_ping_and_takes_new_roots(inn: Target) -> None:
    async def stay() -> None:
        async with staying(inn) as (client, _):
            await client.ping()
            await client.roots_changed()
            assert [tool.name async for tool in client.iter_tools()][:2] == ["book", "enter"]

    asyncio.run(stay())


@pytest.mark.parametrize("sdk", SDKS)
def test_a_server_that_was_started_again_gets_a_new_session(
    sdk: str, inn_command: Callable[[str], list[str]], serve: Serve
) -> None:
    async def stay(url: str, restart: Any) -> None:
        async with staying(url, {"guests": 1}) as (client, _):
            await client.list_tools()
            restart()
            for _ in range(100):
                try:
                    result = await client.call_tool("book", {"room": "attic"})
                    break
                except ConnectionLost:
                    await asyncio.sleep(0.1)
            assert text_of(result) == "attic: 1, True"

    command = inn_command(sdk)
    with serve(command) as (url, process):
        again: list[subprocess.Popen[bytes]] = []

        def restart() -> None:
            process.kill()
            process.wait()
            port = url.rpartition(":")[2].partition("/")[0]
            again.append(subprocess.Popen([*command, "http", port]))

        try:
            asyncio.run(stay(url, restart))
        finally:
            for child in again:
                child.kill()
                child.wait()
