"""The engine's server half: how straight-line code becomes rounds.

Theory of operation
===================

A tool is written as if its questions were answered on the spot:

    answer = await ctx.elicit("Which region?", Region)

Nothing waits there. `play` runs the function from its top in every round, with the ledger of what was settled in
the rounds before and the answers that came with this one. Each question looks itself up:

  - On the ledger, under its key, with the same fingerprint: the recorded answer is returned at once.
  - Among this round's answers, if the ledger says that this very question was asked: the answer is read; a good one
    is recorded and returned, a bad one is as if it had not come.
  - Otherwise the question is entered in `pending` and `Suspend` is raised.

`Suspend` unwinds the function. It is a BaseException, so that `except Exception` in a tool does not swallow it;
should something swallow it all the same (a bare `except`, `gather(return_exceptions=True)`), what the function then
returns or raises cannot count, and the pending questions go out regardless. Questions asked together, in a TaskGroup
or a gather, have all entered themselves before the first `Suspend` arrives here, because every one of those tasks
takes its first step before any of them is seen to have failed. A TaskGroup delivers them as an exception group: a
group of nothing but `Suspend` is one `Suspend`; a group with a real error in it is that error. What a gather leaves
running is cancelled, except for steps: once a question is open no step begins, and a step under way is waited for,
because its effect may have happened and must be recorded.

The result is `Ask`: the questions, and the ledger to be carried to the next round. No task, lock or memory is held
while a person thinks. `async with transaction():` around a question sees an exception and rolls back, which is right,
because the function will come by again.

What makes this safe is that everything which must not happen twice is on the ledger: an answer is pinned to the exact
question, a step to its name and arguments. The rest of the function is run again, and has to bear it.

Keys are claimed when a method is called, not when it is awaited, so that concurrent calls are numbered in the order
in which the code makes them. The second use of a key in a round is `key#2`.

The room does no I/O, and does not know the wire, the seal or the clock: `call.post.now` came in from outside.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NoReturn, TypeVar

from ._ledger import ACCEPTED, ANSWER, ASIDE, CHECKPOINT, CLOCK, MARKER, RAW, Entry, Ledger, check_key
from ._messages import AcceptedElicitation, Ask, Call, Question, Yield, lacking
from ._siblings import cancels_of, failure_of, siblings
from ._terms import INSIDE, Terms, forgotten, inside
from .errors import AuthorError, MissingClientCapability, RoundOver

log = logging.getLogger("turnwise.rounds")

CHANGED = (
    "question %r is not the one that was answered under this key: it is asked again. Does its text or schema change "
    "from round to round, or do two questions share a key?"
)
PATIENCE = 1.0
"""Seconds that a step which was given up has to stop in."""

T = TypeVar("T")
LegT = TypeVar("LegT", bound="Leg")


class Suspend(BaseException):
    """The round ends here: a question is open, or another instance is to go on."""


_USUAL = Terms()


class Leg:
    """One round of one call, as the function sees it. `Context` is this with the author's vocabulary."""

    __slots__ = (
        "__weakref__", "_claims", "_closed", "_kept", "_late", "_ledger", "_looked", "_main", "_over", "_owed",
        "_pending", "_refused", "_strays", "_working", "_yielding", "around_steps", "becoming", "call", "desk",
        "given_up", "service", "terms", "trace", "wake_at",
    )  # fmt: skip

    def __init__(self, call: Call, service: Any, ledger: Ledger | None, terms: Terms = _USUAL) -> None:
        self.call, self.service, self.terms = call, service, terms
        self.trace = None if ledger is None else ledger.trace
        self._ledger = ledger
        self._pending: dict[str, Question] = {}
        self._main = call.post.task
        self._claims: dict[str, int] = {}
        self._strays: frozenset[asyncio.Future[Any]] = frozenset()
        self._working: frozenset[asyncio.Future[Any]] = frozenset()
        self._refused: tuple[tuple[asyncio.Task[Any] | None, MissingClientCapability], ...] = ()
        self._owed = 0
        self._over = self._closed = self._yielding = self._kept = self._late = self._looked = self.becoming = False
        self.desk: Any = None  # A task's way to its store; a call has none.
        self.wake_at: float | None = None  # When the next leg is due, where the function sleeps.
        self.given_up: frozenset[str] = frozenset()  # The names of steps that their author gave up.
        self.around_steps: tuple[Any, ...] = ()  # What observers have around steps.

    @property
    def suspending(self) -> bool:
        """Whether this round is over, so that the function is being unwound: a question is open, or the call moves."""
        return bool(self._pending) or self._yielding

    @property
    def flow(self) -> Ledger | None:
        """The flow's ledger as it stands; None for a call that settled nothing."""
        return self._ledger

    @property
    def round(self) -> int:
        """Which round of its flow this is, counted from 1."""
        ledger = self._ledger
        if ledger is None or self.call.state is None:
            return 1
        return ledger.sequence + (0 if self._closed else 1)

    def detach(self) -> None:
        """The round is going to be played in a task of its own, not in that of the request."""
        self._main = None

    def book(self) -> Ledger:
        """The flow's ledger; a call that settles nothing never opens one."""
        if self._ledger is None:
            self._ledger = Ledger(lineage=os.urandom(16), started=self.call.post.now)
        return self._ledger

    def claim(self, name: str) -> str:
        """The key for the next use of this name in this round."""
        check_key(name)
        step = inside(self)
        if self._over and not (step is not None and step.is_guarded):
            raise RoundOver
        if step is not None:
            # A step that is on the ledger is not run again: what it claims must not move the numbers of what follows.
            name = step.key + INSIDE + name
        claims = self._claims
        if name not in claims:
            claims[name] = 1
            return name
        claims[name] += 1
        return f"{name}#{claims[name]}"

    def settled(self, key: str, question: Question) -> tuple[Any] | None:
        """The answer to this question, in a tuple of one, or None where it has to be asked."""
        ledger = self._ledger
        if ledger is None:
            return None
        mark = question.fingerprint
        entry = ledger.entries.get(key)
        if entry.fingerprint != mark if entry is not None else ledger.asked.get(key) != mark:
            self._sort_out(ledger, key, mark)
            entry = ledger.entries.get(key)
        if entry is not None and entry.fingerprint == mark:
            try:
                if entry.kind == RAW:
                    kind, kept = question.tidy(entry.value)
                    entry = ledger.entries[key] = Entry(kind, mark, kept)
                return (question.read(entry.answer),)
            except ValueError:
                del ledger.entries[key]
        answer = self.call.answers.get(key)
        if answer is None or ledger.asked.get(key) != mark:
            return None
        try:
            kind, kept = question.tidy(answer)
            entry = Entry(kind, mark, kept)
            value = question.read(entry.answer)
        except ValueError:
            log.info("the answer %r does not fit its question, which is asked again", key)
            return None
        ledger.entries[key] = entry
        return (value,)

    def _sort_out(self, ledger: Ledger, key: str, mark: str) -> None:
        """Put what was answered to another wording of a question aside, and take back what was answered to this one.

        Two versions may take turns: each finds its own answer again, and neither asks twice.
        """
        entries, entry = ledger.entries, ledger.entries.get(key)
        asked, answer = ledger.asked.get(key), self.call.answers.get(key)
        if entry is not None and entry.fingerprint != mark:
            log.warning(CHANGED, key)
            if entry.kind in (ANSWER, ACCEPTED, RAW):
                entries[_aside(key, entry.fingerprint)] = entries.pop(key)
        if asked is not None and asked != mark and isinstance(answer, dict):
            log.warning(CHANGED, key)
            entries[_aside(key, asked)] = Entry(RAW, asked, answer)
        if key not in entries and (kept := entries.pop(_aside(key, mark), None)) is not None:
            entries[key] = kept

    async def answer(self, key: str, question: Question) -> Any:
        """The answer to one question, now or in a later round."""
        self._owed -= 1
        if (ledger := self._ledger) is not None and (known := ledger.entries.get(key)) is not None:
            kind, mark, value = known
            if kind == ACCEPTED and mark == question.fingerprint:
                try:  # What a replay mostly does: the answer is there, and reads as it did before.
                    return AcceptedElicitation(question.quick(value))
                except ValueError:
                    pass
        settled = self.settled(key, question)
        if settled is None:
            self.open({key: question})
            self.suspend()
        return settled[0]

    def open(self, questions: Mapping[str, Question]) -> None:
        """Put questions on this round's list: all of them, or none where the client cannot be asked one."""
        if self._over:
            raise RoundOver
        if inside(self) is not None:
            raise AuthorError("a step cannot ask, for it would run again: ask first, and give it the answer")
        for question in questions.values():
            if missing := lacking(question.needs, self.call.capabilities):
                error = MissingClientCapability(missing)
                self._refused += ((asyncio.current_task(), error),)
                raise error
        self._pending |= questions

    def withdraw(self) -> None:
        """Take this round's questions back: the call is going to fail in good order."""
        self._pending.clear()

    def suspend(self) -> NoReturn:
        """End the round, remembering what a gather would leave running."""
        if self._main is not (task := asyncio.current_task()):
            self._strays |= siblings(task, self._main)
        self._late = isinstance(sys.exception(), asyncio.CancelledError)
        raise Suspend

    async def carry_out(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that must not be cut off when another task's question ends the round."""
        step = inside(self)
        if step is not None and (step.is_guarded or not self._over):
            return await asyncio.ensure_future(work)  # Part of a step that is waited for as a whole.
        if self._over or self.suspending:
            work.close()
            raise RoundOver("a step cannot begin any more") if self._over else Suspend
        task = asyncio.ensure_future(work)
        self._working |= {task}
        task.add_done_callback(self._finished)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not self.suspending:  # The author gave it up, or the client did.
                task.cancel()
                await asyncio.wait({task}, timeout=PATIENCE)
            raise

    def _finished(self, task: "asyncio.Future[Any]") -> None:
        self._working -= {task}

    def needs_token(self) -> bool:
        """Whether this call has no token yet, and must not do anything before it has one."""
        return self.terms.effects and self.call.state is None and not self.call.held

    def boundary(self) -> None:
        """A place behind some progress: the call may move, if this instance has too much to do and rounds are left."""
        terms = self.terms
        if terms.is_overloaded is None or self.call.held or self._over or inside(self) is not None:
            return
        ledger = self.book()
        if ledger.sheds < terms.budget.sheds and ledger.sequence < terms.budget.last_shed and terms.is_overloaded():
            self.move()

    def move(self) -> NoReturn:
        """End the round with nothing asked: whoever gets the retry goes on."""
        self._yielding = True
        self.suspend()

    def unused(self) -> list[str]:
        """The keys of recorded answers and steps that this round did not come by."""
        ledger = self._ledger
        if ledger is None or ledger.entries.keys() <= self._claims.keys():
            return []
        claimed = self._claimed()
        return [
            key
            for key, entry in ledger.entries.items()
            if not (key in claimed or entry.kind == MARKER or key in ledger.handed)
            and not (key.startswith(ASIDE) or key.partition(INSIDE)[0] in claimed)
        ]

    def _claimed(self) -> set[str]:
        return {name if n == 0 else f"{name}#{n + 1}" for name, count in self._claims.items() for n in range(count)}

    def is_behind(self) -> bool:
        """Whether an earlier round got further than this place: it settled or asked something not come by yet."""
        ledger = self._ledger
        if ledger is None or self.call.state is None:
            return False
        claimed = self._claimed()
        return (
            bool(self.unused())
            or any(key not in claimed and not (self._looked and key in ledger.handed) for key in ledger.asked)
            or (CHECKPOINT in ledger.entries and not self._kept)
        )

    def hand_out(self, questions: Mapping[str, Question], state: str | None) -> NoReturn:
        """Ask what the author returned, with the author's own state beside it, in place of what was returned before."""
        ledger = self.book()
        for key in ledger.handed:
            ledger.entries.pop(key, None)
            ledger.asked.pop(key, None)
        self.open(questions)
        ledger.handed = {key: question.method for key, question in questions.items()}
        ledger.state = state
        raise Suspend

    def now(self) -> float:
        """Seconds since the epoch, the same on every replay of this very call of it."""
        key = self.claim("!now")
        entries = self.book().entries
        if key not in entries:
            entries[key] = Entry(CLOCK, "", round(self.call.post.now, 6))
        return float(entries[key].value)

    def close(self) -> Ask | Yield:
        """What this round leaves for the next: the open questions, if any, and the ledger."""
        ledger = self.book()
        for key, answer in self.call.answers.items():
            # Asked and answered, but not claimed this time: it may be in a later round, or by another version. Answers
            # to returned questions are kept here too, in case the function went on and asked inline.
            is_open = key in ledger.asked and key not in ledger.entries and key not in self._pending
            if is_open and isinstance(answer, dict):
                ledger.entries[key] = Entry(RAW, ledger.asked[key], answer)
                if key not in ledger.handed and ledger.version == self.terms.version:
                    log.warning("the answer %r came, but was not asked for again: does its question change?", key)
        ledger.asked = {key: question.fingerprint for key, question in self._pending.items()}
        ledger.sequence += 1
        self._closed = True
        ledger.trace = self.trace
        if self._pending:
            return Ask(self._pending, ledger)
        ledger.sheds += 1
        return Yield(ledger)


async def play(leg: LegT, run: Callable[[LegT], Awaitable[dict[str, Any]]]) -> dict[str, Any] | Ask | Yield:
    """Run one round: the function's result, or what it asks, or that another instance is to go on."""
    leg._main = leg._main or asyncio.current_task()
    cancels = 0 if leg._main is None else leg._main.cancelling()
    try:
        try:
            result = await run(leg)
        except Suspend:
            pass
        except BaseException as error:
            _weigh(leg, error)
        else:
            if not leg._pending and not leg._yielding:
                if leg._owed > 0:
                    raise AuthorError(forgotten(leg))
                return result
        if leg._refused or leg._strays or leg._working:
            await _settle(leg)
        if leg._late and cancels_of(leg._main) > cancels:  # It asks as it ends, because it was given up.
            raise asyncio.CancelledError
        return leg.close()
    finally:
        leg._over = True
        if leg._strays or leg._working:
            for stray in leg._strays | leg._working:
                stray.cancel()


def _weigh(leg: Leg, error: BaseException) -> None:
    """Raise what the caller is to know of; return where the round was merely suspended."""
    match error:
        case BaseExceptionGroup():
            if (errors := error.split(Suspend)[1]) is not None:
                raise errors from None
        case asyncio.CancelledError():
            if cancels_of(leg._main):
                raise error
            raise AuthorError("the function awaited something that had been cancelled") from None
        case SystemExit():
            raise AuthorError(f"the function called sys.exit({error.code!r})") from None
        case Exception() if leg.suspending and not isinstance(error, MissingClientCapability):
            return
        case _:
            raise error


async def _settle(leg: Leg) -> None:
    """The end of a suspended round: steps under way finish and are recorded; nothing is asked if one cannot be."""
    for task, error in leg._refused:
        if task is not leg._main and task is not None and task.done() and failure_of(task) is error:
            raise error
    leg._strays -= leg._working
    for stray in leg._strays:
        stray.cancel()
    while leg._working:
        await asyncio.wait(leg._working)


def _aside(key: str, mark: str) -> str:
    return f"{ASIDE}{key}:{mark}"
