from typing import Annotated

from pydantic import BaseModel, Field

from turnwise import Context, MCPServer, ToolError

mcp = MCPServer("trips")


class Stay(BaseModel):
    nights: Annotated[int, Field(ge=1)]


@mcp.tool(structured_output=False)
async def book(city: str, ctx: Context) -> str:
    """Book a hotel."""
    if city == "Atlantis":
        raise ToolError("Atlantis is under water.")
    answer = await ctx.elicit(f"How many nights in {city}?", Stay, key="nights")
    if answer.action != "accept":
        return "Nothing was booked."
    await ctx.report_progress(1, 2)
    return f"{answer.data.nights} nights in {city}."


@mcp.tool()
def distance(a: int, b: int) -> int:
    """How far it is."""
    return abs(a - b)


@mcp.prompt()
def itinerary(city: str) -> str:
    """A plan for a day."""
    return f"Plan a day in {city}."


@mcp.resource("trips://{city}/weather")
def weather(city: str) -> str:
    """Tomorrow's weather."""
    return f"Rain in {city}."


if __name__ == "__main__":
    mcp.run()
