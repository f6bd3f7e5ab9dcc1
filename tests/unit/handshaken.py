"""Clients of the wires that open with `initialize`, in this process: one as HTTP carries it, one on a lasting line.

Both hear what the server says in one queue, in the order in which it was said, so that a test can be held over both.
`Web` is HTTP without the sockets: its clock is its own, and what is said on a stream is read at its own pace.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, TypeVar

from turnwise import MCPServer
from turnwise._messages import Post, Reply
from turnwise._sessions import Session, Sessions
from turnwise.transports.stdio import _Channel

NEWEST = "2025-11-25"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", NEWEST)
EVERYTHING: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
NOW = 1_800_000_000.0
PATIENCE = 5.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": EVERYTHING,
}

T = TypeVar("T")
Json = dict[str, Any]
Answers = Callable[[Json], Json]


def run(work: Coroutine[Any, Any, T]) -> T:
    """A whole test in a loop of its own, which does not wait for ever."""

    async def patiently() -> T:
        return await asyncio.wait_for(work, PATIENCE * 2)

    return asyncio.run(patiently())


async def until(happened: Callable[[], Any]) -> None:
    """Let everybody else go on until something has happened."""
    async with asyncio.timeout(PATIENCE):
        while not happened():  # noqa: ASYNC110 - what is waited for is told by nobody
            await asyncio.sleep(0)


def request(method: str, params: Json | None = None, id: Any = 1) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})


def notification(method: str, params: Json | None = None) -> Json:
    return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})


def calling(tool: str, arguments: Json | None = None, id: Any = 1, **meta: Any) -> Json:
    params = {"name": tool, "arguments": arguments or {}} | ({"_meta": meta} if meta else {})
    return request("tools/call", params, id)


def opening(version: str = NEWEST, capabilities: Any = EVERYTHING, id: Any = 0) -> Json:
    client = {"name": "test", "version": "1"}
    return request("initialize", {"protocolVersion": version, "capabilities": capabilities, "clientInfo": client}, id)


def cancelling(id: Any) -> Json:
    return notification("notifications/cancelled", {"requestId": id, "reason": "enough"})


def answering(asked: Json, result: Any) -> Json:
    return {"jsonrpc": "2.0", "id": asked["id"], "result": result}


def refusing(asked: Json, code: int = -1, message: str = "User rejected the request") -> Json:
    return {"jsonrpc": "2.0", "id": asked["id"], "error": {"code": code, "message": message}}


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


def text(message: Json) -> str:
    """What a tool said."""
    return "".join(part["text"] for part in message["result"]["content"])


def kinds(messages: list[Json]) -> list[str]:
    """What each message is: its method, or what it replies with."""
    return [message.get("method", "result" if "result" in message else "error") for message in messages]


class Event(NamedTuple):
    """A server-sent event."""

    id: str
    message: Any
    retry: int | None


def event(raw: bytes) -> Event:
    """One event as bytes; AssertionError where it is not a whole one."""
    assert raw.endswith(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in raw.decode().rstrip("\r\n").split("\r\n"))
    assert fields.pop("event") == "message"
    data, retry = fields.pop("data", ""), fields.pop("retry", None)
    return Event(fields["id"], json.loads(data) if data else None, None if retry is None else int(retry))


@dataclass(frozen=True)
class Identity:
    """Who is calling."""

    principal: str


class Caller:
    """What both clients have in common. `said` is everything that was heard."""

    def __init__(self, server: MCPServer[Any]) -> None:
        self.server = server
        self.heard: asyncio.Queue[Any] = asyncio.Queue()
        self.said: list[Json] = []
        self.numbers = count(1)
        self.tasks: set[asyncio.Task[None]] = set()

    async def say(self, message: Any) -> None:
        """Send something; what comes of it will be heard."""
        task = asyncio.create_task(self._carry(json.dumps(message).encode()))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        await asyncio.sleep(0)

    async def _carry(self, body: bytes) -> None:
        raise NotImplementedError

    async def next(self) -> Json:
        """The next message from the server."""
        async with asyncio.timeout(PATIENCE):
            message: Json = await self.heard.get()
        self.said.append(message)
        return message

    async def open(self, version: str = NEWEST, capabilities: Any = EVERYTHING) -> Json:
        """The result of `initialize`."""
        await self.say(opening(version, capabilities))
        reply = await self.next()
        await self.say(notification("notifications/initialized"))
        result: Json = reply["result"]
        return result

    async def call(self, tool: str, arguments: Json | None = None, **meta: Any) -> int:
        """Begin a call; its id."""
        number = next(self.numbers)
        await self.say(calling(tool, arguments, number, **meta))
        return number

    async def played(
        self, tool: str, answers: Answers | None = None, arguments: Json | None = None, **meta: Any
    ) -> Json:
        """The reply to a call, with every question answered on the way."""
        number = await self.call(tool, arguments, **meta)
        while (message := await self.next()).get("method") or message.get("id") != number:
            if "id" in message and "method" in message:
                assert answers is not None, message
                await self.say(answering(message, answers(message)))
        return message

    async def asked(self, method: str, params: Json | None = None) -> Json:
        """The reply to a request."""
        number = next(self.numbers)
        await self.say(request(method, params, number))
        while (message := await self.next()).get("id") != number or "method" in message:
            pass
        return message

    def questions(self) -> list[Json]:
        """What the server asked so far."""
        return [message for message in self.said if "method" in message and "id" in message]

    async def close(self) -> None:
        """Leave."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Web(Caller):
    """A client over HTTP."""

    def __init__(self, server: MCPServer[Any], principal: str | None = None) -> None:
        super().__init__(server)
        self.principal = principal
        self.session_id: str | None = None
        self.version = NEWEST
        self.now = NOW
        self.events: list[Event] = []

    @property
    def session(self) -> Session:
        """What the server remembers."""
        found = sessions(self.server)._sessions.get(self.session_id or "")
        assert found is not None
        return found

    def post(self, body: bytes = b"", **headers: Any) -> Post:
        """A message as the transport hands it over; a header of None is left away."""
        whole = {"mcp-session-id": self.session_id, "mcp-protocol-version": self.version}
        whole |= {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {
            name.encode(): value.encode("utf-8", "surrogatepass") for name, value in whole.items() if value is not None
        }
        access = None if self.principal is None else Identity(self.principal)
        return Post(body, _nothing, self.now, sent, access)

    async def reply(self, message: Any, **headers: Any) -> Reply:
        """The reply to one POST."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        async with asyncio.timeout(PATIENCE):
            return await self.server.wire.answer(self.post(body, **headers))

    async def attend(self, verb: str, **headers: Any) -> Reply | None:
        """The reply to GET or DELETE."""
        attendant = self.server.asgi()._attendant
        assert attendant is not None
        return await attendant.attend(verb, self.post(**headers))

    async def open(self, version: str = NEWEST, capabilities: Any = EVERYTHING) -> Json:
        """The result of `initialize`."""
        self.session_id = None
        reply = await self.reply(opening(version, capabilities), mcp_protocol_version=None)
        assert reply.status == 200, reply
        self.session_id = dict(reply.headers)[b"mcp-session-id"].decode()
        result: Json = body(reply)["result"]
        self.version = result["protocolVersion"]
        accepted = await self.reply(notification("notifications/initialized"))
        assert (accepted.status, accepted.body, accepted.events) == (202, None, None)
        return result

    async def listen(self, **headers: Any) -> None:
        """Open the stream of GET, or take another one up again."""
        reply = await self.attend("GET", **headers)
        assert reply is not None
        assert reply.status == 200, reply
        assert reply.events is not None
        task = asyncio.create_task(self._follow(reply.events))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _carry(self, body: bytes) -> None:
        reply = await self.server.wire.answer(self.post(body))
        if reply.events is not None:
            await self._follow(reply.events)
        elif reply.body is not None:
            self.heard.put_nowait(json.loads(reply.body))

    async def _follow(self, events: AsyncGenerator[bytes, None]) -> None:
        try:
            async for raw in events:
                said = event(raw)
                self.events.append(said)
                if said.message is not None:
                    self.heard.put_nowait(said.message)
        finally:
            await events.aclose()


class _Output:
    """Standard output, as far as a channel needs it."""

    def __init__(self, heard: asyncio.Queue[Any]) -> None:
        self._heard = heard
        self._loop = asyncio.get_running_loop()

    def write(self, line: memoryview) -> int:
        assert bytes(line).endswith(b"\n")
        self._loop.call_soon_threadsafe(self._heard.put_nowait, json.loads(bytes(line)))
        return len(line)


class Pipe(Caller):
    """A client on a lasting line, as standard streams are."""

    def __init__(self, server: MCPServer[Any]) -> None:
        super().__init__(server)
        output: Any = _Output(self.heard)
        self.channel = _Channel(server.wire, output)

    @property
    def session(self) -> Session:
        """What the server remembers."""
        session: Session = self.channel._line.session
        return session

    async def _carry(self, body: bytes) -> None:
        await self.channel._serve(body + b"\n")

    async def close(self) -> None:
        """Leave."""
        await super().close()
        if self.session is not None:
            self.session.close()
        self.channel._writer.dismiss()


async def _nothing(_: bytes) -> None:
    pass


def body(reply: Reply) -> Json:
    """The message of a reply that is no stream."""
    assert reply.events is None
    assert reply.body is not None
    message: Json = json.loads(reply.body)
    return message


async def events_of(reply: Reply) -> list[Event]:
    """All of a stream that ends."""
    assert (reply.status, reply.body) == (200, None)
    assert reply.events is not None
    async with asyncio.timeout(PATIENCE):
        return [event(raw) async for raw in reply.events]


def sessions(server: MCPServer[Any]) -> Sessions:
    """The server's sessions."""
    assert server._sessions is not None
    return server._sessions


@asynccontextmanager
async def web(server: MCPServer[Any], version: str = NEWEST, capabilities: Any = EVERYTHING) -> AsyncIterator[Web]:
    """A client over HTTP with a session."""
    client = Web(server)
    await client.open(version, capabilities)
    try:
        yield client
    finally:
        await client.close()
        server.close_subscriptions()


@asynccontextmanager
async def pipe(server: MCPServer[Any], version: str = NEWEST, capabilities: Any = EVERYTHING) -> AsyncIterator[Pipe]:
    """A client on a lasting line, with a session."""
    client = Pipe(server)
    await client.open(version, capabilities)
    try:
        yield client
    finally:
        await client.close()
        server.close_subscriptions()


ROADS = (web, pipe)
