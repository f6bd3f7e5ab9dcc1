"""Subscriptions: what a server says has changed, for as long as somebody listens.

On 2026-07-28 that is a request whose reply is its end. On wires with a handshake it is what the session says unasked,
and a resource is subscribed to by itself.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from ._bus import Change
from ._conversation import Conversation, Wishes
from ._live import LiveConversation
from ._standing import LAST_WORDS
from .dialects.calling import granted, is_granted, subscribed
from .dialects.words import CHANGES
from .errors import ConnectionLost, DeadlineExceeded, InvalidReply, PeerError, UnexpectedStatus

MOST_UNREAD = 1024
log = logging.getLogger("turnwise.client")
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
        self._take(message)

    def _take(self, message: Any) -> None:
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == "notifications/cancelled":
            log.info("the server ended a subscription: %.200r", params.get("reason"))
        elif method == _ACKNOWLEDGED:
            given = params.get("notifications")
            self.honored = given if isinstance(given, dict) else {}
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


@asynccontextmanager
async def listen_live(
    conversation: LiveConversation, wanted: Mapping[str, Any], on_change: Callable[[Change], None]
) -> AsyncIterator[Subscription]:
    """A subscription in a session, which shares what the server says with all others."""
    subscription = Subscription(on_change)
    subscription.honored, subscription.is_acknowledged = granted(wanted, conversation.session.discovered), True
    end = subscription._end = asyncio.get_running_loop().create_future()
    uris: list[str] = []

    def over(stream: "asyncio.Task[None]") -> None:
        _ended(subscription, None if stream.cancelled() else stream.exception())

    def told(message: Any) -> None:
        if is_granted(subscription.honored, message):
            try:
                subscription._take(message)
            except InvalidReply as error:
                _ended(subscription, error)

    conversation.listeners.add(told)
    try:
        stream = await _stream(conversation)
        stream.add_done_callback(over)
        for uri in subscribed(subscription.honored):
            await _subscribe(conversation, uri)
            uris.append(uri)
        yield subscription
    finally:
        conversation.listeners.discard(told)
        if conversation.watching is not None:
            conversation.watching.remove_done_callback(over)
        end.cancel()
        if not end.cancelled():
            end.exception()
        await _left(conversation, uris)


async def _stream(conversation: LiveConversation) -> "asyncio.Task[None]":
    """What the server says unasked, heard once for everybody who listens."""
    if conversation.watching is not None and not conversation.watching.done():
        return conversation.watching
    opened = asyncio.Event()
    stream = conversation.watch(opened)
    try:
        async with asyncio.timeout(conversation.manners.request_seconds):
            await opened.wait()
    except TimeoutError:
        raise DeadlineExceeded("the server did not begin to tell what changes") from None
    if stream.done():
        error = stream.exception()
        if isinstance(error, UnexpectedStatus) and error.status == 405:
            raise UnexpectedStatus(405, "the server has no stream on which it tells what changes") from error
        stream.result()
    return stream


async def _subscribe(conversation: LiveConversation, uri: str) -> None:
    if not conversation.subscribed[uri]:
        await conversation.request("resources/subscribe", {"uri": uri}, Wishes())
    conversation.subscribed[uri] += 1


async def _left(conversation: LiveConversation, uris: Sequence[str]) -> None:
    """End what one subscription was the last to want; a server that does not listen is not waited for long."""
    conversation.subscribed.subtract(uris)
    over = [uri for uri in uris if not conversation.subscribed[uri]]
    for uri in over:
        del conversation.subscribed[uri]
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                for uri in over:
                    with suppress(PeerError):
                        await conversation.request("resources/unsubscribe", {"uri": uri}, Wishes())
    finally:
        if not conversation.listeners and not conversation.attends:
            await conversation.leave()


def _ended(subscription: Subscription, error: BaseException | None) -> None:
    end = subscription._end
    if end is not None and not end.done():
        if error is None:
            end.set_result(None)
        else:
            end.set_exception(error)
    subscription._news.set()
