"""The shop as it is: a colour, a motto, the folders."""

from tests.fleet.soak import shop
from turnwise import Context

server = shop.make_server()


@server.tool(version="1", structured_output=False)
async def order(marker: str, ctx: Context) -> str:
    """Order something, with your colour and motto on it."""
    place = await ctx.step(shop.reserve, marker)
    colour = await shop.colour_of(ctx, marker)
    receipt = await shop.pay(ctx, marker)
    motto = await ctx.sample(f"A motto for {marker}?", max_tokens=20, key="motto")
    wrapped = await ctx.step(shop.wrap, marker, colour)
    folders = [str(root.uri) for root in await ctx.roots(key="folders")]
    words = getattr(motto.content, "text", "")
    return shop.told(ctx, marker, "1", place=place, receipt=receipt, wrapped=wrapped, words=words, folders=folders)
