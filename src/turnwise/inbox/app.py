"""The inbox as one ASGI application: the pages at its root, the API beside them, and the work behind both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from .api import create_api
from .around import Headed, Noted, Placed, Working, checked_base, probes
from .desk import Inbox
from .door import Door
from .web import PATIENCE, Pages, problem_page

API = "/api/v1"
_SAID = {404: ("Nothing is here", "The address leads nowhere."), 405: ("Not in this way", "Open the page again.")}


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


def create_app(inbox: Inbox, door: Door, *, patience: float = PATIENCE, base: str = "") -> Starlette:
    """An application that serves an inbox. Its work runs for as long as the application does; mounted in another, whose
    lifespan should run `inbox.run()`, it begins with the first request at the latest.

    Browsers without a script see what comes of an answer if it comes within `patience` seconds; others see it anyway.
    `base` is the path under which people reach it by a proxy, such as `/inbox`, whether the proxy takes it away or not.
    Where it is mounted, the path is known without that.
    """

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with inbox.run():
            yield

    async def said(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code in _SAID:
            return await pages.problem(request, error.status_code, *_SAID[error.status_code])
        return problem_page(request, 500, "That went wrong", "The inbox has logged why.")

    pages = Pages(inbox, door, patience=patience)
    routes = [*probes(inbox), *pages.routes]
    place = checked_base(base, {"api", *(route.path.split("/")[1] for route in routes)})
    handlers = {404: said, 405: said, 500: said}
    middleware = [
        Middleware(Working, inbox=inbox),
        Middleware(Noted, door=door),
        Middleware(_Beside, api=create_api(inbox, door)),
        Middleware(Headed),
    ]
    if place:
        middleware.insert(0, Middleware(Placed, base=place))
    return Starlette(routes=routes, lifespan=life, middleware=middleware, exception_handlers=handlers)
