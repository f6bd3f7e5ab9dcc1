"""A line for each request: what was asked for, what came of it, and which flow it belongs to.

Lines are logfmt, on the logger `turnwise.access`; the facts are attributes of the record too. What was said is never in
them.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ._messages import Call, Outcome, result_type
from .context import Context
from .dialects.mirrored import METHOD, NAME
from .errors import InvalidRequestState, ToolError
from .transports.exchange import Witness

log = logging.getLogger("turnwise.access")

LONGEST = 200

_told: ContextVar[dict[str, Any] | None] = ContextVar("turnwise_access", default=None)


class AccessLog:
    """Watches requests at the door, and their rounds inside."""

    def arrived(self, headers: Mapping[bytes, bytes], client: str | None) -> dict[str, Any]:
        """A request came."""
        note: dict[str, Any] = {
            "began": time.perf_counter(),
            "client": client,
            "method": _text(headers.get(METHOD)),
            "target": _text(headers.get(NAME)),
        }
        _told.set(note)
        return note

    def left(self, note: dict[str, Any], status: int | None, principal: str | None) -> None:
        """Its response is over."""
        seconds = time.perf_counter() - note.pop("began")
        facts = {**note, "principal": principal, "status": status or 499, "ms": round(seconds * 1000, 2)}
        written = " ".join(f"{name}={_written(value)}" for name, value in facts.items() if value is not None)
        log.info("%s", written, extra={f"request_{name}": value for name, value in facts.items()})

    @contextmanager
    def watch(self, context: Context[Any, Any]) -> Iterator[Callable[[Outcome], None]]:
        """Note which flow and round a request is of, and how the round ended."""
        note = _told.get()
        if note is None:  # A leg of a task, which no request waits for.
            yield _unheard
            return

        def tell(outcome: Outcome) -> None:
            note["result"] = result_type(outcome)

        note["method"], note["target"] = context.call.method, context.call.target or None
        try:
            yield tell
        except BaseException as error:
            note["result"] = "tool_error" if isinstance(error, ToolError) else type(error).__name__
            raise
        finally:
            if context.flow is not None:
                note["flow"], note["round"] = context.flow_id, context.round

    def rejected(self, call: Call, error: InvalidRequestState) -> None:
        """Note that a token was refused, and why."""
        note = _told.get()
        if note is not None:
            note["result"], note["reason"] = "rejected", error.kind


class Witnesses:
    """Several witnesses of the same requests."""

    def __init__(self, witnesses: Sequence[Witness]) -> None:
        self._witnesses = witnesses

    def arrived(self, headers: Mapping[bytes, bytes], client: str | None) -> list[Any]:
        """A request came."""
        return [witness.arrived(headers, client) for witness in self._witnesses]

    def left(self, notes: list[Any], status: int | None, principal: str | None) -> None:
        """Its response is over."""
        for witness, note in zip(self._witnesses, notes, strict=True):
            witness.left(note, status, principal)


def _unheard(outcome: Outcome) -> None:
    """Nobody waits for this."""


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw[:LONGEST].decode("latin-1")


def _written(value: Any) -> str:
    """A value that cannot be taken for two."""
    text = str(value)[:LONGEST]
    is_plain = text.isascii() and text.isprintable() and not set(text) & set(' "=\\') and text
    return text if is_plain else json.dumps(text)
