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

from .._messages import Post, Reply
from . import Answerer
from .door import Callers, Doorkeeper, Headers, Reason, repeated, unfit

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


class Line(Protocol):
    """A connection whose request came whole: it takes a whole reply at once, and everything else as ASGI does. `task`
    is the one that serves it.
    """

    task: "asyncio.Task[None]"

    def reply(self, status: int, body: bytes) -> None:
        """The response, all of it; its body is JSON."""
        ...

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """ASGI's way to respond."""
        ...

    async def receive(self) -> MutableMapping[str, Any]:
        """ASGI's way to hear that the client has gone."""
        ...


class FrontOptions(TypedDict, total=False):
    """What an endpoint is told of how to serve."""

    path: str
    max_body: int
    keepalive: float
    life: Living | None
    doorkeeper: Doorkeeper | None


class Front:
    """The endpoint, for requests whose body is there. Where nobody announces that the server's life begins, as in a
    mounted application, `life` is made sure of before each call. `path` is where it is served.
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
        self._watchman = _Watchman()
        self._welcome: set[tuple[bytes | None, ...]] = set()

    def take(self, headers: dict[bytes, bytes], body: bytes, line: "Line") -> Awaitable[None]:
        """A request that came whole, from a server that gives it without ASGI: see `transports.uvicorn`."""
        get = headers.get
        if (get(b"host"), get(b"origin"), get(b"content-type"), get(b"accept")) not in self._welcome:
            refusal = self._unwelcome(list(headers.items()), headers)
            if refusal is not None:
                return self._turn_away(headers, line.send, *refusal)
        if len(body) > self._max_body:
            return refuse(line.send, 413, f"The body is larger than {self._max_body} bytes")
        if self._doorkeeper is not None or (self._life is not None and self._life.is_needed):
            return self._take_with_care(headers, body, line)
        exchange = Exchange(line.send, line.receive, self._keepalive, line.task, line.reply)
        post = Post(body, exchange.emit, time.time(), headers, None, None, line.task)
        return exchange.carry(self._wire.answer(post), self._watchman)

    async def _take_with_care(self, headers: dict[bytes, bytes], body: bytes, line: "Line") -> None:
        """The same where somebody has to be let in first, or something to be begun."""
        now = time.time()
        access = await self._admitted(list(headers.items()), now, line.send)
        if access is False:
            return
        if self._life is not None and self._life.is_needed and not await self._is_alive(self._life, line.send):
            return
        exchange = Exchange(line.send, line.receive, self._keepalive, line.task, line.reply)
        post = Post(body, exchange.emit, now, headers, access, None, line.task)
        await exchange.carry(self._wire.answer(post), self._watchman)

    async def _turn_away(self, headers: Mapping[bytes, bytes], send: Send, status: int, reason: str) -> None:
        if status in (403, 421):
            log.warning("Host %.100r, Origin %.100r: %s", headers.get(b"host"), headers.get(b"origin"), reason)
        await refuse(send, status, reason)

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

    async def _is_alive(self, life: Living, send: Send) -> bool:
        try:
            await life.ensure()
        except Exception:
            log.exception("the server's lifespan could not be entered")
            await refuse(send, 503, "The server could not be started")
            return False
        return True

    async def _admitted(self, listed: Headers, now: float, send: Send) -> Any:
        """Who is calling, None where nobody has to say; False where the request was turned away."""
        if self._doorkeeper is None:
            return None
        access = await self._doorkeeper.admit([value for name, value in listed if name == b"authorization"], now)
        if hasattr(access, "principal"):
            return access
        await refuse(send, access.status, access.description, access.headers)
        return False


class _Watchman:
    """Looks after the exchanges that take longer: from then on, a client that hangs up cancels.

    One timer serves them all, and most are over before it rings.
    """

    def __init__(self) -> None:
        self._exchanges: dict[Exchange, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, exchange: "Exchange") -> None:
        self._exchanges[exchange] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER, self._ring)

    def leave(self, exchange: "Exchange") -> None:
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

    _streaming = False
    _gone = False
    _seen = False
    _pulse: "asyncio.Task[None] | None" = None
    _watch: "asyncio.Task[None] | None" = None

    def __init__(
        self,
        send: Send,
        receive: Receive,
        keepalive: float,
        task: "asyncio.Task[Any] | None",
        reply: Callable[[int, bytes], None] | None = None,
    ) -> None:
        self._send = send
        self._receive = receive
        self._keepalive = keepalive
        self._reply = reply
        self._task = task

    async def carry(self, answer: Awaitable[Reply], watchman: _Watchman) -> None:
        """Get the reply and send it."""
        watchman.enter(self)
        try:
            status, body, extra, events = await answer
            if events is not None:
                await self._follow(extra, events)
            elif self._streaming or self._gone or body is None:
                await self._end(status, extra, body or b"")
            elif self._reply is not None and not extra:
                self._reply(status, body)
            else:
                headers = [JSON, (b"content-length", b"%d" % len(body)), *extra]
                await self._send({"type": "http.response.start", "status": status, "headers": headers})
                await self._send({"type": "http.response.body", "body": body})
        except OSError:
            self._gone = True
        except asyncio.CancelledError:
            if not self._gone or self._task is None:
                raise
            self._task.uncancel()
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
            await respond(self._send, status, [*extra], b"")

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
        if self._task is not None:
            self._task.cancel()


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """A whole response."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, status: int, reason: str, extra: Headers | None = None) -> None:
    """Turn a request away, before anybody has read what it says."""
    body = orjson.dumps({"jsonrpc": "2.0", "error": {"code": -32600, "message": reason}})
    with suppress(ConnectionError):
        await respond(send, status, [JSON, (b"content-length", str(len(body)).encode()), *(extra or ())], body)
