from turnwise import MCPServer

server = MCPServer("clock")


@server.tool()
def tick() -> str:
    """Say tick."""
    return "tick"


app = server.asgi(
    allowed_hosts=["mcp.example.com"],
    allowed_origins=["https://app.example.com"],
    max_body=256 * 1024,
    keepalive=10.0,
)
