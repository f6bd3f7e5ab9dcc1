"""What lies in an inbox, and what keeps it.

An `Item` is one call that was handed over, or one task that is followed, from its first question to its end. It is
never changed: every step makes a new one, with the next revision. A store makes each step in one transaction that
names the revision it was made from, so of two people who answer the same question one wins and the other is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

from .._json import is_deeper
from .._pending import Pending
from ..dialects.unfit import answer_in_hand, flaw_of
from ..errors import AlreadyAnswered, CallerError, InvalidAnswer, PeerError
from .gists import Gist, Outcome, in_a_line

Status = Literal["waiting", "going", "held", "done", "failed", "expired"]
"""`waiting`: for a person. `going`: all is answered, and the call is carried on. `held`: its server does not take the
credentials, and nothing is done until it has others. The rest are ends.
"""
OPEN: tuple[Status, ...] = ("waiting", "going", "held")
ENDS: tuple[Status, ...] = ("done", "failed", "expired")
WHO = 200
"""Characters of a name."""
UNASKED = -1
"""The round of a task that has asked nothing yet: its first questions are round 0, as a call's are."""
DEEPEST = 180
"""Levels of an answer, and of a result: what is kept is read again, a few levels further down."""
PLACE = 12
"""Characters of a hook's id that are the same for all that go to one place."""
RESEAL_MOST = 20
MOST_LINES = 20
"""So many questions of an item are looked at where words are looked for."""


class TooLate(AlreadyAnswered):
    """Somebody was first: `by` says who, and `at` when, where that is known; or the call has come to its end."""

    def __init__(self, item_id: str, what: str, by: str | None = None, at: float | None = None) -> None:
        self.by = by
        self.at = at
        super().__init__(item_id, what)


