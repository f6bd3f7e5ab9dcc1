"""Steps: work that is done once in a flow, however often the function around it is replayed.

A step is known by its name and its number in the round; its fingerprint covers its arguments. What it returned is on
the ledger as JSON and is read back to the annotated type, in the round where it ran as well, so that the author sees
the same value every time. A step with `once` is on record in the server's store as well, so that an old token cannot
bring it back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from functools import lru_cache, partial, update_wrapper
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, get_args, get_origin, overload

import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_jsonable_python

from ._calling import hints_of, in_thread, is_async, name_of
from ._guards import to_the_end
from ._json import encode
from ._ledger import FAILURE, MARKER, ONCE, STEP, Entry, fingerprint, is_json
from ._rounds import Leg
from ._terms import Inside, in_step, inside
from .errors import AuthorError, EffectUnknown, ReplayMismatch, StepFailed, ToolError

log = logging.getLogger("turnwise.steps")

OnChange = Literal["fail", "rerun"]
OnUnknown = Literal["fail", "rerun"]
P = ParamSpec("P")
T = TypeVar("T")

NO_STORE = (
    "step {!r} has once=True, but the instances of this server share no store: give it one, MCPServer(store=...), or a "
    "MemoryStore() where there is only this process"
)

current: "ContextVar[Leg | None]" = ContextVar("turnwise_leg", default=None)
"""The round that runs, for functions that are steps by themselves."""
_ANY: "TypeAdapter[Any]" = TypeAdapter(Any)
_UNKEPT = "!unkept"
"""The kind of failure of a step that was done and gave something which cannot be recorded."""


class Manner(NamedTuple):
    """How a step is taken."""

    name: str | None = None
    once: bool = False
    on_change: OnChange = "fail"
    on_unknown: OnUnknown = "fail"


class Step(NamedTuple):
    """A step that was called, with the key it claimed."""

    key: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    manner: Manner


class Declared(Generic[P, T]):
    """A function that is a step by itself: call it in a tool and await it. Elsewhere it is just the function."""

    def __init__(self, fn: Callable[P, Any], manner: Manner) -> None:
        _check(fn, manner)
        self.fn = fn
        self.manner = manner
        update_wrapper(self, fn)

    def __get__(self, owner: Any, kind: type | None = None) -> "Declared[..., T]":
        """A method is a step too, of its other arguments."""
        return self if owner is None else Declared(self.fn.__get__(owner, kind), self.manner)

    async def _alone(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return await (self.fn(*args, **kwargs) if is_async(self.fn) else in_thread(self.fn, *args, **kwargs))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """The step, to be awaited."""
        leg = current.get()
        if leg is None:
            return self._alone(*args, **kwargs)
        return take(leg, claim_step(leg, self.fn, args, kwargs, self.manner))


class _Maker(Protocol):
    """What makes a step of a function of either colour."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, T]], /) -> Declared[P, T]: ...
    @overload
    def __call__(self, fn: Callable[P, T], /) -> Declared[P, T]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, T]], /) -> Declared[P, T]: ...
@overload
def step(fn: Callable[P, T], /) -> Declared[P, T]: ...
@overload
def step(
    *, name: str | None = None, once: bool = False, on_change: OnChange = "fail", on_unknown: OnUnknown = "fail"
) -> "_Maker": ...
def step(fn: Any = None, /, **manner: Any) -> Any:
    """Make a function a step: `@step` or `@step(once=True)`. Calls to it inside a tool are journaled, and awaited."""
    if fn is None:
        return lambda fn: Declared(fn, Manner(**manner))
    return Declared(fn, Manner())


def claim_step(leg: Leg, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], manner: Manner) -> Step:
    """Give a step its key: its name, numbered from its second use on."""
    if isinstance(fn, Declared):
        own: Manner = fn.manner
        fn = fn.fn
        manner = Manner(
            manner.name or own.name,
            manner.once or own.once,
            own.on_change if manner.on_change == "fail" else manner.on_change,
            own.on_unknown if manner.on_unknown == "fail" else manner.on_unknown,
        )
    _check(fn, manner)
    key = leg.claim(manner.name or name_of(fn))
    leg._owed += 1
    return Step(key, fn, args, kwargs, manner)


def _check(fn: Any, manner: Manner) -> None:
    if manner.on_change not in get_args(OnChange):
        raise ValueError(f"on_change is 'fail' or 'rerun', not {manner.on_change!r}")
    if manner.on_unknown not in get_args(OnUnknown):
        raise ValueError(f"on_unknown is 'fail' or 'rerun', not {manner.on_unknown!r}")
    if manner.name is not None and not isinstance(manner.name, str):
        raise TypeError(f"a step's name is a text, not {type(manner.name).__name__}")
    if not callable(fn):
        raise TypeError("pass the function and its arguments: ctx.step(charge, card), not ctx.step(charge(card))")


async def take(leg: Leg, step: Step) -> Any:
    """The step's result: from the ledger, or by running it now."""
    leg._owed -= 1
    key = step.key
    mark = fingerprint("step", [key, plain_data(key, "argument", [step.args, step.kwargs])])
    entries = leg.book().entries
    entry = entries.get(key)
    if entry is not None and entry.fingerprint != mark:
        if step.manner.on_change == "fail":
            raise ReplayMismatch(key)
        entry = None
    if entry is None:
        if leg.needs_token() and not leg.suspending:
            leg.move()
        entry = await _carried_out(leg, step, mark)
        leg.boundary()
    if entry.kind == FAILURE:
        raise _failure(key, *entry.value)
    return _read(step, entry.value)


