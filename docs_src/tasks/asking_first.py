import asyncio
from typing import Annotated

from turnwise import Context, Elicit, MCPServer, Resolve

server = MCPServer("builds")


def ask_branch() -> Elicit[str]:
    return Elicit("Which branch?", str, key="branch")


@server.tool(task="optional")
async def build(branch: Annotated[str, Resolve(ask_branch)]) -> str:
    """What is declared is asked first; the function itself is the task."""
    await asyncio.sleep(0.01)
    return f"Built {branch}."


@server.tool()
async def deploy(ctx: Context) -> str:
    """The same by hand: ask as an ordinary call does, then become a task."""
    sure = await ctx.elicit("Deploy to production?", bool, key="sure")
    if sure.action != "accept" or not sure.data:
        return "Nothing was deployed."
    await ctx.become_task()
    await ctx.sleep(0.05)
    return "Deployed."
