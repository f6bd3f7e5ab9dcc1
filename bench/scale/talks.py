"""Conversations of any length, with arguments of any size: whole flows, and single rounds of long ones."""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, cycle, repeat
from typing import Any

from bench.fleet import PATIENCE, exchange
from bench.replay.legs import SHORT, conclusion, question, verify
from bench.wire import FIRST_ID, META, Talk, between, head

LINES_PER_KB = 16
SIGNER = "Who signs?"


@dataclass(frozen=True, slots=True)
class Script:
    """A flow: what is called, what is asked in each round, what comes out."""

    tool: str
    arguments: Mapping[str, Any]
    questions: Sequence[str]
    result: str


class Speaker:
    """Speaks the client's lines of a script to the server on one port."""

    def __init__(self, port: int, script: Script) -> None:
        self._head = head(port, script.tool)
        params = {"name": script.tool, "arguments": script.arguments, "_meta": META}
        self._params = json.dumps(params, separators=(",", ":")).encode()[1:-1]
        self._answer = json.dumps({"action": "accept", "content": {"value": SHORT}}).encode()
        self._replies = [text.encode() for text in (*script.questions, script.result)]
        self._ids = count(FIRST_ID)

    def flow(self) -> Talk:
        """All rounds."""
        body = yield self.begin()
        for reply in self._replies[:-1]:
            verify(body, reply)
            body = yield self.retry(body)
        verify(body, self._replies[-1])

    def leg(self, port: int, answers: int) -> Iterator[Talk]:
        """One round without end: the retry whose state has this many answers recorded and which brings the next."""
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
            body = exchange(connection, self.begin())
            for _ in range(answers):
                body = exchange(connection, self.retry(body))
        request, reply = self.retry(body), self._replies[answers + 1]
        return (_one_round(request, reply) for _ in repeat(None))

    def begin(self) -> bytes:
        return self._request(b"")

    def retry(self, asked: bytes) -> bytes:
        """Answer the question that a reply has."""
        key = between(asked, b'"inputRequests":{"', b'"')
        state = between(asked, b'"requestState":"', b'"')
        return self._request(b',"inputResponses":{"%b":%b},"requestState":"%b"' % (key, self._answer, state))

    def _request(self, retry: bytes) -> bytes:
        pieces = (next(self._ids), self._params, retry)
        body = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%b%b}}' % pieces
        return b"%b%d\r\n\r\n%b" % (self._head, len(body), body)


def interview(tool: str, variant: int, questions: int) -> Script:
    """Questions, one after the other."""
    topic = f"topic {variant:02}"
    asked = [question(topic, number) for number in range(1, questions + 1)]
    return Script(tool, {"topic": topic}, asked, conclusion(topic, questions, SHORT))


def signing(variant: int, kilobytes: int) -> Script:
    """One question about arguments of a size: so many lines of 64 bytes, as JSON."""
    lines = [f"{variant:02} {number:05} ".ljust(61, "x") for number in range(kilobytes * LINES_PER_KB)]
    return Script("sign", {"lines": lines}, [SIGNER], signed(lines, SHORT))


def signed(lines: Sequence[str], signer: str) -> str:
    return f"{len(lines)} lines, signed by {signer}"


def in_turn(supplies: Sequence[Iterator[Talk]]) -> Iterator[Talk]:
    """One talk of each, over and over."""
    return (next(supply) for supply in cycle(supplies))


def flows(speakers: Sequence[Speaker]) -> Iterator[Talk]:
    """Whole flows of each, over and over."""
    return (speaker.flow() for speaker in cycle(speakers))


def _one_round(request: bytes, reply: bytes) -> Talk:
    body = yield request
    verify(body, reply)
