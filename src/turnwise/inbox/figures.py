"""Figures of an inbox for Prometheus: how much waits and for how long, what was answered, what ended, which hooks were
taken. Needs the extra `turnwise[metrics]`, which `turnwise[inbox]` brings.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import CallerError
from .desk import Inbox
from .model import OPEN, Hook, Item, Wanted
from .noting import Notes, action_of, log

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

SECONDS = 15.0
"""How often what is open is counted."""


class Figures(Notes):
    """Counts what it hears of, and writes it down. What is open is the store's, and so the same in all processes; the
    rest is what this process did.
    """

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge

        where: dict[str, Any] = {"registry": registry or REGISTRY, "namespace": "turnwise", "subsystem": "inbox"}
        self._items = Gauge("items", "Calls and tasks that are open, by status.", ("status",), **where)
        self._oldest = Gauge("oldest_waiting_seconds", "How long the oldest open question has waited.", **where)
        self._taken = Counter("taken", "Calls and tasks that were handed over.", **where)
        self._answers = Counter("answers", "Questions that were answered, by what was done.", ("action",), **where)
        self._ended = Counter("ended", "Calls and tasks that came to their end, by status.", ("status",), **where)
        self._away = Counter("put_off", "How often a call's server was away.", **where)
        self._hooks = Counter("hooks", "Hooks that were sent, by what came of it.", ("outcome",), **where)

    def taken(self, item: Item, by: str) -> None:
        """Count it."""
        super().taken(item, by)
        self._taken.inc()

    def answered(self, item: Item, answers: Mapping[str, Any], by: str) -> None:
        """Count the answers."""
        super().answered(item, answers, by)
        for answer in answers.values():
            self._answers.labels(action_of(answer)).inc()

    def ended(self, item: Item) -> None:
        """Count it."""
        super().ended(item)
        self._ended.labels(item.status).inc()

    def put_off(self, item: Item, why: str, again: float) -> None:
        """Count it."""
        super().put_off(item, why, again)
        self._away.inc()

    def told(self, hook: Hook) -> None:
        """Count it."""
        super().told(hook)
        self._hooks.labels("taken").inc()

    def untold(self, hook: Hook, why: str, again: float | None) -> None:
        """Count it."""
        super().untold(hook, why, again)
        self._hooks.labels("given_up" if again is None else "failed").inc()

    async def follow(self, inbox: Inbox) -> None:
        """Count what is open now and then, for as long as this is awaited."""
        while True:
            try:
                for status in OPEN:
                    page = await inbox.page(Wanted((status,)), most=1)
                    self._items.labels(status).set(page.total or 0)
                    if status == "waiting":
                        self._oldest.set(time.time() - page.lines[0].asked if page.lines else 0.0)
            except CallerError as error:  # A store that is away may come back.
                log.warning("what is open cannot be counted: %s", error)
            await asyncio.sleep(SECONDS)
