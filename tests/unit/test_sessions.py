"""The room of sessions by itself: how many are kept and for how long, and what a stream remembers of what was said."""

import asyncio
import gc
import math
import weakref
from contextlib import aclosing
from typing import Any

import pytest

from tests.unit.handshaken import NOW, PATIENCE, run, until
from turnwise import SessionLimits
from turnwise._sessions import KEPT_BYTES, KEPT_STREAMS, UNREAD, Event, Session, Sessions, Stream
from turnwise.errors import MCPError, TooManySessions


def opened(sessions: Sessions, now: float = NOW, principal: str | None = None) -> Session:
    return sessions.open("2025-11-25", {}, None, principal, now)


def limited(**limits: Any) -> Sessions:
    return Sessions(SessionLimits(**limits))


class Reader:
    """Somebody who reads a stream in the background, and can be told not to."""

    def __init__(self, stream: Stream, after: int | None = None) -> None:
        self.events: list[Event] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.task = asyncio.create_task(self._read(stream, after))

    async def _read(self, stream: Stream, after: int | None) -> None:
        async with aclosing(stream.follow(after)) as events:
            async for event in events:
                self.events.append(event)
                await self.may_go_on.wait()

    @property
    def numbers(self) -> list[int]:
        return [event.number for event in self.events]

    async def ended(self) -> list[bytes]:
        async with asyncio.timeout(PATIENCE):
            await self.task
        return [event.message for event in self.events]

    async def gone(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


# Limits


@pytest.mark.parametrize("limit", [{"most": 0}, {"most": 1.5}, {"most": True}, {"calls": 0}, {"calls": -1}])
def test_a_number_of_sessions_or_calls_is_a_whole_number_above_0(limit: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="whole number above 0"):
        SessionLimits(**limit)


@pytest.mark.parametrize("name", ["idle", "age"])
@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan])
def test_sessions_cannot_be_kept_for_ever(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match="sessions end"):
        limited(**{name: seconds})


def test_ids_are_long_visible_and_never_the_same() -> None:
    ids = {opened(limited()).id for _ in range(200)}
    assert len(ids) == 200
    assert all(len(name) >= 32 and all(0x21 <= ord(letter) <= 0x7E for letter in name) for name in ids)


# How many, and for how long


def test_there_are_no_more_sessions_than_the_limit_until_one_ends() -> None:
    sessions = limited(most=2)
    first, _ = opened(sessions), opened(sessions)
    with pytest.raises(TooManySessions, match="at most 2"):
        opened(sessions)
    assert len(sessions) == 2
    sessions.close(first)
    assert opened(sessions)
    assert len(sessions) == 2


def test_who_comes_when_it_is_full_takes_the_place_of_one_that_was_silent_for_too_long() -> None:
    sessions = limited(most=2, idle=10)
    silent, talking = opened(sessions), opened(sessions)
    assert sessions.find(talking.id, None, NOW + 9) is talking
    third = opened(sessions, NOW + 10)
    assert sessions.find(silent.id, None, NOW + 10) is None
    assert sessions.find(talking.id, None, NOW + 10) is talking
    assert sessions.find(third.id, None, NOW + 10) is third


def test_a_silent_session_ends_after_its_idle_time_and_not_before() -> None:
    sessions = limited(idle=10)
    session = opened(sessions)
    assert sessions.find(session.id, None, NOW + 9.9) is session
    assert sessions.find(session.id, None, NOW + 19.8) is session
    assert sessions.find(session.id, None, NOW + 29.8) is None
    assert len(sessions) == 0


def test_a_session_that_never_falls_silent_ends_by_its_age() -> None:
    sessions = limited(idle=10, age=25)
    session = opened(sessions)
    assert [sessions.find(session.id, None, NOW + now) for now in (9, 18, 24.9)] == [session] * 3
    assert sessions.find(session.id, None, NOW + 25) is None
    assert len(sessions) == 0


