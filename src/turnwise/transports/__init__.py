"""The only I/O. A transport moves bytes between the network and a wire; it does not know what they say."""

from collections.abc import Awaitable
from typing import Protocol

from .._messages import Post, Reply


class Answerer(Protocol):
    """A wire, as a transport sees it: any bytes get a reply, and no exception comes out."""

    def answer(self, post: Post) -> Awaitable[Reply]:
        """The reply to one message."""
        ...


class Attendant(Protocol):
    """Who serves the other verbs of HTTP, on wires that have a use for them."""

    async def attend(self, verb: str, post: Post) -> Reply | None:
        """The reply, or None where this verb is not served."""
        ...
