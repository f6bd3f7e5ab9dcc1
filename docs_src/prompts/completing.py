from typing import Any

from turnwise import MCPServer

server = MCPServer("letters")
FRIENDS = ["Ann", "Anton", "Bob"]


@server.prompt()
def letter(recipient: str) -> str:
    """A letter to a friend."""
    return f"Write a letter to {recipient}."


@server.completion()
async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
    """What a half-typed argument may become."""
    if argument.name != "recipient":
        return []
    return [name for name in FRIENDS if name.startswith(argument.value)]
