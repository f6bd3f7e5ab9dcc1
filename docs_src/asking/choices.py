from dataclasses import dataclass

from turnwise import Context, MCPServer

server = MCPServer("kitchen")


@dataclass
class Table:
    persons: int
    outside: bool = False


@server.tool()
async def lunch(ctx: Context) -> str:
    """Have lunch."""
    dishes = ["soup", "fish", "salad"]  # Whatever there is today.
    dish = await ctx.elicit("Which dish?", dishes)
    table = await ctx.elicit("Which table?", Table)
    if dish.action != "accept" or table.action != "accept":
        return "Another time, then."
    return f"{dish.data.title()} for {table.data.persons}{' outside' if table.data.outside else ''}."
