"""A tool that asks in the middle. Serve it with `python examples/booking.py`, then call it from any MCP client."""

import sys

from pydantic import BaseModel

from turnwise import Context, MCPServer

server = MCPServer("booking")


class Seat(BaseModel):
    row: int
    window: bool = True


@server.tool()
async def book(flight: str, ctx: Context) -> str:
    """Book a seat on a flight."""
    answer = await ctx.elicit(f"Which seat on {flight}?", Seat)
    if answer.action != "accept":
        return "Nothing was booked."
    return f"Booked row {answer.data.row} on {flight}."


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
