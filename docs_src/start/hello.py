from turnwise import MCPServer

server = MCPServer("booking")


@server.tool()
def seats_left(flight: str) -> int:
    """How many seats are left on a flight."""
    return 7


if __name__ == "__main__":
    server.run("http")
