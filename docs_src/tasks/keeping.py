import os

from turnwise import Context, MCPServer, RequestStateSecurity, SQLiteTaskStore, TaskOptions

server = MCPServer(
    "orders",
    request_state_security=RequestStateSecurity(keys=os.environ["TURNWISE_KEYS"].split(",")),
    tasks=TaskOptions(
        store=SQLiteTaskStore(os.environ.get("TASKS", "tasks.db")),
        ttl=7 * 24 * 3600,
        workers=8,
        most={"order": 2},
    ),
)


@server.tool(task="always")
async def order(article: str, ctx: Context) -> str:
    """Order an article."""
    await ctx.sleep(0.01)
    return f"Ordered {article}."
