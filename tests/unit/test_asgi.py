"""The HTTP endpoint, driven in this process as an ASGI server drives it: whom it lets in, how it streams and ends."""

import asyncio
import base64
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any, NamedTuple

import pytest
from fastapi import FastAPI
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount

from turnwise import (
    AcceptedElicitation,
    AccessToken,
    AuthorError,
    AuthSettings,
    Change,
    Context,
    InMemoryBus,
    InvalidSignature,
    MCPServer,
    ToolError,
)

VERSION = "2026-07-28"
PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META: dict[str, Any] = {PROTOCOL: VERSION, CAPABILITIES: {"elicitation": {}}}
NOTHING: dict[str, Any] = {CAPABILITIES: {}}
PATIENCE = 5.0

App = Callable[..., Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Response(NamedTuple):
    status: int
    headers: Headers
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        found = [value for key, value in self.headers if key.lower() == name]
        assert len(found) <= 1, found
        return found[0] if found else None

    @property
    def json(self) -> Any:
        assert self.header(b"content-type") == b"application/json"
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return "".join(part["text"] for part in self.json["result"]["content"])

    @property
    def code(self) -> int:
        code: int = self.json["error"]["code"]
        return code

    @property
    def events(self) -> list[Any]:
        return events(self.body)


def events(stream: bytes) -> list[Any]:
    """The messages of an event stream; comments are skipped, and an event with an id is an error."""
    messages = []
    for block in stream.decode().split("\r\n\r\n"):
        lines = [line for line in block.split("\r\n") if line and not line.startswith(":")]
        fields = dict(line.split(": ", 1) for line in lines)
        assert "id" not in fields
        if "data" in fields:
            messages.append(json.loads(fields["data"]))
    return messages


class Exchange:
    """One request as an ASGI server carries it; what the application sends can be read while it runs."""

    def __init__(self, app: App, scope: dict[str, Any], chunks: Sequence[bytes], finished: bool = True) -> None:
        last = len(chunks) - 1 if finished else len(chunks)
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.received = 0
        self.blocked: asyncio.Event | None = None
        self.broken = False
        self._news = asyncio.Condition()
        for number, chunk in enumerate(chunks):
            self.inbox.put_nowait({"type": "http.request", "body": chunk, "more_body": number < last})
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        self.received += 1
        return await self.inbox.get()

    async def _send(self, message: dict[str, Any]) -> None:
        if self.broken:
            raise OSError("the client has gone")
        if self.blocked is not None:
            await self.blocked.wait()
        async with self._news:
            self.sent.append(message)
            self._news.notify_all()

    def hang_up(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE), self._news:
            await self._news.wait_for(happened)

    @property
    def stream(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def ended(self) -> Response:
        async with asyncio.timeout(PATIENCE):
            await self.task
        starts = [message for message in self.sent if message["type"] == "http.response.start"]
        assert len(starts) == 1, self.sent
        assert self.sent[0] is starts[0]
        assert not self.sent[-1].get("more_body", False)
        assert all(message.get("more_body") for message in self.sent[1:-1])
        return Response(starts[0]["status"], list(starts[0]["headers"]), self.stream)


def request(method: str, params: dict[str, Any] | None = None, *, id: Any = 1, **meta: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": META | meta}}


def calling(name: str, arguments: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": arguments or {}}, **meta)


def speaking(version: str) -> dict[str, Any]:
    return {PROTOCOL: version}


def headers_of(message: Any, **changes: Any) -> Headers:
    """The headers that a good client sends with a message; a change of None leaves one away."""
    whole = {b"host": b"127.0.0.1:8000", b"content-type": b"application/json"}
    whole[b"accept"] = b"application/json, text/event-stream"
    if isinstance(message, dict) and "id" in message:
        params = message.get("params", {})
        whole[b"mcp-protocol-version"] = VERSION.encode()
        whole[b"mcp-method"] = str(message.get("method")).encode()
        if isinstance(named := params.get("name", params.get("uri")), str):
            whole[b"mcp-name"] = named.encode()
    for name, value in changes.items():
        whole[name.replace("_", "-").encode()] = value.encode() if isinstance(value, str) else value
    return [(name, value) for name, value in whole.items() if value is not None]


def begin(
    app: App,
    message: Any,
    headers: Headers | None = None,
    *,
    method: str = "POST",
    path: str = "/mcp",
    chunks: Sequence[bytes] | None = None,
    finished: bool = True,
) -> Exchange:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers_of(message) if headers is None else headers,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
    return Exchange(app, scope, [body] if chunks is None else chunks, finished)


def send(app: App, message: Any, headers: Headers | None = None, **options: Any) -> Response:
    async def main() -> Response:
        return await begin(app, message, headers, **options).ended()

    return asyncio.run(main())


class City(BaseModel):
    city: str


def make_server(**options: Any) -> MCPServer:
    server = MCPServer("http", **options)

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def where(ctx: Context) -> str:
        chosen = await ctx.elicit("Which city?", City, key="city")
        return chosen.data.city if isinstance(chosen, AcceptedElicitation) else "nowhere"

    @server.tool()
    async def progress(ctx: Context, fail: str = "") -> str:
        await ctx.report_progress(1, 2)
        if fail:
            raise ToolError(fail)
        await ctx.report_progress(2, 2)
        return "done"

    @server.tool()
    async def progress_then_ask(ctx: Context) -> str:
        await ctx.report_progress(1)
        return str((await ctx.elicit("Which city?", City, key="city")).action)

    @server.prompt("grüße ☃")
    async def greet() -> str:
        return "hello"

    @server.prompt("=?base64?literal?=")
    async def literal() -> str:
        return "hello"

    @server.prompt(" padded ")
    async def padded() -> str:
        return "hello"

    @server.resource("memo://☃")
    async def memo() -> str:
        return "snow"

    return server


ADD = calling("add", {"a": 1, "b": 2})
SERVER = make_server()
APP = SERVER.asgi()


# The endpoint


def test_a_call_is_answered_with_plain_json_of_a_known_length() -> None:
    response = send(APP, ADD)
    assert (response.status, response.text) == (200, "3")
    assert response.header(b"content-length") == str(len(response.body)).encode()
    assert response.header(b"mcp-session-id") is None


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS", "PUT", "PATCH", "HEAD"])
def test_anything_but_post_is_not_allowed_and_told_what_is(method: str) -> None:
    response = send(APP, b"", method=method)
    assert (response.status, response.header(b"allow")) == (405, b"POST")


@pytest.mark.parametrize("path", ["/", "/other", "/mcp/x", "/mcpx", "/MCP", "", "//mcp"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_any_other_path_is_not_found(path: str, method: str) -> None:
    response = send(APP, ADD, method=method, path=path)
    assert response.status == 404
    assert "error" in response.json


def test_a_slash_at_the_end_of_the_path_does_not_matter() -> None:
    assert send(APP, ADD, path="/mcp/").text == "3"
    assert send(SERVER.asgi(path="/mcp/"), ADD, path="/mcp").text == "3"
    assert send(SERVER.asgi(path="/"), ADD, path="/").text == "3"


def test_session_and_resumption_headers_of_older_clients_are_ignored_and_not_echoed() -> None:
    response = send(APP, ADD, headers_of(ADD, mcp_session_id="abc", last_event_id="5"))
    assert response.text == "3"
    assert not {name for name, _ in response.headers} & {b"mcp-session-id", b"last-event-id"}


def test_a_notification_is_accepted_without_a_body() -> None:
    response = send(APP, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert (response.status, response.body) == (202, b"")


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        (b"{", 400, -32700),
        (b"", 400, -32700),
        ([ADD], 400, -32600),
        ({"jsonrpc": "2.0", "id": 1, "result": {}}, 400, -32600),
        (request("no/such"), 404, -32601),
        (request("tools/list", **speaking("2025-11-25")), 400, -32020),
        (request("tools/list", **NOTHING | {CAPABILITIES: None}), 400, -32602),
        (calling("where", **NOTHING), 400, -32021),
        (calling("nobody"), 200, -32602),
    ],
)
def test_errors_before_a_stream_begins_have_their_status(message: Any, status: int, code: int) -> None:
    response = send(APP, message)
    assert (response.status, response.code) == (status, code)


def test_a_version_not_served_here_is_told_apart_from_a_wrong_header() -> None:
    message = request("tools/list", **speaking("2031-01-01"))
    response = send(APP, message, headers_of(message, mcp_protocol_version="2031-01-01"))
    assert (response.status, response.code) == (400, -32022)
    assert response.json["error"]["data"] == {"supported": [VERSION], "requested": "2031-01-01"}


def test_a_websocket_is_closed() -> None:
    sent: list[dict[str, Any]] = []

    async def main() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await APP({"type": "websocket", "path": "/mcp", "headers": []}, receive, send)

    asyncio.run(main())
    assert [message["type"] for message in sent] == ["websocket.close"]


# Who may call


def knocking(app: App, host: str | None, origin: str | None = None) -> int:
    return send(app, ADD, headers_of(ADD, host=host, origin=origin)).status


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "localhost:1", "LocalHost:80", "[::1]", "[::1]:8000"]
)
def test_bound_to_localhost_local_hosts_are_served(host: str) -> None:
    assert knocking(APP, host) == 200


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost:8000.evil.example",
        "localhost@evil.example",
        "evil.example:localhost",
        "[::1].evil.example",
        "[::1",
        "0.0.0.0",
        "::1",
        "localhost, evil.example",
    ],
)
def test_bound_to_localhost_no_other_host_is(host: str | None) -> None:
    assert knocking(APP, host) in (400, 403, 421)


@pytest.mark.parametrize(
    "origin",
    ["http://localhost", "http://localhost:3000", "https://127.0.0.1", "http://[::1]:5173", "HTTP://LOCALHOST"],
)
def test_bound_to_localhost_local_pages_may_call(origin: str) -> None:
    assert knocking(APP, "localhost:8000", origin) == 200


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "http://evil.example",
        "https://evil.example:8000",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "http://evil.example/localhost",
        "http://localhost:3000.evil.example",
        "http://evil.example#localhost",
        "file://",
        "file://localhost",
        "javascript://localhost",
        "chrome-extension://localhost",
        "localhost",
        "//localhost",
        "http:localhost",
        "http://",
        "http://localhost http://evil.example",
        "*",
    ],
)
def test_bound_to_localhost_no_other_page_may(origin: str) -> None:
    assert knocking(APP, "localhost:8000", origin) == 403


