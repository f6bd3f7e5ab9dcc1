from turnwise import Context, MCPServer

server = MCPServer("money")
rates = iter([1.10, 1.20, 1.30, 1.40])


def fetch_rate() -> float:
    return next(rates)


def quote(rate: float) -> str:
    return f"{rate:.2f}"


@server.tool()
async def wrong(ctx: Context) -> str:
    """The rate is read in every round, so the step is called with other arguments."""
    price = await ctx.step(quote, fetch_rate())
    await ctx.elicit("Buy?", bool)
    return price


@server.tool()
async def right(ctx: Context) -> str:
    """The rate is read once, in a step of its own."""
    rate = await ctx.step(fetch_rate)
    price = await ctx.step(quote, rate)
    await ctx.elicit("Buy?", bool)
    return price


@server.tool()
async def harmless(ctx: Context) -> str:
    """The step may run again, and the latest rate counts."""
    price = await ctx.step(quote, fetch_rate(), on_change="rerun")
    await ctx.elicit("Buy?", bool)
    return price
