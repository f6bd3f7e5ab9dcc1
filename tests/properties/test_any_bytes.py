"""Any bytes give a reply, and no exception escapes: over the wire alone, over HTTP and over standard streams.

A reply is one JSON-RPC response with a code that the protocol has, or nothing where nothing may be answered. The tools
here do what they should with whatever they are given, so nothing that a client sends may end in an internal error, and
nothing may be logged as one.
"""

import asyncio
import base64
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from mcp_types.methods import SERVER_RESULTS, parse_server_notification, validate_server_result
from pydantic import BaseModel, Field

from turnwise import Context, Elicit, InputRequiredResult, MCPServer, RequestStateSecurity, Resolve
from turnwise._messages import Post

VERSION = "2026-07-28"
PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META: dict[str, Any] = {
    PROTOCOL: VERSION,
    CAPABILITIES: {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}},
    "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "0"},
    "io.modelcontextprotocol/logLevel": "debug",
    "progressToken": "p",
}
CODES = {-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022}
REFUSED = {"code": -32602, "message": "Invalid or expired requestState"}
NOW = 1_800_000_000.0


class City(BaseModel):
    city: str
    days: int = 1


@dataclass(frozen=True)
class Caller:
    principal: str


def ask_city(n: int = 0) -> Elicit[City]:
    return Elicit(f"City {n}?", City, key="declared")


def add_plain_tools(server: MCPServer) -> None:
    @server.tool()
    async def add(a: int, b: float, c: bool = False, d: list[int] | None = None) -> str:
        return "added"

    @server.tool()
    async def talk(ctx: Context, text: str = "x") -> str:
        await ctx.report_progress(1, message=text)
        await ctx.info({"text": text})
        return text

    @server.tool()
    async def echo(value: Any = None, rest: dict[str, Any] | None = None) -> str:
        return type(value).__name__

    @server.tool()
    async def route(
        region: Annotated[str | None, Field(json_schema_extra={"x-mcp-header": "Region"})] = None,
        limit: Annotated[int | None, Field(json_schema_extra={"x-mcp-header": "Limit"})] = None,
        dry: Annotated[bool | None, Field(json_schema_extra={"x-mcp-header": "Dry"})] = None,
    ) -> str:
        return "routed"


def add_asking_tools(server: MCPServer) -> None:
    @server.tool()
    async def inline(ctx: Context, n: int = 0) -> str:
        form = await ctx.elicit("City?", City, key="form")
        page = await ctx.elicit_url("Visit", f"https://example.com/{n}", key="page")
        said = await ctx.sample("Say", key="said")
        roots = await ctx.roots(key="roots")
        return f"{form.action} {page.action} {said.role} {len(roots)}"

    @server.tool()
    async def together(ctx: Context) -> str:
        answers = await ctx.ask_all(a=Elicit("A?", City), b=Elicit("B?", int))
        return ",".join(answer.action for answer in answers.values())

    @server.tool()
    async def declared(city: Annotated[City, Resolve(ask_city)], n: int = 0) -> str:
        return "declared"

    @server.tool()
    async def by_hand(ctx: Context) -> Any:
        form = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
        if not ctx.input_responses:
            params = {"mode": "form", "message": "?", "requestedSchema": form}
            asked = {"hand": {"method": "elicitation/create", "params": params}, "roots": {"method": "roots/list"}}
            return InputRequiredResult.model_validate({"inputRequests": asked, "requestState": "mine"})
        raw = await ctx.session.elicit_form("Raw?", form)
        return f"{ctx.request_state} {raw.action}"

    @server.tool()
    async def secret(ctx: Context) -> str:
        async def learn() -> str:
            return f"secret of {ctx.access_token.principal}"

        known = await ctx.step(learn, name="learn")
        await ctx.elicit("Sure?", City, key="sure")
        return known


def add_the_rest(server: MCPServer) -> None:
    @server.prompt()
    async def review(code: str, ctx: Context) -> str:
        return str((await ctx.elicit("City?", City, key="form")).action)

    @server.resource("memo://{name}/{rest*}")
    async def memo(name: str, rest: str) -> str:
        return name + rest

    @server.resource("memo://today")
    async def today() -> bytes:
        return b"today"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        return [argument.value]

    @server.handler("example/own")
    async def own(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"members": len(params)}


SERVER = MCPServer("fuzz", request_state_security=RequestStateSecurity(keys=[b"k" * 32]), page_size=2)
add_plain_tools(SERVER)
add_asking_tools(SERVER)
add_the_rest(SERVER)


