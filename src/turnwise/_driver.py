"""The engine's client half: the loop that answers, as a generator.

`drive` yields what has to be done and is sent what came of it: `Attempt` wants the result of a request with these
parameters, `Questions` the answers by key, `Pause` nothing. It returns the complete result. It does no I/O, so one loop
serves every transport, and a caller may put it down between two steps.
"""

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from .errors import TooManyRounds, UnknownResultType

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 0.25


class Attempt(NamedTuple):
    """Send the request with these parameters, under an id of its own."""

    params: dict[str, Any]


class Questions(NamedTuple):
    """Get answers to these requests, under the same keys."""

    requests: Mapping[str, Any]


class Pause(NamedTuple):
    """Wait before trying again: the server asked nothing, it only wants to be called again."""

    seconds: float


def drive(params: Mapping[str, Any], max_rounds: int) -> Generator[Attempt | Questions | Pause, Any, dict[str, Any]]:
    """One call, through as many rounds as it takes."""
    attempt = dict(params)
    pause = FIRST_PAUSE
    for _ in range(max_rounds + 1):
        result: dict[str, Any] = yield Attempt(attempt)
        kind = result.get("resultType", "complete")
        if kind == "complete":
            return result
        if kind != "input_required":
            raise UnknownResultType(kind)
        attempt = dict(params)
        if requests := result.get("inputRequests"):
            attempt["inputResponses"] = yield Questions(requests)
            pause = FIRST_PAUSE
        else:
            yield Pause(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        if "requestState" in result:
            attempt["requestState"] = result["requestState"]
    raise TooManyRounds(max_rounds)
