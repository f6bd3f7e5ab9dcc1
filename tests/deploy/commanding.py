"""`turnwise serve` as a process of its own: what it says, who its workers are, and rounds at its port."""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import turnwise

T = TypeVar("T")
COMMAND = "from turnwise.cli import main; main()"
PYTHONPATH = str(Path(turnwise.__file__).parents[1])
PATIENCE = 30.0
LOOK = 0.02
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
KEYS = ["the-first-key-as-long-as-a-key-has-to-be", "the-second-key-as-long-as-a-key-has-to-be"]

SHOP = r"""
import asyncio, os
from contextlib import asynccontextmanager
from pathlib import Path
from turnwise import Context, MCPServer

PLACE = Path(os.environ["PLACE"])

@asynccontextmanager
async def lifespan(server):
    if (PLACE / "no database").exists():
        raise RuntimeError("no database")
    yield

server = MCPServer("shop", lifespan=lifespan)

@server.tool()
async def who() -> int:
    return os.getpid()

@server.tool()
async def order(item: str, ctx: Context) -> str:
    size = await ctx.elicit("Which size?", str, key="size")
    colour = await ctx.elicit("Which colour?", str, key="colour")
    return f"{item}, {size.data}, {colour.data}"

@server.tool()
async def wait(name: str) -> str:
    (PLACE / f"{name} began").write_text(str(os.getpid()))
    try:
        while not (PLACE / f"{name} may end").exists():
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        (PLACE / f"{name} was cancelled").touch()
        raise
    return name
"""


def until(condition: Callable[[], T]) -> T:
    """Wait for something that another process does; what it gave."""
    ends = time.monotonic() + PATIENCE
    while not (seen := condition()):
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(LOOK)
    return seen


class Answered(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def result(self) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.body)["result"]
        return result

    @property
    def text(self) -> str:
        return str(self.result["content"][0]["text"])

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"]["message"])


def headers_of(tool: str, **more: str) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
        **more,
    }


