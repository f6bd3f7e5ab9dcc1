from typing import Annotated

from pydantic import BaseModel

from turnwise import Context, Elicit, ElicitationResult, MCPServer, Resolve

mcp = MCPServer("weather")


class Region(BaseModel):
    region: str


def ask_region(city: str) -> Elicit[Region]:
    return Elicit(message=f"Which {city} do you mean?", schema=Region)


@mcp.tool()
async def forecast(city: str, region: Annotated[ElicitationResult[Region], Resolve(ask_region)], ctx: Context) -> str:
    """The weather of tomorrow."""
    await ctx.report_progress(1, 2)
    if region.action != "accept":
        return f"No forecast for {city}."
    return f"Sunshine in {city}, {region.data.region}."


@mcp.prompt()
def weather_report(city: str) -> str:
    """A prompt."""
    return f"Report on the weather of {city}."


@mcp.resource("weather://{city}/today")
def today(city: str) -> str:
    """A template."""
    return f"Rain in {city}."