@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
def test_a_bad_origin_is_forbidden_on_every_method(method: str) -> None:
    response = send(APP, b"", headers_of(b"", origin="http://evil.example"), method=method)
    assert response.status == 403


def test_a_forbidden_origin_is_told_so_in_json_without_an_id() -> None:
    response = send(APP, ADD, headers_of(ADD, origin="http://evil.example"))
    assert response.status == 403
    assert set(response.json) == {"jsonrpc", "error"}


def test_hosts_that_the_author_names_replace_the_local_ones() -> None:
    app = SERVER.asgi(allowed_hosts=["api.example.com", "[2001:db8::1]"])
    assert knocking(app, "api.example.com") == 200
    assert knocking(app, "api.example.com:443") == 200
    assert knocking(app, "API.Example.COM") == 200
    assert knocking(app, "[2001:db8::1]:8000") == 200
    assert knocking(app, "localhost") in (403, 421)
    assert knocking(app, "evil.example") in (403, 421)
    assert knocking(app, "api.example.com", "https://api.example.com") == 200
    assert knocking(app, "api.example.com", "http://localhost") == 403


def test_a_host_with_a_port_is_served_on_that_port_alone() -> None:
    app = SERVER.asgi(allowed_hosts=["api.example.com:8443"])
    assert knocking(app, "api.example.com:8443") == 200
    assert knocking(app, "api.example.com:9000") in (403, 421)


def test_origins_that_the_author_names_may_call_besides() -> None:
    app = SERVER.asgi(allowed_origins=["https://app.example.com"])
    assert knocking(app, "localhost", "https://app.example.com") == 200
    assert knocking(app, "localhost", "https://APP.example.com") == 200
    assert knocking(app, "localhost", "http://localhost:3000") == 200
    assert knocking(app, "localhost", "http://app.example.com") == 403
    assert knocking(app, "localhost", "https://app.example.com:444") == 403
    assert knocking(app, "localhost", "https://app.example.com.evil.example") == 403


def test_names_are_compared_without_regard_to_case_on_both_sides() -> None:
    app = SERVER.asgi(allowed_hosts=["API.example.com"], allowed_origins=["https://App.example.com"])
    assert knocking(app, "api.example.com") == 200
    assert knocking(app, "api.example.com", "https://app.example.com") == 200


def test_a_star_lets_every_origin_in_even_null() -> None:
    app = SERVER.asgi(allowed_origins=["*"])
    assert knocking(app, "localhost", "null") == 200
    assert knocking(app, "localhost", "http://anything.example") == 200


def test_bound_to_the_network_a_foreign_page_may_not_call() -> None:
    app = SERVER.asgi(host="0.0.0.0")
    assert knocking(app, "anything.example") == 200
    assert knocking(app, "api.example.com", "http://evil.example") == 403
    assert knocking(app, "api.example.com", "null") == 403


def test_where_every_host_is_let_in_the_same_host_is_no_proof() -> None:
    """A page whose name was pointed at this server has it in both headers."""
    app = SERVER.asgi(host="0.0.0.0")
    assert knocking(app, "rebound.example:8000", "http://rebound.example:8000") == 403
    named = SERVER.asgi(host="0.0.0.0", allowed_hosts=["api.example.com"])
    for app in (named, SERVER.asgi(host="0.0.0.0", allowed_origins=["http://api.example.com:8000"])):
        assert knocking(app, "api.example.com:8000", "http://api.example.com:8000") == 200


def test_bound_to_the_network_a_page_whose_name_was_rebound_to_us_may_not_call() -> None:
    # After DNS rebinding, the browser sends the attacker's own name as Host and as Origin: their match proves nothing.
    app = SERVER.asgi(host="0.0.0.0")
    assert knocking(app, "evil.example:8000", "http://evil.example:8000") == 403


# What may be sent


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"]
)
def test_json_is_read_however_its_type_is_written(kind: str) -> None:
    assert send(APP, ADD, headers_of(ADD, content_type=kind)).text == "3"


