"""Results that may be used again, for as long as their server said.

A cache may be shared between clients: what a server calls public serves all clients of that server, what is private
only the client that fetched it. Results are kept as bytes, so that no two callers hold the same object. The room reads
no clock.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from ._json import decode, encode


class ResponseCache:
    """At most `largest` results, the least used of which go first."""

    def __init__(self, largest: int = 1000) -> None:
        if largest < 1:
            raise ValueError("a cache holds at least one result")
        self._largest = largest
        self._kept: OrderedDict[tuple[Hashable, str, bytes], tuple[float, bytes]] = OrderedDict()

    def get(self, keys: "Keys", method: str, params: Mapping[str, Any], now: float) -> dict[str, Any] | None:
        """A fresh result, or None."""
        for owner in (keys.private, keys.public):
            key = (owner, method, _written(params))
            kept = self._kept.get(key)
            if kept is None:
                continue
            if kept[0] > now:
                self._kept.move_to_end(key)
                found: dict[str, Any] = decode(kept[1])
                return found
            del self._kept[key]
        return None

    def put(
        self, owner: Hashable, method: str, params: Mapping[str, Any], result: dict[str, Any], until: float
    ) -> None:
        """Keep a result. `until` is the end of its freshness. One that cannot be written as JSON is not kept."""
        key = (owner, method, _written(params))
        try:
            self._kept[key] = (until, encode(result))
        except (TypeError, ValueError):
            return
        self._kept.move_to_end(key)
        while len(self._kept) > self._largest:
            self._kept.popitem(last=False)

    def forget(self, keys: "Keys", method: str, params: Mapping[str, Any] | None = None) -> None:
        """Drop the results of a method, all or those to these parameters."""
        owners, text = (keys.private, keys.public), None if params is None else _written(params)
        for key in list(self._kept):
            if key[0] in owners and key[1] == method and text in (None, key[2]):
                del self._kept[key]


class Keys(NamedTuple):
    """Whose results these are: of one client, or of all clients of a server."""

    private: Hashable
    public: Hashable


def _written(params: Mapping[str, Any]) -> bytes:
    return encode(params, sort_keys=True)
