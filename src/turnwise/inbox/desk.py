"""The inbox itself: calls are handed over, questions are listed and answered, and whoever waits hears of it.

It knows no web framework. `run` is the work behind it, in any number of processes on one store.
"""

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from .._following import TaskInHand
from .._pending import Pending
from ..dialects.words import TARGETS
from ..errors import AlreadyAnswered, CallerError, UnknownPending
from .carrying import MAX_ROUNDS, channel
from .hooks import Event, Signer, Teller, check_url, told
from .model import WHO, InboxStore, Item, Page, TooLate, Wanted
from .watching import Changes
from .working import Worker, WorkOptions, allowed

log = logging.getLogger("turnwise.inbox")

LONGEST = 365 * 24 * 3600.0
"""Seconds that somebody may give a call."""
LONGEST_AUTHORIZATION = 8192
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Inbox:
    """An inbox over a store.

    `url` is where people reach it; hooks and hand-overs name pages under it. `hook_secrets` sign hooks, and without one
    there are none. `servers` are the URLs, or beginnings of URLs, of servers whose calls are taken; all are unless
    told. `hooks` are those that may be told, likewise.
    """

    def __init__(
        self,
        store: InboxStore,
        *,
        url: str | None = None,
        hook_secrets: Sequence[str] = (),
        servers: Sequence[str] | None = None,
        hooks: Sequence[str] | None = None,
        work: WorkOptions | None = None,
    ) -> None:
        self.store = store
        self.url = None if url is None else url.rstrip("/")
        self._servers = servers
        self._hooks = hooks
        self._signer = Signer(hook_secrets)
        self._changes = Changes(store)
        self._worker: Worker | None = None
        self._work = work or WorkOptions()

    def page_of(self, item_id: str) -> str | None:
        """Where people see an item, where it is known how they reach the inbox."""
        return None if self.url is None else f"{self.url}/items/{item_id}"

    async def hand_over(
        self,
        call: Pending | TaskInHand,
        *,
        caller: str,
        authorization: str | None = None,
        hook: str | None = None,
        seconds: float | None = None,
    ) -> Item:
        """Take a call with its questions, or a task. `authorization` is the header that its server wants; `hook` is
        told of questions and of the end; after `seconds` it is over. Who hands the same over again gets the same item.
        CallerError where it cannot be taken.
        """
        now = time.time()
        item = self._taken(call, caller, now)
        if hook is not None:
            self._check_hook(hook)
        self._check_way(item.server, authorization)
        until = None if seconds is None else now + _positive(seconds)
        item = replace(item, authorization=authorization, hook=hook, until=until)
        item = replace(item, due=until if item.status == "waiting" else now)
        tell = told(item, "item.asked", now, self.page_of(item.id)) if item.status == "waiting" else []
        try:
            kept = await self.store.add(item, tell)
        except AlreadyAnswered:
            with suppress(UnknownPending):
                known = await self.store.get(item.id)
                if known.handed == item.handed:
                    return known
            raise
        self._told(kept)
        return kept

    async def get(self, item_id: str) -> Item:
        """One item; UnknownPending where it is not there."""
        return await self.store.get(item_id)

    async def page(self, wanted: Wanted, *, after: str | None = None, most: int = 50) -> Page:
        """A page of a list."""
        return await self.store.page(wanted, after=after, most=most)

    async def answer(self, item_id: str, answers: Mapping[str, Any], *, round: int, by: str) -> Item:
        """Answer questions of this round, all or some. TooLate, with who it was, where somebody was first;
        InvalidAnswer, and nothing kept, where one does not fit.
        """
        item = await self.store.answer(item_id, answers, round=round, by=by, now=time.time())
        self._told(item)
        return item

    async def withdraw(self, item_id: str, *, by: str) -> Item:
        """End an item without a result; the server is not told. TooLate where it has ended already."""
        while True:
            item = await self.store.get(item_id)
            if item.is_over:
                raise TooLate(item_id, f"it is over: it is {item.status}")
            with suppress(AlreadyAnswered):
                return await self._kept(item.ended("failed", time.time(), error=f"withdrawn by {by}"), "item.ended")

    async def follow(self, item_id: str) -> AsyncIterator[Item]:
        """An item as it is, and again whenever it has changed, up to its end or to the inbox's."""
        watch = self._changes.open(item_id)
        try:
            item = await self.store.get(item_id)
            yield item
            while not item.is_over and await watch.next():
                seen, item = item, await self.store.get(item_id)
                if item.revision != seen.revision:
                    yield item
        finally:
            self._changes.close(watch, item_id)

    def changes(self) -> AsyncIterator[frozenset[str]]:
        """The ids of items as they are changed, here or by other processes."""
        return self._changes.all()

    async def changed_from(self, item_id: str, revision: int, seconds: float) -> Item:
        """An item as soon as it has another revision than this, or after so many seconds."""
        item: Item | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for item in self.follow(item_id):
                    if item.revision != revision or item.is_over:
                        return item
        return item or await self.store.get(item_id)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """The work behind the inbox, for as long as this lasts."""
        worker = self._worker = Worker(self.store, self._work, Teller(self._signer), self._kept)
        tasks = [asyncio.create_task(worker.run()), asyncio.create_task(self._changes.look())]
        for task in tasks:
            task.add_done_callback(_noticed)
        try:
            yield
        finally:
            self._worker = None
            self.let_go()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def let_go(self) -> None:
        """End the waiting of all who follow something: the process is about to end."""
        self._changes.end()

    async def _kept(self, item: Item, event: Event | None) -> Item:
        tell = [] if event is None else told(item, event, item.changed, self.page_of(item.id))
        kept = await self.store.put(item, tell)
        self._told(kept)
        return kept

    def _told(self, item: Item) -> None:
        self._changes.tell((item.id,))
        if self._worker is not None and item.due is not None:
            self._worker.wake()

    def _taken(self, call: Pending | TaskInHand, caller: str, now: float) -> Item:
        """An item out of what was handed over."""
        if not caller or len(caller) > WHO or not caller.isprintable():
            raise CallerError(f"a caller is a name of 1 to {WHO} printable characters")
        if isinstance(call, TaskInHand):
            params = {TARGETS["tools/call"]: call.tool, "arguments": dict(call.arguments)}
            item_id = "task-" + _digest(f"{call.server}\n{call.id}")
            pending = Pending(
                id=item_id, server=call.server, method="tools/call", params=params, requests={}, began=now, asked=now
            )
            facts: dict[str, Any] = {"task": call.id, "handed": item_id, "status": "going"}
        else:
            pending = replace(call, asked=_moment(call.asked, now), began=_moment(call.began, now), revision=0)
            facts = {"handed": _digest(call.to_json()), "status": "waiting" if call.unanswered else "going"}
        if not _ID.fullmatch(pending.id):
            raise CallerError("a call's id has letters, digits, - and _, up to 100")
        if pending.round >= MAX_ROUNDS:
            raise CallerError(f"the call has had {MAX_ROUNDS} rounds or more")
        return Item(id=pending.id, pending=pending, caller=caller, came=now, changed=now, **facts)

    def _check_way(self, server: str, authorization: str | None) -> None:
        """CallerError where the inbox has no way to a server."""
        if not server.startswith(("http://", "https://")):
            raise CallerError("the inbox carries on calls of servers at a URL alone, and this one is reached otherwise")
        if not allowed(server, self._servers):
            raise CallerError(f"calls of {server} are not taken here")
        if authorization is not None and len(authorization) > LONGEST_AUTHORIZATION:
            raise CallerError(f"authorization has at most {LONGEST_AUTHORIZATION} characters")
        try:
            channel(server, authorization)
        except ValueError as error:
            raise CallerError(str(error)) from None

    def _check_hook(self, hook: str) -> None:
        if not self._signer:
            raise CallerError("this inbox tells no hooks: it has no secret to sign them with")
        if not allowed(check_url(hook), self._hooks):
            raise CallerError("hooks to this URL are not told here")


def _noticed(task: asyncio.Task[None]) -> None:
    """Say so at once where the work behind the inbox has ended by itself."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("the inbox no longer works on what is due", exc_info=error)


def _positive(seconds: float) -> float:
    if not 0 < seconds <= LONGEST:
        raise CallerError(f"seconds is above 0, and at most {LONGEST:.0f}")
    return seconds


def _moment(moment: float, now: float) -> float:
    """A time that a caller says, within reason."""
    return float(max(now - LONGEST, min(moment, now)))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
