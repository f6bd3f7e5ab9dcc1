"""Turnwise, inline form: the tool awaits the answer in its own body.

Served as its users serve it, by `server.run("http")`: uvicorn on uvloop and httptools, which Turnwise depends on, set
up by the library. With `--asgi` it is the application alone, under the same uvicorn call as the floor.
"""

from pydantic import BaseModel

from bench.servers.serving import KEY, arguments, serve
from turnwise import AcceptedElicitation, Context, MCPServer, RequestStateSecurity, ToolError


class Visitor(BaseModel):
    name: str


server = MCPServer("bench", version="1", request_state_security=RequestStateSecurity(keys=[KEY]))


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def greet(city: str, ctx: Context) -> str:
    """Greet a visitor by name."""
    answer = await ctx.elicit(f"Who is visiting {city}?", Visitor, key="visitor")
    if not isinstance(answer, AcceptedElicitation):
        raise ToolError("Nobody to greet")
    return f"Hello {answer.data.name} from {city}"


def fill_catalogue(tools: int) -> None:
    """Register `add`, then `greet`, then copies of `add` until the catalogue has as many tools as asked."""
    server.add_tool(add)
    if tools > 1:
        server.add_tool(greet, structured_output=False)
    for number in range(2, tools):
        server.add_tool(add, name=f"add_{number}")


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--tools", type=int, default=2, help="size of the catalogue, `add` included")
    parser.add_argument("--asgi", action="store_true", help="serve the application with uvicorn's own settings")
    options = parser.parse_args()
    fill_catalogue(options.tools)
    if options.asgi:
        serve(server.asgi(), options.port, fast=True)
    else:
        server.run("http", port=options.port, log_level="warning")