def test_a_session_whose_stream_is_read_is_not_idle_but_grows_old() -> None:
    async def main() -> None:
        sessions = limited(idle=10, age=100)
        session = opened(sessions)
        reader = Reader(session.stream("s"))
        await until(session.is_busy)
        assert sessions.find(session.id, None, NOW + 50) is session
        opened(sessions, NOW + 99)
        assert len(sessions) == 2
        opened(sessions, NOW + 100)
        assert session.id not in sessions._sessions
        assert await reader.ended() == []

    run(main())


def test_a_session_whose_reader_left_is_idle_again() -> None:
    async def main() -> None:
        sessions = limited(idle=10)
        session = opened(sessions)
        reader = Reader(session.stream("s"))
        await until(session.is_busy)
        await reader.gone()
        assert not session.is_busy()
        assert sessions.find(session.id, None, NOW + 10) is None

    run(main())


def test_a_session_whose_client_waits_for_a_reply_is_not_idle() -> None:
    async def main() -> None:
        sessions = limited(idle=10)
        session = opened(sessions)
        waiting = asyncio.create_task(session.stream().first())
        await asyncio.sleep(0)
        try:
            assert sessions.find(session.id, None, NOW + 10) is session
        finally:
            waiting.cancel()

    run(main())


def test_sessions_are_those_of_their_principal_and_others_do_not_keep_them_alive() -> None:
    sessions = limited(idle=10)
    session = opened(sessions, principal="alice")
    for other in ("bob", None, "", "Alice"):
        assert sessions.find(session.id, other, NOW + 9) is None
    assert sessions.find(session.id, "alice", NOW + 9.5) is session
    assert sessions.find(session.id, "bob", NOW + 19.4) is None
    assert sessions.find(session.id, "alice", NOW + 19.5) is None


def test_a_session_that_ended_gives_everything_up() -> None:
    async def main() -> None:
        sessions = limited()
        session = opened(sessions)
        session.listening = asyncio.create_task(asyncio.sleep(100))
        _, future = session.expect()
        reader = Reader(session.stream())
        await until(session.is_busy)
        sessions.close(session)
        assert await reader.ended() == []
        await asyncio.gather(session.listening, return_exceptions=True)
        assert session.listening.cancelled()
        assert isinstance(future.exception(), MCPError)
        assert not session.is_busy()

    run(main())


def test_all_sessions_end_at_once() -> None:
    async def main() -> None:
        sessions = limited()
        readers = [Reader(opened(sessions).stream("s")) for _ in range(3)]
        await until(lambda: all(session.is_busy() for session in sessions._sessions.values()))
        sessions.close_all()
        assert len(sessions) == 0
        assert [await reader.ended() for reader in readers] == [[], [], []]

    run(main())


def test_nothing_of_a_session_stays_in_memory() -> None:
    async def main() -> list[Any]:
        sessions = limited(idle=10)
        session = opened(sessions)
        stream = session.stream("s")
        await stream.put(b"x" * 1000)
        reader = Reader(stream)
        await until(session.is_busy)
        left = [weakref.ref(stream), weakref.ref(reader.task)]
        await reader.gone()
        del stream, reader, session
        opened(sessions, NOW + 10)
        return left

    left = run(main())
    gc.collect()
    assert [part() for part in left] == [None, None]


def test_requests_of_a_session_are_numbered_and_each_has_a_place_for_its_answer() -> None:
    async def main() -> None:
        session = opened(limited())
        (first, one), (second, two) = session.expect(), session.expect()
        assert (first, second) == (1, 2)
        assert session.waits == {1: one, 2: two}

    run(main())


# Streams


def test_streams_have_names_of_their_own_and_one_of_a_known_name_is_found_again() -> None:
    session = opened(limited())
    streams = [session.stream(), session.stream(), session.stream("s")]
    assert len({stream.name for stream in streams}) == 3
    assert session.stream("s") is streams[2]


def test_of_streams_that_ended_only_the_latest_are_kept_and_of_others_all() -> None:
    session = opened(limited())
    lasting = session.stream()
    for _ in range(KEPT_STREAMS + 10):
        session.stream().end(b"x")
    streams = [session.stream(), *session.streams.values()]
    assert lasting in streams
    assert sum(stream.is_over for stream in streams) == KEPT_STREAMS
    assert "1" not in session.streams
    assert str(KEPT_STREAMS + 10) in session.streams


