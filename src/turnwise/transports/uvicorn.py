"""Serving HTTP: uvicorn with uvloop and httptools, and a shutdown that ends subscriptions before it waits."""

import socket
from collections.abc import Callable

import uvicorn

from .asgi import App

GRACE = 30


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
        log_level=log_level,
        access_log=False,
        timeout_graceful_shutdown=GRACE,
        server_header=False,
        lifespan="on",
    )
    return _Server(config, on_shutdown)
