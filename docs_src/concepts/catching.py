from turnwise import Context, MCPServer

server = MCPServer("doors")
alarms: list[str] = []


@server.tool()
async def lock(ctx: Context) -> str:
    """Takes every round that ends at a question for a failure."""
    try:
        answer = await ctx.elicit("Lock the door?", bool)
    except BaseException:
        alarms.append("the lock failed")
        return "The lock failed."
    return answer.action


@server.tool()
async def lock_well(ctx: Context) -> str:
    """Catches what can fail."""
    try:
        answer = await ctx.elicit("Lock the door?", bool)
    except Exception:
        alarms.append("the lock failed")
        return "The lock failed."
    return answer.action
