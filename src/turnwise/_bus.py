"""Changes and who listens to them. A change that is still unread is not queued a second time, so a slow listener
holds at most one of each.

The bus here lives in one process. A fleet brings its own: anything with `publish`, `subscribe` and `close`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, NamedTuple, Protocol

Kind = Literal["tools", "prompts", "resources", "resource"]


class Change(NamedTuple):
    """A list that changed, or one resource (`uri`) that did."""

    kind: Kind
    uri: str | None = None


class SubscriptionBus(Protocol):
    """Where changes are published and listened to."""

    async def publish(self, change: Change) -> None:
        """Tell every listener."""
        ...

    def subscribe(self, wants: Callable[[Change], bool]) -> AbstractAsyncContextManager[AsyncIterator[Change]]:
        """The wanted changes from the moment of entering, until the bus closes."""
        ...

    def close(self) -> None:
        """End every subscription in good order."""
        ...


class InMemoryBus:
    """The bus of one process."""

    def __init__(self) -> None:
        self._listeners: set[_Listener] = set()

    async def publish(self, change: Change) -> None:
        """Tell every listener."""
        for listener in self._listeners:
            listener.offer(change)

    @asynccontextmanager
    async def subscribe(self, wants: Callable[[Change], bool]) -> AsyncIterator[AsyncIterator[Change]]:
        """The wanted changes from the moment of entering, until the bus closes."""
        listener = _Listener(wants)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def close(self) -> None:
        """End every subscription in good order."""
        for listener in self._listeners:
            listener.end()


class _Listener:
    def __init__(self, wants: Callable[[Change], bool]) -> None:
        self._wants = wants
        self._unread: dict[Change, None] = {}
        self._stirred = asyncio.Event()
        self._ended = False

    def offer(self, change: Change) -> None:
        if self._wants(change):
            self._unread[change] = None
            self._stirred.set()

    def end(self) -> None:
        self._ended = True
        self._stirred.set()

    def __aiter__(self) -> "_Listener":
        return self

    async def __anext__(self) -> Change:
        while not self._unread:
            if self._ended:
                raise StopAsyncIteration
            self._stirred.clear()
            await self._stirred.wait()
        change = next(iter(self._unread))
        del self._unread[change]
        return change


def bus_of(subscriptions: SubscriptionBus | Literal[False] | None) -> SubscriptionBus | None:
    """The bus that a server is given, one of its own, or none."""
    if subscriptions is None:
        return InMemoryBus()
    return None if subscriptions is False else subscriptions
