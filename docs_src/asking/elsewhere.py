from typing import Annotated

from turnwise import Context, Elicit, MCPServer, Resolve

server = MCPServer("letters")


def ask_tone(recipient: str) -> Elicit[str]:
    return Elicit(f"How well do you know {recipient}?", str)


@server.prompt()
async def letter(recipient: str, tone: Annotated[str, Resolve(ask_tone)]) -> str:
    """A prompt that asks."""
    return f"Write a letter to {recipient}, whom I know like this: {tone}"


@server.resource("letters://signature")
async def signature(ctx: Context) -> str:
    """A resource that asks."""
    answer = await ctx.elicit("Under which name?", str)
    return f"Yours, {answer.data if answer.action == 'accept' else 'anonymous'}"


@server.resource("letters://{year}/index")
async def index(year: int, ctx: Context) -> str:
    """A template that asks."""
    answer = await ctx.elicit(f"Show private letters of {year}, too?", bool)
    return f"{year}: {'all' if answer.action == 'accept' and answer.data else 'public'} letters"
