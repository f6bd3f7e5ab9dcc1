"""The client over HTTP with servers that are faulty or hostile: whatever they send, a call ends soon and by a name."""

import asyncio
import gzip
import json
import socket
import sys
import time
import tracemalloc
import zlib
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from mcp_types import ElicitResult

from tests.unit.scripted import (
    DONE,
    EVENTS,
    Line,
    Request,
    Script,
    answering,
    called,
    done,
    dripping,
    event,
    http,
    is_done,
    run,
    serving,
    text_of,
    visiting,
    written,
)
from turnwise import (
    HTTP,
    Client,
    ConnectionLost,
    DeadlineExceeded,
    HandshakeRequired,
    InvalidReply,
    MCPError,
    RedirectRefused,
    UnexpectedStatus,
    UnknownResultType,
)

SECRET = "Bearer of a secret"


# Replies


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\xff\x13garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.0\r\n",
        b"<html>hello</html>",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"f" * 20 + b"\r\n{}\r\n0\r\n\r\n",
    ],
    ids=["garbage", "ssh", "html", "status", "negative", "twice", "long", "many", "chunk", "huge chunk"],
)
@pytest.mark.parametrize("close", [True, False])
def test_what_is_not_http_is_no_reply(sent: bytes, close: bool) -> None:
    with pytest.raises(InvalidReply):
        run(called(answering(sent, close=close)))


def test_what_is_not_http_is_not_asked_for_again() -> None:
    async def flow() -> int:
        async with visiting(answering(b"SSH-2.0-OpenSSH_9.0\r\n")) as (client, peer):
            with pytest.raises(InvalidReply):
                await client.list_prompts()
            return len(peer.requests)

    assert run(flow()) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"1",
        b'"text"',
        b"[]",
        b"{}",
        b"{",
        b"{}{}",
        b"hello",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'.replace(b":", b"\x00"),
        '{"jsonrpc":"2.0","id":1,"result":{"content":[]}}'.encode("utf-16"),
        b'{"hello":"world"}',
        b'{"jsonrpc":"1.0","id":1,"result":{"content":[]}}',
        b'{"id":1,"result":{"content":[]}}',
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":null}',
        b'{"jsonrpc":"2.0","id":1,"result":[]}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{"content":[]}}',
        b'[{"jsonrpc":"2.0","id":1,"result":{"content":[]}}]',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_a_body_that_is_no_json_rpc_response_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidReply):
        run(called(answering(http(body))))


@pytest.mark.parametrize(
    "template",
    [
        '{"jsonrpc":"2.0","id":77,"result":{"content":[]}}',
        '{"jsonrpc":"2.0","id":true,"result":{"content":[]}}',
        '{"jsonrpc":"2.0","id":"ID","result":{"content":[]}}',
        '{"jsonrpc":"2.0","id":ID.0,"result":{"content":[]}}',
        '{"jsonrpc":"2.0","id":null,"result":{"content":[]}}',
        '{"jsonrpc":"2.0","id":[ID],"result":{"content":[]}}',
        '{"jsonrpc":"2.0","result":{"content":[]}}',
        '{"jsonrpc":"2.0","id":77,"error":{"code":-1,"message":"to somebody else"}}',
        '{"jsonrpc":"2.0","id":"ID","error":{"code":-1,"message":"to somebody else"}}',
    ],
)
def test_a_reply_to_another_request_is_refused(template: str) -> None:
    with pytest.raises(InvalidReply):
        run(called(answering(written(template))))


@pytest.mark.parametrize("id_member", ['"id":ID,', '"id":null,', ""])
def test_an_error_may_leave_out_the_id(id_member: str) -> None:
    template = f'{{"jsonrpc":"2.0",{id_member}"error":{{"code":-32000,"message":"busy","data":[1]}}}}'
    with pytest.raises(MCPError, match="busy") as caught:
        run(called(answering(written(template))))
    assert (caught.value.code, caught.value.data) == (-32000, [1])


