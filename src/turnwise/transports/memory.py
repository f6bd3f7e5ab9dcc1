"""Client and server joined by a function call: the bytes of the wire, and no network."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from .._json import decode
from .._messages import Identity, Incoming, Line, Notified, Outgoing, Post
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
        self.unasked: Callable[[Any], None] | None = None
        self.cancels = True
        self._server = server
        self._access = access
        self._line = Line(self._said)

    async def open(self) -> None:
        """Start the server."""
        self._line = Line(self._said)
        await self._server.start()

    async def aclose(self) -> None:
        """Stop the server."""
        if self._line.session is not None:
            self._line.session.close()
        await self._server.stop()

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """Have the server answer, in this very task."""

        async def emit(message: bytes) -> None:
            await notified(decode(message))

        post = Post(request.body, emit, time.time(), access=self._access, task=asyncio.current_task())
        if request.lasts:
            post = replace(post, line=self._line)
        reply = await self._server.wire.answer(post)
        raw = reply.body or b"null"
        return Incoming(reply.status, decode(raw), raw)

    async def ready(self) -> int:
        """There is one line, and it does not break."""
        return 0

    async def tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Hand the server what has no reply."""
        await self._server.wire.answer(
            Post(body, self._said, time.time(), access=self._access, task=asyncio.current_task(), line=self._line)
        )

    async def watch(self, headers: Mapping[str, str], notified: Notified, opened: Callable[[], None]) -> None:
        """Nothing has to be done: what is said unasked comes as it is said."""
        opened()
        await asyncio.Event().wait()

    async def leave(self, headers: Mapping[str, str]) -> None:
        """The server is stopped with the client."""

    async def _said(self, message: bytes) -> None:
        if self.unasked is not None:
            self.unasked(decode(message))
