from turnwise import Context, MCPServer, MissingClientCapability

server = MCPServer("search")


@server.tool()
async def search(words: str, ctx: Context) -> str:
    """Search; narrow it down with the user where the client can ask."""
    try:
        answer = await ctx.elicit(f"Too many hits for {words!r}. Which year?", int)
    except MissingClientCapability:
        return f"The first ten of all hits for {words!r}."
    if answer.action != "accept":
        return f"The first ten of all hits for {words!r}."
    return f"Hits for {words!r} of {answer.data}."


@server.tool()
async def search_strictly(words: str, ctx: Context) -> str:
    """Search; a client that cannot ask gets an error that says so."""
    answer = await ctx.elicit(f"Too many hits for {words!r}. Which year?", int)
    return f"Hits for {words!r} of {answer.data if answer.action == 'accept' else 'all years'}."
