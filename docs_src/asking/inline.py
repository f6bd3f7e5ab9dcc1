from pydantic import BaseModel

from turnwise import Context, MCPServer

server = MCPServer("parcels")


class Address(BaseModel):
    street: str
    city: str


@server.tool()
async def send(parcel: str, ctx: Context) -> str:
    """Send a parcel."""
    answer = await ctx.elicit(f"Where should {parcel} go?", Address)
    if answer.action != "accept":
        return f"{parcel} stays here."
    return f"{parcel} goes to {answer.data.city}."
