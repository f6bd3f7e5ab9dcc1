"""The wire by itself: the bytes of one message in, one reply out, held against the rules of protocol 2026-07-28."""

import asyncio
import base64
import json
import logging
import timeit
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import pytest
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    Completion,
    EmbeddedResource,
    GetPromptResult,
    Icon,
    ListToolsResult,
    PromptMessage,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)
from mcp_types.methods import parse_server_notification, validate_server_result
from pydantic import BaseModel, Field

from turnwise import (
    AcceptedElicitation,
    AssistantMessage,
    Audio,
    CacheHint,
    Context,
    Image,
    InMemoryBus,
    InputRequiredResult,
    InvalidSignature,
    MCPError,
    MCPServer,
    ToolError,
    UserMessage,
)
from turnwise._messages import Post
from turnwise._templates import compile_template
from turnwise.dialects.v2026_07_28 import WATCHED

VERSION = "2026-07-28"
PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META: dict[str, Any] = {PROTOCOL: VERSION, CAPABILITIES: {}}
ASKABLE: dict[str, Any] = {PROTOCOL: VERSION, CAPABILITIES: {"elicitation": {}}}
NOW = 1_800_000_000.0
SECRET = "hunter2 at 10.0.0.7"
CACHED = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
ALWAYS_OPEN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("server/discover", {}),
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "memo://today"}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("prompts/get", {"name": "review", "arguments": {"code": "x"}}),
    ("completion/complete", {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "a", "value": "b"}}),
)


class City(BaseModel):
    city: str


class Point(BaseModel):
    x: int
    y: int


class Answer(NamedTuple):
    """A reply, and the notifications that came before it."""

    status: int
    body: Any
    notes: list[dict[str, Any]]

    @property
    def error(self) -> dict[str, Any]:
        assert set(self.body) <= {"jsonrpc", "id", "error"}, self.body
        assert self.body["jsonrpc"] == "2.0"
        error: dict[str, Any] = self.body["error"]
        assert type(error["code"]) is int
        assert type(error["message"]) is str
        return error

    @property
    def result(self) -> dict[str, Any]:
        assert set(self.body) == {"jsonrpc", "id", "result"}, self.body
        result: dict[str, Any] = self.body["result"]
        return result

    @property
    def text(self) -> str:
        return "".join(part.get("text", "") for part in self.result["content"])


