"""What the seal alone cannot do: tokens that grow too large, and tokens that are good for one reply.

Large entries are put into the server's store, encrypted, under a name made of the flow and their content; the token
keeps the name. A call with `single_use` is answered once for each token: who resends it gets the same reply again, and
who comes with an older one is refused. Ledgers that stay here, because their call does, are written and read all the
same. The rooms of the usual call do not pass by here.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from ._budgets import Budget
from ._guards import Guard, to_the_end
from ._json import decode, encode
from ._ledger import FAILURE, ONCE, SPILLED, STEP, Entry, Ledger
from ._messages import Ask, Call, Done, Outcome, Question, Yield
from ._rounds import Leg
from ._steps import unknown
from ._terms import Terms
from .errors import (
    AuthorError,
    EffectUnknown,
    EndlessFlow,
    InvalidParams,
    InvalidRequestState,
    LedgerTooLarge,
    MCPError,
    MissingClientCapability,
    StoreFull,
    ToolError,
)

log = logging.getLogger("turnwise.flows")

WORTH_SPILLING = 512
MARGIN = 4
"""Tokens may be so many times as long as they should be, in case another version has another budget."""


def check_sizes(call: Call, budget: Budget) -> None:
    """Turn a call away whose token is longer than any of this server's, or with an answer that is too large."""
    if len(call.state) > MARGIN * budget.max_bytes:
        raise InvalidRequestState("longer than any token of this server")
    for key, answer in call.answers.items():
        if len(encode(answer)) > budget.answer_bytes:
            raise InvalidParams(f"the answer {key!r} is larger than {budget.answer_bytes} bytes", status=400)


async def restore(ledger: Ledger, guard: Guard | None) -> None:
    """Bring back what an earlier round put into the store."""
    if guard is None:
        raise InvalidRequestState("the token has entries in a store, and this server has none", "store")
    for key, entry in ledger.entries.items():
        if entry.kind == SPILLED:
            kind, name = entry.value
            ledger.entries[key] = Entry(kind, entry.fingerprint, await guard.get(name))
    ledger.is_spilled = False


def kept(ledger: Ledger, terms: Terms, *, is_task: bool = False) -> Ledger:
    """A ledger that stays here while its call waits, just as it would come back out of a token. A task may take as many
    legs as it likes: to sleep is one, too.
    """
    if ledger.sequence > terms.budget.rounds and not is_task:
        raise EndlessFlow(terms.budget.rounds)
    if ledger.sequence == 1:
        ledger.version = terms.version
    return Ledger.decode(ledger.lineage, decode(encode(ledger.encode())))


async def refuse_late(ledger: Ledger, terms: Terms, *, is_expired: bool) -> None:
    """Refuse a token that is over its time.

    Clients begin a call anew whose state a server no longer takes. Where that would do again what must not be done
    twice, the call ends here, with words for a person.
    """
    has_acted = ONCE in ledger.entries
    if terms.effects or terms.single_use:
        has_acted |= any(entry.kind in (STEP, FAILURE, SPILLED) for entry in ledger.entries.values())
    if terms.single_use and terms.guard is not None and not has_acted:
        has_acted = await terms.guard.is_known(_use(ledger, ledger.sequence + 1))
    if has_acted:
        raise ToolError("This call waited too long, and is not taken up again. What it did before is done.")
    if is_expired:
        raise InvalidRequestState("expired", "expired")
    raise InvalidRequestState("the flow's deadline has passed", "deadline")


