from turnwise import Context, MCPServer

server = MCPServer("survey")


@server.tool()
async def survey(ctx: Context) -> str:
    """Ask for a name, and then one question three times."""
    name = await ctx.elicit("Your name?", str, key="name")
    marks = [await ctx.elicit("A mark from 1 to 5?", int, key="mark") for _ in range(3)]
    given = [mark.data for mark in marks if mark.action == "accept"]
    return f"{name.data if name.action == 'accept' else 'Somebody'} gave {sum(given)}."
