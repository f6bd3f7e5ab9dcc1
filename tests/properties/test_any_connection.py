"""Any bytes on a connection, in any parts: replies in order, each to its own request, and none from inside us.

Requests go straight into the protocol that `server.run("http")` serves with, which has a lane of its own past ASGI and
remembers heads. Beside it stands uvicorn's own protocol, in front of the same application: both say the same.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.properties.connecting import Response, Service, run
from tests.properties.test_any_bytes import (
    GOOD,
    HEADER_NAMES,
    HEADER_VALUES,
    add_asking_tools,
    add_plain_tools,
    add_the_rest,
    calling,
    changed_requests,
    good_headers,
    request,
)
from turnwise import MCPServer, RequestStateSecurity

MOST_BODY = 100_000
SERVER: MCPServer[Any] = MCPServer("fuzz", request_state_security=RequestStateSecurity(keys=[b"k" * 32]), page_size=2)
add_plain_tools(SERVER)
add_asking_tools(SERVER)
add_the_rest(SERVER)


@SERVER.tool()
async def linger(turns: int) -> str:
    for _ in range(turns):
        await asyncio.sleep(0)
    return "at last"


def serving(*, is_plain: bool = False) -> Service:
    """The server, which has seen nobody yet."""
    return Service(SERVER.asgi(max_body=MOST_BODY), is_plain=is_plain)


@dataclass(frozen=True)
class Sent:
    """A request, as it is written."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    method: str = "POST"
    target: bytes = b"/mcp"
    version: bytes = b"HTTP/1.1"
    chunks: tuple[int, ...] | None = None
    before: bytes = b""

    def written(self) -> bytes:
        framing = b"Content-Length: %d\r\n" % len(self.body)
        body = self.body
        if self.chunks is not None:
            parts = [part for part in cut(self.body, self.chunks) if part]
            framing = b"Transfer-Encoding: chunked\r\n"
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))
        fields = b"".join(b"%b: %b\r\n" % field for field in self.headers)
        line = b"%b %b %b" % (self.method.encode(), self.target, self.version)
        return b"%b%b\r\n%b%b\r\n%b" % (self.before, line, fields, framing, body)


