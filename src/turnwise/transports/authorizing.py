"""Any `httpx2.Auth` over our own HTTP: its flow says what to send, and is told what came back.

The official SDK's OAuth provider is one. The requests that it makes on the way (metadata, registration, tokens) go
where it says, with nothing of ours; the request that it authorizes goes to the server alone.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import AuthorizationFailed, InvalidReply, TurnwiseError

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


class Posted(NamedTuple):
    """A response, and its body where it was read already."""

    response: "aiohttp.ClientResponse"
    content: bytes | None = None


@asynccontextmanager
async def authorized(
    auth: Auth, session: "aiohttp.ClientSession", proxy: str | None, url: str, headers: dict[str, str], body: bytes
) -> AsyncIterator[Posted]:
    """The response to a POST, after as many exchanges as the flow wants."""
    import httpx2

    own = httpx2.Request("POST", url, headers=headers, content=body)
    flow = auth.async_auth_flow(own)
    posted: Posted | None = None
    async with AsyncExitStack() as responses:
        responses.push_async_callback(flow.aclose)
        wanted = await _next(anext(flow))
        while wanted is not None:
            response = await responses.enter_async_context(_send(session, proxy, wanted))
            told = _told(response, wanted)
            following = await _next(flow.asend(told))
            if wanted is own:
                posted = Posted(response, told.content if told.is_closed else None)
            wanted = following
        if posted is None:
            raise InvalidReply("the authorization flow ended without sending the request")
        yield posted


async def _next(step: Awaitable[Any]) -> Any:
    """What the flow wants to send next; None at its end."""
    try:
        return await step
    except StopAsyncIteration:
        return None
    except (TurnwiseError, OSError):
        raise
    except Exception as error:
        raise AuthorizationFailed(f"{type(error).__name__}: {error}") from error


def _send(session: "aiohttp.ClientSession", proxy: str | None, request: "httpx2.Request") -> Any:
    headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
    return session.request(
        request.method, str(request.url), headers=headers, data=request.content, allow_redirects=False, proxy=proxy
    )


def _told(response: "aiohttp.ClientResponse", request: "httpx2.Request") -> "httpx2.Response":
    """The response as the flow knows it, with a body that is read when the flow does: most are left to the caller.
    Whether a redirect is followed is the flow's own business.
    """
    import httpx2

    class Body(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > LARGEST_ANSWER:
                    raise InvalidReply(f"an answer of the authorization flow has more than {LARGEST_ANSWER} bytes")
                yield chunk

    headers = [(name, value) for name, value in response.headers.items() if name.lower() not in _FRAMING]
    told = httpx2.Response(response.status, headers=headers, stream=Body(), request=request)
    if told.has_redirect_location and (request.method == "GET" or response.status in (307, 308)):
        target = request.url.join(told.headers["location"])
        plain = {name: value for name, value in request.headers.items() if name not in _CREDENTIALS}
        told.next_request = httpx2.Request(request.method, target, headers=plain, content=request.content)
    return told
