"""Server-sent events, as a client reads them: bytes in, the data of whole events out."""

from collections.abc import Iterator, Mapping

from .._messages import Mark
from ..errors import InvalidReply

LONGEST_RETRY = 10
"""Digits of a pause in milliseconds; more is longer than anybody waits."""
_BOM = b"\xef\xbb\xbf"


class Events:
    """One stream. Only the data of messages matters: other kinds of events and comments are passed over, except those
    in `marks`. `last_id` is where the stream can be taken up again, and `retry` after how many seconds.
    """

    def __init__(self, largest: int, marks: Mapping[str, bool] | None = None, last_id: str = "") -> None:
        self.last_id = last_id
        self.retry: float | None = None
        self._marks = {kind.encode() for kind in marks} if marks else ()
        self._largest = largest
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kind = b""
        self._id: str | None = None
        self._size = 0
        self._is_first = True
        self._after_return = False

    def anew(self) -> "Events":
        """The same stream on another connection."""
        other = Events(self._largest, last_id=self.last_id)
        other.retry, other._marks = self.retry, self._marks
        return other

    def feed(self, chunk: bytes) -> Iterator[bytes | Mark]:
        """The events that end in this chunk. A line ends with a line feed, a carriage return, or both."""
        if self._after_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_return = False
        if not chunk:
            return
        self._after_return = chunk.endswith(b"\r")
        first, *others = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._line += first
        for part in others:
            yield from self._ended(bytes(self._line))
            self._line = bytearray(part)
        if self._size + len(self._line) > self._largest:
            raise InvalidReply(f"an event of the stream has more than {self._largest} bytes")

    def _ended(self, line: bytes) -> Iterator[bytes | Mark]:
        if self._is_first:
            self._is_first, line = False, line.removeprefix(_BOM)
        name, _, value = line.partition(b":")
        if not line:
            yield from self._dispatched()
        elif name == b"event":
            self._kind = value.removeprefix(b" ")
        elif name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(line)
            if self._size > self._largest:
                raise InvalidReply(f"an event of the stream has more than {self._largest} bytes")
        elif name == b"id" and b"\0" not in value:
            self._id = value.removeprefix(b" ").decode("utf-8", "replace")
        elif name == b"retry" and value.strip().isdigit() and len(value.strip()) <= LONGEST_RETRY:
            self.retry = int(value) / 1000

    def _dispatched(self) -> Iterator[bytes | Mark]:
        if self._id is not None:  # It counts with the end of its event, even of one without data.
            self.last_id, self._id = self._id, None
        if any(self._data) and self._kind in (b"", b"message"):
            yield b"\n".join(self._data)
        elif self._kind in self._marks:
            yield Mark(self._kind.decode(), self.last_id)
        self._data, self._size, self._kind = [], 0, b""
