"""Serving HTTP: uvicorn with uvloop and httptools, made to fit.

Its protocol is our `lane`. A shutdown ends subscriptions before it waits for requests. Headers of proxies are not read,
because nothing here depends on the client's address.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, cast

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from .asgi import App
from .lane import Heads, Protocol

GRACE = 30
log = logging.getLogger("uvicorn.error")  # Where uvicorn says on which address it listens, but not at which path.


class _Server(uvicorn.Server):
    """A server that is told when it is about to end. With `drain`, it serves on for so many seconds before it does."""

    def __init__(self, config: uvicorn.Config, stages: "Stages", endpoint: "Endpoint | None") -> None:
        super().__init__(config)
        self._stages = stages
        self._endpoint = endpoint
        self._is_draining = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._stages.on_start()
        if self.started and self._endpoint is not None:
            host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            port = self.servers[0].sockets[0].getsockname()[1]
            log.info("%s is served at http://%s:%d%s", self._endpoint.name, host, port, self._endpoint.path)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._stages.drain <= 0 or self._is_draining or self.should_exit:
            super().handle_exit(sig, frame)
            return
        self._is_draining = True
        self._stages.on_drain()
        loop = self.servers[0].get_loop() if self.servers else asyncio.get_event_loop()
        loop.call_soon_threadsafe(loop.call_later, self._stages.drain, self._drained, sig, frame)

    def _drained(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:  # Else it was told again meanwhile, and this would count as once more.
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._stages.on_shutdown()
        await super().shutdown(sockets)


class Endpoint(NamedTuple):
    """What is served, and at which path."""

    name: str
    path: str


class Stages(NamedTuple):
    """How a server ends: seconds in which it serves on and says that it leaves, then what ends subscriptions, then
    seconds for requests under way. `on_start` is called when it serves, before the first request.
    """

    on_shutdown: Callable[[], None]
    on_drain: Callable[[], None] = lambda: None
    drain: float = 0.0
    grace: int = GRACE
    on_start: Callable[[], None] = lambda: None


def make_server(  # noqa: PLR0913 - by keyword
    app: App,
    host: str,
    port: int,
    log_level: str,
    stages: Stages,
    *,
    log_config: Any = LOGGING_CONFIG,
    headers: Mapping[str, str] | None = None,
    endpoint: Endpoint | None = None,
) -> uvicorn.Server:
    """A server that lets requests in flight finish. `headers` are in every response; `endpoint` is what its log says of
    where it is.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=cast("type[Protocol]", partial(Protocol, heads=Heads())),
        ws="none",
        log_level=log_level,
        log_config=log_config,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=_listed(headers or {}),
        timeout_graceful_shutdown=stages.grace,
        lifespan="on",
    )
    return _Server(config, stages, endpoint)


def put_headers(server: uvicorn.Server, headers: Mapping[str, str]) -> None:
    """Have other headers in every response, within a second."""
    server.config.headers = _listed(headers)
    server.config.encoded_headers = [(name.encode(), value.encode()) for name, value in server.config.headers]


def _listed(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in headers.items()]
