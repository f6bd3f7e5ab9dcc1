# mypy: ignore-errors


# region server
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

mcp = FastMCP("trips")

NIGHTS = {"type": "object", "properties": {"nights": {"type": "integer", "minimum": 1}}, "required": ["nights"]}


@mcp.tool(output_schema=None)
async def book(city: str, ctx: Context) -> str | InputRequiredResult:
    """Book a hotel."""
    if city == "Atlantis":
        raise ToolError("Atlantis is under water.")
    answer = (ctx.input_responses or {}).get("nights")
    if answer is None:
        asked = ElicitRequestFormParams(message=f"How many nights in {city}?", requested_schema=NIGHTS)
        return InputRequiredResult(input_requests={"nights": ElicitRequest(params=asked)})
    if answer.action != "accept":
        return "Nothing was booked."
    await ctx.report_progress(1, 2)
    return f"{answer.content['nights']} nights in {city}."


@mcp.tool
def distance(a: int, b: int) -> int:
    """How far it is."""
    return abs(a - b)


@mcp.prompt
def itinerary(city: str) -> str:
    """A plan for a day."""
    return f"Plan a day in {city}."


@mcp.resource("trips://{city}/weather")
def weather(city: str) -> str:
    """Tomorrow's weather."""
    return f"Rain in {city}."


if __name__ == "__main__":
    mcp.run(show_banner=False)


# endregion
