"""A server that has a tool which does everything that a function can do; `stdio`, or HTTP on a free port."""

import sys
from typing import Any

from turnwise import Context, ListRoots, MCPError, MCPServer, Sample

server = MCPServer("talkative")


@server.tool()
async def everything(ctx: Context[Any, Any]) -> str:
    """Ask for all that can be asked, and tell all that can be told."""
    await ctx.report_progress(1, 3)
    await ctx.warning("about to ask")
    name = await ctx.elicit("Who are you?", str, key="name")
    await ctx.notify_tools_changed()
    await ctx.report_progress(2, 3)
    await ctx.ask_all(model=Sample("Write a poem"), roots=ListRoots())
    await ctx.elicit_url("Log in", "https://example.com/login", key="login")
    await ctx.notify_resource_updated("note://1")
    await ctx.report_progress(3, 3)
    return f"done, {getattr(name, 'data', None)}"


@server.tool()
async def fail(code: int) -> str:
    """Fail with a code of the author's."""
    raise MCPError(code, "as the author wished")


@server.resource("note://1")
def note() -> str:
    """A note."""
    return "a note"


if __name__ == "__main__":
    if sys.argv[1:] == ["stdio"]:
        server.run("stdio")
    else:
        server.run("http", port=0)
