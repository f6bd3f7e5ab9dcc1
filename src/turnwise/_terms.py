"""On what terms the rounds of a function are played: its limits, and what watches over its effects."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._budgets import Budget
from ._guards import Guard

INSIDE = "#/"
"""Between the key of a step and those of what it uses itself."""
_USUAL_BUDGET = Budget()


class Inside(NamedTuple):
    """A step that runs: in which round, its key, and whether it, or one around it, is guarded."""

    leg: object
    key: str
    is_guarded: bool


in_step: ContextVar[Inside | None] = ContextVar("turnwise_in_step", default=None)
"""The step that what runs belongs to, where effects are in their place."""


def inside(leg: object) -> Inside | None:
    """The step of this very round that what runs belongs to. A step may call another tool, which may ask."""
    step = in_step.get()
    return step if step is not None and step.leg is leg else None


def forgotten(leg: Any) -> str:
    """What is said where a question or a step was begun and not awaited: those that nothing came of are named."""
    settled = {} if leg.flow is None else leg.flow.entries
    left = [
        key for key in sorted(leg._claimed()) if key not in settled and not key.rpartition(INSIDE)[2].startswith("!")
    ]
    names = ", ".join(repr(key) for key in left if key not in leg._pending)
    return (
        f"a question or a step was begun and not awaited{names and f' ({names})'}: "
        "write `await ctx...`, in a function that is `async def`"
    )


@dataclass(frozen=True, slots=True)
class Terms:
    """How the rounds of one function are played.

    `effects`: no step runs before the client holds a token, so that a lost first reply cannot start a second flow.
    `single_use`: of each token one reply is made. `guard` remembers what must not happen twice. `task`: whether it is
    "always" a task, "optional" or "never"; a function that does not say becomes one where a call cannot go on.
    """

    version: str | None = None
    effects: bool = False
    single_use: bool = False
    budget: Budget = _USUAL_BUDGET
    guard: Guard | None = None
    is_overloaded: Callable[[], bool] | None = None
    task: str | None = None
