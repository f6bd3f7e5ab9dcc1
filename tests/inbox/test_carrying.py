"""The clients by which calls go on: who has one, for how long, and what they find."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.inbox.offices import accept, asks, at_url, item, make_server, opened, run, until
from tests.inbox.test_credentials import OLD, OURS, Gate, begun, gated
from tests.wires.serving import serving
from turnwise import CallerError, Client, ConnectionLost, Context, TaskInHand, TaskOptions
from turnwise.inbox import carrying
from turnwise.inbox.carrying import LOOK_SECONDS, Away, Clients, carried_on, stopped
from turnwise.inbox.model import Item
from turnwise.inbox.places import Credentials


@pytest.fixture
def url() -> Iterator[str]:
    with at_url(make_server()) as found:
        yield found


async def itself(client: Client) -> Client:
    assert (await client.list_tools()).tools
    return client


async def is_open(client: Client) -> bool:
    try:
        await client.list_tools()
    except CallerError:
        return False
    return True


def test_a_client_is_kept_for_the_next_one_with_the_same_credentials(url: str) -> None:
    async def work() -> None:
        clients = Clients()
        first = await clients.using(url, None, itself)
        assert await clients.using(url, None, itself) is first
        assert await clients.using(url, OURS, itself) is not first
        await clients.aclose()
        assert not await is_open(first)

    run(work())


def test_clients_whose_servers_do_not_listen_are_closed_at_the_same_time(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing: set[Client] = set()
    all_here = asyncio.Event()

    async def slowly(client: Client, *_: object) -> None:
        closing.add(client)
        if len(closing) == 3:
            all_here.set()
        await asyncio.wait_for(all_here.wait(), 5)
        await leave(client)

    leave = Client.__aexit__

    async def work() -> None:
        clients = Clients()
        for way in ("a", "b", "c"):
            await clients.using(url, way, itself)
        monkeypatch.setattr(Client, "__aexit__", slowly)
        await clients.aclose()
        assert len(closing) == 3

    run(work())


def test_a_client_that_failed_is_no_longer_kept_and_is_left_to_those_who_use_it(url: str) -> None:
    async def work() -> None:
        clients, began, go = Clients(), asyncio.Event(), asyncio.Event()

        async def slowly(client: Client) -> Client:
            began.set()
            await go.wait()
            return await itself(client)

        async def in_vain(client: Client) -> Any:
            raise ConnectionLost("the server went away", sent=True)

        slow = asyncio.create_task(clients.using(url, None, slowly))
        await began.wait()
        with pytest.raises(ConnectionLost):
            await clients.using(url, None, in_vain)
        other = await clients.using(url, None, itself)
        go.set()
        first = await slow
        assert first is not other
        assert [await is_open(first), await is_open(other)] == [False, True]
        await clients.aclose()

    run(work())


@pytest.mark.parametrize(("most", "seconds", "left"), [(2, 60.0, [False, True, True]), (9, -1.0, [False] * 3)])
def test_clients_that_are_too_many_or_rest_for_too_long_are_closed(
    url: str, monkeypatch: pytest.MonkeyPatch, most: int, seconds: float, left: list[bool]
) -> None:
    async def work() -> None:
        clients = Clients()
        ways = ["Bearer a", "Bearer b", "Bearer c"]
        found = [await clients.using(url, way, itself) for way in ways]
        monkeypatch.setattr(carrying, "MOST_CLIENTS", most)
        monkeypatch.setattr(carrying, "IDLE_SECONDS", seconds)
        await clients.sweep()
        assert [await is_open(client) for client in found] == left
        await clients.aclose()

    run(work())


def test_a_task_without_news_is_looked_at_later_also_with_the_inboxs_own_credentials(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        ways = {url: OURS}
        async with opened(tmp_path / "inbox.db", credentials=ways) as inbox:
            call = await inbox.hand_over(await begun(url, "build", OURS), caller="agent")
            call = await until(inbox, call.id, asks("colour"))
        clients = Clients(Credentials(ways))
        assert await carried_on(clients, call) == LOOK_SECONDS
        await clients.aclose()

    with gated(Gate(OURS)) as url:
        run(work(url))


def test_a_task_that_asks_nothing_is_looked_at_as_often_as_its_server_says_and_says_how_far_it_is(
    tmp_path: Path,
) -> None:
    server = make_server(tasks=TaskOptions(poll=0.3))

    @server.tool(task="always")
    async def rest(ctx: Context) -> None:
        await ctx.report("resting")
        await ctx.sleep(3600)

    async def work(url: str) -> None:
        async with opened(tmp_path / "inbox.db") as inbox, Client(url) as client:
            task = await client.begin("rest", {})
            assert isinstance(task, TaskInHand)
            while (await client.get_task(task.id)).message != "resting":  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
            call = await inbox.hand_over(task, caller="agent")
        clients = Clients()
        seen = await carried_on(clients, replace(call, note=None))
        assert isinstance(seen, Item)
        assert seen.note == "resting"
        assert await carried_on(clients, seen) == 0.3
        await clients.aclose()

    with at_url(server) as url:
        run(work(url))


@pytest.mark.parametrize("status", [400, 404, 408, 425, 429, 500, 503])
def test_a_server_that_replies_with_a_status_is_away_or_has_failed_the_call(status: int) -> None:
    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"no"})

    async def work(port: int) -> Item | float | None:
        clients = Clients()
        try:
            return await carried_on(clients, item(server=f"http://127.0.0.1:{port}/mcp", answers={"title": accept()}))
        except Away:
            return None
        finally:
            await clients.aclose()

    with serving(refusing) as port:
        after = run(work(port))
    assert (after is None) == (status not in (400, 404))
    assert after is None or (isinstance(after, Item) and after.status == "failed")


def test_a_task_is_stopped_once_by_the_first_credentials_that_are_taken(tmp_path: Path) -> None:
    async def work(url: str, gate: Gate) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            call = await inbox.hand_over(await begun(url, "build"), caller="agent", authorization=OLD)
        clients = Clients(Credentials({url: OURS}))
        gate.shown.clear()
        assert await stopped(clients, call) is None
        assert set(gate.shown) == {OLD}
        gate.good = set()
        assert "401" in str(await stopped(clients, call))
        await clients.aclose()

    gate = Gate(OLD)
    with gated(gate) as url:
        run(work(url, gate))
