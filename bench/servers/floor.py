"""The floor: a bare ASGI app that answers the two tools with the least work the protocol allows.

It checks what a server has to check (host, origin, headers against the body, protocol version, client
capability, argument types) and seals the state of a flow with AES-GCM, bound to tool, arguments and expiry.
It knows no schema library, no registry and no third tool; what a real server costs above it is the price of
being general.
"""

import hashlib
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bench.servers.serving import KEY, arguments, serve

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
HOSTS = (b"127.0.0.1:", b"localhost:")
LIFETIME = 600
SERVER_META = {META + "serverInfo": {"name": "bench", "version": "1"}}
VISITOR_SCHEMA = {
    "properties": {"name": {"title": "Name", "type": "string"}},
    "required": ["name"],
    "type": "object",
}

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, PARSE_ERROR = -32600, -32601, -32602, -32700
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022

cipher = AESGCM(hashlib.sha256(KEY).digest())


class Refused(Exception):
    """A request that gets an error instead of a result."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.code, self.message = status, code, message


def check_transport(scope: Scope, headers: dict[bytes, bytes]) -> None:
    if scope["path"] != "/mcp":
        raise Refused(404, INVALID_REQUEST, "No such endpoint")
    if scope["method"] != "POST":
        raise Refused(405, INVALID_REQUEST, "Only POST")
    if not headers.get(b"host", b"").startswith(HOSTS):
        raise Refused(421, INVALID_REQUEST, "Host not allowed")
    if b"origin" in headers:
        raise Refused(403, INVALID_REQUEST, "Origin not allowed")
    if not headers.get(b"content-type", b"").startswith(b"application/json"):
        raise Refused(415, INVALID_REQUEST, "Content-Type must be application/json")
    accept = headers.get(b"accept", b"")
    if b"application/json" not in accept or b"text/event-stream" not in accept:
        raise Refused(406, INVALID_REQUEST, "Accept must list application/json and text/event-stream")


def parse(body: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Refused(400, PARSE_ERROR, "Parse error") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise Refused(400, INVALID_REQUEST, "Not a JSON-RPC message")
    if type(message.get("id")) not in (int, str):
        raise Refused(400, INVALID_REQUEST, "Not a JSON-RPC request")
    return message


def check_envelope(message: dict[str, Any], headers: dict[bytes, bytes]) -> dict[str, Any]:
    """Hold the headers against the body and give back the params."""
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str) or not isinstance(params, dict):
        raise Refused(400, INVALID_PARAMS, "Missing method or params")
    meta = params.get("_meta")
    if not isinstance(meta, dict) or not isinstance(meta.get(META + "clientCapabilities"), dict):
        raise Refused(400, INVALID_PARAMS, "Missing _meta")
    version = meta.get(META + "protocolVersion")
    if headers.get(b"mcp-protocol-version", b"").decode("latin-1") != version:
        raise Refused(400, HEADER_MISMATCH, "MCP-Protocol-Version does not match the body")
    if version != VERSION:
        raise Refused(400, UNSUPPORTED_VERSION, "Unsupported protocol version")
    if headers.get(b"mcp-method", b"").decode("latin-1") != method:
        raise Refused(400, HEADER_MISMATCH, "Mcp-Method does not match the body")
    if method != "tools/call":
        raise Refused(404, METHOD_NOT_FOUND, "Method not found")
    if headers.get(b"mcp-name", b"").decode("latin-1") != params.get("name"):
        raise Refused(400, HEADER_MISMATCH, "Mcp-Name does not match the body")
    return params


def digest(given: dict[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(given, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def seal(tool: str, given: dict[str, Any]) -> str:
    nonce = os.urandom(12)
    claims = orjson.dumps([tool, digest(given), int(time.time()) + LIFETIME])
    return urlsafe_b64encode(nonce + cipher.encrypt(nonce, claims, None)).decode()


def unseal(state: Any, tool: str, given: dict[str, Any]) -> None:
    """Accept a state only for the call it was made for, and only in time."""
    try:
        raw = urlsafe_b64decode(state)
        bound_tool, bound_digest, expiry = orjson.loads(cipher.decrypt(raw[:12], raw[12:], None))
    except (InvalidTag, ValueError, TypeError):
        raise Refused(400, INVALID_PARAMS, "Invalid or expired requestState") from None
    if bound_tool != tool or bound_digest != digest(given) or expiry < time.time():
        raise Refused(400, INVALID_PARAMS, "Invalid or expired requestState")


def complete(text: str, structured: Any = None) -> dict[str, Any]:
    result = {"content": [{"text": text, "type": "text"}], "isError": False, "resultType": "complete"}
    if structured is not None:
        result["structuredContent"] = {"result": structured}
    result["_meta"] = SERVER_META
    return result


def add(given: dict[str, Any]) -> dict[str, Any]:
    a, b = given.get("a"), given.get("b")
    if type(a) is not int or type(b) is not int:
        raise Refused(400, INVALID_PARAMS, "a and b are integers")
    return complete(str(a + b), a + b)


def greet(given: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    city = given.get("city")
    if type(city) is not str:
        raise Refused(400, INVALID_PARAMS, "city is a string")
    if "requestState" not in params:
        return ask_visitor(city, given, params)
    unseal(params["requestState"], "greet", given)
    match params.get("inputResponses"):
        case {"visitor": {"action": "accept", "content": {"name": str(name)}}}:
            return complete(f"Hello {name} from {city}")
    raise Refused(400, INVALID_PARAMS, "The answer does not fit the question")


def ask_visitor(city: str, given: dict[str, Any], params: dict[str, Any]) -> dict[str, Any]:
    if "elicitation" not in params["_meta"][META + "clientCapabilities"]:
        raise Refused(400, MISSING_CAPABILITY, "The client declared no elicitation")
    form = {"message": f"Who is visiting {city}?", "mode": "form", "requestedSchema": VISITOR_SCHEMA}
    return {
        "inputRequests": {"visitor": {"method": "elicitation/create", "params": form}},
        "requestState": seal("greet", given),
        "resultType": "input_required",
        "_meta": SERVER_META,
    }


def call(params: dict[str, Any]) -> dict[str, Any]:
    given = params.get("arguments")
    if not isinstance(given, dict):
        raise Refused(400, INVALID_PARAMS, "arguments is an object")
    match params["name"]:
        case "add":
            return add(given)
        case "greet":
            return greet(given, params)
    raise Refused(400, INVALID_PARAMS, "Unknown tool")


async def read(receive: Receive) -> bytes:
    event = await receive()
    body: bytes = event.get("body", b"")
    while event.get("more_body"):
        event = await receive()
        body += event.get("body", b"")
    return body


def answer(scope: Scope, body: bytes) -> tuple[int, dict[str, Any]]:
    request_id = None
    try:
        headers = dict(scope["headers"])
        check_transport(scope, headers)
        message = parse(body)
        request_id = message["id"]
        result = call(check_envelope(message, headers))
        return 200, {"jsonrpc": "2.0", "id": request_id, "result": result}
    except Refused as refused:
        error = {"code": refused.code, "message": refused.message}
        return refused.status, {"jsonrpc": "2.0", "id": request_id, "error": error}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    status, reply = answer(scope, await read(receive))
    body = orjson.dumps(reply)
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    serve(app, arguments().parse_args().port, fast=True, lifespan="off")
