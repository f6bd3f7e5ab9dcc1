"""Who looks for legs that are due: workers in the server's own process, woken by what happens there, and looking by
themselves now and then for what happens elsewhere.
"""

import asyncio
import logging
import time
from typing import Protocol

from .model import Claim, LostLease
from .runtime import Tasks

log = logging.getLogger("turnwise.tasks")

LOOK_SECONDS = 0.5
"""How often a worker looks that nobody wakes."""
PURGE_SECONDS = 60.0


class Dispatcher(Protocol):
    """What brings legs to workers."""

    async def run(self, tasks: Tasks) -> None:
        """Play legs until cancelled; then give back those under way, in good order."""
        ...


class LocalDispatcher:
    """Workers that look into the store themselves."""

    async def run(self, tasks: Tasks) -> None:
        """Play what is due, up to so many legs at a time."""
        playing: set[asyncio.Task[None]] = set()
        purging = asyncio.create_task(_purge(tasks))
        try:
            while True:
                tasks.woken.clear()
                while len(playing) < tasks.options.workers and (claim := await self._claim(tasks)) is not None:
                    task = asyncio.create_task(tasks.play(claim))
                    playing.add(task)
                    task.add_done_callback(playing.discard)
                    task.add_done_callback(lambda _: tasks.woken.set())
                try:
                    async with asyncio.timeout(LOOK_SECONDS):
                        await tasks.woken.wait()
                except TimeoutError:
                    pass
        finally:
            purging.cancel()
            await drain(playing, tasks.options.grace)

    async def _claim(self, tasks: Tasks) -> Claim | None:
        if not tasks.tools:
            return None
        try:
            return await tasks.store.claim(tasks.owner, tasks.options.lease, time.time(), tasks.limits)
        except Exception:  # The store is away; the legs wait for it.
            log.exception("the store of tasks cannot be asked for work")
            return None


async def drain(playing: "set[asyncio.Task[None]]", grace: float) -> None:
    """Let legs finish that are nearly done, and give the others back."""
    if playing:
        await asyncio.wait(playing, timeout=grace)
    left = list(playing)
    for task in left:
        task.cancel()
    for outcome in await asyncio.gather(*left, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, asyncio.CancelledError | LostLease):
            log.error("a leg could not be given back", exc_info=outcome)


async def _purge(tasks: Tasks) -> None:
    while True:
        try:
            if gone := await tasks.store.purge(time.time()):
                log.info("%d tasks were over their time, and are forgotten", gone)
        except Exception:  # Tomorrow is another day.
            log.exception("tasks that are over their time could not be forgotten")
        await asyncio.sleep(PURGE_SECONDS)