def strictly(text: bytes) -> Any:
    """JSON as the standard has it: no NaN, no Infinity."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def request(method: str, params: Any = None, *, id: Any = 1, meta: Any = META) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta}}


async def answer(server: MCPServer, message: Any, headers: Mapping[bytes, bytes] | None = None) -> Answer:
    notes: list[dict[str, Any]] = []

    async def emit(note: bytes) -> None:
        notes.append(strictly(note))

    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    reply = await server.wire.answer(Post(body, emit, NOW, headers))
    return Answer(reply.status, None if reply.body is None else strictly(reply.body), notes)


def send(server: MCPServer, message: Any, headers: Mapping[bytes, bytes] | None = None) -> Answer:
    return asyncio.run(answer(server, message, headers))


def call(server: MCPServer, tool: str, meta: Any = META, **arguments: Any) -> Answer:
    return send(server, request("tools/call", {"name": tool, "arguments": arguments}, meta=meta))


def library(**options: Any) -> MCPServer:
    """A server with something of everything."""
    server = MCPServer("library", **{"version": "1.2", "instructions": "Read.", **options})

    @server.tool()
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    async def where(ctx: Context) -> str:
        chosen = await ctx.elicit("Which city?", City, key="city")
        return chosen.data.city if isinstance(chosen, AcceptedElicitation) else "nowhere"

    @server.prompt()
    async def review(code: str) -> str:
        return f"Review {code}"

    @server.prompt()
    async def asks(ctx: Context) -> str:
        return str((await ctx.elicit("Which city?", City, key="city")).action)

    @server.resource("memo://today", mime_type="text/plain")
    async def today() -> str:
        return "sunny"

    @server.resource("memo://asks")
    async def asking(ctx: Context) -> str:
        return str((await ctx.elicit("Which city?", City, key="city")).action)

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        return f"note {name}"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        return [f"{argument.value}{number}" for number in range(3)]

    return server


LIBRARY = library()


# What is a message


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"{", b"nul", b'"a', b"\xff\xfe", b"{'a': 1}", b'{"a": NaN}', b"[1,]", b"\xef\xbb\xbf{}", b"{}{}"],
)
def test_bytes_that_are_no_json_are_a_parse_error_without_an_id(body: bytes) -> None:
    reply = send(LIBRARY, body)
    assert reply.status == 400
    assert reply.error["code"] == -32700
    assert "id" not in reply.body


@pytest.mark.parametrize(
    "text",
    [r'"\ud800"', r'"\udc00x"', r'{"\ud83d": 1}', "1e999", "-1e999"],
    ids=["high surrogate", "low surrogate", "surrogate key", "too large", "too small"],
)
def test_what_json_cannot_carry_across_is_refused_and_does_not_break_the_reply(text: str) -> None:
    reply = send(LIBRARY, f'{{"jsonrpc":"2.0","id":1,"method":{text}}}'.encode())
    assert reply.status == 400
    assert reply.error["code"] in (-32700, -32600)


@pytest.mark.parametrize("body", [b"null", b"true", b"1", b'"x"', b"[]", b"{}"])
def test_json_that_is_no_message_is_an_invalid_request(body: bytes) -> None:
    reply = send(LIBRARY, body)
    assert (reply.status, reply.error["code"]) == (400, -32600)
    assert "id" not in reply.body


def test_a_batch_is_refused_as_a_whole_even_with_one_request_in_it() -> None:
    for batch in ([request("tools/list")], [request("tools/list"), request("tools/list", id=2)]):
        reply = send(LIBRARY, batch)
        assert (reply.status, reply.error["code"]) == (400, -32600)
        assert "id" not in reply.body


@pytest.mark.parametrize("outcome", [{"result": {}}, {"error": {"code": 1, "message": "x"}}])
def test_a_response_is_refused_and_its_id_is_not_taken_for_a_requests(outcome: dict[str, Any]) -> None:
    reply = send(LIBRARY, {"jsonrpc": "2.0", "id": 1, **outcome})
    assert (reply.status, reply.error["code"]) == (400, -32600)
    assert "id" not in reply.body  # Its id answers somebody's request; an error under it would be taken for a reply.


@pytest.mark.parametrize("version", [None, "1.0", 2.0, 2, "2", ["2.0"], ""])
def test_jsonrpc_must_be_2_0(version: Any) -> None:
    reply = send(LIBRARY, request("tools/list") | {"jsonrpc": version})
    assert (reply.status, reply.error["code"]) == (400, -32600)


@pytest.mark.parametrize("method", [None, 1, True, [], {}, ["tools/list"]])
def test_a_method_must_be_a_string_and_the_error_still_echoes_the_id(method: Any) -> None:
    reply = send(LIBRARY, request("tools/list", id="abc") | {"method": method})
    assert (reply.status, reply.error["code"]) == (400, -32600)
    assert reply.body["id"] == "abc"


@pytest.mark.parametrize("id", [0, -1, 1, 2**53, 2**63 - 1, -(2**63), "", "a", "0", "☃", "x" * 5000, "\u0000"])
def test_an_id_comes_back_as_it_was_sent_with_its_type(id: Any) -> None:
    for method, params in (("tools/list", {}), ("tools/call", {"name": "nobody"}), ("no/such", {})):
        reply = send(LIBRARY, request(method, params, id=id))
        assert reply.body["id"] == id
        assert type(reply.body["id"]) is type(id)


@pytest.mark.parametrize("id", [None, True, False, 1.5, 1.0, {}, {"a": 1}, [], [1]])
def test_an_id_that_is_no_string_or_integer_is_refused_and_not_echoed(id: Any) -> None:
    reply = send(LIBRARY, request("tools/list", id=id))
    assert (reply.status, reply.error["code"]) == (400, -32600)
    assert "id" not in reply.body


@pytest.mark.parametrize("digits", [20, 40, 4000, 4301, 10_000])
def test_an_integer_id_beyond_64_bits_is_echoed_exactly_or_refused_without_one(digits: int) -> None:
    body = json.dumps(request("tools/list", id="?")).replace('"?"', "7" * digits).encode()
    reply = send(LIBRARY, body)
    assert "id" not in reply.body or str(reply.body["id"]) == "7" * digits
    assert "result" in reply.body or reply.error["code"] in (-32700, -32600)


def test_what_is_nested_too_deep_is_not_read() -> None:
    def nested(levels: int) -> dict[str, Any]:
        value: Any = []
        for _ in range(levels):
            value = [value]
        return request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "extra": value}, id="deep")

    assert send(LIBRARY, nested(150)).text == "3"
    reply = send(LIBRARY, nested(250))
    assert (reply.status, reply.error["code"]) == (400, -32700)


def test_nesting_deeper_than_any_parser_is_still_a_reply() -> None:
    reply = send(LIBRARY, b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 500_000)
    assert reply.error["code"] in (-32700, -32600)


def test_members_that_nobody_knows_are_let_pass_at_every_level() -> None:
    message = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "x": {"y": [1]}})
    message |= {"extra": True, "params": message["params"] | {"_meta": META | {"com.example/x": {"deep": [None]}}}}
    assert send(LIBRARY, message).text == "3"


@pytest.mark.parametrize("member", ["result", "error"])
@pytest.mark.parametrize("params", [{"name": "add", "arguments": {"a": "x"}}, {"name": "nobody"}, {"name": 5}])
def test_a_request_with_a_member_of_a_response_is_still_answered_under_its_id(
    member: str, params: dict[str, Any]
) -> None:
    assert send(LIBRARY, request("tools/call", params, id="r") | {member: None}).body["id"] == "r"


def test_the_last_of_two_equal_members_counts_and_nothing_breaks() -> None:
    body = json.dumps(request("tools/list")).encode().replace(b'"id": 1', b'"id": 1, "id": 2')
    assert send(LIBRARY, body).body["id"] == 2


# Notifications


@pytest.mark.parametrize(
    "message",
    [
        {"method": "notifications/cancelled", "params": {"requestId": 1}},
        {"method": "notifications/cancelled", "params": {}},
        {"method": "notifications/cancelled"},
        {"method": "notifications/cancelled", "params": {"requestId": {"a": []}}},
        {"method": "notifications/cancelled", "params": [1]},
        {"method": "notifications/unheard/of", "params": {"a": 1}},
        {"method": "tools/call", "params": {"name": "add"}},
    ],
)
def test_a_notification_is_accepted_in_silence(message: dict[str, Any]) -> None:
    reply = send(LIBRARY, {"jsonrpc": "2.0", **message})
    assert (reply.status, reply.body, reply.notes) == (202, None, [])


def test_a_tools_call_without_an_id_does_not_run_the_tool() -> None:
    server, ran = MCPServer("s"), []

    @server.tool()
    async def run() -> str:
        ran.append(1)
        return ""

    send(server, {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "run", "_meta": META}})
    assert ran == []


# What every request carries


@pytest.mark.parametrize("params", [..., None, [], "x", 1, {}, {"_meta": None}, {"_meta": []}, {"_meta": "x"}])
def test_a_request_without_meta_is_malformed_and_names_the_version_to_use(params: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list"} | ({} if params is ... else {"params": params})
    reply = send(LIBRARY, message)
    assert (reply.status, reply.error["code"], reply.body["id"]) == (400, -32602, 7)
    assert VERSION in json.dumps(reply.error)


@pytest.mark.parametrize("method", [method for method, _ in ALWAYS_OPEN] + ["subscriptions/listen", "no/such"])
@pytest.mark.parametrize("member", [PROTOCOL, CAPABILITIES])
@pytest.mark.parametrize("value", [..., None, 1, True, []])
def test_each_required_member_of_meta_is_required_on_every_method(method: str, member: str, value: Any) -> None:
    meta = {name: part for name, part in META.items() if name != member}
    params = dict(ALWAYS_OPEN).get(method, {})
    reply = send(LIBRARY, request(method, params, meta=meta if value is ... else meta | {member: value}))
    assert (reply.status, reply.error["code"], reply.body["id"]) == (400, -32602, 1)


def test_capabilities_of_the_wrong_type_are_malformed() -> None:
    reply = send(LIBRARY, request("tools/list", meta=META | {CAPABILITIES: "all"}))
    assert (reply.status, reply.error["code"]) == (400, -32602)


@pytest.mark.parametrize("version", ["", "2025-11-25", "2026-07-29", "1900-01-01", "latest", " 2026-07-28", "☃"])
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "no/such"])
def test_a_version_not_spoken_here_is_named_beside_those_that_are(version: str, method: str) -> None:
    reply = send(LIBRARY, request(method, meta=META | {PROTOCOL: version}))
    assert (reply.status, reply.error["code"]) == (400, -32022)
    assert reply.error["data"] == {"supported": [VERSION], "requested": version}


def test_an_initialize_of_older_clients_is_told_which_versions_there_are() -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    server = MCPServer("s", sessions=False)
    reply = send(server, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
    assert VERSION in json.dumps(reply.error)


@pytest.mark.parametrize("info", [None, {}, [], "x", {"name": 1}, {"name": "c", "version": "1", "x": {}}])
def test_client_info_is_never_a_reason_to_refuse(info: Any) -> None:
    server = MCPServer("s")

    @server.tool()
    async def who(ctx: Context) -> str:
        return ctx.client_info.name if ctx.client_info else "unknown"

    assert call(server, "who", META | {CLIENT_INFO: info}).text in ("unknown", "c")


@pytest.mark.parametrize(
    "method", ["", "tools/unknown", "ping", "initialize", "resources/subscribe", "TOOLS/LIST", "☃"]
)
def test_an_unknown_method_is_not_found(method: str) -> None:
    reply = send(LIBRARY, request(method, id="m"))
    assert (reply.status, reply.error["code"], reply.body["id"]) == (404, -32601, "m")


def test_nothing_is_remembered_from_one_request_to_the_next() -> None:
    declared = send(LIBRARY, request("tools/call", {"name": "where"}, meta=ASKABLE))
    assert declared.result["resultType"] == "input_required"
    undeclared = send(LIBRARY, request("tools/call", {"name": "where"}))
    assert (undeclared.status, undeclared.error["code"]) == (400, -32021)
    assert undeclared.error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@pytest.mark.parametrize("elicitation", [None, True, "form", [], {"url": {}}])
def test_a_form_is_not_sent_to_a_client_that_did_not_declare_forms(elicitation: Any) -> None:
    meta = {PROTOCOL: VERSION, CAPABILITIES: {"elicitation": elicitation}}
    reply = send(LIBRARY, request("tools/call", {"name": "where"}, meta=meta))
    assert (reply.status, reply.error["code"]) == (400, -32021)


# What every result carries


@pytest.mark.parametrize(("method", "params"), ALWAYS_OPEN)
def test_every_complete_result_has_its_type_the_servers_name_and_the_shape_of_the_schema(
    method: str, params: dict[str, Any]
) -> None:
    reply = send(LIBRARY, request(method, params))
    assert reply.status == 200
    assert reply.result["resultType"] == "complete"
    assert reply.result["_meta"][SERVER_INFO] == {"name": "library", "version": "1.2"}
    validate_server_result(method, VERSION, reply.result)


@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", {"name": "where"}), ("prompts/get", {"name": "asks"}), ("resources/read", {"uri": "memo://asks"})],
)
def test_a_question_is_a_result_of_its_own_type_with_the_servers_name_and_without_caching_hints(
    method: str, params: dict[str, Any]
) -> None:
    reply = send(LIBRARY, request(method, params, meta=ASKABLE))
    assert reply.status == 200
    assert reply.result["resultType"] == "input_required"
    assert reply.result["_meta"][SERVER_INFO]["name"] == "library"
    assert reply.result["inputRequests"]["city"]["method"] == "elicitation/create"
    assert not {"ttlMs", "cacheScope", "contents", "content", "messages"} & set(reply.result)
    validate_server_result(method, VERSION, reply.result)


@pytest.mark.parametrize(("method", "params"), ALWAYS_OPEN)
def test_caching_hints_are_on_exactly_the_six_cacheable_results(method: str, params: dict[str, Any]) -> None:
    result = send(LIBRARY, request(method, params)).result
    if method in CACHED:
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    else:
        assert not {"ttlMs", "cacheScope"} & set(result)


def test_caching_hints_are_the_authors_and_a_resources_own_come_first() -> None:
    server = library(cache_hints=dict.fromkeys(CACHED, CacheHint(60_000, "public")))

    @server.resource("memo://news", cache=CacheHint(5))
    async def news() -> str:
        return "none"

    @server.resource("day://{day}", cache=CacheHint(7, "public"))
    async def day(day: str) -> str:
        return day

    for method in CACHED:
        result = send(server, request(method, {"uri": "memo://today"})).result
        assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
    news_result = send(server, request("resources/read", {"uri": "memo://news"})).result
    assert (news_result["ttlMs"], news_result["cacheScope"]) == (5, "private")
    assert send(server, request("resources/read", {"uri": "day://1"})).result["ttlMs"] == 7


def test_errors_carry_no_result_and_no_meta() -> None:
    reply = send(LIBRARY, request("resources/read", {"uri": "memo://none"}))
    assert set(reply.body) == {"jsonrpc", "id", "error"}


def test_discover_tells_versions_capabilities_and_instructions() -> None:
    result = send(LIBRARY, request("server/discover")).result
    assert result["supportedVersions"] == [VERSION]
    assert result["instructions"] == "Read."
    assert result["capabilities"] == {
        "logging": {},
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
    }


def test_an_empty_server_offers_nothing_and_has_no_instructions() -> None:
    result = send(MCPServer("empty", subscriptions=False), request("server/discover")).result
    assert result["capabilities"].keys() <= {"logging"}
    assert "instructions" not in result


def test_a_server_without_subscriptions_promises_none_and_does_not_serve_them() -> None:
    server = library(subscriptions=False)
    capabilities = send(server, request("server/discover")).result["capabilities"]
    assert capabilities["tools"] == {}
    assert capabilities["resources"] == {}
    reply = send(server, request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    assert (reply.status, reply.error["code"]) == (404, -32601)


def test_server_info_shows_all_that_the_author_said() -> None:
    icon = Icon(src="https://example.com/i.png", mime_type="image/png", sizes=["48x48"])
    server = MCPServer("s", title="S", description="d", version="3", website_url="https://example.com", icons=[icon])
    assert send(server, request("tools/list")).result["_meta"][SERVER_INFO] == {
        "name": "s",
        "title": "S",
        "description": "d",
        "version": "3",
        "websiteUrl": "https://example.com",
        "icons": [{"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    }


def test_meta_that_a_handler_returns_stays_beside_the_servers() -> None:
    server = MCPServer("s")

    @server.tool()
    async def tag() -> CallToolResult:
        return CallToolResult(content=[], _meta={"com.example/tag": 1, SERVER_INFO: {"name": "liar", "version": ""}})

    meta = call(server, "tag").result["_meta"]
    assert meta["com.example/tag"] == 1
    assert meta[SERVER_INFO]["name"] == "s"


# Lists and pages


def shelf(page_size: int | None) -> MCPServer:
    server = MCPServer("shelf", page_size=page_size)
    for number in range(7):
        server.add_tool(lambda: "x", f"tool{number}")
        server.prompt(f"prompt{number}")(lambda: "x")
        server.resource(f"memo://{number}", name="m")(lambda: "x")
        server.resource(f"memo{number}://{{a}}", name="m")(lambda a: a)
    return server


LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize("page_size", [1, 3, 6, 7, 8])
def test_the_pages_together_are_the_list_in_order_and_each_carries_the_same_hints(method: str, page_size: int) -> None:
    member, name = LISTS[method]
    whole = [entry[name] for entry in send(shelf(None), request(method)).result[member]]
    server, seen, cursor, sizes = shelf(page_size), [], None, []
    while True:
        result = send(server, request(method, {} if cursor is None else {"cursor": cursor})).result
        validate_server_result(method, VERSION, result)
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        sizes.append(len(result[member]))
        seen += [entry[name] for entry in result[member]]
        if "nextCursor" not in result:
            break
        cursor = result["nextCursor"]
        assert type(cursor) is str
    assert seen == whole
    assert max(sizes) <= page_size
    assert 0 not in sizes


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize(
    "cursor", ["", "garbage", "☃", "====", "A", "dG9vbDk5", "AA==", "/w==", 0, 5, 1.5, True, [], ["a"], {}, {"a": 1}]
)
def test_a_cursor_that_was_never_given_out_is_invalid(method: str, cursor: Any) -> None:
    for page_size in (None, 2):
        reply = send(shelf(page_size), request(method, {"cursor": cursor}))
        assert reply.error["code"] == -32602


def test_a_cursor_whose_entry_is_gone_is_invalid() -> None:
    server = shelf(2)
    cursor = send(server, request("tools/list")).result["nextCursor"]
    server.remove_tool("tool1")
    assert send(server, request("tools/list", {"cursor": cursor})).error["code"] == -32602


def test_a_cursor_of_one_list_is_no_cursor_of_another() -> None:
    server = shelf(2)
    cursor = send(server, request("tools/list")).result["nextCursor"]
    assert send(server, request("prompts/list", {"cursor": cursor})).error["code"] == -32602


def test_a_null_cursor_is_the_first_page() -> None:
    assert len(send(shelf(2), request("tools/list", {"cursor": None})).result["tools"]) == 2


def test_tools_are_listed_in_the_same_order_every_time() -> None:
    server = shelf(None)
    first, second = (send(server, request("tools/list")).result["tools"] for _ in range(2))
    assert first == second
    assert [tool["name"] for tool in first] == [f"tool{number}" for number in range(7)]


def test_a_definition_shows_all_that_the_author_said() -> None:
    server = MCPServer("s")
    annotations = ToolAnnotations(title="T", read_only_hint=True)

    @server.tool("weather.get", title="Weather", annotations=annotations, meta={"com.example/a": 1})
    async def weather(city: Annotated[str, Field(description="Where")], days: int = 1) -> Point:
        """The weather."""
        return Point(x=1, y=days)

    result = send(server, request("tools/list")).result
    validate_server_result("tools/list", VERSION, result)
    (tool,) = result["tools"]
    assert (tool["name"], tool["title"], tool["description"]) == ("weather.get", "Weather", "The weather.")
    assert tool["annotations"] == {"title": "T", "readOnlyHint": True}
    assert tool["_meta"] == {"com.example/a": 1}
    assert tool["inputSchema"]["type"] == "object"
    assert tool["inputSchema"]["required"] == ["city"]
    assert tool["inputSchema"]["properties"]["city"]["description"] == "Where"
    assert set(tool["outputSchema"]["properties"]) == {"x", "y"}


def test_a_tool_without_parameters_still_has_an_object_for_its_schema() -> None:
    server = MCPServer("s")
    server.add_tool(lambda: "x", "none")
    assert send(server, request("tools/list")).result["tools"][0]["inputSchema"]["type"] == "object"


@pytest.mark.parametrize("part", [True, {}, {"type": ["string", "null"]}, {"items": True}, {"anyOf": [True]}])
def test_a_schema_that_the_author_wrote_is_listed_as_it_is(part: Any) -> None:
    server = MCPServer("s")
    schema = {"type": "object", "properties": {"x": part}}

    @server.tool(input_schema=schema)
    async def own(x: Any = None) -> str:
        return "x"

    assert send(server, request("tools/list")).result["tools"][0]["inputSchema"] == schema


# Calling tools


def test_a_call_without_arguments_is_a_call_with_none() -> None:
    server = MCPServer("s")
    server.add_tool(lambda: "fine", "plain")
    for params in ({"name": "plain"}, {"name": "plain", "arguments": None}, {"name": "plain", "arguments": {}}):
        assert send(server, request("tools/call", params)).text == "fine"


@pytest.mark.parametrize("params", [{}, {"name": None}, {"name": 1}, {"name": ["add"]}, {"name": {}}])
def test_a_call_must_name_its_tool(params: dict[str, Any]) -> None:
    reply = send(LIBRARY, request("tools/call", params))
    assert (reply.status, reply.error["code"]) == (400, -32602)


@pytest.mark.parametrize("member", ["arguments", "inputResponses"])
@pytest.mark.parametrize("value", [[], "x", 1, True])
def test_arguments_and_input_responses_are_objects(member: str, value: Any) -> None:
    assert send(LIBRARY, request("tools/call", {"name": "add", member: value})).error["code"] == -32602


@pytest.mark.parametrize("value", [1, True, [], {}])
def test_a_request_state_is_a_string(value: Any) -> None:
    assert send(LIBRARY, request("tools/call", {"name": "add", "requestState": value})).error["code"] == -32602


@pytest.mark.parametrize("name", ["nobody", "", "ADD", "add ", "add\x00", "../add", "☃", "x" * 10_000])
def test_an_unknown_tool_is_an_error_of_the_protocol(name: str) -> None:
    reply = send(LIBRARY, request("tools/call", {"name": name}))
    assert (reply.error["code"], reply.body["id"]) == (-32602, 1)


@pytest.mark.parametrize("name", ["nobody", "", "REVIEW"])
def test_an_unknown_prompt_is_an_error_of_the_protocol(name: str) -> None:
    assert send(LIBRARY, request("prompts/get", {"name": name})).error["code"] == -32602


@pytest.mark.parametrize("arguments", [{}, {"a": "x", "b": 1}, {"a": None, "b": 1}, {"a": [], "b": {}}])
def test_arguments_that_do_not_fit_are_a_tool_error_that_says_why(arguments: dict[str, Any]) -> None:
    reply = call(LIBRARY, "add", **arguments)
    assert reply.result["isError"] is True
    assert "a" in reply.text
    validate_server_result("tools/call", VERSION, reply.result)


def test_what_a_caller_sent_is_not_repeated_in_the_complaint_about_it() -> None:
    assert SECRET not in json.dumps(call(LIBRARY, "add", a=SECRET, b=SECRET).body)


def test_a_prompt_that_lacks_an_argument_is_invalid_params() -> None:
    assert send(LIBRARY, request("prompts/get", {"name": "review"})).error["code"] == -32602


def failing(error: BaseException) -> MCPServer:
    server = MCPServer("s")

    @server.tool()
    async def fail() -> str:
        raise error

    @server.tool()
    def fail_in_a_thread() -> str:
        raise error

    @server.prompt("fail")
    async def prompt() -> str:
        raise error

    @server.resource("fail://now")
    async def resource() -> str:
        raise error

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        raise error

    @server.handler("example/fail")
    async def handler(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        raise error

    return server


NOT_TOOLS = [
    ("prompts/get", {"name": "fail"}),
    ("resources/read", {"uri": "fail://now"}),
    ("completion/complete", ALWAYS_OPEN[-1][1]),
    ("example/fail", {}),
]


@pytest.mark.parametrize("tool", ["fail", "fail_in_a_thread"])
def test_the_text_of_a_tool_error_reaches_the_model(tool: str) -> None:
    reply = call(failing(ToolError("the disk is full")), tool)
    assert reply.status == 200
    assert reply.result["isError"] is True
    assert reply.text == "the disk is full"
    validate_server_result("tools/call", VERSION, reply.result)


@pytest.mark.parametrize("tool", ["fail", "fail_in_a_thread"])
@pytest.mark.parametrize("error", [RuntimeError(SECRET), KeyError(SECRET), OSError(5, SECRET), AssertionError(SECRET)])
def test_the_text_of_any_other_exception_stays_here_and_in_the_log(
    tool: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    reply = call(failing(error), tool)
    assert reply.result["isError"] is True
    assert SECRET not in json.dumps(reply.body)
    assert type(error).__name__ not in json.dumps(reply.body)
    assert SECRET in caplog.text


@pytest.mark.parametrize(("method", "params"), NOT_TOOLS)
def test_outside_of_tools_an_exception_is_an_internal_error_that_says_nothing(
    method: str, params: dict[str, Any]
) -> None:
    reply = send(failing(RuntimeError(SECRET)), request(method, params))
    assert (reply.status, reply.error["code"]) == (200, -32603)
    assert SECRET not in json.dumps(reply.body)


@pytest.mark.parametrize(("method", "params"), [*NOT_TOOLS, ("tools/call", {"name": "fail"})])
def test_an_mcp_error_goes_out_as_it_is(method: str, params: dict[str, Any]) -> None:
    reply = send(failing(MCPError(4711, "no seats", {"left": 0})), request(method, params, id="e"))
    assert reply.error == {"code": 4711, "message": "no seats", "data": {"left": 0}}
    assert reply.body["id"] == "e"


@pytest.mark.parametrize("data", [{1: "a"}, {"x": object()}, "\ud800", {"x": {1, 2}}, float("nan")])
def test_data_of_an_mcp_error_that_json_cannot_hold_does_not_lose_the_error(data: Any) -> None:
    reply = call(failing(MCPError(4711, "no seats", data)), "fail")
    assert (reply.error["code"], reply.error["message"]) == (4711, "no seats")


@pytest.mark.parametrize("error", [ToolError("half \ud800 done"), MCPError(1, "half \ud800 done")])
def test_text_that_utf8_cannot_hold_is_sent_with_a_mark_in_its_place(error: Exception) -> None:
    reply = call(failing(error), "fail")
    assert "half ? done" in json.dumps(reply.body)


def test_one_error_out_of_a_task_group_counts_as_that_error() -> None:
    group = ExceptionGroup("unhandled errors in a TaskGroup", [ExceptionGroup("inner", [ToolError("no ink")])])
    assert call(failing(group), "fail").text == "no ink"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words for it")


@pytest.mark.parametrize(("method", "params"), [*NOT_TOOLS, ("tools/call", {"name": "fail"})])
def test_an_exception_that_cannot_say_what_it_is_does_not_come_out(method: str, params: dict[str, Any]) -> None:
    reply = send(failing(Unprintable()), request(method, params))
    assert "result" in reply.body or reply.error["code"] == -32603


@pytest.mark.parametrize("tool", ["fail", "fail_in_a_thread"])
def test_a_tool_that_exits_does_not_take_the_server_with_it(tool: str) -> None:
    assert call(failing(SystemExit(3)), tool).result["isError"] is True


def test_a_plain_function_that_runs_out_of_items_fails_and_does_not_hang() -> None:
    server = MCPServer("s")

    @server.tool()
    def first(items: list[int]) -> int:
        return next(iter(items))

    @server.tool()
    async def step(ctx: Context) -> int:
        return await ctx.step(lambda: next(iter([])), name="first")

    async def main(name: str) -> Answer:
        params = {"name": name, "arguments": {"items": []}}
        return await asyncio.wait_for(answer(server, request("tools/call", params)), 1)

    assert asyncio.run(main("first")).result["isError"] is True
    assert asyncio.run(main("step")).result["isError"] is True


def test_a_tool_that_meets_a_cancelled_task_of_its_own_still_gets_a_reply() -> None:
    server = MCPServer("s")

    @server.tool()
    async def wait() -> str:
        inner = asyncio.create_task(asyncio.Event().wait())
        inner.cancel()
        await inner
        return "never"

    assert call(server, "wait").result["isError"] is True


def test_a_cancelled_request_raises_to_whoever_cancelled_it() -> None:
    server = MCPServer("s")
    began, seen = asyncio.Event(), []

    @server.tool()
    async def wait() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return ""

    async def main() -> None:
        task = asyncio.create_task(answer(server, request("tools/call", {"name": "wait"})))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert seen == ["cancelled"]


# What tools return


def returning(value: Any, annotation: Any = Any) -> Answer:
    server = MCPServer("s")

    def give() -> Any:
        return value

    give.__annotations__["return"] = annotation
    server.add_tool(give)
    reply = call(server, "give")
    validate_server_result("tools/call", VERSION, reply.result)
    return reply


PIXEL = b"\x89PNG"


def test_content_blocks_are_what_their_values_are() -> None:
    link = ResourceLink(type="resource_link", uri="memo://today", name="today")
    embedded = EmbeddedResource(type="resource", resource=TextResourceContents(uri="memo://x", text="x"))
    content = returning(["a", Image(data=PIXEL), Audio(data=PIXEL, format="mp3"), link, embedded]).result["content"]
    encoded = base64.b64encode(PIXEL).decode()
    assert content == [
        {"type": "text", "text": "a"},
        {"type": "image", "data": encoded, "mimeType": "image/png"},
        {"type": "audio", "data": encoded, "mimeType": "audio/mp3"},
        {"type": "resource_link", "uri": "memo://today", "name": "today"},
        {"type": "resource", "resource": {"uri": "memo://x", "text": "x"}},
    ]


def test_nothing_returned_is_no_content() -> None:
    assert returning(None).result["content"] == []


def test_a_result_that_the_author_built_goes_out_as_it_is() -> None:
    built = CallToolResult(content=[TextContent(type="text", text="no")], is_error=True, structured_content={"a": 1})
    result = returning(built).result
    assert (result["isError"], result["structuredContent"], result["content"][0]["text"]) == (True, {"a": 1}, "no")


@pytest.mark.parametrize(
    ("value", "annotation", "structured"),
    [
        (3, int, {"result": 3}),
        (True, bool, {"result": True}),
        ("x", str, {"result": "x"}),
        (1.5, float, {"result": 1.5}),
        ([1, 2], list[int], {"result": [1, 2]}),
        ({"a": 1}, dict[str, int], {"a": 1}),
        (Point(x=1, y=2), Point, {"x": 1, "y": 2}),
        ([Point(x=1, y=2)], list[Point], {"result": [{"x": 1, "y": 2}]}),
        (None, int | None, {"result": None}),
    ],
)
def test_annotated_values_come_as_structure_and_as_text(value: Any, annotation: Any, structured: Any) -> None:
    result = returning(value, annotation).result
    assert result["structuredContent"] == structured


def test_structure_that_does_not_fit_its_annotation_is_never_sent() -> None:
    reply = returning("not a number", int)
    assert reply.result["isError"] is True
    assert "structuredContent" not in reply.result


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_does_not_have_is_not_sent_against_the_output_schema(value: float) -> None:
    result = returning(value, float).result
    assert result.get("isError") or type(result["structuredContent"]["result"]) is float


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 15511210043330985984000000])
@pytest.mark.parametrize("annotation", [int, Any])
def test_a_whole_number_of_any_size_is_returned(value: int, annotation: Any) -> None:
    assert returning(value, annotation).text == str(value)


@pytest.mark.parametrize("value", [2**63, 2**64 + 1, 12345678901234567890123])
def test_a_whole_number_of_any_size_is_received_exactly_or_refused(value: int) -> None:
    server, got = MCPServer("s"), []

    @server.tool()
    async def take(n: int) -> str:
        got.append(n)
        return "taken"

    reply = call(server, "take", n=value)
    assert got == [value] or "error" in reply.body or reply.result.get("isError")


@pytest.mark.parametrize("value", ["\ud800", {"a": "\udfff"}, object(), {1: 2}])
def test_a_value_that_cannot_be_written_is_a_failure_and_not_an_exception(value: Any) -> None:
    reply = returning(value)
    assert reply.status == 200
    assert reply.body["id"] == 1


# Prompts and resources


@pytest.mark.parametrize(
    ("value", "roles"),
    [
        ("x", ["user"]),
        (UserMessage("x"), ["user"]),
        ([UserMessage("x"), AssistantMessage("y"), "z"], ["user", "assistant", "user"]),
        ([{"role": "assistant", "content": "x"}], ["assistant"]),
        ([PromptMessage(role="user", content=TextContent(type="text", text="x"))], ["user"]),
        (GetPromptResult(messages=[]), []),
        ([], []),
        (UserMessage(Image(data=PIXEL)), ["user"]),
    ],
)
def test_prompts_become_messages_whatever_they_return(value: Any, roles: list[str]) -> None:
    server = MCPServer("s")
    server.prompt("p")(lambda: value)
    result = send(server, request("prompts/get", {"name": "p"})).result
    validate_server_result("prompts/get", VERSION, result)
    assert [message["role"] for message in result["messages"]] == roles


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("x", {"mimeType": "text/plain", "text": "x"}),
        (b"\x00\xff", {"mimeType": "application/octet-stream", "blob": "AP8="}),
        (Point(x=1, y=2), {"mimeType": "application/json"}),
        ({"a": 1}, {"mimeType": "application/json"}),
        (TextResourceContents(uri="memo://v", text="t"), {"text": "t"}),
        (ReadResourceResult(contents=[BlobResourceContents(uri="memo://v", blob="AA==")]), {"blob": "AA=="}),
    ],
)
def test_resources_become_contents_whatever_they_return(value: Any, contents: dict[str, Any]) -> None:
    server = MCPServer("s")
    server.resource("memo://v")(lambda: value)
    result = send(server, request("resources/read", {"uri": "memo://v"})).result
    validate_server_result("resources/read", VERSION, result)
    (only,) = result["contents"]
    assert only["uri"] == "memo://v"
    assert contents.items() <= only.items()
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")


@pytest.mark.parametrize("uri", ["memo://none", "", "memo://TODAY", "file:///etc/passwd", "☃", "note://", "note://a/b"])
def test_a_resource_that_is_not_there_is_invalid_params_with_its_uri(uri: str) -> None:
    reply = send(LIBRARY, request("resources/read", {"uri": uri}, id=9))
    assert (reply.error["code"], reply.error["data"], reply.body["id"]) == (-32602, {"uri": uri}, 9)


@pytest.mark.parametrize("uri", [None, 1, [], {}, ...])
def test_a_read_must_name_its_uri(uri: Any) -> None:
    reply = send(LIBRARY, request("resources/read", {} if uri is ... else {"uri": uri}))
    assert (reply.status, reply.error["code"]) == (400, -32602)


def files() -> MCPServer:
    server = MCPServer("files")

    @server.resource("file:///{path*}")
    async def spanning(path: str) -> str:
        return f"spanning {path}"

    @server.resource("item://{name}")
    async def one(name: str) -> str:
        return f"one {name}"

    return server


def read_text(server: MCPServer, uri: str) -> str | None:
    reply = send(server, request("resources/read", {"uri": uri}))
    if "error" in reply.body:
        assert reply.error["code"] == -32602
        return None
    text: str = reply.result["contents"][0]["text"]
    return text


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("item://a", "one a"),
        ("item://a%20b", "one a b"),
        ("item://%E2%98%83", "one ☃"),
        ("item://a.b", "one a.b"),
        ("item://...", "one ..."),
        ("file:///a/b/c.txt", "spanning a/b/c.txt"),
        ("file:///a/..b/c", "spanning a/..b/c"),
        ("item://a\nb", "one a\nb"),
    ],
)
def test_a_template_gives_its_parameters_decoded(uri: str, text: str) -> None:
    assert read_text(files(), uri) == text


@pytest.mark.parametrize(
    "value",
    [
        "..",
        "%2e%2e",
        "%2E%2E",
        ".%2e",
        "../etc/passwd",
        "%2e%2e%2fetc%2fpasswd",
        "a/../../etc",
        "a/%2e%2e/b",
        "a%2f..%2fb",
        "..%5cwindows",
        "a\\b",
        "%5c%5chost",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "%2F%2Fhost",
        "a%00b",
        "\x00",
    ],
)
def test_a_template_value_that_climbs_is_no_resource_however_it_is_written(value: str) -> None:
    assert read_text(files(), f"file:///{value}") is None
    assert read_text(files(), f"item://{value}") is None


def test_a_slash_in_disguise_is_no_part_of_one_segment() -> None:
    assert read_text(files(), "item://a%2Fb") is None


@pytest.mark.parametrize("uri", ["x://{a}/{a}", "x://{a}{", "x://{}", "x://{a b}", "x://{?q}", "x://{1a}"])
def test_a_template_that_cannot_be_read_is_refused_at_registration(uri: str) -> None:
    with pytest.raises(InvalidSignature):
        MCPServer("s").resource(uri)(lambda a: a)


@pytest.mark.parametrize(
    ("template", "uri", "text"),
    [
        ("x://{a*}/{b}", "x://p/q/r", "p/q|r"),
        ("x://{a*}/{b}", "x://p/r", "p|r"),
        ("x://{a}/{b*}", "x://p/q/r", "p|q/r"),
        ("x://{a*}/of/{b}", "x://p/of/of/r", "p/of|r"),
        ("x://{a}/tree/{b*}", "x://p/tree/tree/q", "p|tree/q"),
        ("x://{a}-{b}", "x://p-q", "p|q"),
        ("x://{a}/{b}/end", "x://p/q/end", "p|q"),
    ],
)
def test_a_template_with_two_parameters_matches_whenever_some_split_fits(template: str, uri: str, text: str) -> None:
    server = MCPServer("s")
    server.resource(template)(lambda a, b: f"{a}|{b}")
    assert read_text(server, uri) == text


@pytest.mark.parametrize("uri", ["x://", "x:///", "x://p", "x://p/", "x:///r", "x://p/q/", "y://p/q"])
def test_a_template_does_not_match_where_a_parameter_would_be_empty(uri: str) -> None:
    server = MCPServer("s")
    server.resource("x://{a*}/{b}")(lambda a, b: f"{a}|{b}")
    assert read_text(server, uri) is None


def test_a_literal_in_a_template_is_not_a_pattern() -> None:
    server = MCPServer("s")
    server.resource("x://a.b+c/{name}")(lambda name: name)
    assert read_text(server, "x://a.b+c/n") == "n"
    assert read_text(server, "x://aXbbc/n") is None


@pytest.mark.parametrize(("template", "filler"), [("x://{a*}/{b*}/end", "/"), ("x://{a}-{b}.txt", "-")])
def test_a_uri_four_times_as_long_does_not_take_sixteen_times_as_long(template: str, filler: str) -> None:
    match = compile_template(template).match

    def cost(length: int) -> float:
        uri = "x://" + filler * length
        return min(timeit.repeat(lambda: match(uri), number=20, repeat=5))

    assert cost(400_000) < 10 * cost(100_000)


# Completion


@pytest.mark.parametrize(
    ("given", "values", "total", "more"),
    [
        (None, 0, None, False),
        ([], 0, None, None),
        (["a", "b"], 2, None, None),
        ([str(number) for number in range(100)], 100, None, None),
        ([str(number) for number in range(101)], 100, 101, True),
        ([str(number) for number in range(5000)], 100, 5000, True),
        (Completion(values=["a"], total=9, has_more=True), 1, 9, True),
    ],
)
def test_completions_hold_at_most_a_hundred_values(given: Any, values: int, total: int | None, more: Any) -> None:
    server = MCPServer("s")

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Any:
        return given

    result = send(server, request(*ALWAYS_OPEN[-1])).result
    validate_server_result("completion/complete", VERSION, result)
    completion = result["completion"]
    assert len(completion["values"]) == values
    assert completion.get("total") == total
    assert more is None or completion["hasMore"] is more


def test_a_completion_is_told_what_is_completed_and_what_is_settled() -> None:
    server, told = MCPServer("s"), []

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        told.append((ref.uri, argument.name, argument.value, context.arguments))
        return []

    params = {
        "ref": {"type": "ref/resource", "uri": "file:///{path}"},
        "argument": {"name": "path", "value": "a"},
        "context": {"arguments": {"x": "1"}},
    }
    send(server, request("completion/complete", params))
    assert told == [("file:///{path}", "path", "a", {"x": "1"})]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {}, "argument": {}},
        {"ref": {"type": "ref/other"}, "argument": {"name": "a", "value": "b"}},
        {"ref": {"type": "ref/prompt", "name": "p"}},
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": 1}},
        {"ref": [], "argument": []},
    ],
)
def test_a_malformed_completion_is_invalid_params(params: dict[str, Any]) -> None:
    assert send(LIBRARY, request("completion/complete", params)).error["code"] == -32602


def test_a_server_without_completions_has_no_such_method() -> None:
    reply = send(MCPServer("s"), request(*ALWAYS_OPEN[-1]))
    assert (reply.status, reply.error["code"]) == (404, -32601)


# Progress and log lines


def talkative() -> MCPServer:
    server = MCPServer("s")

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(0.5, 1.0, "half")
        await ctx.report_progress(1)
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"):
            await ctx.log(level, {"at": level}, logger_name="work")
        return "done"

    return server


@pytest.mark.parametrize("token", ["abc", "", 0, 7, -1, 2**53])
def test_progress_goes_out_under_the_token_that_the_client_chose(token: Any) -> None:
    notes = call(talkative(), "work", META | {"progressToken": token}).notes
    for note in notes:
        parse_server_notification(note["method"], VERSION, note["params"])
    assert [note["params"] for note in notes] == [
        {"progressToken": token, "progress": 0.5, "total": 1.0, "message": "half"},
        {"progressToken": token, "progress": 1},
    ]


@pytest.mark.parametrize("token", [None, True, 1.5, [], {}])
def test_without_a_usable_token_there_is_no_progress_and_no_failure(token: Any) -> None:
    reply = call(talkative(), "work", META | {"progressToken": token})
    assert (reply.text, reply.notes) == ("done", [])


def test_no_log_line_is_sent_unless_the_request_asks() -> None:
    assert call(talkative(), "work").notes == []


@pytest.mark.parametrize(
    ("level", "lines"), [("debug", 8), ("info", 7), ("warning", 5), ("error", 4), ("emergency", 1)]
)
def test_log_lines_are_sent_from_the_level_that_was_asked_for(level: str, lines: int) -> None:
    notes = call(talkative(), "work", META | {LOG_LEVEL: level}).notes
    assert len(notes) == lines
    for note in notes:
        parse_server_notification(note["method"], VERSION, note["params"])
        assert note["method"] == "notifications/message"
        assert note["params"]["logger"] == "work"
    assert notes[0]["params"]["level"] == level


@pytest.mark.parametrize("level", ["", "DEBUG", "verbose", 1, True, [], {}, ["debug"]])
def test_an_unknown_log_level_is_invalid_params(level: Any) -> None:
    reply = call(talkative(), "work", META | {LOG_LEVEL: level})
    assert (reply.error["code"], reply.notes) == (-32602, [])


@pytest.mark.parametrize("data", [object(), {1, 2}, b"\xff", float("nan"), None, 2**70])
def test_log_data_of_any_kind_is_sent_somehow_and_the_tool_goes_on(data: Any) -> None:
    server = MCPServer("s")

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.info(data)
        return "done"

    reply = call(server, "work", META | {LOG_LEVEL: "debug"})
    assert reply.text == "done"
    parse_server_notification("notifications/message", VERSION, reply.notes[0]["params"])


@pytest.mark.parametrize("progress", [float("nan"), float("inf")])
def test_progress_that_is_no_number_is_not_sent(progress: float) -> None:
    server = MCPServer("s")

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(progress)
        return "done"

    for note in call(server, "work", META | {"progressToken": 1}).notes:
        parse_server_notification(note["method"], VERSION, note["params"])


def test_progress_stops_with_the_reply_even_if_a_stray_task_goes_on() -> None:
    server, strays = MCPServer("s"), []
    replied = asyncio.Event()

    @server.tool()
    async def work(ctx: Context) -> str:
        async def late() -> None:
            await replied.wait()
            await ctx.report_progress(1)
            await ctx.info("late")

        strays.append(asyncio.create_task(late()))
        return "done"

    async def main() -> Answer:
        meta = META | {"progressToken": 1, LOG_LEVEL: "debug"}
        reply = await answer(server, request("tools/call", {"name": "work"}, meta=meta))
        replied.set()
        await asyncio.gather(*strays, return_exceptions=True)
        return reply

    assert asyncio.run(main()).notes == []


# Methods served by hand


def test_a_method_of_ones_own_is_served_with_its_params_and_the_context() -> None:
    server = MCPServer("s")

    @server.handler("example/echo")
    async def echo(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"said": params["say"], "id": ctx.request_id, "version": ctx.protocol_version}

    result = send(server, request("example/echo", {"say": [1, {"a": None}]}, id="r")).result
    assert (result["said"], result["id"], result["version"]) == ([1, {"a": None}], "r", VERSION)
    assert result["resultType"] == "complete"
    assert SERVER_INFO in result["_meta"]


@pytest.mark.parametrize("value", [None, {}, CallToolResult(content=[])])
def test_a_handler_may_return_a_model_a_mapping_or_nothing(value: Any) -> None:
    server = MCPServer("s")

    @server.handler("example/any")
    async def handle(ctx: Context, params: dict[str, Any]) -> Any:
        return value

    assert send(server, request("example/any")).result["resultType"] == "complete"


@pytest.mark.parametrize("value", ["x", 1, [], object()])
def test_a_handler_that_returns_anything_else_is_an_internal_error(value: Any) -> None:
    server = MCPServer("s")

    @server.handler("example/any")
    async def handle(ctx: Context, params: dict[str, Any]) -> Any:
        return value

    assert send(server, request("example/any")).error["code"] == -32603


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("tools/list", {"tools": []}),
        ("tools/list", ListToolsResult(tools=[Tool(name="own", input_schema={"type": "object"})])),
        ("prompts/list", {"prompts": []}),
        ("resources/list", {"resources": []}),
        ("resources/templates/list", {"resourceTemplates": []}),
        ("resources/read", {"contents": []}),
        ("server/discover", {"supportedVersions": [VERSION], "capabilities": {}}),
    ],
)
def test_a_cacheable_method_served_by_hand_carries_the_caching_hints_too(method: str, value: Any) -> None:
    server = MCPServer("s", cache_hints={method: CacheHint(9, "public")})

    @server.handler(method)
    async def handle(ctx: Context, params: dict[str, Any]) -> Any:
        return value

    result = send(server, request(method, {"uri": "memo://x"})).result
    validate_server_result(method, VERSION, result)
    assert (result["ttlMs"], result["cacheScope"]) == (9, "public")


def test_a_handler_for_tools_call_replaces_the_catalogue_and_may_ask() -> None:
    server = MCPServer("s")

    @server.handler("tools/call")
    async def handle(ctx: Context, params: dict[str, Any]) -> Any:
        if ctx.input_responses is None:
            form = {"type": "object", "properties": {"city": {"type": "string"}}}
            asked = {
                "city": {
                    "method": "elicitation/create",
                    "params": {"mode": "form", "message": "?", "requestedSchema": form},
                }
            }
            return InputRequiredResult.model_validate({"inputRequests": asked, "requestState": "plain"})
        chosen = ctx.input_responses["city"].content["city"]
        return CallToolResult(content=[TextContent(type="text", text=f"{ctx.request_state} {chosen}")])

    first = send(server, request("tools/call", {"name": "any"}, meta=ASKABLE)).result
    assert first["resultType"] == "input_required"
    assert "plain" not in first["requestState"]
    responses = {"city": {"action": "accept", "content": {"city": "Ulm"}}}
    retry = {"name": "any", "inputResponses": responses, "requestState": first["requestState"]}
    assert send(server, request("tools/call", retry, id=2, meta=ASKABLE)).text == "plain Ulm"


@pytest.mark.parametrize("method", ["tools/list", "completion/complete", "example/own", "server/discover"])
def test_only_the_three_methods_that_may_ask_can(method: str) -> None:
    server = MCPServer("s")

    @server.handler(method)
    async def handle(ctx: Context, params: dict[str, Any]) -> Any:
        return InputRequiredResult(request_state="x")

    reply = send(server, request(method, ALWAYS_OPEN[-1][1], meta=ASKABLE))
    assert reply.error["code"] == -32603


# Rounds, as far as the wire shows them


def test_answers_that_nobody_asked_for_are_ignored_and_the_question_comes_again() -> None:
    responses = {"city": {"action": "accept", "content": {"city": "Ulm"}}, "other": 5}
    reply = send(LIBRARY, request("tools/call", {"name": "where", "inputResponses": responses}, meta=ASKABLE))
    assert reply.result["resultType"] == "input_required"


@pytest.mark.parametrize(
    "response",
    [None, 5, "x", [], {}, {"action": "maybe"}, {"action": "accept"}, {"action": "accept", "content": {"city": 5}}],
)
def test_an_answer_that_does_not_fit_is_asked_for_again(response: Any) -> None:
    first = send(LIBRARY, request("tools/call", {"name": "where"}, meta=ASKABLE)).result
    retry = {"name": "where", "requestState": first["requestState"], "inputResponses": {"city": response}}
    again = send(LIBRARY, request("tools/call", retry, id=2, meta=ASKABLE)).result
    assert again["resultType"] == "input_required"
    assert again["inputRequests"] == first["inputRequests"]


def test_unexpected_answers_beside_the_right_one_are_ignored() -> None:
    first = send(LIBRARY, request("tools/call", {"name": "where"}, meta=ASKABLE)).result
    responses = {"city": {"action": "accept", "content": {"city": "Ulm", "x": 1}}, "zip": {"action": "accept"}}
    retry = {"name": "where", "requestState": first["requestState"], "inputResponses": responses}
    assert send(LIBRARY, request("tools/call", retry, id=2, meta=ASKABLE)).text == "Ulm"


@pytest.mark.parametrize("token", ["", "x", "s1.", "s1." + "A" * 80, "S1.AAAA", "☃", "s1.☃", "a" * 100_000])
def test_a_token_that_was_not_minted_here_is_refused_in_one_sentence(
    token: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        reply = send(LIBRARY, request("tools/call", {"name": "where", "requestState": token}, meta=ASKABLE))
    assert reply.error == {"code": -32602, "message": "Invalid or expired requestState"}
    assert "requestState refused" in caplog.text


# Subscriptions, as far as the wire shows them


def test_a_listen_acknowledges_first_then_tells_and_ends_with_a_result_under_its_id() -> None:
    server = library()

    @server.tool()
    async def touch(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        await ctx.notify_prompts_changed()
        await ctx.notify_resource_updated("memo://today")
        await ctx.notify_resource_updated("memo://other")
        return ""

    async def main() -> list[dict[str, Any]]:
        told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def emit(note: bytes) -> None:
            await told.put(strictly(note))

        wanted = {"toolsListChanged": True, "promptsListChanged": False, "resourceSubscriptions": ["memo://today"]}
        body = json.dumps(request("subscriptions/listen", {"notifications": wanted}, id="sub")).encode()
        listening = asyncio.create_task(server.wire.answer(Post(body, emit, NOW)))
        heard = [await told.get()]
        await answer(server, request("tools/call", {"name": "touch"}))
        heard += [await told.get(), await told.get()]
        server.close_subscriptions()
        reply = await listening
        assert told.empty()
        return [*heard, strictly(reply.body or b"")]

    acknowledged, tools, resource, closed = asyncio.run(main())
    for note in (acknowledged, tools, resource):
        parse_server_notification(note["method"], VERSION, note["params"])
        assert note["params"]["_meta"][SUBSCRIPTION] == "sub"
    assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
    assert acknowledged["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["memo://today"],
    }
    assert tools["method"] == "notifications/tools/list_changed"
    assert (resource["method"], resource["params"]["uri"]) == ("notifications/resources/updated", "memo://today")
    assert closed["id"] == "sub"
    assert closed["result"]["resultType"] == "complete"
    assert closed["result"]["_meta"][SUBSCRIPTION] == "sub"
    assert closed["result"]["_meta"][SERVER_INFO]["name"] == "library"
    validate_server_result("subscriptions/listen", VERSION, closed["result"])


@pytest.mark.parametrize("wanted", [[], "all", 1, {"resourceSubscriptions": "x"}, {"resourceSubscriptions": [1]}])
def test_a_filter_that_is_none_is_invalid_params(wanted: Any) -> None:
    reply = send(LIBRARY, request("subscriptions/listen", {"notifications": wanted}))
    assert (reply.error["code"], reply.notes) == (-32602, [])


def test_a_subscription_is_about_so_many_resources_and_no_more() -> None:
    wanted = {"resourceSubscriptions": [f"memo://{number}" for number in range(WATCHED + 1)]}
    reply = send(LIBRARY, request("subscriptions/listen", {"notifications": wanted}))
    assert (reply.status, reply.error["code"], reply.notes) == (400, -32602, [])
    assert reply.error["message"] == "at most 1000 resources are watched at a time"


class AskedBus(InMemoryBus):
    """A bus that counts how often a listener's filter is consulted."""

    def __init__(self) -> None:
        super().__init__()
        self.consulted = 0

    def subscribe(self, wants: Any) -> Any:
        def counted(change: Any) -> bool:
            self.consulted += 1
            return bool(wants(change))

        return super().subscribe(counted)


