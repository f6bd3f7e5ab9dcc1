"""When an instance has too much to do: its event loop comes late, or too many calls are under way."""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

log = logging.getLogger("turnwise.flows")

TICK = 0.05


class Load(NamedTuple):
    """How busy an instance is."""

    in_flight: int
    lag: float


class Overload:
    """A policy for `MCPServer(shed_when=...)`: more than `in_flight` calls at once, or a loop that comes more than
    `lag` seconds late.

    The loop is timed by a tick that runs while calls are under way.
    """

    def __init__(self, *, in_flight: int | None = None, lag: float | None = 0.25) -> None:
        if in_flight is None and lag is None:
            raise ValueError("Overload needs a limit: in_flight=, lag= or both")
        if in_flight is not None and in_flight < 1:
            raise ValueError(f"in_flight is a number of calls, at least 1, not {in_flight!r}")
        if lag is not None and not lag > 0:
            raise ValueError(f"lag is a number of seconds above 0, not {lag!r}")
        self._most = in_flight
        self._lag = lag

    def __call__(self, load: Load) -> bool:
        """Whether calls should go elsewhere."""
        return (self._most is not None and load.in_flight > self._most) or (
            self._lag is not None and load.lag > self._lag
        )


def checked(policy: Callable[[Load], bool]) -> Callable[[Load], bool]:
    """The policy, in a form that cannot hurt a call: what raises sheds nothing."""
    if not callable(policy) or inspect.iscoroutinefunction(policy):
        raise TypeError("shed_when is a plain function of the load, such as Overload(in_flight=100)")

    def is_overloaded(load: Load) -> bool:
        try:
            return bool(policy(load))
        except Exception:  # The author's own; the call has made progress and goes on.
            log.exception("shed_when failed; nothing is shed")
            return False

    return is_overloaded


class Gauge:
    """How busy this instance is, told by those who come and go."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._lag = 0.0
        self._due = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def load(self) -> Load:
        """The load at this moment; a tick that is overdue counts."""
        overdue = time.monotonic() - self._due if self._loop is not None else 0.0
        return Load(self.in_flight, max(self._lag, overdue))

    def __enter__(self) -> None:
        """A call begins."""
        self.in_flight += 1
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lag = loop, 0.0
            self._schedule(loop)

    def __exit__(self, *_: object) -> None:
        """A call ends."""
        self.in_flight -= 1

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = time.monotonic() + TICK
        loop.call_later(TICK, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        # Half of the old value stays, so that one late tick is not forgotten at once and not remembered for ever.
        self._lag = max(time.monotonic() - self._due, self._lag / 2)
        if self.in_flight > 0:
            self._schedule(loop)
        else:
            self._loop = None