# What a good reply is


class Failures(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self, found: list[logging.LogRecord]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(record)


@contextmanager
def nothing_logged_as_failed() -> Iterator[None]:
    failures: list[logging.LogRecord] = []
    handler = Failures(failures)
    logging.getLogger("turnwise").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("turnwise").removeHandler(handler)
    assert not failures, failures[0].exc_info or failures[0].getMessage()


def strictly(text: bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def check_message(sent: bytes, message: Any) -> None:
    """Hold one message from the server against the protocol."""
    assert message["jsonrpc"] == "2.0"
    if "method" in message:
        assert set(message) == {"jsonrpc", "method", "params"}
        parse_server_notification(message["method"], VERSION, message["params"])
    elif "error" in message:
        assert set(message) <= {"jsonrpc", "id", "error"}
        assert type(message.get("id", "")) in (str, int)
        assert message["error"]["code"] in CODES - {-32603}
        assert type(message["error"]["message"]) is str
        assert "Traceback" not in message["error"]["message"]
    else:
        assert set(message) == {"jsonrpc", "id", "result"}
        assert type(message["id"]) in (str, int)
        assert message["result"]["resultType"] in ("complete", "input_required")
        assert message["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "fuzz"
        method: Any = strictly_or_none(sent).get("method")
        if (method, VERSION) in SERVER_RESULTS:
            validate_server_result(method, VERSION, message["result"])


def strictly_or_none(sent: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(sent)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


async def until_done(task: "asyncio.Task[Any]") -> Any:
    """Wait for an answer; a subscription would never end by itself."""
    while not task.done():
        SERVER.close_subscriptions()
        await asyncio.sleep(0)
    return task.result()


def over_the_wire(sent: bytes, access: Caller | None = None) -> Any:
    """The reply, checked; None where there is none."""
    notes: list[bytes] = []

    async def emit(note: bytes) -> None:
        notes.append(note)

    async def main() -> Any:
        return await until_done(asyncio.create_task(SERVER.wire.answer(Post(sent, emit, NOW, None, access))))

    with nothing_logged_as_failed():
        reply = asyncio.run(main())
    for note in notes:
        check_message(sent, strictly(note))
    assert reply.status in (200, 202, 400, 404)
    assert (reply.status == 202) == (reply.body is None)
    if reply.body is None:
        return None
    message = strictly(reply.body)
    check_message(sent, message)
    return message


Headers = list[tuple[bytes, bytes]]


def over_http(sent: bytes, headers: Headers, method: str = "POST", path: str = "/mcp") -> int:
    """The status, once what was sent has been checked."""
    messages: list[dict[str, Any]] = []
    body = [{"type": "http.request", "body": sent, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if body:
            return body.pop()
        await asyncio.Event().wait()
        return {}

    async def send(message: Any) -> None:
        messages.append(message)

    async def main() -> None:
        scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": headers}
        await until_done(asyncio.ensure_future(SERVER.asgi()(scope, receive, send)))

    with nothing_logged_as_failed():
        asyncio.run(main())
    start, *parts = messages
    assert start["type"] == "http.response.start"
    assert all(part["type"] == "http.response.body" for part in parts)
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    status: int = start["status"]
    assert 200 <= status < 500
    whole = b"".join(part["body"] for part in parts)
    kind = dict(start["headers"]).get(b"content-type")
    if kind == b"text/event-stream":
        for event in whole.split(b"\r\n\r\n"):
            if event:
                check_message(sent, strictly(event.removeprefix(b"event: message\r\ndata: ")))
    elif whole:
        assert kind == b"application/json"
        check_message(sent, strictly(whole))
    else:
        assert status == 202
    return status


# What is sent

TEXTS = st.text(st.characters(), max_size=20)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**80), 2**80),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.sampled_from(["accept", "decline", "form", "add", "memo://today", VERSION, "debug", "2.0", "user", "text"]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)
ODD_JSON = [
    "1e999",
    "-1e999",
    "1e-999",
    "-0",
    "-0.0",
    "9" * 400,
    "9" * 4300,
    "9" * 5000,
    "-" + "9" * 30,
    "0." + "1" * 400,
    "18446744073709551616",
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\u0000"',
    '"\x00"',
    '"' + "x" * 100_000 + '"',
    '{"a":1,"a":2}',
    '{"":{"":{"":0}}}',
    '{"__class__":0,"__proto__":{}}',
    "[" * 90 + "]" * 90,
    "[" * 300 + "]" * 300,
    '{"a":' * 300 + "1" + "}" * 300,
    "[" * 5000,
    "[" + "[]," * 200 + "[]]",
    "NaN",
    "Infinity",
    "nul",
    "01",
    "{",
    '"',
    "",
]
RAW = VALUES.map(json.dumps) | st.sampled_from(ODD_JSON)

Node = list[tuple[str, Any]] | str


def node(value: Any) -> Node:
    """A value as something whose every member can be changed, and written out raw."""
    return [(name, node(part)) for name, part in value.items()] if isinstance(value, dict) else json.dumps(value)


def written(part: Node) -> str:
    if isinstance(part, str):
        return part
    return "{" + ",".join(f"{json.dumps(name)}:{written(inner)}" for name, inner in part) + "}"


def places(part: Node) -> Iterator[tuple[list[tuple[str, Any]], int]]:
    """Every member at every depth: the object it is in, and its number there."""
    if not isinstance(part, str):
        for number, (_, inner) in enumerate(part):
            yield part, number
            yield from places(inner)


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}


def calling(tool: str, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", name=tool, arguments=arguments, inputResponses={"form": {"action": "accept"}})


GOOD = [
    request("server/discover"),
    request("tools/list", cursor="YWRk"),
    request("prompts/list"),
    request("resources/list"),
    request("resources/templates/list"),
    request("resources/read", uri="memo://a/b/c"),
    request("resources/read", uri="memo://today"),
    request("prompts/get", name="review", arguments={"code": "x"}),
    request("completion/complete", ref={"type": "ref/prompt", "name": "review"}, argument={"name": "a", "value": "b"}),
    request(
        "subscriptions/listen",
        notifications={"toolsListChanged": True, "resourceSubscriptions": ["memo://today"]},
    ),
    request("example/own", anything={"at": "all"}),
    calling("add", a=1, b=2.5, c=True, d=[1]),
    calling("talk", text="hello"),
    calling("echo", value={"a": [1]}, rest={"b": None}),
    calling("inline", n=1),
    calling("together"),
    calling("declared", n=1),
    calling("by_hand"),
    calling("route", region="eu", limit=5, dry=True),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "x"}},
]


MEMBERS = st.sampled_from(
    ["result", "error", "id", "params", "_meta", "name", "uri", "cursor", "inputResponses", "requestState"]
)


@st.composite
def changed_requests(draw: st.DrawFn) -> bytes:
    """A good request of which a few members are replaced, doubled, renamed or gone."""
    message = node(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 3))):
        spots = list(places(message))
        if not spots:
            break
        owner, number = draw(st.sampled_from(spots))
        name, _ = owner[number]
        match draw(st.sampled_from(["replace", "replace", "replace", "double", "add", "rename", "drop"])):
            case "replace":
                owner[number] = (name, draw(RAW))
            case "double":
                owner.append((name, draw(RAW)))
            case "add":
                owner.append((draw(MEMBERS), draw(RAW)))
            case "rename":
                owner[number] = (draw(TEXTS), owner[number][1])
            case _:
                del owner[number]
    return written(message).encode("utf-8", "surrogatepass")


