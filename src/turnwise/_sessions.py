"""Sessions, for the wires that have them: what a server remembers of a client between requests, and for how long.

A session holds the streams on which its calls speak, with what was said on them lately, so that a client whose
connection broke can ask for the rest. All of it is bounded: sessions in number and age, streams in number and bytes.
The room knows no wire, and no clock: `now` comes in from outside.
"""

import asyncio
import itertools
import logging
import math
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .errors import MalformedMessage, MCPError, TooManySessions

log = logging.getLogger("turnwise.server")

KEPT_BYTES = 256 * 1024
"""So much of what was said on one stream is kept for a client that comes back."""
KEPT_STREAMS = 16
"""So many streams that have ended are kept in one session."""
LEAVING = -32000
SILENT_SECONDS = 60.0
"""For so long has a session to be silent before another one may take its place."""
COMPLAIN_SECONDS = 60.0
PATIENCE = 1.0
"""Seconds that who has much to say waits for a reader that should be there any moment."""
UNREAD = 64
"""So many events may wait for a reader before whoever speaks waits too."""


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How many sessions a server keeps, and for how long: `idle` seconds without a word, `age` seconds in all; and how
    many calls one session may have under way.
    """

    most: int = 10_000
    idle: float = 1800.0
    age: float = 604_800.0
    calls: int = 128

    def __post_init__(self) -> None:
        if not (type(self.most) is int and self.most > 0 and type(self.calls) is int and self.calls > 0):
            raise ValueError("a session limit is a whole number above 0")
        if not (0 < self.idle < math.inf and 0 < self.age < math.inf):
            raise ValueError("sessions end: idle and age are seconds above 0")


class Event(NamedTuple):
    """Something said on a stream, and its place there."""

    number: int
    message: bytes


class Stream:
    """What is said on one stream, and the latest of it again for who lost the connection. One reader at a time: a new
    one takes over, for the old one may only seem to be there.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_over = False
        self._events: deque[Event] = deque()
        self._size = 0
        self._numbers = itertools.count(1)
        self._read = 0
        self._reader: object | None = None
        self._is_cut = False
        self._is_whole = False
        self._is_coming = False
        self._awaited = 0
        self._stirred = asyncio.Event()
        self._drained = asyncio.Event()

    @property
    def is_read(self) -> bool:
        """Whether somebody is connected, or waits to be."""
        return self._reader is not None or self._awaited > 0

    @property
    def latest(self) -> int:
        """The number of the last event."""
        return self._events[-1].number if self._events else 0

    async def put(self, message: bytes) -> None:
        """Say something; who speaks faster than the reader reads waits, for a while also for one that is coming."""
        self._add(message)
        patience = PATIENCE
        while self._is_unread() and self._is_expected():
            if self._reader is not None:
                self._drained.clear()
                await self._drained.wait()
            else:
                await asyncio.sleep(PATIENCE / 100)
                patience -= PATIENCE / 100
                self._is_coming = self._is_coming and patience > 0

    def _is_expected(self) -> bool:
        return self._reader is not None or self._awaited > 0 or self._is_coming

    def _is_unread(self) -> bool:
        """Whether much of what was said still waits for its reader."""
        self._forget()
        unread = self._events[-1].number - self._read if self._events else 0
        return unread > UNREAD or (unread > 0 and self._size > KEPT_BYTES)

    def end(self, message: bytes | None = None) -> None:
        """Say a last thing, or nothing."""
        if message is not None and not self.is_over:
            self._is_whole = not self._events
            self._add(message)
        self.is_over = True
        self._stirred.set()
        self._drained.set()

    def cut(self) -> None:
        """Send the reader away, or the one that is about to come; it may come back."""
        self._is_cut, self._reader = self._reader is None, None
        self._stirred.set()
        self._drained.set()

    def _add(self, message: bytes) -> None:
        if self.is_over:
            return
        self._events.append(Event(next(self._numbers), message))
        self._size += len(message)
        self._forget()
        self._stirred.set()

    def _forget(self) -> None:
        """Keep no more than is worth keeping; never forget what a connected reader has not read."""
        while self._size > KEPT_BYTES and len(self._events) > 1:
            if self._is_expected() and self._events[0].number > self._read:
                return
            self._size -= len(self._events.popleft().message)

    async def first(self) -> bytes | None:
        """Wait for the first word: the message, if it is also the last, or None."""
        self._awaited += 1
        try:
            while not (self._events or self.is_over or self._is_cut):
                self._stirred.clear()
                await self._stirred.wait()
        finally:
            self._awaited -= 1
        self._is_coming = not self._is_whole
        return self._events[0].message if self._is_whole else None

    def _behind(self, seen: int) -> Event | None:
        """The first event behind this place that is still kept."""
        if not self._events or seen >= self._events[-1].number:
            return None
        return self._events[max(0, seen + 1 - self._events[0].number)]

    async def follow(self, after: int | None = None) -> AsyncGenerator[Event, None]:
        """All behind this place, or that nobody has read yet, until the stream ends or somebody else reads it."""
        self._is_coming = False
        if self._is_cut:
            self._is_cut = False
            return
        me = self._reader = object()
        seen = self._read if after is None else after
        self._stirred.set()
        try:
            while True:
                event = self._behind(seen)
                if event is not None:
                    yield event
                    seen = event.number
                    if self._reader is me:
                        self._read = seen
                        self._drained.set()
                elif self.is_over:
                    return
                else:
                    self._stirred.clear()
                    await self._stirred.wait()
                if self._reader is not me:
                    return
        finally:
            if self._reader is me:
                self._reader = None
                self._drained.set()


