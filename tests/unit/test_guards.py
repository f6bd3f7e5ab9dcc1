"""A guard over a store: whom it waits for, and what it takes for a record of its own."""

import asyncio
import gc
from typing import Any

import pytest

from turnwise import Budget, EffectUnknown, InvalidRequestState, MemoryStore, _guards
from turnwise._guards import Begun, Guard, Known, Running, _under_way, to_the_end
from turnwise._sealed import KeyRing

RING = KeyRing([b"k" * 32])


def guarding(store: MemoryStore, patience: float) -> Guard:
    return Guard(store, RING, 60.0, Budget(patience=patience))


@pytest.mark.parametrize("again", [False, True])
def test_one_who_is_at_it_is_waited_for(again: bool) -> None:
    async def work() -> Any:
        guard = guarding(MemoryStore(), 10.0)
        assert await guard.begin("key", "charge") is None
        second = asyncio.create_task(guard.begin("key", "charge", again=again))
        for _ in range(5):
            await asyncio.sleep(0)
        await guard.finish("key", "charged")
        return await second

    assert asyncio.run(work()) == ("charged",)


def test_where_that_is_in_vain_it_is_done_again_or_nobody_knows() -> None:
    async def work() -> None:
        guard = guarding(MemoryStore(), 0.0)
        assert await guard.begin("key", "charge") is None
        assert await guard.begin("key", "charge", again=True) is None
        with pytest.raises(EffectUnknown):
            await guard.begin("key", "charge")

    asyncio.run(work())


@pytest.mark.parametrize("payload", [b"1", b"[]", b'["record", "key"]', b"no JSON", b"null"])
def test_a_record_of_another_format_is_refused(payload: bytes) -> None:
    async def work() -> None:
        store = MemoryStore()
        await store.put("key", RING.seal(payload).encode(), 60.0)
        with pytest.raises(InvalidRequestState, match="another format"):
            await guarding(store, 0.0).get("key")

    asyncio.run(work())


@pytest.mark.parametrize(("kind", "name"), [("record", "other"), ("token", "key")])
def test_a_record_of_another_key_or_kind_is_refused(kind: str, name: str) -> None:
    async def work() -> None:
        store = MemoryStore()
        await store.put("key", RING.seal(f'["{kind}", "{name}", 1]'.encode()).encode(), 60.0)
        with pytest.raises(InvalidRequestState, match="under another key"):
            await guarding(store, 0.0).get("key")
        with pytest.raises(InvalidRequestState, match="no longer in the store"):
            await guarding(store, 0.0).get("elsewhere")

    asyncio.run(work())


# What goes on by itself


def test_what_was_begun_goes_on_when_nobody_waits_and_is_held_until_its_end() -> None:
    async def work() -> None:
        go, done = asyncio.Event(), asyncio.Event()

        async def act() -> None:
            await go.wait()
            done.set()

        waiting = asyncio.create_task(to_the_end(act()))
        await asyncio.sleep(0)
        (held,) = _under_way
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (waiting.cancelled(), held in _under_way) == (True, True)
        go.set()
        await asyncio.wait_for(done.wait(), 10)
        await asyncio.wait([held])
        assert not _under_way

    asyncio.run(work())


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_what_fails_with_nobody_left_is_not_told_of_again(is_cancelled: bool) -> None:
    """Whatever becomes of it, the loop does not complain."""
    complaints: list[Any] = []

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        go = asyncio.Event()

        async def act() -> None:
            await go.wait()
            raise RuntimeError("in vain")

        waiting = asyncio.create_task(to_the_end(act()))
        await asyncio.sleep(0)
        (held,) = _under_way
        waiting.cancel()
        await asyncio.wait([waiting])
        held.cancel() if is_cancelled else go.set()
        await asyncio.wait([held])
        del held
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(work())
    assert complaints == []


# A store of one process


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_record_and_a_blob_are_gone_when_their_time_is_over() -> None:
    clock = Clock()

    async def work() -> None:
        store = MemoryStore(clock)
        await store.begin("a", 10.0)
        await store.finish("b", b"done", 10.0)
        await store.put("c", b"blob", 10.0)
        clock.now += 9
        assert [await store.find("a"), await store.find("b")] == [Running(), Known(b"done")]
        assert (await store.get("c"), await store.purge()) == (b"blob", 0)
        clock.now += 1
        assert [await store.find("a"), await store.find("b"), await store.get("c")] == [None, None, None]
        assert await store.begin("a", 10.0) == Begun()
        assert await store.purge() == 2

    asyncio.run(work())


@pytest.mark.parametrize("way", ["begin", "put"])
def test_what_is_over_its_time_is_forgotten_every_so_many_writes(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_guards, "PURGE_EVERY", 3)
    clock = Clock()

    async def work() -> list[int]:
        left = []
        for writes in (2, 3, 4):
            store = MemoryStore(clock)
            for number in range(writes):
                await (store.begin(str(number), 1.0) if way == "begin" else store.put(str(number), b"", 1.0))
                clock.now += 1
            left.append(await store.purge())
        return left

    assert asyncio.run(work()) == [2, 1, 2]
