from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from turnwise import MCPServer

server = MCPServer("clock")


@server.tool()
def tick() -> str:
    """Say tick."""
    return "tick"


async def health(request: Request) -> PlainTextResponse:
    return PlainTextResponse("well")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    await server.start()
    yield
    await server.stop()


app = Starlette(
    routes=[Route("/health", health), Mount("/tools", app=server.asgi(path="/mcp"))],
    lifespan=lifespan,
)
