from collections.abc import Awaitable, Callable
from typing import Any

from turnwise import HTTP, Channel, Client, Incoming, Outgoing


class Recorded:
    """A channel that keeps what goes over another one."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.exchanges: list[tuple[bytes, bytes]] = []

    async def open(self) -> None:
        await self._channel.open()

    async def aclose(self) -> None:
        await self._channel.aclose()

    async def exchange(self, request: Outgoing, notified: Callable[[Any], Awaitable[None]]) -> Incoming:
        incoming = await self._channel.exchange(request, notified)
        self.exchanges.append((request.body, incoming.raw))
        return incoming


async def rounds(url: str) -> int:
    """How many requests it takes to ask the server who it is."""
    recorded = Recorded(HTTP(url))
    async with Client(recorded):
        return len(recorded.exchanges)
