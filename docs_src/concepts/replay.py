from datetime import datetime

from turnwise import Context, MCPServer

server = MCPServer("garden")
log: list[str] = []


@server.tool()
async def water(ctx: Context) -> str:
    """What stands before the question runs twice."""
    log.append("before")
    await ctx.elicit("Water the roses?", bool)
    log.append("after")
    return "Done."


@server.tool()
async def never_ends(ctx: Context) -> str:
    """A question that is another one in every round."""
    await ctx.elicit(f"It is {datetime.now()}. Water now?", bool)
    return "Done."


@server.tool()
async def ends(ctx: Context) -> str:
    """The same question in every round."""
    await ctx.elicit(f"It is {datetime.fromtimestamp(ctx.now())}. Water now?", bool)
    return "Done."
