"""The other side of the client benchmark: a bare protocol whose replies are composed, not computed.

It answers `server/discover`, `tools/list` and the two tools of the benchmark, and it holds each retry against the
state it gave out. It seals nothing and checks no header; what a server has to check is the floor's business.
"""

import asyncio
from typing import Any, cast

import orjson
import uvloop

from bench.servers.floor import SERVER_META, VERSION, VISITOR_SCHEMA, complete
from bench.servers.serving import arguments

FRESH = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete", "_meta": SERVER_META}
DISCOVERED = {"supportedVersions": [VERSION], "capabilities": {"tools": {}}, **FRESH}
TOOLS = [
    {
        "name": "add",
        "description": "Add two integers.",
        "inputSchema": {
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
            "type": "object",
        },
    },
    {
        "name": "greet",
        "description": "Greet a visitor by name.",
        "inputSchema": {"properties": {"city": {"type": "string"}}, "required": ["city"], "type": "object"},
    },
]
STATE_LENGTH = 140
"""What a small sealed state has on the wire."""


class Unexpected(Exception):
    """Bytes that no client of the benchmark should send."""


class Answering(asyncio.Protocol):
    """One keep-alive connection; requests come one at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._pending + data if self._pending else data
        try:
            body = request_body(data)
            self._pending = data if body is None else b""
            if body is not None:
                self._transport.write(reply_to(orjson.loads(body)))
        except (Unexpected, ValueError, LookupError) as wrong:
            self._transport.write(reply(400, repr(wrong).encode()))
            self._transport.close()


def request_body(data: bytes) -> bytes | None:
    """The body of the one request in `data`, or None while it is incomplete."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return None
    if not head.startswith(b"POST /mcp "):
        raise Unexpected(head)
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    if not found:
        raise Unexpected(head)
    length = int(rest.partition(b"\r\n")[0])
    if len(body) > length:
        raise Unexpected(body[length:])
    return body if len(body) == length else None


def reply_to(message: dict[str, Any]) -> bytes:
    result = result_of(message["method"], message["params"])
    return reply(200, orjson.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}))


def reply(status: int, body: bytes) -> bytes:
    head = b"HTTP/1.1 %d \r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def result_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method, params:
        case "tools/call", {"name": "greet", "arguments": {"city": str(city)}}:
            return greet(city, params)
        case "tools/call", {"name": "add", "arguments": {"a": int(a), "b": int(b)}}:
            return complete(str(a + b), a + b)
        case "server/discover", _:
            return DISCOVERED
        case "tools/list", _:
            return {"tools": TOOLS, **FRESH}
    raise Unexpected(method, params)


def greet(city: str, params: dict[str, Any]) -> dict[str, Any]:
    state = f"state of {city} ".ljust(STATE_LENGTH, "=")
    match params:
        case {"inputResponses": {"visitor": {"action": "accept", "content": {"name": str(name)}}}}:
            if params["requestState"] != state:
                raise Unexpected(params)
            return complete(f"Hello {name} from {city}")
        case {"inputResponses": _} | {"requestState": _}:
            raise Unexpected(params)
    form = {"message": f"Who is visiting {city}?", "mode": "form", "requestedSchema": VISITOR_SCHEMA}
    return {
        "inputRequests": {"visitor": {"method": "elicitation/create", "params": form}},
        "requestState": state,
        "resultType": "input_required",
        "_meta": SERVER_META,
    }


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answering, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(arguments().parse_args().port))
