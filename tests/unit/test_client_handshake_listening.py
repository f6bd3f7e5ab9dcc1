"""What changes, in a session over HTTP: one stream of its own, for everybody who listens."""

import asyncio
import time
from typing import Any

import pytest

from tests.unit.older import NEWEST, Older, Stream, initialized, meeting, methods
from tests.unit.scripted import Line, Peer, Request, event, http, run, serving
from turnwise import Change, Client, ConnectionLost, InvalidReply, MCPError, UnexpectedStatus, _listening

OFFERS: Any = {"tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True, "listChanged": True}}
TOOLS = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def told(uri: str) -> Any:
    return {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}


def telling(*messages: Any) -> Any:
    async def listening(server: Older, request: Request, stream: Stream) -> None:
        await stream.raw(b": here\n\n")
        for message in messages:
            await stream.say(message)
        await stream.line.gone.wait()

    return listening


def gets(peer: Peer) -> int:
    return sum(request.method == "GET" for request in peer.requests)


def test_changes_are_heard_on_a_stream_of_their_own() -> None:
    async def flow() -> tuple[list[Change], Peer]:
        server = Older(listening=telling(TOOLS, told("memo://b"), told("memo://a/part")), opening=initialized(**OFFERS))
        async with meeting(server) as (client, peer):
            wanted: Any = {"tools_list_changed": True, "prompts_list_changed": True}
            async with client.listen(**wanted, resource_subscriptions=["memo://a"]) as subscription:
                assert subscription.honored == {"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}
                heard = [await anext(subscription), await anext(subscription)]
        return heard, peer

    heard, peer = run(flow())
    assert heard == [Change("tools"), Change("resource", "memo://a/part")]
    assert methods(peer)[2:] == ["resources/subscribe", "resources/unsubscribe"]
    [get] = [request for request in peer.requests if request.method == "GET"]
    assert get.headers["mcp-session-id"] == "session-1"
    assert get.headers["accept"] == "text/event-stream"


def test_all_who_listen_share_one_stream_and_one_subscription() -> None:
    async def flow() -> Peer:
        server = Older(listening=telling(), opening=initialized(**OFFERS))
        wanted: Any = {"resource_subscriptions": ["memo://a"]}
        async with meeting(server) as (client, peer), client.listen(**wanted):
            async with client.listen(**wanted):
                pass
            assert methods(peer).count("resources/unsubscribe") == 0
        return peer

    peer = run(flow())
    assert gets(peer) == 1
    assert methods(peer).count("resources/subscribe") == methods(peer).count("resources/unsubscribe") == 1


def test_who_leaves_does_not_wait_long_for_a_server_that_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_listening, "LAST_WORDS", 0.1)

    class Deaf(Older):
        async def _request(self, request: Request, line: Line) -> None:
            if request.rpc == "resources/unsubscribe":
                await line.gone.wait()
            await super()._request(request, line)

    async def flow() -> None:
        server = Deaf(listening=telling(), opening=initialized(**OFFERS))
        async with meeting(server) as (client, peer):
            began = time.monotonic()
            async with client.listen(resource_subscriptions=["memo://a", "memo://b", "memo://c"]):
                pass
            assert time.monotonic() - began < 5
            assert methods(peer).count("resources/unsubscribe") == 1
            assert not client._conversation.subscribed  # type: ignore[attr-defined]
            assert client._conversation.watching is None  # type: ignore[attr-defined]

    run(flow())


def test_a_stream_that_goes_on_forgets_who_no_longer_listens() -> None:
    async def flow() -> None:
        server = Older(listening=telling(), opening=initialized(**OFFERS))
        async with meeting(server) as (client, _), client.listen(tools_list_changed=True):
            before = len(client._conversation.watching._callbacks)  # type: ignore[attr-defined]
            for _ in range(5):
                async with client.listen(tools_list_changed=True):
                    pass
            assert len(client._conversation.watching._callbacks) == before  # type: ignore[attr-defined]

    run(flow())


def test_a_change_that_is_told_in_the_stream_of_a_call_is_heard_too() -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.say(TOOLS)
        await stream.say(request.reply({"content": []}))

    async def flow() -> Change:
        server = Older(call, listening=telling(), opening=initialized(**OFFERS))
        async with meeting(server) as (client, _), client.listen(tools_list_changed=True) as subscription:
            await client.call_tool("t", {})
            return await anext(subscription)

    assert run(flow()) == Change("tools")


def test_a_server_without_such_a_stream_says_so() -> None:
    async def flow() -> None:
        async with meeting(Older(opening=initialized(**OFFERS))) as (client, _):
            with pytest.raises(UnexpectedStatus, match="what changes"):
                async with client.listen(tools_list_changed=True):
                    pass

    run(flow())


def test_what_is_no_stream_is_refused() -> None:
    async def listening(server: Older, request: Request, stream: Stream) -> None:
        await stream.line.send(http(b"{}", 200))

    async def flow() -> None:
        async with meeting(Older(listening=listening, opening=initialized(**OFFERS))) as (client, _):
            with pytest.raises(InvalidReply, match="stream"):
                async with client.listen(tools_list_changed=True):
                    pass

    run(flow())


def test_a_stream_that_ends_is_opened_again_where_it_was() -> None:
    times = 0

    async def listening(server: Older, request: Request, stream: Stream) -> None:
        nonlocal times
        times += 1
        if times == 1:
            await stream.raw(b"retry: 10\nid: e1\n" + event(TOOLS))
            stream.line.close()
            return
        assert request.headers["last-event-id"] == "e1"
        await stream.say(told("memo://a"))
        await stream.line.gone.wait()

    async def flow() -> list[Change]:
        server = Older(listening=listening, opening=initialized(**OFFERS))
        wanted: Any = {"tools_list_changed": True, "resource_subscriptions": ["memo://a"]}
        async with meeting(server) as (client, _), client.listen(**wanted) as subscription:
            return [await anext(subscription), await anext(subscription)]

    assert run(flow()) == [Change("tools"), Change("resource", "memo://a")]


def test_a_stream_that_always_ends_is_given_up() -> None:
    async def listening(server: Older, request: Request, stream: Stream) -> None:
        await stream.raw(b"retry: 1\n\n")
        stream.line.close()

    async def flow() -> Peer:
        server = Older(listening=listening, opening=initialized(**OFFERS))
        async with meeting(server) as (client, peer), client.listen(tools_list_changed=True) as subscription:
            with pytest.raises(ConnectionLost):
                await anext(subscription)
        return peer

    assert gets(run(flow())) == 5


def test_a_new_session_is_subscribed_again() -> None:
    async def listening(server: Older, request: Request, stream: Stream) -> None:
        if request.headers["mcp-session-id"] not in server.alive:
            await stream.line.send(http(b"", 404, kind=None))
        elif "session-1" in server.alive:
            server.alive.clear()
            await stream.raw(b"retry: 1\n\n")
            stream.line.close()
        else:
            await stream.say(TOOLS)
            await stream.line.gone.wait()

    async def flow() -> list[str]:
        server = Older(listening=listening, opening=initialized(**OFFERS))
        wanted: Any = {"tools_list_changed": True, "resource_subscriptions": ["memo://a"]}
        async with meeting(server) as (client, peer), client.listen(**wanted) as subscription:
            await anext(subscription)
        return methods(peer)

    sent = run(flow())
    assert sent.count("initialize") == 2
    assert sent.count("resources/subscribe") >= 2


def test_log_lines_that_belong_to_no_call_reach_the_callback() -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()
    line = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "late"}}

    async def flow() -> Any:
        async with meeting(Older(listening=telling(line)), logging_callback=heard.put_nowait):
            return (await heard.get()).data

    assert run(flow()) == "late"


def test_a_subscription_that_is_refused_takes_nothing_from_the_others() -> None:
    async def flow() -> Peer:
        server = Older(listening=telling(), opening=initialized(**OFFERS))

        async def script(request: Request, line: Line) -> None:
            if request.method == "POST" and b"memo://no" in request.body:
                await line.json(request.refusal(-32602))
            else:
                await server(request, line)

        async with serving(script) as peer, Client(peer.url, mode=NEWEST) as client:
            async with client.listen(resource_subscriptions=["memo://a"]):
                with pytest.raises(MCPError):
                    async with client.listen(resource_subscriptions=["memo://no", "memo://a"]):
                        pass
                assert methods(peer).count("resources/unsubscribe") == 0
            return peer

    assert methods(run(flow())).count("resources/unsubscribe") == 1
