from typing import Annotated

from pydantic import Field

from turnwise import AssistantMessage, Context, MCPServer, Message, UserMessage

server = MCPServer("letters")


@server.prompt(title="A short note")
def note(recipient: str, days: Annotated[int, Field(description="Days until the meeting")] = 1) -> str:
    """Remind somebody of a meeting."""
    return f"Write to {recipient}: we meet in {days} days."


@server.prompt()
def polite(text: str) -> list[Message]:
    """Make a text politer."""
    return [
        UserMessage("Make what I write politer."),
        AssistantMessage("Gladly. What did you write?"),
        UserMessage(text),
    ]


@server.prompt()
async def letter(recipient: str, ctx: Context) -> str:
    """A letter, in a tone that the user is asked for."""
    tone = await ctx.elicit(f"How well do you know {recipient}?", str, key="tone")
    if tone.action != "accept":
        return f"Write a letter to {recipient}."
    return f"Write a letter to {recipient}, whom I know like this: {tone.data}."
