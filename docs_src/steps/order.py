from turnwise import Context, MCPServer

server = MCPServer("shop")
charges: list[tuple[str, int]] = []  # Stands for the bank.


async def charge(card: str, cents: int, *, idempotency_key: str) -> str:
    """Take the money; gives the number of the receipt."""
    charges.append((card, cents))
    return f"R-{len(charges)}"


@server.tool()
async def buy(article: str, card: str, ctx: Context) -> str:
    """Buy an article."""
    answer = await ctx.elicit(f"Buy {article} for 12.00?", bool)
    if answer.action != "accept" or not answer.data:
        return "Nothing was bought."
    receipt = await ctx.step(charge, card, 1200, idempotency_key=ctx.idempotency_key("charge"))
    gift = await ctx.elicit("Is it a gift?", bool)
    wrapped = gift.action == "accept" and gift.data
    return f"{article}, {'wrapped, ' if wrapped else ''}receipt {receipt}."
