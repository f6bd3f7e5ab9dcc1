"""A connection without sockets: bytes go straight into the HTTP protocol that `server.run("http")` serves with, or into
uvicorn's own in front of the same application, and what it writes is read back as responses.

The transport behaves as a real one does: what comes while reading is paused waits, nothing comes after the end, and the
end is told from the loop.
"""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from turnwise.transports.uvicorn import Stages, make_server

T = TypeVar("T")

PATIENCE = 10.0
IDLE = 12
"""So many turns of the loop in which nothing happens, and nothing will: no tool here waits for anything."""


class Response(NamedTuple):
    """One response, with what differs from one time to the next made the same."""

    status: int
    kind: str
    said: Any
    closes: bool
    continued: bool
    """Whether the client was told to go on with its body."""


@dataclass
class Failures:
    """What was logged as an error, and what nobody caught."""

    found: list[str]

    def unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(f"{context.get('message')} {context.get('exception')!r}")


class _Listener(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(f"{record.getMessage()} {record.exc_info and record.exc_info[1]!r}")


@contextmanager
def no_failures() -> Iterator[Failures]:
    """Nothing is logged as an error by anybody, and no exception is left over."""
    failures = Failures([])
    listener = _Listener(failures.found)
    loggers = [logging.getLogger(name) for name in ("turnwise", "uvicorn.error", "asyncio")]
    noisy = logging.getLogger("uvicorn.error")
    level = noisy.level
    noisy.setLevel(logging.ERROR)
    for logger in loggers:
        logger.addHandler(listener)
    try:
        yield failures
    finally:
        noisy.setLevel(level)
        for logger in loggers:
            logger.removeHandler(listener)
    assert not failures.found, failures.found


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The work in a loop of its own, in which nothing fails unheard and nothing waits for ever."""
    with no_failures() as failures:

        async def main() -> T:
            asyncio.get_running_loop().set_exception_handler(failures.unhandled)
            async with asyncio.timeout(PATIENCE):
                return await work()

        return asyncio.run(main())


class Transport(asyncio.Transport):
    """The server's end of a connection."""

    def __init__(self, deliver: Callable[[bytes], None], lost: Callable[[Exception | None], None]) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_lost = False
        self._deliver, self._lost = deliver, lost
        self._waiting: deque[bytes] = deque()
        self._is_paused = self._is_closing = False

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing:
            self.written += data

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self._go_on)

    def feed(self, data: bytes) -> None:
        """What the client sends."""
        self._waiting.append(data)
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and not self._is_paused and not self._is_closing:
            self._deliver(self._waiting.popleft())

    def close(self) -> None:
        self.lose(None)

    def lose(self, error: Exception | None) -> None:
        """The end of the connection."""
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._end, error)

    def _end(self, error: Exception | None) -> None:
        self.is_lost = True
        self._lost(error)

    def abort(self) -> None:
        self.lose(None)


class Service:
    """An application behind an HTTP server, to which connections are made."""

    def __init__(self, app: Any, *, is_plain: bool = False) -> None:
        if is_plain:
            self.config = uvicorn.Config(app, http=HttpToolsProtocol, ws="none", log_level="warning", access_log=False)
        else:
            self.config = make_server(app, "127.0.0.1", 0, "warning", Stages(lambda: None)).config
        self.config.load()
        self.state = ServerState()

    def connect(self) -> "Connection":
        return Connection(self)


class Connection:
    """A client's end."""

    def __init__(self, service: Service) -> None:
        make_protocol: Any = service.config.http_protocol_class
        self.protocol: Any = make_protocol(config=service.config, server_state=service.state, app_state={})
        self.transport = Transport(self.protocol.data_received, self.protocol.connection_lost)
        self.tasks: set[asyncio.Task[Any]] = service.state.tasks
        self.protocol.connection_made(self.transport)

    async def idle(self, nudge: Callable[[], None] | None = None) -> None:
        """Until nothing happens any more."""
        before, quiet = (-1, -1), 0
        while quiet < IDLE:
            if nudge is not None:
                nudge()
            await asyncio.sleep(0)
            now = (len(self.transport.written), len(self.tasks))
            before, quiet = now, quiet + 1 if now == before else 0

    async def hang_up(self, error: Exception | None = None) -> None:
        """The client goes; what it had begun comes to an end."""
        self.transport.lose(error)
        async with asyncio.timeout(PATIENCE / 4):
            while self.tasks or not self.transport.is_lost:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.001 if self.transport.is_lost else 0)

    def responses(self, methods: Sequence[str] = ()) -> list[Response]:
        """All that was written, read to its last byte. A response to HEAD has no body."""
        return list(read(bytes(self.transport.written), methods))


def read(data: bytes, methods: Sequence[str] = ()) -> Iterator[Response]:
    number, continued = 0, False
    while data:
        head, gap, data = data.partition(b"\r\n\r\n")
        assert gap, f"half a response: {head!r}"
        line, *fields = head.split(b"\r\n")
        status = int(line.split(b" ")[1])
        if status == 100:
            continued = True
            continue
        headers = {name.lower(): value for name, _, value in (field.partition(b": ") for field in fields)}
        method = methods[number] if number < len(methods) else "POST"
        number += 1
        body, data = _body(headers, data) if method != "HEAD" and status not in (204, 304) else (b"", data)
        kind = headers.get(b"content-type", b"").decode()
        yield Response(status, kind, _said(kind, body), headers.get(b"connection") == b"close", continued)
        continued = False


def _body(headers: dict[bytes, bytes], data: bytes) -> tuple[bytes, bytes]:
    if headers.get(b"transfer-encoding") != b"chunked":
        length = int(headers[b"content-length"])
        assert len(data) >= length, "half a body"
        return data[:length], data[length:]
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        assert size, "a stream without an end"
        part, data = data[: int(size, 16)], data[int(size, 16) :]
        assert data.startswith(b"\r\n"), "half a chunk"
        data = data[2:]
        if not part:
            return body, data
        body += part


def _said(kind: str, body: bytes) -> Any:
    if kind == "application/json" and body:
        return same(json.loads(body))
    if kind == "text/event-stream":
        events = [part.removeprefix(b"event: message\r\ndata: ") for part in body.split(b"\r\n\r\n")]
        return [same(json.loads(part)) for part in events if part and part != b":"]
    return body


def same(message: Any) -> Any:
    """A message without what is new each time: sealed tokens."""
    if isinstance(message, dict):
        return {name: "sealed" if name == "requestState" else same(part) for name, part in message.items()}
    return [same(part) for part in message] if isinstance(message, list) else message
