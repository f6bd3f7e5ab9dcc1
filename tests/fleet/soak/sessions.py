"""The same people on 2025-11-25, with the official client: a session each, and questions on the stream of the call.

There is nothing in hand to send again: a call whose session is not known where it arrives has failed.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import mcp.client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent
from pydantic import FileUrl

from tests.fleet.soak.names import bearer
from tests.fleet.soak.orders import Order
from tests.fleet.soak.people import Load

AT_ONCE = 100
"""More sessions at a time are too many for one process of clients: it would be slowness that is seen."""
PATIENCE = 15.0


class SessionCrowd:
    """Everybody, with a session for each order."""

    def __init__(self, url: str, load: Load) -> None:
        self.load = load
        self.orders: list[Order] = []
        self._url = url
        self._room = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> list[Order]:
        names = [f"u{number}" for number in range(self.load.users)]
        async with AsyncExitStack() as stack:
            clients = {name: await stack.enter_async_context(_web(name)) for name in names}
            self.orders = self.load.orders()
            await asyncio.gather(*(self._one(order, clients[order.user]) for order in self.orders))
        return self.orders

    async def _one(self, order: Order, web: httpx2.AsyncClient) -> None:
        dice = random.Random(order.marker)
        await asyncio.sleep(dice.uniform(0, self.load.ramp))
        async with self._room:
            order.began = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._attempt(order, web, dice)
            except Exception as error:  # Whatever the official client raises is how it fails, and is counted.
                order.failure = _shown(error)
            order.ended = time.monotonic()

    async def _attempt(self, order: Order, web: httpx2.AsyncClient, dice: random.Random) -> None:
        async def think() -> None:
            await asyncio.sleep(dice.uniform(*self.load.think))

        async def elicit(context: Any, params: Any) -> ElicitResult:
            order.rounds += 1
            order.asked.append("colour")
            await think()
            return ElicitResult(action="accept", content={"value": f"colour of {order.marker}"})

        async def sample(context: Any, params: Any) -> CreateMessageResult:
            order.rounds += 1
            order.asked.append("motto")
            await think()
            content = TextContent(type="text", text=f"motto of {order.marker}")
            return CreateMessageResult(role="assistant", content=content, model="model")

        async def roots(context: Any) -> ListRootsResult:
            order.rounds += 1
            order.asked.append("folders")
            await think()
            return ListRootsResult(roots=[Root(uri=FileUrl(order.folder))])

        async with mcp.client.Client(
            streamable_http_client(self._url, http_client=web),
            mode="legacy",
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=roots,
        ) as client:
            result = await client.call_tool(self.load.tool, {"marker": order.marker})
            block = result.content[0]
            order.look_at_result(block.text if isinstance(block, TextContent) else "", bool(result.is_error))


@asynccontextmanager
async def _web(user: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {bearer(user)}"},
        timeout=httpx2.Timeout(30, read=300),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
        verify=False,
        trust_env=False,
    ) as client:
        yield client


def _shown(error: BaseException) -> str:
    """The first error at the bottom of a group, in a few words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}".splitlines()[0][:100]
