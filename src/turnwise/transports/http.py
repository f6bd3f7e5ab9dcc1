"""The client's side of streamable HTTP: one POST for each request, answered with JSON or with a stream of events.

aiohttp does the work and is imported when a client is opened. Nothing is remembered between requests but open
connections: no cookies, no credentials of the environment, and no redirect to another origin. What a session adds (a
stream that breaks is taken up again by GET) is asked for by the request.
"""

import asyncio
import io
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urljoin, urlsplit

from .._messages import Incoming, Mark, Notified, Outgoing
from ..dialects.handshake_client import can_be_sent
from ..dialects.words import HEADER_NAME
from ..errors import ConnectionLost, InvalidReply, RedirectRefused, UnexpectedStatus
from .authorizing import Auth, Line, authorized, checked
from .received import body, decoded, drained, once, parts, read, shown, watched
from .sse import Events

if TYPE_CHECKING:
    import ssl

    import aiohttp

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 4.0
"""For how long a connection is used again. Servers close theirs after five; who is later loses a request."""
RESTED_SECONDS, LOOKS = 0.1, 3
"""After so long without a request the loop is let look at its connections, so many times."""
LARGE_BODY = 512 * 1024
LARGEST_REPLY = 64 * 1024 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 3
MOST_RESUMES = 5
"""How often in a row a stream that broke is taken up again for nothing."""
RETRY_SECONDS = 1.0
"""The pause before that, where the server names none."""
STEADY_SECONDS = 5.0
"""A stream that lasted for so long was a good one, even if nothing was said on it."""
_RESERVED = ("accept", "connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding")
_OWN = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_LISTENING = {"Accept": "text/event-stream"}

