"""Any bytes in reply give a result or an error with a name: never another exception, and never a wait without end.

The bytes are bodies of JSON, streams of events in any parts, and whole HTTP responses; or good replies of which a few
members were changed: results of every method, lists of tools with schemas, and questions.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.properties.test_any_bytes import RAW, VALUES, node, places, written
from tests.unit.scripted import DONE, EVENTS, Line, Request, Script, event, http, run, visiting
from turnwise import Client, DeadlineExceeded, InvalidReply, PeerError, TurnwiseError
from turnwise.transports.sse import Events

Ask = Callable[[Client], Awaitable[Any]]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "x-mcp-header": "A"}}, "required": ["a"]}
TEXT = {"type": "text", "text": "x", "annotations": {"audience": ["user"], "priority": 0.5}}
FRESH = {"resultType": "complete", "ttlMs": 1000, "cacheScope": "public", "_meta": {"a": 1}}
TOOL = {
    "name": "t",
    "inputSchema": SCHEMA,
    "outputSchema": {"type": "object", "properties": {"a": {"type": "number", "minimum": 0}}},
    "annotations": {"readOnlyHint": False, "title": "T"},
}
PROMPT = {"name": "p", "arguments": [{"name": "a", "required": True}]}
RESOURCE = {"uri": "memo://a", "name": "a", "size": 1, "mimeType": "text/plain"}
METHODS: dict[str, tuple[Ask, dict[str, Any]]] = {
    "server/discover": (
        lambda client: client.discover(),
        {**FRESH, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}},
    ),
    "tools/call": (
        lambda client: client.call_tool("t", {"a": 1}),
        {"resultType": "complete", "content": [TEXT], "structuredContent": {"a": 1}, "isError": False},
    ),
    "tools/list": (lambda client: client.list_tools(), {**FRESH, "tools": [TOOL], "nextCursor": "c"}),
    "prompts/list": (lambda client: client.list_prompts(), {**FRESH, "prompts": [PROMPT]}),
    "prompts/get": (lambda client: client.get_prompt("p"), {"messages": [{"role": "user", "content": TEXT}]}),
    "resources/list": (lambda client: client.list_resources(), {**FRESH, "resources": [RESOURCE]}),
    "resources/read": (
        lambda client: client.read_resource("memo://a"),
        {**FRESH, "contents": [{"uri": "memo://a", "text": "x"}]},
    ),
    "completion/complete": (
        lambda client: client.complete({"type": "ref/prompt", "name": "p"}, {"name": "a", "value": "b"}),
        {"completion": {"values": ["x"], "total": 1, "hasMore": False}},
    ),
}
FORM = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "format": "email", "default": "x", "pattern": "^U"},
        "days": {"type": "number", "minimum": 0, "multipleOf": 2, "enum": [1, 2]},
    },
    "required": ["city"],
}
QUESTIONS = {
    "form": {"method": "elicitation/create", "params": {"mode": "form", "message": "?", "requestedSchema": FORM}},
    "page": {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "?", "url": "https://a.example/", "elicitationId": "1"},
    },
    "said": {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}], "maxTokens": 5},
    },
    "roots": {"method": "roots/list"},
}
ASKING = {"resultType": "input_required", "inputRequests": QUESTIONS, "requestState": "s"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What is only worth a line in the log is not shown."""
    logger = logging.getLogger("turnwise.client")
    before, logger.disabled = logger.disabled, True
    yield
    logger.disabled = before


def told(script: Script, ask: Ask, **options: Any) -> bool:
    """Whether a result came; PeerError, or the mistake of an answer, where not."""

    async def flow() -> bool:
        async with visiting(script, read_timeout_seconds=4, input_required_max_rounds=1, **options) as (client, _):
            allowed = TurnwiseError if options else PeerError
            try:
                await ask(client)
            except DeadlineExceeded:
                pytest.fail("the client waits for ever")
            except allowed:
                return False
            return True

    return run(flow())


