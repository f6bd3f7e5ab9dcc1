"""Two POSTs by httpx2, the HTTP library of the official client, and nothing of MCP around them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from bench.clients.driving import Greet, drive
from bench.clients.raw import HEADERS, first_round, greeting, second_round


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Greet]:
    async with httpx2.AsyncClient(headers=HEADERS) as session:

        async def post(body: bytes) -> bytes:
            return (await session.post(url, content=body)).raise_for_status().content

        async def greet(city: str) -> str:
            asked = await post(first_round(city))
            return greeting(await post(second_round(city, asked)))

        yield greet


if __name__ == "__main__":
    drive(connect)
