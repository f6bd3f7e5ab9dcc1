import os

from turnwise import Context, MCPServer, RequestStateSecurity


def proxy_user(context: Context) -> str | None:
    """Who the proxy in front says is calling. It must set this header itself, and drop one that a client sent."""
    return (context.headers or {}).get("x-forwarded-user")


server = MCPServer(
    "intranet",
    request_state_security=RequestStateSecurity(keys=[os.urandom(32)], bind_principal=proxy_user),
)