async def shrink(token: str, ledger: Ledger, terms: Terms, seal: Callable[[Ledger], str]) -> str:
    """A token that is large: made smaller where there is a store, refused where it stays too large."""
    budget = terms.budget
    room = min(budget.spill_bytes, budget.max_bytes)
    if len(token) > room and terms.guard is not None:
        try:
            token = seal(await _spilled(ledger, terms.guard, len(token) - room // 2))
        except StoreFull as error:
            log.warning("a token of %d bytes cannot be made smaller: %s", len(token), error)
    if len(token) > budget.max_bytes:
        raise LedgerTooLarge(len(token), budget.max_bytes, _sizes(ledger)[:3])
    if len(token) > budget.warn_bytes:
        largest = ", ".join(f"{key!r} ({size} bytes)" for key, size in _sizes(ledger)[:3])
        log.warning("a token of %d bytes travels twice in every round; its largest entries: %s", len(token), largest)
    return token


def _sizes(ledger: Ledger) -> list[tuple[str, int]]:
    """The entries by what they weigh, the heaviest first."""
    sizes = [(key, len(encode(entry.value, default=str))) for key, entry in ledger.entries.items()]
    return sorted(sizes, key=lambda item: -item[1])


async def _spilled(ledger: Ledger, guard: Guard, excess: int) -> Ledger:
    """A copy whose heaviest entries lie in the store; written there before the token exists."""
    entries = dict(ledger.entries)
    for key, size in _sizes(ledger):
        if excess <= 0 or size < WORTH_SPILLING:
            break
        entry = entries[key]
        name = blake2b(encode(entry.value), digest_size=24, key=ledger.derive("spill")[:32]).hexdigest()
        await guard.put(name, entry.value)
        entries[key] = Entry(SPILLED, entry.fingerprint, [entry.kind, name])
        excess -= size * 4 // 3
    return replace(ledger, entries=entries, is_spilled=True)


async def answer_once(leg: Leg, guard: Guard, serve: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """The one reply to the token that a call brings."""
    ledger = leg.book()
    if await guard.is_known(_use(ledger, ledger.sequence + 1)):
        # Not a stale state, which makes clients begin anew, and do everything again.
        raise ToolError("This call has gone on from here before: its earlier state is not taken again.")
    key = _use(ledger, ledger.sequence)
    return await to_the_end(_answered(leg, guard, key, serve))


async def _answered(leg: Leg, guard: Guard, key: str, serve: Callable[[], Awaitable[Outcome]]) -> Outcome:
    try:
        known = await guard.begin(key, "the last round of this call")
    except EffectUnknown as error:
        raise unknown(leg, error.what) from None
    if known is not None:
        return _told(*known[0])
    try:
        outcome = await serve()
    except Exception as error:  # Whatever it is, it is the reply to this token.
        await guard.finish(key, _failed(error))
        raise
    await guard.finish(key, _written(outcome))
    return outcome


def _failed(error: Exception) -> list[Any]:
    match error:
        case ToolError():
            return ["error", str(error), None]
        case MCPError(code=code, message=message, data=data):
            return ["refused", [code, message, data], None]
        case MissingClientCapability():
            return ["lacking", error.required, None]
        case _:
            return ["failed", f"{type(error).__name__}: {error}", None]


def _use(ledger: Ledger, sequence: int) -> str:
    return ledger.derive(f"use:{sequence}").hex()


def _written(outcome: Outcome) -> list[Any]:
    match outcome:
        case Done(result):
            return ["done", result, None]
        case Yield(token):
            return ["ask", {}, token]
        case Ask(questions, token):
            return ["ask", {key: [question.method, question.params] for key, question in questions.items()}, token]


def _told(kind: str, what: Any, token: Any) -> Outcome:
    if kind == "error":
        raise ToolError(what)
    if kind == "refused":
        raise MCPError(*what)
    if kind == "lacking":
        raise MissingClientCapability(what)
    if kind == "failed":
        raise AuthorError(f"this round was played before, and failed: {what}")
    if kind == "done":
        return Done(what)
    if not what:
        return Yield(token)
    questions = {key: Question(key, method, params, {}, "", _unread, _unread) for key, (method, params) in what.items()}
    return Ask(questions, token)


def _unread(answer: Any) -> Any:
    raise AssertionError("a reply that is told again reads no answers")