class Underway(NamedTuple):
    """A call that is being served, and the stream that it speaks on, if that is its own."""

    task: "asyncio.Task[Any]"
    stream: Stream | None = None

    def cancel(self) -> None:
        """Stop it; whatever it still says is not heard."""
        if self.stream is not None:
            self.stream.end()
        self.task.cancel()


@dataclass(slots=True, eq=False)
class Session:
    """One client. `waits` are the requests that the server made of it and that are not answered yet; `calls` its own
    that are under way.
    """

    id: str
    version: str
    capabilities: Mapping[str, Any]
    client: Any
    principal: str | None
    opened: float
    touched: float = 0.0
    level: str | None = None
    uris: set[str] = field(default_factory=set)
    waits: dict[int, "asyncio.Future[Any]"] = field(default_factory=dict)
    calls: dict[str | int, Underway] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    listening: "asyncio.Task[None] | None" = None
    is_kept: bool = True
    _numbers: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _names: "itertools.count[int]" = field(default_factory=itertools.count)

    def stream(self, name: str | None = None) -> Stream:
        """The stream of this name, or a new one; the oldest that ended is forgotten where there are many."""
        if name is not None and name in self.streams:
            return self.streams[name]
        stream = Stream(str(next(self._names)) if name is None else name)
        over = [old for old, kept in self.streams.items() if kept.is_over]
        for old in over[: max(0, len(over) - KEPT_STREAMS)]:
            del self.streams[old]
        self.streams[stream.name] = stream
        return stream

    def expect(self) -> "tuple[int, asyncio.Future[Any]]":
        """The number for a request of ours, and where its answer will be."""
        number = next(self._numbers)
        future = self.waits[number] = asyncio.get_running_loop().create_future()
        return number, future

    def begin(self, request_id: str | int, call: Underway) -> None:
        """A call is under way, until its task is done; MalformedMessage if one with its id is."""
        if request_id in self.calls:
            call.cancel()
            raise MalformedMessage("Invalid request: a request with this id is still under way")
        self.calls[request_id] = call
        call.task.add_done_callback(lambda _: self.calls.pop(request_id, None))

    def is_busy(self) -> bool:
        """Whether somebody is connected to one of its streams."""
        return any(stream.is_read for stream in self.streams.values())

    def wind_up(self) -> None:
        """The server is about to leave: nobody is waited for any more, and what works may finish."""
        if self.listening is not None:
            self.listening.cancel()
        self._give_up("The server is shutting down; call again")
        for stream in self.streams.values():
            if not any(call.stream is stream for call in self.calls.values()):
                stream.end()

    def _give_up(self, why: str) -> None:
        """Wait for no answer any more. Who asked may be a task of the client's own, which nobody has cancelled."""
        for future in self.waits.values():
            if not future.done():
                future.set_exception(MCPError(LEAVING, why))

    def close(self) -> None:
        """Give everything up."""
        for call in list(self.calls.values()):
            call.cancel()
        if self.listening is not None:
            self.listening.cancel()
        self._give_up("The session has ended")
        for stream in self.streams.values():
            stream.end()


class Sessions:
    """The sessions of one server, the one that was silent longest first."""

    def __init__(self, limits: SessionLimits) -> None:
        self.limits = limits
        self.is_closing = False
        self._sessions: dict[str, Session] = {}
        self._complained = -math.inf

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, version: str, capabilities: Mapping[str, Any], client: Any, principal: str | None, now: float
    ) -> Session:
        """A new session; TooManySessions where there is no room for one."""
        self._tidy(now)
        if len(self._sessions) >= self.limits.most:
            self._make_room(now)
        if len(self._sessions) >= self.limits.most:
            raise TooManySessions(self.limits.most)
        session = Session(secrets.token_urlsafe(24), version, capabilities, client, principal, now, now)
        self._sessions[session.id] = session
        return session

    def _make_room(self, now: float) -> None:
        """Give up the session that was silent longest, if it was silent for a while; its client can open another."""
        if now - self._complained > COMPLAIN_SECONDS:
            self._complained = now
            log.warning("there are as many sessions as are kept, %d: SessionLimits(most=)", self.limits.most)
        for session in self._sessions.values():
            if session.touched + SILENT_SECONDS > now:
                return
            if not session.is_busy():
                self.close(session)
                return

    def find(self, session_id: str, principal: str | None, now: float) -> Session | None:
        """The session of this id, if it is this caller's."""
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            return None
        if self._is_stale(session, now):
            self.close(session)
            return None
        session.touched = now
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def close(self, session: Session) -> None:
        """End a session and what it has under way."""
        self._sessions.pop(session.id, None)
        session.close()

    def wind_up(self) -> None:
        """The server is about to leave."""
        self.is_closing = True
        for session in self._sessions.values():
            session.wind_up()

    def close_all(self) -> None:
        """End them all."""
        for session in list(self._sessions.values()):
            self.close(session)

    def _tidy(self, now: float) -> None:
        for session in list(
            itertools.takewhile(lambda session: self._is_silent(session, now), self._sessions.values())
        ):
            if self._is_stale(session, now):
                self.close(session)

    def _is_silent(self, session: Session, now: float) -> bool:
        return session.touched + self.limits.idle <= now

    def _is_stale(self, session: Session, now: float) -> bool:
        is_old = session.opened + self.limits.age <= now and not session.calls
        return is_old or (self._is_silent(session, now) and not session.is_busy())
