"""The client's side of stdio: the server is a child process, one message a line, all requests on one channel.

What the child writes to stderr is passed on. A child that ends is started again with the next request.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .._json import decode, decode_deep
from .._messages import Incoming, Notified, Outgoing
from ..dialects.words import TARGETS
from ..errors import ConnectionLost, InvalidReply

LONGEST_LINE = 64 * 1024 * 1024
GRACE = 2.0
LAST_WORDS = 0.25
"""Seconds in which what a dead child wrote is still read; something that it started may hold its output open."""
MOST_UNREAD = 10_000
"""So many messages may wait for the callbacks of one request; what a server then tells or asks, nobody hears."""
_LISTEN = "subscriptions/listen"
_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV")
_INHERITED_WINDOWS = ("APPDATA", "COMSPEC", "LOCALAPPDATA", "PATH", "PATHEXT", "SYSTEMROOT", "TEMP", "USERPROFILE")

log = logging.getLogger("turnwise.client")


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server. It gets `env` beside the few variables that every program needs, not all of ours."""

    args: Sequence[str]
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        if isinstance(self.args, str) or not self.args or not all(isinstance(part, str) for part in self.args):
            raise ValueError('a command is a list of texts, such as ["python", "server.py"]')


class Process:
    """A channel to a server that this process starts. `owner` tells whose a message is, `cancellation` writes what ends
    a request.
    """

    def __init__(
        self, command: Command, owner: Callable[[Any], Any], cancellation: Callable[[Outgoing, str], bytes | None]
    ) -> None:
        self.unasked: Callable[[Any], None] | None = None
        self.cancels = True
        self.program = command.args[0]
        self._command = command
        self._number = self._passed_over = 0
        self._owner = owner
        self._cancellation = cancellation
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._is_open = False

    async def open(self) -> None:
        """Start the child."""
        self._is_open = True
        await self._started()

    async def aclose(self) -> None:
        """Close its input, wait, and use force only where that is not enough."""
        self._is_open = False
        async with self._starting:
            await self._end()

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """Write a line, and wait for the line that answers it."""
        child = await self._started()
        queue: asyncio.Queue[Any] = asyncio.Queue()
        child.waiting[request.id] = (request.method, queue)
        try:
            await _write(child.input, request.body)
            while True:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                message, raw = item
                if isinstance(message, dict) and "method" in message:
                    await notified(message)
                else:
                    return Incoming(200, message, raw)
        except asyncio.CancelledError:
            # It is not waited for: a child that does not read would hold up who no longer waits.
            if (word := self._cancellation(request, "the client no longer waits")) is not None:
                with contextlib.suppress(RuntimeError):  # So uvloop says that the input is closed.
                    child.input.write(word + b"\n")
            raise
        finally:
            child.waiting.pop(request.id, None)

    async def ready(self) -> int:
        """The number of the child; it is started where there is none."""
        return (await self._started()).number

    async def tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Write a line to the child that is there; another one would not know what it is about."""
        child = self._child
        if child is None or child.exited.is_set():
            raise ConnectionLost("the server process is no longer there", sent=False)
        await _write(child.input, body)

    async def watch(self, headers: Mapping[str, str], notified: Notified, opened: Callable[[], None]) -> None:
        """Wait for the end of the child: what it says comes on the one channel anyway."""
        child = await self._started()
        opened()
        await child.exited.wait()
        raise ConnectionLost("the server process has ended", sent=True)

    async def leave(self, headers: Mapping[str, str]) -> None:
        """The end of the child's input says it."""

    async def _started(self) -> "_Child":
        async with self._starting:
            if not self._is_open:
                raise ConnectionLost("this client was left", sent=False)
            if self._child is not None and not self._child.exited.is_set() and not self._child.reader.done():
                return self._child
            await self._end()
            try:
                self._child = await self._start()
            except (OSError, ValueError) as error:
                raise ConnectionLost(f"the server cannot be started: {error}", sent=False) from error
            return self._child

    async def _start(self) -> "_Child":
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            _Protocol,
            *self._command.args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=None,
            env={**_environment(), **(self._command.env or {})},
            cwd=self._command.cwd,
            start_new_session=True,
        )
        process = asyncio.subprocess.Process(transport, protocol, loop)
        assert process.stdin is not None
        waiting: _Waiting = {}
        reader = asyncio.create_task(self._read(process, waiting, protocol.exited))
        self._number += 1
        return _Child(process.pid, process.stdin, waiting, reader, protocol.exited, transport, self._number)

    async def _read(self, process: asyncio.subprocess.Process, waiting: "_Waiting", exited: asyncio.Event) -> None:
        """Hand every line to the exchange that waits for it, until the child's output ends, or the child."""
        fault: Exception = ConnectionLost(f"the server ({self.program}) ended before it replied", sent=True)
        lines, end = asyncio.create_task(self._lines(process, waiting)), asyncio.create_task(exited.wait())
        try:
            await asyncio.wait([lines, end], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([lines], timeout=LAST_WORDS)
            if lines.done():
                lines.result()
        except ValueError:
            fault = InvalidReply(f"the server wrote a line of more than {LONGEST_LINE} bytes")
            _signal(process.pid, signal.SIGKILL)
        finally:
            for task in (lines, end):
                task.cancel()
            for _, queue in waiting.values():
                queue.put_nowait(fault)

    async def _lines(self, process: asyncio.subprocess.Process, waiting: "_Waiting") -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self._sort(line, waiting)

    def _sort(self, line: bytes, waiting: "_Waiting") -> None:
        raw = line.strip()
        if not raw:
            return
        try:
            message = decode(raw)
        except ValueError as error:
            self._unread(raw, error, waiting)
            return
        for part in message if isinstance(message, list) else (message,):
            self._hand_over(part, raw, waiting)

    def _unread(self, raw: bytes, fault: ValueError, waiting: "_Waiting") -> None:
        """A reply that is only too deep is one all the same, and nobody has to wait for it any longer."""
        try:
            message = decode_deep(raw)
        except ValueError:
            message = None
        found = message.get("id") if isinstance(message, dict) and "method" not in message else None
        _, queue = waiting.pop(found, (None, None)) if isinstance(found, int | str) else (None, None)
        if queue is None:
            log.warning("the server wrote a line that is no message: %.200r", raw)
        else:
            queue.put_nowait(InvalidReply(f"the reply cannot be read: {fault}"))

    def _hand_over(self, message: Any, raw: bytes, waiting: "_Waiting") -> None:
        request_id = self._owner(message)
        queue = None
        if isinstance(request_id, int | str):
            # After its reply nothing belongs to a request any more.
            found = waiting.get if "method" in message else waiting.pop
            _, queue = found(request_id, (None, None))
        elif request_id is None and isinstance(message, dict):
            queue = _likely(message, waiting)
        if queue is not None and queue.qsize() >= MOST_UNREAD and "method" in message:
            self._flooded(message["method"])
        elif queue is not None:
            queue.put_nowait((message, raw))
        elif self.unasked is not None and isinstance(message, dict) and "method" in message:
            self.unasked(message)
        else:
            log.debug("a message came for no request that is under way: %.200r", raw)

    def _flooded(self, method: Any) -> None:
        self._passed_over += 1
        if self._passed_over % MOST_UNREAD == 1:
            log.warning(
                "the server tells more than the callbacks take: %d messages were passed over, the last of them %.50r",
                self._passed_over,
                method,
            )

    async def _end(self) -> None:
        """End the child, if there is one, and what it started and left behind."""
        child, self._child = self._child, None
        if child is None:
            return
        child.input.close()
        kill = signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM
        try:
            for force in (None, signal.SIGTERM, kill):
                if force is not None:
                    _signal(child.pid, force)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GRACE):
                        await child.exited.wait()
                        break
        finally:  # Who is cancelled meanwhile leaves no child behind: nobody else will come for it.
            _signal(child.pid, signal.SIGTERM if child.exited.is_set() else kill)
            child.reader.cancel()
            child.transport.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await child.exited.wait()
        await asyncio.wait([child.reader])