def cut(text: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The text in parts."""
    edges = [0, *sorted(place % (len(text) + 1) for place in cuts), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def end_subscriptions() -> None:
    SERVER.close_subscriptions()


async def answered(service: Service, *parts: bytes, methods: Sequence[str] = ()) -> list[Response]:
    """The responses to what is sent in these parts, each after the last was dealt with; and nothing is left over."""
    connection = service.connect()
    for part in parts:
        connection.transport.feed(part)
        await connection.idle(end_subscriptions)
    responses = connection.responses(methods)
    await connection.hang_up()
    return responses


# What is sent

PROMPT = [message for message in GOOD if "declared" not in str(message)]
PROMPT += [calling("linger", turns=turns) for turns in (1, 4, 8)]
"""Those that need no thread: once nothing happens, all that can has happened."""


def asking(message: dict[str, Any], number: int = 1) -> Sent:
    """A request in good order."""
    body = json.dumps(message if "id" not in message else {**message, "id": number}).encode()
    return Sent(body, tuple(good_headers(body)))


FIELD_VALUES = HEADER_VALUES.map(lambda value: bytes(byte for byte in value if byte not in b"\r\n\0")[:200])
ODD_FIELDS = st.sampled_from(
    [
        (b"Host", b"localhost"),
        (b"Host", b"evil.example"),
        (b"Origin", b"https://evil.example"),
        (b"Content-Type", b"text/plain"),
        (b"Accept", b"application/json"),
        (b"Accept", b"text/event-stream"),
        (b"Mcp-Method", b"tools/list"),
        (b"Mcp-Name", b"other"),
        (b"MCP-Protocol-Version", b"1999-01-01"),
        (b"Authorization", b"Bearer x"),
        (b"Cookie", b"a=b"),
        (b"Connection", b"close"),
        (b"Connection", b"keep-alive"),
        (b"Expect", b"100-continue"),
        (b"Expect", b"the worst"),
        (b"Connection", b"Upgrade"),
        (b"Upgrade", b"websocket"),
        (b"X-Empty", b""),
        (b"X-Long", b"x" * 3000),
    ]
)
TOKENS = HEADER_NAMES.filter(lambda name: name.replace(b"-", b"").isalnum() and name not in FRAMING)
FRAMING = (b"content-length", b"transfer-encoding", b"connection", b"upgrade")


@st.composite
def sent(draw: st.DrawFn, number: int = 1) -> Sent:
    """A request whose head and framing are HTTP, whatever they say: large, in chunks, old, elsewhere, or changed."""
    one = asking(draw(st.sampled_from(PROMPT)), number)
    if draw(st.integers(0, 4)) == 0:
        body = draw(changed_requests())
        one = replace(one, body=body)
    for change in draw(st.lists(st.sampled_from(CHANGES), max_size=2, unique=True)):
        match change:
            case "chunks":
                one = replace(one, chunks=tuple(draw(st.lists(st.integers(0, 2000), max_size=4))))
            case "large":
                one = replace(one, body=one.body + b" " * draw(st.sampled_from([65_000, 66_000, 90_000, 120_000])))
            case "field":
                one = replace(one, headers=(*one.headers, draw(ODD_FIELDS)))
            case "other field":
                name, value = draw(ODD_FIELDS | st.tuples(TOKENS, FIELD_VALUES))
                kept = tuple(field for field in one.headers if field[0] != name.lower())
                one = replace(one, headers=(*kept, (name, value)))
            case "upgrade":
                one = replace(one, headers=(*one.headers, *HTTP2))
            case "target":
                one = replace(one, target=draw(st.sampled_from(TARGETS)))
            case "verb":
                one = replace(one, method=draw(st.sampled_from(["GET", "HEAD", "DELETE", "OPTIONS", "PUT"])))
            case "close":
                one = replace(one, headers=(*one.headers, (b"Connection", draw(st.sampled_from(CONNECTIONS)))))
            case "expect":
                one = replace(one, headers=(*one.headers, (b"Expect", b"100-continue")))
            case "blank":
                one = replace(one, before=draw(st.sampled_from([b"\r\n", b"\r\n\r\n", b"\n"])))
            case _:
                kept = draw(st.sampled_from([(), ((b"Connection", b"keep-alive"),)]))
                one = replace(one, headers=(*one.headers, *kept), version=b"HTTP/1.0")
    return one


CHANGES = [
    "chunks",
    "large",
    "field",
    "other field",
    "upgrade",
    "target",
    "verb",
    "version",
    "close",
    "expect",
    "blank",
]
CONNECTIONS = [b"close", b"Close", b"keep-alive", b"keep-alive, close", b"x"]
TARGETS = [b"/mcp/", b"/mcp?x=1", b"/%6dcp", b"/other", b"/", b"//mcp", b"/mcp#x", b"http://localhost/mcp"]


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A request whose bytes are cut, flipped or stuffed."""
    raw = bytearray(draw(sent().filter(lambda one: one.method != "HEAD")).written())
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, min(len(raw), 1000)))
        stuffing = draw(st.binary(max_size=4) | st.sampled_from([b"\r\n", b"\r\n\r\n", b"\r", b"\n", b"0", b" ", b":"]))
        raw[place : place + draw(st.integers(0, 3))] = stuffing
    return bytes(raw[: draw(st.integers(0, len(raw)))] if draw(st.booleans()) else raw)


CUTS = st.lists(st.integers(0, 1500), max_size=6)
SEAMS = st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["head", "body", "end"]), st.integers(-2, 2)), max_size=6)
"""Places near those where one part of a request ends and the next begins."""
HTTP2 = ((b"Connection", b"Upgrade, HTTP2-Settings"), (b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"AAEAAEAA"))


