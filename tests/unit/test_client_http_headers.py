"""What the client says in headers: what it repeats of the body, what the user adds, and what is refused."""

import base64
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.scripted import (
    CITY,
    DONE,
    READS,
    VERSION,
    Line,
    Request,
    Script,
    accept,
    called,
    in_turn,
    interim,
    run,
    text_of,
    tool,
    visiting,
)
from turnwise import Client, MCPError, UnsupportedVersion


@pytest.mark.parametrize("rpc", READS)
def test_every_request_says_its_version_its_method_and_what_it_takes(rpc: str) -> None:
    ask, result = READS[rpc]

    async def flow() -> Request:
        async with visiting(in_turn(then=result)) as (client, peer):
            await ask(client)
            return peer.requests[0]

    request = run(flow())
    assert request.method == "POST"
    assert request.path == "/mcp"
    assert request.headers["mcp-protocol-version"] == VERSION
    assert request.headers["mcp-method"] == rpc
    assert request.headers["content-type"] == "application/json"
    accepted = {part.strip() for part in request.headers["accept"].split(",")}
    assert accepted == {"application/json", "text/event-stream"}
    assert "cookie" not in request.headers
    assert "mcp-session-id" not in request.headers
    assert ("mcp-name" in request.headers) == (rpc in ("resources/read", "prompts/get"))


def in_base64(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


PLAIN = ["t", "a b", "a\tb", "memo://a/b?c=d#e", "=?base64?", "?=", "=?BASE64?YQ==?=", "~!@#$%^&*()"]
ENCODED = [
    " a",
    "a ",
    "\ta",
    "a\n",
    "a\r\nX-Evil: 1",
    "\x00",
    "\x7f",
    "ü",
    "世界",
    "\u202e",
    "=?base64?YQ==?=",
    "=?base64?=",
]


@pytest.mark.parametrize(
    ("rpc", "name"),
    [
        *(("tools/call", name) for name in (*PLAIN, *ENCODED)),
        *(("prompts/get", name) for name in ("a b", "ü", "a\r\nX-Evil: 1")),
        *(("resources/read", name) for name in ("memo://a/b?c=d#e", "世界", "a ")),
    ],
)
def test_names_and_addresses_are_repeated_in_a_header_that_can_carry_them(rpc: str, name: str) -> None:
    asks: dict[str, Callable[[Client], Any]] = {
        "tools/call": lambda client: client.call_tool(name),
        "prompts/get": lambda client: client.get_prompt(name),
        "resources/read": lambda client: client.read_resource(name),
    }
    results = {"tools/call": DONE, "prompts/get": {"messages": []}, "resources/read": {"contents": []}}

    async def flow() -> Request:
        async with visiting(in_turn(then=results[rpc])) as (client, peer):
            await asks[rpc](client)
            return peer.requests[0]

    request = run(flow())
    assert request.headers["mcp-name"] == (in_base64(name) if name in ENCODED else name)
    assert request.params["uri" if rpc == "resources/read" else "name"] == name
    assert "x-evil" not in request.headers


def marked(kind: str, header: str) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header}


ROUTED = tool(
    properties={
        "region": marked("string", "Region"),
        "limit": marked("integer", "X_Limit"),
        "dry": marked("boolean", "dry-run"),
        "where": {
            "type": "object",
            "properties": {"zone": {"type": "object", "properties": {"id": marked("string", "Zone")}}},
        },
        "free": {"type": "string"},
    }
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, {}),
        ({"region": None, "limit": None, "dry": None, "where": None}, {}),
        ({"region": "eu", "free": "x"}, {"region": "eu"}),
        ({"limit": 42}, {"x_limit": "42"}),
        ({"limit": -7}, {"x_limit": "-7"}),
        ({"limit": 0, "dry": False}, {"x_limit": "0", "dry-run": "false"}),
        ({"dry": True}, {"dry-run": "true"}),
        ({"where": {"zone": {"id": "a"}}}, {"zone": "a"}),
        ({"where": {"zone": {}}}, {}),
        ({"where": {"zone": None}}, {}),
        ({"where": "nowhere"}, {}),
        ({"region": ""}, {"region": ""}),
        ({"region": "Hello, 世界"}, {"region": "=?base64?SGVsbG8sIOS4lueVjA==?="}),
        ({"region": " padded "}, {"region": "=?base64?IHBhZGRlZCA=?="}),
        ({"region": "line1\nline2"}, {"region": "=?base64?bGluZTEKbGluZTI=?="}),
        ({"region": "=?base64?literal?="}, {"region": "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="}),
    ],
)
def test_marked_arguments_are_repeated_in_headers(arguments: dict[str, Any], expected: dict[str, str]) -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply({"tools": [ROUTED]} if request.rpc == "tools/list" else DONE))

    async def flow() -> Request:
        async with visiting(script) as (client, peer):
            await client.list_tools()
            await client.call_tool("t", arguments)
            return peer.requests[-1]

    request = run(flow())
    prefix = "mcp-param-"
    found = {name.removeprefix(prefix): value for name, value in request.headers.items() if name.startswith(prefix)}
    assert found == expected
    assert request.params["arguments"] == arguments


