import asyncio
import os
from typing import Any

import pytest

from turnwise import Context, MCPError, MCPServer, RequestStateSecurity
from turnwise.testing import connect

KEY = os.urandom(32)


def make_server() -> MCPServer:
    server = MCPServer("shop", request_state_security=RequestStateSecurity(keys=[KEY]))

    @server.tool()
    async def buy(article: str, ctx: Context) -> str:
        """Buy an article."""
        answer = await ctx.elicit(f"Buy {article}?", bool, key="sure")
        return "Bought." if answer.action == "accept" and answer.data else "Not bought."

    return server


async def check() -> None:
    call = {"name": "buy", "arguments": {"article": "a hat"}}
    async with connect(make_server()) as one, connect(make_server()) as other:
        one.capabilities = other.capabilities = {"elicitation": {}}
        asked = await one.request("tools/call", call)
        assert asked["resultType"] == "input_required"
        assert asked["inputRequests"]["sure"]["params"]["message"] == "Buy a hat?"

        # The answer goes to another instance, which has never seen this call.
        answers = {"sure": {"action": "accept", "content": {"value": True}}}
        retry: dict[str, Any] = {**call, "inputResponses": answers, "requestState": asked["requestState"]}
        done = await other.request("tools/call", retry)
        assert done["structuredContent"] == {"result": "Bought."}

        # With other arguments, the token is of no use.
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await other.request("tools/call", {**retry, "arguments": {"article": "a coat"}})


def test_a_flow_is_carried_on_elsewhere() -> None:
    asyncio.run(check())
