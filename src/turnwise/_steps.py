"""Steps: work that is done once in a flow, however often the function around it is replayed.

A step is known by its name and its number in the round; its fingerprint covers its arguments. What it returned is on
the ledger as JSON and is read back to the annotated type, in the round where it ran as well, so that the author sees
the same value every time.
"""

import asyncio
import inspect
import typing
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ._ledger import FAILURE, STEP, Entry, fingerprint
from ._rounds import Leg
from .errors import AuthorError, ReplayMismatch, StepFailed, ToolError

OnChange = Literal["fail", "rerun"]


class Step(NamedTuple):
    """A step that was called, with the key it claimed."""

    key: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    on_change: OnChange


def claim_step(leg: Leg, name: str | None, step: Step) -> Step:
    """Give a step its key: its name, numbered from its second use on."""
    return step._replace(key=leg.claim(name or str(getattr(step.fn, "__name__", "step"))))


async def take(leg: Leg, step: Step) -> Any:
    """The step's result: from the ledger, or by running it now."""
    key = step.key
    mark = fingerprint("step", [key, _jsonable(key, [step.args, step.kwargs])])
    entries = leg.book().entries
    entry = entries.get(key)
    if entry is not None and entry.fingerprint != mark:
        if step.on_change == "fail":
            raise ReplayMismatch(key)
        entry = None
    if entry is None:
        entry = await leg.carry_out(_recorded(entries, step, mark))
    if entry.kind == FAILURE:
        raise _failure(key, *entry.value)
    return _read(step, entry.value)


async def _recorded(entries: dict[str, Entry], step: Step, mark: str) -> Entry:
    entry = entries[step.key] = await _run(step, mark)
    return entry


async def _run(step: Step, mark: str) -> Entry:
    try:
        if inspect.iscoroutinefunction(step.fn):
            result = await step.fn(*step.args, **step.kwargs)
        else:
            result = await asyncio.to_thread(step.fn, *step.args, **step.kwargs)
            if inspect.isawaitable(result):
                result = await result
    except Exception as error:
        kind = "ToolError" if isinstance(error, ToolError) else type(error).__name__
        return Entry(FAILURE, mark, [kind, str(error)])
    return Entry(STEP, mark, _jsonable(step.key, result))


def _failure(key: str, kind: str, text: str) -> Exception:
    return ToolError(text) if kind == "ToolError" else StepFailed(key, kind, text)


def _read(step: Step, value: Any) -> Any:
    adapter = _result_type(step.fn)
    if adapter is None:
        return value
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise AuthorError(f"step {step.key!r}: its recorded result does not fit its annotation: {error}") from None


@lru_cache(maxsize=512)
def _result_type(fn: Callable[..., Any]) -> "TypeAdapter[Any] | None":
    try:
        returns = typing.get_type_hints(inspect.unwrap(fn), include_extras=True).get("return", Any)
    except (NameError, TypeError):
        return None
    return None if returns is Any else TypeAdapter(returns)


def _jsonable(key: str, value: Any) -> Any:
    try:
        return to_jsonable_python(value)
    except PydanticSerializationError as error:
        raise AuthorError(f"step {key!r}: arguments and results must be plain data: {error}") from None
