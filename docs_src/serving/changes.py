from turnwise import Change, Context, MCPServer

server = MCPServer("notes")
notes = {"1": "Buy milk"}


@server.resource("notes://{number}")
def note(number: str) -> str:
    """One note."""
    return notes[number]


@server.tool()
async def write(number: str, text: str, ctx: Context) -> str:
    """Change a note, and tell who listens to it."""
    notes[number] = text
    await ctx.notify_resource_updated(f"notes://{number}")
    return "Written."


@server.tool()
async def learn(ctx: Context) -> str:
    """Offer one more tool, and tell who listens to the list."""

    def count() -> int:
        """How many notes there are."""
        return len(notes)

    server.add_tool(count)
    await ctx.notify_tools_changed()
    return "There is a new tool."


async def imported(number: str, text: str) -> None:
    """Outside of a call, publish the change yourself."""
    notes[number] = text
    await server.publish(Change("resource", f"notes://{number}"))
