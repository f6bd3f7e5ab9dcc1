import os

from turnwise import MCPServer

server = MCPServer("clock", version="1.2.0", instructions="Ask me for the time.")


@server.tool()
def tick() -> str:
    """Say tick."""
    return "tick"


if __name__ == "__main__":
    server.run("http", host="127.0.0.1", port=int(os.environ.get("PORT", "8000")), path="/mcp", log_level="warning")
