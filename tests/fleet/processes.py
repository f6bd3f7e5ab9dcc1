"""Instances of a server as processes of their own, which are killed and started again; and the people who call them."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import mcp.client
from mcp_types import CallToolResult, ElicitResult, TextContent

import turnwise
from tests.fleet.balancer import Balancer
from tests.ports import free_port

T = TypeVar("T")
EXAMPLES = Path(__file__).parents[2] / "examples"
PYTHONPATH = str(Path(turnwise.__file__).parents[1])
KEY = "a key that all instances of this fleet share"
PATIENCE = 30.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}

AnyClient: TypeAlias = type[turnwise.Client] | type[mcp.client.Client]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": PYTHONPATH, **more}


class Instance:
    """One server on a port that it keeps when it is started again."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path | None = None) -> None:
        self.port = free_port()
        self.log = log
        self._stderr = log.open("ab")
        self._options: dict[str, Any] = {"env": env, "cwd": cwd, "stdout": subprocess.DEVNULL, "stderr": self._stderr}
        self._command = [sys.executable, *command, str(self.port)]
        self.process = subprocess.Popen(self._command, **self._options)

    @property
    def pid(self) -> int:
        return self.process.pid

    def await_listener(self) -> "Instance":
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE).close()
                return self
            except ConnectionRefusedError:
                try:
                    self.process.wait(timeout=0.02)
                except subprocess.TimeoutExpired:
                    continue
                raise AssertionError(f"the server ended before it listened: {self.log.read_text()}") from None

    def kill(self) -> None:
        """End it as a crash does: SIGKILL, with nothing said to anybody."""
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """Start it again, in a new process."""
        if self.process.poll() is not None:
            self.process = subprocess.Popen(self._command, **self._options)

    def close(self) -> None:
        self.kill()
        self._stderr.close()


@dataclass
class Fleet:
    """Instances behind a balancer, and the file in which their effects are."""

    instances: list[Instance]
    balancer: Balancer
    effects_log: Path
    expected: set[str] = field(default_factory=set)
    """The errors that a test provokes; any other that an instance logs fails the tests."""

    @property
    def url(self) -> str:
        return self.balancer.url

    def effects(self, about: object) -> list[str]:
        """What was done for this one, in the order in which it was done; `who` tells by which process."""
        return [effect for _, effect in self._lines(about)]

    def who(self, about: object) -> list[int]:
        return [pid for pid, _ in self._lines(about)]

    def _lines(self, about: object) -> list[tuple[int, str]]:
        lines = self.effects_log.read_text().splitlines() if self.effects_log.exists() else []
        parts = [line.split() for line in lines]
        return [(int(pid), effect) for pid, effect, subject in parts if subject == str(about)]

    def heal(self) -> None:
        """Have every instance running."""
        for instance in self.instances:
            instance.start()
        for instance in self.instances:
            instance.await_listener()


@contextmanager
def fleet_of(instances: Sequence[Instance], effects_log: Path) -> Iterator[Fleet]:
    with ExitStack() as stack:
        for instance in instances:
            stack.callback(instance.close)
        for instance in instances:
            instance.await_listener()
        balancer = stack.enter_context(Balancer([instance.port for instance in instances]).running())
        fleet = Fleet(list(instances), balancer, effects_log)
        yield fleet
    for instance in instances:
        log = instance.log.read_text()
        assert set(re.findall(r"^turnwise\.errors\.(\w+)", log, re.MULTILINE)) <= fleet.expected, log
        assert log.count("Traceback") == len(re.findall(r"^turnwise\.errors\.", log, re.MULTILINE)), log


@dataclass
class Person:
    """Whoever sits at a client: answers by a word of the question, and remembers what was asked."""

    answers: Mapping[str, Any]
    asked: list[str] = field(default_factory=list)

    async def elicit(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        [answer] = [answer for word, answer in self.answers.items() if word in params.message]
        return ElicitResult(action="accept", content={"value": answer})


async def call(client: AnyClient, url: str, person: Person, tool: str, arguments: dict[str, Any]) -> CallToolResult:
    """One call from beginning to end."""
    async with client(url, elicitation_callback=person.elicit) as connected:
        return await connected.call_tool(tool, arguments)


def in_time(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def text_of(result: CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


def accept(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


def post(port: int, tool: str, arguments: dict[str, Any], **members: Any) -> dict[str, Any]:
    """One round at one instance, without a client and without a balancer: the raw result."""
    params = {"name": tool, "arguments": arguments, "_meta": META, **members}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", json.dumps(message).encode(), headers(tool))
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        result: dict[str, Any] = json.load(response)["result"]
        return result


def headers(tool: str) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)
