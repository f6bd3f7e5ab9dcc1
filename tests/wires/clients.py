"""Clients of every wire, written by hand: JSON in and out, so that what is tested is the wire and nothing of ours.

A channel is HTTP or a process's standard streams. A wire knows how its version opens, asks and is answered.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import aiohttp

PATIENCE = 20.0
FINAL = "2026-07-28"
RELEASED = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MULTI_TURN, APPROVED, FIRST_DRAFT = "DRAFT-SEP-1858", "DRAFT-2026-v1", "DRAFT-2026-02-03"
CAPABILITIES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
META = {
    "io.modelcontextprotocol/protocolVersion": FINAL,
    "io.modelcontextprotocol/clientInfo": {"name": "by hand", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
}

Answer = Callable[[dict[str, Any]], dict[str, Any]]
"""A request of the server, `method` and `params`, to its result."""


class Event(NamedTuple):
    """A server-sent event; what comes as plain JSON is one too, without an id. `data` is None where there is none."""

    kind: str
    id: str
    data: Any


class EventReader:
    """Lines to server-sent events."""

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}

    def feed(self, line: str) -> Event | None:
        """What a line completes; one that is empty ends an event, and one without a name is a comment."""
        if line:
            name, _, value = line.partition(":")
            self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if not fields.keys() & {"event", "data", "id"}:
            return None
        data = fields.get("data")
        return Event(fields.get("event", "message"), fields.get("id", ""), json.loads(data) if data else None)


class Channel(Protocol):
    session_id: str | None

    def exchange(self, message: Any, headers: Mapping[str, str]) -> AsyncGenerator[Event, None]: ...

    async def tell(self, message: Any, headers: Mapping[str, str]) -> None: ...

    async def leave(self, headers: Mapping[str, str]) -> None: ...


class Http:
    """`always` goes with every request."""

    def __init__(self, session: aiohttp.ClientSession, url: str, always: Mapping[str, str] | None = None) -> None:
        self._http = session
        self._url = url
        self._always = {"Accept": "application/json, text/event-stream", **(always or {})}
        self.session_id: str | None = None
        self.kinds: list[str] = []

    async def exchange(self, message: Any, headers: Mapping[str, str]) -> AsyncGenerator[Event, None]:
        async with self._http.post(self._url, json=message, headers={**self._always, **headers}) as response:
            self.session_id = response.headers.get("Mcp-Session-Id", self.session_id)
            self.kinds.append(response.content_type)
            if response.content_type == "application/json":
                yield Event("message", "", await response.json())
                return
            assert (response.status, response.content_type) == (200, "text/event-stream"), await response.text()
            reader = EventReader()
            async for line in response.content:
                if (event := reader.feed(line.decode().rstrip("\r\n"))) is not None:
                    yield event

    async def tell(self, message: Any, headers: Mapping[str, str]) -> None:
        async with self._http.post(self._url, json=message, headers={**self._always, **headers}) as response:
            assert (response.status, await response.read()) == (202, b"")

    async def leave(self, headers: Mapping[str, str]) -> None:
        async with self._http.delete(self._url, headers={**self._always, **headers}) as response:
            assert response.status == 204


class Stdio:
    """One request at a time: every line until the reply to it belongs to it."""

    session_id: str | None = None

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def exchange(self, message: Any, headers: Mapping[str, str]) -> AsyncGenerator[Event, None]:
        await self.tell(message, headers)
        assert self._process.stdout is not None
        while True:
            said = json.loads(await asyncio.wait_for(self._process.stdout.readline(), PATIENCE))
            yield Event("message", "", said)
            if "method" not in said and said["id"] == message["id"]:
                return

    async def tell(self, message: Any, headers: Mapping[str, str]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def leave(self, headers: Mapping[str, str]) -> None:
        """The line is the session."""


@dataclass
class Wire:
    """One client. `rounds` counts the requests that its last call took."""

    channel: Channel
    version: str
    capabilities: Mapping[str, Any] = field(default_factory=lambda: CAPABILITIES)
    rounds: int = 0
    ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @property
    def headers(self) -> dict[str, str]:
        named = {} if self.channel.session_id is None else {"Mcp-Session-Id": self.channel.session_id}
        return {"MCP-Protocol-Version": self.version, **named}

    def message(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": dict(params)}

    async def open(self) -> dict[str, Any]:
        """The handshake."""
        client = {"name": "by hand", "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": client}
        reply = await self.one(self.message("initialize", params), {})
        result: dict[str, Any] = reply["result"]
        assert result["protocolVersion"] == self.version
        await self.channel.tell({"jsonrpc": "2.0", "method": "notifications/initialized"}, self.headers)
        return result

    async def close(self) -> None:
        """What there is to give up."""

    async def one(self, message: Any, headers: Mapping[str, str]) -> dict[str, Any]:
        """A reply that comes alone."""
        said = [event.data async for event in self.channel.exchange(message, headers)]
        assert len(said) == 1, said
        reply: dict[str, Any] = said[0]
        return reply

    async def call(self, method: str, params: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
        """As many rounds as it takes, to the reply: a message with `result` or `error`."""
        raise NotImplementedError


class Final(Wire):
    """2026-07-28: nothing is opened, every request says all of it."""

    async def open(self) -> dict[str, Any]:
        return {}

    async def call(self, method: str, params: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
        more: dict[str, Any] = {"_meta": META}
        name = params.get("name", params.get("uri", ""))
        headers = {"MCP-Protocol-Version": FINAL, "Mcp-Method": method, "Mcp-Name": name}
        for self.rounds in itertools.count(1):
            reply = await self.one(self.message(method, {**params, **more}), headers)
            result = reply.get("result", {})
            if result.get("resultType") != "input_required":
                return reply
            answers = {key: answer(request) for key, request in result["inputRequests"].items()}
            more = {"_meta": META, "inputResponses": answers, "requestState": result["requestState"]}
        raise AssertionError


class Approved(Wire):
    """SEP-2322 as approved: the same, behind a handshake."""

    async def call(self, method: str, params: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
        more: dict[str, Any] = {}
        for self.rounds in itertools.count(1):
            reply = await self.one(self.message(method, {**params, **more}), self.headers)
            result = reply.get("result", {})
            if result.get("resultType") != "input_required":
                return reply
            more = {"requestState": result["requestState"]}
            if "inputRequests" in result:
                more["inputResponses"] = {key: answer(asked) for key, asked in result["inputRequests"].items()}
        raise AssertionError


class FirstDraft(Wire):
    """The draft of 3 February 2026: everything at the top of messages, answers wrapped."""

    async def call(self, method: str, params: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
        more: dict[str, Any] = {}
        for self.rounds in itertools.count(1):
            reply = await self.one({**self.message(method, params), **more}, self.headers)
            if "result" in reply or "error" in reply:
                return reply
            more = {"request_state": reply["request_state"]}
            if "input_requests" in reply:
                asked = reply["input_requests"].items()
                more["input_responses"] = {key: {"result": answer(request)} for key, request in asked}
        raise AssertionError


class MultiTurn(Wire):
    """SEP-1858: a stream that ends in `input_required`; all answers at once, with the id of its last event."""

    last_event = ""

    async def call(self, method: str, params: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
        message: Any = self.message(method, params)
        more: dict[str, str] = {}
        for self.rounds in itertools.count(1):
            events = [event async for event in self.channel.exchange(message, {**self.headers, **more})]
            if [event.kind for event in events] == ["message"]:
                reply: dict[str, Any] = events[0].data
                return reply
            first, *asked, last = events
            assert (first.kind, first.data, last.kind, last.data) == ("buffer_input", None, "input_required", None)
            assert {event.kind for event in asked} == {"message"}
            message = [{"jsonrpc": "2.0", "id": event.data["id"], "result": answer(event.data)} for event in asked]
            more, self.last_event = {"Last-Event-ID": last.id}, last.id
        raise AssertionError


class Live(Wire):
    """2024-11-05 to 2025-11-25: questions are requests on the call's own stream, answers are messages of their own."""

    async def close(self) -> None:
        await self.channel.leave(self.headers)

    async def call(self, method: str, params: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
        self.rounds = 1
        async with aclosing(self.channel.exchange(self.message(method, params), self.headers)) as events:
            async for event in events:
                if event.data is None:
                    continue
                if "method" not in event.data:
                    reply: dict[str, Any] = event.data
                    return reply
                given = {"jsonrpc": "2.0", "id": event.data["id"], "result": answer(event.data)}
                await self.channel.tell(given, self.headers)
        raise AssertionError("the stream ended without a reply")


KINDS: dict[str, type[Wire]] = {
    FINAL: Final,
    **dict.fromkeys(RELEASED, Live),
    MULTI_TURN: MultiTurn,
    APPROVED: Approved,
    FIRST_DRAFT: FirstDraft,
}


async def opened(channel: Channel, version: str, capabilities: Mapping[str, Any] = CAPABILITIES) -> Wire:
    """A client that has shaken hands where that is the custom."""
    wire = KINDS[version](channel, version, capabilities)
    await wire.open()
    return wire


def in_time(work: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(work, PATIENCE)

    return asyncio.run(limited())
