"""One process that serves: what `turnwise serve` runs, by itself or several times."""

import asyncio
import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import uvicorn
from uvicorn import Server

from .._access import AccessLog, Witnesses
from .._hosting import MAX_BODY
from ..dialects.words import INSTANCE, INSTANCE_KEYS
from ..server import MCPServer
from ..transports.turnstile import RequestLimits
from ..transports.uvicorn import Stages, make_server, put_headers
from .keys import KeySource, NoKeys
from .loading import NotFound, load_keyed, own_frames, unimported
from .reloading import SIGNAL, hold_back, let_through

log = logging.getLogger("turnwise.serve")

BACKLOG = 2048
LOOK_SECONDS = 0.02
STRAGGLERS = 5.0
"""Seconds beyond drain and grace after which a worker that does not end is killed."""
REFUSED = 3
"""The exit code of a process that will not come up however often it is started."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """All that a serving process is told. `held` are keys that its parent read or drew for all its workers. With
    `is_patient`, what cannot be served is about to be mended.
    """

    server: str
    host: str = "127.0.0.1"
    port: int = 8000
    path: str = "/mcp"
    keys_file: str | None = None
    keys_env: str | None = None
    held: Sequence[str] = ()
    allowed_hosts: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    access_log: bool = True
    log_level: str = "info"
    metrics: bool = False
    max_body: int = MAX_BODY
    limits: dict[str, Any] = field(default_factory=dict)
    drain: float = 0.0
    grace: int = 30
    workers: int = 1
    hung_after: float = 60.0
    names_instance: bool = False
    says_where: bool = True
    says_keys: bool = True
    is_patient: bool = False

    @property
    def keys(self) -> KeySource:
        """Where its keys come from."""
        return KeySource(self.keys_file, self.keys_env)

    def written(self) -> dict[str, Any]:
        """The options as JSON takes them."""
        return asdict(self)


def serve_here(
    options: ServeOptions,
    listening: socket.socket | None = None,
    metrics: tuple[str, int] | None = None,
    pulse: int | None = None,
) -> int:
    """Serve until stopped; the exit code. `pulse` is a pipe to which a parent listens for signs of life."""
    set_up_logging(options)
    try:
        server = load_keyed(options.server, options.keys, options.held)
    except (NotFound, NoKeys) as error:
        log.error("%s", error)
        return _excused(options, listening, str(error))
    except Exception as error:  # Whatever importing the author's module raises.
        log.error("%s cannot be imported", options.server, exc_info=(type(error), error, own_frames(error)))
        return _excused(options, listening, unimported(options.server, error))
    try:
        listening = listening or listen(options.host, options.port)
        if metrics is not None:
            serve_figures(*metrics)
    except OSError as error:
        log.error("%s", error)
        return REFUSED
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(_serve(server, replace(options, port=listening.getsockname()[1]), listening, pulse))
    return _excused(options, listening, f"{server.name} cannot begin to serve: its log says why") if code else 0


def _excused(options: ServeOptions, listening: socket.socket | None, why: str) -> int:
    """Where there is no server: the exit code, or, if it is about to be mended, a word to those who call meanwhile."""
    if not options.is_patient or listening is None:
        return REFUSED
    hold_back()
    log.info("it is started anew when a file changes; until then who calls is told that")
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 503, "headers": headers})
        await send({"type": "http.response.body", "body": f"{why}\n".encode()})

    config = uvicorn.Config(app, log_config=None, log_level="warning", lifespan="off", ws="none", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])
    return REFUSED


class CannotListen(OSError):
    """A port that cannot be had; the message says which, and what to do."""

    def __init__(self, host: str, port: int, cause: OSError) -> None:
        number = cause.errno or 0
        super().__init__(number, os.strerror(number) if number > 0 else cause.strerror or str(cause))
        self._place = f"{host}:{port}"

    def __str__(self) -> str:
        hint = "; --port takes another one" if self.errno == errno.EADDRINUSE else ""
        return f"{self._place} cannot be listened on: {self.strerror}{hint}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that is listened on; CannotListen where it cannot be had."""
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(host, port, error) from None
    listening.setblocking(False)
    return listening


def serve_figures(host: str, port: int, registry: Any = None) -> None:
    """Serve figures for Prometheus from a thread; OSError where the port cannot be had."""
    from prometheus_client import REGISTRY, start_http_server

    try:
        start_http_server(port, host, registry or REGISTRY)
    except OSError as error:
        raise OSError(f"--metrics-port {port} on {host}: {error.strerror or error}") from None


