"""HTTP: one endpoint that takes POST, as an ASGI application.

What is done with a request once it is there is next door, in `exchange`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

from typing_extensions import Unpack

from .._messages import Post, Reply
from . import Answerer, Attendant
from .door import Callers, Headers, repeated
from .exchange import JSON, Exchange, Front, FrontOptions, Line, Watchman

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Pages = Callable[[Scope], Callable[[Scope, Receive, Send], Awaitable[None]] | None]
"""Who serves what is beside the endpoint: an application for a request, or None."""

BODY_WITHIN = 60.0
"""Seconds in which the rest of a body that comes in parts has to come."""


class _Asgi:
    """A request as ASGI gives it."""

    reply = None

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.listed: Headers = scope["headers"]
        self.headers = dict(self.listed)
        self.method: str = scope["method"]
        self.path: str = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
        self.task = asyncio.current_task()
        self._client = scope.get("client")
        self._body: bytes | None = None
        self.is_late = False
        self.send = send
        self.receive = receive
        self.scope = scope

    @property
    def client(self) -> str | None:
        return None if self._client is None else str(self._client[0])

    async def read(self, most: int) -> bytes | None:
        if self._body is None and not self.is_late:
            message = await self.receive()
            if message["type"] != "http.request":
                return None
            self._body = message.get("body", b"")
            if message.get("more_body"):  # Most come whole, and need no timer.
                self._body = await self._rest(self._body, most)
        return self._body

    async def _rest(self, first: bytes, most: int) -> bytes | None:
        parts, size = [first], len(first)
        try:
            async with asyncio.timeout(BODY_WITHIN):
                while size <= most and (message := await self.receive())["type"] == "http.request":
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            self.is_late = True
        return b"".join(parts) if size > most else None


class App(Front):
    """The endpoint, as ASGI serves it. `start` and `stop` frame the server's life where its beginning is announced.
    `documents` are served as they are, `probes` say how the server is, `pages` are the author's own.
    """

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        wire: Answerer,
        callers: Callers,
        *,
        start: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
        documents: Mapping[str, bytes] | None = None,
        probes: Mapping[str, Callable[[], str | None]] | None = None,
        attendant: Attendant | None = None,
        pages: Pages = lambda scope: None,
        **options: Unpack[FrontOptions],
    ) -> None:
        super().__init__(wire, callers, **options)
        self._start = start
        self._stop = stop
        self._documents = documents or {}
        self._probes = probes or {}
        self._attendant = attendant
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "http":
            line = _Asgi(scope, receive, send)
            if line.path == self.path and line.method == "POST":
                is_usual = len(line.headers) == len(line.listed) and self.is_usual(line)
                if is_usual and (body := await line.read(self._max_body)) is not None:
                    await self.take(line, body)
                else:
                    await self.serve(line)
            elif line.path in self._probes:
                await self._probed(line)  # Not worth a witness: probes come every few seconds.
            else:
                await self.witnessed(line, self._elsewhere)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _probed(self, line: _Asgi) -> None:
        trouble = self._probes[line.path]()
        body = b"ok\n" if trouble is None else f"{trouble}\n".encode()
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
        sent = b"" if line.method == "HEAD" else body
        await Exchange(line, 0).respond(200 if trouble is None else 503, headers, sent)

    async def _elsewhere(self, line: Line, exchange: Exchange) -> None:
        assert isinstance(line, _Asgi)
        document = self._documents.get(line.path) if line.method in ("GET", "HEAD") else None
        page = self._pages(line.scope) if document is None and line.path != self.path else None
        host, origin = line.headers.get(b"host"), line.headers.get(b"origin")
        if document is not None:
            headers = [JSON, (b"content-length", b"%d" % len(document)), (b"access-control-allow-origin", b"*")]
            await exchange.respond(200, headers, document if line.method == "GET" else b"")
        elif (page or line.path == self.path) and (refusal := self._callers.refusal(host, origin)) is not None:
            await exchange.refuse(*refusal)
        elif page is not None:
            await page(line.scope, line.receive, partial(_passed, line, exchange))
        elif line.path == self.path:
            await self._attended(line, exchange)
        else:
            await exchange.refuse(404, f"The MCP endpoint is {self.path or '/'}")

    async def _attended(self, line: _Asgi, exchange: Exchange) -> None:
        """GET and DELETE, where they belong to a session; nobody else has a use for them."""
        headers, now = line.headers, time.time()
        if self._attendant is not None and line.method in ("GET", "DELETE") and b"mcp-session-id" in headers:
            if len(headers) != len(line.listed) and (refusal := repeated(line.listed)) is not None:
                await exchange.refuse(*refusal)
                return
            access = await self.admitted(line, exchange, now)
            if access is False:
                return
            post = Post(b"", exchange.emit, now, headers, access, None, line.task)
            reply = await self._attendant.attend(line.method, post)
            if reply is not None:
                await exchange.carry(_ready(reply), self._watchman)
                return
        reason = "Only POST is served here"
        if self._attendant is not None:
            reason += "; GET and DELETE belong to a session, which Mcp-Session-Id names"
        await exchange.refuse(405, reason, [(b"allow", b"POST")])

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._watchman = Watchman()  # One that has watched in another loop has a timer there.
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


async def _passed(line: Line, exchange: Exchange, message: MutableMapping[str, Any]) -> None:
    exchange.status = message.get("status", exchange.status)
    await line.send(message)


async def _ready(reply: Reply) -> Reply:
    return reply
