from turnwise import Context, MCPServer, StepFailed, ToolError

server = MCPServer("rooms")
attempts: list[str] = []


class Occupied(Exception):
    """Somebody else has the room."""


async def reserve(room: str) -> str:
    attempts.append(room)
    if room == "blue":
        raise Occupied("until five")
    if room == "attic":
        raise ToolError("The attic is closed.")
    return f"key of {room}"


@server.tool()
async def meet(room: str, ctx: Context) -> str:
    """Reserve a room, or another one."""
    try:
        key = await ctx.step(reserve, room)
    except StepFailed as failure:
        answer = await ctx.elicit(f"{room} is taken ({failure.text}). Which one instead?", str)
        if answer.action != "accept":
            return "No room."
        key = await ctx.step(reserve, answer.data)
    return f"Here is the {key}."
