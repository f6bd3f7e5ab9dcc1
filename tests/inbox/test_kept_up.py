"""Work that goes on: after a fault in it, behind what cannot be read, and for others where a process ends."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.inbox import offices
from tests.inbox.offices import ANN, KEY, PATIENCE, accept, item, opened, run
from tests.inbox.test_slow import silent
from turnwise import CallerError, _upkeep
from turnwise._upkeep import Upkeep
from turnwise.inbox import claiming, telling, working
from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.sqlite import SQLiteInboxStore

OTHER = "a key under which others have sealed"


async def so(condition: Callable[[], Any]) -> None:
    """Wait until it is."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - it is somebody else's
            await asyncio.sleep(0.005)


def test_a_part_of_the_work_that_fails_is_told_of_and_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_upkeep, "FIRST_PAUSE", 0.2)
    monkeypatch.setattr(_upkeep, "STEADY_SECONDS", 0.1)
    fails, done = True, 0

    async def work() -> None:
        nonlocal fails

        async def purge(*facts: Any) -> int:
            nonlocal done
            if fails:
                raise ZeroDivisionError("a fault of our own")
            done += 1
            return 0

        store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
        monkeypatch.setattr(store, "purge", purge)
        inbox = Inbox(store)
        transport = httpx2.ASGITransport(app=create_app(inbox, Door({ANN: "ann"}, store)))
        async with inbox.run(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await so(lambda: inbox.failing)
            ready = await client.get("/readyz")
            assert (ready.status_code, ready.text) == (503, "the inbox no longer forgets what is over\n")
            assert (await client.get("/healthz")).status_code == 200
            fails = False
            await so(lambda: done and not inbox.failing)
            assert (await client.get("/readyz")).status_code == 200
        assert not inbox.failing
        await store.aclose()

    with caplog.at_level(logging.INFO, "turnwise.inbox"):
        run(work())
    assert "the inbox no longer forgets what is over; it is begun again in" in caplog.text
    assert "no longer so, it goes on: the inbox no longer forgets" in caplog.text
    assert "a fault of our own" in caplog.text


def test_what_no_key_opens_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "IDLE_SECONDS", 3600.0)

    async def work() -> None:
        now = time.time()
        theirs, ours = (SQLiteInboxStore(tmp_path / "inbox.db", [key]) for key in (OTHER, KEY))
        for number in range(20):
            await theirs.add(item(f"shut{number}", due=now - 100))
        async with silent() as one, opened(tmp_path / "inbox.db") as inbox:
            waiting = offices.pending("ours", server=one.url)
            await inbox.hand_over(waiting, caller="agent")
            await inbox.answer("ours", {"title": accept(value="x")}, round=0, by="ann")
            await one.times(1)
        await theirs.aclose()
        await ours.aclose()

    run(work())


