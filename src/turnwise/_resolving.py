"""The declared form: parameters filled by functions that may ask.

`Annotated[T, Resolve(fn)]` says that `fn` gives the parameter's value. A resolver takes the call's own arguments by
name, the context, and other resolvers; it returns a value, or a marker to be asked. The plan is made at registration.
When it is run, every question that can be asked in a round is: one that is open does not keep the others waiting.
"""

import types
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from ._binding import Binding, Resolve, bind
from ._messages import (
    AcceptedElicitation,
    AcceptedUrlElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    ElicitURL,
    ListRoots,
    Marker,
    Sample,
)
from ._rounds import Suspend
from .errors import Declined, InvalidSignature

MARKERS = (Elicit, ElicitURL, Sample, ListRoots)
_OUTCOMES = (AcceptedElicitation, AcceptedUrlElicitation, DeclinedElicitation, CancelledElicitation)

Invoke = Callable[[Binding, dict[str, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How one parameter is filled. `wants_outcome`: it takes accept, decline and cancel alike."""

    parameter: str
    wants_outcome: bool
    binding: Binding
    takes: tuple[str, ...]
    inner: tuple["Plan", ...]


def plan(
    binding: Binding, context: type, _above: tuple[Any, ...] = (), _root: Binding | None = None
) -> tuple[Plan, ...]:
    """The plans for a function's declared parameters; cycles and unknown names are found now."""
    root = _root or binding
    plans = []
    for parameter in binding.resolved:
        resolve = parameter.resolve or Resolve(lambda: None)
        if resolve.fn in _above:
            raise InvalidSignature(f"{root.name}: resolvers depend on each other in a circle")
        inner = bind(resolve.fn, context, is_resolver=True)
        offered = root.required
        if unknown := [name for name, must in inner.required.items() if must and name not in offered]:
            raise InvalidSignature(
                f"{root.name}: resolver {inner.name} takes {unknown[0]!r}, which the call does not have"
            )
        takes = tuple(name for name in inner.required if name in offered)
        below = plan(inner, context, (*_above, resolve.fn), root)
        plans.append(Plan(parameter.name, _wants_outcome(parameter.annotation), inner, takes, below))
    return tuple(plans)


def _wants_outcome(annotation: Any) -> bool:
    inner = get_args(annotation)[0]
    arms = get_args(inner) if get_origin(inner) in (Union, types.UnionType) else (inner,)
    return any((get_origin(arm) or arm) in _OUTCOMES for arm in arms)


class Resolution:
    """One round's run of the plans; a resolver used twice runs once."""

    def __init__(
        self, arguments: Mapping[str, Any], context: Any, invoke: Invoke, ask: Callable[[Marker], Awaitable[Any]]
    ) -> None:
        self._arguments = arguments
        self._context = context
        self._invoke = invoke
        self._ask = ask
        self._outcomes: dict[Any, Any] = {}
        self._open: set[Any] = set()

    async def fill(self, plans: tuple[Plan, ...]) -> dict[str, Any]:
        """The values of all these parameters, or Suspend once every question is out."""
        values = {}
        suspended = False
        for item in plans:
            try:
                outcome = await self._outcome(item)
            except Suspend:
                suspended = True
                continue
            values[item.parameter] = outcome if item.wants_outcome else self._unwrapped(item, outcome)
        if suspended:
            raise Suspend
        return values

    async def _outcome(self, item: Plan) -> Any:
        fn = item.binding.fn
        if fn in self._open:
            raise Suspend
        if fn not in self._outcomes:
            self._open.add(fn)
            arguments = {name: self._arguments[name] for name in item.takes}
            arguments |= await self.fill(item.inner)
            if item.binding.context is not None:
                arguments[item.binding.context] = self._context
            value = await self._invoke(item.binding, arguments)
            self._outcomes[fn] = await self._ask(value) if isinstance(value, MARKERS) else value
            self._open.discard(fn)
        value = self._outcomes[fn]
        return AcceptedElicitation(value) if item.wants_outcome and not isinstance(value, _OUTCOMES) else value

    def _unwrapped(self, item: Plan, outcome: Any) -> Any:
        if isinstance(outcome, AcceptedElicitation):
            return outcome.data
        if isinstance(outcome, DeclinedElicitation | CancelledElicitation):
            self._context.withdraw()
            verb = "declined" if isinstance(outcome, DeclinedElicitation) else "cancelled"
            raise Declined(f"The request for {item.parameter!r} was {verb}")
        return outcome