def places(requests: Sequence[Sent], seams: Sequence[tuple[int, str, int]]) -> list[int]:
    """Where to cut what these requests are, written one behind the other."""
    found = []
    for number, seam, offset in seams:
        before = b"".join(one.written() for one in requests[: number % len(requests)])
        raw = requests[number % len(requests)].written()
        ends = {"head": 1, "body": raw.find(b"\r\n\r\n", 4) + 4, "end": len(raw)}
        found.append(max(0, len(before) + ends[seam] + offset))
    return found


NO_HTTP = [
    asking(PROMPT[1]).written().replace(b"Content-Length", b"Transfer-Encoding: chunked\r\nX-Length"),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    b"GET /mcp\r\n\r\n",
]


def alone(one: Sent) -> list[Response]:
    """What uvicorn's own protocol says to a request that comes by itself. One that asks for another protocol it takes
    without its body, and the body for the next request: it is not asked about such.
    """
    one = replace(one, headers=tuple(field for field in one.headers if field[0] != b"Upgrade"))
    return run(lambda: answered(serving(is_plain=True), one.written(), methods=[one.method]))


# The properties


@settings(max_examples=settings().max_examples * 2)
@given(sent(), CUTS)
def test_a_request_gets_the_same_reply_in_whatever_parts_it_comes(one: Sent, cuts: list[int]) -> None:
    expected = alone(one)
    assert len(expected) == 1
    assert expected[0].status < 500
    service = serving()

    async def each() -> None:
        for parts in ([one.written()], cut(one.written(), cuts), [one.written()]):
            assert await answered(service, *parts, methods=[one.method]) == expected, parts

    run(each)


@settings(max_examples=settings().max_examples * 2)
@given(broken(), CUTS)
def test_what_is_hardly_http_gets_the_same_reply_in_whatever_parts_it_comes(raw: bytes, cuts: list[int]) -> None:
    async def each() -> tuple[list[Response], list[Response]]:
        return await answered(serving(), raw), await answered(serving(), *cut(raw, cuts))

    whole, in_parts = run(each)
    assert all(response.status < 500 for response in whole)
    if in_parts != whole:  # What is refused for its head need not have its body read, which may be no HTTP.
        assert b"chunked" in raw
        assert in_parts[:-1] == whole[:-1]
        assert in_parts[-1].status in range(400, 500)
        assert whole[-1].status in range(400, 500)


@st.composite
def several(draw: st.DrawFn) -> list[Sent]:
    """Requests on one connection, each with an id of its own. Clients repeat themselves."""
    found: list[Sent] = []
    for number in range(100, 100 + draw(st.integers(2, 6))):
        if found and draw(st.booleans()):
            found.append(replace(found[0], body=found[0].body.replace(b'"id": 100', b'"id": %d' % number)))
        else:
            found.append(draw(sent(number)))
    return found


async def at_once(service: Service, *parts: bytes, methods: Sequence[str]) -> list[Response]:
    """The responses to what comes without a pause."""
    connection = service.connect()
    for part in parts:
        connection.transport.feed(part)
    await connection.idle(end_subscriptions)
    responses = connection.responses(methods)
    await connection.hang_up()
    return responses


