from collections.abc import Iterator

from turnwise import MCPServer


def rotate(server: MCPServer, old: str, new: str) -> Iterator[str]:
    """One phase at a time; go on when all instances have come so far."""
    server.use_keys([old, new])
    yield "add"
    server.use_keys([new, old])
    yield "mint"
    server.use_keys([new])
    yield "drop"
