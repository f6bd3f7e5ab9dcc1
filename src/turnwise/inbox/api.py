"""The inbox's HTTP API, for agents and chat integrations: hand over, list, look, wait, answer, withdraw.

Every request shows a token, `Authorization: Bearer ...`; cookies count for nothing here. What is refused is told as a
problem (RFC 9457). `create_api` gives an ASGI application that is mounted at /api/v1.
"""

import math
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .._following import TaskInHand
from .._json import decode, encode
from .._pending import Pending
from .._version import __version__
from ..errors import AlreadyAnswered, CallerError, UnknownPending
from .aside import aside
from .desk import Inbox
from .door import API_HEADERS, Door, TooManyAttempts
from .model import Item, Misfits, TooLate, Unreadable, Wanted
from .rights import Member
from .views import (
    Answers,
    Authorization,
    HandOverCall,
    HandOverTask,
    ItemView,
    ListQuery,
    PageView,
    Problem,
    WaitQuery,
)

LARGEST_BODY = 1024 * 1024
MOST_WORDS = 20
UNFIT = "The request is not as the API is described: see errors."
PROBLEM = "application/problem+json"
_JSON = re.compile(r"application/([^;\s]+\+)?json", re.IGNORECASE)

ItemId = Annotated[str, Path(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9_-]+$")]
_WORDS = {
    400: "It cannot be read.",
    401: "No token was shown, or one that is not known.",
    403: "The token is not good for this.",
    404: "There is no such item.",
    409: "Somebody was first, or it is over.",
    413: "It is too large.",
    415: "It is not sent as JSON.",
    421: "This Host is not served here.",
    422: "It does not fit.",
    429: "Too many wrong tokens.",
    503: "The store cannot be used at the moment.",
}


class _StrictRequest(Request):
    """A request whose JSON is read as all of ours: no NaN, no lone surrogates, a bounded depth."""

    async def json(self) -> Any:
        try:
            return decode(await self.body())
        except ValueError as error:
            raise HTTPException(400, f"The body is not JSON: {error}") from None


class _StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip()
            if self.body_field is not None and not _JSON.fullmatch(kind):
                raise HTTPException(415, "Send the body as JSON, with the header content-type: application/json.")
            return await handler(_StrictRequest(request.scope, request.receive))

        return handle


class _Reply(JSONResponse):
    def render(self, content: Any) -> bytes:
        return encode(content)


def create_api(inbox: Inbox, door: Door) -> ASGIApp:
    """The API of an inbox. Somebody else has to run the inbox."""
    return _Guarded(_made(inbox, door), door)


def describe() -> dict[str, Any]:
    """What the API is like, as OpenAPI, without an inbox."""
    nobody: Any = None
    return _made(nobody, nobody).openapi()


def _made(inbox: Inbox, door: Door) -> FastAPI:
    app = FastAPI(
        title="Turnwise inbox",
        version=__version__,
        description="Calls and tasks that wait for a person: hand them over, list, answer, wait for what comes of it.",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=_Reply,
        redirect_slashes=False,
    )
    app.include_router(_routes(inbox, door))
    app.openapi = _described(app.openapi)  # type: ignore[method-assign] # as FastAPI's own guide has it
    for kind in (RequestValidationError, HTTPException, CallerError):
        app.add_exception_handler(kind, _refused)
    return app


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": _WORDS[status], "model": Problem, "content": {PROBLEM: {"schema": schema}}}
        for status in (*statuses, 401, 403, 421, 429, 503)
    }


