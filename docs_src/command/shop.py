from pathlib import Path

from turnwise import Context, MCPServer, RequestStateSecurity, SQLiteTaskStore

keys = [line for line in Path("keys").read_text().splitlines() if not line.startswith("#")]
server = MCPServer(
    "shop",
    tasks=SQLiteTaskStore("tasks.db"),
    request_state_security=RequestStateSecurity(keys=keys),
)


async def pack(article: str) -> str:
    return f"{article}, packed"


@server.tool(task="always")
async def order(article: str, ctx: Context) -> str:
    """Order something, and say who gets it."""
    parcel = await ctx.step(pack, article)
    name = await ctx.elicit(f"Who gets the {article}?", str, key="name")
    return f"{parcel}, for {name.data}" if name.action == "accept" else "Nothing was sent."
