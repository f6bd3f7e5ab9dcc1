"""The work behind the inbox: what is due is carried on, hooks are told, what is over its time is forgotten.

Several processes on one store share the work by claims. A server that is away is asked again after growing pauses, and
holds up nobody else's calls.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ..errors import AlreadyAnswered, CallerError, UnknownPending
from .carrying import Away, Clients, carried_on
from .hooks import Event, Teller, postponed
from .model import Hook, InboxStore, Item

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds before a server that is away is asked again: the first doubles each time."""
PURGE_SECONDS = 60.0
IDLE_SECONDS = 1.0
"""After so long one looks for work of other processes, if nothing was said of it."""

BROKEN = "the inbox could not carry it on, and has logged why"

log = logging.getLogger("turnwise.inbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """How much is done at a time, and for how long things are kept."""

    workers: int = 16
    per_server: int = 8
    """Of those, for one server."""
    claim_seconds: float = 30.0
    """After so long the work of a process that died is taken up by another."""
    patience: float = 24 * 3600.0
    """For so long a server that is away is asked again; then the call has failed."""
    retention: float = 30 * 24 * 3600.0
    """For so long what has ended is kept."""


class Worker:
    """Carries on what is due. `kept` is called with each step, to keep it and to tell of it."""

    def __init__(
        self,
        store: InboxStore,
        options: WorkOptions,
        teller: Teller,
        kept: Callable[[Item, Event | None], Awaitable[Item]],
    ) -> None:
        self._store = store
        self._options = options
        self._teller = teller
        self._kept = kept
        self._clients = Clients()
        self._wake = asyncio.Event()
        self._busy: Counter[str] = Counter()
        self._away: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Something may be due."""
        self._wake.set()

    async def run(self) -> None:
        """Until cancelled, do what is due. What is under way then is given back."""
        loops = (self._look_after_items, self._look_after_hooks, self._purge)
        tasks = [asyncio.create_task(loop()) for loop in loops]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in (*tasks, *self._tasks):
                task.cancel()
            await asyncio.wait([*tasks, *self._tasks])
            await self._clients.aclose()
            await self._teller.aclose()

    async def _look_after_items(self) -> None:
        while True:
            self._wake.clear()
            try:
                while len(self._tasks) < self._options.workers and (item := await self._claimed()) is not None:
                    self._busy[item.server] += 1
                    task = asyncio.create_task(self._carry(item))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            except CallerError as error:
                log.warning("the inbox cannot see what is to be done: %s", error)
                await asyncio.sleep(IDLE_SECONDS)
                continue
            await self._rest()

    async def _claimed(self) -> Item | None:
        now = time.time()
        self._away = {server: until for server, until in self._away.items() if until > now}
        full = [server for server, count in self._busy.items() if count >= self._options.per_server]
        return await self._store.claim(now, self._options.claim_seconds, without=[*full, *self._away])

    async def _rest(self) -> None:
        """Wait for something to be due."""
        pause = IDLE_SECONDS
        with suppress(CallerError):
            due = await self._store.next_due(time.time())
            pause = min(pause, max(0.01, due - time.time())) if due is not None else pause
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), pause)

    async def _carry(self, item: Item) -> None:
        """One item, held for as long as it takes."""
        renewing = asyncio.create_task(self._renewed(item))
        try:
            await self._carried(item)
        except (AlreadyAnswered, UnknownPending):
            await self._given_back(item, item.due)  # Somebody answered, withdrew or forgot it meanwhile.
        except CallerError as error:
            log.warning("call %s: what became of it could not be kept: %s", item.id, error)
        except asyncio.CancelledError:
            await asyncio.shield(self._given_back(item, time.time()))
            raise
        except Exception:  # Whatever one call brings about, it fails alone, and is not taken up for ever.
            log.exception("call %s cannot be carried on", item.id)
            with suppress(CallerError):
                await self._kept(item.ended("failed", time.time(), error=BROKEN), "item.ended")
        finally:
            renewing.cancel()
            self._busy[item.server] -= 1
            self._busy += Counter()
            self.wake()

    async def _carried(self, item: Item) -> None:
        now = time.time()
        if item.until is not None and now >= item.until:
            await self._kept(item.ended("expired", now), "item.ended")
            return
        if not item.carries:
            await self._store.release(item, item.until)
            return
        try:
            after = await carried_on(self._clients, item)
        except Away as away:
            await self._put_off(item, str(away))
            return
        if not isinstance(after, Item):
            await self._store.release(item, _soonest(time.time() + after, item.until))
            return
        event: Event | None = "item.ended" if after.is_over else "item.asked" if after.round != item.round else None
        await self._kept(replace(after, due=_soonest(after.due, after.until)), event)

    async def _put_off(self, item: Item, why: str) -> None:
        """The server is away: say so, and try again later."""
        now, tries = time.time(), item.tries + 1
        pause = min(FIRST_PAUSE * 2 ** min(item.tries, 20), LONGEST_PAUSE) * random.uniform(0.8, 1.2)
        self._away[item.server] = now + min(pause, FIRST_PAUSE)
        since = max([one.at for one in item.given], default=item.came)
        if now - max(since, item.came) > self._options.patience:
            await self._kept(item.ended("failed", now, error=f"the server was away for too long: {why}"), "item.ended")
            return
        note = _note(why, tries, now + pause)
        after = replace(item, note=note, tries=tries, changed=now, due=_soonest(now + pause, item.until))
        await self._kept(after, None)

    async def _given_back(self, item: Item, due: float | None) -> None:
        with suppress(CallerError):
            await self._store.release(item, due)

    async def _renewed(self, item: Item) -> None:
        seconds = self._options.claim_seconds
        while True:
            await asyncio.sleep(seconds / 3)
            try:
                await self._store.renew(item, time.time() + seconds)
            except CallerError as error:
                log.warning("call %s may be carried on by another process as well: %s", item.id, error)
                return

    async def _look_after_hooks(self) -> None:
        while True:
            try:
                hook = await self._store.claim_hook(time.time(), self._options.claim_seconds)
                if hook is not None:
                    await self._told(hook)
                    continue
            except CallerError as error:
                log.warning("the inbox cannot see what is to be told: %s", error)
            await asyncio.sleep(IDLE_SECONDS / 4)

    async def _told(self, hook: Hook) -> None:
        try:
            why = await self._teller.tell(hook, time.time())
        except asyncio.CancelledError:
            await asyncio.shield(self._store.postpone_hook(hook))  # Another process tells it at once.
            raise
        later = None if why is None else postponed(hook, time.time())
        if later is not None:
            log.info("a hook was not taken, and is tried again: %s", why)
            await self._store.postpone_hook(later)
            return
        if why is not None:
            log.warning("a hook was not taken, and is given up: %s", why)
        await self._store.end_hook(hook.id)

    async def _purge(self) -> None:
        while True:
            try:
                await self._store.purge(time.time(), self._options.retention)
            except CallerError as error:
                log.warning("the inbox cannot forget what is over: %s", error)
            await asyncio.sleep(PURGE_SECONDS)


def _note(why: str, tries: int, again: float) -> str:
    """Why a call did not go on, and when that is tried next."""
    times, moment = "once" if tries == 1 else f"{tries} times", datetime.fromtimestamp(again, UTC)
    return f"{why[:1].upper()}{why[1:].rstrip('.')}. Tried {times}, and again at {moment:%H:%M:%S} UTC."


def _soonest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)


def allowed(url: str, places: Sequence[str] | None) -> bool:
    """Whether a URL is one of these places, or under one; anything is where nobody said."""
    if places is None:
        return True
    return any(url == place or url.startswith(place.rstrip("/") + "/") for place in places)
