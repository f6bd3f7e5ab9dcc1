"""The server of the transcripts: `python server.py stdio`, or `python server.py PORT` for HTTP."""

import asyncio
import sys
from typing import Annotated

import mcp_types as types
from pydantic import BaseModel

from turnwise import Context, Elicit, InputRequiredResult, ListRoots, MCPServer, Resolve, Sample, ToolError

server = MCPServer("transcripts", version="1")


class Seat(BaseModel):
    row: int
    window: bool = True


class Reason(BaseModel):
    reason: str


@server.tool()
async def book(flight: str, ctx: Context) -> str:
    """Book a seat."""
    answer = await ctx.elicit(f"Which seat on {flight}?", Seat, key="seat")
    if answer.action == "accept":
        return f"Row {answer.data.row} on {flight}"
    return f"Not booked: {answer.action}"


@server.tool()
async def cancel(flight: str, ctx: Context) -> str:
    """Cancel a booking: asks why, looks it up once, and asks again."""
    why = await ctx.elicit("Why?", Reason, key="why")
    if why.action != "accept":
        raise ToolError("No reason, no cancellation")
    booking = await ctx.step(look_up, flight)
    sure = await ctx.elicit(f"Cancel {booking}?", bool, key="sure")
    return f"{booking} cancelled: {why.data.reason}" if sure.action == "accept" and sure.data else "Kept"


async def look_up(flight: str) -> str:
    look_ups.append(flight)
    return f"{flight}/{len(look_ups)}"


look_ups: list[str] = []


@server.tool()
async def survey(ctx: Context) -> str:
    """Ask the user, the model and the client in one round, concurrently."""
    async with asyncio.TaskGroup() as group:
        name = group.create_task(ctx.elicit("Your name?", str, key="name"))
        poem = group.create_task(ctx.sample("A line about turns", max_tokens=20, key="poem"))
        roots = group.create_task(ctx.roots(key="roots"))
    answer, line = name.result(), poem.result()
    assert answer.action == "accept"
    assert isinstance(line.content, types.TextContent)
    return f"{answer.data} / {line.content.text} / {len(roots.result())} roots"


def ask_seat(flight: str) -> Elicit[Seat]:
    return Elicit(f"Which seat on {flight}?", Seat, key="seat")


@server.tool()
async def rebook(flight: str, seat: Annotated[Seat, Resolve(ask_seat)], ctx: Context) -> str | InputRequiredResult:
    """All three forms in one function: declared, then returned, then inline."""
    if ctx.request_state != "fee asked":
        params = types.ElicitRequestFormParams(
            message="Pay the fee?", requested_schema={"type": "object", "properties": {"ok": {"type": "boolean"}}}
        )
        return InputRequiredResult(
            input_requests={"fee": types.ElicitRequest(params=params)}, request_state="fee asked"
        )
    fee = (ctx.input_responses or {}).get("fee")
    why = await ctx.elicit("Why?", Reason, key="why")
    assert why.action == "accept"
    paid = isinstance(fee, types.ElicitResult) and fee.content == {"ok": True}
    return f"Row {seat.row}, {'paid' if paid else 'unpaid'}, because {why.data.reason}"


@server.prompt()
async def itinerary(city: str, ctx: Context) -> str:
    """A prompt that asks first."""
    days = await ctx.elicit(f"How many days in {city}?", int, key="days")
    return f"Plan {days.data} days in {city}." if days.action == "accept" else f"Plan a trip to {city}."


@server.resource("seats://map")
async def seat_map(ctx: Context) -> str:
    """A static resource that asks first."""
    deck = await ctx.elicit("Which deck?", str, key="deck")
    return f"Map of the {deck.data} deck" if deck.action == "accept" else "Map"


@server.resource("seats://{flight}/free")
async def free_seats(flight: str, ctx: Context) -> str:
    """A template that asks the model first."""
    (guess,) = await ctx.ask_all(Sample("How many?", key="guess"))
    return f"{flight}: {guess.content.text} free"


@server.tool()
async def where(roots: Annotated[list[types.Root], Resolve(ListRoots)]) -> int:
    """Count the client's folders."""
    return len(roots)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("http", port=int(sys.argv[1]), log_level="warning")
