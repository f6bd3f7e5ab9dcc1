"""Results that are used again: for how long, by whom, and what ends it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.joined import Json, Peer, Tap, accept, asking, form, run, serving
from turnwise import (
    Asking,
    CacheHint,
    Change,
    Client,
    Context,
    InvalidReply,
    MCPError,
    MCPServer,
    ResponseCache,
    TurnwiseError,
)
from turnwise._caching import Keys
from turnwise.dialects.listing import CACHEABLE

SILENT: Any = {"mode": "2026-07-28"}
MINUTE = CacheHint(ttl_ms=60_000)
PUBLIC = CacheHint(ttl_ms=60_000, scope="public")
Fetch = Callable[[Client], Awaitable[Any]]

FETCHES: dict[str, Fetch] = {
    "server/discover": lambda client: client.discover(),
    "tools/list": lambda client: client.list_tools(),
    "prompts/list": lambda client: client.list_prompts(),
    "resources/list": lambda client: client.list_resources(),
    "resources/templates/list": lambda client: client.list_resource_templates(),
    "resources/read": lambda client: client.read_resource("atlas://world"),
}


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("turnwise.client.time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def atlas(hint: CacheHint | None = MINUTE, **options: Any) -> Tap:
    """A server with one of everything, under this hint; what it was asked is on the tap."""
    hints = {} if hint is None else dict.fromkeys(CACHEABLE, hint)
    server: MCPServer[Any] = MCPServer("atlas", cache_hints=hints, **options)

    @server.tool()
    async def locate(city: str) -> str:
        return city

    @server.prompt()
    async def describe(city: str) -> str:
        return city

    @server.resource("atlas://world")
    async def world() -> str:
        return "round"

    @server.resource("atlas://moon")
    async def moon() -> str:
        return "round"

    @server.resource("atlas://city/{name}")
    async def city(name: str) -> str:
        return name

    @server.resource("atlas://secret")
    async def secret(ctx: Context) -> str:
        word = await ctx.elicit("The password?", str)
        return str(word)

    return Tap(server)


def server_of(tap: Tap) -> MCPServer[Any]:
    server: Any = tap._server
    return server if isinstance(server, MCPServer) else pytest.fail("no server")


async def fetched(client: Client, *fetches: Fetch) -> None:
    for fetch in fetches:
        await fetch(client)


# How long


@pytest.mark.parametrize("method", FETCHES)
def test_a_fresh_result_is_used_again_and_nothing_is_sent(method: str) -> None:
    tap, fetch = atlas(), FETCHES[method]

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            first = await fetch(client)
            assert await fetch(client) == first
            assert await fetch(client) == first

    run(visit())
    assert tap.methods == [method]


@pytest.mark.parametrize("method", FETCHES)
@pytest.mark.parametrize("hint", [None, CacheHint(ttl_ms=0), CacheHint(ttl_ms=0, scope="public")])
def test_a_result_that_is_stale_at_once_is_fetched_again(method: str, hint: CacheHint | None) -> None:
    tap, fetch = atlas(hint), FETCHES[method]

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            await fetched(client, fetch, fetch)

    run(visit())
    assert tap.methods == [method, method]


def test_a_result_is_fresh_for_as_long_as_its_server_said(clock: Clock) -> None:
    tap = atlas(CacheHint(ttl_ms=1500))

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            await client.list_tools()
            clock.now += 1.4
            await client.list_tools()
            assert len(tap.requests) == 1
            clock.now += 0.2
            await client.list_tools()
            assert len(tap.requests) == 2
            clock.now += 1.4
            await client.list_tools()
            assert len(tap.requests) == 2

    run(visit())


@pytest.mark.parametrize("ttl", [None, -1, True, "60000", 1.5, [60000]])
def test_what_is_no_time_is_no_freshness(ttl: Any) -> None:
    peer = Peer(lambda method, params: {"prompts": [], "ttlMs": ttl, "cacheScope": "public"})

    async def visit() -> None:
        async with Client(peer, **SILENT) as client:
            for _ in range(2):
                with suppress(InvalidReply):  # Whether it is read at all is for the official types to say.
                    await client.list_prompts()

    run(visit())
    assert len(peer.requests) == 2


def test_nothing_is_fresh_for_longer_than_a_day(clock: Clock) -> None:
    peer = Peer(lambda method, params: {"prompts": [], "ttlMs": 10**15, "cacheScope": "private"})

    async def visit() -> None:
        async with Client(peer, **SILENT) as client:
            await client.list_prompts()
            clock.now += 24 * 3600 - 1
            await client.list_prompts()
            assert len(peer.requests) == 1
            clock.now += 2
            await client.list_prompts()
            assert len(peer.requests) == 2

    run(visit())


# What is kept apart


def test_without_a_cache_everything_is_fetched() -> None:
    tap = atlas()

    async def visit() -> None:
        async with Client(tap, cache=False, **SILENT) as client:
            await fetched(client, *FETCHES.values(), *FETCHES.values())

    run(visit())
    assert tap.methods == [*FETCHES, *FETCHES]


def test_pages_and_resources_are_kept_one_by_one() -> None:
    tap = atlas(page_size=1)

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            for _ in range(2):
                names = [entry.name async for entry in client.iter_resources()]
                assert names == ["world", "moon", "secret"]
            assert tap.methods == ["resources/list"] * 3
            await client.read_resource("atlas://world")
            await client.read_resource("atlas://moon")
            await client.read_resource("atlas://world")
            assert tap.methods[3:] == ["resources/read"] * 2

    run(visit())


def test_a_call_with_meta_of_its_own_is_neither_kept_nor_answered_from_what_was_kept() -> None:
    tap = atlas()

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            await client.read_resource("atlas://world", meta={"com.example/as": "ada"})
            await client.read_resource("atlas://world")
            await client.read_resource("atlas://world", meta={"com.example/as": "ada"})
            await client.read_resource("atlas://world")

    run(visit())
    assert len(tap.requests) == 3


def test_what_depends_on_answers_is_not_kept() -> None:
    tap, asked = atlas(), list[str]()

    async def answer(asking: Asking, params: Any) -> Json:
        asked.append(asking.key)
        return accept(value="sesame")

    async def visit() -> None:
        async with Client(tap, elicitation_callback=answer, **SILENT) as client:
            await client.read_resource("atlas://secret")
            await client.read_resource("atlas://secret")

    run(visit())
    assert len(asked) == 2
    assert len(tap.requests) == 4


def test_a_question_is_not_kept_even_if_it_says_that_it_is_fresh() -> None:
    def answer(method: str, params: Json) -> Json:
        done: Json = {"contents": [], "ttlMs": 60_000, "cacheScope": "public"}
        return done if "inputResponses" in params else asking({"q": form()}) | done

    peer = Peer(answer)

    async def reply(asking: Asking, params: Any) -> Json:
        return accept()

    async def visit() -> None:
        async with Client(peer, elicitation_callback=reply, **SILENT) as client:
            await client.read_resource("x://y")
            await client.read_resource("x://y")

    run(visit())
    assert len(peer.requests) == 4


def test_what_took_another_try_is_not_kept() -> None:
    def answer(method: str, params: Json) -> Json:
        done = {"contents": [], "ttlMs": 60_000, "cacheScope": "public"}
        return done if "requestState" in params else asking({}, "later")

    peer = Peer(answer)

    async def visit() -> None:
        async with Client(peer, **SILENT) as client:
            await client.read_resource("x://y")
            await client.read_resource("x://y")

    run(visit())
    assert len(peer.requests) == 4


def test_an_error_is_not_kept() -> None:
    tap = atlas()

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            for _ in range(2):
                with pytest.raises(TurnwiseError):
                    await client.read_resource("atlas://nothing")

    run(visit())
    assert len(tap.requests) == 2


def test_what_a_caller_does_to_a_result_changes_nothing_for_the_next_one() -> None:
    tap = atlas()

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            for _ in range(3):
                page = await client.list_tools()
                assert [tool.name for tool in page.tools] == ["locate"]
                assert page.tools[0].input_schema["required"] == ["city"]
                page.tools[0].input_schema["required"].clear()
                page.tools.clear()

    run(visit())
    assert len(tap.requests) == 1


# What ends freshness


@pytest.mark.parametrize(
    ("change", "ended"),
    [
        (Change("tools"), {"tools/list"}),
        (Change("prompts"), {"prompts/list"}),
        (Change("resources"), {"resources/list", "resources/templates/list"}),
        (Change("resource", "atlas://world"), {"resources/read"}),
        (Change("resource", "atlas://moon"), set()),
    ],
)
def test_a_change_that_is_told_ends_the_freshness_of_what_it_is_about(change: Change, ended: set[str]) -> None:
    tap = atlas()
    wanted: Any = {
        "tools_list_changed": True,
        "prompts_list_changed": True,
        "resources_list_changed": True,
        "resource_subscriptions": ["atlas://world", "atlas://moon"],
    }

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            await fetched(client, *FETCHES.values())
            async with client.listen(**wanted) as subscription:
                await server_of(tap).publish(change)
                assert await anext(subscription) == change
                tap.requests.clear()
                await fetched(client, *FETCHES.values())

    run(visit())
    assert set(tap.methods) == ended


def test_a_cursor_that_is_refused_ends_the_freshness_of_all_pages() -> None:
    def answer(method: str, params: Json) -> Json:
        if "cursor" in params:
            raise MCPError(-32602, "Invalid cursor")
        return {"prompts": [], "nextCursor": "2", "ttlMs": 60_000, "cacheScope": "private"}

    async def visit() -> None:
        peer = Peer(answer)
        async with Client(peer, **SILENT) as client:
            await client.list_prompts()
            await client.list_prompts()
            assert len(peer.requests) == 1
            with pytest.raises(MCPError, match="Invalid cursor"):
                await client.list_prompts(cursor="2")
            await client.list_prompts()
            assert [request["params"].get("cursor") for request in peer.requests] == [None, "2", None]

    run(visit())


def test_a_result_that_was_under_way_when_the_change_was_told_is_not_taken_for_fresh() -> None:
    async def visit() -> None:
        asked, told = asyncio.Event(), asyncio.Event()

        async def answer(method: str, params: Json) -> Any:
            assert peer.notify is not None
            notify = peer.notify
            if method == "subscriptions/listen":
                acknowledged = {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}}
                await notify(acknowledged)
                await asked.wait()
                await notify({"method": "notifications/prompts/list_changed"})
                told.set()
                await asyncio.Event().wait()
            asked.set()
            await told.wait()
            return {"prompts": [], "ttlMs": 60_000, "cacheScope": "private"}

        peer = Peer(answer)
        async with Client(peer, **SILENT) as client, client.listen(prompts_list_changed=True):
            await client.list_prompts()
            await client.list_prompts()
            assert [request["method"] for request in peer.requests] == ["subscriptions/listen", *["prompts/list"] * 2]

    run(visit())


# Who shares


def test_a_private_result_is_not_shared() -> None:
    cache, taps = ResponseCache(), [atlas(), atlas()]

    async def visit() -> None:
        for tap in taps:
            async with Client(tap, cache=cache, **SILENT) as client:
                await fetched(client, *FETCHES.values())

    run(visit())
    assert [tap.methods for tap in taps] == [[*FETCHES], [*FETCHES]]


def test_servers_in_memory_have_no_address_so_nothing_of_theirs_is_shared() -> None:
    cache, taps = ResponseCache(), [atlas(PUBLIC), atlas(PUBLIC)]

    async def visit() -> None:
        for tap in taps:
            async with Client(tap, cache=cache, **SILENT) as client:
                await fetched(client, *FETCHES.values(), *FETCHES.values())

    run(visit())
    assert [tap.methods for tap in taps] == [[*FETCHES], [*FETCHES]]


SERVER = """
from itertools import count
from turnwise import CacheHint, Context, MCPServer

