from turnwise import Context, MCPServer, ToolError

server = MCPServer("wiki")
editors = {"alice"}  # Stands for your permissions, which may change while a question is open.


def require_editor(ctx: Context) -> None:
    token = ctx.access_token
    if token is None or token.subject not in editors:
        raise ToolError("You may not edit this page.")


@server.tool()
async def rename(page: str, ctx: Context) -> str:
    """Rename a page. The check runs in every round, because the whole function does."""
    require_editor(ctx)
    answer = await ctx.elicit(f"A new name for {page}?", str)
    return f"{page} is now {answer.data}." if answer.action == "accept" else f"{page} stays {page}."
