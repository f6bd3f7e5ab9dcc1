"""HTTP: one endpoint that takes POST, as an ASGI application.

A reply is plain JSON unless the call has something to say before it ends; then, and only then, the response becomes a
stream of server-sent events. A client that hangs up has cancelled. The room knows HTTP; what the bodies say is the
wire's business.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

import orjson

from .._messages import Post, Reply
from . import Answerer, Attendant
from .door import Callers, Doorkeeper, Headers, Reason, names_of, repeated, unfit

log = logging.getLogger("turnwise.http")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = (b"content-type", b"application/json")
STREAM: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
COMMENT = b":\r\n\r\n"
WATCH_AFTER = 0.05
REMEMBERED = 512


class Living(Protocol):
    """What has to be begun before a call can be served, if anything has."""

    is_needed: bool

    async def ensure(self) -> None:
        """Begin, unless somebody has."""
        ...


class App:
    """The endpoint. `start` and `stop` frame the server's life where the ASGI server announces it; where nobody does,
    as in a mounted application, `life` is made sure of before each call.
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
        life: Living | None = None,
        doorkeeper: Doorkeeper | None = None,
        documents: Mapping[str, bytes] | None = None,
        attendant: Attendant | None = None,
    ) -> None:
        self._wire = wire
        self._callers = callers
        self._path = path.rstrip("/")
        self._max_body = max_body
        self._digits = len(str(max_body))
        self._keepalive = keepalive
        self._start = start
        self._stop = stop
        self._life = life
        self._watchman = _Watchman()
        self._welcome: set[tuple[bytes | None, ...]] = set()
        self._doorkeeper = doorkeeper
        self._documents = documents or {}
        self._attendant = attendant

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "http":
            if scope["path"] == self._path and scope["method"] == "POST":
                await self._post(scope, receive, send)
                return
            path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
            if path == self._path and scope["method"] == "POST":
                await self._post(scope, receive, send)
            else:
                await self._elsewhere(scope, path, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        listed: Headers = scope["headers"]
        headers = dict(listed)
        get = headers.get
        known = (get(b"host"), get(b"origin"), get(b"content-type"), get(b"accept")) in self._welcome
        if not known or len(headers) != len(listed) or len(get(b"content-length", b"")) >= self._digits:
            refusal = self._unwelcome(listed, headers)
            if refusal is not None:
                if refusal[0] in (403, 421):
                    log.warning("Host %.100r, Origin %.100r: %s", get(b"host"), get(b"origin"), refusal[1])
                await _refuse(send, *refusal)
                return
        now = time.time()
        access: Any = None
        if self._doorkeeper is not None and (access := await self._admitted(listed, now, send)) is False:
            return
        message = await receive()
        body: bytes | None = message.get("body", b"")
        if message.get("more_body") or message["type"] != "http.request":
            body = await self._read_on(message, receive)
        if body is None:
            return
        if len(body) > self._max_body:
            await _refuse(send, 413, f"The body is larger than {self._max_body} bytes")
            return
        if self._life is not None and self._life.is_needed and not await self._is_alive(self._life):
            await _refuse(send, 503, "The server could not be started")
            return
        exchange = _Exchange(send, receive, self._keepalive)
        post = Post(body, exchange.emit, now, headers, access, task=exchange.task)
        await exchange.carry(self._wire.answer(post), self._watchman)

    def _unwelcome(self, listed: Headers, headers: dict[bytes, bytes]) -> Reason | None:
        """Why a request is turned away, from its headers alone. Clients repeat themselves: a good set is remembered."""
        get = headers.get
        if len(headers) != len(listed):
            if (refusal := repeated(listed)) is not None:
                return refusal
            headers[b"accept"] = b",".join(value for name, value in listed if name == b"accept") or b"*/*"
        facts = (get(b"host"), get(b"origin"), get(b"content-type"), get(b"accept"))
        if facts not in self._welcome:
            refusal = self._callers.refusal(facts[0], facts[1]) or unfit(facts[2] or b"", facts[3] or b"*/*")
            if refusal is not None:
                return refusal
            if len(self._welcome) < REMEMBERED and sum(len(fact or b"") for fact in facts) < REMEMBERED:
                self._welcome.add(facts)
        length = get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > self._max_body):
            return 413, f"The body is larger than {self._max_body} bytes"
        return None

    async def _read_on(self, message: MutableMapping[str, Any], receive: Receive) -> bytes | None:
        """A body that comes in parts, or as much of it as shows that it is too large; None if the client has gone."""
        parts, size = [], 0
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_body or not message.get("more_body"):
                return b"".join(parts)
            message = await receive()
        return None

    async def _is_alive(self, life: Living) -> bool:
        try:
            await life.ensure()
        except Exception:
            log.exception("the server's lifespan could not be entered")
            return False
        return True

    async def _elsewhere(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        document = self._documents.get(path) if scope["method"] in ("GET", "HEAD") else None
        if document is not None:
            headers = [JSON, (b"content-length", str(len(document)).encode()), (b"access-control-allow-origin", b"*")]
            await _send(send, 200, headers, document if scope["method"] == "GET" else b"")
        elif path == self._path and (refusal := self._callers.refusal(*names_of(scope["headers"]))) is not None:
            await _refuse(send, *refusal)
        elif path == self._path:
            await self._attended(scope, receive, send)
        else:
            await _refuse(send, 404, f"The MCP endpoint is {self._path or '/'}")

    async def _attended(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET and DELETE, where they belong to a session; nobody else has a use for them."""
        listed: Headers = scope["headers"]
        verb, headers, now = scope["method"], dict(listed), time.time()
        if self._attendant is not None and verb in ("GET", "DELETE") and b"mcp-session-id" in headers:
            if len(headers) != len(listed) and (refusal := repeated(listed)) is not None:
                await _refuse(send, *refusal)
                return
            access = await self._admitted(listed, now, send)
            if access is False:
                return
            exchange = _Exchange(send, receive, self._keepalive)
            post = Post(b"", exchange.emit, now, headers, access, task=exchange.task)
            reply = await self._attendant.attend(verb, post)
            if reply is not None:
                await exchange.carry(_ready(reply), self._watchman)
                return
        reason = "Only POST is served here"
        if self._attendant is not None:
            reason += "; GET and DELETE belong to a session, which Mcp-Session-Id names"
        await _refuse(send, 405, reason, [(b"allow", b"POST")])

    async def _admitted(self, listed: Headers, now: float, send: Send) -> Any:
        """Who is calling, None where nobody has to say; False where the request was turned away."""
        if self._doorkeeper is None:
            return None
        access = await self._doorkeeper.admit([value for name, value in listed if name == b"authorization"], now)
        if hasattr(access, "principal"):
            return access
        await _refuse(send, access.status, access.description, access.headers)
        return False

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


class _Watchman:
    """Looks after the exchanges that take longer: from then on, a client that hangs up cancels.

    One timer serves them all, and most are over before it rings.
    """

    def __init__(self) -> None:
        self._exchanges: dict[_Exchange, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, exchange: "_Exchange") -> None:
        self._exchanges[exchange] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._ring)

    def leave(self, exchange: "_Exchange") -> None:
        self._exchanges.pop(exchange, None)

    def _ring(self) -> None:
        late = [exchange for exchange in self._exchanges if exchange.is_late()]
        for exchange in late:
            del self._exchanges[exchange]
            exchange.begin_watch()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WATCH_AFTER, self._ring) if self._exchanges else None


class _Exchange:
    """One POST and its response, which turns into a stream with the first thing emitted."""

    _streaming = False
    _gone = False
    _seen = False
    _pulse: "asyncio.Task[None] | None" = None
    _watch: "asyncio.Task[None] | None" = None

    def __init__(self, send: Send, receive: Receive, keepalive: float) -> None:
        self._send = send
        self._receive = receive
        self._keepalive = keepalive
        self.task = asyncio.current_task()

    async def carry(self, answer: Awaitable[Reply], watchman: _Watchman) -> None:
        """Get the reply and send it."""
        watchman.enter(self)
        try:
            status, body, extra, events = await answer
            if events is not None:
                await self._follow(extra, events)
            elif self._streaming or self._gone or body is None:
                await self._end(status, extra, body or b"")
            else:
                headers = [JSON, (b"content-length", b"%d" % len(body)), *extra]
                await self._send({"type": "http.response.start", "status": status, "headers": headers})
                await self._send({"type": "http.response.body", "body": body})
        except OSError:
            self._gone = True
        except asyncio.CancelledError:
            if not self._gone or self.task is None:
                raise
            self.task.uncancel()
        finally:
            watchman.leave(self)
            if self._watch is not None:
                self._watch.cancel()
            if self._pulse is not None:
                self._pulse.cancel()

    async def _end(self, status: int, extra: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """The end of a stream, or of a request that gets no body."""
        if self._gone:
            return
        if self._streaming:
            if self._pulse is not None:
                self._pulse.cancel()
            await self._send({"type": "http.response.body", "body": _event(body), "more_body": False})
        else:
            await _send(self._send, status, [*extra], b"")

    async def _follow(self, extra: Sequence[tuple[bytes, bytes]], events: AsyncGenerator[bytes, None]) -> None:
        """Pass on a stream that has a life of its own: it goes on where its reader hangs up."""
        async with aclosing(events):
            await self._open(extra)
            # A head that waits for its body must not wait for the first event, which may be long in coming.
            await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})
            async for event in events:
                await self._send({"type": "http.response.body", "body": event, "more_body": True})
            if self._pulse is not None:
                self._pulse.cancel()
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _open(self, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
        if not self._streaming:
            self._streaming = True
            await self._send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *extra]})
            if self._pulse is None:
                self._pulse = asyncio.create_task(self._keep_alive())

    async def emit(self, message: bytes) -> None:
        """Send a notification ahead of the reply; to a client that has gone, nothing."""
        if self._gone:
            return
        try:
            await self._open()
            await self._send({"type": "http.response.body", "body": _event(message), "more_body": True})
        except OSError:
            self._gone = True

    async def _keep_alive(self) -> None:
        """A word now and then, so that nobody takes the connection for dead; a reply that has not begun begins so."""
        with suppress(OSError):
            while True:
                await asyncio.sleep(self._keepalive)
                await self._open()
                await self._send({"type": "http.response.body", "body": COMMENT, "more_body": True})

    def is_late(self) -> bool:
        """Whether this is not the first time of asking."""
        was_seen, self._seen = self._seen, True
        return was_seen

    def begin_watch(self) -> None:
        """Have a disconnect cancel the request from now on, and a connection that is silent kept alive."""
        self._watch = asyncio.create_task(self._watch_connection())
        if self._pulse is None:
            self._pulse = asyncio.create_task(self._keep_alive())

    async def _watch_connection(self) -> None:
        """ "The server MUST treat a client disconnect as cancellation of that request." """
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self.task is not None:
            self.task.cancel()


async def _ready(reply: Reply) -> Reply:
    return reply


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


async def _send(send: Send, status: int, headers: Headers, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _refuse(send: Send, status: int, reason: str, extra: Headers | None = None) -> None:
    body = orjson.dumps({"jsonrpc": "2.0", "error": {"code": -32600, "message": reason}})
    with suppress(ConnectionError):
        await _send(send, status, [JSON, (b"content-length", str(len(body)).encode()), *(extra or ())], body)
