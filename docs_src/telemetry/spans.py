from opentelemetry.sdk.trace import TracerProvider

from turnwise import Context, MCPServer, OpenTelemetry

provider = TracerProvider()  # Add the exporter of your choice.
server = MCPServer("booking", telemetry=OpenTelemetry(provider))


@server.tool()
async def book(flight: str, ctx: Context) -> str:
    """Book a seat."""
    answer = await ctx.elicit(f"Which row on {flight}?", int, key="row")
    return f"Row {answer.data}." if answer.action == "accept" else "Nothing was booked."