@pytest.mark.parametrize(
    "error",
    [
        "null",
        "[]",
        '"no"',
        "{}",
        '{"message":"x"}',
        '{"code":-1}',
        '{"code":"-1","message":"x"}',
        '{"code":true,"message":"x"}',
        '{"code":1.0,"message":"x"}',
        '{"code":-1,"message":null}',
    ],
)
def test_an_error_without_a_code_and_a_message_is_no_reply(error: str) -> None:
    with pytest.raises(InvalidReply):
        run(called(answering(written(f'{{"jsonrpc":"2.0","id":ID,"error":{error}}}'))))


def test_a_reply_with_both_a_result_and_an_error_is_none() -> None:
    both = '{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"error":{"code":-1,"message":"x"}}'
    with pytest.raises(InvalidReply):
        run(called(answering(written(both))))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "01", "9" * 5000, '"\\ud800"', "[" * 1000])
def test_values_that_json_does_not_have_are_refused(value: str) -> None:
    with pytest.raises(InvalidReply):
        run(called(answering(written(f'{{"jsonrpc":"2.0","id":ID,"result":{{"content":[],"x":{value}}}}}'))))


@pytest.mark.parametrize("value", ["9" * 4000, "-" + "9" * 400, "1e999", "1e-999", "[" * 150 + "]" * 150, '"\\u0000"'])
def test_values_that_are_only_odd_are_taken(value: str) -> None:
    result = f'{{"content":[{{"type":"text","text":"done"}}],"_meta":{{"x":{value}}}}}'
    assert is_done(answering(written(f'{{"jsonrpc":"2.0","id":ID,"result":{result}}}')))


@pytest.mark.parametrize("ttl", ["9" * 400, "-1", "1.5", "true", '"1"', "null", "1e300"])
def test_a_freshness_of_any_kind_does_no_harm(ttl: str) -> None:
    async def flow() -> int:
        reply = f'{{"jsonrpc":"2.0","id":ID,"result":{{"prompts":[],"cacheScope":"public","ttlMs":{ttl}}}}}'
        async with visiting(answering(written(reply))) as (client, _):
            try:
                return len((await client.list_prompts()).prompts)
            except InvalidReply:
                return 0

    assert run(flow()) == 0


def test_a_result_that_cannot_be_kept_is_still_a_result() -> None:
    async def flow() -> list[int]:
        result = '{"prompts":[],"cacheScope":"private","ttlMs":60000,"_meta":{"a":1e999,"b":99999999999999999999999}}'
        async with visiting(answering(written(f'{{"jsonrpc":"2.0","id":ID,"result":{result}}}'))) as (client, _):
            return [len((await client.list_prompts()).prompts) for _ in range(2)]

    assert run(flow()) == [0, 0]


@pytest.mark.parametrize("schema", [{"type": "number", "multipleOf": 0.5}, {"type": "number", "multipleOf": 2}])
def test_a_number_that_no_float_can_hold_is_checked_like_any_other(schema: dict[str, Any]) -> None:
    described = {"name": "t", "inputSchema": {"type": "object"}}
    described["outputSchema"] = {"type": "object", "properties": {"a": schema}}

    async def script(request: Request, line: Line) -> None:
        result = {**DONE, "structuredContent": {"a": 10**400}}
        await line.json(request.reply({"tools": [described]} if request.rpc == "tools/list" else result))

    async def flow() -> None:
        async with visiting(script) as (client, _):
            await client.list_tools()
            with suppress(InvalidReply):
                assert (await client.call_tool("t", {})).structured_content == {"a": 10**400}

    run(flow())


DOUBLING: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(17)}
BUSY: dict[str, tuple[dict[str, Any], Any]] = {
    "references": ({"$ref": "#/$defs/d0", "$defs": {**DOUBLING, "d17": {"type": "object"}}}, {}),
    "unique items": ({"properties": {"a": {"uniqueItems": True}}}, {"a": [{"n": n} for n in range(1500)]}),
    "mistakes": ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": [0] * 200_000}),
    "pattern": ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 5000 + "b"}),
}


