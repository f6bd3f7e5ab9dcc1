import os

from turnwise import Context, MCPServer

server = MCPServer("shop", version="1.2.0")


@server.tool()
async def order(item: str, ctx: Context) -> str:
    """Order something; it asks for size and colour."""
    size = await ctx.elicit(f"Which size of {item}?", str, key="size")
    if size.action != "accept":
        return "Nothing was ordered."
    colour = await ctx.elicit(f"Which colour of {item}?", str, key="colour")
    if colour.action != "accept":
        return "Nothing was ordered."
    return f"{item}, {size.data}, {colour.data}: ordered at process {os.getpid()}."
