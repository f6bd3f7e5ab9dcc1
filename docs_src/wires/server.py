from turnwise import Context, MCPServer, SessionLimits

server = MCPServer(
    "travel",
    dialects=["DRAFT-SEP-1858", "DRAFT-2026-v1", "DRAFT-2026-02-03"],
    sessions=SessionLimits(most=2_000, idle=900),
)


@server.tool()
async def book(city: str, ctx: Context) -> str:
    """Book a room. The function does not know on which wire it asks."""
    nights = await ctx.elicit(f"How many nights in {city}?", int, key="nights")
    if nights.action != "accept":
        return "Nothing was booked."
    return f"{nights.data} nights in {city}, asked over {ctx.protocol_version}."
