"""An inn served by the official Python SDK, 1.30.0 or 2.3.0, whose tools ask while the call waits.

`python inn.py stdio`, or `python inn.py http PORT`. Over HTTP its streams can be taken up again. The two versions of
the SDK differ in names only, as far as this goes; whatever it does is theirs.
"""
# mypy: ignore-errors
# Only one of the two can be there when types are checked.

import asyncio
import sys
from importlib.util import find_spec
from typing import Any

from mcp.server.streamable_http import EventMessage, EventStore
from mcp.shared.exceptions import UrlElicitationRequiredError
from pydantic import BaseModel

OLD = find_spec("mcp_types") is None
if OLD:
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as Inn
    from mcp.types import ElicitRequestURLParams, SamplingMessage, TextContent
else:
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver import MCPServer as Inn
    from mcp_types import ElicitRequestURLParams, SamplingMessage, TextContent

RETRY = 50
cancelled: list[str] = []
members: set[str] = set()


class Memory(EventStore):
    """Keeps every event of every stream."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self.events.append((stream_id, message))
        return str(len(self.events))

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        after = int(last_event_id)
        stream_id = self.events[after - 1][0]
        for number, (stream, message) in enumerate(self.events[after:], start=after + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


class Booking(BaseModel):
    """What a guest fills in."""

    guests: int
    breakfast: bool = True


resumable: dict[str, Any] = {"event_store": Memory(), "retry_interval": RETRY}
port = int(sys.argv[2]) if sys.argv[1] == "http" else 0
server = Inn("inn", log_level="ERROR", **({**resumable, "port": port} if OLD else {}))


@server.tool()
async def book(room: str, ctx: Context) -> str:
    answer = await ctx.elicit(f"How many in the {room}?", Booking)
    return f"{room}: {answer.data.guests}, {answer.data.breakfast}" if answer.action == "accept" else answer.action


@server.tool()
async def enter(ctx: Context) -> str:
    return (await ctx.elicit_url("Please sign in", "https://inn.example/door", "door-1")).action


@server.tool()
async def library(ctx: Context) -> str:
    if "library" not in members:
        members.add("library")
        page = {"mode": "url", "message": "Join first", "url": "https://inn.example/join", "elicitationId": "join-1"}
        raise UrlElicitationRequiredError([ElicitRequestURLParams.model_validate(page)])
    members.clear()
    return "A quiet room"


@server.tool()
async def tale(topic: str, ctx: Context) -> str:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=topic))
    said = await ctx.session.create_message([message], max_tokens=20)
    return str(said.content.text)


@server.tool()
async def folders(ctx: Context) -> str:
    return ", ".join(f"{root.name} at {root.uri}" for root in (await ctx.session.list_roots()).roots)


@server.tool()
async def stairs(steps: int, ctx: Context) -> str:
    for step in range(steps):
        await ctx.report_progress(step + 1, steps, f"step {step + 1}")
        await ctx.warning(f"creak {step + 1}")
    return "upstairs"


@server.tool()
async def sleep(ctx: Context) -> str:
    try:
        await ctx.report_progress(1)
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        cancelled.append("sleep")
        raise
    return "slept"


@server.tool()
async def woken() -> str:
    return str(len(cancelled))


@server.tool()
async def nap(ctx: Context) -> str:
    """Closes its stream in the middle, to be asked again later."""
    await ctx.close_sse_stream()
    await asyncio.sleep(0.2)
    return "rested"


@server.resource("inn://menu")
def menu() -> str:
    return "Soup"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    elif OLD:
        server.run("streamable-http")
    else:
        server.run("streamable-http", port=port, **resumable)