def written(tool: str, arguments: Mapping[str, Any] | None = None, **members: Any) -> bytes:
    params = {"name": tool, "arguments": arguments or {}, "_meta": META, **members}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def accept(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


def answering(asked: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """The members of a retry that gives this to all that was asked."""
    answers = {key: accept(value) for key in asked["inputRequests"]}
    return {"requestState": asked["requestState"], "inputResponses": answers}


class Door(NamedTuple):
    """Where requests are sent, each over a connection of its own; `named` is whom they say they look for."""

    port: int
    tls: ssl.SSLContext | None = None
    named: str = "localhost"

    def get(self, path: str) -> Answered:
        return self.exchange("GET", path, b"", {})

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> Answered:
        body = written(tool, arguments, **members)
        return self.exchange("POST", "/mcp", body, {**headers_of(tool), **(headers or {})})

    def begin(self, tool: str, arguments: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> socket.socket:
        """A call whose reply nobody waits for yet."""
        body = written(tool, arguments)
        lines = {"Host": self.named, "Content-Length": str(len(body)), **headers_of(tool), **(headers or {})}
        head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "", ""])
        connection = self.connect()
        connection.sendall(head.encode() + body)
        return connection

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        return connection if self.tls is None else self.tls.wrap_socket(connection, server_hostname=self.named)

    def order(self, item: str, between: Callable[[], Any] = lambda: None) -> str:
        """Three rounds; something may happen between them."""
        asked = self.call("order", {"item": item}).result
        between()
        asked = self.call("order", {"item": item}, **answering(asked, "small")).result
        between()
        return self.call("order", {"item": item}, **answering(asked, "blue")).text

    def who(self) -> set[str]:
        """The processes that get some calls which are made at once."""
        with ExitStack() as stack:
            connections = [stack.enter_context(self.begin("who", {})) for _ in range(4)]
            return {reply_on(connection).text for connection in connections}

    def is_ready(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.get("/readyz").status == 200
        return False

    def exchange(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Answered:
        connection = http.client.HTTPConnection(self.named, self.port, timeout=PATIENCE)
        connection.sock = self.connect()
        try:
            connection.request(method, path, body, {"Host": self.named, **headers})
            return answer_of(connection.getresponse())
        finally:
            connection.close()


def answer_of(response: http.client.HTTPResponse) -> Answered:
    return Answered(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def reply_on(connection: socket.socket) -> Answered:
    """The reply to a call that was begun."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return answer_of(response)


class Heard:
    """The lines of a stream, as they come."""

    def __init__(self, stream: Any) -> None:
        self.lines: list[str] = []
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._stream:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    def until(self, pattern: str) -> re.Match[str]:
        found = until(lambda: self._found(pattern) or not self._thread.is_alive()) and self._found(pattern)
        assert found, f"nobody says {pattern}: {self.lines}"
        return found

    def _found(self, pattern: str) -> re.Match[str] | None:
        return next((found for line in [*self.lines] if (found := re.search(pattern, line))), None)

    def close(self) -> None:
        self._thread.join(PATIENCE)
        self._stream.close()


class Served:
    """The command, running. `out` has the lines of requests, `log` all else."""

    def __init__(self, place: Path, arguments: Sequence[str], env: Mapping[str, str], before: str = "") -> None:
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PLACE": str(place), **env}
        pipe = subprocess.PIPE
        self.place = place
        command = [sys.executable, "-c", f"{before}\n{COMMAND}", "serve", *arguments]
        self.process = subprocess.Popen(command, cwd=place, env=environment, stdout=pipe, stderr=pipe)
        self.out, self.log = Heard(self.process.stdout), Heard(self.process.stderr)

    @property
    def door(self) -> Door:
        return Door(int(self.log.until(r"is served at http://[^ ]*:(\d+)")[1]))

    def ready(self, workers: int = 1) -> Door:
        """Where it is served, once so many workers have been seen there."""
        door = self.door
        until(door.is_ready)
        pids: set[str] = set()
        while workers > 1 and len(pids) < workers:
            pids |= door.who()
        return door

    def workers(self) -> list[int]:
        """The processes that it has started."""
        return children(self.process.pid)

    def files(self) -> int:
        """How many files, pipes and sockets it has open; 0 where that cannot be seen."""
        opened = Path(f"/proc/{self.process.pid}/fd")
        return len(list(opened.iterdir())) if opened.exists() else 0

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        code = self.process.wait(PATIENCE)
        for heard in (self.out, self.log):
            heard.close()
        return code

    def began(self, name: str) -> int:
        """The process in which a call of `wait` is under way."""
        path = self.place / f"{name} began"
        return int(until(lambda: path.exists() and path.read_text()))

    def let_end(self, name: str) -> None:
        (self.place / f"{name} may end").touch()

    def close(self) -> None:
        if self.process.poll() is None:
            workers = self.workers()
            self.process.kill()
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.ended()


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if listed.exists():
        return sorted(map(int, listed.read_text().split()))
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return sorted(map(int, found.stdout.split()))


@contextmanager
def serving(place: Path, *arguments: str, program: str = SHOP, before: str = "", **env: str) -> Iterator[Served]:
    """The command, on a port that it chooses, for a program that lies in `place`; `before` changes the command."""
    (place / "shop.py").write_text(program)
    served = Served(place, ["shop:server", "--port", "0", *arguments], env, before)
    try:
        yield served
    finally:
        served.close()


def refused(place: Path, *arguments: str, program: str = SHOP, before: str = "", **env: str) -> tuple[int, str]:
    """A command that does not come up: its exit code, and what it says."""
    (place / "shop.py").write_text(program)
    served = Served(place, arguments, env, before)
    try:
        code = served.process.wait(PATIENCE)
    finally:
        served.close()
    return code, "\n".join(served.log.lines)


def keys_file(place: Path, *keys: str) -> Path:
    """A file of keys that nobody else may read, in the place of one that may be there."""
    path, new = place / "keys", place / "keys.new"
    new.write_text("".join(f"{key}\n" for key in keys))
    new.chmod(0o600)
    new.replace(path)
    return path