INVALID: dict[str, Any] = {
    "empty": {"a": marked("string", "")},
    "space": {"a": marked("string", "a b")},
    "colon": {"a": marked("string", "a:b")},
    "newline": {"a": marked("string", "a\r\nX-Evil: 1")},
    "not ASCII": {"a": marked("string", "ü")},
    "no text": {"a": {"type": "string", "x-mcp-header": 5}},
    "twice": {"a": marked("string", "R"), "b": marked("string", "r")},
    "number": {"a": marked("number", "A")},
    "object": {"a": marked("object", "A")},
    "array": {"a": marked("array", "A")},
    "no type": {"a": {"x-mcp-header": "A"}},
    "odd type": {"a": {"type": {"a": 1}, "x-mcp-header": "A"}},
    "in items": {"a": {"type": "array", "items": marked("string", "A")}},
    "in a choice": {"a": {"oneOf": [{"type": "object", "properties": {"b": marked("string", "A")}}]}},
    "properties are a list": [marked("string", "A")],
}


@pytest.mark.parametrize("name", INVALID)
def test_a_tool_with_an_invalid_mark_is_left_out_and_logged(name: str, caplog: pytest.LogCaptureFixture) -> None:
    bad = {"name": "bad", "inputSchema": {"type": "object", "properties": INVALID[name]}}

    async def flow() -> list[str]:
        async with visiting(in_turn({"tools": [tool("first"), bad, ROUTED]})) as (client, _):
            return [listed.name for listed in (await client.list_tools()).tools]

    with caplog.at_level(logging.WARNING, "turnwise.client"):
        assert run(flow()) == ["first", "t"]
    (record,) = caplog.records
    assert "'bad'" in record.getMessage()


def mismatching(always: bool) -> Script:
    """A server that wants a header for the region, as its newest list says."""
    lists = 0

    async def script(request: Request, line: Line) -> None:
        nonlocal lists
        if request.rpc == "tools/list":
            lists += 1
            await line.json(request.reply({"tools": [tool() if lists == 1 else ROUTED], "ttlMs": 60_000}))
        elif always or "mcp-param-region" not in request.headers:
            await line.json(request.refusal(-32020), 400)
        else:
            await line.json(request.reply(DONE))

    return script


def test_a_call_whose_headers_do_not_match_is_repeated_once_with_those_of_a_new_list() -> None:
    async def flow() -> list[Request]:
        async with visiting(mismatching(always=False)) as (client, peer):
            await client.list_tools()
            assert text_of(await client.call_tool("t", {"region": "eu"})) == "done"
            return peer.requests

    _, first, listing, second = run(flow())
    assert (first.rpc, listing.rpc, second.rpc) == ("tools/call", "tools/list", "tools/call")
    assert "mcp-param-region" not in first.headers
    assert second.headers["mcp-param-region"] == "eu"
    assert first.id != second.id


def test_a_call_whose_headers_never_match_is_given_up_after_one_more_try() -> None:
    async def flow() -> list[str]:
        async with visiting(mismatching(always=True)) as (client, peer):
            with pytest.raises(MCPError) as caught:
                await client.call_tool("t", {"region": "eu"})
            assert caught.value.code == -32020
            return [request.rpc for request in peer.requests]

    assert run(flow()) == ["tools/call", "tools/list", "tools/call"]