def test_a_listener_that_goes_before_it_is_acknowledged_is_forgotten() -> None:
    bus = AskedBus()
    server = MCPServer("s", subscriptions=bus)

    @server.tool()
    async def touch(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        return ""

    async def main() -> None:
        emitting = asyncio.Event()

        async def stuck(note: bytes) -> None:
            emitting.set()
            await asyncio.Event().wait()

        wanted = {"notifications": {"toolsListChanged": True}}
        body = json.dumps(request("subscriptions/listen", wanted)).encode()
        listening = asyncio.create_task(server.wire.answer(Post(body, stuck, NOW)))
        await emitting.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await answer(server, request("tools/call", {"name": "touch"}))

    asyncio.run(main())
    assert bus.consulted == 0


def test_a_listen_that_begins_after_the_shutdown_did_ends_at_once() -> None:
    server = library()

    async def main() -> Answer:
        server.close_subscriptions()
        return await asyncio.wait_for(answer(server, request("subscriptions/listen", {"notifications": {}})), 0.5)

    assert asyncio.run(main()).result["resultType"] == "complete"


class SharedChannel:
    """The tracker of a transport on which all requests share one channel; there is only one here."""

    def begin(self, request_id: str | int) -> None:
        pass

    def cancel(self, request_id: str | int) -> None:
        pass


@pytest.mark.parametrize("closed_first", [False, True])
def test_on_a_shared_channel_the_end_of_a_subscription_is_a_cancellation_too(closed_first: bool) -> None:
    server = library()

    async def main() -> list[dict[str, Any]]:
        notes: list[dict[str, Any]] = []

        async def emit(note: bytes) -> None:
            notes.append(strictly(note))
            if not closed_first:
                server.close_subscriptions()

        if closed_first:
            server.close_subscriptions()
        body = json.dumps(request("subscriptions/listen", {"notifications": {}}, id="sub")).encode()
        await asyncio.wait_for(server.wire.answer(Post(body, emit, NOW, tracker=SharedChannel())), 1)
        return notes

    notes = asyncio.run(main())
    assert [note["method"] for note in notes] == [
        "notifications/subscriptions/acknowledged",
        "notifications/cancelled",
    ]
    assert notes[1]["params"]["requestId"] == "sub"


# Headers, as far as the wire shows them


def test_headers_are_compared_only_where_the_transport_has_them() -> None:
    message = request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    assert send(LIBRARY, message).text == "3"
    assert send(LIBRARY, message, {}).error["code"] == -32020
    headers = {b"mcp-protocol-version": VERSION.encode(), b"mcp-method": b"tools/call", b"mcp-name": b"add"}
    assert send(LIBRARY, message, headers).text == "3"