@settings(max_examples=settings().max_examples * 2)
@given(several(), SEAMS, CUTS, st.booleans())
def test_requests_behind_each_other_get_their_own_replies_in_order(
    requests: list[Sent], seams: list[tuple[int, str, int]], cuts: list[int], are_known: bool
) -> None:
    """With a pause after each part or without, their heads heard before or not."""
    expected: list[Response] = []
    for one in requests:
        expected += alone(one)
        if expected[-1].closes:
            break
    raw = b"".join(one.written() for one in requests)
    parts = cut(raw, [*places(requests, seams), *(place * len(raw) // 1500 for place in cuts)])
    methods = [one.method for one in requests]

    async def flow() -> None:
        service = serving()
        for one in requests if are_known else []:
            await answered(service, one.written(), methods=[one.method])
        assert await at_once(service, *parts, methods=methods) == expected
        assert await answered(service, *parts, methods=methods) == expected

    run(flow)


@settings(max_examples=settings().max_examples * 2)
@given(several(), broken() | st.sampled_from(NO_HTTP), SEAMS, st.booleans())
def test_what_is_hardly_http_takes_nothing_from_what_came_before(
    requests: list[Sent], raw: bytes, seams: list[tuple[int, str, int]], are_known: bool
) -> None:
    requests = [one for one in requests if one.method != "HEAD"]
    expected = [response for one in requests for response in alone(one)]
    whole = b"".join(one.written() for one in requests) + raw

    async def flow() -> None:
        service = serving()
        for one in requests if are_known else []:
            await answered(service, one.written())
        parts = cut(whole, places(requests, seams) if requests else [])
        for ask in (at_once, answered):
            responses = await ask(service, *parts, methods=())
            ended = next((number + 1 for number, one in enumerate(expected) if one.closes), len(expected))
            assert responses[:ended] == expected[:ended]
            assert len(responses) == ended or ended == len(expected)
            assert all(response.status < 500 for response in responses)

    run(flow)


LISTENING = request("subscriptions/listen", notifications={"toolsListChanged": True})
HANGUPS = st.sampled_from([None, ConnectionResetError("gone")])


@settings(max_examples=settings().max_examples * 2)
@given(several(), CUTS, st.integers(0, 1500), st.integers(0, 20), HANGUPS)
@example([asking(LISTENING), asking(PROMPT[1])], [], 1500, 20, None)
@example([asking(LISTENING), asking(PROMPT[1])], [750], 1500, 20, None)
@example([asking(LISTENING), asking(PROMPT[1])], [750], 1500, 0, None)
def test_a_client_may_hang_up_anywhere(
    requests: list[Sent], cuts: list[int], end: int, turns: int, error: Exception | None
) -> None:
    """Whatever was begun ends, even a subscription that would go on for ever with others waiting behind it."""
    raw = b"".join(one.written() for one in requests)
    raw = raw[: end * len(raw) // 1500]
    service = serving()

    async def flow() -> None:
        await SERVER.start()
        connection = service.connect()
        for part in cut(raw, [place * len(raw) // 1500 for place in cuts]):
            connection.transport.feed(part)
            for _ in range(turns):
                await asyncio.sleep(0)
        await connection.hang_up(error)
        assert (await answered(service, asking(PROMPT[1]).written()))[0].status == 200

    run(flow)


@st.composite
def with_a_known_head(draw: st.DrawFn) -> list[Sent]:
    """Requests that differ in nothing but their bodies, of the same length."""
    first = draw(sent(100))
    ids = draw(st.lists(st.integers(100, 999), min_size=2, max_size=4, unique=True))
    return [replace(first, body=first.body.replace(b'"id": 100', b'"id": %d' % number)) for number in ids]


@settings(max_examples=settings().max_examples * 2)
@given(with_a_known_head(), st.lists(CUTS, min_size=6, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6))
def test_a_head_that_is_known_says_the_same(requests: list[Sent], cuts: list[list[int]], anew: list[bool]) -> None:
    """On this connection or on others, whole or in parts, with the head heard before or not."""
    expected = [alone(one)[0] for one in requests]
    service = serving()
    methods = [one.method for one in requests]

    async def each() -> None:
        connection, since = service.connect(), 0
        for number, (one, parts, is_new) in enumerate(zip(requests, cuts, anew, strict=False)):
            if is_new or connection.transport.is_closing():
                await connection.hang_up()
                connection, since = service.connect(), number
            for part in cut(one.written(), parts):
                connection.transport.feed(part)
            await connection.idle(end_subscriptions)
            assert connection.responses(methods[since:]) == expected[since : number + 1]
        await connection.hang_up()

    run(each)
