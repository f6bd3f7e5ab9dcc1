"""HTTP: one endpoint that takes POST, as an ASGI application.

A reply is plain JSON unless the call has something to say before it ends; then, and only then, the response becomes a
stream of server-sent events. A client that hangs up has cancelled. The room knows HTTP; what the bodies say is the
wire's business.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import orjson

from .._messages import Identity, Post, Reply
from . import Answerer

log = logging.getLogger("turnwise.http")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

LOCAL = ("127.0.0.1", "localhost", "[::1]")
JSON = (b"content-type", b"application/json")
STREAM: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
WATCH_AFTER = 0.05
REMEMBERED = 512
_SINGLE = (b"mcp-", b"host", b"origin", b"authorization", b"content-")


class Callers:
    """Which Host and Origin values are let in: the guard against DNS rebinding.

    Bound to localhost, only local names are, unless you say otherwise. Bound to anything else, every Host is. An Origin
    must be one of `origins`, or the Host itself where that is one of `hosts`: a page whose name was pointed at this
    server has both the same. `"*"` lets all in.
    """

    def __init__(self, bind: str, hosts: Sequence[str] | None, origins: Sequence[str] | None) -> None:
        is_local = bind in (*LOCAL, "::1")
        named = LOCAL if is_local and hosts is None else hosts or ()
        self._hosts = {name.lower() for name in named} if is_local or hosts is not None else {"*"}
        self._origins = {name.lower() for name in origins or ()}
        self._local_origins = is_local and hosts is None

    def refusal(self, host: bytes | None, origin: bytes | None) -> tuple[int, str] | None:
        """The HTTP status and reason for turning a request away, or None."""
        name = (host or b"").decode("latin-1").strip().lower()
        if not self._host_is_known(name):
            return 421, "Misdirected request: this Host is not served here; name it in allowed_hosts="
        if origin is not None and not self._origin_is_known(origin.decode("latin-1").strip().lower(), name):
            return 403, "Forbidden: this Origin may not call; name it in allowed_origins="
        return None

    def _host_is_known(self, host: str) -> bool:
        return "*" in self._hosts or host in self._hosts or _without_port(host) in self._hosts

    def _origin_is_known(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")
        if scheme not in ("http", "https"):
            return False
        return (authority == host and "*" not in self._hosts) or (
            self._local_origins and _without_port(authority) in LOCAL
        )


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


class Turnaway(Protocol):
    """A request that is turned away before it is read."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def description(self) -> str:
        """Why, for a person."""
        ...

    @property
    def headers(self) -> Headers:
        """What goes with the status, such as WWW-Authenticate."""
        ...


class Doorkeeper(Protocol):
    """Decides from the Authorization headers who is calling."""

    async def admit(self, authorization: Sequence[bytes], now: float) -> Identity | Turnaway:
        """The caller's identity, or why there is none."""
        ...