class Misfits(InvalidAnswer):
    """Answers that do not fit their questions: `reasons` by key."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        super().__init__(*next(iter(self.reasons.items())))


class Unreadable(CallerError):
    """An item that is sealed under a key that this inbox does not have, or that was tampered with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """A question that is answered: what was asked in which round, what was said, by whom, when."""

    key: str
    request: Mapping[str, Any]
    answer: Mapping[str, Any]
    by: str
    at: float
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One call or task in the inbox.

    `pending` is the call as the client put it down, with its secret state; for a task, `task` is its id, and `pending`
    has its open questions and no state. `requests` and `answers` of `pending` are this round's; `round` counts rounds
    as the inbox sees them, and never goes back. `authorization` goes to the call's server and nowhere else.
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
    drafts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What a model would say to a request to it, by key, for people to review; of the round of the hand-over."""
    note: str | None = None
    """How far a task has come, or why a call did not go on and will be tried again, or is held."""
    result: Mapping[str, Any] | None = field(default=None, repr=False)
    error: str | None = None
    code: int | None = None
    """The code of the error, where it is one of the protocol."""
    came: float
    """When it was handed over."""
    until: float | None = None
    """When it is over unless it is answered, where somebody said so."""
    changed: float
    round: int = 0
    revision: int = 0
    carries: bool = True
    """Whether the inbox carries it on. Otherwise its caller does, as soon as all is answered."""
    restart_expired: bool = False
    """Whether it is begun anew by itself where its server no longer takes its state."""
    may_restart: bool = False
    """Whether somebody may begin it anew: it ended because its server no longer took its state."""
    restarted: float | None = None
    """When it was begun anew, the last time; `restarted_by` says by whom, or is None where it was by itself."""
    restarted_by: str | None = None
    withdrawn_by: str | None = None
    """Who ended it without a result, where somebody did."""
    cancelled: bool | None = None
    """Of a task that was withdrawn: whether its server took the wish to stop it."""
    due: float | None = None
    """When it is to be looked at next: to be carried on, to see how a task is getting on, to expire."""
    tries: int = 0
    """How often in a row its server could not be reached."""
    handed: str = field(default="", repr=False)
    """What it was handed over as, in a digest: who hands the same over twice gets the same item."""
    claim: str | None = field(default=None, repr=False, compare=False)
    """By what the process that carries it on holds it; not kept with the rest."""

    @property
    def server(self) -> str:
        """The URL of who asks."""
        return self.pending.server or ""

    @property
    def target(self) -> str:
        """The tool, prompt or resource that was called."""
        return self.pending.target

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in ENDS

    @property
    def headline(self) -> str:
        """The first open question in a line, or the last that was answered: what the list shows."""
        return next(iter(self.texts), "")

    @property
    def texts(self) -> list[str]:
        """The questions in a line each, some at most: those that are open, then the others, newest first."""
        pending = self.pending
        keys = (*pending.unanswered, *reversed(list(pending.answers)))
        requests = [pending.requests[key] for key in keys if key in pending.requests]
        requests += [earlier.request for earlier in reversed(self.given)]
        return list(dict.fromkeys(in_a_line(request) for request in requests[:MOST_LINES]))

    @property
    def unfit(self) -> dict[str, str]:
        """The open questions that can only be declined or cancelled, and why."""
        flaws = {key: flaw(key, self.pending.requests[key]) for key in self.pending.unanswered}
        return {key: why for key, why in flaws.items() if why is not None}

    def answered(self, answers: Mapping[str, Any], *, round: int, by: str, now: float, delay: float = 0.0) -> "Item":
        """The same with these answers. TooLate where somebody was first; Misfits, and nothing changed, where one does
        not fit its question. Once all is answered it is due, after `delay` seconds.
        """
        self._check_time(answers, round, now)
        pending = self.pending
        if taken := [key for key in answers if key in pending.answers]:
            raise self._too_late(taken, f"{taken[0]!r} has an answer already")
        if not answers:
            raise CallerError("nothing is answered: give an answer to at least one question")
        checked = self._checked(answers)
        said = [
            Earlier(key=key, request=pending.requests[key], answer=answer, by=by, at=now, round=round)
            for key, answer in checked.items()
        ]
        after = replace(self, pending=replace(pending, answers={**pending.answers, **checked}))
        after = replace(after, given=(*self.given, *said), changed=now)
        if after.pending.unanswered:
            return after
        return replace(after, status="going", note=None, tries=0, due=now + delay if self.carries else self.until)

    def ended(self, status: Status, now: float, **facts: Any) -> "Item":
        """The same at its end, with what was left unanswered. Nobody needs its state or its credentials any more."""
        left = {key: self.pending.requests[key] for key in self.pending.unanswered}
        pending = replace(self.pending, state=None, answers={}, requests=left, given=(), reusable=())
        return replace(
            self,
            status=status,
            changed=now,
            due=None,
            note=None,
            pending=pending,
            authorization=None,
            drafts={},
            **facts,
        )

    def _checked(self, answers: Mapping[str, Any]) -> dict[str, Any]:
        checked, reasons = {}, {}
        for key, answer in answers.items():
            if key not in self.pending.requests:
                reasons[key] = f"this is not asked; what is asked: {', '.join(self.pending.requests)}"
                continue
            if is_deeper(answer, DEEPEST):
                reasons[key] = f"it is more than {DEEPEST} levels deep"
                continue
            try:
                checked[key] = answer_in_hand(key, self.pending.requests[key], answer)
            except InvalidAnswer as error:
                reasons[key] = error.reason
        if reasons:
            raise Misfits(reasons)
        return checked

    def _check_time(self, answers: Mapping[str, Any], round: int, now: float) -> None:
        if self.is_over:
            raise TooLate(self.id, f"it is over: it {'is done' if self.status == 'done' else f'has {self.status}'}")
        if self.until is not None and now >= self.until:
            raise TooLate(self.id, "it is over: it has expired")
        if round != self.round:
            if round > self.round:
                raise CallerError(f"call {self.id} has not come to round {round}")
            raise self._too_late(answers, f"round {round} has passed, and it is in round {self.round}", round)

    def _too_late(self, keys: Iterable[str], what: str, passed: int | None = None) -> TooLate:
        """Who was first to answer one of these questions, of this round or of one that has passed."""
        round = self.round if passed is None else passed
        wanted = set(keys)
        for earlier in reversed(self.given):
            if earlier.round == round and earlier.key in wanted:
                by = f"{earlier.key!r} was answered by {earlier.by}"
                return TooLate(self.id, by if passed is None else f"{what}; {by}", earlier.by, earlier.at)
        return TooLate(self.id, what)


def flaw(key: str, request: Mapping[str, Any]) -> str | None:
    """Why a question can only be refused; None where it can be answered."""
    try:
        return flaw_of(key, request)
    except PeerError as error:
        return str(error)


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
    round: int = 0
    gist: Gist = ()
    """The first arguments of the call."""
    outcome: Outcome = Outcome()


class Wanted(NamedTuple):
    """Which items a list is to have: all of these statuses that contain every one of these words somewhere in server,
    target, caller, arguments, questions, answers or result, of which the beginnings count, without regard to case.
    """

    statuses: Sequence[Status] = OPEN
    words: Sequence[str] = ()
    caller: str | None = None


class Page(NamedTuple):
    """Some lines, where to go on after them, and how many there are in all; None where that takes too long to count."""

    lines: Sequence[Line]
    after: str | None
    total: int | None


class Hook(NamedTuple):
    """Something that is to be told to a URL. `id` stays the same however often it is tried."""

    id: str
    url: str
    body: str
    made: float
    due: float
    tries: int = 0


class Shut(NamedTuple):
    """How many items some keys do not open, of how many, and how many of those have not ended."""

    shut: int
    total: int
    waiting: int


class InboxStore(Protocol):
    """Where items lie. Every method is atomic between processes; what is secret is sealed at rest.

    `claim` gives an item that is due to one process for so many seconds; if the process dies, another may take it after
    that. Hooks are kept in the same transaction as the step that they tell of.
    """

    async def add(self, item: Item, tell: Sequence[Hook] = ()) -> Item:
        """Keep a new item; AlreadyAnswered where its id is taken."""
        ...

    async def put(self, item: Item, tell: Sequence[Hook] = ()) -> Item:
        """Keep what has become of an item, and end its claim; AlreadyAnswered where it was changed meanwhile."""
        ...

    async def answer(
        self, item_id: str, answers: Mapping[str, Any], *, round: int | None, by: str, now: float, delay: float = 0.0
    ) -> Item:
        """Add answers to the questions of this round, or of the one it is in; TooLate where somebody was first."""
        ...

    async def get(self, item_id: str) -> Item:
        """One of them; UnknownPending where it is not there."""
        ...

    async def page(self, wanted: Wanted, *, after: str | None = None, most: int = 50) -> Page:
        """Those that are wanted: what waits, oldest question first; where some have ended, what changed last first."""
        ...

    async def claim(
        self, now: float, seconds: float, *, item_id: str | None = None, without: Sequence[str] = ()
    ) -> Item | None:
        """An item that nobody has: this one, or the next that is due, if neither it nor its server is one of these."""
        ...

    async def renew(self, item: Item, until: float) -> None:
        """Hold a claim for longer; AlreadyAnswered where it was lost."""
        ...

    async def release(self, item: Item, due: float | None) -> None:
        """Give a claim back, if it is still held; unless the item was changed meanwhile, it is due at this time."""
        ...

    async def next_due(self, now: float) -> float | None:
        """When the next item or hook is due that is not due now."""
        ...

    async def changes(self, since: int | None) -> tuple[int, Sequence[str]]:
        """The ids of items that were changed after this mark, and the mark to ask with next. None gives the mark."""
        ...

    async def purge(self, now: float, retention: float) -> int:
        """Forget what ended longer ago than so many seconds; how many items those were."""
        ...

    async def claim_hook(self, now: float, seconds: float, *, without: Sequence[str] = ()) -> Hook | None:
        """Something that is due to be told to none of these places, and that nobody else is telling for so long."""
        ...

    async def end_hook(self, hook_id: str) -> None:
        """It was told, or is given up."""
        ...

    async def postpone_hook(self, hook: Hook) -> None:
        """It could not be told: it is due again at `hook.due`."""
        ...

    def use_keys(self, keys: Sequence[bytes | bytearray | str]) -> None:
        """Go on with other keys: the first seals from now on, all open."""
        ...

    async def sealed_elsewhere(self, keys: Sequence[bytes | bytearray | str] | None = None) -> Shut:
        """How many items none of these keys opens, or none of those in use."""
        ...

    async def reseal(self, after: str = "", *, most: int = RESEAL_MOST) -> str | None:
        """Seal some items that have not ended under the first key, where they are under another, and what is to be
        told; where to go on, or None at the end.
        """
        ...

    async def keep_session(self, name: str, blob: bytes, until: float) -> None:
        """Keep what belongs to somebody who has come in."""
        ...

    async def find_session(self, name: str, now: float) -> bytes | None:
        """What was kept, while it is good."""
        ...

    async def drop_session(self, name: str) -> None:
        """Forget it."""
        ...

    async def aclose(self) -> None:
        """Close what is open. The next use opens it again."""
        ...
