"""A server as an HTTP application: who is let in, how much is taken, and where it is looked at."""

import logging
import multiprocessing
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import orjson
from typing_extensions import TypedDict

from . import _moving
from ._sealed import RequestStateSecurity
from ._sessions import Sessions
from .auth import AuthSettings, Gate, TokenVerifier, metadata_path, protected_resource_metadata
from .transports import Answerer, Attendant
from .transports.asgi import App, Pages
from .transports.door import LOCAL, Callers
from .transports.exchange import Living, Witness
from .transports.turnstile import RequestLimits, Turnstile

log = logging.getLogger("turnwise.server")

MAX_BODY = 4 * 2**20
HEALTH, READINESS = "/healthz", "/readyz"


class HttpOptions(TypedDict, total=False):
    """How a server is served over HTTP."""

    path: str
    host: str
    allowed_hosts: Sequence[str] | None
    allowed_origins: Sequence[str] | None
    max_body: int
    keepalive: float
    limits: RequestLimits | None
    probes: bool
    witness: Witness | None


class Parts(NamedTuple):
    """What a server has that an application is made of."""

    wire: Answerer
    attendant: Attendant | None
    life: Living
    start: Callable[[], Awaitable[None]]
    stop: Callable[[], Awaitable[None]]
    trouble: Callable[[], str | None]
    pages: Pages


def check_options(what: str, options: Mapping[str, Any], *more: str) -> None:
    """TypeError for an option that there is not; `more` are taken beside those of an application."""
    known = [*HttpOptions.__annotations__, *more]
    if unknown := [name for name in options if name not in known]:
        raise TypeError(_moving.unknown(what, unknown[0], _moving.HTTP, known))


def checked_level(level: str | None) -> str | None:
    """A level of the log, by its name in capitals; ValueError where it is none."""
    name = level.upper() if isinstance(level, str) else level
    if name is not None and name not in logging.getLevelNamesMapping():
        raise ValueError(f"log_level is DEBUG, INFO, WARNING, ERROR or CRITICAL, not {level!r}")
    return name


def application(parts: Parts, verifier: TokenVerifier | None, auth: AuthSettings | None, options: HttpOptions) -> App:
    """The application; TypeError for an option that there is not."""
    check_options("asgi", options)
    host, limits = options.get("host", "127.0.0.1"), options.get("limits")
    if limits is not None and not isinstance(limits, RequestLimits):
        raise TypeError(f"limits is a RequestLimits(...), not {type(limits).__name__}")
    doorkeeper = None if verifier is None or auth is None else Gate(verifier, auth)
    return App(
        parts.wire,
        Callers(host, _hosts(options.get("allowed_hosts"), host, auth), options.get("allowed_origins")),
        path=options.get("path", "/mcp"),
        max_body=options.get("max_body", MAX_BODY),
        keepalive=options.get("keepalive", 15.0),
        start=parts.start,
        stop=parts.stop,
        life=parts.life,
        doorkeeper=doorkeeper,
        turnstile=None if limits is None else Turnstile(limits),
        witness=options.get("witness"),
        documents=_documents(auth),
        probes={HEALTH: _healthy, READINESS: parts.trouble} if options.get("probes") else {},
        attendant=parts.attendant,
        pages=parts.pages,
    )


def _healthy() -> None:
    """Who can answer this is alive."""


def _documents(auth: AuthSettings | None) -> Mapping[str, bytes]:
    if auth is None:
        return {}
    return {unquote(metadata_path(auth.resource_server_url)): orjson.dumps(protected_resource_metadata(auth))}


def _hosts(allowed: Sequence[str] | None, bind: str, auth: AuthSettings | None) -> Sequence[str] | None:
    if allowed is not None or auth is None or bind not in (*LOCAL, "::1"):
        return allowed
    return (*LOCAL, urlsplit(auth.resource_server_url).netloc)


def warn_of_siblings(security: RequestStateSecurity, sessions: Sessions | None) -> None:
    """Say what does not work where several workers share a port."""
    if not _has_siblings():
        return
    if security.is_process_local:
        log.warning(
            "several workers run, but each seals requestState under a key of its own: a retry that reaches another "
            "worker is refused. Share one: RequestStateSecurity(keys=[...])"
        )
    if sessions is not None:
        log.warning(
            "several workers run: clients of 2025-11-25 and before have a session in one of them, and lose it at "
            "the others. Give each process a port and make the balancer sticky for them, or pass sessions=False"
        )


def _has_siblings() -> bool:
    with suppress(ValueError):
        if int(os.environ.get("WEB_CONCURRENCY", "1")) > 1:
            return True
    return multiprocessing.parent_process() is not None
