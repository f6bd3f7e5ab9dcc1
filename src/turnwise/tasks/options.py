"""How a server keeps its tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .model import TaskStore


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a server keeps its tasks, and plays them.

    `ttl` is for how many seconds a task is kept from its creation, None for ever; `poll` how often clients are told to
    look; `lease` for how long a worker that falls silent keeps a leg to itself. `workers` legs are played at a time by
    this process, none with 0. `most` limits single tools, over all processes. `attempts` is how often a leg that gets
    no further is taken up again, for a function that brings its process down; None for as often as it takes. A caller
    who has said who they are has at most `per_caller` tasks that are not over, None for any number.
    """

    store: TaskStore | None = None
    ttl: float | None = 86_400.0
    poll: float = 1.0
    lease: float = 30.0
    workers: int = 32
    grace: float = 10.0
    most: Mapping[str, int] | None = None
    dispatcher: Any = None
    attempts: int | None = 20
    per_caller: int | None = 1000

    def __post_init__(self) -> None:
        for name in ("poll", "lease"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is a number of seconds above 0, not {getattr(self, name)!r}")
        if self.ttl is not None and not self.ttl > 0:
            raise ValueError(f"ttl is a number of seconds above 0, or None, not {self.ttl!r}")
        if type(self.workers) is not int or self.workers < 0:
            raise ValueError(f"workers is a whole number, not {self.workers!r}")
        if self.per_caller is not None and (type(self.per_caller) is not int or self.per_caller < 1):
            raise ValueError(f"per_caller is a whole number above 0, or None, not {self.per_caller!r}")