hints = {"tools/list": CacheHint(60_000, "public"), "prompts/list": CacheHint(60_000), "resources/list": CacheHint(0)}
server = MCPServer("counting", cache_hints=hints)
numbers = count(1)

@server.handler("tools/list")
async def tools(ctx, params):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"name": "measure", "inputSchema": {"type": "object"}, "outputSchema": schema}
    return {"tools": [{**tool, "title": str(next(numbers))}]}

@server.handler("prompts/list")
async def prompts(ctx, params):
    return {"prompts": [{"name": str(next(numbers))}]}

@server.handler("resources/list")
async def resources(ctx, params):
    return {"resources": [{"name": str(next(numbers)), "uri": "x://y"}]}

@server.tool(structured_output=False)
async def measure(ctx: Context) -> str:
    await ctx.notify_tools_changed()
    return "no structure"

server.run("http", port=0)
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SERVER) as url:
        yield url


async def numbers(client: Client) -> tuple[str | None, str, str]:
    """Which of its fetches each list is."""
    tools, prompts = await client.list_tools(), await client.list_prompts()
    return tools.tools[0].title, prompts.prompts[0].name, (await client.list_resources()).resources[0].name


def test_a_public_result_is_shared_between_the_clients_of_one_url_and_nothing_else(url: str) -> None:
    cache = ResponseCache()

    async def visit() -> None:
        async with Client(url, cache=cache, **SILENT) as one, Client(url, cache=cache, **SILENT) as other:
            mine, yours = await numbers(one), await numbers(other)
            assert yours[0] == mine[0]
            assert yours[1] != mine[1]
            again = await numbers(one)
            assert again[:2] == mine[:2]
            assert again[2] != mine[2]

    run(visit())