def test_what_was_said_before_somebody_came_is_read_in_order_and_then_what_follows() -> None:
    async def main() -> None:
        stream = Stream("0")
        await stream.put(b"a")
        await stream.put(b"b")
        reader = Reader(stream)
        await until(lambda: reader.numbers == [1, 2])
        await stream.put(b"c")
        stream.end(b"d")
        assert await reader.ended() == [b"a", b"b", b"c", b"d"]
        assert reader.numbers == [1, 2, 3, 4]

    run(main())


def test_the_first_word_is_told_if_it_is_also_the_last() -> None:
    async def main() -> list[Any]:
        only, first, nothing, cut = (Stream(str(number)) for number in range(4))
        waiting = [asyncio.create_task(stream.first()) for stream in (only, first, nothing, cut)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        only.end(b"only")
        await first.put(b"first")
        nothing.end()
        cut.cut()
        return await asyncio.gather(*waiting)

    assert run(main()) == [b"only", None, None, None]


def test_a_word_that_was_not_the_last_is_not_taken_for_it_when_the_session_ends() -> None:
    async def main() -> Any:
        session = opened(limited())
        stream = session.stream()
        await stream.put(b"a question")
        session.close()
        return await stream.first()

    assert run(main()) is None


def test_what_is_said_after_the_end_is_not_said() -> None:
    async def main() -> list[bytes]:
        stream = Stream("0")
        stream.end(b"last")
        stream.end(b"later")
        await stream.put(b"latest")
        return await Reader(stream).ended()

    assert run(main()) == [b"last"]


def test_a_stream_is_taken_up_again_behind_the_last_event_that_arrived() -> None:
    async def main() -> None:
        stream = Stream("0")
        for word in (b"a", b"b", b"c"):
            await stream.put(word)
        stream.end(b"d")
        everything = [b"a", b"b", b"c", b"d"]
        for after in range(5):
            assert await Reader(stream, after).ended() == everything[after:]
        assert await Reader(stream, 10**14).ended() == []
        assert await Reader(stream).ended() == []

    run(main())


def test_a_reader_that_comes_back_without_saying_where_it_was_gets_what_nobody_read() -> None:
    async def main() -> None:
        stream = Stream("s")
        first = Reader(stream)
        await stream.put(b"a")
        await until(lambda: first.events)
        await asyncio.sleep(0)
        await first.gone()
        await stream.put(b"b")
        second = Reader(stream)
        await until(lambda: second.events)
        assert second.events == [(2, b"b")]
        await second.gone()

    run(main())


def test_a_new_reader_takes_over_and_the_old_one_is_let_go() -> None:
    async def main() -> None:
        stream = Stream("s")
        old = Reader(stream)
        await stream.put(b"a")
        await until(lambda: old.events)
        new = Reader(stream, 0)
        await until(lambda: new.events)
        assert await old.ended() == [b"a"]
        await stream.put(b"b")
        stream.end()
        assert await new.ended() == [b"a", b"b"]
        assert old.events == [(1, b"a")]

    run(main())


def test_a_reader_that_is_still_busy_when_another_takes_over_hears_nothing_more() -> None:
    async def main() -> None:
        stream = Stream("s")
        old = Reader(stream)
        old.may_go_on.clear()
        await stream.put(b"a")
        await until(lambda: old.events)
        new = Reader(stream)
        await until(lambda: new.events)
        await stream.put(b"b")
        old.may_go_on.set()
        assert await old.ended() == [b"a"]
        assert stream.is_read
        stream.end()
        assert await new.ended() == [b"a", b"b"]

    run(main())


def test_a_stream_that_is_cut_sends_its_reader_away_and_goes_on() -> None:
    async def main() -> None:
        stream = Stream("0")
        reader = Reader(stream)
        await stream.put(b"a")
        await until(lambda: reader.events)
        stream.cut()
        assert await reader.ended() == [b"a"]
        assert (stream.is_read, stream.is_over) == (False, False)
        stream.end(b"b")
        assert await Reader(stream, 1).ended() == [b"b"]

    run(main())


def test_a_stream_that_is_cut_before_anybody_reads_sends_the_first_reader_away_once() -> None:
    async def main() -> None:
        stream = Stream("0")
        stream.cut()
        assert await stream.first() is None
        assert await Reader(stream).ended() == []
        stream.end(b"a")
        assert await Reader(stream, 0).ended() == [b"a"]

    run(main())


# How much is kept


def test_of_a_stream_that_nobody_reads_the_latest_bytes_are_kept() -> None:
    async def main() -> None:
        stream = Stream("s")
        for number in range(40):
            await stream.put(b"%d" % number * (KEPT_BYTES // 20))
        stream.end()
        kept = await Reader(stream, 0).ended()
        assert kept[-1].startswith(b"39")
        assert KEPT_BYTES // 2 < sum(map(len, kept)) <= KEPT_BYTES
        numbers = (await numbered(stream))[-len(kept) :]
        assert numbers == list(range(41 - len(kept), 41))

    async def numbered(stream: Stream) -> list[int]:
        reader = Reader(stream, 0)
        await reader.ended()
        return reader.numbers

    run(main())


def test_one_message_is_kept_however_large_it_is() -> None:
    async def main() -> list[bytes]:
        stream = Stream("0")
        await stream.put(b"small")
        stream.end(b"x" * (KEPT_BYTES * 2))
        return await Reader(stream, 0).ended()

    assert len(run(main())[-1]) == KEPT_BYTES * 2


def test_who_was_away_for_too_long_goes_on_with_the_oldest_that_is_kept() -> None:
    async def main() -> None:
        stream = Stream("s")
        for _ in range(5):
            await stream.put(b"x" * (KEPT_BYTES // 2))
        stream.end()
        reader = Reader(stream, 1)
        await reader.ended()
        assert reader.numbers == [4, 5]

    run(main())


def test_who_speaks_faster_than_the_reader_reads_has_to_wait() -> None:
    async def main() -> None:
        stream, said = Stream("0"), []

        async def speak() -> None:
            for number in range(UNREAD * 3):
                await stream.put(b"%d" % number)
                said.append(number)

        reader = Reader(stream)
        reader.may_go_on.clear()
        speaker = asyncio.create_task(speak())
        await until(lambda: reader.events)
        for _ in range(UNREAD * 4):
            await asyncio.sleep(0)
        assert len(said) == UNREAD
        reader.may_go_on.set()
        await asyncio.wait_for(speaker, PATIENCE)
        stream.end()
        assert len(await reader.ended()) == UNREAD * 3

    run(main())


@pytest.mark.parametrize("how", ["leaves", "is cut", "is replaced"])
def test_who_waits_for_a_reader_goes_on_when_that_one(how: str) -> None:
    async def main() -> None:
        stream = Stream("0")

        async def speak() -> None:
            for _ in range(UNREAD + 10):
                await stream.put(b"x")

        reader = Reader(stream)
        reader.may_go_on.clear()
        speaker = asyncio.create_task(speak())
        await until(lambda: reader.events)
        await asyncio.sleep(0)
        assert not speaker.done()
        match how:
            case "leaves":
                await reader.gone()
            case "is cut":
                stream.cut()
            case _:
                other = Reader(stream, 0)
        await asyncio.wait_for(speaker, PATIENCE)
        stream.end()
        if how == "is replaced":
            assert len(await other.ended()) == UNREAD + 10
        await reader.gone()

    run(main())


def test_nothing_is_forgotten_that_a_connected_reader_has_not_read() -> None:
    async def main() -> list[int]:
        stream = Stream("0")
        reader = Reader(stream)
        await until(lambda: stream.is_read)
        for _ in range(20):
            await stream.put(b"x" * (KEPT_BYTES // 10))
        stream.end()
        await reader.ended()
        return reader.numbers

    assert run(main()) == list(range(1, 21))
