import os

from turnwise import (
    Context,
    MCPServer,
    PgQueuerDispatcher,
    PostgresTaskStore,
    RequestStateSecurity,
    TaskOptions,
)

server = MCPServer(
    "orders",
    request_state_security=RequestStateSecurity(keys=os.environ["TURNWISE_KEYS"].split(",")),
    tasks=TaskOptions(
        store=PostgresTaskStore(os.environ["DATABASE_URL"]),
        dispatcher=PgQueuerDispatcher(),
        workers=int(os.environ.get("TASK_WORKERS", "0")),
    ),
)


@server.tool(task="always")
async def order(article: str, ctx: Context) -> str:
    """Order an article, once somebody has signed for it."""
    signed = await ctx.elicit(f"Sign for {article}?", bool, key="signed")
    return f"Ordered {article}." if signed.action == "accept" and signed.data else "Not signed."
