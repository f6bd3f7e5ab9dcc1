"""A call in hand: put down at its questions, as plain JSON, to be picked up by whoever has the answers.

A `Pending` holds the original request, what is asked now, the answers so far, and the server's opaque state. It is
never changed: every step makes a new one.
"""

import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from ._driver import Given, Held, Questions
from ._json import decode, encode
from .dialects.answering import check_question, check_round, typed_question
from .dialects.unfit import answer_in_hand, flaw_of, whole_answer
from .dialects.words import TARGETS
from .errors import CallerError, InvalidAnswer, PeerError

if TYPE_CHECKING:
    from mcp_types import InputRequest

FORMAT = 1

log = logging.getLogger("turnwise.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One call that waits for answers. `given` are the questions of earlier rounds with their answers, `reusable` those
    of before it was begun anew; `state` belongs to the server and is a secret of this call; `revision` counts what a
    store has seen of it.
    """

    id: str
    server: str | None
    method: str
    params: Mapping[str, Any]
    requests: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    state: str | None = field(default=None, repr=False)
    round: int = 0
    given: tuple[Given, ...] = field(default=(), repr=False)
    reusable: tuple[Given, ...] = field(default=(), repr=False)
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
        """What is asked, by key, as official request types; those that are answered already too. MalformedQuestion
        where one can only be refused.
        """
        return {key: typed_question(key, request) for key, request in self.requests.items()}

    @property
    def unanswered(self) -> tuple[str, ...]:
        """The keys of the questions that still wait."""
        return tuple(key for key in self.requests if key not in self.answers)

    def answered(self, answers: Mapping[str, Any]) -> "Pending":
        """The same call with these answers added; InvalidAnswer, and nothing changed, where one does not fit.

        To a form, a dict of its fields is an answer that accepts it, and so is the value of its only field.
        """
        checked = {}
        for key, answer in answers.items():
            if key not in self.requests:
                raise InvalidAnswer(key, f"this is not asked; what is asked: {', '.join(self.requests)}")
            whole = whole_answer(key, self.requests[key], answer)
            checked[key] = answer_in_hand(key, self.requests[key], whole)
        return replace(self, answers={**self.answers, **checked})

    @property
    def held(self) -> Held:
        """Where the loop goes on."""
        return Held(self.requests, self.state, self.round, self.given, self.reusable, self.answers)

    def to_json(self) -> str:
        """The call as text. It holds the answers and the server's state: keep it as you would keep those."""
        members = {name: getattr(self, name) for name in _MEMBERS}
        return json.dumps({"turnwise": FORMAT, **members}, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, raw_questions: bool = False) -> "Pending":
        """The call that `to_json` wrote; CallerError where this is none. With `raw_questions`, it may hold questions
        that can only be refused, as calls of a client with that option do.
        """
        try:
            pending = restored(text)
            pending._check(flaw_of if raw_questions else check_question)
        except (ValueError, TypeError, KeyError, AttributeError, PeerError) as error:
            said = str(error) if isinstance(error, PeerError | ValueError) else repr(error)
            raise CallerError(f"not a call that was put down: {said}") from None
        return pending

    def _check(self, look: Callable[[str, Any], Any]) -> None:
        for name, kinds in _KINDS.items():
            value = getattr(self, name)
            if type(value) not in kinds or (type(value) in (int, float) and value < 0):
                raise TypeError(f"{name} is {value!r}")
        if not isinstance(self.params[TARGETS[self.method]], str) or not isinstance(self.arguments, Mapping):
            raise TypeError("the call has no target")
        check_round(self.requests)
        for key, request in self.requests.items():
            look(key, request)
        if not all(key in self.requests and isinstance(answer, dict) for key, answer in self.answers.items()):
            raise TypeError("an answer has no question")
        for old in (*self.given, *self.reusable):
            look(old.key, old.request)
            if not isinstance(old.key, str) or not isinstance(old.answer, dict):
                raise TypeError("an earlier question has no answer")


_NONE = type(None)
_KINDS: Mapping[str, tuple[type, ...]] = {
    "id": (str,),
    "server": (str, _NONE),
    "method": (str,),
    "params": (dict,),
    "requests": (dict,),
    "answers": (dict,),
    "state": (str, _NONE),
    "round": (int,),
    "began": (int, float),
    "asked": (int, float),
    "revision": (int,),
}
_MEMBERS = tuple(name for name in Pending.__slots__)
_NEEDED = tuple(one.name for one in fields(Pending) if one.default is MISSING and one.default_factory is MISSING)


def restored(text: str | bytes) -> Pending:
    """The call that `to_json` wrote, which a store of ours has kept sealed: it is not checked again."""
    data = _members(decode(text))
    for name in ("given", "reusable"):
        data[name] = tuple(Given(**dict(zip(Given._fields, item, strict=True))) for item in data.get(name, ()))
    return Pending(**data)


def _members(data: Any) -> dict[str, Any]:
    """The members of a call that was put down; CallerError where this is something else."""
    if not isinstance(data, dict) or "turnwise" not in data:
        wanted = 'give the whole object that Pending.to_json wrote, which says {"turnwise": 1, ...} of itself'
        raise CallerError(f"not a call that was put down: {wanted}")
    if data["turnwise"] != FORMAT:
        raise CallerError("this call was put down by another version of Turnwise")
    members = {name: value for name, value in data.items() if name != "turnwise"}
    if missing := [name for name in _NEEDED if name not in members]:
        raise CallerError(f"not a call that was put down: it has no {', '.join(missing)}")
    if strange := [name for name in members if name not in _MEMBERS]:
        raise CallerError(f"not a call that was put down: it has {', '.join(strange)[:200]}, which no call has")
    return members


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

    async def answer(self, pending_id: str, answers: Mapping[str, Any], *, round: int | None = None) -> Pending:
        """Add answers, to the questions of this round where one is named; AlreadyAnswered where somebody else was
        first.
        """
        ...

    async def claim(self, pending_id: str, seconds: float) -> Pending:
        """Take a call to carry it on; AlreadyAnswered while somebody else has it."""
        ...

    async def renew(self, pending: Pending, seconds: float) -> None:
        """Hold a claim for longer; AlreadyAnswered where it was lost."""
        ...

    async def forget(self, pending_id: str) -> bool:
        """Drop a call; whether it was there."""
        ...

    async def expire(self, older_than: float) -> int:
        """Drop what was asked more than so many seconds ago; how many those were."""
        ...


async def noted(work: Awaitable[object], pending_id: str, otherwise: str) -> None:
    """Have a store take down what became of a call. That is so whether it can or not: a failure is logged."""
    try:
        await work
    except Exception as error:
        unknown = None if isinstance(error, CallerError) else error
        log.error("call %s: %s, because its store failed: %s", pending_id, otherwise, error, exc_info=unknown)


def begun(method: str, params: Mapping[str, Any], server: str | None) -> Pending:
    """A call at its very beginning: nothing is asked yet."""
    now = time.time()
    plain = decode(encode(params))
    return Pending(id=str(uuid.uuid4()), server=server, method=method, params=plain, requests={}, began=now, asked=now)


def put_down(pending: Pending, step: Questions, answers: Mapping[str, Any]) -> Pending:
    """The call at the next questions, some of which are answered already."""
    return replace(
        pending,
        requests=step.requests,
        answers=answers,
        state=step.state,
        round=step.round,
        given=tuple(step.given),
        reusable=tuple(step.reusable),
        asked=time.time(),
    )
