"""The lane: how a request that is small and comes whole goes past ASGI.

`App` gets headers and body as they are, and the response leaves in one write. All else goes uvicorn's way: other paths
and methods, large bodies, bodies in chunks, requests that come before the last is answered. A reply that turns into a
stream turns back to it.
"""

import asyncio
import sys
from collections.abc import Callable
from typing import Any, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from .asgi import App
from .door import Headers

MOST_HEADS, LONGEST_HEAD = 512, 2048
_HEAD = b"HTTP/1.1 "
_INTERIM = b"HTTP/1.1 1"
"""100 Continue: the client waits for it before it sends its body."""


class _OneWrite:
    """A transport that keeps the head of a response until its body comes. `App` always sends the two together."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.kept = b""
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        if self.is_closing():
            self.kept = b""  # A request behind another is not told that its client has gone.
        elif self.kept:
            self._transport.write(self.kept + data)
            self.kept = b""
        elif data.startswith(_HEAD) and not data.startswith(_INTERIM):
            self.kept = data
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self.kept:
            self.write(b"")
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Lane:
    """One request that came whole, in the place of uvicorn's cycle. What it has of a cycle, the protocol looks at."""

    __slots__ = (
        "_cycle",
        "_event",
        "_protocol",
        "body",
        "disconnected",
        "headers",
        "keep_alive",
        "response_complete",
        "task",
    )

    def __init__(self, protocol: "Protocol", headers: dict[bytes, bytes], body: bytes = b"") -> None:
        self._protocol = protocol
        self.headers = headers
        self.body = body
        self.response_complete = self.disconnected = False
        self.keep_alive = True
        self.task: asyncio.Task[None]
        self._event: asyncio.Event | None = None
        self._cycle: RequestResponseCycle | None = None

    is_late = False
    """The body came before the request was begun."""

    @property
    def message_event(self) -> asyncio.Event:
        """Set where the connection is lost."""
        if self._event is None:
            self._event = asyncio.Event()
        return self._event

    async def run(self) -> None:
        """Have the request answered; whatever goes wrong, the connection does not hang."""
        protocol = self._protocol
        try:
            front = protocol.front
            await (front.take(self, self.body) if front.is_usual(self) else front.serve(self))
        finally:
            if not self.response_complete and (self._cycle is None or not self._cycle.response_complete):
                protocol.transport.close()
            protocol.tasks.discard(self.task)

    @property
    def listed(self) -> Headers:
        """The headers, none of which came twice."""
        return list(self.headers.items())

    @property
    def client(self) -> str | None:
        """The address at the other end."""
        client = self._protocol.client
        return None if client is None else client[0]

    async def read(self, most: int) -> bytes:
        """The body, which is there."""
        return self.body

    def reply(self, status: int, body: bytes) -> None:
        """The response, all of it."""
        self.response_complete = True
        protocol = self._protocol
        if protocol.transport.is_closing():
            return
        close = b"" if self.keep_alive else b"connection: close\r\n"
        protocol.write_whole(
            b"%b%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b"
            % (STATUS_LINE[status], protocol.default_head(), len(body), close, body)
        )
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()

    async def send(self, message: Any) -> None:
        """ASGI's way to respond: from here on this is one of uvicorn's cycles."""
        if self._cycle is None:
            self._cycle = self._protocol.cycle_for(self)
        await self._cycle.send(message)

    async def receive(self) -> Any:
        """The request has come: what may come yet is that the client goes."""
        while not (self.disconnected or (self._cycle is not None and self._cycle.disconnected)):
            await self.message_event.wait()
            self.message_event.clear()
        return {"type": "http.disconnect"}


