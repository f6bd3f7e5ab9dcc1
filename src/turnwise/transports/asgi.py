"""HTTP: one endpoint that takes POST, as an ASGI application.

What is done with a request once its body is there is next door, in `exchange`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from typing_extensions import Unpack

from .._messages import Post, Reply
from . import Answerer, Attendant
from .door import Callers, Headers, names_of, repeated
from .exchange import JSON, Exchange, Front, FrontOptions, Receive, Scope, Send, refuse, respond


class App(Front):
    """The endpoint, as ASGI serves it. `start` and `stop` frame the server's life where its beginning is announced."""

    def __init__(
        self,
        wire: Answerer,
        callers: Callers,
        *,
        start: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
        documents: Mapping[str, bytes] | None = None,
        attendant: Attendant | None = None,
        **options: Unpack[FrontOptions],
    ) -> None:
        super().__init__(wire, callers, **options)
        self._start = start
        self._stop = stop
        self._documents = documents or {}
        self._attendant = attendant

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI entry."""
        if scope["type"] == "http":
            if scope["path"] == self.path and scope["method"] == "POST":
                await self._post(scope, receive, send)
                return
            path = scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/")
            if path == self.path and scope["method"] == "POST":
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
        refusal = self._unwelcome(listed, headers)
        if refusal is not None:
            await self._turn_away(headers, send, *refusal)
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
            await refuse(send, 413, f"The body is larger than {self._max_body} bytes")
            return
        if self._life is not None and self._life.is_needed and not await self._is_alive(self._life, send):
            return
        exchange = Exchange(send, receive, self._keepalive, task := asyncio.current_task())
        post = Post(body, exchange.emit, now, headers, access, None, task)
        await exchange.carry(self._wire.answer(post), self._watchman)

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

    async def _elsewhere(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        document = self._documents.get(path) if scope["method"] in ("GET", "HEAD") else None
        if document is not None:
            headers = [JSON, (b"content-length", str(len(document)).encode()), (b"access-control-allow-origin", b"*")]
            await respond(send, 200, headers, document if scope["method"] == "GET" else b"")
        elif path == self.path and (refusal := self._callers.refusal(*names_of(scope["headers"]))) is not None:
            await refuse(send, *refusal)
        elif path == self.path:
            await self._attended(scope, receive, send)
        else:
            await refuse(send, 404, f"The MCP endpoint is {self.path or '/'}")

    async def _attended(self, scope: Scope, receive: Receive, send: Send) -> None:
        """GET and DELETE, where they belong to a session; nobody else has a use for them."""
        listed: Headers = scope["headers"]
        verb, headers, now = scope["method"], dict(listed), time.time()
        if self._attendant is not None and verb in ("GET", "DELETE") and b"mcp-session-id" in headers:
            if len(headers) != len(listed) and (refusal := repeated(listed)) is not None:
                await refuse(send, *refusal)
                return
            access = await self._admitted(listed, now, send)
            if access is False:
                return
            exchange = Exchange(send, receive, self._keepalive, task := asyncio.current_task())
            post = Post(b"", exchange.emit, now, headers, access, None, task)
            reply = await self._attendant.attend(verb, post)
            if reply is not None:
                await exchange.carry(_ready(reply), self._watchman)
                return
        reason = "Only POST is served here"
        if self._attendant is not None:
            reason += "; GET and DELETE belong to a session, which Mcp-Session-Id names"
        await refuse(send, 405, reason, [(b"allow", b"POST")])

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


async def _ready(reply: Reply) -> Reply:
    return reply
