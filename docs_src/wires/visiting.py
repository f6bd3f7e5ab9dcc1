from turnwise import Context, ElicitURL, MCPServer, URLElicitationRequired

server = MCPServer("mail")
signed_in: set[str] = set()


@server.tool()
async def send(user: str, ctx: Context) -> str:
    """Send a mail, after the user has signed in on a page."""
    if user not in signed_in:
        raise URLElicitationRequired(
            [ElicitURL("Sign in first", f"https://mail.example/login?u={user}", f"login-{user}")]
        )
    return "Sent."
