"""Who looks for legs that are due: workers in the server's own process, woken by what happens there and by what their
store hears from other processes, where it can, and looking by themselves now and then.
"""

import asyncio
import logging
import time
from contextlib import suppress
from typing import Protocol

from .._claims import claimed
from ..errors import CallerError
from .model import Claim, LostLease, Telling
from .runtime import Tasks

log = logging.getLogger("turnwise.tasks")

LOOK_SECONDS = 0.5
"""How often a worker looks that nobody wakes."""
LULL_SECONDS = 0.02
"""For how long one waits for the next wake before it asks the store when that will be."""
IDLE_SECONDS = 5.0
"""How often one looks whose store tells it of what others do."""
PURGE_SECONDS = 60.0
MOST_CLAIMS = 16
"""Claims under way at once. A store settles several in the time of one."""


class Dispatcher(Protocol):
    """What brings legs to workers.

    One that has to know when a task becomes due has a method `attach(store)` too; a server calls it before it uses the
    store, whether it has workers itself or not.
    """

    async def run(self, tasks: Tasks) -> None:
        """Play legs until cancelled; then give back those under way, in good order."""
        ...


class LocalDispatcher:
    """Workers that look into the store themselves."""

    async def run(self, tasks: Tasks) -> None:
        """Play what is due, up to so many legs at a time."""
        tasks.woken = asyncio.Event()
        playing: set[asyncio.Task[bool]] = set()
        aside = background(tasks)
        try:
            while True:
                tasks.woken.clear()
                await self._fill(tasks, playing)
                if not await _is_woken(tasks, LULL_SECONDS):
                    await _is_woken(tasks, await _pause(tasks, is_full=len(playing) >= tasks.options.workers))
        finally:
            await drain(playing, tasks.options.grace)
            await ended(aside)

    async def _fill(self, tasks: Tasks, playing: "set[asyncio.Task[bool]]") -> None:
        """Begin legs until there are none, or no room for more; the more at a time, the more there were."""

        def end(task: "asyncio.Task[bool]") -> None:
            was_full = len(playing) >= tasks.options.workers
            playing.discard(task)
            if was_full or tasks.options.most:
                tasks.woken.set()

        begun = 0
        while tasks.tools and (room := tasks.options.workers - len(playing)) > 0:
            asked = min(room, max(1, begun), MOST_CLAIMS)
            claims = await _claimed(tasks, asked)
            for claim in claims:
                task = asyncio.create_task(tasks.play(claim))
                playing.add(task)
                task.add_done_callback(end)
            if len(claims) < asked:
                return
            begun += asked


async def _is_woken(tasks: Tasks, seconds: float) -> bool:
    """Wait for a wake, for so long at most. (Before Python 3.12, `wait_for` may swallow a cancellation.)"""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await tasks.woken.wait()
    return False


async def leg_of(tasks: Tasks, task_id: str | None = None) -> Claim | None:
    """The next leg that is due, or that of one task, for this process to play; None where there is none to be had."""
    claiming = tasks.store.claim(tasks.owner, tasks.options.lease, time.time(), tasks.limits, task_id)
    return await claimed(claiming, lambda claim: tasks.store.release(claim, time.time()))


async def _claimed(tasks: Tasks, count: int) -> list[Claim]:
    """Up to so many claims."""
    outcomes = await asyncio.gather(*(leg_of(tasks) for _ in range(count)), return_exceptions=True)
    if error := next((outcome for outcome in outcomes if isinstance(outcome, BaseException)), None):
        unknown = None if isinstance(error, CallerError) else error
        log.error("the store of tasks cannot be asked for work: %s", error, exc_info=unknown)
    return [outcome for outcome in outcomes if isinstance(outcome, Claim)]


async def _pause(tasks: Tasks, *, is_full: bool) -> float:
    """For how long there is nothing to do, unless somebody says otherwise. Nobody says that a limit is free again."""
    now = time.time()
    pause = idle(tasks) if isinstance(tasks.store, Telling) and not tasks.options.most else LOOK_SECONDS
    if is_full:
        return pause
    try:
        due = await tasks.store.due(now)
    except Exception:  # The store is away, which was said when it was asked for work.
        return LOOK_SECONDS
    return pause if due is None else min(pause, max(0.0, due - now))


def idle(tasks: Tasks) -> float:
    """How often to look for legs of which nobody tells: those of workers that fell silent."""
    return min(IDLE_SECONDS, tasks.options.lease / 2)


def background(tasks: Tasks) -> "list[asyncio.Task[None]]":
    """What goes on beside the legs: to forget what is over its time, and to listen."""
    listening = [tasks.store.listen(tasks.heard)] if isinstance(tasks.store, Telling) else []
    return [asyncio.create_task(work) for work in (_purge(tasks), *listening)]


async def ended(aside: "list[asyncio.Task[None]]") -> None:
    """Be done with what went on beside the legs."""
    for task in aside:
        task.cancel()
    await asyncio.wait(aside)


async def drain(playing: "set[asyncio.Task[bool]]", grace: float) -> None:
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
