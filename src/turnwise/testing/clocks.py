"""A clock that stands still until it is moved, and a channel that goes by it."""

import asyncio
from collections.abc import Callable

from .._json import decode
from .._messages import Identity, Incoming, Notified, Outgoing, Post
from ..transports.memory import Memory, Servable


class FrozenClock:
    """The time for `connect(now=...)`: `ctx.now()`, and when tokens and flows expire. It goes when it is told to."""

    def __init__(self, start: float = 1_785_240_000.0) -> None:
        self.now = start
        """Seconds since 1970; by default it is noon of 28 July 2026, in UTC."""

    def __call__(self) -> float:
        """What the time is."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass; it does not go back."""
        if seconds < 0:
            raise ValueError(f"time does not go back, by {-seconds} seconds or at all")
        self.now += seconds


class Timed(Memory):
    """A channel to a server in the same process, which is told what the time is."""

    def __init__(self, server: Servable, access: Identity | None, now: Callable[[], float]) -> None:
        super().__init__(server, access)
        self._now = now

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """Have the server answer, at the time that it is."""

        async def emit(message: bytes) -> None:
            await notified(decode(message))

        post = Post(request.body, emit, self._now(), access=self._access, task=asyncio.current_task())
        reply = await self._server.wire.answer(post)
        raw = reply.body or b"null"
        return Incoming(reply.status, decode(raw), raw)
