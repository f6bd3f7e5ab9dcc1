"""What the tests of all stores share."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
StoreT = TypeVar("StoreT", bound="Closing")
Opened_co = TypeVar("Opened_co", bound="Closing", covariant=True)

PATIENCE = 60.0


class Closing(Protocol):
    """A store that can be closed."""

    async def aclose(self) -> Any: ...


class Opening(Protocol[Opened_co]):
    """Where a store lives."""

    def open(self) -> Opened_co: ...


def using(place: Opening[StoreT], work: Callable[[StoreT], Awaitable[T]]) -> T:
    """Open a store, do something, and close it."""

    async def run() -> T:
        store = place.open()
        try:
            return await asyncio.wait_for(work(store), PATIENCE)
        finally:
            await store.aclose()

    return asyncio.run(run())
