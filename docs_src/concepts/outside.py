import random
from datetime import datetime
from pathlib import Path

from turnwise import Context, MCPServer

server = MCPServer("notices")
board = Path("board.txt")  # Stands for whatever is outside of the process.


def pin(line: str) -> None:
    with board.open("a") as paper:
        paper.write(f"{line}\n")


@server.tool()
async def careless(ctx: Context) -> str:
    """Time, chance and an effect, each one outside of a step."""
    at = datetime.now().isoformat()
    number = random.randrange(1000)
    pin("a notice is coming")
    await ctx.elicit("Publish?", bool, key="publish")
    return f"Notice {number} of {at}."


@server.tool()
async def careful(ctx: Context) -> str:
    """The same, but for replay."""
    at = datetime.fromtimestamp(ctx.now()).isoformat()
    number = int(ctx.random() * 1000)
    await ctx.step(pin, "a notice is coming")
    await ctx.elicit("Publish?", bool, key="publish")
    return f"Notice {number} of {at}."
