import os

from turnwise import Context, MCPServer, RequestStateSecurity

server = MCPServer(
    "clock",
    request_state_security=RequestStateSecurity(keys=os.environ["TURNWISE_KEYS"].split(",")),
)


@server.tool()
async def set_clock(ctx: Context) -> str:
    """Set the clock."""
    answer = await ctx.elicit("What time is it?", str)
    return f"It is {answer.data}." if answer.action == "accept" else "Nobody knows."


app = server.asgi(allowed_hosts=["mcp.example.com"])
