"""Standard streams: one JSON message a line, many requests on one channel.

While the server runs, the process's real streams belong to the protocol: `print` and child processes write to standard
error instead, and find standard input empty.
"""

import asyncio
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, BinaryIO

from .._calling import Crew
from .._messages import Emit, Line, Post, Reply
from ..errors import MalformedMessage
from . import Answerer

BACKLOG = 64
GRACE = 5.0
_TOO_LONG = b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"The line is too long"}}'


async def serve_stdio(wire: Answerer, *, max_message: int, on_end: Callable[[], None]) -> None:
    """Serve until standard input ends; what is under way then may finish within a few seconds."""
    source, output = _take_over()
    try:
        await _Channel(wire, output).run(source, max_message, on_end)
    finally:
        _give_back(source, output)


def _take_over() -> tuple[BinaryIO, io.FileIO]:
    """The real streams for the protocol alone; to everybody else input is empty and output goes to standard error.

    The output has no buffer, for whose lock a thread that writes would let nobody close it.
    """
    sys.stdout.flush()
    source, output = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, output


def _give_back(source: BinaryIO, output: io.FileIO) -> None:
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        os.dup2(source.fileno(), 0)
        os.dup2(output.fileno(), 1)
        output.close()


class _Channel:
    def __init__(self, wire: Answerer, output: io.FileIO) -> None:
        self._wire = wire
        self._output = output
        self._writer = Crew(1)  # In turn; and a client that does not read holds up its thread, not the end.
        self._tasks: set[asyncio.Task[None]] = set()
        self._serving: dict[str | int, _Tracker] = {}
        self._line = Line(self.emit)

    async def run(self, source: BinaryIO, max_message: int, on_end: Callable[[], None]) -> None:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue(BACKLOG)
        loop = asyncio.get_running_loop()
        reader = threading.Thread(target=_read, args=(source, max_message, lines, loop), daemon=True)
        reader.start()
        while (line := await lines.get()) is not None:
            if len(line.rstrip(b"\r\n")) > max_message:
                await self.emit(_TOO_LONG)
            elif line.strip():
                task = asyncio.create_task(self._serve(line))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        on_end()
        if self._line.session is not None:
            self._line.session.close()  # What it asked cannot be answered any more.
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.wait([self._turn(lambda: None)], timeout=GRACE)  # A line that is being written stays whole.
        self._writer.dismiss()

    async def _serve(self, line: bytes) -> None:
        tracker = _Tracker(self._serving)
        try:
            post = Post(line, tracker.guarded(self.emit), time.time(), tracker=tracker, line=self._line)
            reply: Reply = await self._wire.answer(post)
        finally:
            tracker.end()
        if reply.body is not None and not tracker.is_cancelled:
            await self.emit(reply.body)

    async def emit(self, message: bytes) -> None:
        """Write one line. A client that no longer reads has gone, and its input will end too."""
        await self._turn(partial(self._write, message))

    def _turn(self, work: Callable[[], None]) -> "asyncio.Future[None]":
        return asyncio.wrap_future(self._writer.put(work))

    def _write(self, message: bytes) -> None:
        left = memoryview(message + b"\n")
        with suppress(BrokenPipeError):
            while left:
                written = self._output.write(left)
                if written is None:
                    raise BlockingIOError("standard output is set to take no more than fits at once")
                left = left[written:]


class _Tracker:
    """One line's view of the requests under way. "Servers MUST NOT send any further messages for" a cancelled one."""

    def __init__(self, serving: "dict[str | int, _Tracker]") -> None:
        self._serving = serving
        self._mine: str | int | None = None
        self._task: asyncio.Task[Any] | None = None
        self.is_cancelled = False

    def guarded(self, emit: Emit) -> Emit:
        """The same, as long as nobody has cancelled."""

        async def emit_unless_cancelled(message: bytes) -> None:
            if not self.is_cancelled:
                await emit(message)

        return emit_unless_cancelled

    def begin(self, request_id: str | int) -> None:
        if request_id in self._serving:
            raise MalformedMessage("Invalid request: a request with this id is still under way")
        self._serving[request_id] = self
        self._mine, self._task = request_id, asyncio.current_task()

    def cancel(self, request_id: str | int) -> None:
        other = self._serving.get(request_id)
        if other is not None and other._task is not None:
            other.is_cancelled = True
            other._task.cancel()

    def end(self) -> None:
        if self._mine is not None:
            self._serving.pop(self._mine, None)


def _read(
    source: BinaryIO, max_message: int, lines: "asyncio.Queue[bytes | None]", loop: asyncio.AbstractEventLoop
) -> None:
    """Move lines from a blocking stream to the loop. A line beyond the limit is passed on cut, and the rest skipped."""
    line: bytes | None = b""
    while line is not None:
        line = source.readline(max_message + 2) or None
        rest = line
        while rest and len(line or b"") > max_message and not rest.endswith(b"\n"):
            rest = source.readline(max_message)
        try:
            asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
        except RuntimeError:  # The loop has closed: nobody listens any more.
            return
