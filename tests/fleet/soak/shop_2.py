"""The shop after the upgrade: the colour is asked as before, the motto no longer, and a slogan in its place."""

from tests.fleet.soak import shop
from turnwise import Context

server = shop.make_server()


@server.tool(version="2", structured_output=False)
async def order(marker: str, ctx: Context) -> str:
    """Order something, with your colour and slogan on it."""
    place = await ctx.step(shop.reserve, marker)
    colour = await shop.colour_of(ctx, marker)
    receipt = await shop.pay(ctx, marker)
    slogan = await ctx.sample(f"A slogan for {marker}?", max_tokens=20, key="slogan")
    wrapped = await ctx.step(shop.wrap, marker, colour)
    folders = [str(root.uri) for root in await ctx.roots(key="folders")]
    words = getattr(slogan.content, "text", "")
    return shop.told(ctx, marker, "2", place=place, receipt=receipt, wrapped=wrapped, words=words, folders=folders)