def test_a_list_that_turned_out_to_be_old_is_not_used_again() -> None:
    async def flow() -> None:
        async with visiting(mismatching(always=False)) as (client, peer):
            await client.list_tools()
            await client.call_tool("t", {"region": "eu"})
            (listed,) = (await client.list_tools()).tools
            assert "region" in listed.input_schema["properties"]
            await client.call_tool("t", {"region": "eu"})
            assert peer.requests[-1].headers["mcp-param-region"] == "eu"
            assert len(peer.sent("tools/call")) == 3

    run(flow())


def test_a_version_that_is_supported_after_all_is_tried_once_more() -> None:
    left = [True]

    async def script(request: Request, line: Line) -> None:
        if left:
            left.pop()
            await line.json(request.refusal(-32022, {"supported": ["2099-01-01", VERSION], "requested": VERSION}), 400)
        else:
            await line.json(request.reply(DONE))

    async def flow() -> list[Any]:
        async with visiting(script) as (client, peer):
            assert text_of(await client.call_tool("t", {})) == "done"
            return [request.id for request in peer.requests]

    first, second = run(flow())
    assert first != second


def test_a_version_that_is_refused_again_is_given_up() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.refusal(-32022, {"supported": [VERSION], "requested": VERSION}), 400)

    async def flow() -> int:
        async with visiting(script) as (client, peer):
            with pytest.raises((MCPError, UnsupportedVersion)):
                await client.call_tool("t", {})
            return len(peer.requests)

    assert run(flow()) == 2


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "x",
        {},
        {"supported": None},
        {"supported": VERSION},
        {"supported": []},
        {"supported": ["2099-01-01"]},
        {"supported": [1, None, [VERSION]]},
    ],
)
@pytest.mark.parametrize("mode", ["auto", VERSION])
def test_a_version_that_is_not_supported_is_told(data: Any, mode: str) -> None:
    sent = []

    async def script(request: Request, line: Line) -> None:
        sent.append(request)
        await line.json(request.refusal(-32022, data), 400)

    with pytest.raises(UnsupportedVersion) as caught:
        run(called(script, mode=mode))
    assert caught.value.requested == VERSION
    assert VERSION not in caught.value.supported
    assert len(sent) == 1


def test_cookies_are_not_kept() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply(DONE), set_cookie="session=1; Path=/")

    async def flow() -> list[Request]:
        async with visiting(script) as (client, peer):
            for _ in range(3):
                await client.call_tool("t", {})
            return peer.requests

    assert not any("cookie" in request.headers for request in run(flow()))


def test_headers_of_the_user_are_sent_with_every_request() -> None:
    given = {"Authorization": "Bearer x", "X-Tenant": "a, b", "User-Agent": "mine", "X-Empty": ""}

    async def flow() -> list[Request]:
        async with visiting(in_turn(interim({"k": CITY})), headers=given, elicitation_callback=accept) as (
            client,
            peer,
        ):
            await client.call_tool("t", {})
            return peer.requests

    requests = run(flow())
    assert len(requests) == 2
    for request in requests:
        assert {name: request.headers[name.lower()] for name in given} == given


RESERVED = ["Content-Type", "accept", "MCP-Protocol-Version", "mcp-method", "Mcp-Name", "MCP-PARAM-x", "Mcp-Session-Id"]
FRAMING = ["Content-Length", "Transfer-Encoding", "Content-Encoding"]


@pytest.mark.parametrize("name", [*RESERVED, *FRAMING])
def test_a_header_of_the_protocol_is_not_the_users_to_set(name: str) -> None:
    with pytest.raises(ValueError, match=r"header"):
        Client("http://127.0.0.1:1/", headers={name: "1"})


@pytest.mark.parametrize("value", ["a\nb", "a\r\nX-Evil: 1", "a\r", "a\x00b", "\x7f", "a\u2028b", "a\x85b"])
def test_a_header_that_would_smuggle_another_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"header"):
        Client("http://127.0.0.1:1/", headers={"X-Good": value})
    with pytest.raises(ValueError, match=r"header"):
        Client("http://127.0.0.1:1/", headers={value: "x"})


@pytest.mark.parametrize("name", ["", "X Y", "X:Y", "X\tY", "X(Y)", "Ü"])
def test_a_header_whose_name_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"header"):
        Client("http://127.0.0.1:1/", headers={name: "x"})
