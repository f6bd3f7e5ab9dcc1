"""Who may come in: bearer tokens at the door of an HTTP server.

A protected MCP server is an OAuth 2.1 resource server. It issues nothing: it points at the
authorization server that does, and checks each request's access token. This room turns the values
of an `Authorization` header into an `AccessToken` or a `Refusal`. It knows neither ASGI nor what
the request asks for, and it reads no clock: `now` is a parameter.
"""

import json
import logging
import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import SplitResult, quote, urlsplit

from .errors import VerifierUnavailable

logger = logging.getLogger("turnwise.auth")

MAX_TOKEN = 16 * 1024
RETRY_AFTER = 10

_WELL_KNOWN = "/.well-known/oauth-protected-resource"
_DEFAULT_PORTS = {"https": ":443", "http": ":80"}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_BEARER = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")  # RFC 6750, section 2.1
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # RFC 6749, section 3.3
_URL = re.compile(r"[!#-;=?-\[\]_a-z~]+")  # RFC 3986: no spaces, quotes, controls or non-ASCII


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token that a verifier vouches for, and what it says.

    `resource` is what the token was issued for (RFC 8707), `subject` the user it stands for, unique
    only within its `issuer`.
    """

    token: str = field(repr=False)
    client_id: str
    scopes: Sequence[str] = ()
    expires_at: int | None = None
    resource: str | None = None
    subject: str | None = None
    issuer: str | None = None
    claims: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scopes", strings("scopes", self.scopes))

    @property
    def principal(self) -> str:
        """Client, issuer and subject, as text that no two principals share.

        A refreshed token has the principal of the one it replaces.
        """
        issuer = self.issuer
        if issuer is None and self.claims and self.claims.get("iss") is not None:
            issuer = str(self.claims["iss"])
        return json.dumps([self.client_id, issuer, self.subject], separators=(",", ":"))


class TokenVerifier(Protocol):
    """Decides about tokens. It raises `VerifierUnavailable` when it cannot know."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token with what is known of it, or None if it is not valid."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings:
    """What a protected server says of itself, and what it asks of a token.

    Name the authorization server with `issuer_url`, or several with `authorization_servers`.
    `resource_server_url` is the public URL of the MCP endpoint, as clients write it.

    With `validate_token_resource` on, a token is admitted only if its verifier reports, as
    `AccessToken.resource`, that it was issued for `resource_server_url`; a token that says nothing
    about it is refused too, because "MCP servers MUST validate that access tokens were issued
    specifically for them". Turn it off only if the verifier checks the audience by itself, for
    instance where the authorization server names audiences that are not URLs.

    `implied_scopes` tells which narrower scopes a broader one includes: `{"files": ["files:read"]}`.
    `scopes_supported` is what clients are told to ask for; by default, `required_scopes`.
    """

    resource_server_url: str
    issuer_url: str | None = None
    authorization_servers: Sequence[str] = ()
    required_scopes: Sequence[str] = ()
    validate_token_resource: bool = True
    scopes_supported: Sequence[str] | None = None
    implied_scopes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    resource_name: str | None = None
    resource_documentation: str | None = None

    def __post_init__(self) -> None:
        servers = strings("authorization_servers", self.authorization_servers)
        if self.issuer_url is not None:
            servers = (str(self.issuer_url), *servers)
        if not servers:
            raise ValueError("name an authorization server: issuer_url or authorization_servers")
        for url in servers:
            checked_url("issuer_url", url, query=False)
        if self.resource_documentation is not None:
            checked_url("resource_documentation", self.resource_documentation)
        supported = self.required_scopes if self.scopes_supported is None else self.scopes_supported
        checked = {
            "resource_server_url": checked_url("resource_server_url", self.resource_server_url, query=False),
            "issuer_url": servers[0],
            "authorization_servers": tuple(dict.fromkeys(servers)),
            "required_scopes": _scopes("required_scopes", self.required_scopes),
            "scopes_supported": _scopes("scopes_supported", supported),
            "implied_scopes": {k: _scopes("implied_scopes", v) for k, v in self.implied_scopes.items()},
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def granted(self, scopes: Iterable[str]) -> frozenset[str]:
        """The scopes given, with all that they imply."""
        found: set[str] = set()
        waiting = list(scopes)
        while waiting:
            scope = waiting.pop()
            if scope not in found:
                found.add(scope)
                waiting.extend(self.implied_scopes.get(scope, ()))
        return frozenset(found)


def metadata_path(resource_server_url: str) -> str:
    """Where the server describes itself: RFC 9728 puts the well-known part before the resource's own path."""
    path = urlsplit(resource_server_url).path
    return _WELL_KNOWN + ("" if path == "/" else path)


def protected_resource_metadata(settings: AuthSettings) -> dict[str, Any]:
    """The document served, as JSON, at `metadata_path` (RFC 9728, section 2)."""
    document = {
        "resource": settings.resource_server_url,
        "authorization_servers": list(settings.authorization_servers),
        "scopes_supported": list(settings.scopes_supported or ()),
        "bearer_methods_supported": ["header"],
        "resource_name": settings.resource_name,
        "resource_documentation": settings.resource_documentation,
    }
    return {name: value for name, value in document.items() if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request stays outside, ready to become a reply.

    `error` is a code of RFC 6750, or None where the client sent no credentials or is not to blame.
    """

    status: int
    description: str
    error: str | None = None
    challenge: str | None = None
    retry_after: int | None = None

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that a reply with this refusal must carry."""
        headers = []
        if self.challenge is not None:
            headers.append((b"www-authenticate", self.challenge.encode("ascii")))
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode("ascii")))
        return headers


