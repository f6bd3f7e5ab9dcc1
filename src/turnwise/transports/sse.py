"""Server-sent events, as a client reads them: bytes in, the data of whole events out."""

from collections.abc import Iterator

from ..errors import InvalidReply


class Events:
    """One stream. Only `data` matters here: types, ids and comments are passed over."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The events that end in this chunk."""
        text = self._rest + chunk
        # A carriage return at the end may be half of a line's end.
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + held
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                yield b"\n".join(self._data)
                self._data, self._size = [], 0
        if self._size + len(self._rest) > self._largest:
            raise InvalidReply(f"an event of the stream has more than {self._largest} bytes")

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        self._data.append(value.removeprefix(b" "))
        self._size += len(line)
        if self._size > self._largest:
            raise InvalidReply(f"an event of the stream has more than {self._largest} bytes")
