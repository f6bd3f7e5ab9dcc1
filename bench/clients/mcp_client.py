"""The official SDK's client with its defaults, auto-loop included. Run by itself it is the row over HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.server.mcpserver import MCPServer

from bench.clients.answering import answer, text_of
from bench.clients.driving import Greet, drive


@asynccontextmanager
async def connect(target: str | MCPServer[Any]) -> AsyncIterator[Greet]:
    async with Client(target, elicitation_callback=answer) as client:

        async def greet(city: str) -> str:
            return text_of(await client.call_tool("greet", {"city": city}))

        yield greet


if __name__ == "__main__":
    drive(connect)
