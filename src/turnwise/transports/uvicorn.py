"""Serving HTTP: uvicorn with uvloop and httptools, made to fit.

A request for the endpoint that is small and comes whole takes a lane of its own past ASGI: `App` gets headers and body
as they are, and the response leaves in one write. All else goes uvicorn's way: other paths and methods, large bodies,
bodies in chunks, requests that come before the last is answered. A reply that turns into a stream turns back to it.

A shutdown ends subscriptions before it waits for requests. Headers of proxies are not read, because nothing here
depends on the client's address.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from .asgi import App

log = logging.getLogger("turnwise.http")

GRACE = 30
_HEAD = b"HTTP/1.1 "
_INTERIM = b"HTTP/1.1 1"
"""100 Continue: the client waits for it before it sends its body."""


class _OneWrite:
    """A transport that keeps the head of a response until its body comes. `App` always sends the two together."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._kept = b""
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info

    def write(self, data: bytes) -> None:
        if self.is_closing():
            self._kept = b""  # A request behind another is not told that its client has gone.
        elif self._kept:
            self._transport.write(self._kept + data)
            self._kept = b""
        elif data.startswith(_HEAD) and not data.startswith(_INTERIM):
            self._kept = data
        else:
            self._transport.write(data)

    def close(self) -> None:
        if self._kept:
            self.write(b"")
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Lane:
    """One request that came whole, in the place of uvicorn's cycle. What it has of a cycle, the protocol looks at."""

    response_complete = False
    disconnected = False
    keep_alive = True
    _event: asyncio.Event | None = None
    _cycle: RequestResponseCycle | None = None

    def __init__(self, protocol: "_Protocol", headers: dict[bytes, bytes]) -> None:
        self._protocol = protocol
        self.headers = headers
        self.body = b""

    @property
    def message_event(self) -> asyncio.Event:
        """Set where the connection is lost."""
        if self._event is None:
            self._event = asyncio.Event()
        return self._event

    async def run(self, app: App) -> None:
        """Have the request answered; whatever goes wrong, the connection does not hang."""
        try:
            await app.take(self.headers, self.body, self)
        finally:
            if not self.response_complete and (self._cycle is None or not self._cycle.response_complete):
                self._protocol.transport.close()

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


class _Protocol(HttpToolsProtocol):
    _coming: _Lane | None = None
    _heads: tuple[Any, bytes] = (None, b"")

    def connection_made(self, transport: Any) -> None:
        super().connection_made(_OneWrite(transport))  # type: ignore[arg-type]
        self.write_whole: Callable[[bytes], None] = transport.write

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        headers = self._whole()
        if headers is not None:
            self._coming = _Lane(self, headers)
            self.cycle = self._coming  # type: ignore[assignment]
        else:
            self._begin_scope()
            super().on_headers_complete()

    def _whole(self) -> dict[bytes, bytes] | None:
        """The headers of a request that takes the lane: small, for the endpoint, with nothing before it."""
        parser, headers = self.parser, dict(self.headers)
        length = headers.get(b"content-length", b"")
        app = cast("App", self.config.app)
        if (
            self.url.decode("latin-1") != app.path
            or parser.get_method() != b"POST"
            or not length.isdigit()
            or len(length) > len(str(HIGH_WATER_LIMIT))
            or int(length) > HIGH_WATER_LIMIT
            or len(headers) != len(self.headers)
            or self.expect_100_continue
            or parser.should_upgrade()
            or parser.get_http_version() != "1.1"
            or not parser.should_keep_alive()
            or self.flow.write_paused
        ):
            return None
        return headers if self.cycle is None or self.cycle.response_complete else None

    def _begin_scope(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers

    def on_body(self, body: bytes) -> None:
        if self._coming is not None:
            self._coming.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        lane = self._coming
        if lane is None:
            super().on_message_complete()
            return
        self._coming = None
        task = self.loop.create_task(lane.run(cast("App", self.config.app)))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

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
        if self.cycle is cast("Any", lane):
            self.cycle = cycle
        return cycle

    def default_head(self) -> bytes:
        """The headers that uvicorn gives every response, written out once for as long as they stay the same."""
        headers = self.server_state.default_headers
        if _Protocol._heads[0] is not headers:
            _Protocol._heads = headers, b"".join(b"%b: %b\r\n" % header for header in headers)
        return _Protocol._heads[1]


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_shutdown = on_shutdown

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_shutdown()
        await super().shutdown(sockets)


def make_server(app: App, host: str, port: int, log_level: str, on_shutdown: Callable[[], None]) -> uvicorn.Server:
    """A server that lets requests in flight finish."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_Protocol,
        ws="none",
        log_level=log_level,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        lifespan="on",
    )
    return _Server(config, on_shutdown)
