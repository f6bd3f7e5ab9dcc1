"""Subscriptions: a request whose reply is its end, and which says meanwhile what has changed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ._bus import Change
from ._conversation import Conversation
from .dialects.words import CHANGES
from .errors import ConnectionLost, DeadlineExceeded, InvalidReply

MOST_UNREAD = 1024
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_KINDS: dict[Any, Any] = {method: kind for kind, method in CHANGES.items()}


class Subscription:
    """What one subscription tells. Iterating waits for changes and ends when the server ends it in good order; a line
    that breaks raises ConnectionLost. A change that is still unread is not told twice.
    """

    def __init__(self, on_change: Callable[[Change], None]) -> None:
        self.honored: Mapping[str, Any] = {}
        """The part of the wishes that the server grants."""
        self.is_acknowledged = False
        self._on_change = on_change
        self._unread: dict[Change, None] = {}
        self._news = asyncio.Event()
        self._acknowledged = asyncio.Event()
        self._end: asyncio.Future[Any] | None = None

    def __aiter__(self) -> AsyncIterator[Change]:
        return self

    async def __anext__(self) -> Change:
        while not self._unread:
            assert self._end is not None
            if self._end.done():
                if not self._end.cancelled():
                    self._end.result()
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        change = next(iter(self._unread))
        del self._unread[change]
        return change

    async def _told(self, message: Any) -> None:
        """Take what comes on the stream."""
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == _ACKNOWLEDGED:
            granted = params.get("notifications")
            self.honored = granted if isinstance(granted, dict) else {}
            self.is_acknowledged = True
            self._acknowledged.set()
        elif (kind := _KINDS.get(method)) is not None:
            if not self.is_acknowledged:
                raise InvalidReply("the server told of a change before it acknowledged the subscription")
            uri = params.get("uri") if kind == "resource" else None
            change = Change(kind, uri if isinstance(uri, str) else None)
            self._on_change(change)
            if len(self._unread) >= MOST_UNREAD:
                raise InvalidReply(f"more than {MOST_UNREAD} changes are unread: listen again, and read them")
            self._unread[change] = None
            self._news.set()


@asynccontextmanager
async def listen(
    conversation: Conversation, wanted: Mapping[str, Any], on_change: Callable[[Change], None]
) -> AsyncIterator[Subscription]:
    """A subscription, from its acknowledgment until the block is left."""
    subscription = Subscription(on_change)

    async def run() -> None:
        try:
            caller = conversation.caller
            capabilities = conversation.manners.capabilities
            outgoing = caller.request("subscriptions/listen", {"notifications": wanted}, capabilities)
            caller.read(outgoing, await conversation.channel.exchange(outgoing, subscription._told))
        finally:
            subscription._news.set()
            subscription._acknowledged.set()

    subscription._end = asyncio.create_task(run())
    try:
        try:
            async with asyncio.timeout(conversation.manners.request_seconds):
                await subscription._acknowledged.wait()
        except TimeoutError:
            raise DeadlineExceeded("the subscription was not acknowledged in time") from None
        if not subscription.is_acknowledged:
            subscription._end.result()
            raise ConnectionLost("the server ended the subscription at once", sent=True)
        yield subscription
    finally:
        subscription._end.cancel()
        await asyncio.wait([subscription._end])
        if not subscription._end.cancelled():
            subscription._end.exception()