@pytest.mark.parametrize("name", BUSY)
def test_a_schema_cannot_keep_the_client_busy(name: str) -> None:
    schema, value = BUSY[name]
    described = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", **schema}}

    async def script(request: Request, line: Line) -> None:
        result = {**DONE, "structuredContent": value}
        await line.json(request.reply({"tools": [described]} if request.rpc == "tools/list" else result))

    async def flow() -> float:
        async with visiting(script) as (client, _):
            await client.list_tools()
            began = time.monotonic()
            with suppress(InvalidReply):
                await client.call_tool("t", {})
            return time.monotonic() - began

    assert run(flow()) < 1


def test_a_schema_may_refer_to_a_part_of_itself_for_every_item_of_a_long_list() -> None:
    parts = {"n": {"$ref": "#/$defs/number"}}
    definitions = {"item": {"type": "object", "properties": parts}, "number": {"type": "integer"}}
    schema = {"type": "object", "properties": {"a": {"items": {"$ref": "#/$defs/item"}}}, "$defs": definitions}
    value = {"a": [{"n": n} for n in range(1500)]}

    async def script(request: Request, line: Line) -> None:
        described = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema}
        result = {**DONE, "structuredContent": value}
        await line.json(request.reply({"tools": [described]} if request.rpc == "tools/list" else result))

    async def flow() -> Any:
        async with visiting(script) as (client, _):
            await client.list_tools()
            return (await client.call_tool("t", {})).structured_content

    assert run(flow()) == value


@pytest.mark.parametrize("kind", ["partial", "", "input-required", 1, None, ["complete"], {"a": 1}, True])
def test_a_result_of_unknown_type_is_refused(kind: Any) -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply({**DONE, "resultType": kind}))

    with pytest.raises(UnknownResultType) as caught:
        run(called(script))
    assert caught.value.kind == kind


def test_a_result_without_a_type_is_complete() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply({"content": DONE["content"]}))

    assert is_done(script)


@pytest.mark.parametrize("content", [None, {}, "text", [1], [{"type": "text"}], [{"type": "wat"}], [[]]])
def test_a_result_of_the_wrong_shape_is_refused(content: Any) -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply({"content": content}))

    with pytest.raises(InvalidReply):
        run(called(script))


def test_a_body_shorter_than_announced_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost):
        run(called(answering(lambda request: http(done(request), content_length="10000"), close=True)))


def test_a_body_longer_than_announced_is_cut_and_does_not_answer_the_next_call() -> None:
    async def script(request: Request, line: Line) -> None:
        smuggled = http(json.dumps({"jsonrpc": "2.0", "id": request.id + 1, "result": {"content": []}}).encode())
        whole = http(done(request))
        await line.send(whole if request.params["name"] == "second" else whole + smuggled)

    async def flow() -> list[str]:
        async with visiting(script) as (client, _):
            return [text_of(await client.call_tool(name, {})) for name in ("first", "second")]

    assert run(flow()) == ["done", "done"]
    with pytest.raises(InvalidReply):
        run(called(answering(lambda request: http(done(request), content_length="10"))))


@pytest.mark.parametrize("ending", [b"", b"5\r\n{", b"5"])
def test_a_chunked_body_cut_in_the_middle_is_a_lost_connection(ending: bytes) -> None:
    begun = http(None, transfer_encoding="chunked")
    with pytest.raises(ConnectionLost):
        run(called(answering(begun, b"1\r\n{\r\n", ending, close=True)))


@pytest.mark.parametrize("kind", ["application/json", EVENTS])
def test_a_chunk_of_no_size_ends_the_call_at_once(kind: str) -> None:
    begun = http(None, kind=kind, transfer_encoding="chunked")
    with pytest.raises((ConnectionLost, InvalidReply)):
        run(called(answering(begun, b"1\r\n \r\n", b"zzz\r\n"), read_timeout_seconds=1))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_reply_is_read(encoding: str) -> None:
    def packed(request: Request) -> bytes:
        pack = gzip.compress if encoding == "gzip" else zlib.compress
        return http(pack(done(request)), content_encoding=encoding)

    assert is_done(answering(packed))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_reply_that_is_not_compressed_as_it_says_is_refused(encoding: str, at_once: bool) -> None:
    head = http(None, content_encoding=encoding, content_length="40")
    with pytest.raises((InvalidReply, ConnectionLost)):
        run(called(answering(head + b"x" * 40) if at_once else answering(head, b"x" * 20, b"x" * 20)))


