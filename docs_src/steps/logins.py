from turnwise import Context, Elicit, MCPServer, RequestStateSecurity


def old(key: bytes) -> MCPServer:
    server = MCPServer("logins", request_state_security=RequestStateSecurity(keys=[key]))

    @server.tool(version="1")
    async def connect(ctx: Context) -> str:
        """Connect two accounts."""
        names = await ctx.ask_all(
            github_login=Elicit("Your name at GitHub?", str),
            google_login=Elicit("Your name at Google?", str),
        )
        return f"{names['github_login'].data} and {names['google_login'].data}"

    return server


def new(key: bytes) -> MCPServer:
    server = MCPServer("logins", request_state_security=RequestStateSecurity(keys=[key]))

    @server.tool(version="2")
    async def connect(ctx: Context) -> str:
        """Connect two accounts."""
        names = await ctx.ask_all(
            github_login=Elicit("Your name at GitHub?", str),
            microsoft_login=Elicit("Your name at Microsoft?", str),
        )
        return f"{names['github_login'].data} and {names['microsoft_login'].data}, begun under {ctx.flow_version}"

    return server
