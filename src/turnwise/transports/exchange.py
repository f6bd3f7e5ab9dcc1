"""A request and its response: who is let in, and how the reply goes out.

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
from typing_extensions import TypedDict, Unpack

from .._messages import Identity, Post, Reply
from . import Answerer
from .door import Callers, Doorkeeper, Headers, Reason, Turnaway, repeated, unfit
from .turnstile import Turnstile

log = logging.getLogger("turnwise.http")


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


class Witness(Protocol):
    """Who is told of every request and what came of it."""

    def arrived(self, headers: Mapping[bytes, bytes], client: str | None) -> Any:
        """A request came; what this gives, `left` gets."""
        ...

    def left(self, note: Any, status: int | None, principal: str | None) -> None:
        """Its response is over. The status is None where the client went before there was one."""
        ...


class Line(Protocol):
    """A connection that has a request. `reply` takes a whole response at once, where the connection can do that; all
    else goes ASGI's way. `is_late` where its body did not come in time.
    """

    headers: dict[bytes, bytes]
    is_late: bool

    @property
    def listed(self) -> Headers:
        """The headers as they came, in which one may come twice."""
        ...

    @property
    def task(self) -> "asyncio.Task[Any] | None":
        """The one that serves the request."""
        ...

    @property
    def client(self) -> str | None:
        """The address at the other end."""
        ...

    @property
    def reply(self) -> Callable[[int, bytes], None] | None:
        """A response whose body is JSON."""
        ...

    async def read(self, most: int) -> bytes | None:
        """The body, or as much of it as shows that it is too large; None if the client has gone, or takes too long."""
        ...

    def send(self, message: MutableMapping[str, Any], /) -> Awaitable[None]:
        """ASGI's way to respond."""
        ...

    def receive(self) -> Awaitable[MutableMapping[str, Any]]:
        """ASGI's way to hear that the client has gone."""
        ...


class FrontOptions(TypedDict, total=False):
    """What an endpoint is told of how to serve."""

    path: str
    max_body: int
    keepalive: float
    life: Living | None
    doorkeeper: Doorkeeper | None
    turnstile: Turnstile | None
    witness: Witness | None


class Front:
    """The endpoint. Where nobody announces that the server's life begins, as in a mounted application, `life` is made
    sure of before each call. `path` is where it is served.
    """

    def __init__(self, wire: Answerer, callers: Callers, **options: Unpack[FrontOptions]) -> None:
        self.path = options["path"].rstrip("/")
        self._wire = wire
        self._callers = callers
        self._max_body = options["max_body"]
        self._digits = len(str(self._max_body))
        self._keepalive = options["keepalive"]
        self._life = options.get("life")
        self._doorkeeper = options.get("doorkeeper")
        self._turnstile = options.get("turnstile")
        self._witness = options.get("witness")
        self._is_plain = not (self._doorkeeper or self._turnstile or self._witness)
        self._watchman = Watchman()
        self._welcome: set[tuple[bytes | None, ...]] = set()

    def is_usual(self, line: Line) -> bool:
        """Whether a request is like others before it, and nobody has to be asked about it."""
        get = line.headers.get
        return (
            self._is_plain
            and (get(b"host"), get(b"origin"), get(b"content-type"), get(b"accept")) in self._welcome
            and len(get(b"content-length", b"")) < self._digits
            and not (self._life is not None and self._life.is_needed)
        )

    def take(self, line: Line, body: bytes) -> Awaitable[None]:
        """A request that is usual, and whose body is there: short work."""
        if len(body) > self._max_body:
            return self.serve(line)
        exchange = Exchange(line, self._keepalive)
        post = Post(body, exchange.emit, time.time(), line.headers, None, None, line.task)
        return exchange.carry(self._wire.answer(post), self._watchman)

    async def serve(self, line: Line) -> None:
        """A request, from its headers to its response."""
        await self.witnessed(line, self._served)

    async def witnessed(self, line: Line, serve: "Callable[[Line, Exchange], Awaitable[None]]") -> None:
        """Have somebody told of a request, where somebody wants to be."""
        exchange = Exchange(line, self._keepalive)
        if self._witness is None:
            await serve(line, exchange)
            return
        note = self._witness.arrived(line.headers, line.client)
        try:
            await serve(line, exchange)
        finally:
            self._witness.left(note, exchange.status, exchange.principal)

    async def _served(self, line: Line, exchange: "Exchange") -> None:
        if (reason := self._unwelcome(line.listed, line.headers)) is not None:
            if reason[0] in (403, 421):
                host, origin = line.headers.get(b"host"), line.headers.get(b"origin")
                log.warning("Host %.100r, Origin %.100r: %s", host, origin, reason[1])
            await exchange.refuse(*reason)
            return
        now = time.time()
        access = await self.admitted(line, exchange, now)
        if access is False:
            return
        # Who sends a body drop by drop holds no place meanwhile.
        body = await self._body(line, exchange)
        if body is None:
            return
        post = Post(body, exchange.emit, now, line.headers, access, None, line.task)
        if self._turnstile is None:
            await self._answered(post, exchange)
            return
        caller = self._turnstile.caller(exchange.principal, line.headers, line.client)
        if (refusal := self._turnstile.enter(caller, now)) is not None:
            await exchange.refuse(refusal.status, refusal.description, refusal.headers)
            return
        try:
            await self._answered(post, exchange)
        finally:
            self._turnstile.leave(caller)

    async def _body(self, line: Line, exchange: "Exchange") -> bytes | None:
        body = await line.read(self._max_body)
        if line.is_late:
            await exchange.refuse(408, "The body did not come in time", [(b"connection", b"close")])
        elif body is not None and len(body) > self._max_body:
            await exchange.refuse(413, f"The body is larger than {self._max_body} bytes")
            return None
        return body

    async def _answered(self, post: Post, exchange: "Exchange") -> None:
        if self._life is not None and self._life.is_needed and not await self._is_alive(self._life):
            await exchange.refuse(503, "The server could not be started")
            return
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
        if len(length) >= self._digits and length.isdigit() and (len(length) > 18 or int(length) > self._max_body):
            return 413, f"The body is larger than {self._max_body} bytes"
        return None

    async def _is_alive(self, life: Living) -> bool:
        try:
            await life.ensure()
        except Exception:
            log.exception("the server's lifespan could not be entered")
            return False
        return True

    async def admitted(self, line: Line, exchange: "Exchange", now: float) -> Any:
        """Who is calling, None where nobody has to say; False where the request was turned away."""
        if self._doorkeeper is None:
            return None
        given = [value for name, value in line.listed if name == b"authorization"]
        access: Identity | Turnaway = await self._doorkeeper.admit(given, now)
        if hasattr(access, "principal"):
            exchange.principal = access.principal
            return access
        await exchange.refuse(access.status, access.description, access.headers)
        return False


