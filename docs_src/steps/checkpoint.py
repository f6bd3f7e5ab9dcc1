from turnwise import Context, MCPServer

server = MCPServer("archive")
read: list[int] = []


async def count_words(page: int) -> int:
    """Reading: harmless to do again, but it takes time."""
    read.append(page)
    return 100 + page


@server.tool()
async def words(pages: int, ctx: Context) -> int:
    """Count the words of a document, page by page."""
    page, total = ctx.checkpointed or (0, 0)
    while page < pages:
        total += await count_words(page)
        page += 1
        await ctx.checkpoint([page, total])
    answer = await ctx.elicit(f"{total} words. Is the title one more?", bool, key="title")
    return total + (answer.action == "accept" and bool(answer.data))
