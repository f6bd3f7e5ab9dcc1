"""`python examples/in_starlette.py`: tools at /tools/mcp, inside a Starlette application that has other routes."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from turnwise import Context, MCPServer

server = MCPServer("orders")
orders: dict[str, int] = {}  # What the application and its tools share.


@server.tool()
async def order(article: str, ctx: Context) -> str:
    """Order an article."""
    count = await ctx.elicit(f"How many of {article}?", int, key="count")
    if count.action != "accept":
        return "Nothing was ordered."
    orders[article] = orders.get(article, 0) + count.data
    return f"{count.data} of {article} ordered."


async def overview(request: Request) -> PlainTextResponse:
    return PlainTextResponse("\n".join(f"{count} {article}" for article, count in orders.items()))


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    await server.start()  # Starlette does not run the lifespan of what is mounted.
    yield
    await server.stop()


app = Starlette(routes=[Route("/", overview), Mount("/tools", app=server.asgi())], lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
