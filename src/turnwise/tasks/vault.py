"""What lies in a store: sealed under keys, and bound to whom it is about and to its place there."""

from typing import Any

from .._json import decode, encode
from .._sealed import StateCodec
from ..errors import InvalidRequestState


class Vault:
    """Seals and opens what a store is given to keep; `kind` is what it keeps."""

    def __init__(self, codec: StateCodec, kind: str = "task") -> None:
        self._codec = codec
        self._kind = kind

    def seal(self, owner: str, place: str, value: Any) -> bytes:
        """Plain data, for the store."""
        return self._codec.seal(encode([self._kind, owner, place, value])).encode()

    def open(self, owner: str, place: str, blob: bytes) -> Any:
        """What was sealed for this very place; InvalidRequestState where it was not."""
        try:
            kind, whose, where, value = decode(self._codec.unseal(bytes(blob).decode()))
        except (ValueError, TypeError):
            raise InvalidRequestState(f"a record of the kind {self._kind} has another format") from None
        if (kind, whose, where) != (self._kind, owner, place):
            raise InvalidRequestState(f"a record of the kind {self._kind} lies in another place")
        return value
