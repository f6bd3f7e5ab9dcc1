from turnwise import MCPServer

server = MCPServer("clock")


@server.tool()
def tick() -> str:
    """Say tick."""
    print("this goes to standard error")
    return "tick"


if __name__ == "__main__":
    server.run("stdio")
