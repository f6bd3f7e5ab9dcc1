"""A press whose tools are tasks, for clients of other makers: `python task_server.py http PORT`."""

import asyncio
import sys

from pydantic import BaseModel

from turnwise import AcceptedElicitation, Context, MCPServer, TaskOptions, ToolError

server: MCPServer[None] = MCPServer("press", version="1", tasks=TaskOptions(poll=0.02))


class Title(BaseModel):
    title: str


async def gather(year: int) -> int:
    return year * 2


@server.tool()
async def add(a: int, b: int) -> int:
    """An ordinary call."""
    return a + b


@server.tool(task="optional", structured_output=False)
async def report(year: int, ctx: Context) -> str:
    """Work, ask in the middle, work on."""
    await ctx.report("gathering figures")
    figures = await ctx.step(gather, year)
    answer = await ctx.elicit(f"A title for {figures} figures?", Title, key="title")
    await ctx.report("writing")
    return f"{answer.data.title} ({year})" if isinstance(answer, AcceptedElicitation) else f"Nothing: {answer.action}"


@server.tool(task="optional", structured_output=False)
async def jam(ctx: Context) -> str:
    """Fail as a tool does."""
    raise ToolError("The paper is jammed")


@server.tool(task="optional", structured_output=False)
async def drum(ctx: Context) -> str:
    """Go on until it is stopped."""
    await ctx.report("drumming")
    await asyncio.Event().wait()
    return "never"


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[2]), log_level="warning")
