import asyncio

from turnwise import Context, MCPServer, RoundOver

server = MCPServer("kitchen")
heard: list[str] = []
hot = asyncio.Event()
tasks: set[asyncio.Task[None]] = set()


async def watch_the_oven(ctx: Context) -> None:
    await hot.wait()
    try:
        await ctx.step(heard.append, "the oven is hot")
    except RoundOver as error:
        heard.append(str(error))


@server.tool()
async def bake(ctx: Context) -> str:
    """Every round starts a task that nobody awaits, and that finds its context closed."""
    tasks.add(asyncio.create_task(watch_the_oven(ctx)))
    answer = await ctx.elicit("Bread?", bool)
    return answer.action


@server.tool()
async def bake_well(ctx: Context) -> str:
    """The work is awaited in its place."""
    await watch_the_oven(ctx)
    answer = await ctx.elicit("Bread?", bool)
    return answer.action
