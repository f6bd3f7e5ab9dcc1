import itertools

from turnwise import Context, MCPServer

server = MCPServer("garden")
rounds = itertools.count(1)  # Stands for anything that is different in every round.


@server.tool()
async def changing(ctx: Context) -> str:
    """A question whose words change."""
    answer = await ctx.elicit(f"It is {next(rounds)} o'clock. Water now?", bool)
    return answer.action


@server.tool()
async def disappearing(ctx: Context) -> str:
    """A question that only the first round comes by."""
    if next(rounds) == 1:
        await ctx.elicit("Water in the sun?", bool, key="sun")
    answer = await ctx.elicit("For how many minutes?", int, key="minutes")
    return answer.action


def beds() -> list[str]:
    """In another order from the third round on, as a set or a query without ORDER BY may be."""
    return ["roses", "herbs"] if next(rounds) < 3 else ["herbs", "roses"]


@server.tool()
async def one_key(ctx: Context) -> str:
    """Two questions share a key, so their order tells them apart."""
    return " ".join([(await ctx.elicit(f"Water the {bed}?", bool, key="water")).action for bed in beds()])


@server.tool()
async def own_keys(ctx: Context) -> str:
    """Each has a key of its own."""
    return " ".join([(await ctx.elicit(f"Water the {bed}?", bool, key=f"water-{bed}")).action for bed in beds()])
