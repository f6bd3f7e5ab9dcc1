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
from ..dialects.unfit import kept
from ..dialects.words import TARGETS
from ..errors import AlreadyAnswered, CallerError, PeerError, UnknownPending
from .aside import aside, fetch_libraries
from .carrying import MAX_ROUNDS, Clients, channel, stopped
from .claiming import end
from .drafts import check_drafts
from .halting import restarted, tried_again
from .hooks import LONGEST_URL, Event, Listeners, Signer, Teller, check_url, told
from .model import UNASKED, WHO, Hook, InboxStore, Item, Page, TooLate, Unreadable, Wanted
from .noting import Notes
from .places import LONGEST_AUTHORIZATION, Credentials, allowed
from .watching import Changes
from .working import Worker, WorkOptions

log = logging.getLogger("turnwise.inbox")

LONGEST = 365 * 24 * 3600.0
"""Seconds that somebody may give a call."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Inbox:
    """An inbox over a store.

    `url` is where people reach it; hooks and hand-overs name pages under it. `hook_secrets` sign hooks, and without one
    there are none. `servers` are the URLs, or beginnings of URLs, of servers whose calls are taken; all are unless
    told. `hooks` are told of every question and every end, with what the questions say if `hook_words` is true;
    `allowed_hooks` are those that callers may name besides, likewise. `credentials` are Authorization headers by server
    or beginning of its URL: for calls that brought none, or whose own are refused.
    """

    def __init__(  # noqa: PLR0913 - all by name
        self,
        store: InboxStore,
        *,
        url: str | None = None,
        hook_secrets: Sequence[str] = (),
        servers: Sequence[str] | None = None,
        hooks: Sequence[str] = (),
        hook_words: bool = False,
        allowed_hooks: Sequence[str] | None = None,
        credentials: Mapping[str, str] | None = None,
        work: WorkOptions | None = None,
    ) -> None:
        self.store = store
        self.url = None if url is None else url.rstrip("/")
        self._servers = servers
        self._allowed_hooks = allowed_hooks
        self._credentials = Credentials(credentials)
        self._signer = Signer(hook_secrets)
        self._listeners = self._checked(hooks, hook_words)
        self._changes = Changes(store)
        self.notes = Notes()
        self._worker: Worker | None = None
        self._work = work or WorkOptions()

    @property
    def is_running(self) -> bool:
        """Whether the work behind it is done in this process."""
        return self._worker is not None

    @property
    def failing(self) -> Sequence[str]:
        """What of that work fails at the moment, in words; the log says why."""
        return () if self._worker is None else self._worker.faults

    def page_of(self, item_id: str) -> str | None:
        """Where people see an item, where it is known how they reach the inbox."""
        return None if self.url is None else f"{self.url}/items/{item_id}"

    async def hand_over(  # noqa: PLR0913 - by keyword
        self,
        call: Pending | TaskInHand,
        *,
        caller: str,
        by: str | None = None,
        authorization: str | None = None,
        hook: str | None = None,
        seconds: float | None = None,
        restart_expired: bool = False,
        drafts: Mapping[str, Any] | None = None,
    ) -> Item:
        """Take a call with its questions, or a task. `caller` is who is shown as such, `by` who brings it where that is
        another. `authorization` is the header that its server wants; `hook` is told of questions and of the end; after
        `seconds` it is over; `drafts` are what a model would say to requests to
        it. With `restart_expired` it is begun anew by itself where its server no longer takes its state, and what it
        did before may be done again; otherwise somebody has to say so. Who hands the same over again gets the same
        item. CallerError where it cannot be taken.
        """
        now = time.time()
        item = await aside(self._taken, call, caller, now)
        if drafts:
            check_drafts(item, drafts)
            item = replace(item, drafts=drafts)
        if hook is not None:
            self._check_hook(hook)
        self._check_way(item.server, authorization)
        until = None if seconds is None else now + _positive(seconds)
        item = replace(item, authorization=authorization, hook=hook, until=until, restart_expired=restart_expired)
        item = replace(item, due=until if item.status == "waiting" else now)
        tell = self._tell(item, "item.asked") if item.status == "waiting" else []
        try:
            kept = await self.store.add(item, tell)
        except AlreadyAnswered:
            with suppress(UnknownPending):
                known = await self.store.get(item.id)
                if known.handed == item.handed:
                    return known
            raise
        self.notes.taken(kept, by or caller)
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
        self.notes.answered(item, answers, by)
        self._told(item)
        return item

    async def withdraw(self, item_id: str, *, by: str) -> Item:
        """End an item without a result. The server of a task is asked to stop it, within a few seconds; of a call there
        is nothing to be stopped. TooLate where it has ended already.
        """
        while True:
            item = await self.store.get(item_id)
            if item.is_over:
                raise TooLate(item_id, f"it is over: it is {item.status}")
            with suppress(AlreadyAnswered):
                ended = item.ended("failed", time.time(), error=f"withdrawn by {by}", withdrawn_by=by)
                ended = await self._kept(ended, "item.ended")
                return ended if item.task is None else await self._stopped(item, ended)

    async def _stopped(self, item: Item, ended: Item) -> Item:
        """Ask the server of a task that was withdrawn to stop it, and keep what came of that."""
        clients = Clients(self._credentials)
        try:
            why = await stopped(clients, item)
        finally:
            await clients.aclose()
        said = "its server was asked to stop the task"
        if why is None:
            log.info("task %s was withdrawn: %s", item.id, said)
        else:
            said = "its server could not be asked to stop the task"
            log.warning("task %s was withdrawn: %s: %s", item.id, said, why)
        try:
            return await self._kept(replace(ended, cancelled=why is None, error=f"{ended.error}; {said}"), None)
        except CallerError:
            return ended

    async def restart(self, item_id: str, *, by: str) -> Item:
        """Begin a call anew whose server no longer took its state. What was answered is used again where the same is
        asked; what the call did may be done again. TooLate where it has not ended so, or its time is over.
        """
        item, now = await self.store.get(item_id), time.time()
        if not item.may_restart:
            raise TooLate(item_id, "it cannot be begun anew: only a call can whose server no longer took its state")
        if item.until is not None and now >= item.until:
            raise TooLate(item_id, "it cannot be begun anew: its time is over")
        return await self._kept(restarted(item, by, now), None)

    async def authorize(self, item_id: str, authorization: str, *, revision: int | None = None) -> Item:
        """Give other credentials for the server of an item; if it was held, it goes on. TooLate where it is carried on
        at the moment, has ended, or has another revision than this one.
        """
        item = await self.store.get(item_id)
        if revision not in (None, item.revision):
            raise TooLate(item_id, "it was changed meanwhile")
        if item.status not in ("waiting", "held") and not item.may_restart:
            what = "it is being carried on: it takes credentials if it is held" if not item.is_over else "it is over"
            raise TooLate(item_id, what)
        self._check_way(item.server, authorization)
        after = replace(item, authorization=authorization, changed=time.time())
        return await self._kept(tried_again(after, after.changed) if item.status == "held" else after, None)

    async def retry(self, item_id: str) -> Item:
        """Try again what is held; TooLate where it is not."""
        item = await self.store.get(item_id)
        if item.status != "held":
            raise TooLate(item_id, f"it is not held: it is {item.status}")
        return await self._kept(tried_again(item, time.time()), None)

    async def use_credentials(self, credentials: Mapping[str, str]) -> None:
        """Go on with other credentials of the inbox's own, and try what is held; ValueError where one is none."""
        self._credentials.replace(credentials)
        await self._retry_all()

    def use_keys(self, keys: Sequence[bytes | bytearray | str]) -> None:
        """Go on with other keys: the first seals from now on, and what is open is sealed under it in the background."""
        self.store.use_keys(keys)
        if self._worker is not None:
            self._worker.reseal()

    async def _retry_all(self) -> None:
        after: str | None = None
        while True:
            page = await self.store.page(Wanted(("held",)), after=after, most=200)
            for line in page.lines:
                with suppress(AlreadyAnswered, UnknownPending, Unreadable):
                    await self.retry(line.id)
            if (after := page.after) is None:
                return

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
        fetch_libraries()
        teller = Teller(self._signer)
        worker = self._worker = Worker(self.store, self._work, teller, self._kept, self._credentials, self.notes)
        tasks = [asyncio.create_task(worker.run()), worker.keep("sees what others change", self._changes.look)]
        try:
            if self._credentials:
                with suppress(CallerError):  # The worker says so where the store cannot be used.
                    await self._retry_all()
            yield
        finally:
            self._worker = None
            self.let_go()
            await end(tasks)

    def let_go(self) -> None:
        """End the waiting of all who follow something: the process is about to end."""
        self._changes.end()

    async def _kept(self, item: Item, event: Event | None) -> Item:
        kept = await self.store.put(item, [] if event is None else self._tell(item, event))
        if event is not None:
            self.notes.moved(kept)
        self._told(kept)
        return kept

    def _tell(self, item: Item, event: Event) -> list[Hook]:
        return told(item, event, item.changed, self.page_of(item.id), self._listeners)

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
            facts: dict[str, Any] = {"task": call.id, "handed": item_id, "status": "going", "round": UNASKED}
        else:
            pending = replace(call, asked=_moment(call.asked, now), began=_moment(call.began, now), revision=0)
            pending = replace(pending, requests=_kept(call.requests))
            facts = {"handed": _digest(call.to_json()), "status": "waiting" if call.unanswered else "going"}
        if not _ID.fullmatch(pending.id):
            raise CallerError("a call's id has letters, digits, - and _, up to 100")
        if pending.round >= MAX_ROUNDS:
            raise CallerError(f"the call has had {MAX_ROUNDS} rounds or more")
        return Item(id=pending.id, pending=pending, caller=caller, came=now, changed=now, **facts)

    def _check_way(self, server: str, authorization: str | None) -> None:
        """CallerError where the inbox has no way to a server."""
        if len(server) > LONGEST_URL or not server.isprintable():
            raise CallerError(f"the URL of a server has at most {LONGEST_URL} characters, all of which can be seen")
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
        if not allowed(check_url(hook), self._allowed_hooks):
            raise CallerError("hooks to this URL are not told here")

    def _checked(self, hooks: Sequence[str], words: bool) -> Listeners:
        """Those who are told of everything; ValueError where one cannot be."""
        if hooks and not self._signer:
            raise ValueError("hooks are signed: without a secret, nobody can be told")
        try:
            return Listeners([check_url(hook) for hook in hooks], words)
        except CallerError as error:
            raise ValueError(str(error)) from None


def _positive(seconds: float) -> float:
    if not 0 < seconds <= LONGEST:
        raise CallerError(f"seconds is above 0, and at most {LONGEST:.0f}")
    return seconds


def _moment(moment: float, now: float) -> float:
    """A time that a caller says, within reason."""
    return float(max(now - LONGEST, min(moment, now)))


def _kept(requests: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return kept(requests)
    except PeerError as error:
        raise CallerError(str(error)) from None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
