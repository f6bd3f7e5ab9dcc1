"""A server with a handshake, written by hand over `scripted`: a test says only what is special about it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.unit.scripted import DONE, Line, Peer, Request, event, http, serving
from turnwise import Client

NEWEST: Any = "2025-11-25"
OLDER: Any = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LOST = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
Json = dict[str, Any]
Call = Callable[["Older", Request, "Stream"], Awaitable[None]]


def initialized(version: str = NEWEST, **capabilities: Any) -> Json:
    info = {"name": "older", "version": "1.0"}
    return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info, "instructions": "Be kind."}


def form(**properties: Any) -> Json:
    """The parameters of a form, as they were before forms had a mode."""
    return {"message": "?", "requestedSchema": {"type": "object", "properties": properties}}


class Stream:
    """The reply to one request as a stream of events, begun with the first of them."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._is_begun = False

    async def raw(self, data: bytes) -> None:
        if not self._is_begun:
            self._is_begun = True
            await self.line.events()
        await self.line.chunk(data)

    async def say(self, message: Any) -> None:
        await self.raw(event(message))

    async def notify(self, method: str, **params: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def end(self) -> None:
        await self.line.chunk()


@dataclass
class Older:
    """A server of one tool, which is the script `call`; without one, the tool is done at once. `listening` is what a
    GET gets, and `replies` are the client's answers to questions.
    """

    call: Call | None = None
    listening: Call | None = None
    opening: Json = field(default_factory=initialized)
    results: Mapping[str, Any] = field(default_factory=dict)
    sessions: list[str] = field(default_factory=lambda: ["session-1", "session-2", "session-3"])
    replies: list[Json] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    alive: set[str] = field(default_factory=set)
    status: int = 202
    number: int = 100

    async def __call__(self, request: Request, line: Line) -> None:
        session = request.headers.get("mcp-session-id")
        if request.method == "DELETE":
            await line.send(http(b"", 200, kind=None))
        elif request.method == "GET":
            await self._get(request, line)
        elif _method(request) == "initialize":
            await self._initialize(request, line)
        elif self.sessions is not None and session not in self.alive:
            await line.json(
                {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}, 404
            )
        elif _method(request) is None:
            self.replies.append(json.loads(request.body))
            self.answered.set()
            await line.send(http(b"", self.status, kind=None))
        elif "id" not in request.message:
            await line.send(http(b"", self.status, kind=None))
        else:
            await self._request(request, line)

    async def _initialize(self, request: Request, line: Line) -> None:
        name = self.sessions.pop(0)
        self.alive.add(name)
        await line.json(request.reply(self.opening), mcp_session_id=name)

    async def _get(self, request: Request, line: Line) -> None:
        if self.listening is None:
            await line.send(http(b"", 405, kind=None))
        else:
            await self.listening(self, request, Stream(line))

    async def _request(self, request: Request, line: Line) -> None:
        if request.rpc == "tools/call" and self.call is not None:
            await self.call(self, request, Stream(line))
        else:
            await line.json(request.reply(self.results.get(request.rpc, DONE)))

    async def ask(self, stream: Stream, method: str, params: Any = None, number: Any = None) -> Json:
        """Ask the client something, and wait for what it says."""
        if number is None:
            self.number += 1
            number = self.number
        message = {"jsonrpc": "2.0", "id": number, "method": method}
        await stream.say(message if params is None else {**message, "params": params})
        return await self.reply_to(number)

    async def reply_to(self, number: Any) -> Json:
        while True:
            for reply in self.replies:
                if reply.get("id") == number:
                    return reply
            self.answered.clear()
            await self.answered.wait()


def _method(request: Request) -> str | None:
    message = json.loads(request.body)
    return message.get("method") if isinstance(message, dict) else None


def bodies(peer: Peer) -> list[Json]:
    """What was POSTed, in order."""
    return [json.loads(request.body) for request in peer.requests if request.method == "POST"]


def methods(peer: Peer) -> list[str]:
    return [body["method"] for body in bodies(peer) if isinstance(body, dict) and "method" in body]


@asynccontextmanager
async def meeting(server: Older, **options: Any) -> AsyncIterator[tuple[Client, Peer]]:
    """A client that has shaken hands with the server."""
    async with serving(server) as peer, Client(peer.url, **{"mode": NEWEST, **options}) as client:
        yield client, peer


def asking(method: str, params: Any = None) -> Call:
    """A tool that asks this once, and says what it was told."""

    async def call(server: Older, request: Request, stream: Stream) -> None:
        told = await server.ask(stream, method, params)
        await stream.say(request.reply({"content": [], "structuredContent": told.get("result", told.get("error"))}))
        await stream.end()

    return call