def test_a_compressed_reply_that_is_cut_is_refused() -> None:
    with pytest.raises((InvalidReply, ConnectionLost)):
        run(called(answering(lambda request: http(gzip.compress(done(request))[:-20], content_encoding="gzip"))))


@pytest.mark.parametrize("kind", ["application/json", EVENTS])
def test_a_reply_that_unpacks_to_far_more_is_stopped_early(kind: str) -> None:
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join([packer.compress(b" " * 2**20) for _ in range(50)]) + packer.flush()
    script = answering(http(bomb, kind=kind, content_encoding="gzip"))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidReply):
            run(called(script, largest_reply=2**20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * 2**20


@pytest.mark.parametrize("framing", ["length", "chunks", "close"])
def test_a_reply_larger_than_the_limit_is_refused(framing: str) -> None:
    body = b'{"a":"' + b"x" * 10_000 + b'"}'
    if framing == "length":
        script = answering(http(None, content_length="1000000000"))
    elif framing == "chunks":
        script = answering(http(None, transfer_encoding="chunked"), b"%x\r\n%b\r\n" % (len(body), body))
    else:
        script = answering(http(None) + body)
    with pytest.raises(InvalidReply, match="5000"):
        run(called(script, largest_reply=5000))


def test_a_reply_as_large_as_the_limit_is_read() -> None:
    def exact(request: Request) -> bytes:
        body = done(request)
        return http(body + b" " * (5000 - len(body)))

    assert is_done(answering(exact), largest_reply=5000)


@pytest.mark.parametrize("status", [200, 202, 204])
def test_a_status_of_success_without_a_body_is_no_reply(status: int) -> None:
    with pytest.raises(InvalidReply):
        run(called(answering(http(b"", status, kind=None))))


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/jsonx", "application/problem+json", "", ";"])
def test_a_reply_of_another_content_type_is_refused(kind: str) -> None:
    with pytest.raises(InvalidReply):
        run(called(answering(lambda request: http(done(request), kind=kind))))


@pytest.mark.parametrize(
    "parameters", ["", ";charset=utf-8", '; charset="UTF-8"', "; charset=latin-1", ";;;", '; charset="', "; a*=''%"]
)
def test_parameters_of_the_content_type_do_not_matter(parameters: str) -> None:
    assert is_done(answering(lambda request: http(done(request), kind="Application/JSON" + parameters)))
    assert is_done(
        answering(lambda request: http(event(request.reply(DONE)), kind="Text/Event-Stream" + parameters)),
    )


def test_the_charset_of_json_is_always_utf_8() -> None:
    async def script(request: Request, line: Line) -> None:
        body = json.dumps(request.reply({"content": [{"type": "text", "text": "Größe 世界"}]}), ensure_ascii=False)
        await line.send(http(body.encode(), kind="application/json; charset=latin-1"))

    assert text_of(run(called(script))) == "Größe 世界"


# Statuses


@pytest.mark.parametrize("status", [300, 400, 401, 403, 404, 429, 502, 503, 999])
@pytest.mark.parametrize("body", [b"", b"<html>Oh</html>"])
def test_a_status_without_an_error_of_the_protocol_is_told(status: int, body: bytes) -> None:
    with pytest.raises(UnexpectedStatus) as caught:
        run(called(answering(http(body, status, kind="text/html"))))
    assert caught.value.status == status
    assert caught.value.text == body.decode()


@pytest.mark.parametrize("kind", ["text/plain", "application/json", EVENTS, None])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b""),
        (401, b'{"error":"invalid_token"}'),
        (401, b'{"jsonrpc":"2.0","id":null,"error":"invalid_token"}'),
        (403, b"[]"),
        (429, b'{"jsonrpc":"2.0"}'),
        (503, b"{"),
    ],
)
def test_a_status_is_told_with_what_its_headers_advise(kind: str | None, body: bytes, status: int) -> None:
    advice = {"www_authenticate": 'Bearer resource_metadata="https://a.example"', "retry_after": "700"}
    with pytest.raises(UnexpectedStatus) as caught:
        run(called(answering(http(body, status, kind=kind, **advice))))
    assert caught.value.status == status
    assert caught.value.headers == {"WWW-Authenticate": advice["www_authenticate"], "Retry-After": "700"}