@pytest.mark.parametrize(
    "kind", [None, "", "text/plain", "application/jsonx", "application/x-www-form-urlencoded", ";"]
)
def test_any_other_type_is_unsupported(kind: str | None) -> None:
    response = send(APP, ADD, headers_of(ADD, content_type=kind))
    assert response.status == 415
    assert response.code == -32600


@pytest.mark.parametrize(
    "accept",
    [
        "application/json, text/event-stream",
        "text/event-stream,application/json",
        "application/json;q=0.9, text/event-stream;q=0.5",
        "*/*",
        "text/html, */*;q=0.1",
        "application/*, text/*",
        "Application/JSON, Text/Event-Stream",
    ],
)
def test_a_client_that_accepts_both_kinds_of_reply_is_served(accept: str) -> None:
    assert send(APP, ADD, headers_of(ADD, accept=accept)).status == 200


def test_accept_may_come_in_two_lines() -> None:
    headers = headers_of(ADD, accept="application/json")
    assert send(APP, ADD, [*headers, (b"accept", b"text/event-stream")]).status == 200


@pytest.mark.parametrize(
    "accept", ["application/json", "text/event-stream", "text/html", "application/jsonx, text/event-streams"]
)
def test_a_client_that_does_not_is_told_so(accept: str) -> None:
    assert send(APP, ADD, headers_of(ADD, accept=accept)).status == 406


SMALL = SERVER.asgi(max_body=1000)


def padded(size: int) -> bytes:
    body = json.dumps(ADD).encode()
    return body + b" " * (size - len(body))


def test_a_body_of_just_the_limit_is_read_and_one_byte_more_is_not() -> None:
    headers = headers_of(ADD)
    assert send(SMALL, padded(1000), headers).text == "3"
    assert send(SMALL, padded(1001), headers).status == 413


def test_a_body_announced_as_too_large_is_refused_before_it_is_read() -> None:
    async def main() -> tuple[Response, int]:
        exchange = begin(SMALL, ADD, headers_of(ADD, content_length="1001"))
        return await exchange.ended(), exchange.received

    response, received = asyncio.run(main())
    assert (response.status, received) == (413, 0)


def test_a_body_that_grows_too_large_is_refused_as_soon_as_it_is() -> None:
    async def main() -> tuple[Response, int]:
        exchange = begin(SMALL, b"", headers_of(ADD, content_length="10"), chunks=[b"x" * 400] * 100)
        return await exchange.ended(), exchange.received

    response, received = asyncio.run(main())
    assert (response.status, received) == (413, 3)


@pytest.mark.parametrize("length", ["", "abc", "-5", "1e3", "0x10", "+1", " 7", "²", "9" * 5000])
def test_a_length_that_is_none_does_not_break_anything(length: str) -> None:
    headers = [*headers_of(ADD), (b"content-length", length.encode("latin-1"))]
    assert send(SMALL, ADD, headers).status in (200, 400, 413)


def test_a_body_may_come_in_pieces_of_any_size() -> None:
    body = json.dumps(ADD).encode()
    single = [body[place : place + 1] for place in range(len(body))]
    for chunks in (single, [b"", body], [body, b""], [b"", b"", body[:5], b"", body[5:], b""]):
        assert send(APP, ADD, chunks=chunks).text == "3"


def test_a_client_that_goes_while_its_body_is_read_has_sent_nothing() -> None:
    server, ran = MCPServer("s"), []

    @server.tool()
    async def run() -> str:
        ran.append(1)
        return ""

    async def main(chunks: list[bytes]) -> None:
        exchange = begin(server.asgi(), calling("run"), chunks=chunks, finished=False)
        exchange.hang_up()
        async with asyncio.timeout(PATIENCE):
            await exchange.task

    body = json.dumps(calling("run")).encode()
    for chunks in ([], [body[:20]], [body]):
        asyncio.run(main(chunks))
    assert ran == []


TWICE = ["mcp-protocol-version", "mcp-method", "mcp-name", "host", "origin", "authorization", "content-type"]


@pytest.mark.parametrize("name", TWICE)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("same", [False, True])
def test_a_header_that_decides_something_may_not_come_twice(name: str, swapped: bool, same: bool) -> None:
    ran: list[int] = []
    server = MCPServer("s")
    server.add_tool(lambda: ran.append(1), "run")
    good = {"host": "localhost", "origin": "http://localhost", "authorization": "Bearer a"}
    headers = headers_of(calling("run"), **good)
    value = dict(headers)[name.encode()]
    extra = (name.encode(), value if same else b"other")
    response = send(server.asgi(), calling("run"), [extra, *headers] if swapped else [*headers, extra])
    assert 400 <= response.status < 500
    assert ran == []


def test_a_mirrored_parameter_may_not_come_twice() -> None:
    message = calling("route", {"region": "eu"})
    headers = headers_of(message, mcp_param_region="eu")
    assert send(ROUTES, message, [*headers, (b"mcp-param-region", b"us")]).status == 400
    assert send(ROUTES, message, [(b"mcp-param-region", b"us"), *headers]).status == 400


def test_a_header_that_decides_nothing_may_come_twice() -> None:
    headers = [*headers_of(ADD), (b"x-forwarded-for", b"a"), (b"x-forwarded-for", b"b"), (b"cookie", b"c")]
    assert send(APP, ADD, headers).text == "3"


# Headers that repeat the body


@pytest.mark.parametrize("name", ["mcp_protocol_version", "mcp_method", "mcp_name"])
@pytest.mark.parametrize("value", [None, "", "other", b"\xe9", b"a\x00b", b"\xff\xfe", "=?base64??="])
def test_a_header_that_is_missing_or_differs_is_a_mismatch(name: str, value: Any) -> None:
    response = send(APP, ADD, headers_of(ADD, **{name: value}))
    assert (response.status, response.code, response.json["id"]) == (400, -32020, 1)


@pytest.mark.parametrize(
    ("name", "value"), [("mcp_method", "Tools/Call"), ("mcp_method", "tools/list"), ("mcp_name", "Add")]
)
def test_header_values_are_compared_by_case(name: str, value: str) -> None:
    assert send(APP, ADD, headers_of(ADD, **{name: value})).code == -32020


def test_blanks_around_a_header_do_not_count() -> None:
    assert send(APP, ADD, headers_of(ADD, mcp_name=" add\t", mcp_method="\ttools/call ")).text == "3"


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize("name", ["grüße ☃", "=?base64?literal?=", " padded "])
def test_a_name_that_no_header_can_carry_comes_in_base64(name: str) -> None:
    message = request("prompts/get", {"name": name})
    assert send(APP, message, headers_of(message, mcp_name=encoded(name))).json["result"]["messages"]
    assert send(APP, message, headers_of(message, mcp_name=name)).code == -32020


def test_a_uri_that_no_header_can_carry_comes_in_base64() -> None:
    message = request("resources/read", {"uri": "memo://☃"})
    assert send(APP, message, headers_of(message, mcp_name=encoded("memo://☃"))).json["result"]["contents"]


def test_a_plain_name_may_come_in_base64_too() -> None:
    assert send(APP, ADD, headers_of(ADD, mcp_name=encoded("add"))).text == "3"


