from turnwise import Context, MCPServer

server = MCPServer("lamps")
events: list[str] = []


@server.tool()
async def light(ctx: Context) -> str:
    """`finally` runs in every round; this one tells the rounds apart."""
    try:
        answer = await ctx.elicit("Leave the light on?", bool)
        return answer.action
    finally:
        events.append("waiting for an answer" if ctx.suspending else "done")