async def _carried_out(leg: Leg, step: Step, mark: str) -> Entry:
    """Do it now. One that its author gives up may have been done all the same."""
    name = step.manner.name or name_of(step.fn)
    if step.manner.once and step.manner.on_unknown == "fail" and name in leg.given_up:
        raise unknown(leg, step.key)
    try:
        return await leg.carry_out(_recorded(leg, step, mark))
    except asyncio.CancelledError:
        if not leg.suspending:
            leg.given_up |= {name}
        raise


async def _recorded(leg: Leg, step: Step, mark: str) -> Entry:
    entry = await (_guarded(leg, step, mark) if step.manner.once else _run(leg, step, mark))
    leg.book().entries[step.key] = entry
    if step.manner.once:
        leg.book().entries[ONCE] = Entry(MARKER, "", 1)
    if leg.desk is not None:
        await leg.desk.keep(leg.book())
    return entry


async def _guarded(leg: Leg, step: Step, mark: str) -> Entry:
    """Do it unless it was done, in this history of the flow or in any other."""
    guard = leg.terms.guard
    if guard is None:
        raise AuthorError(NO_STORE.format(step.key))
    key = leg.book().derive(f"guard:{step.key}").hex()

    async def done() -> Entry:
        try:
            known = await guard.begin(key, step.key, again=step.manner.on_unknown == "rerun")
        except EffectUnknown:
            raise unknown(leg, step.key) from None
        if known is not None:
            return Entry(*known[0])
        entry = await _run(leg, step, mark)
        try:
            await guard.finish(key, list(entry))
        except Exception as error:  # Whatever a store raises: the step was done.
            told = "step %r was done, and the store does not know what came of it: %s (%s)"
            log.error(told, step.key, error, where(leg))
            raise EffectUnknown(step.key) from error
        return entry

    # Even while the beginning is written down the client may go away.
    entry = await to_the_end(done())
    if entry.fingerprint != mark:
        raise ReplayMismatch(step.key)
    return entry


def unknown(leg: Leg, what: str) -> EffectUnknown:
    """What is raised where nobody knows; the log says of which call."""
    log.error("it is not known whether %r was done: it was begun and did not report (%s)", what, where(leg))
    return EffectUnknown(what)


def where(leg: Leg) -> str:
    """Which call of which flow, for the log."""
    return f"{leg.call.method} {leg.call.target!r}, flow {leg.book().flow_id}, round {leg.round}"


async def _run(leg: Leg, step: Step, mark: str) -> Entry:
    around = inside(leg)
    is_guarded = step.manner.once or (around is not None and around.is_guarded)
    in_step.set(Inside(leg, step.key, is_guarded))  # In a task of its own, so it ends with the step.
    with ExitStack() as stack:
        told = [stack.enter_context(watch_step(leg, step.key)) for watch_step in leg.around_steps]
        entry = await _tried(step, mark)
        if entry.kind == FAILURE:
            kind, _ = entry.value
            for failed in told:
                failed("AuthorError" if kind == _UNKEPT else kind)
        return entry


async def _tried(step: Step, mark: str) -> Entry:
    try:
        work = step.fn if is_async(step.fn) else partial(in_thread, step.fn)
        result = await work(*step.args, **step.kwargs)
    except (Exception, SystemExit) as error:
        log.info("step %r failed", step.key, exc_info=True)
        kind = "ToolError" if isinstance(error, ToolError) else type(error).__name__
        # Words that cannot be written, half a character for one, are not worth losing the entry for.
        return Entry(FAILURE, mark, [kind, str(error).encode("utf-8", "replace").decode()])
    try:
        return Entry(STEP, mark, plain_data(step.key, "result", result))
    except AuthorError as error:  # It was done; only what it gave cannot be kept.
        return Entry(FAILURE, mark, [_UNKEPT, str(error)])


def _failure(key: str, kind: str, text: str) -> Exception:
    if kind == _UNKEPT:
        return AuthorError(text)
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
    try:
        return None if returns is Any else _adapter(returns)
    except TypeError:  # An annotation that has no hash, and is not kept.
        return _adapter.__wrapped__(returns)


@lru_cache(maxsize=512)
def _adapter(returns: Any) -> "TypeAdapter[Any] | None":
    try:
        return TypeAdapter(returns)
    except PydanticUserError:
        return None


def _has_set(data: Any) -> bool:
    if isinstance(data, set | frozenset):
        return True
    members = data.values() if isinstance(data, dict) else data if isinstance(data, list | tuple) else ()
    return any(map(_has_set, members))


def _in_order(data: Any) -> Any:
    """The same, with sets as lists in one order: how a set is ordered is up to each process."""
    if isinstance(data, set | frozenset):
        return sorted(map(_in_order, data), key=lambda member: encode(to_jsonable_python(member), sort_keys=True))
    if isinstance(data, dict):
        return {name: _in_order(member) for name, member in data.items()}
    return [_in_order(member) for member in data] if isinstance(data, list | tuple) else data


def _refuse_streams(data: Any) -> None:
    """A generator, a file, a cursor: to look at it is to use it up."""
    if isinstance(data, Iterator):
        raise TypeError(f"a {type(data).__name__} can be read only once; make a list of it")
    for member in data.values() if isinstance(data, dict) else data if isinstance(data, list | tuple) else ():
        _refuse_streams(member)


def plain_data(key: str, what: str, value: Any) -> Any:
    """The value as JSON has it; AuthorError where it cannot be written."""
    try:
        _refuse_streams(value)
        found = _ANY.dump_python(value) if what == "argument" else value
        data = to_jsonable_python(_in_order(found) if _has_set(found) else value)
        if not is_json(data):
            raise ValueError("NaN and infinities are no JSON")
        orjson.dumps(data)
    except (ValueError, TypeError, RecursionError) as error:
        raise AuthorError(f"step {key!r}: its {what} is no plain data: {error}") from None
    return data
