"""Processes that have served nothing, each with a hash seed of its own, and that fork one child for every leg.

A leg's process is such a child: it has imported what its server needs, so that it is there in milliseconds, but neither
it nor the process that it comes from has ever served a request. Only its hash seed is shared with the other children of
that process; legs that follow each other come from different ones.
"""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import turnwise

ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join([str(Path(turnwise.__file__).parents[1]), str(ROOT)])
PATIENCE = 120.0
SEEDS = (1, 2, 3)


def fork_for_each(address: str, serve: "Callable[[Connection[Any, Any]], None]") -> None:
    """Serve every connection in a child of its own, for ever."""
    gc.collect()
    gc.freeze()  # What is there stays as it is, and its memory need not be copied.
    with Listener(address, "AF_UNIX", backlog=64) as listener:
        while True:
            connection = listener.accept()
            _bury()
            if os.fork() == 0:
                _live(connection, serve)
            connection.close()


def _bury() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _live(connection: "Connection[Any, Any]", serve: "Callable[[Connection[Any, Any]], None]") -> None:
    """Serve one connection, and be gone: nothing is tidied up, as in a crash."""
    signal.alarm(int(PATIENCE))
    try:
        serve(connection)
        connection.close()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


class Zygotes:
    """A process for every seed. `connect` begins a leg: whoever counts its turns gets another seed every time."""

    def __init__(self, processes: "Sequence[subprocess.Popen[bytes]]", addresses: Sequence[str], log: Path) -> None:
        self._processes = processes
        self._log = log
        self.addresses = addresses

    def connect(self, turn: int) -> "Connection[Any, Any]":
        which = turn % len(self.addresses)
        ends = time.monotonic() + PATIENCE
        while True:
            try:
                return Client(self.addresses[which], "AF_UNIX")
            except (FileNotFoundError, ConnectionRefusedError):
                assert self._processes[which].poll() is None, self.said()
                assert time.monotonic() < ends, self.said()
                time.sleep(0.02)

    def said(self) -> str:
        """What they and their children wrote, for the message of a failure."""
        return self._log.read_text(errors="replace")


@contextmanager
def zygotes(module: str, *arguments: str, **more: str) -> Iterator[Zygotes]:
    """`python -m module ADDRESS *arguments`, once for every seed."""
    with TemporaryDirectory() as folder:
        addresses = [f"{folder}/{seed}" for seed in SEEDS]
        log = Path(folder) / "log"
        with log.open("ab") as output:
            processes = [
                subprocess.Popen(
                    [sys.executable, "-m", module, address, *arguments],
                    cwd=ROOT,
                    env={**os.environ, **more, "PYTHONPATH": PYTHONPATH, "PYTHONHASHSEED": str(seed)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
                for address, seed in zip(addresses, SEEDS, strict=True)
            ]
            try:
                yield Zygotes(processes, addresses, log)
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
