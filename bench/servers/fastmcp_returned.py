"""FastMCP, the form that it has for stateless rounds: the tool returns `InputRequiredResult` and is called again.

It runs in an environment of its own (`peers.py`), without Turnwise, served as `pip install fastmcp` leaves it (uvicorn
on asyncio and h11), with the settings that the official SDK has here: `stateless_http`, `json_response`, warnings only.
"""

from typing import Any

from fastmcp import Context, FastMCP  # type: ignore[import-not-found, unused-ignore]
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

from bench.servers.serving import KEY, arguments, serve


class Visitor(BaseModel):
    name: str


VISITOR_SCHEMA = Visitor.model_json_schema()


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def greet(city: str, ctx: Context) -> str | InputRequiredResult:
    """Greet a visitor by name."""
    answer = (ctx.input_responses or {}).get("visitor")
    if not isinstance(answer, ElicitResult) or ctx.request_state != "asked":
        return ask_visitor(city)
    visitor = Visitor.model_validate(answer.content)
    return f"Hello {visitor.name} from {city}"


def ask_visitor(city: str) -> InputRequiredResult:
    params = ElicitRequestFormParams(message=f"Who is visiting {city}?", requested_schema=VISITOR_SCHEMA)
    return InputRequiredResult(input_requests={"visitor": ElicitRequest(params=params)}, request_state="asked")


def filled(tools: int) -> Any:
    """A server with `add`, then `greet`, then copies of `add` until the catalogue has as many tools as asked."""
    server = FastMCP("bench", version="1", request_state_security=RequestStateSecurity(keys=[KEY]))
    server.tool(add)
    if tools > 1:
        server.tool(greet, output_schema=None)
    for number in range(2, tools):
        server.tool(add, name=f"add_{number}")
    return server


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--tools", type=int, default=2, help="size of the catalogue, `add` included")
    options = parser.parse_args()
    serve(filled(options.tools).http_app(stateless_http=True, json_response=True), options.port, fast=False)
