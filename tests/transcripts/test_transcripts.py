"""Transcripts: a paragraph of prose, the client's lines (`>`), and the server's (`<` a result, `!` an error).

A server's line is a part of what is sent: members that it does not name are not looked at, and `"*"` stands for any
text. `"$"` in a client's line is the last `requestState`. Each transcript is replayed over every transport.
"""

import asyncio
import importlib.util
import itertools
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.ports import free_port
from turnwise import Outgoing
from turnwise.testing import connect
from turnwise.transports.memory import Memory

HERE = Path(__file__).parent
SERVER = HERE / "server.py"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "transcript", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}},
}
Exchange = Callable[[dict[str, Any]], dict[str, Any]]


class Line(NamedTuple):
    sign: str
    method: str
    body: Any


class Transcript(NamedTuple):
    title: str
    lines: list[Line]


def read(path: Path) -> list[Transcript]:
    found: list[Transcript] = []
    for text in path.read_text().splitlines():
        if text.startswith("# "):
            found.append(Transcript(text[2:], []))
        elif text.startswith("> "):
            method, _, body = text[2:].partition(" ")
            found[-1].lines.append(Line(">", method, json.loads(body)))
        elif text[:2] in ("< ", "! "):
            found[-1].lines.append(Line(text[0], "", json.loads(text[2:])))
    return found


TRANSCRIPTS = [transcript for path in sorted(HERE.glob("*.txt")) for transcript in read(path)]


async def unheard(message: Any) -> None:
    """Nothing is said between request and reply."""


def over_memory() -> Iterator[Exchange]:
    spec = importlib.util.spec_from_file_location("transcript_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def exchange(message: dict[str, Any]) -> dict[str, Any]:
        async def once() -> dict[str, Any]:
            async with connect(module.server):
                request = Outgoing(message["id"], message["method"], json.dumps(message).encode(), {}, safe=False)
                reply: dict[str, Any] = (await Memory(module.server).exchange(request, unheard)).message
                return reply

        return asyncio.run(once())

    yield exchange


def over_stdio() -> Iterator[Exchange]:
    with subprocess.Popen(
        [sys.executable, str(SERVER), "stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def exchange(message: dict[str, Any]) -> dict[str, Any]:
            stdin.write(json.dumps(message).encode() + b"\n")
            stdin.flush()
            result: dict[str, Any] = json.loads(stdout.readline())
            return result

        yield exchange
        stdin.close()


def over_http() -> Iterator[Exchange]:
    port = free_port()
    with subprocess.Popen([sys.executable, str(SERVER), str(port)], stderr=subprocess.DEVNULL) as process:
        wait_for(port, process)

        def exchange(message: dict[str, Any]) -> dict[str, Any]:
            method, params = message["method"], message["params"]
            headers = {
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2026-07-28",
                "Mcp-Method": method,
            }
            name = params.get("name", params.get("uri"))
            if name is not None:
                headers["Mcp-Name"] = f"=?base64?{b64encode(name.encode()).decode()}?="
            request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", json.dumps(message).encode(), headers)
            try:
                with urllib.request.urlopen(request) as response:
                    result: dict[str, Any] = json.load(response)
            except urllib.error.HTTPError as error:
                result = json.load(error)
            return result

        yield exchange
        process.terminate()


def wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            continue
    raise AssertionError("the server did not start")


@pytest.fixture(scope="module", params=[over_memory, over_stdio, over_http])
def exchange(request: pytest.FixtureRequest) -> Iterator[Exchange]:
    yield from request.param()


def fits(expected: Any, actual: Any) -> bool:
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            name in actual and fits(expected[name], actual[name]) for name in expected
        )
    if isinstance(expected, list):
        return isinstance(actual, list) and len(actual) == len(expected) and all(map(fits, expected, actual))
    return isinstance(actual, str) if expected == "*" else type(expected) is type(actual) and bool(expected == actual)


ids = itertools.count(1)


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda transcript: transcript.title)
def test_transcript(transcript: Transcript, exchange: Exchange) -> None:
    state = None
    reply: dict[str, Any] = {}
    for line in transcript.lines:
        if line.sign == ">":
            params = {name: state if value == "$" else value for name, value in line.body.items()}
            request_id = next(ids)
            message = {"jsonrpc": "2.0", "id": request_id, "method": line.method, "params": {**params, "_meta": META}}
            reply = exchange(message)
            assert reply["id"] == request_id
            state = reply.get("result", {}).get("requestState", state)
        else:
            actual = reply.get("result" if line.sign == "<" else "error")
            assert fits(line.body, actual), f"\nexpected {json.dumps(line.body)}\nactual   {json.dumps(reply)}"


def test_a_line_that_does_not_fit_is_seen() -> None:
    assert not fits({"a": [1, {"b": "*"}]}, {"a": [1, {"b": 2}]})
    assert not fits({"a": True}, {"a": 1})
    assert not fits([1], [1, 2])
