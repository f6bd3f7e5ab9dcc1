"""A server's lifespan, and what works in the background meanwhile."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from ._upkeep import Upkeep
from .errors import AuthorError

log = logging.getLogger("turnwise.server")


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
        self._upkeep = Upkeep("what works in the background has failed", log)
        self._users = 0
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._over: asyncio.Event | None = None

    def take_up(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have something go on in the background for as long as the server lives."""
        self._work, self.is_needed = work, True

    @property
    def fault(self) -> str | None:
        """Why what should go on in the background does not."""
        return self._upkeep.fault

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
                working = None if self._work is None else asyncio.create_task(self._upkeep.keep(self._work))
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

    async def stop(self) -> None:
        """Leave; the last one ends it."""
        self._users -= 1
        if self._users > 0 or self._over is None or self._task is None:
            return
        self._over.set()
        task, self._task, self._ready, self._over = self._task, None, None, None
        await task