def _described(describe: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """The description of the API, in which what is refused is a problem and nothing else."""

    def described() -> dict[str, Any]:
        found = describe()
        for operations in found["paths"].values():
            for operation in operations.values():
                for status, response in operation["responses"].items():
                    if status >= "400":
                        response["content"].pop("application/json", None)
        return found

    return described


def _routes(inbox: Inbox, door: Door) -> APIRouter:
    bearer = HTTPBearer(auto_error=False, description="A token of the inbox.")

    def who(request: Request) -> Member:
        address = door.address(request.headers.raw, request.client.host if request.client is not None else None)
        member = door.caller(request.headers.get("authorization"), address)
        if member is None:
            raise HTTPException(401, "Show a token of this inbox.", {"WWW-Authenticate": "Bearer"})
        return member

    router = APIRouter(route_class=_StrictRoute, tags=["items"], generate_unique_id_function=lambda route: route.name)

    async def caller(request: Request, _: Annotated[Any, Depends(bearer)] = None) -> Member:
        return who(request)  # What is not async would be called in a thread each time.

    known = Annotated[Member, Depends(caller)]
    _add_looking(router, inbox, known, who)
    _add_changing(router, inbox, known)
    _add_halting(router, inbox, known)
    return router


def _see(member: Member, item: Item) -> Item:
    """The same. What somebody may not see is as if it were not there."""
    if not member.may_see(item.caller):
        raise UnknownPending(item.id)
    return item


def _check_bringing(member: Member) -> None:
    if not member.may_hand_over:
        raise HTTPException(403, "This token is for looking only.")


async def _check_change(inbox: Inbox, member: Member, item_id: str) -> None:
    """Whether they may change this item, in whatever way but by an answer."""
    _check_bringing(member)
    if not member.may_browse:
        _see(member, await inbox.get(item_id))


def _name_for(member: Member, named: str | None) -> str | None:
    """The caller that a request is about; who is one may name no other."""
    if named is not None and not member.may_see(named):
        raise HTTPException(403, f"This token is {member.name}'s, and for no other caller.")
    return named if member.may_browse else member.name


def _add_looking(router: APIRouter, inbox: Inbox, known: Any, who: Callable[[Request], Member]) -> None:
    @router.get("/items", responses=_problems(422))
    async def list_items(query: Annotated[ListQuery, Query()], member: known) -> PageView:
        """List items: what waits, oldest question first; with ended ones, what changed last comes first."""
        statuses = tuple(dict.fromkeys(query.status)) or Wanted().statuses
        wanted = Wanted(statuses, query.q.split()[:MOST_WORDS], _name_for(member, query.caller))
        return PageView.of(await inbox.page(wanted, after=query.after, most=query.limit))

    @router.get("/items/{item_id}", response_model=ItemView, responses=_problems(404, 422))
    async def get_item(
        item_id: ItemId, query: Annotated[WaitQuery, Query()], member: known, request: Request
    ) -> Response:
        """Look at an item. With `wait` and `revision`, as soon as it has another revision, or has ended."""
        item = _see(member, await inbox.get(item_id))
        if query.wait and query.revision == item.revision and not item.is_over:
            item = await inbox.changed_from(item_id, item.revision, query.wait)
            _see(who(request), item)  # Whose token was dropped meanwhile hears no more.
        return await _shown(item, inbox)


def _add_changing(router: APIRouter, inbox: Inbox, known: Any) -> None:
    @router.post(
        "/items", status_code=201, response_model=ItemView, responses={200: _SAME, **_problems(400, 409, 413, 415, 422)}
    )
    async def hand_over(body: HandOverCall | HandOverTask, request: Request, member: known) -> Response:
        """Hand over a call with its questions, or a task. Who does so twice gets the same item again."""
        _check_bringing(member)
        caller = _name_for(member, body.caller or None) or member.name
        call = await aside(_call, body)
        terms: Any = {"authorization": body.authorization, "hook": body.hook, "seconds": body.seconds}
        terms |= {"restart_expired": bool(body.restart_expired)}
        terms |= {"drafts": body.drafts} if isinstance(body, HandOverCall) else {}
        began = time.time()
        item = _see(member, await inbox.hand_over(call, caller=caller, by=member.name, **terms))
        place = f"{request.scope.get('root_path', '')}/items/{item.id}"
        return await _shown(item, inbox, 200 if item.came < began else 201, {"Location": place})

    @router.post("/items/{item_id}/answers", response_model=ItemView, responses=_problems(400, 404, 409, 413, 415, 422))
    async def answer_item(item_id: ItemId, body: Answers, member: known) -> Response:
        """Answer questions of a round, all or some. The call goes on as soon as all are answered."""
        if not member.may_answer:
            raise HTTPException(403, "This token is not for answering.")
        item = await inbox.answer(item_id, body.answers, round=body.round, by=member.name)
        return await _shown(item, inbox)

    @router.delete("/items/{item_id}", response_model=ItemView, responses=_problems(404, 409, 422))
    async def withdraw_item(item_id: ItemId, member: known) -> Response:
        """End an item without a result. The server of a task is asked to stop it; `cancelled` says if it took that."""
        await _check_change(inbox, member, item_id)
        return await _shown(await inbox.withdraw(item_id, by=member.name), inbox)


def _add_halting(router: APIRouter, inbox: Inbox, known: Any) -> None:
    @router.post("/items/{item_id}/restart", response_model=ItemView, responses=_problems(404, 409, 422))
    async def restart_item(item_id: ItemId, member: known) -> Response:
        """Begin a call anew whose server no longer took its state. What it did before may be done again."""
        await _check_change(inbox, member, item_id)
        return await _shown(await inbox.restart(item_id, by=member.name), inbox)

    @router.put(
        "/items/{item_id}/authorization", response_model=ItemView, responses=_problems(400, 404, 409, 413, 415, 422)
    )
    async def authorize_item(item_id: ItemId, body: Authorization, member: known) -> Response:
        """Give other credentials for an item's server. What was held for want of them goes on."""
        await _check_change(inbox, member, item_id)
        item = await inbox.authorize(item_id, body.authorization, revision=body.revision)
        return await _shown(item, inbox)

    @router.post("/items/{item_id}/retry", response_model=ItemView, responses=_problems(404, 409, 422))
    async def retry_item(item_id: ItemId, member: known) -> Response:
        """Try again what is held, with the credentials that there are."""
        await _check_change(inbox, member, item_id)
        return await _shown(await inbox.retry(item_id), inbox)


def _call(body: HandOverCall | HandOverTask) -> Pending | TaskInHand:
    if isinstance(body, HandOverCall):
        return Pending.from_json(_text(body.pending), raw_questions=True)
    return TaskInHand.from_json(_text(body.task))


async def _shown(item: Item, inbox: Inbox, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An item as a reply. FastAPI would copy a large one several times, while everybody waits."""

    def drawn() -> bytes:
        return encode(vars(ItemView.of(item, inbox.page_of(item.id))), default=vars)

    return Response(await aside(drawn), status, dict(headers or {}), "application/json")


def _text(call: Mapping[str, Any] | str) -> str | bytes:
    return call if isinstance(call, str) else encode(call)


_SAME: dict[str, Any] = {"description": "It was handed over before.", "model": ItemView}


async def _refused(request: Request, error: Exception) -> Response:
    """Any refusal, as a problem."""
    status, detail, more = _told(error)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if status == 405:
        headers["Allow"] = ", ".join(_allowed(request))
    if isinstance(error, TooManyAttempts):
        headers["Retry-After"] = str(error.after)
    return _problem(status, detail, headers, **more)


def _allowed(request: Request) -> list[str]:
    """All methods of a path: each route knows only its own."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in getattr(route, "methods", None) or ()})


def _told(error: Exception) -> tuple[int, str, dict[str, Any]]:
    """The status, the words and the facts of a refusal."""
    match error:
        case RequestValidationError():
            return 422, UNFIT, {"errors": _places(error)}
        case HTTPException():
            return error.status_code, str(error.detail), {}
        case UnknownPending():
            return 404, f"there is no item with the id {error.pending_id}", {}
        case TooLate():
            return 409, str(error), {"by": error.by, "at": error.at}
        case AlreadyAnswered():
            return 409, str(error), {}
        case Misfits():
            return 422, str(error), {"errors": error.reasons}
        case TooManyAttempts():
            return 429, str(error), {}
        case Unreadable():
            return 503, str(error), {}
    if error.__cause__ is not None:  # A store that cannot be used names what the database said.
        return 503, "The inbox's store cannot be used at the moment.", {}
    return 422, str(error), {}


def _places(error: RequestValidationError) -> dict[str, str]:
    return {".".join(str(part) for part in fault["loc"])[:200]: str(fault["msg"]) for fault in error.errors()[:50]}


def _problem(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail[:2000]}
    body |= {name: value for name, value in more.items() if value is not None}
    return Response(encode(body), status, dict(headers or {}), PROBLEM)


class _Guarded:
    """Turns away strange Hosts and bodies that are too large, and puts our headers on every reply."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in API_HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        length = headers.get("content-length", "0")
        if (why := self._door.refusal(headers.get("host"))) is not None:
            await _problem(421, why)(scope, receive, sent)
        elif not (length.isascii() and length.isdigit()) or int(length[:20]) > LARGEST_BODY:
            await _problem(413, f"A request has at most {LARGEST_BODY} bytes.")(scope, receive, sent)
        else:
            await self._app(scope, _bounded(receive), sent)


def _bounded(receive: Receive) -> Receive:
    """The same, up to so many bytes: a length may be a lie, or not told."""
    left: float = LARGEST_BODY

    async def bounded() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            left = -math.inf
            raise HTTPException(413, f"A request has at most {LARGEST_BODY} bytes.")
        return message

    return bounded
