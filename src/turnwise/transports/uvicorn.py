"""Serving HTTP: uvicorn with uvloop and httptools, made to fit.

A response leaves in one write: uvicorn writes the head and the body apart, and on a busy server the second system call
costs more than the call that it answers. A shutdown ends subscriptions before it waits for requests. Headers of proxies
are not read, because nothing here depends on the client's address.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .asgi import App

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
        if self._kept:
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


class _Protocol(HttpToolsProtocol):
    def connection_made(self, transport: Any) -> None:
        super().connection_made(_OneWrite(transport))  # type: ignore[arg-type]


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
