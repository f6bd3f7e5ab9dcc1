from turnwise import Context, MCPServer

server = MCPServer("reports")
written: list[str] = []


async def gather_figures(year: int) -> list[int]:
    return [year, year * 2]


async def write(year: int, title: str) -> str:
    written.append(title)
    return f"{title} ({year})"


@server.tool(task="always")
async def annual_report(year: int, ctx: Context) -> str:
    """Write the annual report. It takes a while, and asks in the middle."""
    await ctx.report("gathering figures")
    figures = await ctx.step(gather_figures, year)
    title = await ctx.elicit(f"{len(figures)} figures are there. What is the title?", str, key="title")
    await ctx.report("writing")
    return await ctx.step(write, year, title.data if title.action == "accept" else "Untitled")
