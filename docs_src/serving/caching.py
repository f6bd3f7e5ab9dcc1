from turnwise import CacheHint, MCPServer

server = MCPServer(
    "atlas",
    cache_hints={"tools/list": CacheHint(ttl_ms=300_000, scope="public"), "resources/read": CacheHint(ttl_ms=1_000)},
    page_size=2,
)


@server.resource("atlas://world", cache=CacheHint(ttl_ms=86_400_000, scope="public"))
def world() -> str:
    """The same for everyone, all day long."""
    return "Seven continents"


@server.resource("atlas://here")
def here() -> str:
    """Keeps a second, and for one user."""
    return "You are here"


def distance(a: str, b: str) -> int:
    """How far it is."""
    return abs(len(a) - len(b))


for name in ("distance_by_car", "distance_by_train", "distance_on_foot"):
    server.add_tool(distance, name)