@st.composite
def broken_requests(draw: st.DrawFn) -> bytes:
    """A good request whose bytes are cut, flipped or stuffed."""
    body = bytearray(json.dumps(draw(st.sampled_from(GOOD))).encode())
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(body)))
        body[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)


ANY_BODY = changed_requests() | broken_requests() | st.binary(max_size=200)


def good_headers(sent: bytes) -> Headers:
    """The headers that belong to a message, as well as they can be told."""
    message = strictly_or_none(sent)
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    meta = params.get("_meta")
    version = meta.get(PROTOCOL, VERSION) if isinstance(meta, dict) else VERSION
    named = params.get("uri" if message.get("method") == "resources/read" else "name", "")
    arguments = params.get("arguments")
    mirrored = arguments if params.get("name") == "route" and isinstance(arguments, dict) else {}
    return [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"mcp-protocol-version", str(version).encode()),
        (b"mcp-method", str(message.get("method")).encode()),
        (b"mcp-name", encoded(named)),
        *((b"mcp-param-" + name.lower().encode(), encoded(value)) for name, value in mirrored.items() if value),
    ]


def encoded(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return b"=?base64?" + base64.b64encode(text.encode("utf-8", "surrogatepass")) + b"?="


HEADER_NAMES = st.sampled_from(
    [
        b"host",
        b"origin",
        b"content-type",
        b"content-length",
        b"accept",
        b"authorization",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
        b"mcp-param-region",
        b"mcp-param-limit",
        b"mcp-param-dry",
        b"mcp-session-id",
        b"last-event-id",
    ]
) | st.binary(min_size=1, max_size=10).map(bytes.lower)
HEADER_VALUES = (
    st.binary(max_size=30)
    | st.sampled_from([b"9" * 5000, b"=?base64?", b"=?base64?=", b"=?base64??=", b"\xb2", b"http://[", b"[", b":"])
    | st.binary(max_size=10).map(lambda value: b"=?base64?" + value + b"?=")
    | st.binary(max_size=10).map(lambda value: b"=?base64?" + base64.b64encode(value) + b"?=")
    | st.from_regex(rb"-?[0-9]{0,20}(\.[0-9]{0,20})?", fullmatch=True)
)


# The properties


@given(st.binary(max_size=2000) | broken_requests())
def test_any_bytes_on_the_wire_give_a_reply(sent: bytes) -> None:
    over_the_wire(sent)


@given(RAW)
@example("[" * 100_000)
@example('{"a":' * 100_000)
def test_any_json_on_the_wire_gives_a_reply(sent: str) -> None:
    over_the_wire(sent.encode("utf-8", "surrogatepass"))


@settings(max_examples=settings().max_examples * 4)
@given(changed_requests())
def test_any_change_of_a_good_request_gives_a_reply(sent: bytes) -> None:
    over_the_wire(sent)


@given(st.sampled_from(GOOD))
def test_good_requests_are_served_by_every_road(message: dict[str, Any]) -> None:
    sent = json.dumps(message).encode()
    reply = over_the_wire(sent)
    assert reply is None or "result" in reply
    status = over_http(sent, good_headers(sent))
    assert status == (200 if "id" in message else 202)


@settings(max_examples=settings().max_examples * 2)
@given(ANY_BODY)
def test_any_body_over_http_gives_a_reply(sent: bytes) -> None:
    over_http(sent, good_headers(sent))


@settings(max_examples=settings().max_examples * 2)
@given(st.sampled_from(GOOD), st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=6), st.booleans())
@example(GOOD[0], [(b"content-length", b"9" * 5000)], True)
def test_any_headers_over_http_give_a_reply(message: dict[str, Any], odd: Headers, replace: bool) -> None:
    sent = json.dumps(message).encode()
    kept = [(name, value) for name, value in good_headers(sent) if not replace or name not in dict(odd)]
    over_http(sent, [*kept, *odd])


