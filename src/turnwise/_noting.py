"""What observers and the log are told of rounds."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from ._messages import Call, Outcome
from ._moving import option_of_asking
from ._terms import forgotten
from .context import Context
from .errors import InvalidRequestState

log = logging.getLogger("turnwise.flows")


class Observer(Protocol):
    """Who is told of rounds. One that has a method `rejected` is told of tokens that were refused, too; one that has
    `watch_step`, of steps that are taken.
    """

    def watch(self, context: Context[Any, Any]) -> AbstractContextManager[Callable[[Outcome], None]]:
        """Around one round; what it gives is called with the outcome."""
        ...


@runtime_checkable
class StepObserver(Protocol):
    """Who is told of steps as well."""

    def watch_step(self, context: Context[Any, Any], key: str) -> AbstractContextManager[Callable[[str], None]]:
        """Around a step that is taken now, in the task that takes it. What it gives is called with the kind of the
        failure where it failed. It must not raise: the step may have been done.
        """
        ...


def explain(context: Context[Any, Any], error: Exception) -> None:
    """Have what a function raised say in which round that was, and what may be behind it."""
    error.add_note(f"flow {context.flow_id}, round {context.round}")
    if context._owed > 0 and (told := forgotten(context)) != str(error):
        error.add_note(told)
    if (advice := option_of_asking(error)) is not None:
        error.add_note(advice)


def note_rejected(observers: Sequence[Observer], call: Call, error: InvalidRequestState) -> None:
    """Tell those who want to know that a token was refused."""
    for observer in observers:
        if hasattr(observer, "rejected"):
            observer.rejected(call, error)


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