async def _serve(server: MCPServer[Any], options: ServeOptions, listening: socket.socket, pulse: int | None) -> int:
    try:
        witnesses = _witnesses(server, options)
    except ValueError:  # The registry has such figures already.
        log.error("%s counts for itself already: leave out PrometheusMetrics() there, or --metrics-port", server.name)
        return REFUSED
    app = server.asgi(
        host=options.host,
        path=options.path,
        allowed_hosts=options.allowed_hosts or None,
        allowed_origins=options.allowed_origins or None,
        max_body=options.max_body,
        limits=RequestLimits(**options.limits),
        probes=True,
        witness=Witnesses(witnesses) if witnesses else None,
    )
    sign = (lambda: None) if pulse is None else partial(_sign, pulse)
    stages = Stages(server.close_subscriptions, server.drain, options.drain, options.grace, sign)
    level = "debug" if options.log_level == "debug" else "warning"  # Of its own uvicorn says where it is by process.
    named = _introduction(server, options)
    web = make_server(app, options.host, options.port, level, stages, log_config=None, headers=named)
    if SIGNAL is not None:
        asyncio.get_running_loop().add_signal_handler(SIGNAL, _reload, server, options, web)
        let_through()
    beside: list[Coroutine[Any, Any, None]] = [_say(server, options, web)] if options.says_where else []
    if pulse is not None:
        os.set_blocking(pulse, False)
        beside.append(_beat(web, sign, options.hung_after / 10))
    if options.metrics and server.tasks is not None:
        beside.append(witnesses[-1].follow_tasks(server.tasks))
    tasks = [asyncio.create_task(work) for work in beside]
    with suppress(SystemExit):  # Uvicorn's, where the server's life cannot begin.
        await web.serve(sockets=[listening])
    for task in tasks:
        task.cancel()
    return 0 if web.started else REFUSED


def _introduction(server: MCPServer[Any], options: ServeOptions) -> dict[str, str]:
    """How an instance calls itself in every response, and by which ids its keys are known."""
    if not options.names_instance:
        return {}
    name = f"{socket.gethostname()}:{os.getpid()}"
    return {INSTANCE: name, INSTANCE_KEYS: " ".join(server._security.key_ids) or "unknown"}


def _sign(pulse: int) -> None:
    with suppress(BlockingIOError, BrokenPipeError):  # A parent that does not listen has other worries.
        os.write(pulse, b".")


async def _beat(web: Server, sign: Callable[[], None], seconds: float) -> None:
    """Signs of life, from the loop itself, while it serves: the first is given when it begins to. What comes before may
    take its time.
    """
    await _is_up(web)
    while True:
        sign()
        await asyncio.sleep(seconds)


async def _is_up(web: Server) -> None:
    while not web.started:  # noqa: ASYNC110 - there is nothing to wait for
        await asyncio.sleep(LOOK_SECONDS)


def _witnesses(server: MCPServer[Any], options: ServeOptions) -> list[Any]:
    """Who is told of requests, and of rounds too."""
    witnesses: list[Any] = [AccessLog()] if options.access_log else []
    if options.metrics:
        from ..metrics import PrometheusMetrics

        witnesses.append(PrometheusMetrics())
    for witness in witnesses:
        server.observe(witness)
    return witnesses


async def _say(server: MCPServer[Any], options: ServeOptions, web: Server) -> None:
    """What an operator should know, once for all workers, and once it is true."""
    await _is_up(web)
    warn_of(options.keys)
    if options.says_keys and not options.keys and server.has_drawn_keys:
        log.info(
            "no keys were given, and one was drawn, which other machines do not have and which is gone when this ends: "
            "calls that wait for an answer then are begun anew by their clients, or refused. --keys-file keeps them"
        )
    if options.workers > 1 and server.has_sessions:
        log.info(
            "clients of 2025-11-25 and before have a session in one worker, and lose it at the others: serve those "
            "with --workers 1, each on a port of its own, behind a balancer that is sticky for them"
        )
    host = f"[{options.host}]" if ":" in options.host else options.host
    how_many = f" by {options.workers} workers" if options.workers > 1 else ""
    log.info("%s is served at http://%s:%d%s%s", server.name, host, options.port, options.path, how_many)


def warn_of(keys: KeySource) -> None:
    """What an operator should know of where keys come from."""
    if (warning := keys.warning()) is not None:
        log.warning("%s", warning)


def _reload(server: MCPServer[Any], options: ServeOptions, web: Server) -> None:
    """Take up the keys anew; where they cannot be had, go on with those that there are."""
    if options.keys_file is None:
        log.warning("SIGHUP reads --keys-file again, and there is none")
        return
    try:
        keys = options.keys.read()
    except NoKeys as error:
        log.error("the keys stay as they are: %s", error.reason)
        return
    if options.workers == 1:  # Of several workers, the parent warns.
        warn_of(options.keys)
    server.use_keys(keys)
    put_headers(web, _introduction(server, options))
    many = "1 key" if len(keys) == 1 else f"{len(keys)} keys"
    first, *others = server._security.key_ids
    log.info("%s from %s: %s mints%s", many, options.keys.name, first, "".join(f", {one} verifies" for one in others))


def set_up_logging(options: ServeOptions) -> None:
    """Lines of requests go to standard output, all else to standard error."""
    level = options.log_level.upper()
    log_lines(level)
    if options.access_log and level == "INFO":
        logging.getLogger("turnwise.flows").setLevel(logging.WARNING)  # The lines of requests have the same facts.
    access = logging.StreamHandler(sys.stdout)
    access.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("turnwise.access")
    logger.addHandler(access)
    logger.propagate = False
    logger.setLevel(logging.INFO if options.access_log else logging.CRITICAL)


def log_lines(level: str) -> None:
    """The log on standard error, each line with its time and its level."""
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
