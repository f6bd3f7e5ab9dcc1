"""A call in hand: put down at its questions, as plain JSON, to be picked up by whoever has the answers.

A `Pending` holds the original request, what is asked now, the answers so far, and the server's opaque state. It is
never changed: every step makes a new one.
"""

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from ._driver import Given, Held, Questions
from .dialects.answering import check_question, checked_answer, typed_question
from .dialects.words import TARGETS
from .errors import CallerError, InvalidAnswer

if TYPE_CHECKING:
    from mcp_types import InputRequest

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One call that waits for answers. `given` are the questions of earlier rounds with their answers; `state` belongs
    to the server and is a secret of this call; `revision` counts what a store has seen of it.
    """

    id: str
    server: str | None
    method: str
    params: Mapping[str, Any]
    requests: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict)
    state: str | None = field(default=None, repr=False)
    round: int = 0
    given: tuple[Given, ...] = ()
    began: float
    asked: float
    revision: int = 0

    @property
    def target(self) -> str:
        """The tool, prompt or resource that was called."""
        return str(self.params[TARGETS[self.method]])

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What it was called with."""
        arguments: Mapping[str, Any] = self.params.get("arguments", {})
        return arguments

    @property
    def questions(self) -> "dict[str, InputRequest]":
        """What is asked, by key, as official request types; those that are answered already too."""
        return {key: typed_question(key, request) for key, request in self.requests.items()}

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The keys of the questions that still wait."""
        return tuple(key for key in self.requests if key not in self.answers)

    def answered(self, answers: Mapping[str, Any]) -> "Pending":
        """The same call with these answers added; InvalidAnswer, and nothing changed, where one does not fit."""
        checked = {}
        for key, answer in answers.items():
            if key not in self.requests:
                raise InvalidAnswer(key, f"this is not asked; what is asked: {', '.join(self.requests)}")
            checked[key] = checked_answer(key, self.requests[key], answer)
        return replace(self, answers={**self.answers, **checked})

    @property
    def held(self) -> Held:
        """Where the loop goes on."""
        return Held(self.requests, self.state, self.round, self.given)

    def to_json(self) -> str:
        """The call as text. It holds the answers and the server's state: keep it as you would keep those."""
        members = {name: getattr(self, name) for name in _MEMBERS}
        return json.dumps({"turnwise": FORMAT, **members}, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Pending":
        """The call that `to_json` wrote; CallerError where this is none."""
        try:
            data = json.loads(text)
            if data.pop("turnwise") != FORMAT:
                raise CallerError("this call was put down by another version of Turnwise")
            given = tuple(Given(*item) for item in data.pop("given"))
            pending = cls(**data, given=given)
            for key, request in pending.requests.items():
                check_question(key, request)
            if not isinstance(pending.target, str) or not isinstance(pending.arguments, Mapping):
                raise TypeError("the call has no target")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CallerError(f"not a call that was put down: {error!r}") from None
        return pending


_MEMBERS = tuple(name for name in Pending.__slots__)


class PendingStore(Protocol):
    """Where calls wait. Every method is atomic between processes."""

    async def keep(self, pending: Pending) -> Pending:
        """Keep a call, or what has become of it, and end its claim; AlreadyAnswered where it changed meanwhile."""
        ...

    async def list(self) -> list[Pending]:
        """All that wait, oldest first."""
        ...

    async def get(self, pending_id: str) -> Pending:
        """One of them; UnknownPending where it is not there."""
        ...

    async def answer(self, pending_id: str, answers: Mapping[str, Any]) -> Pending:
        """Add answers; AlreadyAnswered where somebody else answered one of these questions first."""
        ...

    async def claim(self, pending_id: str, seconds: float) -> Pending:
        """Take a call to carry it on; AlreadyAnswered while somebody else has it."""
        ...

    async def forget(self, pending_id: str) -> bool:
        """Drop a call; whether it was there."""
        ...

    async def expire(self, older_than: float) -> int:
        """Drop what was asked more than so many seconds ago; how many those were."""
        ...


def begun(method: str, params: Mapping[str, Any], server: str | None) -> Pending:
    """A call at its very beginning: nothing is asked yet."""
    now = time.time()
    return Pending(id=str(uuid.uuid4()), server=server, method=method, params=params, requests={}, began=now, asked=now)


def sent(pending: Pending) -> Pending:
    """The call after its answers went out."""
    return replace(pending, answers={}) if pending.answers else pending


def put_down(pending: Pending, step: Questions, answers: Mapping[str, Any]) -> Pending:
    """The call at the next questions, some of which are answered already."""
    return replace(
        pending,
        requests=step.requests,
        answers=answers,
        state=step.state,
        round=step.round,
        given=tuple(step.given),
        asked=time.time(),
    )