class Watchman:
    """Looks after the exchanges that take longer: from then on, a client that hangs up cancels.

    One timer serves them all, and most are over before it rings.
    """

    def __init__(self) -> None:
        self._exchanges: dict[Exchange, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, exchange: "Exchange") -> None:
        """An exchange begins."""
        self._exchanges[exchange] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._ring)

    def leave(self, exchange: "Exchange") -> None:
        """It is over."""
        self._exchanges.pop(exchange, None)

    def _ring(self) -> None:
        late = [exchange for exchange in self._exchanges if exchange.is_late()]
        for exchange in late:
            del self._exchanges[exchange]
            exchange.begin_watch()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WATCH_AFTER, self._ring) if self._exchanges else None


class Exchange:
    """One POST and its response, which turns into a stream with the first thing emitted."""

    __slots__ = ("_gone", "_keepalive", "_line", "_pulse", "_seen", "_streaming", "_watch", "principal", "status")

    def __init__(self, line: Line, keepalive: float) -> None:
        self._line = line
        self._keepalive = keepalive
        self._streaming = self._gone = self._seen = False
        self._pulse: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self.status: int | None = None
        self.principal: str | None = None

    async def carry(self, answer: Awaitable[Reply], watchman: Watchman) -> None:
        """Get the reply and send it."""
        watchman.enter(self)
        try:
            status, body, extra, events = await answer
            if events is not None:
                await self._follow(extra, events)
            elif self._streaming or self._gone or body is None:
                await self._end(status, extra, body or b"")
            elif extra or (reply := self._line.reply) is None:
                await self.respond(status, [JSON, (b"content-length", b"%d" % len(body)), *extra], body)
            else:
                self.status = status
                reply(status, body)
        except OSError:
            self._gone = True
        except asyncio.CancelledError:
            if not self._gone or self._line.task is None:
                raise
            self._line.task.uncancel()
        finally:
            watchman.leave(self)
            if self._watch is not None:
                self._watch.cancel()
            if self._pulse is not None:
                self._pulse.cancel()

    async def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """A whole response."""
        self.status = status
        await self._line.send({"type": "http.response.start", "status": status, "headers": headers})
        await self._line.send({"type": "http.response.body", "body": body})

    async def refuse(self, status: int, reason: str, extra: Headers | None = None) -> None:
        """Turn a request away, before anybody has read what it says."""
        body = orjson.dumps({"jsonrpc": "2.0", "error": {"code": -32600, "message": reason}})
        with suppress(ConnectionError):
            await self.respond(status, [JSON, (b"content-length", b"%d" % len(body)), *(extra or ())], body)

    async def _end(self, status: int, extra: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """The end of a stream, or of a request that gets no body."""
        if self._gone:
            return
        if self._streaming:
            if self._pulse is not None:
                self._pulse.cancel()
            await self._line.send({"type": "http.response.body", "body": _event(body), "more_body": False})
        else:
            await self.respond(status, [*extra], b"")

    async def _follow(self, extra: Sequence[tuple[bytes, bytes]], events: AsyncGenerator[bytes, None]) -> None:
        """Pass on a stream that has a life of its own: it goes on where its reader hangs up."""
        async with aclosing(events):
            await self._open(extra)
            # A head that waits for its body must not wait for the first event, which may be long in coming.
            await self._line.send({"type": "http.response.body", "body": COMMENT, "more_body": True})
            async for event in events:
                await self._line.send({"type": "http.response.body", "body": event, "more_body": True})
            if self._pulse is not None:
                self._pulse.cancel()
            await self._line.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _open(self, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
        if not self._streaming:
            self._streaming, self.status = True, 200
            await self._line.send({"type": "http.response.start", "status": 200, "headers": [*STREAM, *extra]})
            if self._pulse is None:
                self._pulse = asyncio.create_task(self._keep_alive())

    async def emit(self, message: bytes) -> None:
        """Send a notification ahead of the reply; to a client that has gone, nothing."""
        if self._gone:
            return
        try:
            await self._open()
            await self._line.send({"type": "http.response.body", "body": _event(message), "more_body": True})
        except OSError:
            self._gone = True

    async def _keep_alive(self) -> None:
        """A word now and then, so that nobody takes the connection for dead; a reply that has not begun begins so."""
        with suppress(OSError):
            while True:
                await asyncio.sleep(self._keepalive)
                await self._open()
                await self._line.send({"type": "http.response.body", "body": COMMENT, "more_body": True})

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
        while (await self._line.receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        if self._line.task is not None:
            self._line.task.cancel()


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"
