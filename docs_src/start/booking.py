from pydantic import BaseModel, Field

from turnwise import Context, MCPServer

server = MCPServer("booking")


class Seat(BaseModel):
    row: int = Field(ge=1, le=40)
    window: bool = True


@server.tool()
def seats_left(flight: str) -> int:
    """How many seats are left on a flight."""
    return 7


@server.tool()
async def book(flight: str, ctx: Context) -> str:
    """Book a seat on a flight."""
    answer = await ctx.elicit(f"Which seat on {flight}?", Seat)
    if answer.action != "accept":
        return "Nothing was booked."
    return f"Booked row {answer.data.row} on {flight}."


if __name__ == "__main__":
    server.run("http")
