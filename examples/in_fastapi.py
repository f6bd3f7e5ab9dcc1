"""`python examples/in_fastapi.py`: tools at /tools/mcp, inside a FastAPI application that has other routes."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

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


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    await server.start()  # FastAPI does not run the lifespan of what is mounted.
    yield
    await server.stop()


app = FastAPI(lifespan=lifespan)


@app.get("/")
def overview() -> dict[str, int]:
    return orders


app.mount("/tools", server.asgi())

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
