import os
from pathlib import Path

from turnwise import Budget, Context, MCPServer, RequestStateSecurity

lines = Path(os.environ["SHOP_KEYS"]).read_text().splitlines()
keys = [line for line in lines if line and not line.startswith("#")]
server = MCPServer(
    "shop",
    request_state_security=RequestStateSecurity(keys=keys, ttl=24 * 3600),
    budget=Budget(deadline=3 * 24 * 3600),
)


@server.tool()
async def order(item: str, ctx: Context) -> str:
    """Order something; the answer may come tomorrow."""
    size = await ctx.elicit(f"Which size of {item}?", str, key="size")
    return f"{item}, {size.data}" if size.action == "accept" else "Nothing was ordered."