def test_what_a_process_carries_on_it_does_not_begin_again_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim has run out, because everything stood still for a while, or its store was away."""

    async def work() -> None:
        async with silent() as one, opened(tmp_path / "inbox.db", work={"claim_seconds": 0.05}) as inbox:
            fails, held, renew = 5, 0, inbox.store.renew

            async def failing(*facts: Any) -> None:
                nonlocal fails, held
                if fails:
                    fails -= 1
                    raise CallerError("the store is away")
                await renew(*facts)
                held += 1

            monkeypatch.setattr(inbox.store, "renew", failing)
            await inbox.hand_over(offices.pending("call", server=one.url), caller="agent")
            await inbox.answer("call", {"title": accept(value="x")}, round=0, by="ann")
            await one.times(1)
            worker: Any = inbox._worker
            while not held:
                worker.wake()
                await asyncio.sleep(0.01)
            assert one.came == 1

    run(work())


def test_what_is_under_way_when_the_loop_ends_is_given_back(tmp_path: Path) -> None:
    """Nobody leaves the inbox's work in good order: the loop ends, and cancels all that there is."""
    store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
    inbox = Inbox(store, hook_secrets=[offices.SECRET])

    async def at_work() -> None:
        async with inbox.run():
            await asyncio.Event().wait()

    async def work(url: str) -> list[Any]:
        never_left = [asyncio.create_task(at_work())]
        await so(lambda: inbox.is_running)
        await inbox.hand_over(offices.pending("call", server=url), caller="agent", hook=url)
        await inbox.answer("call", {"title": accept(value="x")}, round=0, by="ann")
        worker: Any = inbox._worker
        await so(lambda: worker._tasks and worker._telling._tasks)
        return never_left

    async def look() -> None:
        assert await store.claim(time.time() + 1, 30) is not None
        assert await store.claim_hook(time.time() + 1, 30) is not None
        await store.aclose()

    with socket.create_server(("127.0.0.1", 0)) as silent:  # Connections wait to be accepted, for ever.
        asyncio.run(work(f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"))
    asyncio.run(look())


def test_what_its_own_clock_cancels_at_the_same_moment_ends_all_the_same() -> None:
    async def work() -> None:
        async def patient() -> None:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.01):
                        await asyncio.Event().wait()

        task = asyncio.create_task(patient())
        async with asyncio.timeout(PATIENCE):
            while not task.cancelling():  # noqa: ASYNC110 - it is the moment that matters
                await asyncio.sleep(0)
        await claiming.end([task])
        assert task.cancelled()

    run(work())


def test_what_is_about_to_end_may_give_back_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "AGAIN_SECONDS", 0.001)

    async def work() -> None:
        given_back = False

        async def holding() -> None:
            nonlocal given_back
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.1)
                given_back = True

        task = asyncio.create_task(holding())
        await asyncio.sleep(0)
        await claiming.end([task])
        assert task.cancelled()
        assert given_back

    run(work())


def test_an_inbox_ends_at_whatever_moment_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "IDLE_SECONDS", 0)  # Its clock is always about to ring.

    async def work() -> None:
        for number in range(60):
            async with opened(tmp_path / "inbox.db"):
                await asyncio.sleep(0.005 + number % 10 * 0.0005)

    run(work())


def test_work_that_waited_for_something_cancelled_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_upkeep, "FIRST_PAUSE", 0.0)

    async def work() -> None:
        begun = 0

        async def waiting() -> None:
            nonlocal begun
            begun += 1
            if begun == 1:
                gone = asyncio.get_running_loop().create_future()
                gone.cancel()
                await gone
            await asyncio.Event().wait()

        upkeep = Upkeep("nobody waits any more", logging.getLogger("turnwise.inbox"))
        task = asyncio.create_task(upkeep.keep(waiting))
        await so(lambda: begun == 2)
        assert upkeep.fault == "nobody waits any more"
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    run(work())


def test_work_that_was_failing_when_it_was_ended_begins_as_if_it_had_not() -> None:
    async def work() -> None:
        upkeep = Upkeep("it is away", logging.getLogger("turnwise.inbox"))

        async def failing() -> None:
            raise ZeroDivisionError

        first = asyncio.create_task(upkeep.keep(failing))
        await so(lambda: upkeep.fault)
        await claiming.end([first])
        second = asyncio.create_task(upkeep.keep(asyncio.Event().wait))
        await asyncio.sleep(0)
        assert upkeep.fault is None
        await claiming.end([second])

    run(work())


def test_work_that_fails_over_its_end_is_not_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        begun = 0

        async def stumbling() -> None:
            nonlocal begun
            begun += 1
            try:
                await asyncio.Event().wait()
            finally:
                raise ZeroDivisionError("over the end")

        upkeep = Upkeep("the inbox no longer stumbles", logging.getLogger("turnwise.inbox"))
        task = asyncio.create_task(upkeep.keep(stumbling))
        await so(lambda: begun)
        await claiming.end([task])
        assert (begun, upkeep.fault) == (1, None)

    run(work())
    assert "it did not end well: the inbox no longer stumbles" in caplog.text