@pytest.mark.parametrize(
    "value",
    [
        "=?BASE64?YWRk?=",
        "=?base64?YWR?=",
        "=?base64?Y W R k?=",
        "=?base64?YWRk",
        "YWRk?=",
        "=?base64?/w==?=",
        "=?base64?7aCA?=",
        "=?base64?=",
        "=?base64?YWRk?= ",
    ],
)
def test_base64_must_be_written_exactly(value: str) -> None:
    expected = 200 if value.strip() == encoded("add") else 400
    assert send(APP, ADD, headers_of(ADD, mcp_name=value)).status == expected


@pytest.mark.parametrize("name", ["mcp_method", "mcp_protocol_version"])
def test_base64_is_for_names_and_parameters_alone(name: str) -> None:
    plain = {"mcp_method": "tools/call", "mcp_protocol_version": VERSION}[name]
    assert send(APP, ADD, headers_of(ADD, **{name: encoded(plain)})).code == -32020


def test_methods_that_name_nothing_need_no_name() -> None:
    message = request("tools/list")
    assert send(APP, message).status == 200
    assert send(APP, message, headers_of(message, mcp_name="anything")).status == 200


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_methods_that_name_something_need_the_name(method: str) -> None:
    message = request(method, {"name": "add", "uri": "memo://x"})
    assert send(APP, message, headers_of(message, mcp_name=None)).code == -32020


# Parameters that are mirrored into headers

Region = Annotated[str | None, Field(json_schema_extra={"x-mcp-header": "Region"})]
Limit = Annotated[int | None, Field(json_schema_extra={"x-mcp-header": "Limit"})]
Dry = Annotated[bool | None, Field(json_schema_extra={"x-mcp-header": "Dry-Run"})]
NESTED = {
    "type": "object",
    "properties": {
        "where": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
    },
}


def routes() -> App:
    server = MCPServer("routes")

    @server.tool()
    async def route(region: Region = None, limit: Limit = None, dry: Dry = None) -> str:
        return f"{region} {limit} {dry}"

    @server.tool(input_schema=NESTED)
    async def nested(where: Any = None) -> str:
        return json.dumps(where)

    return server.asgi()


ROUTES = routes()


def routed(arguments: dict[str, Any], tool: str = "route", **headers: Any) -> Response:
    message = calling(tool, arguments)
    return send(ROUTES, message, headers_of(message, **{f"mcp_param_{name}": value for name, value in headers.items()}))


def is_mismatch(response: Response) -> bool:
    return (response.status, response.json.get("error", {}).get("code")) == (400, -32020)


def test_mirrored_parameters_that_match_are_served() -> None:
    response = routed({"region": "eu", "limit": 42, "dry": True}, region="eu", limit="42", dry_run="true")
    assert response.text == "eu 42 True"


def test_a_parameter_without_a_value_has_no_header() -> None:
    assert routed({}).text == "None None None"
    assert routed({"region": None, "limit": None}).text == "None None None"
    assert is_mismatch(routed({}, region="eu"))
    assert is_mismatch(routed({"region": None}, region="eu"))
    assert is_mismatch(routed({"region": None}, region="null"))


def test_a_parameter_with_a_value_must_have_its_header() -> None:
    assert is_mismatch(routed({"region": "eu"}))
    assert is_mismatch(routed({"limit": 0}))
    assert is_mismatch(routed({"dry": False}))
    assert is_mismatch(routed({"region": ""}))
    assert routed({"region": ""}, region="").status == 200


@pytest.mark.parametrize("value", ["us", "EU", "eu-1", b"\xe9", b"e\x7fu", b"e\x00u", encoded("us"), "=?base64?!!?="])
def test_a_text_is_compared_as_it_is(value: Any) -> None:
    assert is_mismatch(routed({"region": "eu"}, region=value))


@pytest.mark.parametrize("text", ["Hello, 世界", " padded ", "line1\nline2", "=?base64?literal?=", "", "\x00", "a\tb"])
def test_any_text_can_be_mirrored_in_base64(text: str) -> None:
    assert routed({"region": text}, region=encoded(text)).text == f"{text} None None"


@pytest.mark.parametrize(("body", "header"), [(42, "42"), (42, "42.0"), (-7, "-7"), (0, "0"), (42.0, "42"), (0, "-0")])
def test_whole_numbers_are_compared_by_value(body: Any, header: str) -> None:
    assert routed({"limit": body}, limit=header).status == 200


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (42, "43"),
        (42, "-42"),
        (42, "42.5"),
        (42, "0x2a"),
        (42, "4_2"),
        (42, ""),
        (42, "NaN"),
        (42, "infinity"),
        (42, "42,42"),
        (42, "forty-two"),
        (42, "42" + "0" * 400),
        (42, "٤٢"),
        (1, "true"),
        (2**53, str(2**53)),
        (2**53 + 1, str(2**53)),
        (10**30, str(10**30)),
    ],
)
def test_whole_numbers_that_differ_or_cannot_be_compared_are_a_mismatch(body: Any, header: str) -> None:
    assert is_mismatch(routed({"limit": body}, limit=header))


@pytest.mark.parametrize(("body", "header"), [(True, "True"), (True, "1"), (True, "false"), (False, ""), (True, "yes")])
def test_truth_is_written_in_small_letters(body: bool, header: str) -> None:
    assert is_mismatch(routed({"dry": body}, dry_run=header))


@pytest.mark.parametrize("value", [[], {}, ["eu"], {"a": "eu"}])
def test_a_value_that_no_header_can_repeat_is_a_mismatch(value: Any) -> None:
    assert is_mismatch(routed({"region": value}, region="eu"))
    assert is_mismatch(routed({"region": value}))


def test_a_nested_parameter_is_found_at_its_place() -> None:
    assert routed({"where": {"region": "eu"}}, "nested", region="eu").status == 200
    assert is_mismatch(routed({"where": {"region": "eu"}}, "nested", region="us"))
    assert is_mismatch(routed({"where": {"region": "eu"}}, "nested"))
    without: list[dict[str, Any]] = [{}, {"where": None}, {"where": {}}, {"where": "eu"}, {"where": [{"region": "eu"}]}]
    for arguments in without:
        assert routed(arguments, "nested").status == 200
        assert is_mismatch(routed(arguments, "nested", region="eu"))


def test_headers_of_parameters_that_nobody_marked_are_ignored() -> None:
    assert routed({"region": "eu"}, region="eu", other="x").status == 200


