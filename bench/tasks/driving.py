"""Clients of tasks, many at once: they begin tasks, answer them, and wait for their ends, by requests of SEP-2663.

Every server gets the same bytes. Who waits looks at one task at a time, ten times a second and not by every connection,
so that what is measured is tasks and not looks at them.
"""

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, cast

from bench.wire import FIRST_ID, META, VERSION, WrongReply, reply_body

CONNECTIONS = 64
LOOK_SECONDS = 0.1
PATIENCE = 120.0
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
TASK_META = {**META, CAPABILITIES: {"elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}}}}


@dataclass(frozen=True, slots=True)
class Begun:
    """A task, and the number that its arguments and its result are made of."""

    id: str
    number: int


class Line(asyncio.Protocol):
    """One keep-alive connection, with one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ids = count(FIRST_ID)
        self._transport: asyncio.Transport
        self._pending = b""
        self._reply: asyncio.Future[bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        try:
            body = reply_body(self._pending)
        except WrongReply as wrong:
            self._reply.set_exception(wrong)
            return
        if body is not None:
            self._pending = b""
            self._reply.set_result(body)

    def connection_lost(self, exc: Exception | None) -> None:
        if hasattr(self, "_reply") and not self._reply.done():
            self._reply.set_exception(WrongReply(f"connection lost: {exc}"))

    def close(self) -> None:
        self._transport.close()

    async def post(self, method: str, name: str, params: dict[str, Any]) -> bytes:
        """The body of the reply, which has to be a 200."""
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**params, "_meta": TASK_META}}
        body = json.dumps(message, separators=(",", ":")).encode()
        lines = (
            "POST /mcp HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"MCP-Protocol-Version: {VERSION}",
            f"Mcp-Method: {method}",
            f"Mcp-Name: {name}",
            f"Content-Length: {len(body)}\r\n\r\n",
        )
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write("\r\n".join(lines).encode() + body)
        return await self._reply

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """The result of a call."""
        return json.loads(await self.post("tools/call", tool, {"name": tool, "arguments": arguments}))["result"]


@asynccontextmanager
async def lines_to(port: int, connections: int = CONNECTIONS) -> AsyncIterator[list[Line]]:
    """Connections to a server, for a while."""
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(lambda: Line(port), "127.0.0.1", port) for _ in range(connections)]
    lines = [line for _, line in pairs]
    try:
        yield lines
    finally:
        for line in lines:
            line.close()


async def begin(lines: list[Line], tool: str, numbers: Iterator[int]) -> list[Begun]:
    """Begin a task for each number, by all connections at once."""
    begun: list[Begun] = []

    async def work(line: Line) -> None:
        for number in numbers:
            result = await line.call(tool, {"city": city(number)})
            if result.get("resultType") != "task":
                raise WrongReply(f"not a task: {result!r}")
            begun.append(Begun(result["taskId"], number))

    await _all(work, lines)
    return begun


async def answer(lines: list[Line], tasks: list[Begun]) -> None:
    """Answer the question of each task, by all connections at once."""
    left = iter(tasks)

    async def work(line: Line) -> None:
        for task in left:
            answers = {"visitor": {"action": "accept", "content": {"name": visitor(task.number)}}}
            reply = await line.post("tasks/update", task.id, {"taskId": task.id, "inputResponses": answers})
            if b'"error"' in reply:
                raise WrongReply(f"an answer was refused: {reply!r}")

    await _all(work, lines)


async def await_all(lines: list[Line], tasks: list[Begun], status: str, text: str) -> None:
    """Wait until each task has this status; it has to show its text then, made of its number."""
    left, turn = deque(tasks), asyncio.Lock()
    deadline = time.monotonic() + PATIENCE

    async def work(line: Line) -> None:
        while left:
            task = left.popleft()
            if turn.locked() or not await _is_at(line, task, status, text):
                async with turn:  # One waits for the first that is not there yet, the others for that one.
                    while not await _is_at(line, task, status, text):
                        if time.monotonic() > deadline:
                            raise WrongReply(f"{task} does not get to {status}")
                        await asyncio.sleep(LOOK_SECONDS)

    await _all(work, lines)


def city(number: int) -> str:
    return f"City{number}"


def visitor(number: int) -> str:
    return f"Visitor{number}"


async def _is_at(line: Line, task: Begun, status: str, text: str) -> bool:
    reply = await line.post("tasks/get", task.id, {"taskId": task.id})
    if b'"status":"%b"' % status.encode() in reply:
        expected = text.format(city=city(task.number), visitor=visitor(task.number))
        if f'"{expected}"'.encode() not in reply:
            raise WrongReply(f"expected {expected!r}, got {reply!r}")
        return True
    if b'"status":"working"' not in reply:
        raise WrongReply(f"expected {status}, got {reply!r}")
    return False


async def _all(work: Any, lines: list[Line]) -> None:
    async with asyncio.TaskGroup() as group:
        for line in lines:
            group.create_task(work(line))
