from turnwise import Context, MCPServer

server = MCPServer("post")
shipped: list[str] = []


def ship(parcel: str) -> str:
    shipped.append(parcel)
    return f"{parcel} is under way"


@server.tool()
async def ship_all(parcels: list[str], ctx: Context) -> list[str]:
    """Ship parcels one by one."""
    slips = [await ctx.step(ship, parcel, name=f"ship {parcel}") for parcel in parcels]
    await ctx.elicit("Print the slips?", bool)
    return slips