@pytest.mark.parametrize(
    "properties",
    [
        {"x": {"type": "number", "x-mcp-header": "X"}},
        {"x": {"type": "array", "items": {"type": "string"}, "x-mcp-header": "X"}},
        {"x": {"type": "object", "x-mcp-header": "X"}},
        {"x": {"x-mcp-header": "X"}},
        {"x": {"type": "string", "x-mcp-header": ""}},
        {"x": {"type": "string", "x-mcp-header": "a b"}},
        {"x": {"type": "string", "x-mcp-header": "a\r\nb"}},
        {"x": {"type": "string", "x-mcp-header": "a\n"}},
        {"x": {"type": "string", "x-mcp-header": "ä"}},
        {"x": {"type": "string", "x-mcp-header": "a:b"}},
        {"x": {"type": "string", "x-mcp-header": 5}},
        {"x": {"type": "string", "x-mcp-header": "A"}, "y": {"type": "string", "x-mcp-header": "a"}},
        {"x": {"type": "array", "items": {"type": "string", "x-mcp-header": "X"}}},
        {"x": {"anyOf": [{"type": "string", "x-mcp-header": "X"}]}},
        {"x": {"anyOf": [{"type": "string"}, {"type": "number"}], "x-mcp-header": "X"}},
    ],
)
def test_a_mark_that_clients_would_reject_is_refused_at_registration(properties: dict[str, Any]) -> None:
    with pytest.raises(InvalidSignature):
        MCPServer("s").add_tool(
            lambda x=None, y=None: "", "t", input_schema={"type": "object", "properties": properties}
        )


def test_a_mark_behind_a_reference_is_refused_at_registration() -> None:
    class Inner(BaseModel):
        region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]

    def tool(where: Inner) -> str:
        return ""

    with pytest.raises(InvalidSignature):
        MCPServer("s").add_tool(tool)


def test_a_mark_on_a_text_or_null_is_taken_or_refused_in_so_many_words() -> None:
    schema = {"type": "object", "properties": {"x": {"type": ["string", "null"], "x-mcp-header": "X"}}}
    with suppress(InvalidSignature):
        MCPServer("s").add_tool(lambda x=None: "", "t", input_schema=schema)


# Streams


def test_a_reply_becomes_a_stream_only_when_there_is_something_to_say_first() -> None:
    quiet = send(APP, calling("progress"))
    assert quiet.header(b"content-type") == b"application/json"
    streamed = send(APP, calling("progress", progressToken="t"))
    assert streamed.status == 200
    assert streamed.header(b"content-type") == b"text/event-stream"
    assert streamed.header(b"x-accel-buffering") == b"no"
    assert b"no-cache" in (streamed.header(b"cache-control") or b"")
    assert streamed.header(b"content-length") is None
    first, second, reply = streamed.events
    assert [first["params"]["progress"], second["params"]["progress"]] == [1, 2]
    assert (reply["id"], reply["result"]["content"][0]["text"]) == (1, "done")


def test_an_error_ends_a_stream_that_has_begun() -> None:
    *_, reply = send(APP, calling("progress", {"fail": "no ink"}, progressToken=1)).events
    assert (reply["result"]["isError"], reply["result"]["content"][0]["text"]) == (True, "no ink")


def test_a_question_may_end_a_stream() -> None:
    streamed = send(APP, calling("progress_then_ask", progressToken=1))
    assert [event.get("method") for event in streamed.events] == ["notifications/progress", None]
    assert streamed.events[-1]["result"]["resultType"] == "input_required"


def test_a_missing_capability_found_after_the_stream_began_is_told_on_it() -> None:
    streamed = send(APP, calling("progress_then_ask", progressToken=1, **NOTHING))
    assert streamed.status == 200
    assert streamed.events[-1]["error"]["code"] == -32021


def test_every_event_is_sent_when_it_happens() -> None:
    server, go_on = MCPServer("s"), asyncio.Event()

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1)
        await go_on.wait()
        return "done"

    async def main() -> Response:
        exchange = begin(server.asgi(), calling("work", progressToken=1))
        await exchange.until(lambda: len(events(exchange.stream)) == 1)
        go_on.set()
        return await exchange.ended()

    assert len(asyncio.run(main()).events) == 2


def test_notifications_sent_at_once_from_many_tasks_make_one_stream() -> None:
    server = MCPServer("s")

    @server.tool()
    async def work(ctx: Context) -> str:
        await asyncio.gather(*(ctx.report_progress(number) for number in range(20)))
        return "done"

    streamed = send(server.asgi(), calling("work", progressToken=1))
    assert [event["params"]["progress"] for event in streamed.events[:-1]] == list(range(20))


def test_line_breaks_in_a_message_do_not_break_the_stream() -> None:
    server = MCPServer("s")
    text = "a\nb\r\nc\rd\u2028e\x85f\n\ndata: x\n\n"

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, message=text)
        return text

    progress, reply = send(server.asgi(), calling("work", progressToken=1)).events
    assert progress["params"]["message"] == text
    assert reply["result"]["content"][0]["text"] == text


def test_a_quiet_stream_is_kept_alive_with_comments() -> None:
    server, go_on = MCPServer("s"), asyncio.Event()

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1)
        await go_on.wait()
        return "done"

    async def main() -> Response:
        exchange = begin(server.asgi(keepalive=0.001), calling("work", progressToken=1))
        await exchange.until(lambda: exchange.stream.count(b"\r\n:") + exchange.stream.count(b"\n:") >= 3)
        go_on.set()
        return await exchange.ended()

    response = asyncio.run(main())
    assert len(response.events) == 2
    assert response.body.endswith(b"}\r\n\r\n")


@pytest.mark.parametrize("streaming", [False, True])
def test_a_task_that_outlives_the_reply_sends_nothing_and_leaves_nothing_running(streaming: bool) -> None:
    server, strays = MCPServer("s"), []

    async def main() -> tuple[int, int, set[Any]]:
        replied = asyncio.Event()

        @server.tool()
        async def work(ctx: Context) -> str:
            async def late() -> None:
                await replied.wait()
                await ctx.report_progress(2)

            if streaming:
                await ctx.report_progress(1)
            strays.append(asyncio.create_task(late()))
            return "done"

        exchange = begin(server.asgi(), calling("work", progressToken=1))
        await exchange.ended()
        before = len(exchange.sent)
        replied.set()
        await asyncio.gather(*strays, return_exceptions=True)
        return before, len(exchange.sent), asyncio.all_tasks() - {asyncio.current_task()}

    before, after, left = asyncio.run(main())
    assert after == before
    assert left == set()


# Hanging up


class Watched:
    """A server whose tools report what became of them."""

    def __init__(self) -> None:
        self.server = MCPServer("watched")
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self.fate: list[str] = []
        self.release = threading.Event()
        self.server.add_tool(self.wait, "wait")
        self.server.add_tool(self.stubborn, "stubborn")
        self.server.add_tool(self.block, "block")

    async def _until_cancelled(self, ctx: Context) -> None:
        await ctx.report_progress(1)
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.fate.append("cancelled")
            self.ended.set()
            raise

    async def wait(self, ctx: Context) -> str:
        await self._until_cancelled(ctx)
        return "never"

    async def stubborn(self, ctx: Context) -> str:
        with suppress(asyncio.CancelledError):
            await self._until_cancelled(ctx)
        await ctx.report_progress(2)
        return "too late"

    def block(self) -> str:
        self.release.wait(PATIENCE)
        self.fate.append("finished")
        return "too late"


@pytest.mark.parametrize("meta", [{}, {"progressToken": 1}], ids=["before the reply", "in the middle of a stream"])
@pytest.mark.parametrize("tool", ["wait", "stubborn"])
def test_a_client_that_hangs_up_has_cancelled_and_nothing_more_is_sent(tool: str, meta: dict[str, Any]) -> None:
    async def main() -> tuple[list[str], list[Any], list[Any]]:
        watched = Watched()
        exchange = begin(watched.server.asgi(), calling(tool, **meta))
        async with asyncio.timeout(PATIENCE):
            await watched.began.wait()
            before = list(exchange.sent)
            exchange.hang_up()
            await watched.ended.wait()
            await exchange.task
        return watched.fate, before, exchange.sent

    fate, before, after = asyncio.run(main())
    assert fate == ["cancelled"]
    assert after == before


