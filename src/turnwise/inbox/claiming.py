"""How work is shared out and kept up: who gets no more for now, how it ends, and what becomes of work that fails."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before work that failed is begun again: the first doubles each time."""
AGAIN_SECONDS = 0.1
"""After so long one looks whether what was cancelled is about to end."""

log = logging.getLogger("turnwise.inbox")


def full(busy: Counter[str], most: int, each: int) -> list[str]:
    """Those that get no more for now. Each gets so many, and only one once half of all is taken: the rest is for
    others, however slow these are.
    """
    room = each if 2 * busy.total() < most else 1
    return [name for name, count in busy.items() if count >= room]


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until all have ended. One that is about to end is not cancelled again, which would keep it
    from giving back what it holds. One whose own clock cancelled it at the same moment goes on; its turn comes again.
    """
    tasks = [*tasks]
    while waiting := [task for task in tasks if not task.done()]:
        for task in waiting:
            if not task.cancelling():
                task.cancel()
        await asyncio.wait(waiting, timeout=AGAIN_SECONDS)


async def kept_up(name: str, work: Callable[[], Awaitable[None]], failing: set[str]) -> None:
    """Work that goes on until it is cancelled, whatever befalls it. Meanwhile its name is among those that fail."""
    pause, task = FIRST_PAUSE, asyncio.current_task()
    while True:
        began = time.monotonic()
        try:
            await work()
        except Exception:  # A fault in one part of the work must not end it for good, nor the other parts.
            if task is not None and task.cancelling():  # It was about to end: it does not begin again.
                log.error("the inbox no longer %s, and did not end that well", name, exc_info=True)
                return
            pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else pause
            log.critical("the inbox no longer %s; that is begun again in %.0f s", name, pause, exc_info=True)
        failing.add(name)
        await asyncio.sleep(pause)
        failing.discard(name)
        pause = min(2 * pause, LONGEST_PAUSE)
