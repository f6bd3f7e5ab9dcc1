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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._json import decode
from .._messages import Incoming, Notified, Outgoing
from ..errors import ConnectionLost, InvalidReply

LONGEST_LINE = 64 * 1024 * 1024
GRACE = 2.0
_INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV")
_INHERITED_WINDOWS = ("APPDATA", "COMSPEC", "LOCALAPPDATA", "PATH", "PATHEXT", "SYSTEMROOT", "TEMP", "USERPROFILE")

log = logging.getLogger("turnwise.client")


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a server. It gets `env` beside the few variables that every program needs, not all of ours."""

    args: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: str | Path | None = None

    def __post_init__(self) -> None:
        if isinstance(self.args, str) or not self.args or not all(isinstance(part, str) for part in self.args):
            raise ValueError('a command is a list of texts, such as ["python", "server.py"]')


class Process:
    """A channel to a server that this process starts. `owner` tells whose a message is, `cancellation` writes what ends
    a request.
    """

    def __init__(
        self, command: Command, owner: Callable[[Any], Any], cancellation: Callable[[str | int, str], bytes]
    ) -> None:
        self._command = command
        self._owner = owner
        self._cancellation = cancellation
        self._waiting: dict[Any, asyncio.Queue[Any]] = {}
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()

    async def open(self) -> None:
        """Start the child."""
        await self._started()

    async def aclose(self) -> None:
        """Close its input, wait, and use force only where that is not enough."""
        if self._child is not None:
            await self._end(self._child)
            _signal(self._child, signal.SIGTERM)  # What the child started and left behind.
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """Write a line, and wait for the line that answers it."""
        child = await self._started()
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._waiting[request.id] = queue
        try:
            await _write(child, request.body)
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
            with contextlib.suppress(ConnectionLost):
                await _write(child, self._cancellation(request.id, "the client no longer waits"))
            raise
        finally:
            del self._waiting[request.id]

    async def _started(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._child is not None and self._child.returncode is None and self._reader and not self._reader.done():
                return self._child
            if self._child is not None:
                await self._end(self._child)
            try:
                self._child = await asyncio.create_subprocess_exec(
                    *self._command.args,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    env={**_environment(), **(self._command.env or {})},
                    cwd=self._command.cwd,
                    limit=LONGEST_LINE,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise ConnectionLost(f"the server cannot be started: {error}", sent=False) from error
            self._reader = asyncio.create_task(self._read(self._child))
            return self._child

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        """Hand every line to the exchange that waits for it, until the child's output ends."""
        assert child.stdout is not None
        fault: Exception | None = None
        try:
            while line := await child.stdout.readline():
                self._sort(line)
        except ValueError:
            fault = InvalidReply(f"the server wrote a line of more than {LONGEST_LINE} bytes")
            _signal(child, signal.SIGKILL)
        if fault is None:
            fault = ConnectionLost("the server process ended before it replied", sent=True)
        for queue in self._waiting.values():
            queue.put_nowait(fault)

    def _sort(self, line: bytes) -> None:
        raw = line.strip()
        if not raw:
            return
        try:
            message = decode(raw)
        except ValueError:
            log.warning("the server wrote a line that is no message: %.200r", raw)
            return
        request_id = self._owner(message)
        queue = self._waiting.get(request_id) if isinstance(request_id, int | str) else None
        if queue is None and self._waiting and isinstance(message, dict) and "method" in message:
            queue = next(reversed(self._waiting.values()))  # A log line says not whose it is.
        if queue is None:
            log.debug("a message came for no request that is under way: %.200r", raw)
        else:
            queue.put_nowait((message, raw))

    async def _end(self, child: asyncio.subprocess.Process) -> None:
        if child.stdin is not None:
            child.stdin.close()
        for force in (None, signal.SIGTERM, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM):
            if force is not None:
                _signal(child, force)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await child.wait()
                    return


async def _write(child: asyncio.subprocess.Process, body: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(body + b"\n")
        await child.stdin.drain()
    except (OSError, RuntimeError) as error:
        raise ConnectionLost(f"the server process takes no more input: {error}", sent=True) from error


def _signal(child: asyncio.subprocess.Process, number: int) -> None:
    """Signal the child and what it started."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "win32":
            child.terminate()
        else:
            os.killpg(child.pid, number)


def _environment() -> dict[str, str]:
    names = _INHERITED_WINDOWS if sys.platform == "win32" else _INHERITED
    return {name: os.environ[name] for name in names if name in os.environ}
