"""On what terms the rounds of a function are played: its limits, and what watches over its effects."""

from collections.abc import Callable
from dataclasses import dataclass

from ._budgets import Budget
from ._guards import Guard

_USUAL_BUDGET = Budget()


@dataclass(frozen=True, slots=True)
class Terms:
    """How the rounds of one function are played.

    `effects`: no step runs before the client holds a token, so that a lost first reply cannot start a second flow.
    `single_use`: of each token one reply is made. `guard` remembers what must not happen twice.
    """

    version: str | None = None
    effects: bool = False
    single_use: bool = False
    budget: Budget = _USUAL_BUDGET
    guard: Guard | None = None
    is_overloaded: Callable[[], bool] | None = None
