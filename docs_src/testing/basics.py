import asyncio
from typing import Any

import pytest

from turnwise import Context, MCPError, MCPServer
from turnwise.testing import connect

server = MCPServer("shop")


@server.tool()
async def buy(article: str, ctx: Context) -> str:
    """Buy an article."""
    answer = await ctx.elicit(f"Buy {article}?", bool)
    return "Bought." if answer.action == "accept" and answer.data else "Not bought."


async def says_yes(connection: Any, params: Any) -> dict[str, Any]:
    assert params.message == "Buy a hat?"
    return {"action": "accept", "content": {"value": True}}


async def declines(connection: Any, params: Any) -> dict[str, Any]:
    return {"action": "decline"}


async def check() -> None:
    async with connect(server, elicitation_callback=says_yes) as client:
        result = await client.call_tool("buy", {"article": "a hat"})
        assert result.structured_content == {"result": "Bought."}

    async with connect(server, elicitation_callback=declines) as client:
        result = await client.call_tool("buy", {"article": "a hat"})
        assert result.structured_content == {"result": "Not bought."}

    async with connect(server) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("buy", {"article": "a hat"})
        assert refused.value.code == -32021


def test_buying() -> None:
    asyncio.run(check())
