"""How a call goes on from the inbox: by a real client of its server, which is kept open for the next one.

A round whose reply was lost is sent again, so that a call goes on at least once; what must not be done twice is guarded
where it is done, as in every replay.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from .._following import TaskInHand
from .._messages import Done
from .._pending import Pending
from ..client import Client
from ..dialects.answering import check_question
from ..dialects.asking import wire_dict
from ..dialects.calling import PEOPLE
from ..dialects.tasking_client import TaskStatus
from ..errors import ConnectionLost, DeadlineExceeded, MCPError, PeerError, TurnwiseError, UnexpectedStatus
from ..transports.http import HTTP
from .model import Item

T = TypeVar("T")

MAX_ROUNDS = 100
LARGEST_REPLY = 8 * 1024 * 1024
REQUEST_SECONDS, ROUND_SECONDS = 300.0, 600.0
IDLE_SECONDS = 60.0
"""For how long a client that nobody needs is kept."""
MOST_CLIENTS = 64
LOOK_SECONDS = 5.0
"""A task that waits for a person is looked at no more often."""
LONGEST_TEXT = 2000


class Away(Exception):
    """The server cannot be reached at the moment; the message says how."""


class _Kept:
    """A client, and who needs it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.opening = asyncio.Lock()
        self.is_open = False
        self.users = 0
        self.used = time.monotonic()


class Clients:
    """Clients by server and credentials."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str | None], _Kept] = {}

    async def using(self, item: Item, work: Callable[[Client], Awaitable[T]]) -> T:
        """What a function of a client gives, with one that is open."""
        key = (item.server, item.authorization)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(_client(*key))
        kept.users += 1
        try:
            async with kept.opening:
                if not kept.is_open:
                    await kept.client.__aenter__()
                    kept.is_open = True
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
        idle = sorted((kept.used, key) for key, kept in self._kept.items() if not kept.users)
        surplus = len(self._kept) - MOST_CLIENTS
        now = time.monotonic()
        for number, (used, key) in enumerate(idle):
            if number < surplus or now - used > IDLE_SECONDS:
                await self._close(self._kept.pop(key))

    async def aclose(self) -> None:
        """Close them all."""
        kept, self._kept = list(self._kept.values()), {}
        for one in kept:
            one.users = 0
            await self._close(one)

    async def _close(self, kept: _Kept) -> None:
        if kept.users == 0 and kept.is_open:
            kept.is_open = False
            await kept.client.__aexit__()


def _client(server: str, authorization: str | None) -> Client:
    return Client(
        channel(server, authorization),
        capabilities=PEOPLE,
        input_required_max_rounds=MAX_ROUNDS,
        read_timeout_seconds=REQUEST_SECONDS,
        cache=False,
    )


def channel(server: str, authorization: str | None) -> HTTP:
    """The way to a server; ValueError where there is none."""
    headers = {} if authorization is None else {"Authorization": authorization}
    return HTTP(server, headers=headers, largest_reply=LARGEST_REPLY)


async def carried_on(clients: Clients, item: Item) -> Item | float:
    """What has become of an item, or in how many seconds to look again where nothing has. Away where its server is."""
    try:
        if item.task is not None:
            return await clients.using(item, lambda client: _looked_at(client, item))
        return await clients.using(item, lambda client: _resumed(client, item))
    except TurnwiseError as error:
        if _is_passing(error):
            raise Away(_said(error)) from error
        if isinstance(error, UnexpectedStatus) and error.status in (401, 403):
            refused = f"the server does not take these credentials: {_said(error)}"
            return item.ended("failed", time.time(), error=refused)
        code = error.code if isinstance(error, MCPError) and type(error.code) is int else None
        return item.ended("failed", time.time(), error=_said(error), code=code)


async def _resumed(client: Client, item: Item) -> Item:
    outcome = await client.resume(item.pending, deadline=ROUND_SECONDS)
    return arrived(item, outcome, time.time())


def arrived(item: Item, outcome: Done[Any] | Pending | TaskInHand, now: float) -> Item:
    """An item after its call went on: at its result, at the next questions, or as a task."""
    if isinstance(outcome, Done):
        return _finished(item, wire_dict(outcome.result), now)
    after = replace(item, changed=now, round=item.round + 1, note=None, tries=0)
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
    asked = _asked(item, seen)
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
    """What a task asks and was not told yet: a server may be slow to take what it was told."""
    told = [(one.key, one.request) for one in item.given if one.key not in item.pending.requests]
    asked = {key: request for key, request in seen.requests.items() if (key, request) not in told}
    for key, request in asked.items():
        check_question(key, request)
    return asked


def _over(item: Item, seen: TaskStatus, now: float) -> Item:
    if seen.result is not None:
        return _finished(item, seen.result, now)
    fault = seen.error or {}
    words = str(fault.get("message") or seen.message or f"the task is {seen.status}")
    return item.ended("failed", now, error=_text(words), code=fault.get("code"))


def _finished(item: Item, result: Mapping[str, Any], now: float) -> Item:
    """An item with its result, in which a tool may say that it failed."""
    return item.ended("failed" if result.get("isError") is True else "done", now, result=result)


def _is_passing(error: TurnwiseError) -> bool:
    if isinstance(error, UnexpectedStatus):
        return error.status in (408, 425, 429) or error.status >= 500
    return isinstance(error, ConnectionLost | DeadlineExceeded)


def _said(error: TurnwiseError) -> str:
    return str(error)[:LONGEST_TEXT] or type(error).__name__


def _text(words: str | None) -> str | None:
    return None if words is None else words[:LONGEST_TEXT]
