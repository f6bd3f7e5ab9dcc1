"""Two POSTs by aiohttp, and nothing of MCP around them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from bench.clients.driving import Greet, drive
from bench.clients.raw import HEADERS, first_round, greeting, second_round


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[Greet]:
    async with aiohttp.ClientSession(headers=HEADERS, raise_for_status=True) as session:

        async def post(body: bytes) -> bytes:
            async with session.post(url, data=body) as response:
                return await response.read()

        async def greet(city: str) -> str:
            asked = await post(first_round(city))
            return greeting(await post(second_round(city, asked)))

        yield greet


if __name__ == "__main__":
    drive(connect)
