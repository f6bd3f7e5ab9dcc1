from turnwise import Context, MCPServer, SQLiteStore

bank: dict[str, int] = {}  # Stands for a payment service that honours idempotency keys.
charged: list[int] = []  # And for one that does not.
server = MCPServer("shop", store=SQLiteStore("flows.db"))


async def charge_by_key(cents: int, idempotency_key: str) -> str:
    bank.setdefault(idempotency_key, cents)
    return f"R-{idempotency_key[:6]}"


async def charge(cents: int) -> str:
    charged.append(cents)
    return f"R-{len(charged)}"


@server.tool()
async def pay_by_key(cents: int, ctx: Context) -> str:
    """First level: the service sees the same key again, and charges once."""
    await ctx.elicit("Pay?", bool, key="pay")
    receipt = await ctx.step(charge_by_key, cents, ctx.idempotency_key("charge"))
    await ctx.elicit("Print the receipt?", bool, key="print")
    return receipt


@server.tool(effects=True)
async def pay_once(cents: int, ctx: Context) -> str:
    """Second level: the store knows that the step was done."""
    receipt = await ctx.step(charge, cents, once=True)
    await ctx.elicit("Print the receipt?", bool, key="print")
    return receipt


@server.tool(single_use=True)
async def pay_strictly(cents: int, ctx: Context) -> str:
    """Third level: every token gets one reply, and the flow cannot be taken back to an older one."""
    answer = await ctx.elicit("Tip?", int, key="tip")
    tip = answer.data if answer.action == "accept" else 0
    receipt = await ctx.step(charge, cents + tip, once=True)
    await ctx.elicit("Print the receipt?", bool, key="print")
    return receipt
