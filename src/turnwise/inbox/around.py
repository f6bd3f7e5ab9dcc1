"""What stands around the inbox's application, whoever serves it: its place under a longer path, its work where nobody
else began it, and the headers of its replies.
"""

import asyncio
import logging
import re
import time
from collections.abc import Collection

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import CallerError
from .desk import Inbox
from .door import PAGE_HEADERS, Door
from .noting import plain

_PATH = re.compile(r"(/[A-Za-z0-9._~@!$&'()*+,=-]+)+")

HEALTH, READINESS = "/healthz", "/readyz"
READY_SECONDS = 3.0
_REFUSED = {
    401: "no token, or a wrong one",
    403: "a wrong token, or not from a page of this inbox",
    429: "too many wrong tokens",
}

log = logging.getLogger("turnwise.inbox")


class Headed:
    """Gives every reply the headers of a page, where it has no others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "etag" in headers:  # A file: the browser may keep it, and asks whether it is still the same.
                    headers.setdefault("cache-control", "no-cache")
                for name, value in PAGE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_on)


class Noted:
    """Writes down who was refused, and why; a Host that is not served is the door's to tell."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _REFUSED:
                status, peer = message["status"], (scope.get("client") or (None,))[0]
                who = plain(self._door.address(scope["headers"], peer) or peer or "an unknown address")
                words = "refused %s %s from %s with %d: %s"
                log.info(words, plain(scope["method"]), plain(scope["path"]), who, status, _REFUSED[status])
            await send(message)

        await self._app(scope, receive, send_on)


class Placed:
    """The application at a path of its own, such as /inbox. A proxy may have taken that path away, or have left it."""

    def __init__(self, app: ASGIApp, base: str) -> None:
        self._app = app
        self._base = base

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            root = scope.get("root_path", "") + self._base
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            rest = path.removeprefix(self._base) if path == self._base or path.startswith(f"{self._base}/") else path
            scope = {**scope, "root_path": root, "path": root + (rest or "/")}
        await self._app(scope, receive, send)


class Working:
    """Begins the inbox's work with the first request where nobody has: the lifespan of a mounted application is not
    run. Such work ends with the event loop.
    """

    def __init__(self, app: ASGIApp, inbox: Inbox) -> None:
        self._app = app
        self._inbox = inbox
        self._work: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, with the work behind it."""
        if scope["type"] == "http" and not self._inbox.is_running and (self._work is None or self._work.done()):
            log.warning(
                "the inbox's work begins with this request, because no lifespan began it: put `async with inbox.run()` "
                "into the lifespan of the application that it is mounted in, and calls go on from the start"
            )
            self._work = asyncio.get_running_loop().create_task(self._run())
        await self._app(scope, receive, send)

    async def _run(self) -> None:
        async with self._inbox.run():
            await asyncio.Event().wait()


def probes(inbox: Inbox) -> list[Route]:
    """Whether the process lives, and whether it can do its work: for whoever balances and restarts, without a token."""

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readiness(request: Request) -> Response:
        try:
            async with asyncio.timeout(READY_SECONDS):
                await inbox.store.next_due(time.time())
        except (CallerError, TimeoutError):
            return PlainTextResponse("the store does not answer\n", 503)
        if inbox.failing:
            return PlainTextResponse("".join(f"{fault}\n" for fault in inbox.failing), 503)
        return PlainTextResponse("ok\n")

    return [Route(HEALTH, health, methods=["GET"]), Route(READINESS, readiness, methods=["GET"])]


def checked_base(base: str, taken: Collection[str]) -> str:
    """The path under which an application is placed, without a slash at its end; ValueError where it cannot be."""
    path = base.rstrip("/")
    if not path:
        return ""
    if not _PATH.fullmatch(path):
        raise ValueError(f"not a path to put an inbox under: {base}")
    if (first := path.split("/")[1]) in taken:
        raise ValueError(f"an inbox cannot be put under {base}: it has a page /{first} of its own")
    return path
