"""The client's side of streamable HTTP: one POST for each request, answered with JSON or with a stream of events.

aiohttp does the work and is imported when a client is opened. Nothing is remembered between requests but open
connections: no cookies, no credentials of the environment, and no redirect to another origin.
"""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from .._json import decode
from .._messages import Incoming, Notified, Outgoing
from ..dialects.words import HEADER_NAME
from ..errors import ConnectionLost, InvalidReply, RedirectRefused, UnexpectedStatus
from .authorizing import Auth, Line, authorized, checked
from .sse import Events

if TYPE_CHECKING:
    import ssl

    import aiohttp

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 4.0
"""For how long a connection is used again. Servers close theirs after five; who is later loses a request."""
LARGE_BODY = 512 * 1024
LARGEST_REPLY = 64 * 1024 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 3
_LAST_WORDS = 0.25
_RESERVED = ("accept", "connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding")
_OWN = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class HTTP:
    """A channel to the server at this URL."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Auth | None = None,
        ssl: "ssl.SSLContext | None" = None,
        proxy: str | None = None,
        largest_reply: int = LARGEST_REPLY,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not the URL of a server: {url!r}")
        if parts.username is not None:
            raise ValueError("credentials do not belong into a URL: pass headers= or auth=")
        if parts.port is not None and not 0 < parts.port < 65536:  # Asking for it finds what is no number.
            raise ValueError(f"not the URL of a server: {url!r}")
        self.url = url.partition("#")[0]
        self._headers = {**_OWN, **_checked(headers or {})}
        self._auth = None if auth is None else checked(auth)
        self._ssl = ssl
        self._proxy = proxy
        self._largest = largest_reply
        self._session: Any = None
        self._streams: set[aiohttp.ClientResponse] = set()

    async def open(self) -> None:
        """Make the pool of connections; none is opened yet."""
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl or True, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
            raise_for_status=False,
            trust_env=False,
            # A reply is read in chunks of this size, so a slow reader slows the server down.
            read_bufsize=256 * 1024,
        )

    async def aclose(self) -> None:
        """Close the connections; who still reads a stream gets ConnectionLost."""
        import aiohttp

        for response in self._streams:
            response.content.set_exception(aiohttp.ClientConnectionError("the client was closed"))
        if self._session is not None:
            await self._session.close()

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """POST the request and wait for its reply."""
        import aiohttp

        headers, url = {**self._headers, **request.headers}, self.url
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                async with self._sent(url, headers, request.body) as sent:
                    response, content = (sent, None) if self._auth is None else sent
                    if response.status not in _REDIRECTS:
                        return await self._received(response, content, notified)
                    url = self._followed(url, response)
            raise RedirectRefused(response.status, url)
        except aiohttp.ClientResponseError as error:
            raise InvalidReply(f"the reply is not HTTP: {error.message[:200]}") from error
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            lost = _lost(error)
            raise lost from (error if lost.sent else None)

    def _sent(self, url: str, headers: dict[str, str], body: bytes) -> Any:
        """The request on its way: a context of the response, or of what an authorization flow got of it."""
        if self._auth is not None:
            return authorized(self._auth, Line(self._session, self._proxy, self._largest), url, headers, body)
        data: Any = body if len(body) < LARGE_BODY else io.BytesIO(body)
        return self._session.post(url, data=data, headers=headers, allow_redirects=False, proxy=self._proxy)

    async def _received(
        self, response: "aiohttp.ClientResponse", content: bytes | None, notified: Notified
    ) -> Incoming:
        kind = response.content_type
        with _watched(response):
            if kind != "text/event-stream" or response.status >= 300:
                return _read(response, kind, await self._body(response) if content is None else content)
            self._streams.add(response)
            try:
                return await self._stream(response, content, notified)
            finally:
                self._streams.discard(response)

    def _followed(self, url: str, response: "aiohttp.ClientResponse") -> str:
        """Where a redirect leads; only the same request, to the same origin, is sent again."""
        location = response.headers.get("Location", "")
        try:
            target = urljoin(url, location)
            is_ours = _origin(target) == _origin(self.url) and "@" not in urlsplit(target).netloc
        except ValueError:
            is_ours = False
        if response.status not in (307, 308) or not location or not is_ours or "\\" in location:
            raise RedirectRefused(response.status, location)
        return target

    async def _body(self, response: "aiohttp.ClientResponse") -> bytes:
        if (response.content_length or 0) > self._largest:
            raise InvalidReply(f"the reply has {response.content_length} bytes; at most {self._largest} are read")
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            chunks.append(chunk)
            size += len(chunk)
            if size > self._largest:
                raise InvalidReply(f"the reply has more than {self._largest} bytes")
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _stream(self, response: "aiohttp.ClientResponse", content: bytes | None, notified: Notified) -> Incoming:
        events = Events(self._largest)
        async for chunk in response.content.iter_any() if content is None else _once(content):
            for data in events.feed(chunk):
                try:
                    message = decode(data)
                except ValueError as error:
                    raise InvalidReply(f"an event of the stream is not JSON: {error}") from None
                if isinstance(message, dict) and "method" in message:
                    await notified(message)
                    continue
                await _drained(response)
                return Incoming(response.status, message, data)
        raise ConnectionLost("the stream ended without a reply", sent=True)


def _read(response: "aiohttp.ClientResponse", kind: str, raw: bytes) -> Incoming:
    shown = None
    if response.status >= 300:
        found = {name: ", ".join(response.headers.getall(name, ())) for name in ("WWW-Authenticate", "Retry-After")}
        shown = {name: value for name, value in found.items() if value}
    if kind == "application/json":
        try:
            return Incoming(response.status, decode(raw), raw, shown)
        except ValueError as error:
            if response.status < 300:
                raise InvalidReply(f"the reply is not JSON: {error}") from None
    if response.status < 300:
        raise InvalidReply(f"the reply is {kind!r} with status {response.status}, not JSON or a stream of events")
    raise UnexpectedStatus(response.status, raw[:200].decode("utf-8", "replace"), shown)


@contextmanager
def _watched(response: "aiohttp.ClientResponse") -> Iterator[None]:
    """Tell a reader of the end of its connection: aiohttp forgets a body whose chunks are malformed, and its reader
    would wait for the rest for ever.
    """
    import aiohttp

    protocol = None if response.connection is None else response.connection.protocol
    closed = None if protocol is None else protocol.closed
    if closed is None:  # The whole body is here.
        yield
        return

    def ended(_: "asyncio.Future[None]") -> None:
        if not response.content.is_eof() and response.content.exception() is None:
            response.content.set_exception(aiohttp.ClientPayloadError("the body is malformed"))

    closed.remove_done_callback(_looked_at)  # A connection is watched many times, and looked at once.
    closed.add_done_callback(_looked_at)
    closed.add_done_callback(ended)
    try:
        yield
    finally:
        closed.remove_done_callback(ended)


def _looked_at(closed: "asyncio.Future[None]") -> None:
    """Take note of how a connection ended; who reads from it is told by the body."""
    closed.cancelled() or closed.exception()


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _drained(response: "aiohttp.ClientResponse") -> None:
    """Read the end of a stream whose reply is here, so that its connection can be used again."""
    import aiohttp

    try:
        async with asyncio.timeout(_LAST_WORDS):
            while await response.content.readany():
                pass
    except (TimeoutError, aiohttp.ClientError, OSError):
        response.close()


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not isinstance(value, str) or not value.isprintable() or not HEADER_NAME.fullmatch(name):
            raise ValueError(f"the header {name!r} cannot be sent: it has a plain name and one printable line of text")
        if name.lower() in _RESERVED or name.lower().startswith("mcp-"):
            raise ValueError(f"the header {name!r} belongs to the protocol")
    return dict(headers)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _lost(error: BaseException) -> ConnectionLost:
    import aiohttp

    unsent = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
    reason = re.sub(r" ssl:\S+", "", str(error)) or type(error).__name__
    if isinstance(error, unsent):
        return ConnectionLost(f"the server cannot be reached: {reason}", sent=False)
    return ConnectionLost(f"the connection broke before the reply was complete: {reason}", sent=True)
