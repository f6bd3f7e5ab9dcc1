"""Subscriptions of a client: what is granted, what is told, and how they end."""

import asyncio
from typing import Any

import pytest

from tests.unit.joined import Json, Peer, run
from turnwise import (
    Change,
    Client,
    ConnectionLost,
    Context,
    DeadlineExceeded,
    InMemoryBus,
    InvalidReply,
    MCPError,
    MCPServer,
)

SILENT: Any = {"mode": "2026-07-28"}


def shop(**options: Any) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("shop", **options)

    @server.tool()
    async def add(left: int, right: int, ctx: Context) -> int:
        await ctx.notify_tools_changed()
        return left + right

    return server


class Watched(InMemoryBus):
    """A bus that knows how many listen."""

    @property
    def count(self) -> int:
        return len(self._listeners)


def test_a_subscription_tells_what_was_asked_for_and_what_is_granted() -> None:
    async def visit() -> None:
        server = shop()
        async with Client(server) as client:
            wanted: Any = {"tools_list_changed": True, "resource_subscriptions": ["shop://hours"]}
            async with client.listen(**wanted) as subscription:
                assert subscription.honored == {"toolsListChanged": True, "resourceSubscriptions": ["shop://hours"]}
                for change in (
                    Change("prompts"),
                    Change("resource", "shop://other"),
                    Change("resource", "shop://hours"),
                    Change("tools"),
                ):
                    await server.publish(change)
                assert await anext(subscription) == Change("resource", "shop://hours")
                assert await anext(subscription) == Change("tools")

    run(visit())


def test_a_subscription_ends_in_good_order_when_the_server_ends_it() -> None:
    async def visit() -> None:
        server = shop()
        async with Client(server) as client:
            async with client.listen(prompts_list_changed=True, resources_list_changed=True) as subscription:
                await server.publish(Change("prompts"))
                await server.publish(Change("resources"))
                server.close_subscriptions()
                told = [change async for change in subscription]
                assert told == [Change("prompts"), Change("resources")]
                assert [change async for change in subscription] == []
            assert not (await client.call_tool("add", {"left": 1, "right": 1})).is_error

    run(visit())


def test_leaving_the_block_ends_the_subscription_in_the_server() -> None:
    async def visit() -> None:
        bus = Watched()
        async with Client(shop(subscriptions=bus)) as client:
            async with client.listen(tools_list_changed=True), client.listen(prompts_list_changed=True):
                assert bus.count == 2
            assert bus.count == 0
            with pytest.raises(ZeroDivisionError):
                async with client.listen(tools_list_changed=True):
                    raise ZeroDivisionError
            assert bus.count == 0

    run(visit())


def test_a_subscription_that_was_left_has_nothing_more_to_tell() -> None:
    async def visit() -> None:
        async with Client(shop()) as client:
            async with client.listen(tools_list_changed=True) as subscription:
                pass
            assert [change async for change in subscription] == []

    run(visit())


def test_a_change_that_is_unread_is_not_told_twice() -> None:
    async def visit() -> None:
        server = shop()
        async with Client(server) as client, client.listen(tools_list_changed=True) as subscription:
            for _ in range(3):
                await server.publish(Change("tools"))
                await asyncio.sleep(0)
            server.close_subscriptions()
            assert [change async for change in subscription] == [Change("tools")]

    run(visit())


def test_a_server_without_subscriptions_refuses_them() -> None:
    async def visit() -> None:
        async with Client(shop(subscriptions=False)) as client:
            with pytest.raises(MCPError, match="not found"):
                async with client.listen(tools_list_changed=True):
                    raise AssertionError

    run(visit())


ACKNOWLEDGED: Json = {"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}}}
TOOLS: Json = {"method": "notifications/tools/list_changed"}


def telling(*news: Json, error: Exception | None = None, forever: bool = False) -> Peer:
    async def answer(method: str, params: Json) -> Any:
        assert peer.notify is not None
        for message in news:
            await peer.notify(message)
        if forever:
            await asyncio.Event().wait()
        if error is not None:
            raise error
        return {}

    peer = Peer(answer)
    return peer


def test_what_was_told_before_the_line_broke_is_told() -> None:
    async def visit() -> None:
        broken = ConnectionLost("gone", sent=True)
        peer = telling(ACKNOWLEDGED, TOOLS, error=broken)
        async with Client(peer, **SILENT) as client, client.listen(tools_list_changed=True) as subscription:
            assert await anext(subscription) == Change("tools")
            with pytest.raises(ConnectionLost, match="gone"):
                await anext(subscription)

    run(visit())


def test_a_subscription_that_was_acknowledged_and_ended_in_good_order_just_ends() -> None:
    async def visit() -> None:
        peer = telling(ACKNOWLEDGED, TOOLS)
        async with Client(peer, **SILENT) as client, client.listen(tools_list_changed=True) as subscription:
            assert [change async for change in subscription] == [Change("tools")]

    run(visit())


def test_a_listener_that_waits_is_told_when_the_line_breaks() -> None:
    async def visit() -> None:
        breaking = asyncio.Event()

        async def answer(method: str, params: Json) -> Any:
            assert peer.notify is not None
            await peer.notify(ACKNOWLEDGED)
            await breaking.wait()
            raise ConnectionLost("gone", sent=True)

        peer = Peer(answer)
        async with Client(peer, **SILENT) as client, client.listen(tools_list_changed=True) as subscription:
            waiting = asyncio.ensure_future(anext(subscription))
            await asyncio.sleep(0)
            breaking.set()
            with pytest.raises(ConnectionLost, match="gone"):
                await waiting

    run(visit())


def test_a_subscription_that_ends_before_it_begins_is_no_subscription() -> None:
    async def visit() -> None:
        async with Client(telling(), **SILENT) as client:
            with pytest.raises(ConnectionLost, match="at once"):
                async with client.listen(tools_list_changed=True):
                    raise AssertionError

    run(visit())


def test_a_change_before_the_acknowledgment_is_the_peers_mistake() -> None:
    async def visit() -> None:
        async with Client(telling(TOOLS, ACKNOWLEDGED), **SILENT) as client:
            with pytest.raises(InvalidReply, match="before it acknowledged"):
                async with client.listen(tools_list_changed=True):
                    raise AssertionError

    run(visit())


def test_a_subscription_that_is_not_acknowledged_in_time_is_given_up() -> None:
    async def visit() -> None:
        async with Client(telling(forever=True), read_timeout_seconds=0.02, **SILENT) as client:
            with pytest.raises(DeadlineExceeded):
                async with client.listen(tools_list_changed=True):
                    raise AssertionError

    run(visit())


def test_a_tool_that_changes_something_tells_the_subscribers_of_its_caller() -> None:
    async def visit() -> None:
        async with Client(shop()) as client, client.listen(tools_list_changed=True) as subscription:
            await client.call_tool("add", {"left": 1, "right": 1})
            assert await anext(subscription) == Change("tools")

    run(visit())


def test_changes_that_nobody_reads_do_not_pile_up_without_end() -> None:
    updates = [
        {"method": "notifications/resources/updated", "params": {"uri": f"x://{number}"}} for number in range(1100)
    ]

    async def visit() -> None:
        peer = telling(ACKNOWLEDGED, *updates, forever=True)
        async with Client(peer, **SILENT) as client, client.listen(resource_subscriptions=["x://1"]) as subscription:
            for _ in range(1024):
                await anext(subscription)
            with pytest.raises(InvalidReply, match="unread"):
                await anext(subscription)

    run(visit())