class App:
    """The endpoint. `start` and `stop` frame the server's life where the ASGI server announces it; where nobody does,
    as in a mounted application, `ensure` is awaited before each call.
    """

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        wire: Answerer,
        callers: Callers,
        *,
        path: str,
        max_body: int,
        keepalive: float,
        start: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
        ensure: Callable[[], Awaitable[None]] | None = None,
        doorkeeper: Doorkeeper | None = None,
        documents: Mapping[str, bytes] | None = None,
    ) -> None:
        self._wire = wire
        self._callers = callers
        self._path = path.rstrip("/")
        self._max_body = max_body
        self._keepalive = keepalive
        self._start = start
        self._stop = stop
        self._ensure = ensure
        self._welcome: set[tuple[bytes | None, ...]] = set()
        self._doorkeeper = doorkeeper
        self._documents = documents or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
            if path == self._path and scope["method"] == "POST":
                await self._post(scope, receive, send)
            else:
                await self._elsewhere(scope, path, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        listed: Headers = scope["headers"]
        headers = dict(listed)
        refusal = self._unwelcome(listed, headers)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        now = time.time()
        access = None
        if self._doorkeeper is not None:
            credentials = [value for name, value in listed if name == b"authorization"]
            admitted: Any = await self._doorkeeper.admit(credentials, now)
            if not hasattr(admitted, "principal"):
                await _refuse(send, admitted.status, admitted.description, admitted.headers)
                return
            access = admitted
        try:
            body = await self._read(receive)
        except _Gone:
            return
        if body is None:
            await _refuse(send, 413, f"The body is larger than {self._max_body} bytes")
            return
        if self._ensure is not None and not await self._is_alive(self._ensure):
            await _refuse(send, 503, "The server could not be started")
            return
        exchange = _Exchange(send, receive, self._keepalive)
        await exchange.carry(self._wire, Post(body, exchange.emit, now, headers, access))

    def _unwelcome(self, listed: Headers, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Why a request is turned away, from its headers alone. Clients repeat themselves: a good set is remembered."""
        get = headers.get
        if len(headers) != len(listed):
            if (refusal := _repeated(listed)) is not None:
                return refusal
            headers[b"accept"] = b",".join(value for name, value in listed if name == b"accept") or b"*/*"
        facts = (get(b"host"), get(b"origin"), get(b"content-type"), get(b"accept"))
        if facts not in self._welcome:
            refusal = self._callers.refusal(facts[0], facts[1]) or _unfit(facts[2] or b"", facts[3] or b"*/*")
            if refusal is not None:
                return refusal
            if len(self._welcome) < REMEMBERED and sum(len(fact or b"") for fact in facts) < REMEMBERED:
                self._welcome.add(facts)
        length = get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > self._max_body):
            return 413, f"The body is larger than {self._max_body} bytes"
        return None

    async def _read(self, receive: Receive) -> bytes | None:
        message = await receive()
        body: bytes = message.get("body", b"")
        if not message.get("more_body") and message["type"] == "http.request":
            return body if len(body) <= self._max_body else None
        parts, size = [body], len(body)
        while message.get("more_body") or message["type"] != "http.request":
            if message["type"] == "http.disconnect":
                raise _Gone
            message = await receive()
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body:
                return None
        return b"".join(parts)

    async def _is_alive(self, ensure: Callable[[], Awaitable[None]]) -> bool:
        try:
            await ensure()
        except Exception:
            log.exception("the server's lifespan could not be entered")
            return False
        return True

    async def _elsewhere(self, scope: Scope, path: str, send: Send) -> None:
        document = self._documents.get(path) if scope["method"] in ("GET", "HEAD") else None
        if document is not None:
            headers = [JSON, (b"content-length", str(len(document)).encode()), (b"access-control-allow-origin", b"*")]
            await _send(send, 200, headers, document if scope["method"] == "GET" else b"")
        elif path == self._path and (refusal := self._callers.refusal(*_callers_names(scope["headers"]))) is not None:
            await _refuse(send, *refusal)
        elif path == self._path:
            await _refuse(send, 405, "Only POST is served here", [(b"allow", b"POST")])
        else:
            await _refuse(send, 404, f"The MCP endpoint is {self._path or '/'}")

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await self._stop()
        except Exception as error:
            await send({"type": "lifespan.shutdown.failed", "message": f"{type(error).__name__}: {error}"})
            raise
        await send({"type": "lifespan.shutdown.complete"})


class _Gone(Exception):
    """The client hung up before it had sent its request."""


class _Exchange:
    """One POST and its response, which turns into a stream with the first thing emitted."""

    __slots__ = ("_gone", "_keepalive", "_pulse", "_receive", "_send", "_streaming", "_task", "_watch")

    def __init__(self, send: Send, receive: Receive, keepalive: float) -> None:
        self._send = send
        self._receive = receive
        self._keepalive = keepalive
        self._streaming = False
        self._gone = False
        self._pulse: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._task: asyncio.Task[Any] | None = None

    async def carry(self, wire: Answerer, post: Post) -> None:
        """Get the reply and send it. Calls that end at once never pay for a watch on the connection."""
        loop = asyncio.get_running_loop()
        self._task = asyncio.current_task(loop)
        timer = loop.call_later(WATCH_AFTER, self._begin_watch)
        try:
            await self._deliver(await wire.answer(post))
        except OSError:
            self._gone = True
        except asyncio.CancelledError:
            if not self._gone or self._task is None:
                raise
            self._task.uncancel()
        finally:
            timer.cancel()
            if self._watch is not None:
                self._watch.cancel()
            if self._pulse is not None:
                self._pulse.cancel()

    async def _deliver(self, reply: Reply) -> None:
        body = reply.body or b""
        if self._gone:
            return
        if self._streaming:
            if self._pulse is not None:
                self._pulse.cancel()
            await self._send({"type": "http.response.body", "body": _event(body), "more_body": False})
        elif reply.body is None:
            await _send(self._send, reply.status, [], b"")
        else:
            await _send(self._send, reply.status, [JSON, (b"content-length", b"%d" % len(body))], body)

    async def emit(self, message: bytes) -> None:
        """Send a notification ahead of the reply; to a client that has gone, nothing."""
        if self._gone:
            return
        try:
            if not self._streaming:
                self._streaming = True
                await self._send({"type": "http.response.start", "status": 200, "headers": STREAM})
                self._pulse = asyncio.create_task(self._keep_alive())
            await self._send({"type": "http.response.body", "body": _event(message), "more_body": True})
        except OSError:
            self._gone = True

    async def _keep_alive(self) -> None:
        with suppress(OSError):
            while True:
                await asyncio.sleep(self._keepalive)
                await self._send({"type": "http.response.body", "body": b":\r\n\r\n", "more_body": True})

    def _begin_watch(self) -> None:
        self._watch = asyncio.create_task(self._watch_connection())

    async def _watch_connection(self) -> None:
        """ "The server MUST treat a client disconnect as cancellation of that request." """
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._task is not None:
            self._task.cancel()


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


def _callers_names(listed: Headers) -> tuple[bytes | None, bytes | None]:
    headers = dict(listed)
    return headers.get(b"host"), headers.get(b"origin")


def _unfit(content_type: bytes, accept: bytes) -> tuple[int, str] | None:
    """ "The client MUST include an Accept header listing both application/json and text/event-stream." """
    if content_type.partition(b";")[0].strip().lower() != b"application/json":
        return 415, "Content-Type must be application/json"
    takes = {part.partition(b";")[0].strip().lower() for part in accept.split(b",")}
    if b"*/*" in takes or (
        takes & {b"application/json", b"application/*"} and takes & {b"text/event-stream", b"text/*"}
    ):
        return None
    return 406, "Accept must list application/json and text/event-stream"


def _repeated(listed: Headers) -> tuple[int, str] | None:
    names = [name for name, _ in listed if name.startswith(_SINGLE)]
    twice = sorted({name for name in names if names.count(name) > 1})
    return (400, f"Header sent more than once: {twice[0].decode('latin-1')}") if twice else None


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, status: int, reason: str, extra: Headers | None = None) -> None:
    body = orjson.dumps({"jsonrpc": "2.0", "error": {"code": -32600, "message": reason}})
    with suppress(ConnectionError):
        await _send(send, status, [JSON, (b"content-length", str(len(body)).encode()), *(extra or ())], body)
