from enum import Enum

from turnwise import Context, MCPServer

server = MCPServer("kitchen")


class Drink(Enum):
    tea = "tea"
    coffee = "coffee"


@server.tool()
async def serve(ctx: Context) -> str:
    """Bring something to drink."""
    drink = await ctx.elicit("Tea or coffee?", Drink)
    cups = await ctx.elicit("How many cups?", int)
    if drink.action != "accept" or cups.action != "accept":
        return "Nothing to drink."
    return f"{cups.data} cups of {drink.data.value}."
