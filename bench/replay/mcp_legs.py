"""The official SDK, declared form: a chain of parameters, each asked for by a function that has the one before."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Elicit, MCPServer, RequestStateSecurity, Resolve
from pydantic import BaseModel

from bench.replay.legs import LENGTHS, conclusion, figures_of, parse_seconds, question
from bench.servers.serving import KEY


class Answer(BaseModel):
    value: str


Asking = Callable[..., Awaitable[Elicit[Answer]]]

server: MCPServer[Any] = MCPServer(
    "bench", version="1", log_level="WARNING", request_state_security=RequestStateSecurity(keys=[KEY])
)


async def ask(topic: str) -> Elicit[Answer]:
    return Elicit(question(topic, 1), Answer)


def after(previous: Asking, number: int) -> Asking:
    async def ask_next(topic: str, earlier: Annotated[Answer, Resolve(previous)]) -> Elicit[Answer]:
        return Elicit(question(topic, number), Answer)

    ask_next.__name__ = ask_next.__qualname__ = f"ask_{number}"
    return ask_next


def add_interview(questions: int) -> None:
    asking: Asking = ask
    for number in range(2, questions + 1):
        asking = after(asking, number)

    async def interview(topic: str, last: Annotated[Answer, Resolve(asking)]) -> str:
        """Ask questions, one after the other."""
        return conclusion(topic, questions, last.value)

    server.add_tool(interview, f"mcp_declared_{questions}", structured_output=False)


async def figures(seconds: float) -> dict[str, dict[str, float]]:
    application = server.streamable_http_app(stateless_http=True, json_response=True)
    async with application.router.lifespan_context(application):
        return await figures_of(application, ("mcp_declared",), seconds)


for length in LENGTHS:
    add_interview(length)

if __name__ == "__main__":
    print(json.dumps(asyncio.run(figures(parse_seconds()))))
