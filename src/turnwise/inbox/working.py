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

from .._claims import claimed
from .._upkeep import Upkeep
from ..errors import AlreadyAnswered, CallerError, UnknownPending
from .carrying import Away, Clients, carried_on, stopped
from .claiming import end, full
from .hooks import Event, Teller
from .model import InboxStore, Item, Unreadable
from .noting import Notes
from .places import Credentials
from .telling import Telling

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
"""Seconds before a server that is away is asked again: the first doubles each time."""
PURGE_SECONDS = 60.0
RESEAL_PAUSE = 0.01
IDLE_SECONDS = 1.0
"""After so long one looks for work of other processes, if nothing was said of it."""

BROKEN = "the inbox could not carry it on, and has logged why"

log = logging.getLogger("turnwise.inbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """How much is done at a time, and for how long things are kept."""

    workers: int = 128
    """Calls that are under way at a time. Most of what they cost is waiting."""
    per_server: int = 8
    """Of those, for one server; only one for each once half of all are under way."""
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
        credentials: Credentials,
        notes: Notes,
    ) -> None:
        self._store = store
        self._options = options
        self._telling = Telling(store, teller, notes, options.claim_seconds)
        self._kept = kept
        self._notes = notes
        self._clients = Clients(credentials)
        self._wake = asyncio.Event()
        self._has_keys = asyncio.Event()
        self._has_keys.set()
        self._busy: Counter[str] = Counter()
        self._away: dict[str, float] = {}
        self._tasks: dict[asyncio.Task[None], Item] = {}
        self._upkeep: list[Upkeep] = []

    def wake(self) -> None:
        """Something may be due."""
        self._wake.set()

    def reseal(self) -> None:
        """There are other keys: what is open is to be sealed under the first of them."""
        self._has_keys.set()

    @property
    def faults(self) -> Sequence[str]:
        """What of the work has failed, and is not done at the moment."""
        return [piece.fault for piece in self._upkeep if piece.fault is not None]

    def keep(self, what: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Have a piece of work go on, which is `what` the inbox does, until its task is cancelled."""
        piece = Upkeep(f"the inbox no longer {what}", log)
        self._upkeep.append(piece)
        return asyncio.create_task(piece.keep(work))

    async def run(self) -> None:
        """Until cancelled, do what is due. What is under way then is given back."""
        loops = {
            "carries calls on": self._look_after_items,
            "tells hooks": self._telling.run,
            "forgets what is over": self._purge,
            "seals what is open anew": self._reseal,
        }
        tasks = [self.keep(name, loop) for name, loop in loops.items()]
        try:
            await asyncio.wait(tasks)
        finally:
            await self._ended(tasks)

    async def _ended(self, loops: list[asyncio.Task[None]]) -> None:
        await end(loops)
        under_way = dict(self._tasks)
        await end(under_way)
        for task, item in under_way.items():
            if task.cancelled():
                await self._given_back(item, time.time())
        await self._clients.aclose()

    async def _look_after_items(self) -> None:
        while True:
            self._wake.clear()
            try:
                while len(self._tasks) < self._options.workers and (item := await self._claimed()) is not None:
                    self._busy[item.server] += 1
                    task = asyncio.create_task(self._carry(item))
                    self._tasks[task] = item
                    task.add_done_callback(self._finished)
            except Unreadable as error:  # It was put off, and holds up no other.
                log.warning("what is due cannot be read: %s", error)
                continue
            except CallerError as error:
                log.warning("the inbox cannot see what is to be done: %s", error)
                await asyncio.sleep(IDLE_SECONDS)
                continue
            await self._rest()

    def _finished(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled():  # Whoever cancelled it, it is given back at the end.
            del self._tasks[task]

    async def _claimed(self) -> Item | None:
        now = time.time()
        self._away = {server: until for server, until in self._away.items() if until > now}
        without = [*full(self._busy, self._options.workers, self._options.per_server), *self._away]
        without += [item.id for item in self._tasks.values()]  # Our own claims may have run out, if all stood still.
        claim = self._store.claim(now, self._options.claim_seconds, without=without)
        return await claimed(claim, lambda item: self._given_back(item, item.due))

    async def _rest(self) -> None:
        """Wait for something to be due."""
        pause = IDLE_SECONDS
        with suppress(CallerError):
            due = await self._store.next_due(time.time())
            pause = min(pause, max(0.01, due - time.time())) if due is not None else pause
        with suppress(TimeoutError):  # `wait_for` would miss a cancellation that comes with the event.
            async with asyncio.timeout(pause):
                await self._wake.wait()

    async def _carry(self, item: Item) -> None:
        """One item, held for as long as it takes."""
        renewing = asyncio.create_task(self._renewed(item))
        try:
            await self._carried(item)
        except (AlreadyAnswered, UnknownPending):
            await self._given_back(item, item.due)  # Somebody answered, withdrew or forgot it meanwhile.
        except CallerError as error:
            log.warning("call %s: what became of it could not be kept: %s", item.id, error)
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
            async with asyncio.timeout(None if item.until is None else item.until - now):
                after = await carried_on(self._clients, item)
        except TimeoutError:
            await self._kept(item.ended("expired", time.time()), "item.ended")
            return
        except Away as away:
            await self._put_off(item, str(away))
            return
        if not isinstance(after, Item):
            await self._store.release(item, _soonest(time.time() + after, item.until))
            return
        try:
            await self._kept(replace(after, due=_soonest(after.due, after.until)), _event(item, after))
        except AlreadyAnswered:
            if after.task is not None and item.task is None:  # It was withdrawn while it became a task.
                why = await stopped(self._clients, after)
                log.log(
                    logging.WARNING if why else logging.INFO, "task %s was withdrawn: %s", item.id, why or "stopped"
                )
            raise

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
        self._notes.put_off(after, why, now + pause)

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
                if isinstance(error, AlreadyAnswered):
                    return

    async def _reseal(self) -> None:
        """Seal what is open under the first key, a part at a time, so that older keys can be dropped."""
        while True:
            await self._has_keys.wait()
            self._has_keys.clear()
            after: str | None = ""
            try:
                while after is not None:
                    after = await self._store.reseal(after)
                    await asyncio.sleep(RESEAL_PAUSE)
            except CallerError as error:
                log.warning("the inbox cannot seal what is open under its first key: %s", error)
                self._has_keys.set()
                await asyncio.sleep(IDLE_SECONDS)

    async def _purge(self) -> None:
        while True:
            try:
                await self._store.purge(time.time(), self._options.retention)
            except CallerError as error:
                log.warning("the inbox cannot forget what is over: %s", error)
            await asyncio.sleep(PURGE_SECONDS)


def _event(before: Item, after: Item) -> Event | None:
    """What there is to tell of a step."""
    if after.is_over:
        return "item.ended"
    if after.status == "held":
        return "item.held"
    return "item.asked" if after.round != before.round else None


def _note(why: str, tries: int, again: float) -> str:
    """Why a call did not go on, and when that is tried next."""
    times, moment = "once" if tries == 1 else f"{tries} times", datetime.fromtimestamp(again, UTC)
    return f"{why[:1].upper()}{why[1:].rstrip('.')}. Tried {times}, and again at {moment:%H:%M:%S} UTC."


def _soonest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)