def test_a_tool_in_a_thread_outlives_the_client_without_harm() -> None:
    async def main() -> tuple[Watched, Exchange]:
        watched = Watched()
        app = watched.server.asgi()
        exchange = begin(app, calling("block"))
        exchange.hang_up()
        async with asyncio.timeout(PATIENCE):
            await exchange.task
        watched.release.set()
        other = begin(app, calling("block"))
        assert (await other.ended()).text == "too late"
        return watched, exchange

    watched, exchange = asyncio.run(main())
    assert exchange.sent == []
    assert watched.fate.count("finished") >= 1


@pytest.mark.parametrize("tool", ["progress", "add"])
def test_a_connection_that_breaks_while_it_is_written_to_raises_nothing(tool: str) -> None:
    async def main() -> None:
        exchange = begin(APP, calling(tool, {"a": 1, "b": 2} if tool == "add" else {}, progressToken=1))
        exchange.broken = True
        async with asyncio.timeout(PATIENCE):
            await exchange.task

    asyncio.run(main())


def test_a_keep_alive_into_a_broken_connection_raises_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        watched = Watched()
        exchange = begin(watched.server.asgi(keepalive=0.001), calling("wait", progressToken=1))
        async with asyncio.timeout(PATIENCE):
            await watched.began.wait()
            exchange.broken = True
            exchange.hang_up()
            await exchange.task

    asyncio.run(main())
    assert "never retrieved" not in caplog.text


def test_a_cancellation_from_above_is_passed_on() -> None:
    async def main() -> list[str]:
        watched = Watched()
        exchange = begin(watched.server.asgi(), calling("wait"))
        await watched.began.wait()
        exchange.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exchange.task
        return watched.fate

    assert asyncio.run(main()) == ["cancelled"]


# Subscriptions


def listening(wanted: dict[str, Any], id: Any = "sub") -> dict[str, Any]:
    return request("subscriptions/listen", {"notifications": wanted}, id=id)


async def heard(exchange: Exchange, count: int) -> list[Any]:
    await exchange.until(lambda: len(events(exchange.stream)) >= count)
    return events(exchange.stream)


def test_a_subscription_is_acknowledged_fed_by_its_filter_and_ended_with_a_result() -> None:
    async def main() -> Response:
        bus = InMemoryBus()
        server = make_server(subscriptions=bus)
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}
        exchange = begin(server.asgi(), listening(wanted))
        await heard(exchange, 1)
        for change in (
            Change("prompts"),
            Change("resource", "memo://b"),
            Change("tools"),
            Change("resources"),
            Change("resource", "memo://a"),
        ):
            await bus.publish(change)
        await heard(exchange, 3)
        server.close_subscriptions()
        return await exchange.ended()

    response = asyncio.run(main())
    assert response.header(b"content-type") == b"text/event-stream"
    assert response.header(b"x-accel-buffering") == b"no"
    acknowledged, tools, resource, closed = response.events
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["memo://a"],
    }
    assert tools["method"] == "notifications/tools/list_changed"
    assert (resource["method"], resource["params"]["uri"]) == ("notifications/resources/updated", "memo://a")
    assert all(note["params"]["_meta"][SUBSCRIPTION] == "sub" for note in (acknowledged, tools, resource))
    assert (closed["id"], closed["result"]["resultType"]) == ("sub", "complete")
    assert closed["result"]["_meta"][SUBSCRIPTION] == "sub"


def test_a_filter_of_nothing_is_acknowledged_as_nothing() -> None:
    async def main() -> Response:
        bus = InMemoryBus()
        server = make_server(subscriptions=bus)
        exchange = begin(server.asgi(), listening({"toolsListChanged": False, "unheardOf": True}))
        await heard(exchange, 1)
        await bus.publish(Change("tools"))
        server.close_subscriptions()
        return await exchange.ended()

    acknowledged, closed = asyncio.run(main()).events
    assert acknowledged["params"]["notifications"] == {}
    assert "result" in closed


def test_two_subscriptions_each_hear_their_own_under_their_own_id() -> None:
    async def main() -> tuple[list[Any], list[Any]]:
        bus = InMemoryBus()
        server = make_server(subscriptions=bus)
        app = server.asgi()
        one, two = (
            begin(app, listening({"toolsListChanged": True}, 1)),
            begin(app, listening({"promptsListChanged": True}, "1")),
        )
        await heard(one, 1)
        await heard(two, 1)
        await bus.publish(Change("tools"))
        await bus.publish(Change("prompts"))
        results = await heard(one, 2), await heard(two, 2)
        server.close_subscriptions()
        await one.ended()
        await two.ended()
        return results

    first, second = asyncio.run(main())
    assert [note["params"]["_meta"][SUBSCRIPTION] for note in first] == [1, 1]
    assert [note["params"]["_meta"][SUBSCRIPTION] for note in second] == ["1", "1"]
    assert second[1]["method"] == "notifications/prompts/list_changed"


def test_a_slow_listener_gets_what_changed_and_not_how_often() -> None:
    async def main() -> list[Any]:
        bus = InMemoryBus()
        server = make_server(subscriptions=bus)
        exchange = begin(server.asgi(), listening({"toolsListChanged": True, "promptsListChanged": True}))
        await heard(exchange, 1)
        exchange.blocked = asyncio.Event()
        for _ in range(1000):
            await bus.publish(Change("tools"))
            await bus.publish(Change("prompts"))
            await asyncio.sleep(0)
        exchange.blocked.set()
        server.close_subscriptions()
        return (await exchange.ended()).events

    methods = [event.get("method", "").split("/")[1] for event in asyncio.run(main())[1:-1]]
    assert set(methods) == {"tools", "prompts"}
    assert len(methods) <= 4


def test_progress_and_log_lines_of_other_requests_stay_off_a_subscription() -> None:
    async def main() -> Response:
        server = make_server()
        app = server.asgi()
        exchange = begin(app, listening({"toolsListChanged": True}))
        await heard(exchange, 1)
        meta: dict[str, Any] = {"progressToken": 1, "io.modelcontextprotocol/logLevel": "debug"}
        await begin(app, calling("progress", **meta)).ended()
        server.close_subscriptions()
        return await exchange.ended()

    assert len(asyncio.run(main()).events) == 2


def test_a_listener_that_hangs_up_is_sent_nothing_more() -> None:
    async def main() -> list[Any]:
        bus = InMemoryBus()
        exchange = begin(make_server(subscriptions=bus).asgi(), listening({"toolsListChanged": True}))
        await heard(exchange, 1)
        exchange.hang_up()
        async with asyncio.timeout(PATIENCE):
            await exchange.task
        await bus.publish(Change("tools"))
        return events(exchange.stream)

    assert len(asyncio.run(main())) == 1


# The server's life