def sending(*parts: bytes, close: bool = False) -> Script:
    async def script(request: Request, line: Line) -> None:
        for part in parts:
            await line.send(part)
            await asyncio.sleep(0)
        if close:
            line.close()

    return script


def split(text: bytes, cuts: list[int]) -> list[bytes]:
    """The text in parts."""
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@st.composite
def changed(draw: st.DrawFn, good: Any) -> bytes:
    """JSON of which a few members are replaced, doubled or gone."""
    tree = node(good)
    for _ in range(draw(st.integers(1, 3))):
        spots = list(places(tree))
        if not spots:
            break
        owner, number = draw(st.sampled_from(spots))
        match draw(st.sampled_from(["replace", "replace", "replace", "double", "drop"])):
            case "replace":
                owner[number] = (owner[number][0], draw(RAW))
            case "double":
                owner.append((owner[number][0], draw(RAW)))
            case _:
                del owner[number]
    return written(tree).encode("utf-8", "surrogatepass")


def reply(result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": result}


@st.composite
def broken(draw: st.DrawFn, good: bytes) -> bytes:
    """Bytes that are cut, flipped or stuffed."""
    body = bytearray(good)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(body)))
        body[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(body[: draw(st.integers(0, len(body)))] if draw(st.booleans()) else body)


WHOLE = json.dumps(reply(DONE)).encode()
STREAM = (
    b": hello\r\n\r\nevent: message\n" + event({"jsonrpc": "2.0", "method": "notifications/x"}) + event(reply(DONE))
)
CHUNKED = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (STREAM[:20], STREAM[20:], b""))
RESPONSES = [
    http(WHOLE),
    http(WHOLE, 404),
    http(WHOLE, connection="close", content_type="application/json; charset=utf-8"),
    http(None, kind=EVENTS) + STREAM,
    http(None, kind=EVENTS, transfer_encoding="chunked") + CHUNKED,
    http(b"", 307, kind=None, location="/moved"),
    http(b"<html>", 503, kind="text/html", retry_after="1"),
]


@given(st.binary(max_size=500) | broken(WHOLE), st.sampled_from([200, 202, 400, 500]))
def test_any_body_gives_a_result_or_a_peer_error(body: bytes, status: int) -> None:
    told(sending(http(body, status)), METHODS["tools/call"][0])


@settings(max_examples=settings().max_examples * 2)
@given(st.data(), st.sampled_from(sorted(METHODS)))
def test_any_change_of_a_good_reply_gives_a_result_or_a_peer_error(data: st.DataObject, method: str) -> None:
    ask, result = METHODS[method]
    told(sending(http(data.draw(changed(reply(result))))), ask)


@given(st.sampled_from(sorted(METHODS)))
def test_good_replies_give_results(method: str) -> None:
    ask, result = METHODS[method]
    assert told(sending(http(json.dumps(reply(result)).encode())), ask)


@given(RAW)
@example("[" * 100_000)
@example('{"a":' * 100_000)
def test_any_json_gives_a_peer_error(body: str) -> None:
    assert not told(sending(http(body.encode("utf-8", "surrogatepass"))), METHODS["tools/call"][0])


@settings(max_examples=settings().max_examples * 2)
@given(st.binary(max_size=300) | broken(STREAM) | changed(reply(DONE)), st.lists(st.integers(0, 500), max_size=6))
def test_any_stream_in_any_parts_gives_a_result_or_a_peer_error(text: bytes, cuts: list[int]) -> None:
    script = sending(http(None, kind=EVENTS), *split(text, cuts), close=True)
    told(script, METHODS["tools/call"][0])


@settings(max_examples=settings().max_examples * 2)
@given(st.sampled_from(RESPONSES).flatmap(broken), st.lists(st.integers(0, 500), max_size=3))
def test_any_http_gives_a_result_or_a_peer_error(text: bytes, cuts: list[int]) -> None:
    told(sending(*split(text, cuts), close=True), METHODS["tools/call"][0])


