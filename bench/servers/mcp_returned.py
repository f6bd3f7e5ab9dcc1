"""The official SDK, returned form: the tool returns `InputRequiredResult` and is called again.

Served as `pip install mcp` leaves it (uvicorn on asyncio and h11), with the two settings it offers for speed,
`stateless_http=True` and `json_response=True`, logging reduced to warnings and no access log.
`--fast` puts the same app on uvloop and httptools; that row is for information.
"""

from typing import Any

from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

from bench.servers.serving import KEY, arguments, serve


class Visitor(BaseModel):
    name: str


VISITOR_SCHEMA = Visitor.model_json_schema()
server: MCPServer[Any] = MCPServer(
    "bench", version="1", log_level="WARNING", request_state_security=RequestStateSecurity(keys=[KEY])
)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool(structured_output=False)
async def greet(city: str, ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Greet a visitor by name."""
    answer = (ctx.input_responses or {}).get("visitor")
    if not isinstance(answer, ElicitResult) or ctx.request_state != "asked":
        return ask_visitor(city)
    visitor = Visitor.model_validate(answer.content)
    return f"Hello {visitor.name} from {city}"


def ask_visitor(city: str) -> InputRequiredResult:
    params = ElicitRequestFormParams(message=f"Who is visiting {city}?", requested_schema=VISITOR_SCHEMA)
    return InputRequiredResult(input_requests={"visitor": ElicitRequest(params=params)}, request_state="asked")


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--fast", action="store_true", help="uvloop and httptools instead of asyncio and h11")
    parser.add_argument("--tools", type=int, default=2, help="size of the catalogue, `add` included")
    options = parser.parse_args()
    for number in range(2, options.tools):
        server.add_tool(add, name=f"add_{number}")
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    serve(app, options.port, fast=options.fast)