def test_all_challenges_of_a_status_are_told() -> None:
    head = b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="a"\r\nWWW-Authenticate: Bearer scope="b"\r\n'
    with pytest.raises(UnexpectedStatus) as caught:
        run(called(answering(head + b"Content-Length: 0\r\n\r\n")))
    assert 'Basic realm="a"' in caught.value.headers["WWW-Authenticate"]
    assert 'Bearer scope="b"' in caught.value.headers["WWW-Authenticate"]


@pytest.mark.parametrize("status", [200, 400, 404, 500])
def test_an_error_of_the_protocol_is_told_whatever_the_status(status: int) -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.refusal(-32601), status)

    with pytest.raises(MCPError) as caught:
        run(called(script))
    assert caught.value.code == -32601


@pytest.mark.parametrize("status", [401, 403, 404, 421, 429, 503])
@pytest.mark.parametrize("mode", ["auto", "2026-07-28"])
def test_a_status_of_the_door_is_told_with_its_words_and_headers(status: int, mode: Any) -> None:
    async def script(request: Request, line: Line) -> None:
        body = json.dumps(request.refusal(-32600)).encode()
        await line.send(http(body, status, retry_after="700"))

    with pytest.raises(UnexpectedStatus, match="no") as caught:
        run(called(script, mode=mode))
    assert (caught.value.status, caught.value.headers) == (status, {"Retry-After": "700"})


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_server_that_knows_no_discovery_wants_a_handshake(status: int) -> None:
    with pytest.raises(HandshakeRequired):
        run(called(answering(http(b"Bad Request", status, kind="text/plain")), mode="auto"))


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_server_that_is_not_to_be_had_on_entering_is_told_by_its_status(status: int) -> None:
    with pytest.raises(UnexpectedStatus) as caught:
        run(called(answering(http(b"", status, kind=None)), mode="auto"))
    assert caught.value.status == status


# Redirects


