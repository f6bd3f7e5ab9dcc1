"""A server spread over processes: each message is answered by one that has never answered another.

`python -m tests.fleet.spread ADDRESS SCRIPT` is where such processes come from (see `zygotes.py`), for the server of a
script. `python -m tests.fleet.spread over stdio ADDRESSES` has no server at all: it hands on what it reads.
"""

import asyncio
import os
import runpy
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Client, Connection
from typing import Any

from tests.fleet.zygotes import fork_for_each
from turnwise import MCPServer, RequestStateSecurity
from turnwise._hosting import MAX_BODY
from turnwise._messages import Post, Reply
from turnwise.transports.stdio import serve_stdio

KEY = "a key that all processes of a server share"


class Spread:
    """Stands where a wire does."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses
        self._turn = 0

    async def answer(self, post: Post) -> Reply:
        self._turn += 1
        with Client(self._addresses[self._turn % len(self._addresses)], "AF_UNIX") as connection:
            connection.send((post.body, post.now))
            while isinstance(said := await asyncio.to_thread(connection.recv), bytes):
                await post.emit(said)
            return Reply(*said)


def answer_one(server: MCPServer[Any], connection: "Connection[Any, Any]") -> None:
    """What one process does in its life."""
    body, now = connection.recv()

    async def emit(message: bytes) -> None:
        connection.send(message)

    async def answer() -> Reply:
        await server.start()
        try:
            return await server.wire.answer(Post(body, emit, now))
        finally:
            await server.stop()

    with suppress(BrokenPipeError):
        connection.send(tuple(asyncio.run(answer())))


def exchange(connection: "Connection[Any, Any]", body: bytes) -> bytes:
    """The reply of a process that is connected; what it tells on the way is not heard."""
    connection.send((body, time.time()))
    while isinstance(said := connection.recv(), bytes):
        pass
    reply: bytes = said[1]
    return reply


def shared(cls: type[RequestStateSecurity], /, **options: Any) -> RequestStateSecurity:
    """For servers that are given no key."""
    return cls(keys=[os.environ.get("KEY", KEY)], **options)


if __name__ == "__main__":
    if sys.argv[1:3] == ["over", "stdio"]:
        front = Spread(sys.argv[3:])
        asyncio.run(serve_stdio(front, max_message=MAX_BODY, on_end=lambda: None))
    else:
        RequestStateSecurity.ephemeral = classmethod(shared)  # type: ignore[method-assign, assignment]
        names = runpy.run_path(sys.argv[2])
        fork_for_each(sys.argv[1], lambda connection: answer_one(names["server"], connection))
