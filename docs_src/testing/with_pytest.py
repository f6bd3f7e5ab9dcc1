import asyncio
from datetime import UTC, datetime
from typing import Any

from turnwise import Context, MCPServer
from turnwise.testing import FrozenClock

server = MCPServer("diary")


@server.tool()
async def write(ctx: Context) -> str:
    """Write into the diary."""
    text = await ctx.elicit("What happened?", str, key="text")
    return f"{datetime.fromtimestamp(ctx.now(), UTC):%H:%M} {text.data}" if text.action == "accept" else "Nothing."


def test_writing(turnwise_client: Any, frozen_clock: FrozenClock, turnwise_transcript: Any) -> None:
    async def check() -> None:
        frozen_clock.advance(90 * 60)
        async with turnwise_client(server, {"text": "Rain."}) as client:
            result = await client.call_tool("write")
            assert result.structured_content == {"result": "13:30 Rain."}
            client.flow.check(asked=[["text"]])
            turnwise_transcript(client)

    asyncio.run(check())
