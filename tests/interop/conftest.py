"""The server under test, as a process of its own: one for the whole run over HTTP, one for each client over stdio."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import turnwise

SERVER = str(Path(__file__).with_name("server.py"))
PYTHONPATH = str(Path(turnwise.__file__).parents[1])
ATTEMPTS = 500


@pytest.fixture(scope="session")
def stdio_command() -> list[str]:
    """What a client runs to get a server on its own standard streams."""
    return [sys.executable, SERVER, "stdio"]


@pytest.fixture(scope="session")
def stdio_environment() -> dict[str, str]:
    return {"PYTHONPATH": PYTHONPATH}


@pytest.fixture(scope="session")
def http_url() -> Iterator[str]:
    """The address of a server that runs as long as the tests do."""
    with _serving() as (url, _):
        yield url


@pytest.fixture
def own_http_server() -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The address and the process of a server that a test may stop."""
    with _serving() as served:
        yield served


@contextmanager
def _serving() -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    port = _free_port()
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen([sys.executable, SERVER, "http", str(port)], env=environment) as process:
        try:
            _await_listener(process, port)
            yield f"http://127.0.0.1:{port}/mcp", process
        finally:
            process.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _await_listener(process: "subprocess.Popen[bytes]", port: int) -> None:
    for _ in range(ATTEMPTS):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            try:
                process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                continue
            pytest.fail(f"the server ended with status {process.returncode} before it listened")
        else:
            return
    pytest.fail("the server does not listen")
