"""What the log is told of rounds."""

import logging
from typing import Any

from .context import Context

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