class Life:
    """A lifespan that remembers what happened to it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.happened: list[str] = []
        self.error = error

    @asynccontextmanager
    async def __call__(self, server: MCPServer[str]) -> AsyncIterator[str]:
        if self.error is not None:
            raise self.error
        self.happened.append("start")
        yield "state"
        self.happened.append("stop")

    def make_server(self) -> MCPServer[str]:
        server = MCPServer("life", lifespan=self)

        @server.tool()
        async def state(ctx: Context[str]) -> str:
            return f"{ctx.lifespan} {self.happened}"

        return server


class Lifespan:
    """An ASGI server's side of the lifespan protocol."""

    def __init__(self, app: App) -> None:
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.outbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        self.task = asyncio.ensure_future(app(scope, self.inbox.get, self.outbox.put))

    async def tell(self, what: str) -> dict[str, Any]:
        await self.inbox.put({"type": f"lifespan.{what}"})
        async with asyncio.timeout(PATIENCE):
            return await self.outbox.get()


def test_the_lifespan_frames_all_requests() -> None:
    life = Life()

    async def main() -> str:
        app = life.make_server().asgi()
        lifespan = Lifespan(app)
        assert (await lifespan.tell("startup"))["type"] == "lifespan.startup.complete"
        response = await begin(app, calling("state")).ended()
        again = await begin(app, calling("state")).ended()
        assert (await lifespan.tell("shutdown"))["type"] == "lifespan.shutdown.complete"
        await lifespan.task
        assert again.text == response.text
        return response.text

    assert asyncio.run(main()) == "state ['start']"
    assert life.happened == ["start", "stop"]


def test_a_lifespan_that_fails_to_start_is_announced() -> None:
    async def main() -> dict[str, Any]:
        lifespan = Lifespan(Life(RuntimeError("no database")).make_server().asgi())
        said = await lifespan.tell("startup")
        await asyncio.gather(lifespan.task, return_exceptions=True)
        return said

    said = asyncio.run(main())
    assert said["type"] == "lifespan.startup.failed"
    assert "no database" in said["message"]


def test_a_lifespan_that_fails_to_end_is_announced() -> None:
    @asynccontextmanager
    async def failing(server: Any) -> AsyncIterator[None]:
        yield
        raise RuntimeError("no goodbye")

    async def main() -> dict[str, Any]:
        lifespan = Lifespan(MCPServer("s", lifespan=failing).asgi())
        await lifespan.tell("startup")
        said = await lifespan.tell("shutdown")
        await asyncio.gather(lifespan.task, return_exceptions=True)
        return said

    assert asyncio.run(main())["type"] == "lifespan.shutdown.failed"


def test_mounted_where_nobody_announces_the_lifespan_it_begins_with_the_first_request() -> None:
    life = Life()

    async def main() -> list[str]:
        app = life.make_server().asgi()
        first, second = await asyncio.gather(*(begin(app, calling("state")).ended() for _ in range(2)))
        return [first.text, second.text]

    assert asyncio.run(main()) == ["state ['start']"] * 2


@pytest.mark.parametrize("framework", [Starlette, FastAPI])
@pytest.mark.parametrize("options", [{}, {"path": "/"}], ids=["the default path", "the root"])
def test_mounted_under_a_prefix_it_serves_below_it(framework: type[Any], options: dict[str, Any]) -> None:
    life = Life()
    outer = Starlette(routes=[Mount("/api", life.make_server().asgi(**options))])
    if framework is FastAPI:
        outer = FastAPI()
        outer.mount("/api", life.make_server().asgi(**options))
    path = "/api/mcp" if not options else "/api/"
    assert send(outer, calling("state"), path=path).text == "state ['start']"
    assert send(outer, b"", path=path, method="GET").status == 405
    assert send(outer, calling("state"), path="/api/elsewhere").status == 404
    assert send(outer, calling("state"), path="/mcp").status == 404


def test_mounted_it_streams_and_is_cancelled_as_by_itself() -> None:
    async def main() -> tuple[list[Any], list[str]]:
        watched = Watched()
        outer = Starlette(routes=[Mount("/api", watched.server.asgi())])
        exchange = begin(outer, calling("wait", progressToken=1), path="/api/mcp")
        await heard(exchange, 1)
        exchange.hang_up()
        async with asyncio.timeout(PATIENCE):
            await exchange.task
        return events(exchange.stream), watched.fate

    streamed, fate = asyncio.run(main())
    assert (len(streamed), fate) == (1, ["cancelled"])


# Who is calling

HERE = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"
WELL_KNOWN = "/.well-known/oauth-protected-resource/mcp"


class Known:
    """A verifier that knows its tokens by heart."""

    def __init__(self, *tokens: AccessToken) -> None:
        self._known = {token.token: token for token in tokens}

    async def verify_token(self, token: str) -> AccessToken | None:
        return self._known.get(token)


def token(text: str, subject: str | None, **changes: Any) -> AccessToken:
    facts: dict[str, Any] = {"client_id": "app", "scopes": ["read"], "resource": HERE, "issuer": ISSUER}
    return AccessToken(text, subject=subject, **facts | changes)


TOKENS = [
    token("alice-1", "alice"),
    token("alice-2", "alice"),
    token("bob", "bob"),
    token("alice-other-app", "alice", client_id="other"),
    token("alice-other-issuer", "alice", issuer="https://evil.example"),
    token("expired", "alice", expires_at=1),
    token("elsewhere", "alice", resource="https://other.example.com/mcp"),
    token("nowhere", "alice", resource=None),
    token("unscoped", "alice", scopes=[]),
]


def guarded() -> App:
    settings = AuthSettings(resource_server_url=HERE, issuer_url=ISSUER, required_scopes=["read"])
    server = make_server(token_verifier=Known(*TOKENS), auth=settings)

    @server.tool()
    async def whoami(ctx: Context) -> str:
        return str(ctx.access_token.subject)

    return server.asgi(host="0.0.0.0")


GUARDED = guarded()


def as_bearer(message: Any, bearer: str | None) -> Response:
    return send(GUARDED, message, headers_of(message, authorization=None if bearer is None else f"Bearer {bearer}"))


def test_a_good_token_opens_the_door_and_the_tool_knows_whose_it_is() -> None:
    assert as_bearer(calling("whoami"), "alice-1").text == "alice"
    assert as_bearer(calling("whoami"), "bob").text == "bob"


@pytest.mark.parametrize(
    ("bearer", "status", "error"),
    [
        (None, 401, None),
        ("unknown", 401, "invalid_token"),
        ("expired", 401, "invalid_token"),
        ("elsewhere", 401, "invalid_token"),
        ("nowhere", 401, "invalid_token"),
        ("unscoped", 403, "insufficient_scope"),
    ],
)
def test_without_one_the_client_learns_where_to_get_one(bearer: str | None, status: int, error: str | None) -> None:
    response = as_bearer(calling("whoami"), bearer)
    assert response.status == status
    challenge = (response.header(b"www-authenticate") or b"").decode()
    assert challenge.startswith("Bearer ")
    assert f'resource_metadata="https://mcp.example.com{WELL_KNOWN}"' in challenge
    assert 'scope="read"' in challenge
    assert (f'error="{error}"' in challenge) if error else ("error=" not in challenge)
    assert "error" in response.json


