"""A server of bytes: it reads HTTP requests from a socket and lets a script write whatever it likes.

A script is one coroutine function, called for every request with the request and the line that it came on. What it does
not write is not sent; the line stays open until the script closes it or the client does, which ends the script.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mcp_types import CallToolResult, ElicitResult, TextContent

from turnwise import HTTP, Client

T = TypeVar("T")

PATIENCE = 10.0
JSON = "application/json"
EVENTS = "text/event-stream"
VERSION = "2026-07-28"
DONE: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
READS: dict[str, tuple[Callable[[Client], Any], dict[str, Any]]] = {
    "server/discover": (
        lambda client: client.discover(),
        {"supportedVersions": [VERSION], "capabilities": {}, "ttlMs": 0, "cacheScope": "private"},
    ),
    "tools/list": (lambda client: client.list_tools(), {"tools": []}),
    "prompts/list": (lambda client: client.list_prompts(), {"prompts": []}),
    "resources/list": (lambda client: client.list_resources(), {"resources": []}),
    "resources/templates/list": (lambda client: client.list_resource_templates(), {"resourceTemplates": []}),
    "resources/read": (lambda client: client.read_resource("memo://a"), {"contents": []}),
    "prompts/get": (lambda client: client.get_prompt("p", {"a": "b"}), {"messages": []}),
    "completion/complete": (
        lambda client: client.complete({"type": "ref/prompt", "name": "p"}, {"name": "a", "value": "b"}),
        {"completion": {"values": []}},
    ),
}


@dataclass(frozen=True)
class Request:
    """What a client sent. The names of its headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float

    @property
    def message(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def rpc(self) -> str:
        return str(self.message["method"])

    @property
    def params(self) -> dict[str, Any]:
        """The parameters without what every request says of its client."""
        return {name: value for name, value in self.message["params"].items() if name != "_meta"}

    def reply(self, result: Mapping[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": dict(result)}

    def refusal(self, code: int, data: Any = None) -> dict[str, Any]:
        error = {"code": code, "message": "no", **({} if data is None else {"data": data})}
        return {"jsonrpc": "2.0", "id": self.id, "error": error}


class Line:
    """One connection, as a script sees it. `gone` is set when the client has closed it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.gone = asyncio.Event()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def json(self, message: Any, status: int = 200, **headers: Any) -> None:
        await self.send(http(json.dumps(message).encode(), status, **headers))

    async def events(self) -> None:
        """Begin a stream of events."""
        await self.send(http(None, kind=EVENTS, transfer_encoding="chunked"))

    async def chunk(self, data: bytes = b"") -> None:
        """A part of the stream; its end, where the part is empty."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        self._writer.transport.abort()


Script = Callable[[Request, Line], Awaitable[None]]
Data = bytes | Callable[[Request], bytes]


@dataclass
class Peer:
    """A script that runs, and what it was sent."""

    script: Script
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    failures: list[Exception] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def sent(self, rpc: str) -> list[Request]:
        return [request for request in self.requests if request.rpc == rpc]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        line, scripts = Line(writer), set()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    request = await _read(reader)
                    self.requests.append(request)
                    scripts.add(asyncio.create_task(self._play(request, line)))
        finally:
            line.gone.set()
            for script in scripts:
                script.cancel()
            writer.transport.abort()

    async def _play(self, request: Request, line: Line) -> None:
        try:
            await self.script(request, line)
        except ConnectionError:
            pass
        except Exception as error:
            self.failures.append(error)
            line.reset()


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[Peer]:
    """The script on a port of its own. What it does wrong is told at the end."""
    peer = Peer(script)
    lines: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.add(asyncio.create_task(peer.serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**26)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for line in lines:
            line.cancel()
        if lines:
            await asyncio.wait(lines)
        if peer.failures:
            raise peer.failures[0]


@asynccontextmanager
async def visiting(
    script: Script, *, largest_reply: int | None = None, **options: Any
) -> AsyncIterator[tuple[Client, Peer]]:
    """A client of the script, which has sent nothing yet."""
    async with serving(script) as peer:
        target = peer.url if largest_reply is None else HTTP(peer.url, largest_reply=largest_reply)
        async with Client(target, **{"mode": "2026-07-28", **options}) as client:
            yield client, peer


def run(flow: Coroutine[Any, Any, T]) -> T:
    """The flow, which must not hang."""
    return asyncio.run(asyncio.wait_for(flow, PATIENCE))


def http(body: bytes | None, status: int = 200, *, kind: str | None = JSON, **headers: Any) -> bytes:
    """A response; one without a body is only begun. Members of `headers` are written with hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if kind is not None:
        named["content-type"] = kind
    if body is not None:
        named.setdefault("content-length", str(len(body)))
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + (body or b"")


def event(message: Any) -> bytes:
    """A message as an event of a stream."""
    return b"data: %b\n\n" % json.dumps(message).encode()


def answering(*parts: Data, close: bool = False) -> Script:
    """Write these bytes, part by part, in reply to every request."""

    async def script(request: Request, line: Line) -> None:
        for part in parts:
            await line.send(part if isinstance(part, bytes) else part(request))
            await asyncio.sleep(0.002)  # A part is a packet of its own.
        if close:
            line.close()

    return script


def done(request: Request) -> bytes:
    return json.dumps(request.reply(DONE)).encode()


def written(template: str) -> Callable[[Request], bytes]:
    """A reply in so many words, in which ID stands for the request's."""
    return lambda request: http(template.replace("ID", str(request.id)).encode())


def streamed(*parts: Data) -> Script:
    """A stream of these bytes, which ends with its connection."""
    return answering(http(None, kind=EVENTS), *parts, close=True)


async def called(script: Script, **options: Any) -> CallToolResult:
    async with visiting(script, **options) as (client, _):
        return await client.call_tool("t", {})


def text_of(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def is_done(script: Script, **options: Any) -> bool:
    return text_of(run(called(script, **options))) == "done"


async def dripping(line: Line) -> None:
    while True:
        await line.chunk(b":")
        await asyncio.sleep(0.01)


def tool(name: str = "t", properties: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties or {}}, **members}


def form(**properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": schema}}


CITY = form(city={"type": "string"})


def interim(requests: Any = None, state: Any = None) -> dict[str, Any]:
    result: dict[str, Any] = {"resultType": "input_required"}
    if requests is not None:
        result["inputRequests"] = requests
    return result if state is None else {**result, "requestState": state}


def in_turn(*results: dict[str, Any], then: dict[str, Any] = DONE) -> Script:
    """These results one after the other, and then always the same."""
    left = list(results)

    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply(left.pop(0) if left else then))

    return script


async def accept(*_: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"city": "Ulm"})


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body, asyncio.get_running_loop().time())
