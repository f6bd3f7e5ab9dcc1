"""A client whose questions go to an inbox: what it cannot answer itself is handed over, and waited for.

The room speaks the inbox's HTTP API and nothing of what is behind it. A call that was handed over goes on from there;
who waited may leave, and another process may wait for the same item.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from . import _pending
from ._connecting import Authorization, ClientOptions
from ._conversation import Callback, Conversation, Wishes, answered, asking_of, limited
from ._following import TaskInHand
from ._json import decode, encode
from ._messages import Done
from ._pending import Pending
from .dialects.answering import check_question
from .dialects.words import SAMPLE, TARGETS
from .errors import (
    CallerError,
    ConnectionLost,
    DeadlineExceeded,
    HandOverFailed,
    InboxFailed,
    InvalidReply,
    MCPError,
    UnexpectedStatus,
    UnknownPending,
)

if TYPE_CHECKING:
    import aiohttp

WAIT_SECONDS = 30.0
"""For how long one request waits; then there is another."""
REQUEST_SECONDS = 20.0
PAUSES = (0.2, 1.0, 3.0)
"""Before a call is handed over again whose reply was lost: the inbox knows it by its id."""
LONGEST_PAUSE, PATIENCE = 10.0, 300.0
"""An inbox that is away is looked for again for so long."""
LEAST_PAUSE = 0.1
GOING, ENDS = ("waiting", "going", "held"), ("done", "failed", "expired")
LARGEST_REPLY = 16 * 1024 * 1024
API = "/api/v1"
UNREADABLE = 503
"""The status of an item, or of a store, that cannot be read for now: the inbox itself is there."""
_NO_TOKEN = (
    "the inbox wants a token, and none was given: give it with inbox_token=, --inbox-token-env or TURNWISE_INBOX_TOKEN"
)
_WRONG_TOKEN = (
    "the inbox does not know the token that was given with inbox_token=, --inbox-token-env or TURNWISE_INBOX_TOKEN"
)

log = logging.getLogger("turnwise.client")


class InboxItem(NamedTuple):
    """A call or task in an inbox: its id there, and the page on which people answer it."""

    id: str
    url: str


class InboxLine:
    """The way to an inbox."""

    def __init__(
        self,
        url: str,
        token: str | None,
        authorization: Authorization | None,
        restart_expired: bool | None = None,
        drafter: Callback | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(f"not the URL of an inbox: {url!r}")
        for name, word in (("inbox_token", token), ("inbox_authorization", authorization)):
            if word is not None and not callable(word):
                _check_line(name, word)
        self._url = _root(url.partition("#")[0].partition("?")[0])
        self._token = token
        self._authorization = authorization
        self._restart_expired = restart_expired
        self._drafter = drafter
        self._is_away = False

    async def hand_over(self, call: Pending | TaskInHand, **terms: Any) -> InboxItem:
        """Leave a call or a task in the inbox. HandOverFailed, with the call, where the inbox does not take it."""
        what = "pending" if isinstance(call, Pending) else "task"
        terms["authorization"] = await self._credentials()
        if terms.get("restart_expired") is None:
            terms["restart_expired"] = self._restart_expired
        if isinstance(call, Pending) and self._drafter is not None:
            terms["drafts"] = await _drafted(self._drafter, call)
        body = {what: decode(call.to_json())} | {name: term for name, term in terms.items() if term is not None}
        pauses = iter(PAUSES)
        while True:
            try:
                view = await self.asked("POST", "/items", encode(body))
                return InboxItem(str(view["id"]), str(view.get("page") or f"{self._url}/items/{view['id']}"))
            except ConnectionLost as error:
                if (pause := next(pauses, None)) is None:
                    raise HandOverFailed(call, f"the inbox cannot be reached: {error}") from error
            except (UnexpectedStatus, InvalidReply, KeyError) as error:
                raise HandOverFailed(call, f"the inbox does not take it: {error}") from error
            await asyncio.sleep(pause)

    async def _credentials(self) -> str | None:
        """What the inbox may show to the server, as it is now."""
        if self._authorization is None or isinstance(self._authorization, str):
            return self._authorization
        word = self._authorization()
        line = word if isinstance(word, str) else await word
        _check_line("inbox_authorization", line)
        return line

    async def _authorized(self, view: Mapping[str, Any], given: str | None) -> str | None:
        """Give our credentials for an item that is held, where they are others than were given; those given last."""
        own = await self._credentials()
        if own is None or own == given:
            log.warning("%s is held by the inbox: %s", view.get("id"), view.get("note"))
            return given
        try:
            body = encode({"authorization": own, "revision": view["revision"]})
            await self.asked("PUT", f"/items/{view['id']}/authorization", body)
        except (ConnectionLost, UnexpectedStatus) as error:
            log.info("the inbox does not take other credentials for %s: %s", view["id"], error)
            return given  # Somebody else was quicker, or the inbox is away: what it says next will tell.
        return own

    async def ended(self, item_id: str) -> dict[str, Any]:
        """An item as it is at its end, whenever that is. Where it is held for want of credentials, it gets ours."""
        revision, away, is_told, given = 0, 0.0, False, None
        while True:
            try:
                view = await self.asked("GET", f"/items/{item_id}?wait={WAIT_SECONDS}&revision={revision}")
                away = 0.0
            except (ConnectionLost, UnexpectedStatus) as error:
                if isinstance(error, UnexpectedStatus) and error.status == 404:
                    raise UnknownPending(item_id) from error
                if away > PATIENCE or (isinstance(error, UnexpectedStatus) and error.status < 429):
                    raise
                pause = min(max(0.5, away), LONGEST_PAUSE)
                if isinstance(error, UnexpectedStatus) and error.status == UNREADABLE and not is_told:
                    is_told = True
                    log.warning("the inbox cannot be asked for %s at the moment: %s", item_id, error)
                await asyncio.sleep(pause)
                away += pause
                continue
            if _has_ended(view):
                return view
            if view["revision"] == revision:
                await asyncio.sleep(LEAST_PAUSE)  # It was to wait, and may not have.
            elif view["status"] == "held":
                given = await self._authorized(view, given)
            revision = view["revision"]

    async def asked(self, verb: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """One request: what the inbox says. UnexpectedStatus where it refuses, ConnectionLost where it is away."""
        import aiohttp

        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        limit = aiohttp.ClientTimeout(total=WAIT_SECONDS + REQUEST_SECONDS, connect=REQUEST_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=limit, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(
                    verb, f"{self._url}{API}{path}", data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                status = response.status
                self._noted(f"HTTP {status}" if status >= 500 and status != UNREADABLE else None)
                return _read(status, await _bounded(response), self._token is not None)
        except (aiohttp.ClientError, OSError) as error:
            reason = str(error) or type(error).__name__
            self._noted(reason)
            raise ConnectionLost(reason, sent=True) from error

    def _noted(self, reason: str | None) -> None:
        """Say that the inbox is away, and that it is back, once each, however many wait for it and however often."""
        if reason is not None and not self._is_away:
            log.warning("the inbox at %s is away: %s", self._url, reason)
        elif reason is None and self._is_away:
            log.warning("the inbox at %s is back", self._url)
        self._is_away = reason is not None


def _check_line(name: str, word: Any) -> None:
    if not (isinstance(word, str) and word.isprintable() and word.isascii()):
        raise ValueError(f"{name} is one line of plain text")


def _root(url: str) -> str:
    """The address of an inbox, of which somebody may have given that of its API, or the page where one signs in."""
    address = url.rstrip("/")
    for end in (f"{API}/items", API, "/login"):
        address = address.removesuffix(end).rstrip("/")
    return address


async def _bounded(response: "aiohttp.ClientResponse") -> bytes:
    read = bytearray()
    async for chunk in response.content.iter_any():
        read += chunk
        if len(read) > LARGEST_REPLY:
            raise InvalidReply("the inbox's reply is too large")
    return bytes(read)


def _read(status: int, raw: bytes, has_token: bool) -> dict[str, Any]:
    body: Any = None
    with suppress(ValueError):
        body = decode(raw)
    if status not in (200, 201):
        told = body.get("detail") if isinstance(body, dict) else None
        if isinstance(body, dict) and isinstance(errors := body.get("errors"), dict) and errors:
            told = "; ".join([str(told), *(f"{place}: {why}" for place, why in errors.items())])
        if status == 401:
            told = _WRONG_TOKEN if has_token else _NO_TOKEN
        raise UnexpectedStatus(status, str(told or raw[:200].decode("utf-8", "replace")))
    if not isinstance(body, dict) or not (isinstance(body.get("id"), str) or isinstance(body.get("items"), list)):
        raise InvalidReply("this is no inbox")
    return body


def _has_ended(view: Mapping[str, Any]) -> bool:
    """Whether an item is at its end; InvalidReply where this is none."""
    facts = view.get("status"), view.get("method"), view.get("target"), view.get("revision")
    if facts[0] not in (*GOING, *ENDS) or facts[1] not in TARGETS or not isinstance(facts[2], str):
        raise InvalidReply("this is no item of an inbox")
    if type(facts[3]) is not int or facts[3] < 0:
        raise InvalidReply("this is no item of an inbox")
    return facts[0] in ENDS


async def _drafted(drafter: Callback, call: Pending) -> dict[str, Any] | None:
    """What a client's model would say to what is asked of one, for people to review; None where nothing is."""
    drafts = {}
    for key in call.unanswered:
        request = call.requests[key]
        if request["method"] == SAMPLE:
            asking = asking_of(key, request, call.round, call.method, call.params, call.server)
            drafts[key] = await answered(drafter, asking, request, check_question(key, request))
    return drafts or None


