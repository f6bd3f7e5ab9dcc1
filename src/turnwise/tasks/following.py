"""Tasks as they change, for who listens."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from .model import is_over
from .runtime import Seen, Tasks

log = logging.getLogger("turnwise.tasks")

LOOK_SECONDS = 0.25
"""How often a task is looked at for who wants to hear of it."""
MOST_LOOKS = 100
"""Looks a second for one who follows many tasks. Those that changed in this process are not among them."""


async def follow(
    tasks: Tasks, task_ids: list[str], principal: str | None, show: Callable[[Seen, float], dict[str, Any]]
) -> AsyncIterator[dict[str, Any]]:
    """These tasks as they change, until all are over. Other processes play them too, so all are looked at now and then;
    of what changes here one hears.
    """
    known: dict[str, Any] = {}
    is_away, ear, round_at = False, tasks.news.ear(task_ids), 0.0
    while left := [task for task in task_ids if not is_over(known.get(task, (None,))[0])]:
        heard, ear.heard = ear.heard, set()
        if (now := time.monotonic()) >= round_at:
            heard, round_at = set(left), now + max(LOOK_SECONDS, len(left) / MOST_LOOKS)
        for task_id in (task for task in left if task in heard):
            try:
                seen = await tasks.get(task_id, principal, time.time())
            except Exception:  # A store that is away may come back while somebody listens.
                if not is_away:
                    log.exception("task %s: the store cannot be asked how far it has come", task_id)
                is_away, ear.heard = True, ear.heard | heard
                break
            is_away = False
            facts = _facts(seen)
            if seen is not None and known.get(task_id) != facts:
                yield show(seen, tasks.options.poll)
            known[task_id] = facts
        await asyncio.sleep(LOOK_SECONDS)


def _facts(seen: Seen | None) -> tuple[Any, ...]:
    """What tells one state of a task from another. One that is gone is over."""
    if seen is None:
        return ("cancelled",)
    return seen.task.status, seen.task.updated, seen.task.message, seen.task.waits
