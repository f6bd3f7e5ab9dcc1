"""Hooks are told, several at a time: a place that does not answer holds up none but its own."""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress

from .._claims import claimed
from ..errors import CallerError
from .claiming import end, full
from .hooks import SECONDS, Teller, postponed
from .model import PLACE, Hook, InboxStore
from .noting import Notes

MOST, EACH = 64, 4
"""Hooks that are told at a time, and to one place."""
IDLE_SECONDS = 0.25

log = logging.getLogger("turnwise.inbox")


class Telling:
    """Tells what is due to be told. Several processes on one store share it by claims."""

    def __init__(self, store: InboxStore, teller: Teller, notes: Notes, claim_seconds: float) -> None:
        self._store = store
        self._teller = teller
        self._notes = notes
        self._seconds = max(claim_seconds, 2 * SECONDS)  # A claim that ends before the request would be told twice.
        self._busy: Counter[str] = Counter()
        self._tasks: dict[asyncio.Task[None], Hook] = {}
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled, tell what is due. What is under way then is given back: another process tells it at once."""
        try:
            while True:
                self._wake.clear()
                try:
                    while len(self._tasks) < MOST and (hook := await self._claimed()) is not None:
                        self._begin(hook)
                except CallerError as error:
                    log.warning("the inbox cannot see what is to be told: %s", error)
                    await asyncio.sleep(IDLE_SECONDS)
                await self._rest()
        finally:
            await self._ended()

    async def _ended(self) -> None:
        under_way = dict(self._tasks)
        await end(under_way)
        for task, hook in under_way.items():
            if task.cancelled():
                await self._given_back(hook)
        self._tasks.clear()
        await self._teller.aclose()

    async def _claimed(self) -> Hook | None:
        without = full(self._busy, MOST, EACH)
        return await claimed(self._store.claim_hook(time.time(), self._seconds, without=without), self._given_back)

    async def _rest(self) -> None:
        """Wait until one was told, or for a moment: others may have left something."""
        with suppress(TimeoutError):  # `wait_for` would miss a cancellation that comes with the event.
            async with asyncio.timeout(IDLE_SECONDS):
                await self._wake.wait()

    def _begin(self, hook: Hook) -> None:
        place = hook.id[:PLACE]
        self._busy[place] += 1
        task = asyncio.create_task(self._tell(hook))
        self._tasks[task] = hook

        def done(task: asyncio.Task[None]) -> None:
            if not task.cancelled():  # Whoever cancelled it, it is given back at the end.
                del self._tasks[task]
            self._busy[place] -= 1
            self._busy += Counter()
            self._wake.set()

        task.add_done_callback(done)

    async def _tell(self, hook: Hook) -> None:
        why = await self._teller.tell(hook, time.time())
        later = None if why is None else postponed(hook, time.time())
        if why is None:
            self._notes.told(hook)
        else:
            self._notes.untold(hook, why, None if later is None else later.due)
        try:
            await (self._store.end_hook(hook.id) if later is None else self._store.postpone_hook(later))
        except CallerError as error:
            log.warning("hook %s: what became of it could not be kept: %s", hook.id, error)

    async def _given_back(self, hook: Hook) -> None:
        with suppress(CallerError):
            await self._store.postpone_hook(hook)
