"""The words of tasks, and what a store of them must do.

A store sees bytes and a few facts that it must sort by: everything that a person or a tool said is sealed before it
gets here. All its methods are atomic between processes. A leg is played under a claim: each claim of a task has a
higher epoch than the one before, and whoever comes with an old epoch gets LostLease and has changed nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL = ("completed", "failed", "cancelled")
CANCELLED_MESSAGE = "The task was cancelled by request."


class LostLease(BaseException):
    """Somebody else plays this task now, or it is over. No handler of an author is to swallow it."""


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be created. `principal` is a digest, or "" where nobody has to say who they are; `ttl` in seconds."""

    id: str
    principal: str
    tool: str
    call: bytes
    state: bytes
    now: float
    ttl: float | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it is seen from outside. `payload` are the open questions, the result or the error, sealed; `waits` are
    the keys of the questions that nobody has answered.
    """

    id: str
    principal: str
    tool: str
    status: Status
    message: str | None
    created: float
    updated: float
    ttl: float | None
    payload: bytes | None = None
    waits: tuple[str, ...] = ()
    owner: str | None = None
    leased_until: float = 0.0
    wake_at: float = 0.0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to play the next leg of a task, and all that it takes: the call, the ledger as the last leg left it,
    what this leg had settled when another worker died over it, and the answers that came. `woken` is when the leg
    became due, the same for every worker that tries it.
    """

    id: str
    epoch: int
    tool: str
    principal: str
    call: bytes
    state: bytes
    entries: Sequence[tuple[str, bytes]]
    answers: Mapping[str, bytes]
    woken: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Which tools a worker plays, and of which at most so many at a time, over all workers."""

    tools: tuple[str, ...]
    most: Mapping[str, int]


class TaskStore(Protocol):
    """Where tasks live."""

    async def create(self, task: NewTask) -> None:
        """Keep a task. It is durable when this returns."""
        ...

    async def get(self, task_id: str, principal: str | None) -> Task | None:
        """A task, for those whose it is; with None, as for an operator, whoever that is."""
        ...

    async def respond(self, task_id: str, principal: str, answers: Mapping[str, bytes], now: float) -> bool:
        """Keep the first answer to each open question, pass over the rest, and make the task due when all are there.
        Whether there is such a task.
        """
        ...

    async def cancel(self, task_id: str, principal: str | None, now: float) -> Task | None:
        """End a task that waits; ask the one who plays it to stop. The task as it is then. None as for `get`."""
        ...

    async def claim(
        self, owner: str, lease: float, now: float, limits: Limits, task_id: str | None = None
    ) -> Claim | None:
        """The right to play a leg that is due, of this task or of any."""
        ...

    async def append(self, claim: Claim, entries: Sequence[tuple[str, bytes]], until: float) -> bool:
        """Keep what the leg has settled so far, and extend the lease. Whether the task is to be stopped."""
        ...

    async def renew(self, claim: Claim, until: float) -> bool:
        """Extend the lease. Whether the task is to be stopped."""
        ...

    async def note(self, claim: Claim, message: str | None, now: float) -> None:
        """Say how far it has come."""
        ...

    async def park(self, claim: Claim, state: bytes, waits: Sequence[str], payload: bytes, now: float) -> None:
        """End the leg with open questions."""
        ...

    async def postpone(self, claim: Claim, state: bytes, wake_at: float, now: float) -> None:
        """End the leg; the next is due at this time."""
        ...

    async def release(self, claim: Claim, now: float) -> None:
        """Give the leg back as it was; it is due at once."""
        ...

    async def finish(
        self, claim: Claim, status: Status, payload: bytes | None, message: str | None, now: float
    ) -> None:
        """End the task. What is over stays as it is."""
        ...

    async def unfinished(self, principal: str, most: int, now: float) -> int:
        """How many tasks of this caller are not over; where there are more than `most`, at least that many."""
        ...

    async def due(self, now: float) -> float | None:
        """When the next of the tasks wakes that sleep now."""
        ...

    async def list(
        self, *, principal: str | None = None, status: str | None = None, after: str = "", most: int = 100
    ) -> list[Task]:
        """Tasks by id; of everybody where no principal is given."""
        ...

    async def counts(self, now: float) -> Mapping[str, tuple[int, float]]:
        """How many tasks there are of each status, and the age of the oldest in seconds."""
        ...

    async def purge(self, now: float) -> int:
        """Forget tasks that are over their time; how many that were."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and files."""
        ...


@runtime_checkable
class Telling(Protocol):
    """A store that can tell of what other processes do with it, so that workers need not look so often."""

    async def listen(self, heard: Callable[[str, str], None]) -> None:
        """Until cancelled, call `heard("due", "")` whenever there may be a leg to play, also where word of one may have
        been lost, and `heard("stop", task_id)` when a task is to be stopped that somebody plays.
        """
        ...


def is_late(task: Task, now: float) -> bool:
    """Whether a task is kept no longer, though it may still be there."""
    return task.ttl is not None and task.created + task.ttl <= now


def is_over(status: Any) -> bool:
    """Whether a task has come to its end."""
    return status in TERMINAL


def legible(text: str) -> str:
    """A text that every store takes: without NUL and halves of characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
