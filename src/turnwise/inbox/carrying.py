"""How a call goes on from the inbox: by a real client of its server, which is kept open for the next one.

A round whose reply was lost is sent again, so that a call goes on at least once; what must not be done twice is guarded
where it is done, as in every replay.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from .._following import TaskInHand
from .._json import is_deeper
from .._messages import Done
from .._pending import Pending
from ..client import Client
from ..dialects.asking import wire_dict
from ..dialects.calling import PEOPLE
from ..dialects.tasking_client import TaskStatus
from ..dialects.unfit import kept
from ..errors import (
    ConnectionLost,
    DeadlineExceeded,
    MCPError,
    PeerError,
    StateExpired,
    TurnwiseError,
    UnexpectedStatus,
)
from ..transports.http import HTTP
from .aside import aside
from .halting import held, is_worth_restarting, lapsed, restarted
from .model import DEEPEST, Item
from .places import Credentials, allowed

T = TypeVar("T")

log = logging.getLogger("turnwise.inbox")

MAX_ROUNDS = 100
LARGEST_REPLY = 8 * 1024 * 1024
OPEN_SECONDS, REQUEST_SECONDS, ROUND_SECONDS = 30.0, 300.0, 600.0
IDLE_SECONDS = 60.0
"""For how long a client that nobody needs is kept."""
MOST_CLIENTS = 64
LOOK_SECONDS = 5.0
"""A task that waits for a person is looked at no more often."""
LONGEST_TEXT = 2000
CANCEL_SECONDS = 5.0
"""For so long a server is waited for that is asked to stop a task which somebody has ended here."""


class Away(Exception):
    """The server cannot be reached at the moment; the message says how."""


class _Kept:
    """A client, and who needs it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.opening = asyncio.Lock()
        self.is_open = False
        self.failed: PeerError | None = None
        self.users = 0
        self.used = time.monotonic()


class _Refused(Exception):
    """The server does not take the credentials that it was shown."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"HTTP {status}")


class Clients:
    """Clients by server and credentials; those of the inbox itself are used where a call's own do not do."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = Credentials() if credentials is None else credentials
        self._kept: dict[tuple[str, str | None], _Kept] = {}

    def ways(self, item: Item) -> list[str | None]:
        """The credentials to show to an item's server, one after the other as they are refused."""
        own, ours = item.authorization, self._credentials.of(item.server)
        return [way for way in dict.fromkeys((own, ours)) if way is not None] or [None]

    async def using(self, server: str, authorization: str | None, work: Callable[[Client], Awaitable[T]]) -> T:
        """What a function of a client gives, with one that is open."""
        key = (server, authorization)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(_client(*key))
        kept.users += 1
        try:
            async with kept.opening:
                await _opened(kept)
            return await work(kept.client)
        except PeerError:
            # The next one finds out anew what its server speaks.
            if self._kept.get(key) is kept:
                del self._kept[key]
            raise
        finally:
            kept.users -= 1
            kept.used = time.monotonic()
            if self._kept.get(key) is not kept:
                await self._close(kept)
            await self.sweep()

    async def sweep(self) -> None:
        """Close those that nobody has needed for a while, or that are too many."""
        idle = sorted((key for key, kept in self._kept.items() if not kept.users), key=lambda key: self._kept[key].used)
        surplus, since = len(self._kept) - MOST_CLIENTS, time.monotonic() - IDLE_SECONDS
        dropped = [key for number, key in enumerate(idle) if number < surplus or self._kept[key].used < since]
        for one in [self._kept.pop(key) for key in dropped]:  # All at once: others sweep while one is being closed.
            await self._close(one)

    async def aclose(self) -> None:
        """Close them all, at the same time: each may have to wait for a server that does not listen."""
        kept, self._kept = list(self._kept.values()), {}
        for one in kept:
            one.users = 0
        await asyncio.gather(*map(self._close, kept))

    async def _close(self, kept: _Kept) -> None:
        if kept.users == 0 and kept.is_open:
            kept.is_open = False
            await kept.client.__aexit__()


async def _opened(kept: _Kept) -> None:
    """Open a client, once. Who waited for somebody else to do it in vain does not wait as long again."""
    if kept.failed is not None:
        raise kept.failed
    if kept.is_open:
        return
    try:
        async with asyncio.timeout(OPEN_SECONDS):
            await kept.client.__aenter__()
    except (PeerError, TimeoutError) as error:
        late = DeadlineExceeded(f"the server did not say within {OPEN_SECONDS:.0f} s what it speaks")
        kept.failed = error if isinstance(error, PeerError) else late
        raise kept.failed from None
    kept.is_open = True


def _client(server: str, authorization: str | None) -> Client:
    return Client(
        channel(server, authorization),
        capabilities=PEOPLE,
        input_required_max_rounds=MAX_ROUNDS,
        read_timeout_seconds=REQUEST_SECONDS,
        cache=False,
        raw_questions=True,
    )


def channel(server: str, authorization: str | None) -> HTTP:
    """The way to a server; ValueError where there is none. It leads nowhere but there: who is taken, and who is shown
    credentials, goes by the URL.
    """
    headers = {} if authorization is None else {"Authorization": authorization}
    line = HTTP(server, headers=headers, largest_reply=LARGEST_REPLY)
    line.may_follow = lambda target: allowed(target, [server])
    return line


async def carried_on(clients: Clients, item: Item) -> Item | float:
    """What has become of an item, or in how many seconds to look again where nothing has. Away where its server is."""
    status = 0
    for way in clients.ways(item):
        try:
            after = await _tried(clients, item, way)
        except _Refused as refused:
            status = refused.status
            continue
        if isinstance(after, Item) and way != item.authorization:
            return replace(after, authorization=None)  # Its own, if it had some, were refused.
        return after
    return held(item, status, clients.ways(item) != [None], time.time())


