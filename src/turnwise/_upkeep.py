"""Work in the background that goes on until it is told to end: what fails is begun again, and is known to fail."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before work that failed is begun again; each time twice as many, until it goes on well."""
STEADY_SECONDS = 15.0
"""For how long work has to go on until it goes on well."""


class Upkeep:
    """One piece of such work. `words` say what is the matter while it fails, in a log and to who asks."""

    def __init__(self, words: str, log: logging.Logger) -> None:
        self._words = words
        self._log = log
        self._pause = FIRST_PAUSE
        self.fault: str | None = None
        """What is the matter; None where the work goes on."""

    async def keep(self, work: Callable[[], Awaitable[object]]) -> None:
        """Work until cancelled, whatever befalls the work: what it needs may only be away for a while."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        self.fault, self._pause = None, FIRST_PAUSE
        while True:
            steady = loop.call_later(STEADY_SECONDS, self._go_well)
            error: BaseException | None = None
            try:
                await work()
            except (Exception, asyncio.CancelledError) as raised:  # It may have waited for what others cancelled.
                error = raised
            finally:
                steady.cancel()
            if task is not None and task.cancelling():
                if isinstance(error, asyncio.CancelledError):
                    raise error
                if error is not None:
                    self._log.error("it did not end well: %s", self._words, exc_info=error)
                return
            self.fault = self._words
            self._log.error("%s; it is begun again in %g s: %r", self.fault, self._pause, error, exc_info=error)
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _go_well(self) -> None:
        if self.fault is not None:
            self._log.info("no longer so, it goes on: %s", self.fault)
        self.fault, self._pause = None, FIRST_PAUSE
