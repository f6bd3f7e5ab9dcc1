from starlette.requests import Request
from starlette.responses import PlainTextResponse

from turnwise import MCPServer

server = MCPServer("clock")


@server.tool()
def tick() -> str:
    """Say tick."""
    return "tick"


@server.custom_route("/health", methods=["GET"])
async def health(request: Request) -> PlainTextResponse:
    return PlainTextResponse("well")


app = server.asgi()