@given(st.text(st.characters(), max_size=20), st.sampled_from(["GET", "POST", "DELETE", "OPTIONS", "", "X" * 100]))
def test_any_path_and_method_over_http_give_a_reply(path: str, method: str) -> None:
    over_http(b"{}", good_headers(b"{}"), method, path)


def asked(tool: str, access: Caller | None = None, **params: Any) -> dict[str, Any]:
    """The first round of a tool that asks."""
    message = request("tools/call", name=tool, arguments={}, **params)
    result: dict[str, Any] = over_the_wire(json.dumps(message).encode(), access)["result"]
    assert result["resultType"] == "input_required"
    return result


PART_ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["accept", "decline", "cancel"]) | VALUES,
        "content": VALUES | st.fixed_dictionaries({"city": VALUES, "days": VALUES}) | st.just({"value": 1}),
        "role": st.sampled_from(["user", "assistant"]) | VALUES,
        "model": VALUES,
        "stopReason": VALUES,
        "roots": VALUES | st.lists(st.fixed_dictionaries({"uri": VALUES, "name": VALUES}), max_size=2),
        "_meta": VALUES,
    },
)
CONTENT = st.fixed_dictionaries({"type": st.sampled_from(["text", "image", "tool_use"]) | VALUES, "text": VALUES})
ANSWERS = (
    VALUES | PART_ANSWERS | st.fixed_dictionaries({"role": st.just("assistant"), "model": TEXTS, "content": CONTENT})
)
GOOD_ANSWERS: dict[str, Any] = {
    "form": {"action": "accept", "content": {"city": "Ulm"}},
    "page": {"action": "accept"},
    "said": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}},
}


@settings(max_examples=settings().max_examples * 2)
@given(
    st.sampled_from(["inline", "together", "declared", "by_hand"]),
    st.lists(ANSWERS, min_size=4, max_size=4),
    st.booleans(),
)
def test_any_answers_to_questions_give_a_reply(tool: str, odd: list[Any], all_odd: bool) -> None:
    result = asked(tool)
    for answer in odd:
        responses = {key: GOOD_ANSWERS.get(key, answer) for key in result["inputRequests"]}
        if all_odd:
            responses = dict.fromkeys(result["inputRequests"], answer)
        params = {"name": tool, "arguments": {}, "inputResponses": responses, "requestState": result["requestState"]}
        reply = over_the_wire(json.dumps(request("tools/call", **params)).encode())
        if "result" not in reply or reply["result"]["resultType"] == "complete":
            break
        result = reply["result"]


