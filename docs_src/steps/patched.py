from turnwise import Context, MCPServer, RequestStateSecurity

packed: list[str] = []


def pack(article: str) -> str:
    packed.append(article)
    return article


def weigh(article: str) -> str:
    packed.append(f"{article}, weighed")
    return "2 kg"


def old(key: bytes) -> MCPServer:
    server = MCPServer("post", request_state_security=RequestStateSecurity(keys=[key]))

    @server.tool()
    async def ship(article: str, ctx: Context) -> str:
        """Pack, ask, ship."""
        await ctx.step(pack, article)
        await ctx.elicit("Express?", bool, key="express")
        return f"{article} is under way."

    return server


def new(key: bytes) -> MCPServer:
    server = MCPServer("post", request_state_security=RequestStateSecurity(keys=[key]))

    @server.tool()
    async def ship(article: str, ctx: Context) -> str:
        """Weigh, pack, ask, ship. What was packed before this version is not weighed."""
        weight = await ctx.step(weigh, article) if ctx.patched("weigh before packing") else "an unknown weight"
        await ctx.step(pack, article)
        await ctx.elicit("Express?", bool, key="express")
        return f"{article} is under way, {weight}."

    return server
