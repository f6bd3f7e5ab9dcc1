import asyncio

from turnwise import Context, Elicit, ElicitationResult, ListRoots, MCPServer

server = MCPServer("travel")


@server.tool()
async def by_name(ctx: Context) -> str:
    """Three questions in one round, answers by name."""
    answers = await ctx.ask_all(whence=Elicit("From where?", str), where=Elicit("To where?", str), folders=ListRoots())
    return f"{answers['whence'].data} to {answers['where'].data}, {len(answers['folders'])} folders"


@server.tool()
async def by_place(ctx: Context) -> str:
    """Two questions in one round, answers by place."""
    whence, where = await ctx.ask_all(Elicit("From where?", str), Elicit("To where?", str))
    return f"{whence.data} to {where.data}"


@server.tool()
async def by_tasks(ctx: Context) -> str:
    """Two questions in one round, each in a task of its own."""

    def text(answer: ElicitationResult[str]) -> str:
        return answer.data if answer.action == "accept" else "somewhere"

    async with asyncio.TaskGroup() as tasks:
        whence = tasks.create_task(ctx.elicit("From where?", str))
        where = tasks.create_task(ctx.elicit("To where?", str))
    return f"{text(whence.result())} to {text(where.result())}"
