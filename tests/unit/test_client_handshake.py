"""A client of a server with a handshake, over HTTP: sessions, what is asked in them, and what goes wrong with them."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from mcp_types import ElicitResult, ErrorData

from tests.unit.older import (
    LOST,
    NEWEST,
    OLDER,
    Json,
    Older,
    Stream,
    asking,
    bodies,
    form,
    initialized,
    meeting,
    methods,
)
from tests.unit.scripted import DONE, Line, Peer, Request, event, http, run, serving, text_of
from turnwise import (
    HTTP,
    AcceptedElicitation,
    CallerError,
    Client,
    ConnectionLost,
    Context,
    DeadlineExceeded,
    InvalidReply,
    MCPError,
    MCPServer,
    Pending,
    RedirectRefused,
    SyncClient,
    TooManyRounds,
    Unanswerable,
    UnexpectedStatus,
    UnknownResultType,
    UnsupportedVersion,
    VisitDeclined,
)

CITY = form(city={"type": "string"})
PAGE = {"mode": "url", "elicitationId": "e-1", "url": "https://example.com/login", "message": "Please log in"}


async def ulm(*_: Any) -> Json:
    return {"action": "accept", "content": {"city": "Ulm"}}


async def structured(server: Older, **options: Any) -> Any:
    """What the tool was told, as it says itself."""
    async with meeting(server, **options) as (client, _):
        return (await client.call_tool("t", {"a": 1})).structured_content


# Opening and leaving


def test_a_session_is_opened_kept_and_left() -> None:
    async def flow() -> Peer:
        async with meeting(Older()) as (client, peer):
            assert client.protocol_version == NEWEST
            assert client.server_info is not None
            assert client.server_info.name == "older"
            assert client.instructions == "Be kind."
            assert (await client.discover()).supported_versions == [NEWEST]
            assert text_of(await client.call_tool("t", {})) == "done"
        return peer

    requests = run(flow()).requests
    assert [request.method for request in requests] == ["POST", "POST", "POST", "DELETE"]
    opening, greeting, call, leaving = requests
    assert opening.rpc == "initialize"
    assert opening.params["protocolVersion"] == NEWEST
    assert opening.params["clientInfo"]["name"] == "turnwise"
    assert not {"mcp-session-id", "mcp-protocol-version"} & opening.headers.keys()
    assert greeting.message == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert "_meta" not in call.message["params"]
    for request in (greeting, call, leaving):
        assert request.headers["mcp-session-id"] == "session-1"
        assert request.headers["mcp-protocol-version"] == NEWEST


def test_who_is_cancelled_while_leaving_leaves_all_the_same() -> None:
    async def listening(server: Older, request: Request, stream: Stream) -> None:
        await stream.raw(b": here\n\n")
        await stream.line.gone.wait()

    async def flow() -> None:
        async with serving(Older(listening=listening)) as peer:
            client = Client(peer.url, mode=NEWEST, elicitation_callback=lambda *_: None)
            await client.__aenter__()
            leaving = asyncio.create_task(client.__aexit__())
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.wait([leaving])
            assert client._channel._session.closed  # type: ignore[attr-defined]
            assert [request.method for request in peer.requests][-1] == "DELETE"

    run(flow())


@pytest.mark.parametrize("version", OLDER)
def test_any_version_with_a_handshake_is_taken(version: Any) -> None:
    async def flow() -> Peer:
        async with meeting(Older(opening=initialized(version))) as (client, peer):
            assert client.protocol_version == version
            await client.call_tool("t", {})
        return peer

    assert run(flow()).requests[2].headers["mcp-protocol-version"] == version


@pytest.mark.parametrize("mode", OLDER)
def test_the_version_that_was_told_is_asked_for(mode: str) -> None:
    async def flow() -> Peer:
        async with meeting(Older(), mode=mode) as (_, peer):
            return peer

    assert run(flow()).requests[0].params["protocolVersion"] == mode


@pytest.mark.parametrize("version", ["2023-01-01", "2026-07-28", "DRAFT-2026-v1", ""])
def test_a_version_that_is_not_known_is_refused(version: str) -> None:
    async def flow() -> None:
        async with meeting(Older(opening=initialized(version))):
            pass

    with pytest.raises(UnsupportedVersion) as caught:
        run(flow())
    assert caught.value.supported == (version,)


@pytest.mark.parametrize("member", ["protocolVersion", "capabilities", "serverInfo"])
@pytest.mark.parametrize("value", [None, 7, []])
def test_a_result_of_initialize_of_the_wrong_shape_is_refused(member: str, value: Any) -> None:
    async def flow() -> None:
        async with meeting(Older(opening={**initialized(), member: value})):
            pass

    with pytest.raises(InvalidReply, match="initialize"):
        run(flow())


def test_a_server_that_names_what_it_has_when_it_refuses_is_asked_again() -> None:
    server = Older(opening=initialized("2024-11-05"))

    async def script(request: Request, line: Line) -> None:
        if request.method == "POST" and request.message.get("params", {}).get("protocolVersion") == NEWEST:
            await line.json(request.refusal(-32602, {"supported": ["2024-11-05"], "requested": NEWEST}))
        else:
            await server(request, line)

    async def flow() -> str:
        async with serving(script) as peer, Client(peer.url, mode=NEWEST) as client:
            return client.protocol_version

    assert run(flow()) == "2024-11-05"


def test_a_session_without_an_id_is_one_too() -> None:
    async def script(request: Request, line: Line) -> None:
        if request.method != "POST":
            await line.send(http(b"", 405, kind=None))
        elif request.rpc == "initialize":
            await line.json(request.reply(initialized()))
        elif "id" not in request.message:
            await line.send(http(b"", 202, kind=None))
        else:
            await line.json(request.reply(DONE))

    async def flow() -> Peer:
        async with serving(script) as peer:
            async with Client(peer.url, mode=NEWEST) as client:
                await client.call_tool("t", {})
            return peer

    requests = run(flow()).requests
    assert all("mcp-session-id" not in request.headers for request in requests)
    assert [request.method for request in requests] == ["POST"] * 3


def test_the_reply_to_initialize_may_be_a_stream() -> None:
    server = Older()

    async def script(request: Request, line: Line) -> None:
        if request.method == "POST" and request.message.get("method") == "initialize":
            server.alive.add("streamed")
            body = event({"jsonrpc": "2.0", "id": 9, "method": "ping"}) + event(request.reply(initialized()))
            await line.send(http(body, kind="text/event-stream", mcp_session_id="streamed"))
        else:
            await server(request, line)

    async def flow() -> Peer:
        async with serving(script) as peer:
            async with Client(peer.url, mode=NEWEST) as client:
                await client.call_tool("t", {})
            return peer

    assert run(flow()).requests[-1].headers["mcp-session-id"] == "streamed"


@pytest.mark.parametrize("session", ["a b", "é", "\x7f"])
def test_the_id_of_a_session_must_fit_a_header(session: str) -> None:
    async def flow() -> None:
        server = Older(sessions=[session])
        async with serving(server) as peer, Client(peer.url, mode=NEWEST):
            pass

    with pytest.raises(InvalidReply):
        run(flow())


def test_a_server_that_does_not_take_the_greeting_cannot_be_used() -> None:
    async def flow() -> None:
        async with meeting(Older(status=400)):
            pass

    with pytest.raises(UnexpectedStatus, match="400"):
        run(flow())


def test_any_good_status_takes_a_notification() -> None:
    async def flow() -> None:
        async with meeting(Older(status=200)) as (client, _):
            await client.call_tool("t", {})

    run(flow())


def test_a_server_that_never_answers_a_notification_is_waited_for_only_so_long() -> None:
    server = Older()

    async def script(request: Request, line: Line) -> None:
        if request.method == "POST" and "id" not in request.message:
            await line.gone.wait()
        await server(request, line)

    async def flow() -> None:
        async with serving(script) as peer, Client(peer.url, mode=NEWEST, read_timeout_seconds=0.2):
            pass

    with pytest.raises(DeadlineExceeded):
        run(flow())


def test_a_log_level_is_set_where_there_is_a_log() -> None:
    async def flow(server: Older) -> list[str]:
        async with meeting(server, log_level="warning") as (_, peer):
            return methods(peer)

    with_log = run(flow(Older(opening=initialized(logging={}))))
    assert with_log == ["initialize", "notifications/initialized", "logging/setLevel"]
    assert run(flow(Older())) == ["initialize", "notifications/initialized"]


def test_a_ping_and_new_roots_are_told() -> None:
    async def roots(_: Any) -> Json:
        return {"roots": []}

    async def flow() -> list[Json]:
        async with meeting(Older(results={"ping": {}}), list_roots_callback=roots) as (client, peer):
            await client.ping()
            await client.roots_changed()
        return bodies(peer)

    opening, _, ping, changed = run(flow())
    assert opening["params"]["capabilities"]["roots"] == {"listChanged": True}
    assert ping["method"] == "ping"
    assert changed == {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}


def test_2026_07_28_has_neither_a_ping_nor_new_roots() -> None:
    async def flow() -> None:
        async with Client(MCPServer("new")) as client:
            with pytest.raises(CallerError, match="2026-07-28"):
                await client.ping()
            with pytest.raises(CallerError, match="2026-07-28"):
                await client.roots_changed()

    run(flow())


# Questions


def test_a_form_is_answered_while_the_call_waits() -> None:
    seen: list[Any] = []

    async def answer(asking: Any, params: Any) -> Json:
        seen.append((asking, params))
        return {"action": "accept", "content": {"city": "Ulm"}}

    async def flow() -> list[Json]:
        question = form(city={"type": "string"}, rooms={"type": "integer", "default": 2})
        server = Older(asking("elicitation/create", question))
        async with meeting(server, elicitation_callback=answer) as (client, peer):
            result = await client.call_tool("t", {"a": 1})
            assert result.structured_content == {"action": "accept", "content": {"city": "Ulm", "rooms": 2}}
        return bodies(peer)

    sent = run(flow())
    asked, params = seen[0]
    assert (asked.method, asked.target, asked.arguments, asked.round) == ("tools/call", "t", {"a": 1}, 1)
    assert params.message == "?"
    assert sent[-1]["id"] == 101


def test_a_page_is_asked_for_with_what_is_odd_about_it() -> None:
    seen: list[Any] = []

    async def answer(asking: Any, params: Any) -> Json:
        seen.append(asking)
        return {"action": "accept"}

    page = {**PAGE, "url": "http://user@example.com/"}
    assert run(structured(Older(asking("elicitation/create", page)), elicitation_callback=answer)) == {
        "action": "accept"
    }
    assert seen[0].host == "example.com"
    assert len(seen[0].warnings) == 2


def test_the_model_and_the_folders_are_asked_for() -> None:
    said = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}
    folders = {"roots": [{"uri": "file:///a"}]}
    question = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 5}
    sampled = run(structured(Older(asking("sampling/createMessage", question)), sampling_callback=lambda *_: said))
    assert sampled == said
    rooted = run(structured(Older(asking("roots/list")), list_roots_callback=lambda _: folders))
    assert rooted == folders


@pytest.mark.parametrize(
    ("method", "params", "version", "code"),
    [
        ("elicitation/create", CITY, "2025-11-25", -32602),
        ("elicitation/create", CITY, "2025-06-18", -32601),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}, "2025-11-25", -32601),
        ("roots/list", None, "2025-11-25", -32601),
        ("tasks/list", None, "2025-11-25", -32601),
    ],
)
def test_what_nobody_can_answer_is_an_error_to_the_server(method: str, params: Any, version: str, code: int) -> None:
    server = Older(asking(method, params), opening=initialized(version))
    assert run(structured(server))["code"] == code


def test_a_mode_that_was_not_declared_is_an_error_to_the_server() -> None:
    server = Older(asking("elicitation/create", PAGE))
    told = run(structured(server, elicitation_callback=ulm, capabilities={"elicitation": {"form": {}}}))
    assert told["code"] == -32602


@pytest.mark.parametrize(
    "params",
    [{}, {"message": "?"}, {"mode": "film"}, {**PAGE, "url": "javascript:alert(1)"}, {**CITY, "message": 1}, 7],
)
def test_a_malformed_question_is_an_error_to_the_server(params: Any) -> None:
    told = run(structured(Older(asking("elicitation/create", params)), elicitation_callback=ulm))
    assert told["code"] == -32602


@pytest.mark.parametrize("answer", [{"action": "accept", "content": {"city": 7}}, {"action": "maybe"}, 7, None])
def test_an_answer_that_does_not_fit_is_not_sent(answer: Any) -> None:
    told = run(structured(Older(asking("elicitation/create", CITY)), elicitation_callback=lambda *_: answer))
    assert told["code"] == -32603


def test_a_callback_that_fails_is_an_error_to_the_server_and_the_call_goes_on() -> None:
    def fail(*_: Any) -> Json:
        raise RuntimeError("private")

    told = run(structured(Older(asking("elicitation/create", CITY)), elicitation_callback=fail))
    assert told["code"] == -32603
    assert "private" not in told["message"]


def test_a_user_who_does_not_want_the_model_asked_says_so() -> None:
    question = {"messages": [{"role": "user", "content": {"type": "text", "text": "?"}}], "maxTokens": 5}
    refusal = ErrorData(code=-1, message="User rejected sampling request")
    told = run(structured(Older(asking("sampling/createMessage", question)), sampling_callback=lambda *_: refusal))
    assert told == {"code": -1, "message": "User rejected sampling request"}


def test_the_stream_is_read_on_while_somebody_thinks() -> None:
    heard: list[float] = []
    told = asyncio.Event()

    async def answer(*_: Any) -> ElicitResult:
        await told.wait()
        return ElicitResult(action="accept", content={"city": "Ulm"})

    async def progress(done: float, *_: Any) -> None:
        heard.append(done)
        told.set()

    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": CITY})
        token = request.message["params"]["_meta"]["progressToken"]
        await stream.notify("notifications/progress", progressToken=token, progress=0.5)
        await server.reply_to("q")
        await stream.say(request.reply(DONE))

    async def flow() -> None:
        async with meeting(Older(call), elicitation_callback=answer) as (client, _):
            await client.call_tool("t", {}, progress_callback=progress)

    run(flow())
    assert heard == [0.5]


async def both(order: Any) -> int:
    """How many callbacks ran at the same time, of two questions that were asked together."""
    running, most = 0, 0

    async def answer(*_: Any) -> Json:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return {"action": "accept", "content": {"city": "Ulm"}}

    async def call(server: Older, request: Request, stream: Stream) -> None:
        for number in (1, 2):
            await stream.say({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": CITY})
        for number in (1, 2):
            await server.reply_to(number)
        await stream.say(request.reply(DONE))

    async with meeting(Older(call), elicitation_callback=answer, answer_order=order) as (client, _):
        await client.call_tool("t", {})
    return most


def test_questions_are_answered_together_or_one_by_one() -> None:
    assert run(both("together")) == 2
    assert run(both("one-by-one")) == 1


def test_the_time_for_a_reply_stands_still_while_somebody_thinks() -> None:
    async def slowly(*_: Any) -> Json:
        await asyncio.sleep(0.6)
        return {"action": "accept", "content": {"city": "Ulm"}}

    server = Older(asking("elicitation/create", CITY))
    assert run(structured(server, elicitation_callback=slowly, read_timeout_seconds=0.4))["action"] == "accept"


def test_a_whole_call_has_a_deadline_all_the_same() -> None:
    async def never(*_: Any) -> Json:
        await asyncio.Event().wait()
        raise AssertionError

    async def flow() -> list[str]:
        server = Older(asking("elicitation/create", CITY))
        async with meeting(server, elicitation_callback=never) as (client, peer):
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("t", {}, deadline=0.2)
        return methods(peer)

    assert run(flow())[-1] == "notifications/cancelled"


def test_a_question_that_is_withdrawn_is_not_answered() -> None:
    ended = asyncio.Event()

    async def never(*_: Any) -> Json:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": CITY})
        await asyncio.sleep(0.05)
        await stream.notify("notifications/cancelled", requestId="q")
        await ended.wait()
        await stream.say(request.reply(DONE))

    async def flow() -> list[Json]:
        server = Older(call)
        async with meeting(server, elicitation_callback=never) as (client, _):
            await client.call_tool("t", {})
        return server.replies

    assert run(flow()) == []


def test_a_ping_is_answered_in_any_stream() -> None:
    assert run(structured(Older(asking("ping")))) == {}


@pytest.mark.parametrize("number", [None, 1.5, True, [], {}])
def test_a_question_without_a_proper_id_is_passed_over(number: Any) -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.say({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": CITY})
        await stream.say(request.reply(DONE))

    async def flow() -> list[Json]:
        server = Older(call)
        async with meeting(server, elicitation_callback=ulm) as (client, _):
            await client.call_tool("t", {})
        return server.replies

    assert [reply.get("id") for reply in run(flow())] in ([], [True])


def test_an_answer_that_the_server_does_not_take_ends_the_call() -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        server.status = 400
        await server.ask(stream, "elicitation/create", CITY)
        await stream.line.gone.wait()

    with pytest.raises(UnexpectedStatus, match="400"):
        run(structured(Older(call), elicitation_callback=ulm))


def test_too_many_questions_at_once_are_refused() -> None:
    async def never(*_: Any) -> Json:
        await asyncio.Event().wait()
        raise AssertionError

    async def call(server: Older, request: Request, stream: Stream) -> None:
        for number in range(101):
            await stream.say({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": CITY})
        told = await server.reply_to(100)
        await stream.say(request.reply({"content": [], "structuredContent": told["error"]}))

    assert run(structured(Older(call), elicitation_callback=never))["code"] == -32600


def test_a_live_question_cannot_be_put_down() -> None:
    async def flow() -> None:
        async with meeting(Older(asking("elicitation/create", CITY))) as (client, _):
            with pytest.raises(Unanswerable, match="cannot be put down") as caught:
                await client.begin("t")
            assert caught.value.is_live

    run(flow())


def test_begin_is_done_where_callbacks_answer() -> None:
    async def flow() -> Any:
        async with meeting(Older(asking("elicitation/create", CITY)), elicitation_callback=ulm) as (client, _):
            return await client.begin("t")

    assert run(flow()).result.structured_content["content"] == {"city": "Ulm"}


# SEP-2260


def test_a_question_outside_of_any_request_is_refused_and_a_ping_is_not() -> None:
    told: asyncio.Queue[Json] = asyncio.Queue()

    async def listening(server: Older, request: Request, stream: Stream) -> None:
        for method in ("elicitation/create", "sampling/createMessage", "roots/list", "ping"):
            await told.put(await server.ask(stream, method, {}))
        await stream.line.gone.wait()

    async def flow() -> list[Json]:
        async with meeting(Older(listening=listening), elicitation_callback=ulm):
            return [await told.get() for _ in range(4)]

    *refused, pong = run(flow())
    for reply in refused:
        assert reply["error"]["code"] == -32602
        assert "SEP-2260" in reply["error"]["message"]
    assert pong["result"] == {}


def test_a_question_beside_the_stream_of_a_call_that_is_under_way_belongs_to_it() -> None:
    """Servers of the older SDKs ask so."""
    beside: asyncio.Queue[Stream] = asyncio.Queue()

    async def listening(server: Older, request: Request, stream: Stream) -> None:
        await stream.raw(b": here\n\n")
        await beside.put(stream)
        await stream.line.gone.wait()

    async def call(server: Older, request: Request, stream: Stream) -> None:
        told = await server.ask(await beside.get(), "elicitation/create", CITY)
        await stream.say(request.reply({"content": [], "structuredContent": told["result"]}))

    server = Older(call, listening)
    assert run(structured(server, elicitation_callback=ulm))["content"] == {"city": "Ulm"}


# Cancelling


def test_hanging_up_cancels_nothing_and_so_it_is_said() -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.raw(b": begun\n\n")
        await stream.line.gone.wait()

    async def flow() -> list[Json]:
        async with meeting(Older(call)) as (client, peer):
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("t", {}, read_timeout_seconds=0.2)
        return bodies(peer)

    sent = run(flow())
    assert sent[-1]["method"] == "notifications/cancelled"
    assert sent[-1]["params"]["requestId"] == sent[-2]["id"]


def test_initialize_is_never_cancelled() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.gone.wait()

    async def flow() -> Peer:
        async with serving(script) as peer:
            with pytest.raises(DeadlineExceeded):
                async with Client(peer.url, mode=NEWEST, read_timeout_seconds=0.1):
                    pass
            return peer

    assert methods(run(flow())) == ["initialize"]


# Streams that break


def resumed(first: bytes, *later: Any) -> Older:
    """A tool whose stream breaks after these bytes, and is continued by GET with these, one after the other."""
    left = list(later)

    async def call(server: Older, request: Request, stream: Stream) -> None:
        server.number = request.id
        await stream.raw(first)
        stream.line.close()

    async def listening(server: Older, request: Request, stream: Stream) -> None:
        reply = {"jsonrpc": "2.0", "id": server.number, "result": DONE}
        part = left.pop(0) if left else b""
        if isinstance(part, int):
            await stream.line.send(http(b"", part, kind=None))
            return
        await stream.raw(part.replace(b"REPLY", event(reply)))
        stream.line.close()

    return Older(call, listening)


def gets(peer: Peer) -> list[str | None]:
    return [request.headers.get("last-event-id") for request in peer.requests if request.method == "GET"]


async def broken(server: Older, **options: Any) -> Peer:
    async with meeting(server, **options) as (client, peer):
        assert text_of(await client.call_tool("t", {})) == "done"
    return peer


@pytest.mark.parametrize(
    ("first", "asked"),
    [
        pytest.param(b"id: e1\nretry: 20\ndata:\n\n", "e1", id="the priming event"),
        pytest.param("id: e1\nretry: 20\ndata:\n\nid:e 2/é\n\n".encode(), "e 2/é", id="an odd id"),
        pytest.param(b'retry: 20\nid: e1\ndata: {"method": "x"}\n\nid: lost\ndata: {"me', "e1", id="a half event"),
    ],
)
def test_a_stream_that_breaks_is_taken_up_where_it_was(first: bytes, asked: str) -> None:
    peer = run(broken(resumed(first, b"REPLY")))
    assert [found and found.encode("latin-1").decode() for found in gets(peer)] == [asked]


def test_the_pause_that_the_server_names_is_respected() -> None:
    peer = run(broken(resumed(b"id: e1\nretry: 300\ndata:\n\n", b"REPLY")))
    [call] = [request for request in peer.requests if request.method == "POST" and b"tools/call" in request.body]
    [get] = [request for request in peer.requests if request.method == "GET"]
    assert get.at - call.at > 0.29


def test_a_server_may_close_a_stream_as_often_as_it_likes_if_it_goes_on() -> None:
    parts = [b"id: e%d\ndata:\n\n" % number for number in range(2, 12)]
    peer = run(broken(resumed(b"retry: 1\nid: e1\ndata:\n\n", *parts, b"REPLY")))
    assert gets(peer) == [f"e{number}" for number in range(1, 12)]


def test_a_stream_that_goes_nowhere_is_given_up() -> None:
    async def flow() -> Peer:
        async with meeting(resumed(b"retry: 1\nid: e1\ndata:\n\n")) as (client, peer):
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool("t", {})
            assert caught.value.sent
        return peer

    assert gets(run(flow())) == ["e1"] * 5


@pytest.mark.parametrize("status", [400, 404, 405, 500])
def test_a_server_that_does_not_continue_a_stream_has_lost_the_call(status: int) -> None:
    async def flow() -> Peer:
        async with meeting(resumed(b"retry: 1\nid: e1\ndata:\n\n", status)) as (client, peer):
            with pytest.raises(ConnectionLost, match="not continued") as caught:
                await client.call_tool("t", {})
            assert caught.value.sent
        return peer

    assert gets(run(flow())) == ["e1"]


@pytest.mark.parametrize("first", [b": nothing", b"id: a\x01b\ndata:", b"id:\ndata:", b"id: a\0\ndata:"])
def test_a_stream_without_an_id_that_can_be_named_is_lost(first: bytes) -> None:
    async def flow() -> Peer:
        async with meeting(resumed(first + b"\n\n")) as (client, peer):
            with pytest.raises(ConnectionLost):
                await client.call_tool("t", {})
        return peer

    assert gets(run(flow())) == []


def test_several_messages_in_one_event_are_read_one_by_one() -> None:
    heard: list[Any] = []

    async def call(server: Older, request: Request, stream: Stream) -> None:
        token = request.message["params"]["_meta"]["progressToken"]
        news = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        await stream.say([])
        await stream.say([news, 7, news][::2])
        await stream.say([news, request.reply(DONE)])

    async def flow() -> None:
        async with meeting(Older(call), mode="2025-03-26") as (client, _):
            result = await client.call_tool("t", {}, progress_callback=lambda *news: heard.append(news))
            assert text_of(result) == "done"

    run(flow())
    assert len(heard) == 3


def test_an_endless_event_is_cut_short() -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        while True:
            await stream.raw(b"data: [" + b"1," * 5000)

    async def flow() -> None:
        async with serving(Older(call)) as peer, Client(HTTP(peer.url, largest_reply=50_000), mode=NEWEST) as client:
            with pytest.raises(InvalidReply, match="50000"):
                await client.call_tool("t", {})

    run(flow())


def test_a_response_to_something_else_is_no_reply() -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.say({"jsonrpc": "2.0", "id": 999, "result": {}})

    with pytest.raises(InvalidReply, match="999"):
        run(structured(Older(call)))


def test_a_result_that_asks_is_none_of_these_versions() -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.say(request.reply({"resultType": "input_required", "requestState": "x"}))

    with pytest.raises(UnknownResultType):
        run(structured(Older(call)))


# Sessions that are lost


def forgetful() -> Older:
    """A server that forgets its first session once it was used."""

    async def call(server: Older, request: Request, stream: Stream) -> None:
        server.alive.discard("session-1")
        await stream.line.json(request.reply(DONE))

    return Older(call)


def test_a_session_that_is_lost_is_begun_anew_and_the_request_sent_again() -> None:
    async def flow() -> Peer:
        async with meeting(forgetful()) as (client, peer):
            await client.call_tool("t", {})
            await client.call_tool("t", {})
        return peer

    peer = run(flow())
    assert methods(peer).count("initialize") == 2
    assert methods(peer).count("tools/call") == 3
    assert peer.requests[-1].method == "DELETE"
    assert peer.requests[-1].headers["mcp-session-id"] == "session-2"
    again = [request for request in peer.requests if request.method == "POST" and b'"initialize"' in request.body][1]
    assert "mcp-session-id" not in again.headers


def test_a_session_is_begun_anew_once_for_all_who_need_it() -> None:
    async def flow() -> Peer:
        async with meeting(forgetful()) as (client, peer):
            await client.call_tool("t", {})
            await asyncio.gather(*(client.call_tool("t", {}) for _ in range(5)))
        return peer

    assert methods(run(flow())).count("initialize") == 2


def test_a_server_that_loses_every_session_is_not_asked_for_ever() -> None:
    server = Older()

    async def script(request: Request, line: Line) -> None:
        if request.method == "POST" and request.message.get("method") == "tools/call":
            await line.json(LOST, 404)
        else:
            await server(request, line)

    async def flow() -> None:
        async with serving(script) as peer, Client(peer.url, mode=NEWEST) as client:
            with pytest.raises(UnexpectedStatus, match="404"):
                await client.call_tool("t", {})

    run(flow())


def test_an_unknown_method_is_no_lost_session() -> None:
    async def flow() -> list[str]:
        server = Older()

        async def script(request: Request, line: Line) -> None:
            if request.method == "POST" and request.message.get("method") == "tools/list":
                await line.json(request.refusal(-32601), 404)
            else:
                await server(request, line)

        async with serving(script) as peer, Client(peer.url, mode=NEWEST) as client:
            with pytest.raises(MCPError):
                await client.list_tools()
            return methods(peer)

    assert run(flow()).count("initialize") == 1


# -32042


def wanting_visits(times: int = 1, data: Any = None) -> Older:
    left = [times]

    async def call(server: Older, request: Request, stream: Stream) -> None:
        if left[0] > 0:
            left[0] -= 1
            await stream.line.json(request.refusal(-32042, {"elicitations": [PAGE]} if data is None else data))
        else:
            await stream.line.json(request.reply(DONE))

    return Older(call)


def test_a_page_that_has_to_be_visited_first_is_asked_for_and_the_call_made_again() -> None:
    seen: list[Any] = []

    async def visit(asking: Any, params: Any) -> Json:
        seen.append((asking.key, asking.url, params.elicitation_id))
        return {"action": "accept"}

    async def flow() -> list[Json]:
        async with meeting(wanting_visits(), elicitation_callback=visit) as (client, peer):
            assert text_of(await client.call_tool("t", {"a": 1})) == "done"
        return [body for body in bodies(peer) if body.get("method") == "tools/call"]

    first, second = run(flow())
    assert seen == [("e-1", PAGE["url"], "e-1")]
    assert first["params"] == second["params"] == {"name": "t", "arguments": {"a": 1}}
    assert first["id"] != second["id"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_page_that_is_not_visited_ends_the_call(action: str) -> None:
    async def flow() -> int:
        async with meeting(wanting_visits(), elicitation_callback=lambda *_: {"action": action}) as (client, peer):
            with pytest.raises(VisitDeclined) as caught:
                await client.call_tool("t", {})
            assert caught.value.code == -32042
            return methods(peer).count("tools/call")

    assert run(flow()) == 1


def test_a_server_that_goes_on_wanting_visits_is_left() -> None:
    async def flow() -> int:
        options: Json = {"elicitation_callback": lambda *_: {"action": "accept"}, "input_required_max_rounds": 3}
        async with meeting(wanting_visits(99), **options) as (client, peer):
            with pytest.raises(TooManyRounds):
                await client.call_tool("t", {})
            return methods(peer).count("tools/call")

    assert run(flow()) == 4


def test_a_call_that_waits_for_a_visit_can_be_put_down() -> None:
    async def flow() -> Any:
        server = wanting_visits()
        async with serving(server) as peer:
            async with Client(peer.url, mode=NEWEST) as client:
                pending = await client.begin("t")
                assert isinstance(pending, Pending)
                assert pending.unanswered == ("e-1",)
            async with Client(peer.url, mode=NEWEST) as client:
                return await client.resume(Pending.from_json(pending.to_json()), {"e-1": {"action": "accept"}})

    assert text_of(run(flow()).result) == "done"


@pytest.mark.parametrize(
    "data",
    [
        7,
        {},
        {"elicitations": []},
        {"elicitations": [7]},
        {"elicitations": [{**PAGE, "mode": "form"}]},
        {"elicitations": [{"mode": "url"}]},
        {"elicitations": [PAGE, PAGE]},
    ],
)
def test_visits_that_are_not_named_are_no_question(data: Any) -> None:
    async def flow() -> None:
        async with meeting(wanting_visits(data=data), elicitation_callback=ulm) as (client, _):
            with pytest.raises(InvalidReply):
                await client.call_tool("t", {})

    run(flow())


# Redirects


def test_a_session_is_not_carried_to_another_origin() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.send(http(b"", 307, kind=None, location="http://127.0.0.1:1/mcp"))

    async def flow() -> None:
        async with serving(script) as peer, Client(peer.url, mode=NEWEST):
            pass

    with pytest.raises(RedirectRefused):
        run(flow())


# In one process


def test_a_server_in_this_process_is_asked_in_an_older_version() -> None:
    server = MCPServer("own")

    @server.tool()
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", str, key="who")
        return f"Hello {answer.data}" if isinstance(answer, AcceptedElicitation) else "nobody"

    async def flow() -> list[str]:
        said = []
        for mode in OLDER[2:]:
            callback = {"action": "accept", "content": {"value": "Ada"}}
            async with Client(server, mode=mode, elicitation_callback=lambda *_, c=callback: c) as client:
                said.append(text_of(await client.call_tool("greet")))
        return said

    assert run(flow()) == ["Hello Ada", "Hello Ada"]


def test_a_script_answers_a_live_question_in_its_own_thread() -> None:
    server = MCPServer("own")

    @server.tool()
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", str, key="who")
        return f"Hello {answer.data}" if isinstance(answer, AcceptedElicitation) else "nobody"

    def ask(*_: Any) -> Json:
        return {"action": "accept", "content": {"value": threading.current_thread().name}}

    with SyncClient(server, mode=NEWEST, elicitation_callback=ask) as client:
        client.ping()
        assert client.protocol_version == NEWEST
        assert text_of(client.call_tool("greet")) == "Hello MainThread"
        client.roots_changed()


# Authorization


def test_every_request_of_a_session_is_authorized() -> None:
    class Bearer(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            request.headers["Authorization"] = "Bearer secret"
            yield request

    async def listening(server: Older, request: Request, stream: Stream) -> None:
        await stream.raw(b": here\n\n")
        await stream.line.gone.wait()

    async def flow() -> Peer:
        server = Older(asking("elicitation/create", CITY), listening)
        async with meeting(server, elicitation_callback=ulm, auth=Bearer()) as (client, peer):
            assert (await client.call_tool("t", {})).structured_content is not None
        return peer

    requests = run(flow()).requests
    assert {request.method for request in requests} == {"POST", "GET", "DELETE"}
    assert {request.headers.get("authorization") for request in requests} == {"Bearer secret"}
