"""The inbox as one ASGI application: the pages at its root, the API beside them, and the work behind both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .api import create_api
from .desk import Inbox
from .door import PAGE_HEADERS, Door
from .web import PATIENCE, Pages, problem_page

API = "/api/v1"
_SAID = {404: ("Nothing is here", "The address leads nowhere."), 405: ("Not in this way", "Open the page again.")}


class _Headers:
    """Gives every reply the headers of a page, where it has no others."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "etag" in headers:  # A file: the browser may keep it, and asks whether it is still the same.
                    headers.setdefault("cache-control", "no-cache")
                for name, value in PAGE_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_on)


class _Beside:
    """The API under its prefix; all else is for the pages. A path may have anything in it, line breaks too."""

    def __init__(self, app: ASGIApp, api: ASGIApp) -> None:
        self._app = app
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "") + API
        if scope["type"] == "http" and scope["path"].startswith((f"{root}/", f"{API}/")):
            await self._api({**scope, "root_path": root}, receive, send)
        else:
            await self._app(scope, receive, send)


async def _said(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return problem_page(request, status, *_SAID.get(status, ("That went wrong", "The inbox has logged why.")))


def create_app(inbox: Inbox, door: Door, *, patience: float = PATIENCE) -> Starlette:
    """An application that serves an inbox. Its work runs for as long as the application does.

    Browsers without a script see what comes of an answer if it comes within `patience` seconds; others see it anyway.
    """

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with inbox.run():
            yield

    routes = Pages(inbox, door, patience=patience).routes
    handlers = {404: _said, 405: _said, 500: _said}
    middleware = [Middleware(_Beside, api=create_api(inbox, door)), Middleware(_Headers)]
    return Starlette(routes=routes, lifespan=life, middleware=middleware, exception_handlers=handlers)
