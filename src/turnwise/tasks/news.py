"""Which tasks have changed by what this process did, for those who follow them here."""

from collections.abc import Iterable
from weakref import WeakSet


class Ear:
    """What one who follows tasks has heard of: those that are to be looked at. It hears for as long as it is there."""

    def __init__(self, task_ids: Iterable[str]) -> None:
        self._wanted = frozenset(task_ids)
        self.heard: set[str] = set()

    def hear(self, task_id: str) -> None:
        """Take notice of a change."""
        if task_id in self._wanted:
            self.heard.add(task_id)


class News:
    """Who follows tasks in this process."""

    def __init__(self) -> None:
        self._ears: WeakSet[Ear] = WeakSet()

    def ear(self, task_ids: Iterable[str]) -> Ear:
        """An ear for these tasks."""
        ear = Ear(task_ids)
        self._ears.add(ear)
        return ear

    def tell(self, task_id: str) -> None:
        """Say that a task has changed."""
        for ear in self._ears:
            ear.hear(task_id)
