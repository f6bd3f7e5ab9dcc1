import json
from collections.abc import Awaitable, Callable
from typing import Protocol

from turnwise import Change, InMemoryBus, MCPServer


class Broker(Protocol):
    """Whatever you have: Redis, NATS, PostgreSQL."""

    async def send(self, message: str) -> None: ...

    def listen(self, hear: Callable[[str], Awaitable[None]]) -> None: ...


class FleetBus(InMemoryBus):
    """A change goes to the broker, and comes back from there to every instance."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._broker = broker
        broker.listen(self._hear)

    async def publish(self, change: Change) -> None:
        await self._broker.send(json.dumps(change))

    async def _hear(self, message: str) -> None:
        await super().publish(Change(*json.loads(message)))


def make_server(broker: Broker) -> MCPServer:
    return MCPServer("notes", subscriptions=FleetBus(broker))