T = TypeVar("T")
Received = Callable[["aiohttp.ClientResponse", bytes | None], Awaitable[T]]


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
        if parts.scheme not in ("http", "https") or not _is_host(parts.hostname or ""):
            raise ValueError(f"not the URL of a server: {url!r}")
        if parts.username is not None:
            raise ValueError("credentials do not belong into a URL: pass headers= or auth=")
        if parts.port is not None and not 0 < parts.port < 65536:  # Asking for it finds what is no number.
            raise ValueError(f"not the URL of a server: {url!r}")
        self.url = url.partition("#")[0]
        self._given = _checked(headers or {})
        self._headers = {**_OWN, **self._given}
        self._auth = None if auth is None else checked(auth)
        self._ssl = ssl
        self._proxy = proxy
        self._largest = largest_reply
        self.unasked: Callable[[Any], None] | None = None
        self.cancels = False
        self.shows_headers = False
        """Whether replies come with the headers that say something of who sent them."""
        self.may_follow: Callable[[str], bool] | None = None
        """Where a redirect may lead within the origin; anywhere unless told."""
        self._session: Any = None
        self._is_left = False
        self._last_used = math.inf
        self._streams: set[aiohttp.ClientResponse] = set()

    async def open(self) -> None:
        """Make the pool of connections; none is opened yet."""
        try:
            import aiohttp
        except ImportError as missing:
            raise ImportError("a URL is called by aiohttp, which comes with the extra turnwise[http]") from missing

        self._is_left = False
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

        self._is_left = True
        for response in self._streams:
            response.content.set_exception(aiohttp.ClientConnectionError("the client was closed"))
        if self._session is not None:
            await self._session.close()

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """POST the request and wait for its reply."""
        events = Events(self._largest, request.marks)

        async def received(response: "aiohttp.ClientResponse", content: bytes | None) -> Incoming:
            return await self._received(response, content, request, notified, events)

        headers = {**self._headers, **request.headers}
        try:
            return await self._carried("POST", headers, request.body, received)
        except ConnectionLost:
            if not request.lasts or not can_be_sent(events.last_id) or self._is_left:
                raise
        return await self._resumed(request, notified, events)

    async def _resumed(self, request: Outgoing, notified: Notified, events: Events) -> Incoming:
        """The reply from a stream that broke, or that the server closed to be asked again later."""
        in_vain = 0
        while True:
            await asyncio.sleep(RETRY_SECONDS if events.retry is None else events.retry)
            last_id, events = events.last_id, events.anew()

            async def received(
                response: "aiohttp.ClientResponse", content: bytes | None, events: Events = events
            ) -> Incoming:
                if response.status >= 300:
                    raise UnexpectedStatus(response.status)
                return await self._received(response, content, request, notified, events)

            own = {name: value for name, value in request.headers.items() if name.lower() != "last-event-id"}
            headers = {**_LISTENING, **self._given, **own, "Last-Event-ID": last_id}
            try:
                return await self._carried("GET", headers, b"", received)
            except UnexpectedStatus as error:
                # It may have been served: only whoever knows that this does no harm may send it again.
                raise ConnectionLost(f"the stream broke, and is not continued: {error}", sent=True) from None
            except ConnectionLost:
                in_vain = in_vain + 1 if events.last_id == last_id else 0
                if self._is_left or in_vain == MOST_RESUMES or not can_be_sent(events.last_id):
                    raise

    async def ready(self) -> int:
        """Every connection is as good as any other."""
        return 0

    async def tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """POST what has no reply."""
        await self._carried("POST", {**self._headers, **headers}, body, self._taken)

    async def leave(self, headers: Mapping[str, str]) -> None:
        """DELETE the session. "The server MAY respond to this request with HTTP 405"."""
        with suppress(UnexpectedStatus):
            await self._carried("DELETE", {**self._given, **headers}, b"", self._taken)

    async def watch(self, headers: Mapping[str, str], notified: Notified, opened: Callable[[], None]) -> None:
        """GET a stream, and again when it ends, for as long as the server goes on with it."""
        events, in_vain = Events(self._largest), 0

        async def received(response: "aiohttp.ClientResponse", content: bytes | None) -> None:
            if response.status != 200 or response.content_type != "text/event-stream":
                await self._taken(response, content)
                raise InvalidReply(f"the server opened no stream of events, but {response.content_type!r}")
            opened()
            await self._streamed(response, content, events, heard)

        async def heard(data: bytes | Mark) -> None:
            for message in parts(data):
                if isinstance(message, dict) and "method" in message:
                    await notified(message)

        while True:
            last_id, began = events.last_id, asyncio.get_running_loop().time()
            known = {"Last-Event-ID": last_id} if can_be_sent(last_id) else {}
            with suppress(ConnectionLost):
                await self._carried("GET", {**_LISTENING, **self._given, **headers, **known}, b"", received)
            steady = asyncio.get_running_loop().time() - began > STEADY_SECONDS
            in_vain = 0 if steady or events.last_id != last_id else in_vain + 1
            if self._is_left or in_vain == MOST_RESUMES:
                raise ConnectionLost("the server no longer says what changes", sent=True)
            await asyncio.sleep(RETRY_SECONDS if events.retry is None else events.retry)
            events = events.anew()

    async def _carried(self, verb: str, headers: dict[str, str], data: bytes, received: Received[T]) -> T:
        """What is received of a request that may be redirected; whatever breaks on the way is ConnectionLost."""
        import aiohttp

        url = self.url
        if time.monotonic() - self._last_used > RESTED_SECONDS:
            # Whoever answered in between may have kept the loop from seeing that the server hung up: let it look first.
            for _ in range(LOOKS):
                await asyncio.sleep(0)
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                async with self._sent(verb, url, headers, data) as sent:
                    response, content = (sent, None) if self._auth is None else sent
                    if response.status not in _REDIRECTS:
                        return await received(response, content)
                    url = self._followed(url, response)
            raise RedirectRefused(response.status, url)
        except aiohttp.ClientResponseError as error:
            raise InvalidReply(f"the reply is not HTTP: {error.message[:200]}") from error
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            lost = _lost(error)
            raise lost from (error if lost.sent else None)
        finally:
            self._last_used = time.monotonic()

    def _sent(self, verb: str, url: str, headers: dict[str, str], body: bytes) -> Any:
        """The request on its way: a context of the response, or of what an authorization flow got of it."""
        if self._is_left:
            raise ConnectionLost("this client was left", sent=False)
        if self._auth is not None:
            return authorized(self._auth, Line(self._session, self._proxy, self._largest), verb, url, headers, body)
        data: Any = body if len(body) < LARGE_BODY else io.BytesIO(body)
        return self._session.request(
            verb, url, data=data or None, headers=headers, allow_redirects=False, proxy=self._proxy
        )

    async def _received(
        self,
        response: "aiohttp.ClientResponse",
        content: bytes | None,
        request: Outgoing,
        notified: Notified,
        events: Events,
    ) -> Incoming:
        if response.content_type != "text/event-stream" or response.status >= 300:
            return read(response, await self._whole(response, content), request.lasts or self.shows_headers)

        async def heard(data: bytes | Mark) -> Incoming | None:
            if isinstance(data, Mark):
                if request.marks[data.kind]:
                    return Incoming(response.status, data, b"")
                await notified(data)
                return None
            reply = None
            for message in parts(data) if request.lasts else (decoded(data),):
                if isinstance(message, dict) and "method" in message:
                    await notified(message)
                else:
                    reply = Incoming(response.status, message, data, shown(response) if request.lasts else None)
            return reply

        reply = await self._streamed(response, content, events, heard)
        if reply is None:
            raise ConnectionLost("the stream ended without a reply", sent=True)
        return reply

    async def _taken(self, response: "aiohttp.ClientResponse", content: bytes | None) -> None:
        """Nothing is expected but that it was taken: "the server MUST return HTTP status code 202"."""
        if response.status >= 300:
            raw = await self._whole(response, content)
            raise UnexpectedStatus(response.status, raw[:200].decode("utf-8", "replace"), shown(response))

    def _followed(self, url: str, response: "aiohttp.ClientResponse") -> str:
        """Where a redirect leads; only the same request, to the same origin, is sent again."""
        location = response.headers.get("Location", "")
        try:
            target = urljoin(url, location)
            is_ours = _origin(target) == _origin(self.url) and "@" not in urlsplit(target).netloc
            is_ours = is_ours and (self.may_follow is None or self.may_follow(target))
        except ValueError:
            is_ours = False
        if response.status not in (307, 308) or not location or not is_ours or "\\" in location:
            raise RedirectRefused(response.status, location)
        return target

    async def _whole(self, response: "aiohttp.ClientResponse", content: bytes | None) -> bytes:
        return await body(response, self._largest) if content is None else content

    async def _streamed(
        self,
        response: "aiohttp.ClientResponse",
        content: bytes | None,
        events: Events,
        heard: Callable[[bytes | Mark], Awaitable[T | None]],
    ) -> T | None:
        """Read a stream until something is made of one of its events, or to its end."""
        self._streams.add(response)
        try:
            with watched(response):
                async for chunk in response.content.iter_any() if content is None else once(content):
                    for data in events.feed(chunk):
                        if (made := await heard(data)) is not None:
                            await drained(response)
                            return made
        finally:
            self._streams.discard(response)
        return None


def _is_host(name: str) -> bool:
    """Whether a connection could be asked for under this name at all."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return bool(name) and name.isprintable() and not set(name) & set(" \\/")


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
