from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from turnwise import Context, MCPServer


class Pool:
    """Stands for your database."""

    def __init__(self) -> None:
        self.is_open = True

    async def fetch(self) -> str:
        return "42"

    async def close(self) -> None:
        self.is_open = False


@asynccontextmanager
async def lifespan(server: MCPServer[Pool]) -> AsyncIterator[Pool]:
    pool = Pool()
    yield pool
    await pool.close()


server = MCPServer("database", lifespan=lifespan)


@server.tool()
async def fetch(ctx: Context[Pool]) -> str:
    """Read from the database."""
    return await ctx.lifespan.fetch()
