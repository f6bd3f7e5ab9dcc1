"""Requests to a server in the same process: its ASGI application, called as a web server calls it."""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import count
from typing import Any

from bench.wire import FIRST_ID, META, VERSION, WrongReply

Message = MutableMapping[str, Any]
Application = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class Caller:
    """Calls one tool of one application."""

    def __init__(self, application: Application, tool: str) -> None:
        self._application = application
        self._tool = tool
        self._ids = count(FIRST_ID)
        self._headers = [
            (b"host", b"127.0.0.1:8000"),
            (b"content-type", b"application/json"),
            (b"accept", b"application/json, text/event-stream"),
            (b"mcp-protocol-version", VERSION.encode()),
            (b"mcp-method", b"tools/call"),
            (b"mcp-name", tool.encode()),
        ]

    def written(self, arguments: dict[str, Any], **retry: Any) -> bytes:
        """The body of a call; `retry` is what the second and later rounds add."""
        params = {"name": self._tool, "arguments": arguments, **retry, "_meta": META}
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()

    def request(self, body: bytes) -> bytes:
        """The same request as it goes over a connection."""
        headers = [*self._headers, (b"content-length", b"%d" % len(body))]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        return b"POST /mcp HTTP/1.1\r\n" + lines + b"\r\n" + body

    async def post(self, body: bytes) -> bytes:
        """The body of the reply, which has to be a 200."""
        received: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            received.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": [*self._headers, (b"content-length", b"%d" % len(body))],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
        }
        await self._application(scope, receive, send)
        if received[0]["status"] != 200:
            raise WrongReply(f"not a 200: {received!r}")
        return b"".join(message.get("body", b"") for message in received[1:])
