"""Servers and hooks that take their time, or never answer: they hold up their own calls, and nobody else's."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.inbox import offices
from tests.inbox.offices import accept, asks, at_url, begun, is_over, make_server, opened, run, until
from tests.inbox.test_hooks import Ear, listening
from turnwise.errors import DeadlineExceeded
from turnwise.inbox import carrying, telling
from turnwise.inbox.carrying import Clients
from turnwise.inbox.claiming import full
from turnwise.inbox.desk import Inbox
from turnwise.inbox.model import Wanted

DECLINED = {"title": {"action": "decline"}}


class Silent:
    """Somebody who takes connections, and never says a word."""

    def __init__(self) -> None:
        self.came = 0
        self.is_called = asyncio.Condition()
        self.url = ""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self.is_called:
            self.came += 1
            self.is_called.notify_all()
        await reader.read()  # Until the other side has had enough.
        while await reader.read(65536):
            pass
        writer.close()

    async def times(self, count: int) -> None:
        async with self.is_called:
            await self.is_called.wait_for(lambda: self.came >= count)


@asynccontextmanager
async def silent() -> AsyncIterator[Silent]:
    one = Silent()
    server = await asyncio.start_server(one, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    try:
        yield one
    finally:
        server.close()


async def left_at(inbox: Inbox, url: str, count: int, **terms: Any) -> None:
    """So many calls that are to be carried on there."""
    for number in range(count):
        name = f"{url.rpartition(':')[2].partition('/')[0]}-{number}"
        await inbox.hand_over(offices.pending(name, server=url), caller="agent", **terms)
        await inbox.answer(name, DECLINED, round=0, by="ann")


def test_servers_that_never_answer_do_not_hold_up_the_calls_of_others(tmp_path: Path) -> None:
    async def work(url: str) -> None:
        async with silent() as one, silent() as other, opened(tmp_path / "inbox.db") as inbox:
            await left_at(inbox, one.url, 12)
            await left_at(inbox, other.url, 12)
            await one.times(1)
            await other.times(1)
            item = await inbox.hand_over(await begun(url), caller="agent")
            await inbox.answer(item.id, {"title": accept(title="a title")}, round=0, by="ann")
            await until(inbox, item.id, asks("level"))

    with at_url(make_server()) as url:
        run(work(url))


def test_those_who_are_slow_get_one_at_a_time_once_half_of_all_is_taken() -> None:
    assert full(Counter({"slow": 3}), 8, 4) == []
    assert full(Counter({"slow": 4, "other": 1}), 16, 4) == ["slow"]
    assert full(Counter({"slow": 3, "other": 1}), 8, 4) == ["slow", "other"]


def test_who_waits_for_a_server_to_be_opened_does_not_wait_again_when_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "OPEN_SECONDS", 0.2)

    async def work() -> None:
        async with silent() as one:
            clients = Clients()
            waiting = [clients.using(one.url, None, lambda client: client.list_tools()) for _ in range(8)]
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(outcome, DeadlineExceeded)
            assert one.came == 1
            with pytest.raises(DeadlineExceeded):
                await clients.using(one.url, None, lambda client: client.list_tools())
            assert one.came == 2, "the next one looks for itself"
            await clients.aclose()

    run(work())


def test_the_time_of_a_call_is_over_while_its_server_is_silent(tmp_path: Path) -> None:
    async def work() -> None:
        async with silent() as one, opened(tmp_path / "inbox.db") as inbox:
            await left_at(inbox, one.url, 1, seconds=2.0)
            [line] = (await inbox.page(Wanted())).lines
            ended = await until(inbox, line.id, is_over)
            assert (ended.status, ended.until is not None and ended.changed >= ended.until) == ("expired", True)

    run(work())


def test_a_hook_that_is_never_taken_holds_up_no_other(tmp_path: Path) -> None:
    async def work(hook: str, ear: Ear) -> None:
        async with silent() as one, opened(tmp_path / "inbox.db") as inbox:
            for number in range(8):
                await inbox.hand_over(offices.pending(f"c{number}"), caller="agent", hook=one.url)
            await one.times(telling.EACH)
            began = time.monotonic()
            await inbox.hand_over(offices.pending("other"), caller="agent", hook=hook)
            await ear.times(1)
            assert time.monotonic() - began < offices.PATIENCE
            assert one.came == telling.EACH, "no more than so many at a time go to one place"

    ear = Ear()
    with listening(ear) as hook:
        run(work(hook, ear))
