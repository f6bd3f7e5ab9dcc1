"""Replies that come as streams of events, from servers that are faulty or hostile."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.scripted import (
    DONE,
    EVENTS,
    Line,
    Request,
    answering,
    called,
    done,
    dripping,
    event,
    http,
    is_done,
    run,
    streamed,
    text_of,
    visiting,
)
from turnwise import ConnectionLost, DeadlineExceeded, InvalidReply
from turnwise._messages import Mark
from turnwise.transports.sse import Events

ENDINGS = [b"\n", b"\r\n", b"\r"]


@pytest.mark.parametrize("ending", ENDINGS, ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("stays_open", [False, True])
def test_lines_may_end_in_any_way(ending: bytes, stays_open: bool) -> None:
    def lines(request: Request) -> bytes:
        return b": hello\n\nid: 7\nevent: message\ndata: %b\n\n".replace(b"\n", ending) % done(request)

    begun = http(None, kind=EVENTS)
    assert is_done(answering(begun, lines, close=not stays_open), read_timeout_seconds=1)


@pytest.mark.parametrize("ending", ENDINGS, ids=["LF", "CRLF", "CR"])
def test_events_may_be_split_anywhere(ending: bytes) -> None:
    text = ending.join(
        [b": c", b"data: a", b"data", b"data:b", b"", b"event: message", b"data:  c", b"retry: 1", b"", b""]
    )
    for place in range(len(text) + 1):
        events = Events(1000)
        found = [*events.feed(text[:place]), *events.feed(text[place:])]
        assert found == [b"a\n\nb", b" c"], place
    events = Events(1000)
    assert [found for place in range(len(text)) for found in events.feed(text[place : place + 1])] == [b"a\n\nb", b" c"]


@pytest.mark.parametrize("ending", [b"\r\n\n", b"\n\r\n", b"\r\r\n", b"\n\r", b"\r\n\r"])
def test_lines_that_end_in_different_ways_may_come_byte_by_byte(ending: bytes) -> None:
    text = b"data: a" + ending + b"data: b" + ending
    events = Events(1000)
    assert [found for place in range(len(text)) for found in events.feed(text[place : place + 1])] == [b"a", b"b"]


@pytest.mark.parametrize("ending", ENDINGS, ids=["LF", "CRLF", "CR"])
def test_a_stream_may_come_byte_by_byte(ending: bytes) -> None:
    async def script(request: Request, line: Line) -> None:
        await line.events()
        for place, _ in enumerate(text := event(request.reply(DONE)).replace(b"\n", ending)):
            await line.chunk(text[place : place + 1])
        await line.chunk()

    assert is_done(script)


@pytest.mark.parametrize(
    "before",
    [
        b":\n",
        b": keep-alive\n\n" * 100,
        b"\n\n\n\n",
        b"retry: 10\n\n",
        b"id: 1\n\n",
        b"event: message\n",
        b"data-x: 1\ndatum: 2\nDATA: 3\n data: 4\n",
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbf: hello\n\n",
        b"\xff\xfe\n\n",
        b"id: 1\ndata:\n\n",
        b"id: 1\ndata\n\n",
        b"event: ping\ndata: 2026-07-28\n\n",
        b"event: endpoint\ndata: /messages?session=1\n\n",
        b'event: error\ndata: {"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"not this one"}}\n\n',
    ],
)
def test_what_is_no_message_of_a_stream_is_passed_over(before: bytes) -> None:
    assert is_done(streamed(before, lambda request: event(request.reply(DONE))))


def test_the_data_of_several_lines_is_one_message() -> None:
    def lines(request: Request) -> bytes:
        return b"".join(b"data: %b\n" % part.encode() for part in json.dumps(request.reply(DONE), indent=1).split("\n"))

    assert is_done(streamed(lines, b"\n"))


def test_notifications_are_heard_in_order_before_the_result() -> None:
    heard: list[Any] = []

    async def progress(*told: Any) -> None:
        await asyncio.sleep(0)
        heard.append(told)

    async def script(request: Request, line: Line) -> None:
        token = request.message["params"]["_meta"]["progressToken"]
        await line.events()
        for number in range(20):
            params = {"progressToken": token, "progress": number, "total": 20, "message": f"step {number}"}
            await line.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        await line.chunk(event(request.reply(DONE)))
        await line.chunk()

    async def flow() -> None:
        async with visiting(script) as (client, _):
            await client.call_tool("t", {}, progress_callback=progress)
            heard.append("done")

    run(flow())
    assert heard == [*((float(number), 20, f"step {number}") for number in range(20)), "done"]


@pytest.mark.parametrize(
    "odd",
    [
        {"method": "notifications/progress"},
        {"method": "notifications/progress", "params": []},
        {"method": "notifications/progress", "params": {"progress": "much"}},
        {"method": "notifications/progress", "params": {"progress": 10**400}},
        {"method": "notifications/message", "params": {"level": "loud", "data": 1}},
        {"method": "notifications/message", "params": None},
        {"method": ["x"]},
        {"method": None},
        {"method": "notifications/unknown", "params": {"a": 1}},
    ],
)
def test_an_odd_notification_does_not_disturb_the_call(odd: dict[str, Any]) -> None:
    async def ignore(*_: Any) -> None: ...

    async def flow() -> str:
        script = streamed(event({"jsonrpc": "2.0", **odd}), lambda request: event(request.reply(DONE)))
        async with visiting(script, logging_callback=ignore) as (client, _):
            return text_of(await client.call_tool("t", {}, progress_callback=ignore))

    assert run(flow()) == "done"


def test_a_progress_callback_that_fails_does_not_disturb_the_call() -> None:
    async def fails(*_: Any) -> None:
        raise ValueError("no")

    note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}

    async def flow() -> str:
        async with visiting(streamed(event(note), lambda request: event(request.reply(DONE)))) as (client, _):
            return text_of(await client.call_tool("t", {}, progress_callback=fails))

    assert run(flow()) == "done"


@pytest.mark.parametrize("rpc", ["elicitation/create", "roots/list", "sampling/createMessage", "ping"])
def test_a_request_on_a_stream_is_not_answered(rpc: str) -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError("nobody may be asked")

    async def flow() -> int:
        asked = {"jsonrpc": "2.0", "id": 1, "method": rpc, "params": {}}
        script = streamed(event(asked), lambda request: event(request.reply(DONE)))
        callbacks: dict[str, Any] = dict.fromkeys(
            ["elicitation_callback", "sampling_callback", "list_roots_callback"], never
        )
        async with visiting(script, **callbacks) as (client, peer):
            assert text_of(await client.call_tool("t", {})) == "done"
            return len(peer.requests)

    assert run(flow()) == 1


@pytest.mark.parametrize("odd", [[], 1, None, "x", {}, {"jsonrpc": "2.0", "id": 77, "result": DONE}])
def test_a_message_of_a_stream_that_is_no_reply_to_the_request_is_refused(odd: Any) -> None:
    with pytest.raises(InvalidReply):
        run(called(streamed(event(odd), lambda request: event(request.reply(DONE)))))


@pytest.mark.parametrize("data", [b"{", b"hello", b"NaN", b'{"a":"\xff"}', b"[" * 1000])
def test_an_event_that_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidReply):
        run(called(streamed(b"data: %b\n\n" % data)))


@pytest.mark.parametrize(
    "sent", [b"", b": hello\n\n", b"data: {", b'data: {"jsonrpc":"2.0"}\n', event({"method": "x"})]
)
def test_a_stream_cut_before_its_reply_is_a_lost_connection(sent: bytes) -> None:
    with pytest.raises(ConnectionLost) as caught:
        run(called(streamed(sent)))
    assert caught.value.sent


@pytest.mark.parametrize("framing", ["chunked", "length", "chunked, at once"])
def test_a_reply_counts_although_its_stream_is_cut_right_behind_it(framing: str) -> None:
    async def script(request: Request, line: Line) -> None:
        text = event(request.reply(DONE))
        chunk = b"%x\r\n%b\r\n" % (len(text), text)
        begun = http(None, kind=EVENTS, transfer_encoding="chunked")
        if framing == "length":
            await line.send(http(text, kind=EVENTS, content_length="10000"))
        elif framing == "chunked":
            await line.send(begun)
            await line.send(chunk)
        else:
            await line.send(begun + chunk)
        line.close()

    assert is_done(script)


async def flooding(line: Line) -> None:
    while True:
        await line.chunk(b": hello\n\n" * 1000)


async def notifying(line: Line) -> None:
    while True:
        await line.chunk(event({"jsonrpc": "2.0", "method": "notifications/x"}) * 100)
        await asyncio.sleep(0)


@pytest.mark.parametrize("endless", [dripping, flooding, notifying])
def test_a_stream_without_end_is_left_in_time(endless: Callable[[Line], Awaitable[None]]) -> None:
    async def script(request: Request, line: Line) -> None:
        await line.events()
        await endless(line)

    with pytest.raises(DeadlineExceeded):
        run(called(script, read_timeout_seconds=0.15))


@pytest.mark.parametrize("part", [b"x" * 100, b"\ndata: x", b"\ndata" * 20, b"\n:\ndata: x", b"\n: " + b"x" * 6000])
def test_an_event_larger_than_the_limit_is_refused(part: bytes) -> None:
    async def script(request: Request, line: Line) -> None:
        await line.events()
        await line.chunk(b"data: ")
        for _ in range(2000):
            await line.chunk(part)
        await line.gone.wait()

    with pytest.raises(InvalidReply, match="5000"):
        run(called(script, largest_reply=5000))


@pytest.mark.parametrize("stream", [b"data: 1234", b"data:1234\n:", b": 12345678", b"data\ndata\n::"])
def test_an_event_may_be_as_large_as_the_limit_and_a_line_that_has_not_ended_counts(stream: bytes) -> None:
    assert list(Events(10).feed(stream)) == []
    with pytest.raises(InvalidReply, match="10 bytes"):
        list(Events(10).feed(stream + b"x"))
    events = Events(10)
    with pytest.raises(InvalidReply, match="10 bytes"):
        [found for place in range(len(stream) + 1) for found in events.feed((stream + b"x")[place : place + 1])]


def test_an_event_is_held_against_the_limit_by_itself() -> None:
    assert list(Events(10).feed(b"data: 1234\n\n" * 3 + b": 12345678\n" * 3)) == [b"1234"] * 3
    with pytest.raises(InvalidReply, match="10 bytes"):
        list(Events(10).feed(b"data: 12345\n"))


def test_a_byte_order_mark_is_passed_over_at_the_beginning_alone() -> None:
    mark = b"\xef\xbb\xbf"
    assert list(Events(1000).feed(mark + b"data: a\n\n" + mark + b"data: b\n\ndata: c\n" + mark + b"\n\n")) == [
        b"a",
        b"c",
    ]


def test_a_long_event_in_small_parts_costs_no_more_than_its_length() -> None:
    events = Events(2**24)
    began = time.process_time()
    assert list(events.feed(b"data: ")) == []
    for _ in range(2**11):
        assert list(events.feed(b"x" * 2**10)) == []
    (found,) = events.feed(b"\n\n")
    assert len(found) == 2**21
    assert time.process_time() - began < 1


def test_a_stream_left_open_behind_its_reply_does_not_hold_up_the_call() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.events()
        await line.chunk(event(request.reply(DONE)))
        await dripping(line)

    began = time.monotonic()
    assert is_done(script)
    assert time.monotonic() - began < 5


def test_a_connection_is_used_again_after_a_stream() -> None:
    async def script(request: Request, line: Line) -> None:
        if request.rpc != "tools/call":
            await line.json(request.reply({"prompts": []}))
            return
        await line.events()
        await line.chunk(event(request.reply(DONE)))
        await line.chunk()

    async def flow() -> int:
        async with visiting(script) as (client, peer):
            for _ in range(3):
                await client.call_tool("t", {})
                await client.list_prompts()
            return peer.connections

    assert run(flow()) == 1


# Where a stream can be taken up again


@pytest.mark.parametrize(
    ("stream", "last_id", "retry"),
    [
        (b"id: 1\ndata: x\n\n", "1", None),
        (b"id: 1\n\nid: 2\ndata: x\n", "1", None),
        (b"id: 1\ndata:\n\n", "1", None),
        (b"id:1\n\nid\n\n", "", None),
        (b"id: a\0b\n\n", "", None),
        (b"id: \xff\n\n", "\ufffd", None),
        (b"retry: 1500\n\n", "", 1.5),
        (b"retry: soon\nretry: -1\nretry: 1.5\nretry: 99999999999\n\n", "", None),
        ("retry: ١\nid: 1\n\n".encode(), "1", None),
    ],
)
def test_the_id_and_the_pause_are_kept(stream: bytes, last_id: str, retry: float | None) -> None:
    for size in (1, 2, 1000):
        events = Events(1000)
        for start in range(0, len(stream), size):
            list(events.feed(stream[start : start + size]))
        assert (events.last_id, events.retry) == (last_id, retry)
        again = events.anew()
        assert (again.last_id, again.retry) == (last_id, retry)


def test_only_the_marks_that_were_asked_for_are_told() -> None:
    stream = b"event: a\nid: 1\n\nevent: b\nid: 2\n\nid: 3\ndata: x\n\nevent: a\ndata: y\n\n"
    assert list(Events(1000).feed(stream)) == [b"x"]
    assert list(Events(1000, {"a": False}).feed(stream)) == [Mark("a", "1"), b"x", Mark("a", "3")]