class Gate:
    """Lets a request in, or says why not.

    A verifier that raises refuses the request with 503 and `Retry-After`: nobody knows whether the
    token is good, and a client told that it is bad would throw it away and sign its user in again.
    """

    def __init__(self, verifier: TokenVerifier, settings: AuthSettings) -> None:
        self._verifier = verifier
        self._settings = settings
        self._resource = _canonical(settings.resource_server_url)
        url = urlsplit(settings.resource_server_url)
        self._metadata_url = f"{url.scheme}://{url.netloc}{metadata_path(settings.resource_server_url)}"

    async def admit(self, authorization: Sequence[bytes], now: float) -> AccessToken | Refusal:
        """Judge the values of a request's `Authorization` headers, of which there should be one."""
        bearer = self._bearer(authorization)
        if isinstance(bearer, Refusal):
            return bearer
        token = await self._verified(bearer)
        if isinstance(token, Refusal):
            return token
        if token.expires_at is not None and token.expires_at <= now:
            return self._refuse(401, "invalid_token", "The access token has expired")
        if self._settings.validate_token_resource and not self._is_ours(token):
            return self._refuse(401, "invalid_token", "The access token was not issued for this resource")
        return self.require(token) or token

    def require(self, token: AccessToken, *scopes: str) -> Refusal | None:
        """A refusal unless the token grants `scopes` and those that the whole server requires.

        "Servers SHOULD include all scopes required for the current operation in a single challenge."
        """
        needed = tuple(dict.fromkeys((*self._settings.required_scopes, *_scopes("scopes", scopes))))
        if self._settings.granted(token.scopes).issuperset(needed):
            return None
        return self._refuse(403, "insufficient_scope", "The access token lacks a required scope", needed)

    def _bearer(self, authorization: Sequence[bytes]) -> str | Refusal:
        if not authorization:
            return self._refuse(401, None, "Authentication is required")
        if len(authorization) > 1:
            return self._refuse(400, "invalid_request", "More than one Authorization header")
        value = authorization[0].strip(b" \t")
        # RFC 6750, section 3.1: a client that "attempted using an unsupported authentication method"
        # gets no error code, like one that sent nothing.
        if value[:6].lower() != b"bearer":
            return self._refuse(401, None, "Authentication with a bearer token is required")
        match = _BEARER.fullmatch(value)
        if match is None or len(match[1]) > MAX_TOKEN:
            return self._refuse(400, "invalid_request", "The access token is malformed or too long")
        return match[1].decode("ascii")

    async def _verified(self, bearer: str) -> AccessToken | Refusal:
        try:
            token = await self._verifier.verify_token(bearer)
            if not isinstance(token, AccessToken | None):
                raise TypeError(f"verify_token returned {type(token).__name__}, not AccessToken or None")
        except VerifierUnavailable as unavailable:
            logger.warning("a token could not be verified: %s", _without(bearer, str(unavailable)))
            retry_after = unavailable.retry_after
        except Exception as error:
            report = "".join(traceback.format_exception(error))
            logger.error("the token verifier failed\n%s", _without(bearer, report))
            retry_after = RETRY_AFTER
        else:
            return token or self._refuse(401, "invalid_token", "The access token is invalid")
        return Refusal(status=503, description="Tokens cannot be verified now", retry_after=retry_after)

    def _is_ours(self, token: AccessToken) -> bool:
        if token.resource is not None and _canonical(token.resource) == self._resource:
            return True
        hint = "; if the verifier checks the audience by itself, set validate_token_resource=False"
        logger.info("token refused: it was issued for %r%s", token.resource, hint)
        return False

    def _refuse(self, status: int, error: str | None, text: str, scopes: Sequence[str] = ()) -> Refusal:
        parameters = {
            "error": error,
            "error_description": error and text,
            "scope": " ".join(scopes or self._settings.required_scopes),
            "resource_metadata": self._metadata_url,
        }
        listed = ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)
        return Refusal(status=status, error=error, description=text, challenge=f"Bearer {listed}")


