import hashlib
import time

from turnwise import AccessToken, AuthSettings, MCPServer, VerifierUnavailable

URL = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"


class Tokens:
    """Stands for your table. It holds digests, so that whoever reads it learns no token."""

    def __init__(self) -> None:
        self.rows = {hashlib.sha256(b"let-me-in").hexdigest(): ("cli", "alice", int(time.time()) + 900)}

    async def find(self, token: str) -> tuple[str, str, int] | None:
        return self.rows.get(hashlib.sha256(token.encode()).hexdigest())


class TableVerifier:
    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    async def verify_token(self, token: str) -> AccessToken | None:
        try:
            row = await self.tokens.find(token)
        except ConnectionError as error:
            raise VerifierUnavailable("the table is out of reach", retry_after=5) from error
        if row is None:
            return None
        client, user, until = row
        return AccessToken(token, client, ["notes:read"], expires_at=until, resource=URL, subject=user, issuer=ISSUER)


server = MCPServer(
    "notes",
    token_verifier=TableVerifier(Tokens()),
    auth=AuthSettings(issuer_url=ISSUER, resource_server_url=URL),
)