def test_the_door_is_before_the_body_so_even_garbage_needs_a_token() -> None:
    assert as_bearer(b"garbage", None).status == 401


@pytest.mark.parametrize("value", ["Basic YTpi", "Bearer", "Bearer ", "alice-1", "Bearer alice-1 bob", b"Bearer \xff"])
def test_credentials_of_another_form_do_not_open_the_door(value: Any) -> None:
    response = send(GUARDED, ADD, headers_of(ADD, authorization=value))
    assert response.status in (400, 401)
    assert response.header(b"www-authenticate")


def test_a_token_in_the_query_does_not_open_the_door() -> None:
    message = calling("whoami")
    assert send(GUARDED, message, headers_of(message), path="/mcp").status == 401


def test_the_server_describes_itself_at_the_well_known_path() -> None:
    response = send(GUARDED, b"", headers_of(b""), method="GET", path=WELL_KNOWN)
    assert response.status == 200
    assert response.json == {
        "resource": HERE,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["read"],
        "bearer_methods_supported": ["header"],
    }
    head = send(GUARDED, b"", headers_of(b""), method="HEAD", path=WELL_KNOWN)
    assert (head.status, head.body) == (200, b"")
    assert send(GUARDED, ADD, path=WELL_KNOWN).status in (404, 405)
    assert send(APP, b"", headers_of(b""), method="GET", path=WELL_KNOWN).status == 404


def asked(bearer: str) -> str:
    result = as_bearer(calling("where"), bearer).json["result"]
    assert result["resultType"] == "input_required"
    state: str = result["requestState"]
    return state


def retried(bearer: str, state: str) -> Response:
    responses = {"city": {"action": "accept", "content": {"city": "Ulm"}}}
    params = {"name": "where", "arguments": {}, "inputResponses": responses, "requestState": state}
    return as_bearer(request("tools/call", params, id=2), bearer)


def test_a_refreshed_token_carries_a_flow_on() -> None:
    assert retried("alice-2", asked("alice-1")).text == "Ulm"


@pytest.mark.parametrize("other", ["bob", "alice-other-app", "alice-other-issuer"])
def test_nobody_else_can_carry_it_on(other: str) -> None:
    response = retried(other, asked("alice-1"))
    assert response.json["error"] == {"code": -32602, "message": "Invalid or expired requestState"}
    assert retried("alice-1", asked(other)).code == -32602


def test_a_mounted_server_that_cannot_start_says_so_and_nothing_escapes() -> None:
    @asynccontextmanager
    async def broken(server: MCPServer) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    app = MCPServer("broken", lifespan=broken).asgi()
    replies = [send(app, calling("add", {"a": 1, "b": 2})) for _ in range(2)]
    assert [reply.status for reply in replies] == [503, 503]
    assert "database" not in str(replies)


def test_a_call_that_says_nothing_for_long_is_kept_alive_too() -> None:
    """A proxy would take a silent connection for dead."""
    server = make_server()

    @server.tool()
    async def ponder() -> str:
        await asyncio.sleep(0.3)
        return "42"

    response = send(server.asgi(keepalive=0.02), calling("ponder"))
    assert dict(response.headers)[b"content-type"] == b"text/event-stream"
    assert response.body.startswith(b":\r\n\r\n")
    [reply] = events(response.body)
    assert reply["result"]["content"] == [{"type": "text", "text": "42"}]


# Pages beside the endpoint


def with_pages(**options: Any) -> MCPServer:
    server = make_server(**options)

    @server.custom_route("/health", methods=["GET"])
    async def health(request: Request) -> PlainTextResponse:
        return PlainTextResponse("well")

    @server.custom_route("/items/{number:int}", ["GET", "POST"], name="item")
    async def item(request: Request) -> JSONResponse:
        if request.path_params["number"] > 9:
            raise HTTPException(404, "no such item")
        return JSONResponse({"number": request.path_params["number"], "body": (await request.body()).decode()})

    @server.custom_route("/broken", methods=["GET"])
    async def broken(request: Request) -> PlainTextResponse:
        raise ZeroDivisionError

    return server


def visit(app: App, path: str, method: str = "GET", body: bytes = b"", **headers: Any) -> Response:
    return send(app, body, headers_of(body, **headers), method=method, path=path)


def test_a_page_is_served_beside_the_endpoint() -> None:
    app = with_pages().asgi()
    assert (visit(app, "/health").status, visit(app, "/health").body) == (200, b"well")
    assert visit(app, "/health", "HEAD").status == 200
    assert visit(app, "/health", "POST").status == 405
    assert visit(app, "/items/7", "POST", b"x").json == {"number": 7, "body": "x"}
    assert visit(app, "/items/12").status == 404
    assert visit(app, "/items/x").json["error"]["message"] == "The MCP endpoint is /mcp"
    assert send(app, calling("add", {"a": 1, "b": 2})).text == "3"


def test_a_page_that_is_added_later_is_served_by_an_application_that_was_made_before() -> None:
    server = make_server()
    app = server.asgi()
    assert visit(app, "/late").status == 404
    server.custom_route("/late", methods=["GET"])(lambda request: PlainTextResponse("here"))
    assert visit(app, "/late").body == b"here"


def test_a_page_in_the_place_of_the_endpoint_is_not_served() -> None:
    server = make_server()
    server.custom_route("/mcp", methods=["GET", "POST"])(lambda request: PlainTextResponse("here"))
    assert visit(server.asgi(), "/mcp").status == 405
    assert send(server.asgi(), calling("add", {"a": 1, "b": 2})).text == "3"


def test_a_page_lets_in_whom_the_endpoint_lets_in() -> None:
    app = with_pages().asgi()
    assert visit(app, "/health", host="evil.example").status == 421
    assert visit(app, "/health", origin="https://evil.example").status == 403
    assert visit(app, "/nowhere", host="evil.example").status == 404
    assert visit(with_pages().asgi(allowed_hosts=["*"]), "/health", host="good.example").status == 200


def test_a_page_that_fails_is_a_500_and_whoever_serves_is_told() -> None:
    seen: list[int | None] = []

    class Looking:
        def arrived(self, headers: Any, client: str | None) -> None: ...

        def left(self, note: Any, status: int | None, principal: str | None) -> None:
            seen.append(status)

    app = with_pages().asgi(witness=Looking())

    async def main() -> None:
        exchange = begin(app, b"", headers_of(b""), method="GET", path="/broken")
        with pytest.raises(ZeroDivisionError):
            await exchange.task
        assert exchange.sent[0]["status"] == 500

    asyncio.run(main())
    visit(app, "/health")
    assert seen == [500, 200]


def test_a_page_is_found_where_the_application_is_mounted() -> None:
    outer = Starlette(routes=[Mount("/api", with_pages().asgi())])
    assert visit(outer, "/api/health").body == b"well"


def test_methods_are_a_list() -> None:
    wrong: Any = "GET"
    with pytest.raises(TypeError, match=r'methods is a list: \["GET"\]'):
        make_server().custom_route("/x", wrong)(lambda request: None)


def test_without_starlette_it_is_said_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(AuthorError, match="pip install starlette"):
        make_server().custom_route("/x", ["GET"])(lambda request: None)
