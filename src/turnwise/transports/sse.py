"""Server-sent events, as a client reads them: bytes in, the data of whole events out."""

from collections.abc import Iterator

from ..errors import InvalidReply

_BOM = b"\xef\xbb\xbf"


class Events:
    """One stream. Only the data of messages matters: other kinds of events, ids and comments are passed over."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._line = bytearray()
        self._data: list[bytes] = []
        self._kind = b""
        self._size = 0
        self._is_first = True
        self._after_return = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
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

    def _ended(self, line: bytes) -> Iterator[bytes]:
        if self._is_first:
            self._is_first, line = False, line.removeprefix(_BOM)
        name, _, value = line.partition(b":")
        if not line:
            if any(self._data) and self._kind in (b"", b"message"):
                yield b"\n".join(self._data)
            self._data, self._size, self._kind = [], 0, b""
        elif name == b"event":
            self._kind = value.removeprefix(b" ")
        elif name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(line)
            if self._size > self._largest:
                raise InvalidReply(f"an event of the stream has more than {self._largest} bytes")
