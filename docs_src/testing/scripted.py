import asyncio
import os

import pytest

from turnwise import Context, MCPError, MCPServer, RequestStateSecurity
from turnwise.testing import FrozenClock, InTurn, connect

server = MCPServer("travel", request_state_security=RequestStateSecurity(keys=[os.urandom(32)], ttl=600))


@server.tool()
async def book(city: str, ctx: Context) -> str:
    """Book a room, and a table if the guest likes."""
    nights = await ctx.elicit(f"How many nights in {city}?", int, key="nights")
    while nights.action == "accept" and nights.data < 1:
        nights = await ctx.elicit("One at least. How many?", int)
    dinner = await ctx.elicit("Dinner?", bool, key="dinner")
    motto = await ctx.sample(f"A motto for {city}", max_tokens=20, key="motto")
    return f"{nights.data} nights, dinner {dinner.action}, {motto.content.text}"  # type: ignore[union-attr]


ANSWERS = {
    "nights": 0,  # By key: the value of a form with one field.
    "One at least. How many?": InTurn(-1, 2),  # By message, and two answers, one after the other.
    "dinner": {"action": "decline"},
    "motto": "Slowly up.",
}


async def check() -> None:
    async with connect(server, ANSWERS) as client:
        result = await client.call_tool("book", {"city": "Ulm"})
        assert result.structured_content == {"result": "2 nights, dinner decline, Slowly up."}
        client.flow.check(rounds=6, largest_state=2_000)
        assert client.flow.asked[0] == ["nights"]
        assert client.flow.messages[4] == ["sampling/createMessage"]
        assert client.flow.state_sizes[-1] == 0
        assert client.script is not None
        assert not client.script.unused


async def check_expiry() -> None:
    clock = FrozenClock()
    async with connect(server, now=clock) as client:
        client.capabilities = {"elicitation": {}}
        call = {"name": "book", "arguments": {"city": "Ulm"}}
        asked = await client.request("tools/call", call)
        clock.advance(601)
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await client.request("tools/call", {**call, "requestState": asked["requestState"]})


def test_booking() -> None:
    asyncio.run(check())


def test_a_question_is_good_for_ten_minutes() -> None:
    asyncio.run(check_expiry())
