"""What is said of rounds, and how a ledger is kept that stays here."""

import logging
from collections.abc import AsyncIterator
from typing import Any

from ._json import decode, encode
from ._ledger import Ledger
from ._terms import Terms
from .context import Context
from .errors import EndlessFlow

log = logging.getLogger("turnwise.flows")


def note_unused(context: Context[Any, Any], unused: list[str]) -> None:
    """Say what a finished flow recorded and did not use: harmless between versions, a sign of trouble within one."""
    is_other = context.flow_version != context.terms.version
    log.log(
        logging.INFO if is_other else logging.WARNING,
        "%s %r finished without %s, which an earlier round settled: does it take another path from round to round?",
        context.call.method,
        context.call.target,
        ", ".join(repr(key) for key in unused),
    )


def note_round(context: Context[Any, Any], size: int) -> None:
    """A log line for each round that asks, with its facts as attributes; never what was asked or answered."""
    facts = {
        "flow_id": context.flow_id,
        "round": context.round,
        "result_type": "input_required",
        "ledger_bytes": size,
    }
    log.info("%s %r: %s", context.call.method, context.call.target, facts, extra=facts)


def kept(ledger: Ledger, terms: Terms, *, is_task: bool = False) -> Ledger:
    """A ledger that stays here while its call waits, just as it would come back out of a token. A task may take as many
    legs as it likes: to sleep is one, too.
    """
    if ledger.sequence > terms.budget.rounds and not is_task:
        raise EndlessFlow(terms.budget.rounds)
    if ledger.sequence == 1:
        ledger.version = terms.version
    return Ledger.decode(ledger.lineage, decode(encode(ledger.encode())))


async def nothing() -> AsyncIterator[dict[str, Any]]:
    return
    yield {}
