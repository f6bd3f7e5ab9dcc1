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
running is cancelled.

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
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeVar

from ._ledger import ANSWER, CLOCK, Entry, Ledger
from ._messages import Ask, Call, Question
from .errors import AuthorError, MissingClientCapability, RoundOver

LegT = TypeVar("LegT", bound="Leg")


class Suspend(BaseException):
    """The round ends here: a question is open."""


class Leg:
    """One round of one call, as the function sees it. `Context` is this with the author's vocabulary."""

    __slots__ = ("_claims", "_ledger", "_main", "_over", "_pending", "_strays", "call", "service")

    def __init__(self, call: Call, service: Any, ledger: Ledger | None) -> None:
        self.call = call
        self.service = service
        self._ledger = ledger
        self._pending: dict[str, Question] = {}
        self._claims: dict[str, int] | None = None
        self._strays: set[asyncio.Future[Any]] | None = None
        self._main: asyncio.Task[Any] | None = None
        self._over = False

    @property
    def suspending(self) -> bool:
        """Whether a question of this round is open, so that the function is being unwound."""
        return bool(self._pending)

    def book(self) -> Ledger:
        """The flow's ledger; a call that settles nothing never opens one."""
        if self._ledger is None:
            self._ledger = Ledger(lineage=os.urandom(16), started=self.call.post.now)
        return self._ledger

    def claim(self, name: str) -> str:
        """The key for the next use of this name in this round."""
        if self._over:
            raise RoundOver("this round has ended; its context cannot ask or record any more")
        if self._claims is None:
            self._claims = {}
        count = self._claims[name] = self._claims.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def settled(self, key: str, question: Question) -> tuple[Any] | None:
        """The answer to this question, in a tuple of one, or None where it has to be asked."""
        ledger = self._ledger
        if ledger is None:
            return None
        entry = ledger.entries.get(key)
        if entry is not None and entry.fingerprint == question.fingerprint:
            try:
                return (question.read(entry.value),)
            except ValueError:
                del ledger.entries[key]
        answer = self.call.answers.get(key)
        if answer is None or ledger.asked.get(key) != question.fingerprint:
            return None
        try:
            value = question.read(answer)
        except ValueError:
            return None
        ledger.entries[key] = Entry(ANSWER, question.fingerprint, question.tidy(answer))
        return (value,)

    async def answer(self, key: str, question: Question) -> Any:
        """The answer to one question, now or in a later round."""
        settled = self.settled(key, question)
        if settled is None:
            self.open(key, question)
            self.suspend()
        return settled[0]

    def open(self, key: str, question: Question) -> None:
        """Put a question on this round's list."""
        if self._over:
            raise RoundOver("this round has ended; its context cannot ask or record any more")
        if missing := _lacking(question.needs, self.call.capabilities):
            raise MissingClientCapability(missing)
        self._pending[key] = question

    def suspend(self) -> NoReturn:
        """End the round, remembering what a gather would leave running."""
        if self._main is not asyncio.current_task():
            self._strays = (self._strays or set()) | _gathered(self._main)
        raise Suspend

    def hand_out(self, questions: Mapping[str, Question], state: str | None) -> NoReturn:
        """Ask what the author returned, with the author's own state beside it, in place of what was returned before."""
        ledger = self.book()
        for key in ledger.handed:
            ledger.entries.pop(key, None)
            ledger.asked.pop(key, None)
        for key, question in questions.items():
            self.open(key, question)
        ledger.handed = {key: question.method for key, question in questions.items()}
        ledger.state = state
        raise Suspend

    def now(self) -> float:
        """Seconds since the epoch, the same on every replay of this very call of it."""
        key = self.claim("now")
        entries = self.book().entries
        if key not in entries:
            entries[key] = Entry(CLOCK, "", round(self.call.post.now, 6))
        return float(entries[key].value)

    def close(self) -> Ask:
        """What this round leaves for the next: the open questions and the ledger."""
        ledger = self.book()
        for key, answer in self.call.answers.items():
            # Asked and answered, but not claimed this time: it may be in a later round, or by another version. Answers
            # to returned questions are kept here too, in case the function went on and asked inline.
            is_open = key in ledger.asked and key not in ledger.entries and key not in self._pending
            if is_open and isinstance(answer, dict):
                ledger.entries[key] = Entry(ANSWER, ledger.asked[key], answer)
        ledger.asked = {key: question.fingerprint for key, question in self._pending.items()}
        ledger.sequence += 1
        return Ask(self._pending, ledger)


async def play(leg: LegT, run: Callable[[LegT], Awaitable[dict[str, Any]]]) -> dict[str, Any] | Ask:
    """Run one round: the function's result, or what it asks."""
    leg._main = asyncio.current_task()
    try:
        result = await run(leg)
    except Suspend:
        return leg.close()
    except BaseExceptionGroup as group:
        if (errors := group.split(Suspend)[1]) is not None:
            raise errors from None
        return leg.close()
    except asyncio.CancelledError:
        if leg._main is not None and leg._main.cancelling():
            raise
        raise AuthorError("the function awaited something that had been cancelled") from None
    except SystemExit as error:
        raise AuthorError(f"the function called sys.exit({error.code!r})") from None
    except Exception:
        if not leg.suspending:
            raise
        return leg.close()
    finally:
        leg._over = True
        for stray in leg._strays or ():
            stray.cancel()
    return leg.close() if leg.suspending else result


def _gathered(task: "asyncio.Task[Any] | None") -> "set[asyncio.Future[Any]]":
    """The tasks of the gather that a task is waiting in, if it is. There is no public way to know."""
    waiter: Any = task
    while isinstance(waiter, asyncio.Task):
        waiter = getattr(waiter, "_fut_waiter", None)
    return set(getattr(waiter, "_children", ()))


def _lacking(needs: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the client would have to declare for a question and did not."""
    for name, parts in needs.items():
        have = declared.get(name)
        if not isinstance(have, dict):
            return needs
        if (
            parts == {"form": {}} and not have
        ):  # "an empty object is equivalent to declaring support for form mode only"
            continue
        if any(part not in have for part in parts):
            return needs
    return {}