def redirecting(status: int, to: str) -> Script:
    """Send whoever comes elsewhere; PORT is the server's own."""

    async def script(request: Request, line: Line) -> None:
        if request.path == "/moved":
            await line.json(request.reply(DONE))
            return
        target = to.replace("PORT", request.headers["host"].rpartition(":")[2])
        await line.send(f"HTTP/1.1 {status} Go\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())

    return script


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize("to", ["/moved", "moved", "http://127.0.0.1:PORT/moved", "//127.0.0.1:PORT/moved", "/moved#x"])
def test_a_redirect_within_the_origin_is_followed_with_the_same_request(status: int, to: str) -> None:
    async def flow() -> None:
        async with visiting(redirecting(status, to), headers={"Authorization": SECRET}) as (client, peer):
            assert text_of(await client.call_tool("t", {"a": 1})) == "done"
            first, second = peer.requests
            assert (first.path, second.path) == ("/mcp", "/moved")
            assert second.body == first.body
            assert second.method == "POST"
            assert {**second.headers} == {**first.headers}

    run(flow())


class Stamp(httpx2.Auth):
    """Adds a credential to every request."""

    def auth_flow(self, request: httpx2.Request) -> Any:
        request.headers["Authorization"] = SECRET
        yield request


@pytest.mark.parametrize("status", [307, 308])
@pytest.mark.parametrize(
    "options", [{"headers": {"Authorization": SECRET}}, {"auth": Stamp()}], ids=["headers", "auth"]
)
def test_a_redirect_to_another_port_is_refused_and_nothing_arrives_there(status: int, options: dict[str, Any]) -> None:
    async def elsewhere(request: Request, line: Line) -> None:
        await line.json(request.reply(DONE))

    async def flow() -> None:
        async with serving(elsewhere) as other, visiting(redirecting(status, other.url), **options) as (client, peer):
            with pytest.raises(RedirectRefused) as caught:
                await client.call_tool("t", {})
            assert (caught.value.status, caught.value.location) == (status, other.url)
            assert len(peer.requests) == 1
            assert other.connections == 0

    run(flow())


FOREIGN = [
    "http://localhost:PORT/moved",
    "https://127.0.0.1:PORT/moved",
    "http://127.0.0.1/moved",
    "http://127.0.0.1:PORT@example.invalid/moved",
    "http://127.0.0.1:PORT\\@example.invalid/moved",
    "http://127.0.0.1.example.invalid:PORT/moved",
    "//example.invalid/moved",
    "ftp://127.0.0.1:PORT/moved",
    "file:///etc/passwd",
    "mailto:x",
]
BROKEN = [
    "http://[",
    "http://[::1",
    "http://127.0.0.1:99999/",
    "http://127.0.0.1:abc/",
    "http://127.0.0.1:PORT:80/",
    "http://user:password@127.0.0.1:PORT/moved",
    "http://user@127.0.0.1:PORT/moved",
    "http://example.invalid\\@127.0.0.1:PORT/moved",
]


@pytest.mark.parametrize(
    "options", [{"headers": {"Authorization": SECRET}}, {"auth": Stamp()}], ids=["headers", "auth"]
)
@pytest.mark.parametrize("to", [*FOREIGN, *BROKEN])
def test_a_redirect_to_another_origin_is_refused(to: str, options: dict[str, Any]) -> None:
    async def flow() -> None:
        async with visiting(redirecting(307, to), **options) as (client, peer):
            with pytest.raises(RedirectRefused):
                await client.call_tool("t", {})
            assert len(peer.requests) == 1

    run(flow())


@pytest.mark.parametrize("status", [301, 302, 303])
@pytest.mark.parametrize("to", ["/moved", "http://example.invalid/"])
def test_a_redirect_that_would_change_the_request_is_refused(status: int, to: str) -> None:
    async def flow() -> None:
        async with visiting(redirecting(status, to)) as (client, peer):
            with pytest.raises(RedirectRefused) as caught:
                await client.list_prompts()
            assert caught.value.status == status
            assert len(peer.requests) == 1

    run(flow())


def test_a_redirect_that_goes_round_in_circles_is_left_soon() -> None:
    async def flow() -> None:
        async with visiting(redirecting(307, "/mcp")) as (client, peer):
            with pytest.raises(RedirectRefused):
                await client.list_prompts()
            assert 2 <= len(peer.requests) <= 10

    run(flow())


@pytest.mark.parametrize("headers", [{}, {"location": ""}])
def test_a_redirect_to_nowhere_is_refused(headers: dict[str, str]) -> None:
    async def flow() -> None:
        async with visiting(answering(http(b"", 307, kind=None, **headers))) as (client, peer):
            with pytest.raises(RedirectRefused):
                await client.list_prompts()
            assert len(peer.requests) == 1

    run(flow())


# Connections, deadlines and cancelling


def test_many_calls_use_one_connection() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply(DONE))

    async def flow() -> int:
        async with visiting(script) as (client, peer):
            for _ in range(200):
                await client.call_tool("t", {})
            return peer.connections

    assert run(flow()) == 1


@pytest.mark.parametrize("politely", [True, False])
def test_a_server_that_closes_connections_between_calls_does_not_break_reading(politely: bool) -> None:
    async def script(request: Request, line: Line) -> None:
        headers: dict[str, Any] = {"connection": "close"} if politely else {}
        await line.json(request.reply({"prompts": []}), **headers)
        line.close()

    async def flow() -> int:
        async with visiting(script) as (client, peer):
            for _ in range(5):
                assert (await client.list_prompts()).prompts == []
            return peer.connections

    assert run(flow()) >= 5


def test_concurrent_calls_do_not_mix() -> None:
    waiting: list[tuple[Request, Line]] = []

    async def script(request: Request, line: Line) -> None:
        waiting.append((request, line))
        if len(waiting) == 20:
            for earlier, its_line in reversed(waiting):
                text = earlier.params["arguments"]["text"]
                await its_line.json(earlier.reply({"content": [{"type": "text", "text": text}]}))

    async def flow() -> list[str]:
        async with visiting(script) as (client, _):
            calls = [client.call_tool("t", {"text": f"call {number}"}) for number in range(20)]
            return [text_of(result) for result in await asyncio.gather(*calls)]

    assert run(flow()) == [f"call {number}" for number in range(20)]
    assert len({request.id for request, _ in waiting}) == 20


