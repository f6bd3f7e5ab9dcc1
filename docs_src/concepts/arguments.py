from turnwise import Context, MCPServer

server = MCPServer("stock")
stock = {"tea": 3}
reserved: list[int] = []


def reserve(count: int) -> str:
    reserved.append(count)
    return f"{count} reserved"


@server.tool()
async def reserve_all(ctx: Context) -> str:
    """The stock is read outside of a step, and it changes."""
    slip = await ctx.step(reserve, stock["tea"])
    await ctx.elicit("Take them?", bool)
    return slip
