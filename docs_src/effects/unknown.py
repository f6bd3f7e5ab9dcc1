from turnwise import Budget, Context, EffectUnknown, MCPServer, MemoryStore, ToolError

payments: dict[str, str] = {}  # Stands for the payment service: receipts by idempotency key.
store = MemoryStore()
server = MCPServer("shop", store=store, budget=Budget(patience=0.1))


async def charge(cents: int, key: str) -> str:
    payments[key] = f"R-{cents}"
    return payments[key]


async def look_up(key: str) -> str | None:
    return payments.get(key)


@server.tool(effects=True)
async def pay(cents: int, ctx: Context) -> str:
    """Pay, or find out whether it was paid."""
    key = ctx.idempotency_key("charge")
    try:
        return await ctx.step(charge, cents, key, once=True)
    except EffectUnknown:
        receipt = await ctx.step(look_up, key)
    if receipt is None:
        raise ToolError("The payment did not get through. Do not try again: the shop will look into it.")
    return receipt


@server.tool(effects=True)
async def pay_by_key(cents: int, ctx: Context) -> str:
    """The service honours the key, so that to charge again is harmless."""
    key = ctx.idempotency_key("charge")
    return await ctx.step(charge, cents, key, once=True, on_unknown="rerun")
