"""What the tests of the client share: a wire that is listened to, servers written by hand, and servers as processes."""

import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import turnwise
from turnwise import Incoming, MCPError, MCPServer, Outgoing
from turnwise._messages import Notified
from turnwise.transports.memory import Memory

PATIENCE = 10.0
VERSION = "2026-07-28"
PYTHONPATH = os.pathsep.join(str(Path(file).parents[depth]) for file, depth in ((turnwise.__file__, 1), (__file__, 2)))
ENVIRONMENT = {**os.environ, "PYTHONPATH": PYTHONPATH}
DISCOVERED: dict[str, Any] = {"supportedVersions": [VERSION], "capabilities": {}}
TEXT: dict[str, Any] = {"type": "object", "properties": {"value": {"type": "string"}}}

T = TypeVar("T")
Json = dict[str, Any]


def run(work: Coroutine[Any, Any, T]) -> T:
    """A whole test in a loop of its own, which does not wait for ever."""

    async def patiently() -> T:
        return await asyncio.wait_for(work, PATIENCE)

    return asyncio.run(patiently())


class Tap(Memory):
    """The way to a server in this process, with a record of the requests that were sent."""

    def __init__(self, server: MCPServer[Any]) -> None:
        super().__init__(server)
        self.requests: list[Json] = []

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        self.requests.append(json.loads(request.body))
        return await super().exchange(request, notified)

    @property
    def methods(self) -> list[str]:
        return [request["method"] for request in self.requests]

    @property
    def params(self) -> list[Json]:
        return [
            {name: value for name, value in request["params"].items() if name != "_meta"} for request in self.requests
        ]


Answer = Callable[[str, Json], Any]


class Peer:
    """A server written by hand, which may say what no good server says. `answer` gives a result, a whole reply as
    bytes, or raises MCPError; it may be a coroutine function.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[Json] = []
        self.opened = 0
        self.closed = 0
        self.notify: Notified | None = None

    async def open(self) -> None:
        self.opened += 1

    async def aclose(self) -> None:
        self.closed += 1

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        message = json.loads(request.body)
        self.requests.append(message)
        self.notify = notified
        reply: Json = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            result = self._answer(message["method"], message["params"])
            result = await result if inspect.isawaitable(result) else result
            raw = result if isinstance(result, bytes) else json.dumps({**reply, "result": result}).encode()
        except MCPError as error:
            told = {"code": error.code, "message": error.message, "data": error.data}
            raw = json.dumps({**reply, "error": told}).encode()
        return Incoming(200, json.loads(raw), raw)


def asking(questions: Mapping[str, Any], state: str | None = None) -> Json:
    """A result that asks."""
    return {"resultType": "input_required", "inputRequests": dict(questions)} | (
        {"requestState": state} if state else {}
    )


def form(message: str = "Well?", schema: Mapping[str, Any] = TEXT) -> Json:
    params = {"mode": "form", "message": message, "requestedSchema": dict(schema)}
    return {"method": "elicitation/create", "params": params}


def page(url: Any, message: str = "Please visit") -> Json:
    return {"method": "elicitation/create", "params": {"mode": "url", "message": message, "url": url}}


def once(questions: Mapping[str, Any], result: Json | None = None) -> Answer:
    """A peer that asks these in the first round and is content with any answer."""

    def answer(method: str, params: Json) -> Json:
        done = {"content": [], "structuredContent": params.get("inputResponses")} if result is None else result
        return done if "inputResponses" in params else asking(questions, "state")

    return answer


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


def accepting(**content: Any) -> Callable[..., Awaitable[Json]]:
    """A callback that gives this answer to everything."""

    async def callback(*_: Any) -> Json:
        return accept(**content)

    return callback


def text(result: Any) -> str:
    """What a tool said."""
    return "".join(part.text for part in result.content)


@contextmanager
def serving(code: str, *arguments: str) -> Iterator[str]:
    """The URL of a server that runs as a process of its own; the code ends with `server.run("http", port=0)`."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(r"running on (http://127\.0\.0\.1:\d+)", line):
                yield f"{found[1]}/mcp"
                break
        else:
            raise AssertionError("".join(said))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
