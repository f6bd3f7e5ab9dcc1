"""A response as a client reads it: bodies of a bounded size, the events of a stream, and what aiohttp leaves undone."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .._json import decode, decode_deep
from .._messages import Incoming, Mark
from ..dialects.unfit import is_deep_beside_schemas
from ..dialects.words import INSTANCE, INSTANCE_KEYS, SESSION
from ..errors import InvalidReply, UnexpectedStatus

if TYPE_CHECKING:
    import aiohttp

_LAST_WORDS = 0.25
_TELLING = ("WWW-Authenticate", "Retry-After", INSTANCE, INSTANCE_KEYS, "Date", SESSION)


async def body(response: "aiohttp.ClientResponse", largest: int) -> bytes:
    """The whole body, if it is not too large."""
    with watched(response):
        if (response.content_length or 0) > largest:
            raise InvalidReply(f"the reply has {response.content_length} bytes; at most {largest} are read")
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            chunks.append(chunk)
            size += len(chunk)
            if size > largest:
                raise InvalidReply(f"the reply has more than {largest} bytes")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def parts(data: bytes | Mark) -> list[Any]:
    """The messages of an event; older servers may put several into one."""
    message = decoded(data)
    return message if isinstance(message, list) else [message]


def decoded(data: bytes | Mark) -> Any:
    """What an event says."""
    try:
        return data if isinstance(data, Mark) else _message(data)
    except ValueError as error:
        raise InvalidReply(f"an event of the stream is not JSON: {error}") from None


def _message(raw: bytes) -> Any:
    """A message. One that is too deep is read only where nothing but the schemas of its questions is: those are looked
    at before they go any further, and can be refused.
    """
    try:
        return decode(raw)
    except ValueError:
        message = decode_deep(raw)
        if is_deep_beside_schemas(message):
            raise
        return message


def read(response: "aiohttp.ClientResponse", raw: bytes, shows_headers: bool) -> Incoming:
    """A reply that is no stream; the headers of one that was refused, or of which they are wanted, are shown."""
    kind = response.content_type
    advice = shown(response) if shows_headers or response.status >= 300 else None
    if kind == "application/json":
        try:
            return Incoming(response.status, _message(raw), raw, advice)
        except ValueError as error:
            if response.status < 300:
                raise InvalidReply(f"the reply is not JSON: {error}") from None
    if response.status < 300:
        raise InvalidReply(f"the reply is {kind!r} with status {response.status}, not JSON or a stream of events")
    raise UnexpectedStatus(response.status, raw[:200].decode("utf-8", "replace"), advice)


def shown(response: "aiohttp.ClientResponse") -> dict[str, str]:
    """The headers that say what to do next."""
    found = {name: ", ".join(response.headers.getall(name, ())) for name in _TELLING}
    return {name: value for name, value in found.items() if value}


@contextmanager
def watched(response: "aiohttp.ClientResponse") -> Iterator[None]:
    """Tell a reader of the end of its connection: aiohttp forgets a body whose chunks are malformed, and its reader
    would wait for the rest for ever.
    """
    import aiohttp

    protocol = None if response.connection is None else response.connection.protocol
    closed = None if protocol is None else protocol.closed
    if closed is None:  # The whole body is here.
        yield
        return

    def ended(_: "asyncio.Future[None]") -> None:
        if not response.content.is_eof() and response.content.exception() is None:
            response.content.set_exception(aiohttp.ClientPayloadError("the body is malformed"))

    closed.remove_done_callback(_looked_at)  # A connection is watched many times, and looked at once.
    closed.add_done_callback(_looked_at)
    closed.add_done_callback(ended)
    try:
        yield
    finally:
        closed.remove_done_callback(ended)


def _looked_at(closed: "asyncio.Future[None]") -> None:
    """Take note of how a connection ended; who reads from it is told by the body."""
    closed.cancelled() or closed.exception()


async def once(content: bytes) -> AsyncIterator[bytes]:
    """A body that was read already."""
    yield content


async def drained(response: "aiohttp.ClientResponse") -> None:
    """Read the end of a stream whose reply is here, so that its connection can be used again."""
    import aiohttp

    try:
        async with asyncio.timeout(_LAST_WORDS):
            while await response.content.readany():
                pass
    except (TimeoutError, aiohttp.ClientError, OSError):
        response.close()
