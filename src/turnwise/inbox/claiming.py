"""How work is shared out, who gets no more for now, and how it ends."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

AGAIN_SECONDS = 0.1
"""After so long one looks whether what was cancelled is about to end."""


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
