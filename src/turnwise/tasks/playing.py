"""A leg that is played in this process: why it is to stop, and whether its end is on record."""

import asyncio
import logging

from .model import Claim, LostLease

log = logging.getLogger("turnwise.tasks")

BY_REQUEST, LEAVING, ELSEWHERE = "by request", "the worker leaves", "another worker has the task"


class Playing:
    """A leg that is played here, and why it is to stop. Once it is being recorded, nothing stops it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.reason: str | None = None
        self.is_ending = False
        self.has_begun = False

    def stop(self, reason: str) -> None:
        """Tell it to stop, again where it did not listen."""
        if self.task is not None and not self.is_ending:
            self.reason = self.reason or reason
            if self.has_begun:  # What is cancelled before its first step would leave nothing on record.
                self.task.cancel()


def is_recorded(claim: Claim, task: "asyncio.Task[None]") -> bool:
    """Whether a leg came to an end that is on record. Where it did not, it is due again when its lease is over."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, LostLease) and error.__cause__ is None:
        log.warning("task %s went on elsewhere: what this worker did last is not recorded", claim.id)
    elif error is not None:
        log.error("a leg of task %s could not be recorded; it is played again", claim.id, exc_info=error)
        return False
    return not task.cancelled()
