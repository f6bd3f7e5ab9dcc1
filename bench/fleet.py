"""Server processes: started on one core, waited for, always ended.

Knows how to start a module with a port and tell when it answers, not which servers are compared.
"""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import on_core
from bench.wire import Phrasebook, WrongReply, reply_body

ROOT = Path(__file__).parent.parent
PATIENCE = 30.0
POLL = 0.001


class NotServing(Exception):
    """A server process ended, or stayed silent, before its first reply."""


@dataclass(frozen=True, slots=True)
class Spec:
    """A row of the benchmark: a server or client module, its arguments, its loads (all, if none are named).

    `python` is the interpreter, of another environment where the row needs one. `program` is what is run instead of a
    Python module.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    loads: tuple[str, ...] = ()
    python: str = sys.executable
    program: tuple[str, ...] = ()

    def command(self, port: int) -> list[str]:
        """What starts it as a server."""
        program = self.program or (self.python, "-m", f"bench.servers.{self.module}")
        return [*program, str(port), *self.arguments]


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that has answered its first call."""

    spec: Spec
    process: subprocess.Popen[bytes]
    port: int
    cold_start: float

    def stop(self) -> None:
        stop(self.process)


def start(spec: Spec, core: int) -> Server:
    """Start a server on a core and wait for its first correct reply."""
    port = free_port()
    began = time.perf_counter()
    with on_core(core):
        process = subprocess.Popen(spec.command(port), cwd=ROOT, stdout=subprocess.DEVNULL, env=_environment())
    try:
        _await_first_reply(process, port, began + PATIENCE)
    except BaseException:
        stop(process)
        raise
    return Server(spec, process, port, time.perf_counter() - began)


def stop(process: subprocess.Popen[Any]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    """The environment, without the variable that would make each cold start compile its modules anew."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _await_first_reply(process: subprocess.Popen[bytes], port: int, deadline: float) -> None:
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            raise NotServing(f"exited with {process.returncode}")
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        except ConnectionRefusedError:
            time.sleep(POLL)
            continue
        with connection:
            _call_once(connection, port)
        return
    raise NotServing("no reply in time")


def _call_once(connection: socket.socket, port: int) -> None:
    talk = next(Phrasebook(port).plain_calls())
    body = exchange(connection, next(talk))
    try:
        talk.send(body)
    except StopIteration:
        return


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """Send a request and wait for the body of its reply."""
    connection.sendall(request)
    data, body = b"", None
    while body is None:
        received = connection.recv(65536)
        if not received:
            raise WrongReply(f"closed after {data!r}")
        data += received
        body = reply_body(data)
    return body
