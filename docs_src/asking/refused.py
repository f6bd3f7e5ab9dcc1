from typing import Annotated

from turnwise import Context, Elicit, ElicitationResult, MCPServer, Resolve, ToolError

server = MCPServer("mail")


@server.tool()
async def delete_all(ctx: Context) -> str:
    """Inline: look at the action."""
    answer = await ctx.elicit("Delete all mail?", bool)
    match answer.action:
        case "accept":
            return "Deleted." if answer.data else "Kept."
        case "decline":
            raise ToolError("The user does not want this. Do not try again.")
        case "cancel":
            return "The user closed the question. You may ask again later."


def ask_folder() -> Elicit[str]:
    return Elicit("Which folder?", str)


@server.tool()
async def empty(folder: Annotated[str, Resolve(ask_folder)]) -> str:
    """Declared, with a plain type: without an answer there is no call."""
    return f"{folder} is empty."


@server.tool()
async def tidy(folder: Annotated[ElicitationResult[str], Resolve(ask_folder)]) -> str:
    """Declared, with the outcome: the function decides."""
    return f"{folder.data} is tidy." if folder.action == "accept" else "Everything is tidy."
