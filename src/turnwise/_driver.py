"""The engine's client half: the loop that answers, as a generator.

`drive` yields what has to be done and is sent what came of it: `Attempt` wants the result of a request with these
parameters, or the MCPError thrown in; `Questions` the answers by key; `Pause` nothing. It returns the complete result.
It does no I/O, so one loop serves every transport. A caller may put the call down at a `Questions` step, and another
process picks it up there: what it has to know is in the step, and goes back in as `Held`.
"""

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from .errors import MCPError, StateExpired, TooManyRounds, UnknownResultType

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.25
INVALID_PARAMS = -32602
STALE = "invalid_request_state"


class Attempt(NamedTuple):
    """Send the request with these parameters, under an id of its own."""

    params: dict[str, Any]


class Given(NamedTuple):
    """A question of an earlier round, and what it was answered with."""

    key: str
    request: Any
    answer: Any


class Questions(NamedTuple):
    """Get answers to these requests, under the same keys. `known` are those that need not be asked again; `reusable`
    were given before the call was begun anew, and may be of use later.
    """

    requests: Mapping[str, Any]
    known: Mapping[str, Any]
    state: str | None
    round: int
    given: Sequence[Given]
    reusable: Sequence[Given] = ()


class Pause(NamedTuple):
    """Wait before trying again: the server asked nothing, it only wants to be called again."""

    seconds: float


class Held(NamedTuple):
    """Where a call was put down, and the answers that were given since."""

    requests: Mapping[str, Any]
    state: str | None
    round: int
    given: Sequence[Given]
    reusable: Sequence[Given] = ()
    answers: Mapping[str, Any] = MappingProxyType({})


Drive = Generator[Attempt | Questions | Pause, Any, dict[str, Any]]


def drive(params: Mapping[str, Any], max_rounds: int, *, held: Held | None = None, restart: bool = False) -> Drive:
    """One call, through as many rounds as it takes. What is held without questions begins at the top.

    With `restart`, a token that the server no longer takes begins the call anew, once; what was answered before is
    used again where the same question comes again.
    """
    attempt, pause = dict(params), FIRST_PAUSE
    given: list[Given] = list(held.given) if held else []
    reusable: list[Given] = list(held.reusable) if held else []
    result, answered = (_asked(held), held.answers) if held and held.requests else (None, {})
    number = held.round if held else 0
    while True:
        if result is None:
            try:
                result = yield Attempt(attempt)
            except MCPError as refused:
                _check_stale(refused, attempt, restart)
                restart, attempt, reusable, given, number = False, dict(params), [*given, *reusable], [], 0
                continue
        kind = result.get("resultType", "complete")
        if kind == "complete":
            return result
        if kind != "input_required":
            raise UnknownResultType(kind)
        if number == max_rounds:
            raise TooManyRounds(max_rounds)
        attempt, state = dict(params), result.get("requestState")
        if requests := result.get("inputRequests"):
            known, answered = {**_known(requests, reusable), **answered}, {}
            answers = yield Questions(requests, known, state, number, tuple(given), tuple(reusable))
            given += (Given(key, request, answers[key]) for key, request in requests.items())
            attempt["inputResponses"], pause = answers, FIRST_PAUSE
        else:
            yield Pause(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        if state is not None:
            attempt["requestState"] = state
        result, number = None, number + 1


def _check_stale(refused: MCPError, attempt: Mapping[str, Any], restart: bool) -> None:
    """Raise, unless the call may be begun anew because of this refusal."""
    if "requestState" not in attempt or not _is_stale(refused):
        raise refused
    if not restart:
        raise StateExpired(refused.code, refused.message, refused.data) from refused


def _is_stale(error: MCPError) -> bool:
    """Whether a server refuses the state of a retry, rather than what was asked of it. The protocol has no code for
    that; servers say it in the error's data or its text.
    """
    reason = error.data.get("reason") if isinstance(error.data, dict) else None
    return error.code == INVALID_PARAMS and (
        reason == STALE or "requeststate" in error.message.lower().replace(" ", "")
    )


def _asked(held: Held) -> dict[str, Any]:
    state = {} if held.state is None else {"requestState": held.state}
    return {"resultType": "input_required", "inputRequests": held.requests, **state}


def _known(requests: Mapping[str, Any], reusable: list[Given]) -> dict[str, Any]:
    """The answers that are still good. Each is used once: a question that comes twice wants another answer."""
    known = {}
    for old in list(reusable):
        if old.key not in known and requests.get(old.key) == old.request:
            known[old.key] = old.answer
            reusable.remove(old)
    return known
