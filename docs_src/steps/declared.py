from turnwise import Context, MCPServer, step

server = MCPServer("library")
written: list[str] = []


@step
async def reserve(book: str) -> str:
    """Reserve a book; gives the number of the shelf."""
    written.append(book)
    return f"shelf {len(written)}"


@step(name="notify", on_change="rerun")
def tell(reader: str, shelf: str) -> str:
    written.append(f"to {reader}: {shelf}")
    return reader


@server.tool()
async def borrow(book: str, ctx: Context) -> str:
    """Borrow a book."""
    shelf = await reserve(book)
    answer = await ctx.elicit("Who is it for?", str)
    reader = answer.data if answer.action == "accept" else "nobody"
    return f"{book} for {await tell(reader, shelf)}: {shelf}."
