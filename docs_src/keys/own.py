import os

from turnwise import Context, MCPServer, RequestStateSecurity

security = RequestStateSecurity(keys=os.environ["TURNWISE_KEYS"].split(","), ttl=2 * 3600)
server = MCPServer("trips", request_state_security=security)


@server.tool()
async def greet(city: str, ctx: Context) -> str:
    """Greet somebody who is visiting a city."""
    visitor = await ctx.elicit(f"Who is visiting {city}?", str, key="visitor")
    return f"Hello {visitor.data}!" if visitor.action == "accept" else "Nobody to greet."
