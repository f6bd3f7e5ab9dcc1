"""A balancer as simple as they come: every request goes to the next instance, and one that is not there is passed over.

It takes one request a connection, keeps what went through, and loses replies where it is told to. It runs in a thread
of its own and knows nothing of the protocol but the header that names a method.
"""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

NOBODY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass
class Passage:
    """One request on its way through: which instance got it, and what it said. `number` counts the calls from 1."""

    number: int
    request: dict[str, Any]
    instance: int = -1
    reply: bytes = b""

    @property
    def result(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.reply.partition(b"\r\n\r\n")[2])
        result: dict[str, Any] = message["result"]
        return result

    @property
    def is_state_only(self) -> bool:
        """Whether the reply asks nothing and only wants to be called again, written as every client takes it."""
        return (self.result["resultType"], self.result.get("inputRequests")) == ("input_required", {})


@dataclass
class Balancer:
    """`before` is called before each `tools/call` is passed on, and `after` when its reply has come from the instance.

    The replies in `lost` never reach the client.
    """

    ports: Sequence[int]
    port: int = 0
    turn: int = 0
    calls: list[Passage] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    before: Callable[[Passage], None] | None = None
    after: Callable[[Passage], None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def route(self) -> list[int]:
        """Which instances served the calls."""
        return [call.instance for call in self.calls]

    def begin(self, turn: int = 0) -> None:
        """Forget what was, and let this instance be the next."""
        self.turn, self.calls, self.lost, self.before, self.after = turn, [], set(), None, None

    @contextmanager
    def running(self) -> Iterator["Balancer"]:
        ready, loops = threading.Event(), []

        async def main() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            loops.append((asyncio.get_running_loop(), over := asyncio.Event()))
            ready.set()
            await over.wait()
            server.close()

        thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop, over = loops[0]
            loop.call_soon_threadsafe(over.set)
            thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
            body = await reader.readexactly(int(length[1]) if length else 0)
            head = re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head)[:-2] + b"Connection: close\r\n\r\n"
            passing = asyncio.ensure_future(self._pass_on(head, body, writer))
            gone = asyncio.ensure_future(reader.read())
            # Whoever hangs up has cancelled, and the instance hears of it.
            await asyncio.wait({passing, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            if not passing.done():
                passing.cancel()
            await passing
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # One of the two has gone.
        finally:
            writer.close()

    async def _pass_on(self, head: bytes, body: bytes, client: asyncio.StreamWriter) -> None:
        passage = None
        if re.search(rb"(?i)\r\nmcp-method: *tools/call\r\n", head):
            passage = Passage(len(self.calls) + 1, json.loads(body))
            self.calls.append(passage)
            if self.before is not None:
                await asyncio.to_thread(self.before, passage)
        found = await self._next()
        if found is None:
            client.write(NOBODY)
            return
        instance, reader, writer = found
        try:
            writer.write(head + body)
            reply = await reader.read()
        finally:
            writer.close()
        if passage is not None:
            passage.instance, passage.reply = instance, reply
            if self.after is not None:
                await asyncio.to_thread(self.after, passage)
        if passage is None or passage.number not in self.lost:
            client.write(reply)
            await client.drain()

    async def _next(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.ports:
            instance, self.turn = self.turn, (self.turn + 1) % len(self.ports)
            with suppress(OSError):
                return (instance, *await asyncio.open_connection("127.0.0.1", self.ports[instance]))
        return None