async def silent(request: Request, line: Line) -> None:
    await line.gone.wait()


async def begun(request: Request, line: Line) -> None:
    await line.send(http(None, content_length="100") + b"{")
    await line.gone.wait()


async def talking(request: Request, line: Line) -> None:
    await line.events()
    await dripping(line)


@pytest.mark.parametrize("script", [silent, begun, talking])
@pytest.mark.parametrize("limit", ["deadline", "read_timeout_seconds"])
def test_a_server_that_hangs_is_left_at_the_deadline(script: Script, limit: str) -> None:
    ended = asyncio.Event()

    async def watched(request: Request, line: Line) -> None:
        try:
            await script(request, line)
        finally:
            ended.set()

    async def flow() -> None:
        async with visiting(watched) as (client, peer):
            began = time.monotonic()
            options: dict[str, Any] = {limit: 0.1}
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("t", {}, **options)
            assert time.monotonic() - began < 5
            await ended.wait()  # The server hears of it.
            assert len(peer.requests) == 1

    run(flow())


@pytest.mark.parametrize("script", [silent, begun, talking])
def test_cancelling_a_call_closes_its_connection(script: Script) -> None:
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def watched(request: Request, line: Line) -> None:
        arrived.set()
        try:
            await script(request, line)
        finally:
            ended.set()

    async def flow() -> None:
        async with visiting(watched) as (client, peer):
            task = asyncio.create_task(client.call_tool("t", {}))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended.wait()
            assert len(peer.requests) == 1

    run(flow())


def test_calls_under_way_when_the_client_is_left_are_told_so() -> None:
    async def flow() -> None:
        async with visiting(silent) as (client, peer):
            calls = [asyncio.create_task(client.call_tool("t")), asyncio.create_task(client.list_tools())]
            while len(peer.requests) < 2:  # noqa: ASYNC110 - it is somebody else's
                await asyncio.sleep(0.01)
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ConnectionLost, ConnectionLost]

    run(flow())


def test_a_deadline_ends_a_callback_that_hangs() -> None:
    ended = asyncio.Event()

    async def hangs(*_: Any) -> ElicitResult:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async def script(request: Request, line: Line) -> None:
        form = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
        question = {"method": "elicitation/create", "params": form}
        await line.json(
            request.reply({"resultType": "input_required", "inputRequests": {"a": question, "b": question}})
        )

    async def flow() -> None:
        async with visiting(script, elicitation_callback=hangs, deadline=0.2) as (client, peer):
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("t", {})
            assert ended.is_set()
            assert len(peer.requests) == 1

    run(flow())


def test_a_deadline_counts_for_all_rounds_together() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply({"resultType": "input_required", "requestState": "again"}))

    async def flow() -> None:
        async with visiting(script, deadline=0.3, input_required_max_rounds=1000) as (client, _):
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("t", {})
            assert time.monotonic() - began < 5

    run(flow())


def test_a_server_that_is_not_there_is_told_as_such() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: nobody else gets this port.

        async def flow() -> None:
            async with Client(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp", mode="2026-07-28") as client:
                with pytest.raises(ConnectionLost) as caught:
                    await client.call_tool("t", {})
                assert not caught.value.sent

        run(flow())


def test_a_call_of_any_size_is_sent() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(
            request.reply({"content": [{"type": "text", "text": str(len(request.params["arguments"]["x"]))}]})
        )

    async def flow(**options: Any) -> str:
        async with visiting(script, **options) as (client, _):
            return text_of(await client.call_tool("t", {"x": "y" * 2_000_000}))

    assert run(flow()) == "2000000"
    assert run(flow(auth=Stamp())) == "2000000"


@pytest.mark.parametrize(
    "url", ["http://", "http:///mcp", "http://[", "http://user:password@host/", "http://host:99999/", "http://host:x/"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        HTTP(url)


def test_without_its_library_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)

    async def opened() -> None:
        async with Client("http://127.0.0.1:9/mcp"):
            pass

    with pytest.raises(ImportError, match=r"turnwise\[http\]"):
        run(opened())
