"""The inbox's pages over HTTP: the list of what waits, the history, an item with its questions, signing in and out.

Every page is whole without a script; the script asks for the same pages with `X-Part`, and gets the part that changes.
Changes are plain posts that carry the session's word. Nothing here knows an item's state or its credentials.
"""

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..errors import AlreadyAnswered, CallerError, InvalidAnswer, UnknownPending
from .aside import aside
from .desk import Inbox
from .door import CSRF, PAGE_HEADERS, Door, NotForBrowsers, Session, TooManyAttempts
from .events import told_of
from .forms import Typed
from .model import ENDS, OPEN, Item, Misfits, TooLate, Unreadable, Wanted
from .outcomes import state_of
from .posted import Problem, base, first, is_part, local, path, posted
from .questions import Asked, answered, asked, first_answer, picked, read_all
from .rendering import HERE, render
from .wording import AWAY, WORDS, counted, heading, is_plain, item_title, list_title, named, told

MOST_WORDS = 200
PATIENCE = 1.0

log = logging.getLogger("turnwise.inbox")

Entered = Callable[["Pages", Request, Session], Awaitable[Response]]
Posted = Callable[["Pages", Request, Session, Typed], Awaitable[Response]]


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
            Route("/next", self._behind(Pages._next), methods=["GET"]),
            Route("/items/{item_id}", self._behind(Pages._item), methods=["GET"]),
            Route("/items/{item_id}/answers", self._behind(Pages._back), methods=["GET"]),
            Route("/items/{item_id}/answers", self._changing(Pages._answer), methods=["POST"]),
            Route("/items/{item_id}/withdrawal", self._changing(Pages._withdraw), methods=["POST"]),
            Route("/items/{item_id}/restart", self._changing(Pages._restart), methods=["POST"]),
            Route("/items/{item_id}/retry", self._changing(Pages._retry), methods=["POST"]),
            Route("/events", self._behind(Pages._events), methods=["GET"]),
            Route("/login", self._open(self._login), methods=["GET", "POST"]),
            Route("/logout", self._taking(Pages._logout), methods=["POST"]),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ]

    # Who may come in

    def _open(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            try:
                if (why := self._door.refusal(request.headers.get("host"))) is not None:
                    raise Problem(421, "Not here", why)
                response = await handler(request)
            except Problem as problem:
                response = await self.problem(request, problem.status, problem.heading, problem.text)
            except CallerError as error:
                if error.__cause__ is None:  # A store that cannot be used names what the database said.
                    raise
                log.error("%s cannot be shown: %s", request.url.path, error)
                response = problem_page(request, 503, "Not now", "The inbox's store cannot be used at the moment.")
            response.headers.update(PAGE_HEADERS)
            return response

        return handle

    async def problem(self, request: Request, status: int, heading: str, text: str) -> Response:
        """A page that says what is wrong, with the way back for who is signed in."""
        session = None
        if self._door.refusal(request.headers.get("host")) is None:
            with suppress(CallerError):
                session = await self._session(request)
        return problem_page(request, status, heading, text, session)

    async def _session(self, request: Request) -> Session | None:
        return await self._door.session(request.cookies.get(self._door.cookie(base(request))))

    def _behind(self, page: Entered) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            session = await self._session(request)
            if session is not None:
                return await page(self, request, session)
            if is_part(request) or request.url.path.endswith("/events"):
                return Response(status_code=401)
            if request.headers.get("sec-fetch-site") == "cross-site":
                # A link elsewhere led here, and the cookie stays behind then; it comes along if we lead here ourselves.
                return _html(request, "again.html", None)
            return RedirectResponse(f"{base(request)}/login?{urlencode({'next': path(request)})}", 303)

        return self._open(handle)

    def _changing(self, page: Posted) -> Callable[[Request], Awaitable[Response]]:
        async def handle(pages: "Pages", request: Request, session: Session, typed: Typed) -> Response:
            if not session.member.may_answer:
                raise Problem(403, "Not taken", "With your token you may look, and not answer or change anything.")
            return await page(pages, request, session, typed)

        return self._taking(handle)

    def _taking(self, page: Posted) -> Callable[[Request], Awaitable[Response]]:
        async def handle(pages: "Pages", request: Request, session: Session) -> Response:
            typed = await posted(request)
            is_ours = self._door.is_ours(request.headers, scheme=request.url.scheme)
            if not is_ours or not self._door.has_word(session, first(typed, CSRF)):
                raise Problem(403, "Not taken", "This did not come from a page of yours. Open the page again.")
            return await page(pages, request, session, typed)

        return self._behind(handle)

    async def _login(self, request: Request) -> Response:
        if request.method == "GET":
            return _login_page(request, request.query_params.get("next", ""))
        typed = await posted(request)
        following = first(typed, "next")
        if not self._door.is_ours(request.headers, scheme=request.url.scheme):
            raise Problem(403, "Not taken", "This did not come from this inbox's own page.")
        address = self._door.address(request.headers.raw, request.client.host if request.client else None)
        try:
            session = await self._door.login(first(typed, "token"), address)
        except NotForBrowsers:
            return _login_page(request, following, "This token is for programs. Sign in with one for people.", 403)
        except TooManyAttempts as error:
            fault = f"There were too many wrong tokens. Try again in {error.after} seconds."
            response = _login_page(request, following, fault, 429)
            response.headers["retry-after"] = str(error.after)
            return response
        if session is None:
            return _login_page(
                request, following, "This token is not one of this inbox's. Check it, and try again.", 403
            )
        if (old := await self._session(request)) is not None:
            await self._door.logout(old)
        response = RedirectResponse(base(request) + local(following), 303)
        response.headers["set-cookie"] = self._door.set_cookie(session, base(request))
        return response

    async def _logout(self, request: Request, session: Session, typed: Typed) -> Response:
        await self._door.logout(session)
        response = RedirectResponse(f"{base(request)}/login", 303)
        response.headers["set-cookie"] = self._door.clear_cookie(base(request))
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
        except CallerError as error:
            if error.__cause__ is not None:
                raise
            raise Problem(400, "No such page", "The list does not go on from there.") from None
        further = urlencode({**({"q": q} if q else {}), "after": page.after or ""})
        facts: dict[str, Any] = {"page": page, "q": q, "here": here, "further": further}
        facts |= {"tell": counted(page, here, q), "title": list_title(page, here, q)}
        facts["named"] = named
        template = "lines.html" if is_part(request) else "list.html"
        return _html(request, template, session, **facts)

    async def _next(self, request: Request, session: Session) -> Response:
        """To what has waited longest."""
        waiting = await self._inbox.page(Wanted(("waiting",)), most=1)
        place = f"/items/{quote(waiting.lines[0].id)}" if waiting.lines else "/"
        return RedirectResponse(base(request) + place, 303)

    async def _item(self, request: Request, session: Session) -> Response:
        return await self._item_page(request, session, await self._found(request))

    async def _back(self, request: Request, session: Session) -> Response:
        """To the item, for who opens the address that its form was sent to."""
        return RedirectResponse(f"{base(request)}/items/{quote(request.path_params['item_id'])}", 303)

    async def _found(self, request: Request) -> Item:
        try:
            return await self._inbox.get(request.path_params["item_id"])
        except UnknownPending:
            gone = "No call has this address. If there was one, it ended long ago: what has ended is kept for a while."
            raise Problem(404, "No such call", gone) from None
        except Unreadable:
            raise Problem(500, "Not readable", "It is sealed under a key that this inbox does not have.") from None

    async def _events(self, request: Request, session: Session) -> Response:
        async def may_hear() -> bool:
            try:
                return await self._door.session(session.id) is not None
            except CallerError:  # A store that is away does not know; it is asked again with the next line.
                return True

        async def lines() -> AsyncIterator[str]:
            async for line in told_of(self._inbox.changes(), may_hear):
                yield line

        return StreamingResponse(lines(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    # What is done

    async def _answer(self, request: Request, session: Session, typed: Typed) -> Response:
        item = await self._found(request)
        action, _, place = first(typed, "send").partition(" ")
        if action == "all":
            return await self._answer_all(request, session, typed, item, place)
        number, _, mark = place.partition("-")
        question = picked(await aside(asked, item), mark)
        if question is None or number != str(item.round) or item.is_over:
            return await self._late_page(request, session, item, mark, typed)
        answer, faults = question.answer(action, typed)
        if not faults:
            try:
                item = await self._inbox.answer(item.id, {question.key: answer}, round=item.round, by=session.name)
            except TooLate:
                return await self._late_page(request, session, await self._found(request), mark, typed)
            except InvalidAnswer as error:
                faults = question.misfit(error.reason)
        if faults:
            return await self._item_page(request, session, item, 422, typed=typed, faults={mark: faults})
        if item.status == "waiting":  # What was typed into the others goes with this reply.
            told_after: dict[str, Any] = {"notice": _taken(action), "after": question.number}
            return await self._item_page(request, session, item, typed=typed, **told_after)
        return await self._done(request, session, item)

    async def _answer_all(self, request: Request, session: Session, typed: Typed, item: Item, number: str) -> Response:
        """Take what fits of all that was filled in; of the rest it is said, in its place, what is wrong with it."""
        questions, came = await aside(asked, item), [place.partition("-") for place in typed.get("asked", ())]
        shown = {mark for round, _, mark in came if round == str(item.round) == number}
        gone = sorted(shown - {one.mark for one in questions})
        if item.is_over or gone or not shown:
            return await self._late_page(request, session, item, "".join(gone[:1]), typed)
        marks = {one.key: one for one in questions}
        answers, faults = await aside(read_all, [one for one in questions if one.mark in shown], typed)
        while answers:
            try:
                item = await self._inbox.answer(item.id, answers, round=item.round, by=session.name)
                break
            except TooLate:
                return await self._late_page(request, session, await self._found(request), "", typed)
            except Misfits as error:
                faults |= {marks[key].mark: marks[key].misfit(why) for key, why in error.reasons.items()}
                answers = {key: answer for key, answer in answers.items() if key not in error.reasons}
        if not faults and item.status != "waiting":
            return await self._done(request, session, item)
        said: dict[str, Any] = {"notice": _taken("accept", len(answers)), "after": -1} if answers else {}
        return await self._item_page(request, session, item, 422 if faults else 200, typed=typed, faults=faults, **said)

    async def _withdraw(self, request: Request, session: Session, typed: Typed) -> Response:
        item = await self._found(request)
        try:
            item = await self._inbox.withdraw(item.id, by=session.name)
        except TooLate:
            return await self._late_page(request, session, await self._found(request), "", typed)
        return await self._done(request, session, item)

    async def _restart(self, request: Request, session: Session, typed: Typed) -> Response:
        return await self._moved(request, session, typed, partial(self._inbox.restart, by=session.name))

    async def _retry(self, request: Request, session: Session, typed: Typed) -> Response:
        return await self._moved(request, session, typed, self._inbox.retry)

    async def _moved(
        self, request: Request, session: Session, typed: Typed, move: Callable[[str], Awaitable[Item]]
    ) -> Response:
        item = await self._found(request)
        try:
            item = await move(item.id)
        except AlreadyAnswered:
            return await self._late_page(request, session, await self._found(request), "", typed)
        return await self._done(request, session, item)

    async def _done(self, request: Request, session: Session, item: Item) -> Response:
        if is_part(request):
            return await self._item_page(request, session, item)
        if item.status == "going" and self._patience:
            await self._inbox.changed_from(item.id, item.revision, self._patience)
        return RedirectResponse(f"{base(request)}/items/{item.id}", 303)

    async def _late_page(self, request: Request, session: Session, item: Item, mark: str, typed: Typed) -> Response:
        """The item as it is now, for who came too late, with who was first."""
        notice = {**_late(session, item, mark), "is_good": False}
        return await self._item_page(request, session, item, 409, typed=typed, notice=notice)

    async def _item_page(
        self, request: Request, session: Session, item: Item, status: int = 200, **more: Any
    ) -> Response:
        if item.status != "waiting" and session.member.may_answer:
            more["waiting"] = (await self._inbox.page(Wanted(("waiting",)), most=1)).total
        return await aside(_drawn, request, session, item, status, **more)


def problem_page(request: Request, status: int, heading: str, text: str, session: Session | None = None) -> Response:
    """A page that says what is wrong."""
    return _html(request, "problem.html", session, status, heading=heading, text=text)


def _login_page(request: Request, following: str, fault: str = "", status: int = 200) -> Response:
    return _html(request, "login.html", None, status, next=following[:1000], fault=fault)


def _taken(action: str, many: int = 1) -> dict[str, Any]:
    words = {"decline": "Declined", "cancel": "Cancelled"}.get(action, "Sent" if many == 1 else f"{many} answers sent")
    return {"heading": words, "text": "There is more to answer before the call goes on.", "is_good": True}


def _late(session: Session, item: Item, mark: str) -> dict[str, str]:
    first = first_answer(item, mark)
    if first is not None:
        who = "You" if first.by == session.name else first.by
        return {"heading": f"{who} answered this before", "text": "What you have sent now was not used."}
    what = "This call has come to its end" if item.is_over else "This question is no longer asked"
    return {"heading": what, "text": "What you have sent was not used."}


def _drawn(request: Request, session: Session, item: Item, status: int, **more: Any) -> Response:
    questions = asked(item) if item.status == "waiting" else []
    facts: dict[str, Any] = {"notice": None, "faults": {}, "after": None, "waiting": 0, **more}
    facts["before"] = _following(questions, facts.pop("after"))
    typed = facts.pop("typed", {})
    came = typed.get("asked", ())
    facts["held"] = {one.mark: typed if f"{item.round}-{one.mark}" in came else None for one in questions}
    facts |= {"item": item, "questions": questions, "tell": told(item, len(questions)), "here": ""}
    facts |= {"state": state_of(item), "left": asked(item) if item.is_over else [], "away": AWAY}
    facts["heading"] = heading(item.pending.method, item.target)
    facts["is_named"] = is_plain(item.pending.method, item.target)
    is_late = facts["notice"] is not None and not facts["notice"]["is_good"]
    facts["title"] = item_title(item, len(questions), faults=len(facts["faults"]), is_late=is_late)
    facts["earlier"] = [answered(one) for one in item.given]
    return _html(request, "whole.html" if is_part(request) else "item.html", session, status, **facts)


def _following(questions: Sequence[Asked], number: int | None) -> str:
    """The mark of the question that comes next for who has answered one, or else of the first; it is there that they
    are told so.
    """
    if number is None or not questions:
        return ""
    return next((one for one in questions if one.number > number), questions[0]).mark


def _html(request: Request, template: str, session: Session | None, status: int = 200, **facts: Any) -> HTMLResponse:
    who, csrf = (session.name, session.csrf) if session else ("", "")
    may_answer = session is not None and session.member.may_answer
    known = {"here": "", **facts, "who": who, "csrf": csrf, "may_answer": may_answer}
    known |= {"base": base(request), "now": time.time(), "words": WORDS}
    return HTMLResponse(render(template, **known), status, headers=PAGE_HEADERS)
