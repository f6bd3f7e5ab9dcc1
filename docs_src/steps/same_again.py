from turnwise import Context, MCPServer

server = MCPServer("raffle")


@server.tool()
async def draw(ctx: Context) -> dict[str, str]:
    """Draw a ticket. Everything in the result was the same before and after the question."""
    number = int(ctx.random() * 1000)
    drawn_at = ctx.now()
    ticket = ctx.uuid()
    await ctx.elicit(f"Keep ticket {ticket} with number {number}?", bool)
    return {"number": str(number), "at": str(drawn_at), "ticket": str(ticket), "flow": ctx.flow_id}
