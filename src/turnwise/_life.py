"""A server's lifespan, and what works in the background meanwhile."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from .errors import AuthorError

log = logging.getLogger("turnwise.server")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before work that failed is begun again; each time twice as many, until it goes on well."""
STEADY_SECONDS = 15.0
"""For how long work has to go on until it goes on well."""


class Life:
    """The server's lifespan, held open by a task of its own so that it is left in the task that entered it."""

    def __init__(
        self,
        server: Any,
        lifespan: Callable[[Any], AbstractAsyncContextManager[Any]] | None,
    ) -> None:
        self._server = server
        self._lifespan = lifespan
        self._work: Callable[[], Coroutine[Any, Any, None]] | None = None
        self.is_needed = lifespan is not None
        """Whether there is anything to begin and to end."""
        self.fault: str | None = None
        """Why what should go on in the background does not."""
        self._pause = FIRST_PAUSE
        self._users = 0
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._over: asyncio.Event | None = None

    def take_up(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have something go on in the background for as long as the server lives."""
        self._work, self.is_needed = work, True

    @property
    def is_ready(self) -> bool:
        """Whether what has to be begun has begun."""
        return not self.is_needed or (self._ready is not None and self._ready.done())

    async def start(self) -> None:
        """Begin, or join those for whom it has begun."""
        await self.ensure()
        while self.is_needed and self._ready is None:  # Others began it too, and have left already.
            await self.ensure()
        self._users += 1

    async def ensure(self) -> None:
        """Enter the lifespan unless somebody has."""
        if not self.is_needed:
            return
        loop = asyncio.get_running_loop()
        if self._ready is None or self._ready.get_loop() is not loop:
            self._users, self._ready, self._over = 0, loop.create_future(), asyncio.Event()
            self._task = loop.create_task(self._hold(self._ready, self._over))
        await asyncio.shield(self._ready)

    async def _hold(self, ready: "asyncio.Future[None]", over: asyncio.Event) -> None:
        try:
            async with nullcontext() if self._lifespan is None else self._lifespan(self._server) as state:
                self._server.lifespan_state = state
                working = None if self._work is None else asyncio.create_task(self._keep_at(self._work, over))
                ready.set_result(None)
                await over.wait()
                if working is not None:
                    working.cancel()
                    await asyncio.wait([working])
        except (Exception, asyncio.CancelledError) as error:
            if self._ready is ready:
                self._ready = None
            if ready.done():
                raise
            # Those who wait are not cancelled, even if what the lifespan itself waited for was.
            ready.set_exception(error if isinstance(error, Exception) else AuthorError("the lifespan was cancelled"))
            ready.exception()  # Looked at, because there may be nobody left to raise it to.
            if not isinstance(error, Exception):
                raise

    async def _keep_at(self, work: Callable[[], Coroutine[Any, Any, None]], over: asyncio.Event) -> None:
        """Work until the end, and begin again where that ends before: what it needs may have been away for a while."""
        self.fault, self._pause = None, FIRST_PAUSE
        while True:
            steady = asyncio.get_running_loop().call_later(STEADY_SECONDS, self._go_well)
            error: Exception | None = None
            try:
                await work()
            except Exception as raised:
                error = raised
            finally:
                steady.cancel()
            if over.is_set():
                if error is not None:
                    log.error("what works in the background did not end well", exc_info=error)
                return
            self.fault = "what works in the background has failed"
            log.error("%s, and is begun again in %g s: %r", self.fault, self._pause, error, exc_info=error)
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _go_well(self) -> None:
        if self.fault is not None:
            log.info("what works in the background goes on again")
        self.fault, self._pause = None, FIRST_PAUSE

    async def stop(self) -> None:
        """Leave; the last one ends it."""
        self._users -= 1
        if self._users > 0 or self._over is None or self._task is None:
            return
        self._over.set()
        task, self._task, self._ready, self._over = self._task, None, None, None
        await task
