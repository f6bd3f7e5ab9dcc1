"""How many requests are let through at a time, in all and for each caller, so that one cannot starve the others."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

MOST_CALLERS = 10_000
"""So many callers are remembered for their rate."""
_SOON = 1


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How many requests one process takes: `in_flight` at a time in all, `per_caller` at a time from one caller, and
    from one caller `rate` a second on average, `burst` at once.

    A caller is the principal of an access token. Those without one are told apart by `caller_header`, the name of a
    header that your proxy sets, such as `X-Real-IP` (of several values, the last counts); without that, by the address
    that they connect from, unless that is this machine, where a proxy may be speaking for many.
    """

    in_flight: int = 1000
    per_caller: int = 100
    rate: float | None = None
    burst: int = 50
    caller_header: str | None = None

    def __post_init__(self) -> None:
        for name in ("in_flight", "per_caller", "burst"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is a whole number above 0, not {value!r}")
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise ValueError(f"rate is a number of requests a second above 0, not {self.rate!r}")


class Refusal(NamedTuple):
    """A request that is turned away for now."""

    status: int
    description: str
    retry_after: int

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """When to come again."""
        return [(b"retry-after", b"%d" % self.retry_after)]


class Turnstile:
    """Counts who is inside."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._header = (limits.caller_header or "").lower().encode()
        self._inside: dict[str, int] = {}
        self._count = 0
        self._paces: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def caller(self, principal: str | None, headers: Mapping[bytes, bytes], client: str | None) -> str | None:
        """Who is calling; None where nobody can tell."""
        if principal is not None:
            return f"principal {principal}"
        if self._header:
            named = headers.get(self._header)
            # Of several, a proxy wrote the last; those before it are whatever the client sent.
            return None if named is None else f"named {named.rpartition(b',')[2].strip().decode('latin-1')}"
        is_local = client is None or client == "::1" or client.startswith("127.")
        return None if is_local else f"address {client}"

    def enter(self, caller: str | None, now: float) -> Refusal | None:
        """Let a request in, to be followed by `leave`; or why it has to wait outside."""
        if self._count >= self._limits.in_flight:
            return Refusal(503, "Too many requests are under way here", _SOON)
        if caller is not None:
            if self._inside.get(caller, 0) >= self._limits.per_caller:
                return Refusal(429, f"More than {self._limits.per_caller} of your requests are under way", _SOON)
            if (wait := self._wait(caller, now)) > 0:
                return Refusal(429, f"More than {self._limits.rate:g} requests a second", math.ceil(wait))
            self._inside[caller] = self._inside.get(caller, 0) + 1
        self._count += 1
        return None

    def leave(self, caller: str | None) -> None:
        """A request is over."""
        self._count -= 1
        if caller is not None:
            self._inside[caller] -= 1
            if not self._inside[caller]:
                del self._inside[caller]

    def _wait(self, caller: str, now: float) -> float:
        """For how long a caller has to wait; where it has not, this request is counted."""
        rate, burst = self._limits.rate, self._limits.burst
        if rate is None:
            return 0.0
        left, since = self._paces.pop(caller, (float(burst), now))
        left = min(float(burst), left + max(0.0, now - since) * rate)
        is_let_in = left >= 1
        self._paces[caller] = (left - 1 if is_let_in else left, now)
        if len(self._paces) > MOST_CALLERS:
            self._paces.popitem(last=False)
        return 0.0 if is_let_in else (1 - left) / rate
