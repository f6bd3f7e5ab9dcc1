"""How much a flow may take: rounds, time, bytes. All is counted inside the seal, where no client can change it."""

from dataclasses import dataclass, field

KIB = 1024
DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one flow.

    Clients stop after ten rounds, some after nine, and some take only two rounds that ask nothing. So a call is handed
    on at most `sheds` times, and not any more after round `last_shed`, so that rounds are left for questions.
    """

    rounds: int = 100
    """Questions that go round for ever end here, with an error in the log."""
    sheds: int = 2
    last_shed: int = 7
    deadline: float = 7 * DAY
    """Seconds from a flow's first question to the last retry that is taken."""
    shed_ttl: float = 120.0
    """Seconds in which a call that was handed on must be taken up; questions wait for `RequestStateSecurity(ttl=)`."""
    warn_bytes: int = 8 * KIB
    spill_bytes: int = 32 * KIB
    """Tokens above this put their largest entries into the server's store, where there is one."""
    max_bytes: int = 256 * KIB
    answer_bytes: int = 1024 * KIB
    """No single answer may be larger."""
    patience: float = 10.0
    """Seconds to wait for a guarded step that another instance is doing at this moment."""

    small_bytes: int = field(init=False, repr=False)
    """Up to here a token needs no thought."""

    def __post_init__(self) -> None:
        for name in ("rounds", "deadline", "shed_ttl", "warn_bytes", "spill_bytes", "max_bytes", "answer_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)!r}")
        for name in ("sheds", "last_shed", "patience"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be below 0, not {getattr(self, name)!r}")
        object.__setattr__(self, "small_bytes", min(self.warn_bytes, self.spill_bytes, self.max_bytes))


def check_budget(budget: object) -> None:
    """TypeError where it is neither a budget nor None."""
    if budget is not None and not isinstance(budget, Budget):
        raise TypeError(f"budget is a Budget(...), not {type(budget).__name__}")
