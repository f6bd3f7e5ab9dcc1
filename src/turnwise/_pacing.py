"""How often a call says how far it has come, whatever its function does."""

import math
import time

BURST = 100
"""So many at once are sent as they come."""
A_SECOND = 50
"""And then so many a second."""


class Pace:
    """Which of a request's reports are sent. What is passed over is never the last: where all is done, that is told."""

    __slots__ = ("_left", "_reached", "_seen")

    def __init__(self) -> None:
        self._left = float(BURST)
        self._reached = -math.inf
        self._seen = time.monotonic()

    def allows(self, progress: float, total: float | None) -> bool:
        """Whether this report is sent: "The `progress` value MUST increase with each notification"."""
        if not progress > self._reached:
            return False
        now = time.monotonic()
        self._left, self._seen = min(BURST, self._left + (now - self._seen) * A_SECOND), now
        if self._left < 1 and progress != total:
            return False
        self._left -= 1
        self._reached = progress
        return True