def test_clients_of_other_urls_and_with_other_caches_share_nothing(url: str) -> None:
    cache = ResponseCache()
    elsewhere = url.replace("127.0.0.1", "localhost")

    async def visit() -> None:
        seen = set()
        for target, shared in ((url, cache), (elsewhere, cache), (url, ResponseCache()), (url, True), (url, False)):
            async with Client(target, cache=shared, **SILENT) as client:
                seen.add((await numbers(client))[0])
        assert len(seen) == 5

    run(visit())


def test_a_change_that_one_client_hears_of_ends_the_freshness_for_all_of_them(url: str) -> None:
    cache = ResponseCache()

    async def visit() -> None:
        async with Client(url, cache=cache, **SILENT) as one, Client(url, cache=cache, **SILENT) as other:
            before = await numbers(other)
            async with one.listen(tools_list_changed=True) as subscription:
                await one.request("tools/call", {"name": "measure"})
                assert await anext(subscription) == Change("tools")
                after = await numbers(other)
                assert after[0] != before[0]
                assert after[1] == before[1]

    run(visit())


def test_a_client_that_got_the_tools_from_another_ones_fetch_knows_them_as_well(url: str) -> None:
    cache = ResponseCache()

    async def visit() -> None:
        async with Client(url, cache=cache, **SILENT) as one, Client(url, cache=cache, **SILENT) as other:
            await one.list_tools()
            await other.list_tools()
            with pytest.raises(InvalidReply, match="measure"):
                await other.call_tool("measure")

    run(visit())


