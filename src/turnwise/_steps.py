"""Steps: work that is done once in a flow, however often the function around it is replayed.

A step is known by its name and its number in the round; its fingerprint covers its arguments. What it returned is on
the ledger as JSON and is read back to the annotated type, in the round where it ran as well, so that the author sees
the same value every time.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, get_args, get_origin

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python

from ._calling import hints_of, in_thread, is_async, name_of
from ._ledger import FAILURE, STEP, Entry, fingerprint, is_json
from ._rounds import Leg
from .errors import AuthorError, ReplayMismatch, StepFailed, ToolError

log = logging.getLogger("turnwise.steps")

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
    if step.on_change not in get_args(OnChange):
        raise ValueError(f"on_change is 'fail' or 'rerun', not {step.on_change!r}")
    if not callable(step.fn):
        raise TypeError("pass the function and its arguments: ctx.step(charge, card), not ctx.step(charge(card))")
    key = leg.claim(name or name_of(step.fn))
    leg._owed += 1
    return step._replace(key=key)


async def take(leg: Leg, step: Step) -> Any:
    """The step's result: from the ledger, or by running it now."""
    leg._owed -= 1
    key = step.key
    mark = fingerprint("step", [key, _plain(key, "argument", [step.args, step.kwargs])])
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
        work = step.fn if is_async(step.fn) else partial(in_thread, step.fn)
        result = await work(*step.args, **step.kwargs)
    except Exception as error:
        log.info("step %r failed", step.key, exc_info=True)
        kind = "ToolError" if isinstance(error, ToolError) else type(error).__name__
        return Entry(FAILURE, mark, [kind, str(error)])
    return Entry(STEP, mark, _plain(step.key, "result", result))


def _failure(key: str, kind: str, text: str) -> Exception:
    return ToolError(text) if kind == "ToolError" else StepFailed(key, kind, text)


def _read(step: Step, value: Any) -> Any:
    adapter = _result_type(step.fn)
    if adapter is None:
        return value
    try:
        return adapter.validate_json(orjson.dumps(value))
    except ValidationError as error:
        raise AuthorError(f"step {step.key!r}: its recorded result does not fit its annotation: {error}") from None


def _result_type(fn: Callable[..., Any]) -> "TypeAdapter[Any] | None":
    try:
        returns = hints_of(fn).get("return", Any)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return None
    if get_origin(returns) in (Awaitable, Coroutine):
        returns = get_args(returns)[-1]
    return None if returns is Any else _adapter(returns)


@lru_cache(maxsize=512)
def _adapter(returns: Any) -> "TypeAdapter[Any] | None":
    try:
        return TypeAdapter(returns)
    except PydanticUserError:
        return None


def _plain(key: str, what: str, value: Any) -> Any:
    try:
        data = to_jsonable_python(value)
        if not is_json(data):
            raise ValueError("NaN and infinities are no JSON")
        orjson.dumps(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise AuthorError(f"step {key!r}: its {what} is no plain data: {error}") from None
    return data