def line(options: ClientOptions) -> InboxLine | None:
    """The way to the inbox that a client was given, if any."""
    url = options.get("inbox")
    drafter = options.get("sampling_callback") if options.get("review_samples") else None
    if options.get("review_samples") and (url is None or drafter is None):
        raise ValueError("review_samples= needs sampling_callback=, which drafts, and inbox=, where people review")
    if url is None:
        if options.get("inbox_token") is not None or options.get("inbox_authorization") is not None:
            raise ValueError("inbox_token= and inbox_authorization= belong to inbox=")
        return None
    facts = options.get("inbox_token"), options.get("inbox_authorization"), options.get("restart_expired")
    return InboxLine(url, *facts, drafter)


class InboxCalls:
    """What a client can do with an inbox."""

    _inbox: InboxLine | None
    _server: str | None

    @property
    def _open(self) -> Conversation:
        raise NotImplementedError

    def _finished(self, method: str, name: str, result: dict[str, Any]) -> Any:
        raise NotImplementedError

    async def hand_over(
        self,
        call: Pending | TaskInHand,
        *,
        caller: str | None = None,
        hook: str | None = None,
        seconds: float | None = None,
        restart_expired: bool | None = None,
    ) -> InboxItem:
        """Leave a call with its questions, or a task, in the inbox: people answer it there, and it goes on from there.

        `caller` is who is shown as the caller, the token's name unless given; `hook` is a URL that the inbox tells of
        questions and of the end; after `seconds` it has expired. With `restart_expired`, which is the client's own
        unless given, the inbox begins it anew by itself where its server no longer takes its state; otherwise it has
        expired then, and somebody may begin it anew. With `review_samples`, requests to a model go with a draft of the
        sampling callback's. Its server has to be at a URL that the inbox can reach. HandOverFailed, with the call in
        it, where the inbox does not take it.
        """
        terms = {"caller": caller, "hook": hook, "seconds": seconds, "restart_expired": restart_expired}
        return await self._known_inbox.hand_over(call, **terms)

    async def wait_for(self, item: InboxItem | str, *, deadline: float | None = None) -> Any:
        """The result of what was handed over, as its call would have given it, in whatever process. `deadline` ends the
        waiting alone. Where it is held, because its server does not take the credentials, it gets this client's
        `inbox_authorization`. MCPError where its server refused; InboxFailed where it was withdrawn, expired or failed.
        """
        item_id = item if isinstance(item, str) else item.id
        if not item_id or not item_id.replace("-", "").replace("_", "").isalnum() or not item_id.isascii():
            raise CallerError(f"this is no item of an inbox: {item_id!r}")
        waiting = self._known_inbox.ended(item_id)
        complaint = f"{item_id} was not finished within {deadline} s; it stays in the inbox"
        try:
            view = await (waiting if deadline is None else limited(waiting, deadline, complaint))
        except DeadlineExceeded as error:
            error.item = item
            raise
        return self._finished(view["method"], view["target"], _result(view))

    @property
    def _known_inbox(self) -> InboxLine:
        if self._inbox is None:
            raise CallerError("this client has no inbox: give it one with Client(..., inbox=URL)")
        return self._inbox

    async def _called(self, method: str, params: Mapping[str, Any], wishes: Wishes) -> tuple[dict[str, Any], int]:
        """The result of a call, and how many requests it took; what nobody here answers goes to the inbox."""
        inbox = self._inbox
        if inbox is None:
            return await self._open.call(method, params, wishes)
        handed: list[InboxItem] = []
        work = _through(inbox, self._open, _pending.begun(method, params, self._server), wishes, handed)
        seconds = self._open.manners.deadline if wishes.deadline is None else wishes.deadline
        complaint = f"{method} was not finished within {seconds} s"
        try:
            return await (work if seconds is None else limited(work, seconds, complaint))
        except DeadlineExceeded as error:
            if not handed:
                raise
            raise DeadlineExceeded(f"{error}; it stays in the inbox, at {handed[0].url}", handed[0]) from None


async def _through(
    inbox: InboxLine, conversation: Conversation, call: Pending, wishes: Wishes, handed: list[InboxItem]
) -> tuple[dict[str, Any], int]:
    outcome = await conversation.carry_on(call, wishes)
    if isinstance(outcome, Done):
        return outcome.result, 1
    item = await inbox.hand_over(outcome, restart_expired=wishes.restart_expired)
    handed.append(item)
    log.info("%s waits for answers at %s", call.target, item.url)
    return _result(await inbox.ended(item.id)), 2


def _result(view: Mapping[str, Any]) -> dict[str, Any]:
    """The result of an item, or what went wrong."""
    result, error = view.get("result"), str(view.get("error") or view.get("status"))
    if isinstance(result, dict):
        return result
    if type(code := view.get("code")) is int:
        raise MCPError(code, error)
    raise InboxFailed(str(view.get("id")), str(view.get("status")), error)
