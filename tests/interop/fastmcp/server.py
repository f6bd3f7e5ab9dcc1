"""FastMCP's tasks, as a peer: `python server.py http PORT`. Its environment has no Turnwise."""

import asyncio
import sys
from datetime import timedelta
from typing import Any

from fastmcp import Context, FastMCP  # type: ignore[import-not-found, unused-ignore]
from fastmcp.exceptions import ToolError  # type: ignore[import-not-found, unused-ignore]
from fastmcp.utilities.tasks import TaskConfig  # type: ignore[import-not-found, unused-ignore]
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found, unused-ignore]
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

server: Any = FastMCP("peer")
server.add_extension(TasksExtension())
TASK = TaskConfig(mode="required", poll_interval=timedelta(milliseconds=50))
FORM = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


async def survey(city: str) -> str:
    """A task that asks nothing."""
    return f"Looked up {city}"


async def report(year: int, ctx: Context) -> Any:
    """A task that asks, in the way FastMCP has for it: by returning the question."""
    answer = (ctx.input_responses or {}).get("title")
    if answer is None:
        asked = ElicitRequestFormParams(message=f"A title for {year}?", requested_schema=FORM)
        return InputRequiredResult(input_requests={"title": ElicitRequest(params=asked)})
    return f"{answer.content['title']} ({year})" if answer.action == "accept" else f"Nothing: {answer.action}"


async def jam() -> str:
    """A task that fails as a tool does."""
    raise ToolError("The paper is jammed")


async def drum() -> str:
    """A task that goes on until it is stopped."""
    await asyncio.Event().wait()
    return "never"


for each in (survey, report, jam, drum):
    server.tool(each, task=TASK)

if __name__ == "__main__":
    server.run("http", host="127.0.0.1", port=int(sys.argv[2]), show_banner=False, log_level="error")
