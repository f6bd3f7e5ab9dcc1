"""How the transcripts of the proposals are read and played.

A file begins with the wire that it speaks (`@ VERSION`) and the transports on which that exists. Then follow
transcripts, each a title, prose, and lines. `>` is what the client sends: `Name: value` lines are headers of the
message behind them, and `new:` before a message says which instance gets it. `<` is what the server says, to the
letter: a message, a status, or an event with its id. `~` lets so many seconds pass. `?` is what the client sends again
and again until a task has the status of the next line. `@ declares` names capabilities beside the usual ones.

`"$name"` stands for a value that is the server's to choose: the first time it is learned, from then on it is the same.
`"$*"` is any value.
Connections are opened before the first line; what is said after the last one fails the transcript.
"""

import http.client
import itertools
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import turnwise
from tests.transcripts.proposals import server
from tests.wires.clients import CAPABILITIES, FINAL, META, Event, EventReader

PATIENCE = 10.0
POLL = 0.02
HEADER = re.compile(r"([A-Z][A-Za-z-]+): (.*)")
INSTANCE = re.compile(r"([a-z]+): (.*)")
EVENT = re.compile(r"event: (\w+), id: (\S+?)(?:, data: (.*))?")
STATUS = re.compile(r"(\d{3})(?: (.*))?")
ids = itertools.count(1000)


class Transcript(NamedTuple):
    wire: str
    title: str
    lines: list[str]
    declared: dict[str, Any]


def read(path: Path) -> tuple[list[str], list[Transcript]]:
    """The transports that a file is for, and its transcripts."""
    first, *rest = path.read_text().splitlines()
    _, wire, *transports = first.split()
    found: list[Transcript] = []
    declared: dict[str, Any] = {}
    for text in rest:
        if text.startswith("@ declares "):
            declared = json.loads(text.removeprefix("@ declares "))
        elif text.startswith("# "):
            found.append(Transcript(wire, text[2:], [], declared))
        elif text[:2] in ("> ", "< ", "~ ", "? "):
            found[-1].lines.append(text)
    return transports, found


# Connections


class Said(NamedTuple):
    """Something that the server said: a status where it begins a reply, and an event."""

    status: int | None
    event: Event | None


class Connection(Protocol):
    def send(self, message: Any, headers: Mapping[str, str]) -> None: ...

    def next(self) -> Said: ...

    def rest(self) -> list[Any]: ...

    def close(self) -> None: ...


class Web:
    """HTTP. An answer to a question goes over a connection of its own, while the call's stream stays open."""

    def __init__(self, port: int, instance: str, wire: str) -> None:
        self._port, self._path, self._wire = port, f"/{instance}/mcp", wire
        self._session: str | None = None
        self._open: list[http.client.HTTPConnection] = []
        self._said: list[Iterator[Said]] = []

    def send(self, message: Any, headers: Mapping[str, str]) -> None:
        given = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **headers,
            **self.names(message),
        }
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        self._open.append(connection)
        connection.request("POST", self._path, json.dumps(message), given)
        response = connection.getresponse()
        self._session = response.headers.get("Mcp-Session-Id", self._session)
        self._said.append(self._read(response))

    def names(self, message: Any) -> dict[str, str]:
        if self._wire == FINAL:
            params = message["params"]
            name = params.get("name", params.get("uri", params.get("taskId")))
            return {
                "MCP-Protocol-Version": FINAL,
                "Mcp-Method": message["method"],
                **({} if name is None else {"Mcp-Name": name}),
            }
        return {} if self._session is None else {"Mcp-Session-Id": self._session, "MCP-Protocol-Version": self._wire}

    def _read(self, response: http.client.HTTPResponse) -> Iterator[Said]:
        if response.headers.get_content_type() != "text/event-stream":
            body = response.read()
            yield Said(response.status, Event("message", "", json.loads(body)) if body else None)
            return
        reader = EventReader()
        while line := response.readline():
            event = reader.feed(line.decode().rstrip("\r\n"))
            if event is not None and not (event.kind == "message" and event.data is None):
                yield Said(response.status, event)

    def next(self) -> Said:
        """What comes next in the latest reply that has not ended."""
        while self._said:
            for said in self._said[-1]:
                return said
            self._said.pop()
        raise AssertionError("the server says no more")

    def rest(self) -> list[Any]:
        return [said for reply in self._said for said in reply]

    def close(self) -> None:
        for connection in self._open:
            connection.close()


