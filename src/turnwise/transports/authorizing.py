"""Any `httpx2.Auth` over our own HTTP: its flow says what to send, and is told what came back.

The official SDK's OAuth provider is one. The requests that it makes on the way (metadata, registration, tokens) go
where it says, with nothing of ours; the request that it authorizes goes to the server alone.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..errors import InvalidReply

if TYPE_CHECKING:
    import aiohttp
    import httpx2

LARGEST_ANSWER = 1024 * 1024
_FRAMING = ("content-encoding", "transfer-encoding", "content-length")
_CREDENTIALS = ("authorization", "cookie", "host", "content-length")


class Auth(Protocol):
    """What a client needs of an `httpx2.Auth`."""

    requires_response_body: bool

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
        try:
            wanted = await anext(flow)
            while True:
                response = await responses.enter_async_context(_send(session, proxy, wanted))
                content = None
                if wanted is not own or response.status in (401, 403) or auth.requires_response_body:
                    content = await _read(response)
                if wanted is own:
                    posted = Posted(response, content)
                wanted = await flow.asend(_told(response, content or b"", wanted))
        except StopAsyncIteration:
            pass
        if posted is None:
            raise InvalidReply("the authorization flow ended without sending the request")
        yield posted


def _send(session: "aiohttp.ClientSession", proxy: str | None, request: "httpx2.Request") -> Any:
    headers = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
    return session.request(
        request.method, str(request.url), headers=headers, data=request.content, allow_redirects=False, proxy=proxy
    )


async def _read(response: "aiohttp.ClientResponse") -> bytes:
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > LARGEST_ANSWER:
            raise InvalidReply(f"an answer of the authorization flow has more than {LARGEST_ANSWER} bytes")
    return b"".join(chunks)


def _told(response: "aiohttp.ClientResponse", content: bytes, request: "httpx2.Request") -> "httpx2.Response":
    """The response as the flow knows it. Whether a redirect is followed is the flow's own business."""
    import httpx2

    headers = [(name, value) for name, value in response.headers.items() if name.lower() not in _FRAMING]
    told = httpx2.Response(response.status, headers=headers, content=content, request=request)
    if told.has_redirect_location and (request.method == "GET" or response.status in (307, 308)):
        target = request.url.join(told.headers["location"])
        plain = {name: value for name, value in request.headers.items() if name not in _CREDENTIALS}
        told.next_request = httpx2.Request(request.method, target, headers=plain, content=request.content)
    return told
