"""One server, one client, every wire that both have: the same calls, the same questions, the same results."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.joined import PYTHONPATH, run, serving, text
from turnwise import Change, Client, Command, DeadlineExceeded, MCPServer, Pending
from turnwise.dialects.words import DRAFT_2026_02, DRAFTS, HANDSHAKES, SEP_1858, SEP_2322, VERSION

CODE = """
import asyncio, sys
from pydantic import BaseModel
from turnwise import AcceptedElicitation, Context, MCPServer

class Trip(BaseModel):
    city: str
    days: int = 3

server = MCPServer("agency", dialects=["DRAFT-SEP-1858", "DRAFT-2026-v1", "DRAFT-2026-02-03"])
cancelled = []

@server.tool()
async def travel(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "asking")
    trip = await ctx.elicit("Where to?", Trip, key="trip")
    if not isinstance(trip, AcceptedElicitation):
        return trip.action
    folders = await ctx.roots()
    said = await ctx.sample(f"A verse on {trip.data.city}", key="verse")
    return f"{trip.data.city}, {trip.data.days} days, {len(folders)} folder, {said.content.text}"

@server.tool()
async def visit(ctx: Context) -> str:
    return (await ctx.elicit_url("Please look", "https://example.com/page", key="page")).action

@server.tool()
async def hang(ctx: Context) -> str:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        cancelled.append(1)
        raise
    return "never"

@server.tool()
async def ended() -> int:
    return len(cancelled)

@server.tool()
async def change(ctx: Context) -> str:
    await ctx.notify_resource_updated("memo://a")
    return "changed"

@server.resource("memo://a")
def memo() -> str:
    return "a"
"""
RUN = 'server.run(sys.argv[1], **({"port": 0} if sys.argv[1] == "http" else {}))\n'
MODES = (VERSION, *HANDSHAKES, SEP_2322, DRAFT_2026_02)
WAYS = [f"{mode} over {way}" for way in ("memory", "stdio", "http") for mode in MODES] + [f"{SEP_1858} over http"]
WAITING = [way for way in WAYS if way.startswith(("DRAFT", VERSION))]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(CODE + RUN, "http") as found:
        yield found


def own() -> MCPServer[Any]:
    names: dict[str, Any] = {}
    exec(CODE, names)
    server: MCPServer[Any] = names["server"]
    return server


@pytest.fixture
def way(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A server, and the version to speak with it."""
    mode, _, way = request.param.partition(" over ")
    if way == "memory":
        return own(), mode
    if way == "http":
        return request.getfixturevalue("url"), mode
    return Command([sys.executable, "-c", CODE + RUN, "stdio"], env={"PYTHONPATH": PYTHONPATH}), mode


every_way = pytest.mark.parametrize("way", WAYS, indirect=True)


class Person:
    def __init__(self, action: str = "accept") -> None:
        self.action = action
        self.asked: list[Any] = []

    def elicit(self, asking: Any, params: Any) -> dict[str, Any]:
        self.asked.append(asking)
        content = {"content": {"city": "Ulm"}} if self.action == "accept" and asking.url is None else {}
        return {"action": self.action, **content}

    def sample(self, asking: Any, params: Any) -> dict[str, Any]:
        self.asked.append(asking)
        return {"role": "assistant", "content": {"type": "text", "text": "O!"}, "model": "m"}

    def roots(self, asking: Any) -> dict[str, Any]:
        self.asked.append(asking)
        return {"roots": [{"uri": "file:///a"}]}


def client_of(way: tuple[Any, Any], person: Person, **options: Any) -> Client:
    target, mode = way
    return Client(
        target,
        mode=mode,
        elicitation_callback=person.elicit,
        sampling_callback=person.sample,
        list_roots_callback=person.roots,
        **options,
    )


@every_way
def test_a_tool_asks_everything(way: tuple[Any, Any]) -> None:
    person = Person()
    heard: list[Any] = []

    async def flow() -> None:
        async with client_of(way, person) as client:
            assert client.protocol_version == way[1]
            result = await client.call_tool("travel", progress_callback=lambda *news: heard.append(news))
            assert text(result) == "Ulm, 3 days, 1 folder, O!"

    run(flow())
    assert [asking.target for asking in person.asked] == ["travel"] * 3
    assert heard[0] == (1.0, 2, "asking")


@every_way
def test_a_person_who_says_no_is_heard(way: tuple[Any, Any]) -> None:
    async def flow() -> None:
        async with client_of(way, Person("decline")) as client:
            assert text(await client.call_tool("travel")) == "decline"

    run(flow())


@every_way
def test_a_page_is_visited(way: tuple[Any, Any]) -> None:
    async def flow() -> str:
        async with client_of(way, Person()) as client:
            return text(await client.call_tool("visit"))

    assert run(flow()) == "accept"


@every_way
def test_a_call_that_is_given_up_ends_in_the_server(way: tuple[Any, Any]) -> None:
    async def flow() -> None:
        async with client_of(way, Person()) as client:
            before = text(await client.call_tool("ended"))
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("hang", read_timeout_seconds=0.3)
            while text(await client.call_tool("ended")) == before:  # noqa: ASYNC110 - it happens elsewhere
                await asyncio.sleep(0.01)

    run(flow())


@pytest.mark.parametrize("way", WAITING, indirect=True)
def test_a_call_is_put_down_and_picked_up(way: tuple[Any, Any]) -> None:
    async def flow() -> str:
        target, mode = way
        person = Person()
        more: Any = {"sampling_callback": person.sample, "list_roots_callback": person.roots}
        async with Client(target, mode=mode, **more) as client:
            pending = await client.begin("travel")
            assert isinstance(pending, Pending)
            again = Pending.from_json(pending.to_json())
            [key] = again.unanswered
            if isinstance(target, str):
                async with Client(target, mode=mode, **more) as other:
                    done: Any = await other.resume(again, {key: {"action": "accept", "content": {"city": "Bern"}}})
            else:
                done = await client.resume(again, {key: {"action": "accept", "content": {"city": "Bern"}}})
            return text(done.result)

    assert run(flow()) == "Bern, 3 days, 1 folder, O!"


@pytest.mark.parametrize("way", [way for way in WAYS if not way.startswith("DRAFT")], indirect=True)
def test_changes_are_told(way: tuple[Any, Any]) -> None:
    async def flow() -> Change:
        async with client_of(way, Person()) as client, client.listen(resource_subscriptions=["memo://a"]) as heard:
            await client.call_tool("change")
            return await anext(heard)

    assert run(flow()) == Change("resource", "memo://a")


def test_the_drafts_are_all_there() -> None:
    assert {way.partition(" over ")[0] for way in WAYS} == {VERSION, *HANDSHAKES, *DRAFTS}