class Heads:
    """The heads of requests that took the lane. Clients repeat themselves to the letter, and what the parser made of a
    head it would make of it again. Heads with credentials are not kept.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[dict[bytes, bytes], int]] = {}
        self.get = self._known.get

    def add(self, head: bytes, headers: dict[bytes, bytes]) -> None:
        """Keep a head, in the place of the oldest where there are many."""
        if len(head) > LONGEST_HEAD or b"authorization" in headers or b"cookie" in headers:
            return
        if len(self._known) >= MOST_HEADS:
            del self._known[next(iter(self._known))]
        self._known[head] = headers, int(headers[b"content-length"])


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, with a lane."""

    def __init__(self, *arguments: Any, heads: Heads, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._heads = heads

    _coming: _Lane | None = None
    _running: Any = None
    """The lane or cycle whose turn it is; `cycle` is the one that came last."""
    _default_heads: tuple[Any, bytes] = (None, b"")
    _is_between = True
    """Whether the parser is between two requests."""
    _is_in_body = False
    _last_word: str | None = None
    """Said to what is no HTTP, once what came before it is answered."""
    _rests_since = 0.0
    _segment = _again = b""
    """What is being parsed, and what is to be parsed again."""

    def connection_made(self, transport: Any) -> None:
        """A client is there."""
        self._line = _OneWrite(transport)
        super().connection_made(self._line)  # type: ignore[arg-type]
        self.write_whole: Callable[[bytes], None] = transport.write
        self.front = cast("App", self.config.app)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is not any more."""
        super().connection_lost(exc)
        if self._running is not None and self._running is not self.cycle:
            self._running.disconnected = True
            self._running.message_event.set()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()

    def data_received(self, data: bytes) -> None:
        """It says something: often a whole request, with a head that came before."""
        if not self._is_between or (self.cycle is not None and not self.cycle.response_complete):
            self._parse(data)
            return
        head = data[: data.find(b"\r\n\r\n") + 4]
        headers, length = self._heads.get(head, (None, 0))
        if headers is not None and len(data) == len(head) + length and not self.flow.write_paused:
            self._begin(_Lane(self, headers, data[len(head) :]))
            return
        before = self.cycle
        self._parse(data)
        lane: Any = self.cycle
        if lane is not before and isinstance(lane, _Lane) and len(data) == len(head) + len(lane.body):
            self._heads.add(head, lane.headers)

    def _parse(self, data: bytes) -> None:
        while data:
            self._segment, self._again = data, b""
            super().data_received(data)
            data, self._segment = self._again, b""

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore that a request asks for another protocol, as servers may. Its body comes as if it had not, but the
        parser stops before it: another one goes on, with the same head but for this.
        """
        if not self._is_upgrade():
            return
        fields = b"".join(b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade")
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        stopped: Any = sys.exception()
        rest = self._segment[stopped.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._again = b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self.url, version, fields, rest)

    def _is_upgrade(self) -> bool:
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def on_message_begin(self) -> None:
        """A request begins. What ASGI wants to know of it is gathered only where it goes that way."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = self._is_between = self._is_in_body = False

    def on_headers_complete(self) -> None:
        """Its headers are there, and with them it is settled which way it goes."""
        if self._is_upgrade():
            return
        headers = self._whole()
        if headers is not None:
            self._coming = _Lane(self, headers)
            self.cycle = self._coming  # type: ignore[assignment]
        else:
            self._begin_scope()
            super().on_headers_complete()
            if not self.pipeline:
                self._running = self.cycle
        self._is_in_body = True

    def _whole(self) -> dict[bytes, bytes] | None:
        """The headers of a request that takes the lane: small, for the endpoint, with nothing before it."""
        parser, headers = self.parser, dict(self.headers)
        length = headers.get(b"content-length", b"")
        if (
            self.url.decode("latin-1") != self.front.path
            or parser.get_method() != b"POST"
            or not length.isdigit()
            or len(length) > len(str(HIGH_WATER_LIMIT))
            or int(length) > HIGH_WATER_LIMIT
            or len(headers) != len(self.headers)
            or self.expect_100_continue
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or self.flow.write_paused
        ):
            return None
        return headers if self.cycle is None or self.cycle.response_complete else None

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in its turn: it is no reply to what came before it."""
        if self._last_word is not None:
            return
        if self._is_in_body and self.pipeline:
            self.pipeline.popleft()
        elif self._is_in_body and self.cycle.response_started:
            self.transport.close()
            return
        elif self._is_in_body or self._running is None or self._running.response_complete:
            super().send_400_response(msg)
            return
        self._last_word = msg
        self.flow.pause_reading()

    def _begin_scope(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers

    def on_body(self, body: bytes) -> None:
        """A part of its body."""
        if self._coming is not None:
            self._coming.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        if self._is_upgrade():
            return
        lane, self._coming, self._is_between, self._is_in_body = self._coming, None, True, False
        if lane is None:
            super().on_message_complete()
        else:
            self._begin(lane)

    def _begin(self, lane: _Lane) -> None:
        self.cycle = self._running = lane  # type: ignore[assignment]
        lane.task = self.loop.create_task(lane.run())
        self.tasks.add(lane.task)

    def cycle_for(self, lane: _Lane) -> RequestResponseCycle:
        """The lane's request as one of uvicorn's own."""
        cycle = RequestResponseCycle(
            scope={"method": "POST", "http_version": "1.1"},  # type: ignore[typeddict-item]
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=lane.message_event,
            expect_100_continue=False,
            keep_alive=lane.keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.disconnected = lane.disconnected
        self._running = cycle
        if self.cycle is cast("Any", lane):
            self.cycle = cycle
        return cycle

    def default_head(self) -> bytes:
        """The headers that uvicorn gives every response, written out once for as long as they stay the same."""
        headers = self.server_state.default_headers
        if Protocol._default_heads[0] is not headers:
            Protocol._default_heads = headers, b"".join(b"%b: %b\r\n" % header for header in headers)
        return Protocol._default_heads[1]

    # A connection that rests for too long is closed. One timer stays for as long as it is needed.

    def on_response_complete(self) -> None:
        """It is answered; the connection rests, or has another request waiting."""
        if self._line.kept:  # The response to HEAD, for which no body comes.
            self._line.write(b"")
        if self._last_word is not None and not self.pipeline and not self.transport.is_closing():
            super().send_400_response(self._last_word)
            return
        if self.pipeline or self.transport.is_closing():
            self._running = self.pipeline[-1][0] if self.pipeline else None
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        if self.flow.read_paused:
            self.flow.resume_reading()
        self._rests_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._rest(self.timeout_keep_alive)

    def _rest(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """The timer looks for itself whether the connection rests."""

    def timeout_keep_alive_handler(self) -> None:
        """The timer rings."""
        self.timeout_keep_alive_task = None
        if self._is_between and (self.cycle is None or self.cycle.response_complete):
            left = self._rests_since + self.timeout_keep_alive - self.loop.time()
            if left > 0:
                self._rest(left)
            else:
                super().timeout_keep_alive_handler()