def _split(url: str) -> SplitResult | None:
    """The parts of a URL; None for text that is none, from which urlsplit may quietly drop line breaks."""
    try:
        parts = urlsplit(url)
        return parts if _URL.fullmatch(url) and parts.port != 0 else None
    except ValueError:
        return None


def _canonical(url: str) -> tuple[str, ...]:
    """For comparison: the case of the host, a default port and a last slash do not count."""
    parts = _split(url)
    if parts is None:
        return (url,)
    host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS.get(parts.scheme, ""))
    return parts.scheme, host, parts.path.removesuffix("/"), parts.query, parts.fragment


def checked_url(name: str, value: str, *, query: bool = True) -> str:
    """The URL, if it may be published and trusted: absolute, and https unless it stays on this machine."""
    url = str(value)
    parts = _split(url)
    if parts is None or not parts.hostname or parts.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"{name} must be an absolute https URL, not {url!r}")
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError(f"{name} must use https, except on localhost: {url!r}")
    if "@" in parts.netloc or "#" in url or ("?" in url and not query):
        raise ValueError(f"{name} must have no user, fragment{'' if query else ' or query'}: {url!r}")
    return url


def strings(name: str, values: Sequence[str]) -> tuple[str, ...]:
    """The values as a tuple; one text is a likely slip, and would read as a list of letters."""
    if isinstance(values, str):
        raise ValueError(f"{name} is a list of strings, not one string: {values!r}")
    return tuple(str(value) for value in values)


def _scopes(name: str, values: Sequence[str]) -> tuple[str, ...]:
    scopes = strings(name, values)
    for scope in scopes:
        if not _SCOPE.fullmatch(scope):
            raise ValueError(f"{name}: {scope!r} is not a scope")
    # "MCP Servers SHOULD NOT include `offline_access` in WWW-Authenticate scope or Protected Resource
    # Metadata `scopes_supported`, as refresh tokens are not a resource requirement."
    if "offline_access" in scopes:
        raise ValueError(f"{name}: offline_access is for clients to ask, not for servers to require")
    return scopes


def _without(token: str, text: str) -> str:
    return text.replace(token, "[token]").replace(quote(token, safe=""), "[token]")


def check_auth(verifier: TokenVerifier | None, settings: AuthSettings | None) -> None:
    """ValueError where one of them is given without the other."""
    if (verifier is None) != (settings is None):
        raise ValueError("token_verifier= and auth= go together")
