from turnwise import Context, MCPServer, ResourceNotFound

server = MCPServer("archive")
LETTERS = {1912: ["To Ann", "To Bob"], 1913: ["To Cleo"]}


@server.resource("archive://years")
def years() -> list[int]:
    """The years that there are letters of."""
    return sorted(LETTERS)


@server.resource("archive://{year}/letters", mime_type="text/plain")
def letters(year: int) -> str:
    """All letters of a year."""
    if year not in LETTERS:
        raise ResourceNotFound(f"archive://{year}/letters")
    return "\n".join(LETTERS[year])


@server.resource("archive://stamp", mime_type="image/png")
def stamp() -> bytes:
    """The stamp of the archive."""
    return b"\x89PNG\r\n\x1a\n"


@server.resource("archive://{year}/private")
async def private(year: int, ctx: Context) -> str:
    """Letters that are shown to those who know the word."""
    word = await ctx.elicit(f"The word for {year}?", str, key="word")
    return LETTERS[year][0] if word.action == "accept" and word.data == "sesame" else "These are private."
