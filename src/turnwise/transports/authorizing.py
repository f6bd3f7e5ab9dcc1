"""Any `httpx2.Auth` over our own HTTP: its flow says what to send, and is told what came back.

The official SDK's OAuth provider is one. The requests that it makes on the way (metadata, registration, tokens) go
where it says, with nothing of ours; the request that it authorizes goes to the server alone.
"""

import io
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import AuthorizationFailed, ConnectionLost, InvalidReply, TurnwiseError

if TYPE_CHECKING:
    import aiohttp
    import httpx2

LARGEST_ANSWER = 1024 * 1024
_FRAMING = ("content-encoding", "transfer-encoding", "content-length")
_CREDENTIALS = ("authorization", "cookie", "host", "content-length")


class Auth(Protocol):
    """What a client needs of an `httpx2.Auth`."""

    def async_auth_flow(self, request: "httpx2.Request") -> "AsyncGenerator[httpx2.Request, httpx2.Response]":
        """Requests to be sent, each answered by its response."""
        ...


def checked(auth: Any) -> Auth:
    """What was given as `auth`, if it is that, and can be used here."""
    if not hasattr(auth, "async_auth_flow"):
        raise TypeError(f"auth is an httpx2.Auth, such as the official SDK's OAuth provider, not {type(auth).__name__}")
    if find_spec("httpx2") is None:
        raise ImportError("auth= needs an extra: pip install 'turnwise[oauth]'")
    given: Auth = auth
    return given


class Posted(NamedTuple):
    """A response, and its body where it was read already."""

    response: "aiohttp.ClientResponse"
    content: bytes | None = None


class Line(NamedTuple):
    """What requests go over, and how large the reply to our own may be."""

    session: "aiohttp.ClientSession"
    proxy: str | None
    largest: int

    def send(self, request: "httpx2.Request") -> Any:
        """The request on its way."""
        headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        return self.session.request(
            request.method,
            str(request.url),
            headers=headers,
            data=io.BytesIO(request.content) if request.content else None,
            allow_redirects=False,
            proxy=self.proxy,
        )


@asynccontextmanager
async def authorized(
    auth: Auth, line: Line, verb: str, url: str, headers: dict[str, str], body: bytes
) -> AsyncIterator[Posted]:
    """The response to a request, after as many exchanges as the flow wants."""
    import aiohttp
    import httpx2

    own = httpx2.Request(verb, url, headers=headers, content=body)
    flow = auth.async_auth_flow(own)
    posted: Posted | None = None
    async with AsyncExitStack() as responses:
        responses.push_async_callback(flow.aclose)
        wanted = await _next(anext(flow))
        while wanted is not None:
            is_own = wanted is own or (wanted.method, wanted.url, wanted.content) == (verb, own.url, body)
            try:
                response = await responses.enter_async_context(line.send(wanted))
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                # Our own request may have been served before: then it is not to be sent once more.
                raise ConnectionLost(f"the server cannot be reached: {error}", sent=posted is not None) from error
            told = _told(response, wanted, line.largest if is_own else LARGEST_ANSWER)
            following = await _next(flow.asend(told))
            if is_own:
                posted = Posted(response, told.content if told.is_closed else None)
            wanted = following
        if posted is None:
            raise InvalidReply("the authorization flow ended without sending the request")
        yield posted


async def _next(step: Awaitable[Any]) -> Any:
    """What the flow wants to send next; None at its end."""
    import aiohttp

    try:
        return await step
    except StopAsyncIteration:
        return None
    except (TurnwiseError, aiohttp.ClientError):
        raise
    except Exception as error:
        raise AuthorizationFailed(f"{type(error).__name__}: {error}") from error


def _told(response: "aiohttp.ClientResponse", request: "httpx2.Request", largest: int) -> "httpx2.Response":
    """The response as the flow knows it, with a body that is read when the flow does: most are left to the caller.
    Whether a redirect is followed is the flow's own business.
    """
    import httpx2

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > largest:
                    raise InvalidReply(f"a reply under authorization has more than {largest} bytes")
                yield chunk

    headers = [(name, value) for name, value in response.headers.items() if name.lower() not in _FRAMING]
    told = httpx2.Response(response.status, headers=headers, stream=Body(), request=request)
    if told.has_redirect_location and (request.method == "GET" or response.status in (307, 308)):
        plain = {name: value for name, value in request.headers.items() if name not in _CREDENTIALS}
        with suppress(httpx2.InvalidURL, ValueError):
            target = request.url.join(told.headers["location"])
            told.next_request = httpx2.Request(request.method, target, headers=plain, content=request.content)
    return told
