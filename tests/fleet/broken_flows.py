"""Tests that pass in one process; what the flows of two of them need is not there in another."""

import asyncio
from typing import Any

from turnwise import Context, MCPServer
from turnwise.testing import connect

YES = {"action": "accept", "content": {"value": True}}


def said(fn: Any) -> str:
    """What a tool says after one question."""
    server: MCPServer[Any] = MCPServer("flows")
    server.add_tool(fn, "it")

    async def run() -> str:
        async with connect(server, elicitation_callback=lambda *_: asyncio.sleep(0, YES)) as client:
            result = await client.call_tool("it")
            return "".join(getattr(part, "text", "") for part in result.content)

    return asyncio.run(run())


def test_a_flow_that_is_all_in_its_token() -> None:
    kept: list[str] = []

    async def tool(ctx: Context) -> str:
        await ctx.step(kept.append, "kept")
        await ctx.elicit("Well?", bool)
        return "fine"

    assert said(tool) == "fine"
    assert kept == ["kept"]


def test_a_flow_that_is_kept_in_its_process() -> None:
    async def tool(ctx: Context) -> str:
        begun = hasattr(tool, "begun")
        vars(tool)["begun"] = True
        await ctx.elicit("Well?", bool)
        return "fine" if begun else "forgotten"

    assert said(tool) == "fine"


def test_a_flow_that_goes_by_a_hash() -> None:
    async def tool(ctx: Context) -> str:
        order = list({"red", "green", "blue", "black", "white", "grey"})
        await ctx.step(str, " ".join(order))
        await ctx.elicit("Well?", bool)
        return "fine"

    assert said(tool) == "fine"
