"""The inbox's pages over HTTP: the list of what waits, the history, an item with its questions, signing in and out.

Every page is whole without a script; the script asks for the same pages with `X-Part`, and gets the part that changes.
Changes are plain posts that carry the session's word. Nothing here knows an item's state or its credentials.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..errors import CallerError, InvalidAnswer, UnknownPending
from .desk import Inbox
from .door import CSRF, PAGE_HEADERS, Door, Session, TooManyAttempts
from .events import told_of
from .forms import Fault, Typed
from .model import ENDS, OPEN, Item, Page, TooLate, Unreadable, Wanted
from .questions import answered, asked, first_answer, picked
from .rendering import BY_METHOD, HERE, render

PART = "x-part"
LARGEST_POST = 2 * 1024 * 1024
MOST_CONTROLS = 2000
MOST_WORDS = 200
PATIENCE = 1.0
WORDS = {"waiting": "Waiting", "going": "Going on", "done": "Done", "failed": "Failed", "expired": "Expired"}

Entered = Callable[["Pages", Request, Session], Awaitable[Response]]
Posted = Callable[["Pages", Request, Session, Typed], Awaitable[Response]]


class Problem(Exception):
    """A request that gets a page which says what is wrong."""

    def __init__(self, status: int, heading: str, text: str) -> None:
        self.status, self.heading, self.text = status, heading, text
        super().__init__(text)


class Pages:
    """The pages of one inbox, behind one door. After a plain post, what comes next is waited for so many seconds."""

    def __init__(self, inbox: Inbox, door: Door, *, patience: float = PATIENCE) -> None:
        self._inbox = inbox
        self._door = door
        self._patience = patience

    @property
    def routes(self) -> list[Any]:
        """Where the pages are."""
        return [
            Route("/", self._behind(Pages._waiting), methods=["GET"]),
            Route("/history", self._behind(Pages._history), methods=["GET"]),
            Route("/items/{item_id}", self._behind(Pages._item), methods=["GET"]),
            Route("/items/{item_id}/answers", self._taking(Pages._answer), methods=["POST"]),
            Route("/items/{item_id}/withdrawal", self._taking(Pages._withdraw), methods=["POST"]),
            Route("/events", self._behind(Pages._events), methods=["GET"]),
            Route("/login", self._open(self._login), methods=["GET", "POST"]),
            Route("/logout", self._taking(Pages._logout), methods=["POST"]),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]

    # Who may come in

    def _open(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                if not self._door.serves(request.headers.get("host")):
                    raise Problem(421, "Not here", "This inbox is not served under that name.")
                response = await handler(request)
            except Problem as problem:
                response = problem_page(request, problem.status, problem.heading, problem.text)
            response.headers.update(PAGE_HEADERS)
            return response

        return handle

    def _behind(self, page: Entered) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            session = await self._door.session(request.cookies.get(self._door.cookie))
            if session is not None:
                return await page(self, request, session)
            if _is_part(request) or request.url.path.endswith("/events"):
                return Response(status_code=401)
            if request.headers.get("sec-fetch-site") == "cross-site":
                # A link elsewhere led here, and the cookie stays behind then; it comes along if we lead here ourselves.
                return _html(request, "again.html", None)
            return RedirectResponse(f"{_base(request)}/login?{urlencode({'next': _path(request)})}", 303)

        return self._open(handle)

    def _taking(self, page: Posted) -> Callable[[Request], Awaitable[Response]]:
        async def handle(pages: "Pages", request: Request, session: Session) -> Response:
            typed = await _typed(request)
            is_ours = self._door.is_ours(request.headers, scheme=request.url.scheme)
            if not is_ours or not self._door.has_word(session, _first(typed, CSRF)):
                raise Problem(403, "Not taken", "This did not come from a page of yours. Open the page again.")
            return await page(pages, request, session, typed)

        return self._behind(handle)

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            return _login_page(request, request.query_params.get("next", ""))
        typed = await _typed(request)
        following = _first(typed, "next")
        if not self._door.is_ours(request.headers, scheme=request.url.scheme):
            raise Problem(403, "Not taken", "This did not come from this inbox's own page.")
        address = request.client.host if request.client else ""
        try:
            session = await self._door.login(_first(typed, "token"), address)
        except TooManyAttempts as error:
            fault = f"There were too many wrong tokens. Try again in {error.after} seconds."
            response = _login_page(request, following, fault, 429)
            response.headers["retry-after"] = str(error.after)
            return response
        if session is None:
            return _login_page(
                request, following, "This token is not one of this inbox's. Check it, and try again.", 403
            )
        response = RedirectResponse(_base(request) + _local(following), 303)
        response.headers["set-cookie"] = self._door.set_cookie(session)
        return response

    async def _logout(self, request: Request, session: Session, typed: Typed) -> Response:
        await self._door.logout(session)
        response = RedirectResponse(f"{_base(request)}/login", 303)
        response.headers["set-cookie"] = self._door.clear_cookie
        return response

    # What is to be seen

    async def _waiting(self, request: Request, session: Session) -> Response:
        return await self._lines(request, session, "waiting")

    async def _history(self, request: Request, session: Session) -> Response:
        return await self._lines(request, session, "history")

    async def _lines(self, request: Request, session: Session, here: str) -> Response:
        q = request.query_params.get("q", "")[:MOST_WORDS]
        after = request.query_params.get("after")
        wanted = Wanted(statuses=OPEN if here == "waiting" else ENDS, words=q.split())
        try:
            page = await self._inbox.page(wanted, after=after)
        except CallerError:
            raise Problem(400, "No such page", "The list does not go on from there.") from None
        further = urlencode({**({"q": q} if q else {}), "after": page.after or ""})
        facts: dict[str, Any] = {
            "page": page,
            "q": q,
            "here": here,
            "further": further,
            "tell": _counted(page, here, q),
        }
        template = "lines.html" if _is_part(request) else "list.html"
        return _html(request, template, session, **facts)

    async def _item(self, request: Request, session: Session) -> Response:
        return _item_page(request, session, await self._found(request))

    async def _found(self, request: Request) -> Item:
        try:
            return await self._inbox.get(request.path_params["item_id"])
        except UnknownPending:
            gone = "There is no such call: it ended long ago, or never was here."
            raise Problem(404, "Not here any more", gone) from None
        except Unreadable:
            raise Problem(500, "Not readable", "It is sealed under a key that this inbox does not have.") from None

    async def _events(self, request: Request, session: Session) -> Response:
        async def lines() -> AsyncIterator[str]:
            async for line in told_of(self._inbox.changes()):
                yield line

        return StreamingResponse(lines(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    # What is done

    async def _answer(self, request: Request, session: Session, typed: Typed) -> Response:
        item = await self._found(request)
        mark, number = _first(typed, "question"), _first(typed, "round")
        question = picked(asked(item), mark)
        if question is None or number != str(item.round) or item.is_over:
            return _late_page(request, session, item, mark)
        answer, faults = question.answer(_first(typed, "action"), typed)
        if not faults:
            try:
                item = await self._inbox.answer(item.id, {question.key: answer}, round=item.round, by=session.name)
            except TooLate:
                return _late_page(request, session, await self._found(request), mark)
            except InvalidAnswer as error:
                faults = [Fault(question.control("actions"), "The answer", f"does not fit: {error.reason}")]
        if faults:
            return _item_page(request, session, item, 422, typed=typed, faults=faults, picked=mark)
        return await self._done(request, session, item)

    async def _withdraw(self, request: Request, session: Session, typed: Typed) -> Response:
        item = await self._found(request)
        try:
            item = await self._inbox.withdraw(item.id, by=session.name)
        except TooLate:
            return _late_page(request, session, await self._found(request), "")
        return await self._done(request, session, item)

    async def _done(self, request: Request, session: Session, item: Item) -> Response:
        if _is_part(request):
            return _item_page(request, session, item)
        if item.status == "going" and self._patience:
            await self._inbox.changed_from(item.id, item.revision, self._patience)
        return RedirectResponse(f"{_base(request)}/items/{item.id}", 303)


def problem_page(request: Request, status: int, heading: str, text: str) -> Response:
    """A page that says what is wrong."""
    return _html(request, "problem.html", None, status, heading=heading, text=text)


def _login_page(request: Request, following: str, fault: str = "", status: int = 200) -> Response:
    return _html(request, "login.html", None, status, next=following[:1000], fault=fault)


def _late_page(request: Request, session: Session, item: Item, mark: str) -> Response:
    """The item as it is now, for who came too late, with who was first."""
    first = first_answer(item, mark)
    if first is not None:
        who = "You" if first.by == session.name else first.by
        notice = {"heading": f"{who} answered this before", "text": "What you have sent now was not used."}
    elif item.is_over:
        notice = {"heading": "This call has come to its end", "text": "What you have sent was not used."}
    else:
        notice = {"heading": "This question is no longer asked", "text": "What you have sent was not used."}
    return _item_page(request, session, item, 409, notice=notice)


def _item_page(request: Request, session: Session, item: Item, status: int = 200, **more: Any) -> Response:
    questions = asked(item) if item.status == "waiting" else []
    facts: dict[str, Any] = {"notice": None, "typed": None, "faults": [], "picked": "", **more}
    facts |= {"item": item, "questions": questions, "tell": _told(item, len(questions)), "here": ""}
    facts["earlier"] = [answered(one) for one in item.given]
    return _html(request, "whole.html" if _is_part(request) else "item.html", session, status, **facts)


def _told(item: Item, questions: int) -> str:
    """What a screen reader says when the item has changed."""
    if item.status == "waiting":
        many = "A question" if questions == 1 else f"{questions} questions"
        return f"Round {item.round + 1}. {many} for you: {BY_METHOD.get(item.headline, item.headline)}"
    going = "The task is under way." if item.task else "All is answered. The call goes on."
    ends = {"going": going, "done": "Done.", "failed": "The call failed."}
    return ends.get(item.status, "The call expired.")


def _counted(page: Page, here: str, q: str) -> str:
    total = len(page.lines) if q else page.total
    calls = "1 call" if total == 1 else f"{total:,} calls"
    if q:
        return f"{calls}{' or more' if page.after else ''} found" if total else "Nothing found"
    if here == "history":
        return f"{calls} in the history"
    return f"{calls} open" if total else "All clear"


def _html(request: Request, template: str, session: Session | None, status: int = 200, **facts: Any) -> HTMLResponse:
    who, csrf = (session.name, session.csrf) if session else ("", "")
    known = {"here": "", **facts, "who": who, "csrf": csrf, "base": _base(request), "now": time.time(), "words": WORDS}
    return HTMLResponse(render(template, **known), status)


async def _typed(request: Request) -> Typed:
    """The controls of a posted form, by name."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise Problem(415, "Not taken", "A form of this inbox is sent in another way.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_POST:
            raise Problem(413, "Too much", "This is more than the inbox takes at once.")
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_CONTROLS)
    except ValueError:
        raise Problem(400, "Not readable", "What was sent is not the content of a form.") from None


def _first(typed: Mapping[str, Any], name: str) -> str:
    return str(next(iter(typed.get(name, ())), ""))


def _is_part(request: Request) -> bool:
    return request.headers.get(PART) == "live"


def _base(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/")


def _path(request: Request) -> str:
    path = request.url.path.removeprefix(_base(request))
    return f"{path}?{request.url.query}" if request.url.query else path


def _local(following: str) -> str:
    """A place of ours to go to after signing in; the first page for anything else."""
    is_ours = following.startswith(("/items/", "/history", "/?")) and following.isascii() and following.isprintable()
    return following if is_ours and "\\" not in following else "/"
