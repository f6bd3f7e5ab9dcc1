import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turnwise import (
    Context,
    FlowStore,
    MCPServer,
    MemoryStore,
    PostgresStore,
    RedisStore,
    RequestStateSecurity,
    SQLiteStore,
)


def choose(url: str) -> FlowStore:
    """A store by its address."""
    if url.startswith("postgresql://"):
        return PostgresStore(url, prefix="turnwise_", pool_size=4)
    if url.startswith("redis://"):
        return RedisStore(url, prefix="turnwise:")
    return MemoryStore() if url == "memory" else SQLiteStore(url)


store = choose(os.environ.get("FLOWS", "memory"))


@asynccontextmanager
async def lifespan(server: MCPServer[None]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await store.aclose()


security = RequestStateSecurity(keys=os.environ["TURNWISE_KEYS"].split(","))
server: MCPServer[None] = MCPServer("shop", request_state_security=security, store=store, lifespan=lifespan)
charged: list[str] = []


async def charge(order: str) -> int:
    charged.append(order)
    return len(charged)


@server.tool(effects=True)
async def pay(order: str, ctx: Context) -> int:
    """Pay for an order."""
    return await ctx.step(charge, order, once=True)
