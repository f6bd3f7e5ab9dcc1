from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from turnwise import Client

CALLBACK = "http://127.0.0.1:3030/callback"


class Kept:
    """Keeps tokens while the program runs. Yours keeps them where you keep passwords."""

    tokens: OAuthToken | None = None
    client_info: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client_info

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client_info = client_info


class Browser:
    """Stands for the user's browser, and for the small web server that waits at CALLBACK."""

    async def open(self, url: str) -> None:
        raise NotImplementedError

    async def code(self) -> AuthorizationCodeResult:
        raise NotImplementedError


def client_of(url: str, browser: Browser) -> Client:
    metadata = OAuthClientMetadata(client_name="Notes", redirect_uris=[AnyUrl(CALLBACK)])
    provider = OAuthClientProvider(url, metadata, Kept(), browser.open, browser.code)
    return Client(url, auth=provider)
