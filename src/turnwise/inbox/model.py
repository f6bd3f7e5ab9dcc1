"""What lies in an inbox, and what keeps it.

An `Item` is one call that was handed over, or one task that is followed, from its first question to its end. It is
never changed: every step makes a new one, with the next revision. A store makes each step in one transaction that
names the revision it was made from, so of two people who answer the same question one wins and the other is told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from .._pending import Pending
from ..dialects.answering import checked_answer
from ..errors import InvalidAnswer

Status = Literal["waiting", "going", "done", "failed", "expired"]
"""`waiting`: for a person. `going`: all is answered, and the call is carried on. The others are ends."""
ENDS: tuple[Status, ...] = ("done", "failed", "expired")
WHO = 200
"""Characters of a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A question of an earlier round, or one that is answered already: what was asked, what was said, by whom, when."""

    key: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    by: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One call or task in the inbox.

    `pending` is the call as the client put it down, with its secret state; for a task, `task` is its id, and `pending`
    has its open questions and no state. `requests` and `answers` of `pending` are this round's. `authorization` goes to
    the call's server and nowhere else. `headline` is what the list shows: the first open question.
    """

    id: str
    status: Status
    pending: Pending = field(repr=False)
    task: str | None = None
    caller: str
    authorization: str | None = field(default=None, repr=False)
    hook: str | None = None
    """Where to tell of questions and of the end."""
    given: tuple[Earlier, ...] = field(default=(), repr=False)
    note: str | None = None
    """How far a task has come, or why a call did not go on and will be tried again."""
    result: Mapping[str, Any] | None = field(default=None, repr=False)
    error: str | None = None
    came: float
    """When it was handed over."""
    until: float | None = None
    """When it is over unless it is answered, where somebody said so."""
    changed: float
    revision: int = 0

    @property
    def server(self) -> str:
        """The URL of who asks."""
        return self.pending.server or ""

    @property
    def target(self) -> str:
        """The tool, prompt or resource that was called."""
        return self.pending.target

    @property
    def headline(self) -> str:
        """The first open question in a line."""
        for key in self.pending.unanswered:
            params = self.pending.requests[key].get("params", {})
            return str(params.get("message") or self.pending.requests[key]["method"])
        return ""

    def answered(self, answers: Mapping[str, Any], by: str, now: float) -> "Item":
        """The same with these answers; InvalidAnswer, and nothing changed, where one does not fit its question."""
        pending = self.pending
        for key in answers:
            if key not in pending.requests:
                raise InvalidAnswer(key, f"this is not asked; what is asked: {', '.join(pending.requests)}")
        checked = {key: checked_answer(key, pending.requests[key], answer) for key, answer in answers.items()}
        said = [
            Earlier(key=key, request=pending.requests[key], answer=answer, by=by, at=now)
            for key, answer in checked.items()
        ]
        after = replace(pending, answers={**pending.answers, **checked})
        status: Status = "waiting" if after.unanswered else "going"
        return replace(self, pending=after, given=(*self.given, *said), status=status, changed=now)


class Line(NamedTuple):
    """An item as the list shows it."""

    id: str
    status: Status
    server: str
    target: str
    caller: str
    headline: str
    questions: int
    asked: float
    until: float | None
    changed: float
    is_task: bool


class Wanted(NamedTuple):
    """Which items a list is to have: all of these statuses that contain every one of these words somewhere in server,
    target, caller or headline, without regard to case.
    """

    statuses: Sequence[Status] = ("waiting", "going")
    words: Sequence[str] = ()
    caller: str | None = None


class Page(NamedTuple):
    """Some lines, where to go on after them, and how many there are in all of these statuses."""

    lines: Sequence[Line]
    after: str | None
    total: int


class InboxStore(Protocol):
    """Where items lie. Every method is atomic between processes; what is secret is sealed at rest.

    `claim` gives an item that is to be carried on (or a task that is to be looked at) to one process for so many
    seconds; if the process dies, another may take it after that.
    """

    async def add(self, item: Item) -> Item:
        """Keep a new item; AlreadyAnswered where its id is taken."""
        ...

    async def put(self, item: Item) -> Item:
        """Keep what has become of an item, and end its claim; AlreadyAnswered where it was changed meanwhile."""
        ...

    async def answer(self, item_id: str, answers: Mapping[str, Any], *, round: int, by: str, now: float) -> Item:
        """Add answers to the questions of this round; AlreadyAnswered, with who it was, where somebody was first."""
        ...

    async def get(self, item_id: str) -> Item:
        """One of them; UnknownPending where it is not there."""
        ...

    async def page(self, wanted: Wanted, *, after: str | None = None, most: int = 50) -> Page:
        """Those that are wanted: what waits, oldest question first; what has ended, newest first."""
        ...

    async def claim(self, now: float, seconds: float) -> Item | None:
        """The next item that is `going` and that nobody carries on, or task that is due to be looked at."""
        ...

    async def renew(self, item: Item, until: float) -> None:
        """Hold a claim for longer; AlreadyAnswered where it was lost."""
        ...

    async def changes(self, since: int) -> tuple[int, Sequence[str]]:
        """The ids of items that were changed after this mark, and the mark to ask with next."""
        ...

    async def purge(self, now: float, retention: float) -> int:
        """Let those expire that are over their time, and forget what ended longer ago than so many seconds."""
        ...

    async def aclose(self) -> None:
        """Close what is open. The next use opens it again."""
        ...