ALICE, BOB = Caller("alice"), Caller("bob")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@st.composite
def changed_tokens(draw: st.DrawFn) -> str:
    """A token of Alice's with something changed."""
    token: str = asked("secret", ALICE)["requestState"]
    place = draw(st.integers(0, len(token) - 1))
    match draw(st.sampled_from(["letter", "cut", "insert", "respell", "case", "pad", "double", "space"])):
        case "letter":
            changed = token[:place] + draw(st.sampled_from(ALPHABET)) + token[place + 1 :]
        case "cut":
            changed = token[:place]
        case "insert":
            changed = token[:place] + draw(TEXTS) + token[place:]
        case "respell":
            changed = token[:3] + token[3:].replace("-", "+").replace("_", "/")
        case "case":
            changed = token.swapcase()
        case "pad":
            changed = token + "=" * draw(st.integers(1, 4))
        case "double":
            changed = token + token
        case _:
            changed = draw(st.sampled_from([f" {token}", f"{token}\n", f"{token}\0"]))
    assume(changed != token)
    return changed


def retried(token: str, access: Caller | None) -> Any:
    responses = {"sure": {"action": "accept", "content": {"city": "Ulm"}}}
    params = {"name": "secret", "arguments": {}, "inputResponses": responses, "requestState": token}
    return over_the_wire(json.dumps(request("tools/call", **params)).encode(), access)


def test_a_token_serves_whom_it_was_minted_for() -> None:
    reply = retried(asked("secret", ALICE)["requestState"], ALICE)
    assert reply["result"]["content"][0]["text"] == "secret of alice"


@settings(max_examples=settings().max_examples * 2)
@given(
    changed_tokens()
    | TEXTS
    | TEXTS.map(lambda text: f"s1.{text}")
    | st.binary(max_size=200).map(lambda raw: "s1." + base64.urlsafe_b64encode(raw).decode().rstrip("="))
)
def test_a_token_that_was_changed_in_any_way_is_refused(token: str) -> None:
    for access in (ALICE, BOB):
        reply = retried(token, access)
        assert "secret of" not in json.dumps(reply)
        assert reply["error"] == REFUSED or reply["error"]["code"] == -32700


@given(st.sampled_from([BOB, Caller(""), Caller("alice "), Caller("Alice"), None]))
def test_a_token_is_worth_nothing_in_other_hands(access: Caller | None) -> None:
    reply = retried(asked("secret", ALICE)["requestState"], access)
    assert reply["error"] == REFUSED


@given(st.sampled_from(["inline", "together", "by_hand", "add"]), st.dictionaries(TEXTS, VALUES, max_size=2))
def test_a_token_is_worth_nothing_on_another_request(tool: str, arguments: dict[str, Any]) -> None:
    token = asked("secret", ALICE)["requestState"]
    for params in ({"name": tool, "arguments": {}}, {"name": "secret", "arguments": {**arguments, "x": 1}}):
        message = request("tools/call", **params, requestState=token)
        reply = over_the_wire(json.dumps(message).encode(), ALICE)
        assert "error" in reply
        assert "secret of" not in json.dumps(reply)


PROCESS = f"""
import importlib.util
spec = importlib.util.spec_from_file_location("any_bytes", {str(Path(__file__))!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.SERVER.run("stdio")
"""


@settings(max_examples=max(1, settings().max_examples // 40))
@given(st.lists(ANY_BODY, min_size=100, max_size=200))
def test_any_lines_on_standard_input_are_answered_and_the_last_one_too(lines: list[bytes]) -> None:
    last = json.dumps({**request("tools/list"), "id": "the last one"}).encode()
    ended = subprocess.run(
        [sys.executable, "-c", PROCESS],
        input=b"\n".join([*lines, last, b""]),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert b"Traceback" not in ended.stderr, ended.stderr.decode()
    messages = [strictly(part) for part in ended.stdout.splitlines()]
    for message in messages:
        check_message(b"", message)
    replies = [message for message in messages if "method" not in message]
    assert len(replies) <= len(b"\n".join([*lines, last]).split(b"\n"))
    assert [message for message in replies if message.get("id") == "the last one" and "result" in message]
