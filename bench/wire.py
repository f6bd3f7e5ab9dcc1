"""The conversations of the benchmark as bytes: what is sent, and what a correct reply contains.

Everything that does not change from one request to the next is built beforehand; a request costs one
formatting of bytes, a check costs a few searches. Nothing here knows about sockets or time.
"""

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any

Talk = Generator[bytes, bytes, None]
"""One conversation: yields requests, is sent the bodies of the replies, ends when the last is verified."""

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
VARIANTS = 64
FIRST_ID = 10**9
"""Ids count up from here, so that all have ten digits and lengths can be computed beforehand."""

ID, KEY, STATE = "@id", "@key", "@state"
_HOLES = re.compile(rb'"@id"|@key|@state')


class WrongReply(Exception):
    """A server answered, but not what the conversation expects."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prepared first round: the parts around its id, and what its reply has to contain."""

    before: bytes
    after: bytes
    expected: bytes


@dataclass(frozen=True, slots=True)
class Retry:
    """A prepared second round: the parts around id, key and state, and the length they have by themselves."""

    head: bytes
    parts: tuple[bytes, bytes, bytes, bytes]
    length: int
    expected: bytes


class Phrasebook:
    """All conversations with the server on one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ids = count(FIRST_ID)
        self._sums = cycle([self._sum(number) for number in range(VARIANTS)])
        self._visits = cycle([self._visit(number) for number in range(VARIANTS)])

    def plain_calls(self) -> Iterator[Talk]:
        return (_one_round(next(self._ids), prepared) for prepared in self._sums)

    def flows(self) -> Iterator[Talk]:
        return (_two_rounds(next(self._ids), next(self._ids), *visit) for visit in self._visits)

    def _sum(self, number: int) -> Request:
        a, b = 100 + number, 1000 + number
        params = {"name": "add", "arguments": {"a": a, "b": b}}
        return self._prepare(params, b'"structuredContent":{"result":%d}' % (a + b))

    def _visit(self, number: int) -> tuple[Request, Retry]:
        city, name = f"City{number}", f"Visitor{number}"
        params = {"name": "greet", "arguments": {"city": city}}
        answers = {KEY: {"action": "accept", "content": {"name": name}}}
        asked = f'"message":"Who is visiting {city}?"'.encode()
        greeted = f'"text":"Hello {name} from {city}"'.encode()
        retry = {**params, "inputResponses": answers, "requestState": STATE}
        return self._prepare(params, asked), self._prepare_retry(retry, greeted)

    def _prepare(self, params: dict[str, Any], expected: bytes) -> Request:
        before, after = _HOLES.split(_body(params))
        length = len(before) + len(str(FIRST_ID)) + len(after)
        return Request(b"%b%d\r\n\r\n%b" % (head(self._port, params["name"]), length, before), after, expected)

    def _prepare_retry(self, params: dict[str, Any], expected: bytes) -> Retry:
        first, second, third, last = _HOLES.split(_body(params))
        length = len(first) + len(str(FIRST_ID)) + len(second) + len(third) + len(last)
        return Retry(head(self._port, params["name"]), (first, second, third, last), length, expected)


def head(port: int, tool: str) -> bytes:
    """The head of a call, up to the number that says how long its body is."""
    lines = (
        "POST /mcp HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        f"MCP-Protocol-Version: {VERSION}",
        "Mcp-Method: tools/call",
        f"Mcp-Name: {tool}",
        "Content-Length: ",
    )
    return "\r\n".join(lines).encode()


def _body(params: dict[str, Any]) -> bytes:
    message = {"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": {**params, "_meta": META}}
    return json.dumps(message, separators=(",", ":")).encode()


def _one_round(request_id: int, prepared: Request) -> Talk:
    body = yield b"%b%d%b" % (prepared.before, request_id, prepared.after)
    _verify(body, request_id, b'"resultType":"complete"', prepared.expected)


def _two_rounds(first_id: int, second_id: int, prepared: Request, retry: Retry) -> Talk:
    body = yield b"%b%d%b" % (prepared.before, first_id, prepared.after)
    _verify(body, first_id, b'"resultType":"input_required"', prepared.expected)
    key = between(body, b'"inputRequests":{"', b'"')
    state = between(body, b'"requestState":"', b'"')
    first, second, third, last = retry.parts
    length = retry.length + len(key) + len(state)
    spliced = (first, second_id, second, key, third, state, last)
    body = yield b"%b%d\r\n\r\n%b%d%b%b%b%b%b" % (retry.head, length, *spliced)
    _verify(body, second_id, b'"resultType":"complete"', retry.expected)


def _verify(body: bytes, request_id: int, kind: bytes, expected: bytes) -> None:
    if kind not in body or expected not in body or b'"id":%d' % request_id not in body:
        raise WrongReply(f"expected {expected!r} under id {request_id}, got {body!r}")


def between(body: bytes, before: bytes, after: bytes) -> bytes:
    start = body.find(before) + len(before)
    end = body.find(after, start)
    if start < len(before) or end < 0:
        raise WrongReply(f"no {before!r} in {body!r}")
    return body[start:end]


def reply_body(data: bytes) -> bytes | None:
    """The body of the one HTTP reply in `data`, or None while it is incomplete."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    if not data.startswith(b"HTTP/1.1 200 "):
        raise WrongReply(f"not a 200: {data!r}")
    head = data[:end].lower()
    mark = head.find(b"\r\ncontent-length:")
    if mark < 0:
        return _chunked_body(head, data[end + 4 :])
    line_end = head.find(b"\r\n", mark + 2)
    length = int(head[mark + 17 : line_end if line_end >= 0 else end])
    body = data[end + 4 :]
    return body if len(body) >= length else None


def _chunked_body(head: bytes, rest: bytes) -> bytes | None:
    if b"\r\ntransfer-encoding: chunked" not in head:
        raise WrongReply(f"neither a length nor chunks: {head!r}")
    body = b""
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found:
            return None
        length = int(size.split(b";")[0], 16)
        if len(rest) < length + 2:
            return None
        if length == 0:
            return body
        body, rest = body + rest[:length], rest[length + 2 :]
