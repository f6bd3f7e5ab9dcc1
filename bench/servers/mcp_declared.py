"""The official SDK, declared form: a parameter names the function that asks for it.

Served as `pip install mcp` leaves it, with the same settings as the returned form.
"""

from typing import Annotated, Any

from mcp.server.mcpserver import Elicit, MCPServer, RequestStateSecurity, Resolve
from pydantic import BaseModel

from bench.servers.serving import KEY, arguments, serve


class Visitor(BaseModel):
    name: str


server: MCPServer[Any] = MCPServer(
    "bench", version="1", log_level="WARNING", request_state_security=RequestStateSecurity(keys=[KEY])
)


async def ask_visitor(city: str) -> Elicit[Visitor]:
    return Elicit(f"Who is visiting {city}?", Visitor)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool(structured_output=False)
async def greet(city: str, visitor: Annotated[Visitor, Resolve(ask_visitor)]) -> str:
    """Greet a visitor by name."""
    return f"Hello {visitor.name} from {city}"


if __name__ == "__main__":
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    serve(app, arguments().parse_args().port, fast=False)