async def _tried(clients: Clients, item: Item, way: str | None) -> Item | float:
    go_on = _resumed if item.task is None else _looked_at
    try:
        return await clients.using(item.server, way, lambda client: go_on(client, item))
    except StateExpired:
        return _begun_anew(item) if is_worth_restarting(item) else lapsed(item, time.time())
    except TurnwiseError as error:
        if _is_passing(error):
            raise Away(_said(error)) from error
        if isinstance(error, UnexpectedStatus) and error.status in (401, 403):
            raise _Refused(error.status) from error
        code = error.code if isinstance(error, MCPError) and type(error.code) is int else None
        return item.ended("failed", time.time(), error=_said(error), code=code)


async def stopped(clients: Clients, item: Item) -> str | None:
    """Ask an item's server to stop its task, once and not for long: None where it took that, otherwise why not."""
    why: str | None = None
    try:
        async with asyncio.timeout(CANCEL_SECONDS):
            for way in clients.ways(item):
                why = await _asked_to_stop(clients, item, way)
                if why is None:
                    break
    except TimeoutError:
        return f"it did not reply within {CANCEL_SECONDS:.0f} s"
    return why


async def _asked_to_stop(clients: Clients, item: Item, way: str | None) -> str | None:
    try:
        await clients.using(item.server, way, lambda client: client.cancel_task(item.task or ""))
    except TurnwiseError as error:
        return _said(error)
    return None


async def _resumed(client: Client, item: Item) -> Item | float:
    outcome = await client.resume(item.pending, deadline=ROUND_SECONDS, restart_expired=False)
    return arrived(item, outcome, time.time())


def _begun_anew(item: Item) -> Item:
    now = time.time()
    words = "call %s (%s at %s) is begun anew, as its caller wished: what it did before may be done again"
    log.warning(words, item.id, item.target, item.server)
    return restarted(lapsed(item, now), None, now)


def arrived(item: Item, outcome: Done[Any] | Pending | TaskInHand, now: float) -> Item:
    """An item after its call went on: at its result, at the next questions, or as a task."""
    if isinstance(outcome, Done):
        return _finished(item, wire_dict(outcome.result), now)
    after = replace(item, changed=now, round=item.round + 1, note=None, tries=0, drafts={})
    if isinstance(outcome, Pending):
        return replace(after, pending=outcome, status="waiting", due=item.until)
    quiet = replace(item.pending, requests={}, answers={}, state=None, given=(), reusable=())
    return replace(after, task=outcome.id, pending=quiet, status="going", due=now, round=item.round)


async def _looked_at(client: Client, item: Item) -> Item | float:
    """A task as it is now; answers that are there go to it first."""
    task_id = item.task or ""
    seen, now = await client.get_task(task_id), time.time()
    if seen.is_over:
        return _over(item, seen, now)
    pending = item.pending
    if pending.requests and not pending.unanswered:
        answers = {key: answer for key, answer in pending.answers.items() if key in seen.requests}
        if answers:
            await client.update_task(task_id, answers)
        quiet = replace(pending, requests={}, answers={})
        return replace(item, pending=quiet, changed=now, status="going", tries=0, note=_text(seen.message), due=now)
    asked = await aside(_asked, item, seen)
    if asked == pending.requests and _text(seen.message) == item.note and not item.tries:
        return max(seen.poll, LOOK_SECONDS) if asked else seen.poll
    return _noticed(item, seen, asked, now)


def _noticed(item: Item, seen: TaskStatus, asked: Mapping[str, Any], now: float) -> Item:
    """A task with other questions than before, or with other words about itself."""
    pending, number = item.pending, item.round
    if asked != pending.requests:
        kept = {key: answer for key, answer in pending.answers.items() if asked.get(key) == pending.requests[key]}
        pending = replace(pending, requests=asked, answers=kept, asked=now)
        number += bool(asked)
    return replace(
        item,
        pending=pending,
        round=number,
        status="waiting" if pending.unanswered else "going",
        note=_text(seen.message),
        tries=0,
        changed=now,
        due=now + (max(seen.poll, LOOK_SECONDS) if pending.unanswered else seen.poll),
    )


def _asked(item: Item, seen: TaskStatus) -> dict[str, Any]:
    """What a task asks and was not told yet: a server may be slow to take what it was told. Of a call that was begun
    anew, it was told nothing before that.
    """
    given = [one for one in item.given if item.restarted is None or one.at > item.restarted]
    told = [(one.key, one.request) for one in given if one.key not in item.pending.requests]
    return {key: request for key, request in kept(seen.requests).items() if (key, request) not in told}


def _over(item: Item, seen: TaskStatus, now: float) -> Item:
    if seen.result is not None:
        return _finished(item, seen.result, now)
    fault = seen.error or {}
    words = str(fault.get("message") or seen.message or f"the task is {seen.status}")
    return item.ended("failed", now, error=_text(words), code=fault.get("code"))


def _finished(item: Item, result: Mapping[str, Any], now: float) -> Item:
    """An item with its result, in which a tool may say that it failed."""
    if is_deeper(result, DEEPEST):
        return item.ended("failed", now, error=f"the result is more than {DEEPEST} levels deep, and cannot be kept")
    return item.ended("failed" if result.get("isError") is True else "done", now, result=result)


def _is_passing(error: TurnwiseError) -> bool:
    if isinstance(error, UnexpectedStatus):
        return error.status in (408, 425, 429) or error.status >= 500
    return isinstance(error, ConnectionLost | DeadlineExceeded)


def _said(error: TurnwiseError) -> str:
    return str(error)[:LONGEST_TEXT] or type(error).__name__


def _text(words: str | None) -> str | None:
    return None if words is None else words[:LONGEST_TEXT]