# The cache by itself


def test_a_cache_holds_so_many_results_and_drops_those_that_were_not_used() -> None:
    cache, keys = ResponseCache(largest=2), Keys("me", "all")
    cache.put("me", "m", {"n": 1}, {"is": 1}, 100)
    cache.put("me", "m", {"n": 2}, {"is": 2}, 100)
    assert cache.get(keys, "m", {"n": 1}, 0) == {"is": 1}
    cache.put("me", "m", {"n": 3}, {"is": 3}, 100)
    assert [cache.get(keys, "m", {"n": number}, 0) for number in (1, 2, 3)] == [{"is": 1}, None, {"is": 3}]


def test_a_result_that_is_fetched_again_takes_no_more_room() -> None:
    cache, keys = ResponseCache(largest=2), Keys("me", "all")
    for number in range(5):
        cache.put("me", "m", {}, {"is": number}, 100)
    cache.put("all", "m", {}, {"is": "public"}, 100)
    assert cache.get(keys, "m", {}, 0) == {"is": 4}
    assert cache.get(Keys("you", "all"), "m", {}, 0) == {"is": "public"}


def test_a_result_is_stale_at_the_end_of_its_time() -> None:
    cache, keys = ResponseCache(), Keys("me", "all")
    cache.put("me", "m", {}, {"is": "private"}, 10)
    cache.put("all", "m", {}, {"is": "public"}, 20)
    assert cache.get(keys, "m", {}, 9.9) == {"is": "private"}
    assert cache.get(keys, "m", {}, 10) == {"is": "public"}
    assert cache.get(keys, "m", {}, 20) is None
    assert cache.get(keys, "m", {}, 0) is None


def test_the_order_in_which_parameters_are_written_does_not_matter() -> None:
    cache, keys = ResponseCache(), Keys("me", "all")
    cache.put("me", "m", {"a": 1, "b": [{"c": 2, "d": 3}]}, {"is": 1}, 10)
    assert cache.get(keys, "m", {"b": [{"d": 3, "c": 2}], "a": 1}, 0) == {"is": 1}
    assert cache.get(keys, "m", {"a": 1}, 0) is None


def test_forgetting_is_of_ones_own_results_and_of_the_public_ones() -> None:
    cache = ResponseCache()
    for owner in ("me", "you", "all"):
        cache.put(owner, "m", {"n": 1}, {"is": owner}, 10)
        cache.put(owner, "m", {"n": 2}, {"is": owner}, 10)
    cache.forget(Keys("me", "all"), "m", {"n": 1})
    assert cache.get(Keys("me", "all"), "m", {"n": 1}, 0) is None
    assert cache.get(Keys("me", "all"), "m", {"n": 2}, 0) == {"is": "me"}
    assert cache.get(Keys("you", "all"), "m", {"n": 1}, 0) == {"is": "you"}
    cache.forget(Keys("me", "all"), "m")
    assert cache.get(Keys("me", "all"), "m", {"n": 2}, 0) is None
    assert cache.get(Keys("you", "all"), "m", {"n": 2}, 0) == {"is": "you"}


def test_a_cache_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ResponseCache(0)
