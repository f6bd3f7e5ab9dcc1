"""What lies in a store of tasks: sealed under the server's keys, and bound to its task and its place there."""

from typing import Any

from .._json import decode, encode
from .._sealed import StateCodec
from ..errors import InvalidRequestState


class Vault:
    """Seals and opens what a store is given to keep."""

    def __init__(self, codec: StateCodec) -> None:
        self._codec = codec

    def seal(self, task_id: str, place: str, value: Any) -> bytes:
        """Plain data, for the store."""
        return self._codec.seal(encode(["task", task_id, place, value])).encode()

    def open(self, task_id: str, place: str, blob: bytes) -> Any:
        """What was sealed for this very place; InvalidRequestState where it was not."""
        try:
            kind, owner, where, value = decode(self._codec.unseal(bytes(blob).decode()))
        except (ValueError, TypeError):
            raise InvalidRequestState("a record of a task has another format") from None
        if (kind, owner, where) != ("task", task_id, place):
            raise InvalidRequestState("a record of a task lies in another place")
        return value
