"""The only I/O. A transport moves bytes between the network and a wire; it does not know what they say."""

from collections.abc import Awaitable
from typing import Protocol

from .._messages import Post, Reply


class Answerer(Protocol):
    """A wire, as a transport sees it: any bytes get a reply, and no exception comes out."""

    def answer(self, post: Post) -> Awaitable[Reply]:
        """The reply to one message."""
        ...
