from turnwise import AuthSettings, Context, JWTVerifier, MCPServer

URL = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"

server = MCPServer(
    "notes",
    token_verifier=JWTVerifier(issuer=ISSUER, audience=URL, jwks_url=f"{ISSUER}/.well-known/jwks.json"),
    auth=AuthSettings(issuer_url=ISSUER, resource_server_url=URL, required_scopes=["notes:read"]),
)


@server.tool()
async def whoami(ctx: Context) -> str:
    """Who is calling."""
    token = ctx.access_token
    return f"{token.subject} through {token.client_id}" if token else "nobody"


app = server.asgi(allowed_hosts=["mcp.example.com"])
