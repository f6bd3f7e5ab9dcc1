"""Client and server joined by a function call: the bytes of the wire, and no network."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Protocol

from .._json import decode
from .._messages import Identity, Incoming, Notified, Outgoing, Post
from . import Answerer


class Servable(Protocol):
    """A server object, as a client in the same process sees it."""

    @property
    def wire(self) -> Answerer:
        """Who answers."""
        ...

    def start(self) -> Awaitable[None]:
        """Begin its lifespan."""
        ...

    def stop(self) -> Awaitable[None]:
        """End it."""
        ...


class Memory:
    """A channel to a server in the same process. Each message is encoded and decoded as on any wire."""

    def __init__(self, server: Servable, access: Identity | None = None) -> None:
        self._server = server
        self._access = access

    async def open(self) -> None:
        """Start the server."""
        await self._server.start()

    async def aclose(self) -> None:
        """Stop the server."""
        await self._server.stop()

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """Have the server answer, in this very task."""

        async def emit(message: bytes) -> None:
            await notified(decode(message))

        post = Post(request.body, emit, time.time(), access=self._access, task=asyncio.current_task())
        reply = await self._server.wire.answer(post)
        raw = reply.body or b"null"
        return Incoming(reply.status, decode(raw), raw)
