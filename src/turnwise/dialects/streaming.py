"""Streams of a session as server-sent events: what is said on them, and who goes on speaking when nobody listens."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from functools import partial

from .._bus import Change, SubscriptionBus
from .._messages import Line, Post, Reply
from .._sessions import Session, Stream, Underway
from ..errors import MalformedMessage, TooManySessions
from .notifying import notification
from .words import CHANGES, HANDSHAKES

STANDALONE = "s"
"""The stream that a client opens with GET."""
LAST_EVENT = b"last-event-id"
RETRY = 1000
SILENCE = 10.0
"""After so many seconds without a word a reply becomes a stream."""


async def speak(
    session: Session, request_id: str | int, post: Post, most: int, work: Callable[[Post], Awaitable[bytes | None]]
) -> Reply:
    """Have work done that outlives its connection: "Disconnection SHOULD NOT be interpreted as the client cancelling".

    What it says before its last word makes the reply a stream, from which a client that lost it can go on.
    """
    if len(session.calls) >= most and request_id not in session.calls:
        raise TooManySessions(most, "calls in this session")
    stream = session.stream()
    # Earlier versions do not say that a client whose stream is closed is to come back.
    cut = stream.cut if session.version >= HANDSHAKES[-1] else None
    inner = replace(post, emit=stream.put, task=None, tracker=None, line=Line(stream.put, cut))
    task = asyncio.create_task(_said(work, inner))
    task.add_done_callback(partial(_ended, stream))
    session.begin(request_id, Underway(task, stream))
    last = None
    with suppress(TimeoutError):
        # Who says nothing for long is to be kept alive, and to be found again.
        async with asyncio.timeout(SILENCE):
            last = await stream.first()
    if last is not None:
        session.streams.pop(stream.name, None)
        return Reply(200, last)
    return Reply(200, None, (), framed(session, stream))


async def _said(work: Callable[[Post], Awaitable[bytes | None]], post: Post) -> bytes | None:
    return await work(post)


def _ended(stream: Stream, task: "asyncio.Task[bytes | None]") -> None:
    """The last word, where there is one: a call that was cancelled has none, even if it never began."""
    stream.end(None if task.cancelled() or task.exception() is not None else task.result())


def resumed(session: Session, last_event: bytes) -> Reply:
    """The rest of a stream, from behind this event."""
    name, _, number = last_event.decode("latin-1").rpartition("_")
    found = session.streams.get(name)
    if (
        found is None
        or not (number.isascii() and number.isdecimal() and len(number) < 16)
        or int(number) > found.latest
    ):
        raise MalformedMessage("Last-Event-ID names no event that this session still has")
    if found.is_over and int(number) == found.latest:
        # Nothing is left: a call that was cancelled, or an error that was read. Clients come back after an empty
        # stream, some with a second listening one that they then lose to the first in turns; this sends them home.
        return Reply(405, None, [(b"allow", b"POST, DELETE")])
    return Reply(200, None, (), framed(session, found, int(number)))


async def listen(bus: SubscriptionBus, session: Session, emit: Callable[[bytes], Awaitable[None]]) -> None:
    """Have a session told of changes, from this very moment and for as long as it lasts."""
    stack = AsyncExitStack()
    wanted = bus.subscribe(lambda change: change.kind != "resource" or change.uri in session.uris)
    changes = await stack.enter_async_context(wanted)
    session.listening = asyncio.create_task(_tell(stack, changes, emit))


async def _tell(
    stack: AsyncExitStack, changes: AsyncIterator[Change], emit: Callable[[bytes], Awaitable[None]]
) -> None:
    async with stack:
        async for change in changes:
            await emit(notification(CHANGES[change.kind], {} if change.uri is None else {"uri": change.uri}))


async def framed(session: Session, stream: Stream, after: int | None = None) -> AsyncGenerator[bytes, None]:
    """What is said on a stream as server-sent events. Each has an id, by which a client that lost it comes back."""
    if after is None and stream.name != STANDALONE and session.version >= HANDSHAKES[-1]:
        # So that a client can come back even before the first word.
        yield event(b"", f"{stream.name}_0", retry=RETRY)
    async with aclosing(stream.follow(after)) as events:
        async for number, message in events:
            yield event(message, f"{stream.name}_{number}")


def event(data: bytes | None, event_id: str, kind: str = "message", retry: int | None = None) -> bytes:
    """One server-sent event; `retry` is after how many milliseconds a client that loses the stream is to come back."""
    head = f"event: {kind}\r\nid: {event_id}\r\n" + ("" if retry is None else f"retry: {retry}\r\n")
    return head.encode() + (b"" if data is None else b"data: " + data + b"\r\n") + b"\r\n"
