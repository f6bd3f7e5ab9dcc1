"""Client and server joined by a function call: the bytes of the wire, and no network."""

import time
from collections.abc import Callable

from .._messages import Identity, Post, Reply
from . import Answerer

Notified = Callable[[bytes], None]


class Memory:
    """One end of a connection to a wire in the same process."""

    def __init__(self, wire: Answerer, on_notification: Notified, access: Identity | None = None) -> None:
        self._wire = wire
        self._on_notification = on_notification
        self._access = access

    async def post(self, body: bytes) -> Reply:
        """Send one message and wait for its reply; notifications arrive before it."""
        return await self._wire.answer(Post(body, self._emit, time.time(), access=self._access))

    async def _emit(self, message: bytes) -> None:
        self._on_notification(message)