@given(st.text("abc: \n\r", max_size=60), st.lists(st.integers(0, 60), max_size=6))
def test_a_stream_says_the_same_in_whatever_parts_it_comes(text: str, cuts: list[int]) -> None:
    whole = text.replace("a", "data").encode() + b"\n\n"
    in_parts = Events(1000)
    found = [data for part in split(whole, cuts) for data in in_parts.feed(part)]
    assert found == list(Events(1000).feed(whole))


def fed(parts: list[bytes], largest: int) -> tuple[list[Any], Any]:
    """What a stream says, and where it stands: its last id and pause, or that it was given up."""
    events = Events(largest, {"input_required": True})
    found: list[Any] = []
    try:
        for part in parts:
            found += events.feed(part)
    except InvalidReply:
        return found, "too large"
    return found, (events.last_id, events.retry)


FIELDS = st.sampled_from([b"data", b"data:", b"event: message", b"event: input_required", b"event: x", b"id: ", b"id"])
ODD_LINES = st.sampled_from(
    [b": comment", b"retry: 12", b"retry: -1", b"retry: " + b"9" * 30, b"\xef\xbb\xbfdata: x", b""]
)
LINES = st.tuples(FIELDS, st.binary(max_size=12)).map(b"".join) | ODD_LINES | st.binary(max_size=12)
STREAMS = st.lists(
    st.tuples(LINES, st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n"])), max_size=20
)


@settings(max_examples=settings().max_examples * 3)
@given(STREAMS.map(lambda lines: b"".join(map(b"".join, lines))), st.lists(st.integers(0, 400), max_size=8))
def test_any_bytes_are_the_same_events_in_whatever_parts_they_come(text: bytes, cuts: list[int]) -> None:
    one_by_one = [text[place : place + 1] for place in range(len(text))]
    whole = fed([text], 1000)
    assert fed(split(text, cuts), 1000) == whole
    assert fed(one_by_one, 1000) == whole


@given(STREAMS.map(lambda lines: b"".join(map(b"".join, lines))), st.integers(0, 60), st.integers(1, 9))
def test_no_event_is_larger_than_allowed(text: bytes, largest: int, size: int) -> None:
    found, _ = fed([text[place : place + size] for place in range(0, len(text), size)], largest)
    assert all(len(event) <= largest for event in found if isinstance(event, bytes))
    endless = [b"data: " + b"x" * 20 + b"\n"] * 20, [b"x" * 20] * 20, [b"data: x", *[b"y" * 20] * 20]
    for parts in endless:
        assert fed([text, b"\n\n", *parts], 70 + largest)[1] == "too large"


@given(changed(TOOL) | changed(SCHEMA).map(lambda schema: b'{"name":"t","inputSchema":%b}' % schema), VALUES)
def test_any_definition_of_a_tool_gives_a_result_or_a_peer_error(definition: bytes, value: Any) -> None:
    async def script(request: Request, line: Line) -> None:
        if request.rpc == "tools/list":
            await line.send(http(b'{"jsonrpc":"2.0","id":%d,"result":{"tools":[%b]}}' % (request.id, definition)))
        else:
            await line.json(request.reply({"content": [], "structuredContent": value}))

    async def ask(client: Client) -> None:
        try:
            await client.list_tools()
        finally:
            await client.call_tool("t", {"a": 1})

    told(script, ask)


@given(changed(reply(ASKING)), st.sampled_from([1, 1.5, "x", True]))
def test_any_questions_give_a_result_or_an_error_with_a_name(asked: bytes, answer: Any) -> None:
    async def script(request: Request, line: Line) -> None:
        if "inputResponses" in request.params or "requestState" in request.params:
            await line.json(request.reply(DONE))
        else:
            await line.send(http(asked))

    async def elicited(*_: Any) -> Any:
        return {"action": "accept", "content": {"city": answer, "days": answer}}

    async def sampled(*_: Any) -> Any:
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}}

    async def listed(_: Any) -> Any:
        return {"roots": []}

    callbacks = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": listed}
    told(script, METHODS["tools/call"][0], **callbacks)
    told(script, lambda client: client.begin("t", {"a": 1}))