class Pipe:
    """Standard streams of a process."""

    def __init__(self, instance: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
        self._process = subprocess.Popen(
            [sys.executable, server.__file__, instance],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )

    def send(self, message: Any, headers: Mapping[str, str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def next(self) -> Said:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], "the server says nothing"
        return Said(None, Event("message", "", json.loads(self._process.stdout.readline())))

    def rest(self) -> list[Any]:
        """What was said besides: everything before the reply to one more request."""
        self.send({"jsonrpc": "2.0", "id": (mark := next(ids)), "method": "nothing/more"}, {})
        said = []
        while (event := self.next().event) is not None and event.data.get("id") != mark:
            said.append(event)
        return said

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


# Playing


class Play:
    """One transcript on its way."""

    def __init__(
        self,
        transport: str,
        wire: str,
        port: int,
        pipes: dict[str, Pipe],
        clock: list[float],
        declared: Mapping[str, Any] | None = None,
    ) -> None:
        self._transport, self._wire, self._port, self._pipes, self._clock = transport, wire, port, pipes, clock
        self._capabilities = {**CAPABILITIES, **(declared or {})}
        self._seen: Said | None = None
        self._connections: dict[str, Connection] = {}
        self._names: dict[str, Any] = {}
        self._headers: dict[str, str] = {}
        self._now = "main"

    def run(self, lines: list[str]) -> None:
        for line, following in zip(lines, [*lines[1:], ""], strict=True):
            try:
                if line[0] == "?":
                    self._poll(line[2:], json.loads(following[2:])["result"]["status"])
                else:
                    {">": self._send, "<": self._hear, "~": self._wait}[line[0]](line[2:])
            except AssertionError as error:
                raise AssertionError(f"{line}\n{error}") from None
        for connection in self._connections.values():
            assert connection.rest() == []

    def close(self) -> None:
        self._clock[0] = 0.0
        for connection in self._connections.values():
            if isinstance(connection, Web):
                connection.close()

    def to(self, instance: str) -> Connection:
        if instance not in self._connections:
            if self._transport == "stdio":
                if instance not in self._pipes:
                    self._pipes[instance] = Pipe(instance)
                connection: Connection = self._pipes[instance]
            else:
                connection = Web(self._port, instance, self._wire)
            self._connections[instance] = connection
            if self._wire != FINAL:
                self.shake_hands(connection)
        return self._connections[instance]

    def shake_hands(self, connection: Connection) -> None:
        client = {"name": "transcript", "version": "1"}
        params = {"protocolVersion": self._wire, "capabilities": self._capabilities, "clientInfo": client}
        connection.send({"jsonrpc": "2.0", "id": (number := next(ids)), "method": "initialize", "params": params}, {})
        event = connection.next().event
        assert event is not None
        assert (event.data["id"], event.data["result"]["protocolVersion"]) == (number, self._wire)

    def _send(self, text: str) -> None:
        if (header := HEADER.fullmatch(text)) is not None:
            self._headers[header[1]] = str(self._filled(header[2]))
            return
        if (named := INSTANCE.fullmatch(text)) is not None:
            self._now, text = named[1], named[2]
        message = self._filled(json.loads(text))
        if self._wire == FINAL:
            meta = {**META, "io.modelcontextprotocol/clientCapabilities": self._capabilities}
            message["params"] = {**message["params"], "_meta": {**meta, **message["params"].get("_meta", {})}}
        headers, self._headers = self._headers, {}
        self.to(self._now).send(message, headers)

    def _poll(self, text: str, status: str) -> None:
        """Look at a task until it has this status; the last reply is what the next line is about."""
        ends = time.monotonic() + PATIENCE
        while True:
            self._send(text)
            said = self.to(self._now).next()
            assert said.event is not None
            if said.event.data.get("result", {}).get("status") == status:
                self._seen = said
                return
            assert time.monotonic() < ends, f"came: {said}"
            time.sleep(POLL)

    def _next(self) -> Said:
        said, self._seen = self._seen, None
        return said or self.to(self._now).next()

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._filled(part) for name, part in value.items()}
        if isinstance(value, list):
            return [self._filled(part) for part in value]
        return self._names.get(value, value) if isinstance(value, str) else value

    def _hear(self, text: str) -> None:
        if (stated := STATUS.fullmatch(text)) is not None:
            expected = int(stated[1])
            if self._transport == "stdio":
                if stated[2] is not None:
                    self._compare(json.loads(stated[2]), self._next().event)
                return
            status, event = self._next()
            assert status == expected, f"came: {status} {event}"
            assert (event is None) == (stated[2] is None), f"came: {event}"
            if event is not None:
                self._compare(json.loads(stated[2]), event)
            return
        status, event = self._next()
        assert status in (None, 200), f"came: {status} {event}"
        if (found := EVENT.fullmatch(text)) is None:
            self._compare(json.loads(text), event)
            return
        assert event is not None
        assert (event.kind, event.data is None) == (found[1], found[3] is None), f"came: {event}"
        assert self._same(found[2], event.id), f"came: {event}"
        if found[3] is not None:
            self._compare(json.loads(found[3]), event)

    def _compare(self, expected: Any, event: Event | None) -> None:
        assert event is not None
        assert event.kind == "message", f"came: {event}"
        assert self._same(expected, event.data), f"came: {json.dumps(event.data)}"

    def _same(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, dict):
            return (
                isinstance(actual, dict)
                and expected.keys() == actual.keys()
                and all(self._same(expected[name], actual[name]) for name in expected)
            )
        if isinstance(expected, list):
            return isinstance(actual, list) and len(expected) == len(actual) and all(map(self._same, expected, actual))
        if expected == "$*":
            return isinstance(actual, str | int)
        if isinstance(expected, str) and expected.startswith("$"):
            assert isinstance(actual, str | int)
            return bool(self._names.setdefault(expected, actual) == actual)
        return type(expected) is type(actual) and bool(expected == actual)

    def _wait(self, text: str) -> None:
        self._clock[0] += float(text)
