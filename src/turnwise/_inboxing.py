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
from ._connecting import ClientOptions
from ._conversation import Conversation, Wishes, limited
from ._following import TaskInHand
from ._json import decode, encode
from ._messages import Done
from ._pending import Pending
from .dialects.words import TARGETS
from .errors import (
    CallerError,
    ConnectionLost,
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
GOING, ENDS = ("waiting", "going"), ("done", "failed", "expired")
LARGEST_REPLY = 16 * 1024 * 1024

log = logging.getLogger("turnwise.client")


class InboxItem(NamedTuple):
    """A call or task in an inbox: its id there, and the page on which people answer it."""

    id: str
    url: str


class InboxLine:
    """The way to an inbox."""

    def __init__(self, url: str, token: str | None, authorization: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(f"not the URL of an inbox: {url!r}")
        for name, word in (("inbox_token", token), ("inbox_authorization", authorization)):
            if word is not None and not (word.isprintable() and word.isascii()):
                raise ValueError(f"{name} is one line of plain text")
        self._url = url.partition("#")[0].partition("?")[0].rstrip("/")
        self._token = token
        self._authorization = authorization

    async def hand_over(self, call: Pending | TaskInHand, **terms: Any) -> InboxItem:
        """Leave a call or a task in the inbox. HandOverFailed, with the call, where the inbox does not take it."""
        what = "pending" if isinstance(call, Pending) else "task"
        terms["authorization"] = self._authorization
        body = {what: decode(call.to_json())} | {name: term for name, term in terms.items() if term is not None}
        pauses = iter(PAUSES)
        while True:
            try:
                view = await self._asked("POST", "/items", encode(body))
                return InboxItem(str(view["id"]), str(view.get("page") or f"{self._url}/items/{view['id']}"))
            except ConnectionLost as error:
                if (pause := next(pauses, None)) is None:
                    raise HandOverFailed(call, f"the inbox cannot be reached: {error}") from error
            except (UnexpectedStatus, InvalidReply, KeyError) as error:
                raise HandOverFailed(call, f"the inbox does not take it: {error}") from error
            await asyncio.sleep(pause)

    async def ended(self, item_id: str) -> dict[str, Any]:
        """An item as it is at its end, whenever that is."""
        revision, away = 0, 0.0
        while True:
            try:
                view = await self._asked("GET", f"/items/{item_id}?wait={WAIT_SECONDS}&revision={revision}")
                away = 0.0
            except (ConnectionLost, UnexpectedStatus) as error:
                if isinstance(error, UnexpectedStatus) and error.status == 404:
                    raise UnknownPending(item_id) from error
                if away > PATIENCE or (isinstance(error, UnexpectedStatus) and error.status < 429):
                    raise
                pause = min(max(0.5, away), LONGEST_PAUSE)
                log.warning("the inbox cannot be asked for %s at the moment: %s", item_id, error)
                await asyncio.sleep(pause)
                away += pause
                continue
            if _has_ended(view):
                return view
            if view["revision"] == revision:
                await asyncio.sleep(LEAST_PAUSE)  # It was to wait, and may not have.
            revision = view["revision"]

    async def _asked(self, verb: str, path: str, body: bytes | None = None) -> dict[str, Any]:
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
                    verb, f"{self._url}/api/v1{path}", data=body, headers=headers, allow_redirects=False
                ) as response,
            ):
                return _read(response.status, await _bounded(response))
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost(str(error) or type(error).__name__, sent=True) from error


async def _bounded(response: "aiohttp.ClientResponse") -> bytes:
    read = bytearray()
    async for chunk in response.content.iter_any():
        read += chunk
        if len(read) > LARGEST_REPLY:
            raise InvalidReply("the inbox's reply is too large")
    return bytes(read)


def _read(status: int, raw: bytes) -> dict[str, Any]:
    body: Any = None
    with suppress(ValueError):
        body = decode(raw)
    if status not in (200, 201):
        told = body.get("detail") if isinstance(body, dict) else None
        raise UnexpectedStatus(status, str(told or raw[:200].decode("utf-8", "replace")))
    if not isinstance(body, dict) or not isinstance(body.get("id"), str):
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


def line(options: ClientOptions) -> InboxLine | None:
    """The way to the inbox that a client was given, if any."""
    url = options.get("inbox")
    if url is None:
        if options.get("inbox_token") is not None or options.get("inbox_authorization") is not None:
            raise ValueError("inbox_token= and inbox_authorization= belong to inbox=")
        return None
    return InboxLine(url, options.get("inbox_token"), options.get("inbox_authorization"))


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
    ) -> InboxItem:
        """Leave a call with its questions, or a task, in the inbox: people answer it there, and it goes on from there.

        `caller` is who is shown as the caller, the token's name unless given; `hook` is a URL that the inbox tells of
        questions and of the end; after `seconds` it has expired. Its server has to be at a URL that the inbox can
        reach. HandOverFailed, with the call in it, where the inbox does not take it.
        """
        return await self._known_inbox.hand_over(call, caller=caller, hook=hook, seconds=seconds)

    async def wait_for(self, item: InboxItem | str, *, deadline: float | None = None) -> Any:
        """The result of what was handed over, as its call would have given it, in whatever process. `deadline` ends the
        waiting alone. MCPError where its server refused; InboxFailed where it was withdrawn, expired or failed.
        """
        item_id = item if isinstance(item, str) else item.id
        if not item_id or not item_id.replace("-", "").replace("_", "").isalnum() or not item_id.isascii():
            raise CallerError(f"this is no item of an inbox: {item_id!r}")
        waiting = self._known_inbox.ended(item_id)
        complaint = f"{item_id} was not finished within {deadline} s; it stays in the inbox"
        view = await (waiting if deadline is None else limited(waiting, deadline, complaint))
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
        work = _through(inbox, self._open, _pending.begun(method, params, self._server), wishes)
        seconds = self._open.manners.deadline if wishes.deadline is None else wishes.deadline
        complaint = f"{method} was not finished within {seconds} s"
        return await (work if seconds is None else limited(work, seconds, complaint))


async def _through(
    inbox: InboxLine, conversation: Conversation, call: Pending, wishes: Wishes
) -> tuple[dict[str, Any], int]:
    outcome = await conversation.carry_on(call, wishes)
    if isinstance(outcome, Done):
        return outcome.result, 1
    item = await inbox.hand_over(outcome)
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
