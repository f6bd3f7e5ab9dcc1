"""What a leg and its player know of each other."""

from typing import NamedTuple, Protocol

from .._ledger import Ledger
from .._messages import Call, Outcome


class Desk(Protocol):
    """What a leg of a task can do that a round of a call cannot."""

    async def keep(self, ledger: Ledger) -> None:
        """Write down what is settled so far."""
        ...

    async def report(self, message: str | None) -> None:
        """Say how far it has come."""
        ...


class Player(Protocol):
    """Who plays legs: the server's catalogue."""

    async def leg(self, call: Call, desk: Desk) -> tuple[Outcome, float | None]:
        """One leg, and when the next is due where the function sleeps."""
        ...


class Remembered(NamedTuple):
    """Who began a task, as far as a worker knows."""

    principal: str