_Waiting = dict[Any, tuple[str, "asyncio.Queue[Any]"]]


class _Protocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Tells when the child ends, even if something that it started holds its output open."""

    def __init__(self) -> None:
        super().__init__(limit=LONGEST_LINE, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        """Called by the transport."""
        super().process_exited()
        self.exited.set()


class _Child(NamedTuple):
    """One child, and who waits for its words: by request id, the method and where to put them."""

    pid: int
    input: asyncio.StreamWriter
    waiting: _Waiting
    reader: "asyncio.Task[None]"
    exited: asyncio.Event
    transport: asyncio.SubprocessTransport
    number: int


def _likely(message: Mapping[str, Any], waiting: "_Waiting") -> "asyncio.Queue[Any] | None":
    """Whose a message may be that does not say so: a log line, a question, the error to a line that could not be read.
    Questions are asked by what may ask.
    """
    calls = [queue for method, queue in waiting.values() if method != _LISTEN]
    if "method" in message and "id" in message:
        calls = [queue for method, queue in waiting.values() if method in TARGETS] or calls
    return calls[-1] if calls and ("method" in message or len(calls) == 1) else None


async def _write(child: asyncio.StreamWriter, body: bytes) -> None:
    try:
        child.write(body + b"\n")
        await child.drain()
    except (OSError, RuntimeError) as error:
        raise ConnectionLost(f"the server process takes no more input: {error}", sent=True) from error


def _signal(pid: int, number: int) -> None:
    """Signal the child and what it started."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            os.kill(pid, signal.SIGTERM)
        else:
            os.killpg(pid, number)


def _environment() -> dict[str, str]:
    names = _INHERITED_WINDOWS if sys.platform == "win32" else _INHERITED
    return {name: os.environ[name] for name in names if name in os.environ}
