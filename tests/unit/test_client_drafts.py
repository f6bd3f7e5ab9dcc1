"""A client of the three drafts: the words of each on the wire, and the same loop over all of them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.older import Json, Older, Stream, bodies, initialized, meeting, methods
from tests.unit.scripted import CITY, DONE, Peer, Request, event, run, serving, text_of
from turnwise import (
    CallerError,
    Client,
    InvalidReply,
    MCPServer,
    PeerError,
    Pending,
    TooManyRounds,
    Unanswerable,
    UnsupportedVersion,
)
from turnwise.dialects.words import DRAFT_2026_02, DRAFTS, SEP_1858, SEP_2322

FORM = CITY["params"]


async def ulm(*_: Any) -> Json:
    return {"action": "accept", "content": {"city": "Ulm"}}


def calls(peer: Peer) -> list[Any]:
    """What was sent after the handshake."""
    return bodies(peer)[2:]


def draft(call: Any, version: str) -> Older:
    return Older(call, opening=initialized(version))


async def visited(server: Older, version: Any, **options: Any) -> Peer:
    async with meeting(server, mode=version, **options) as (client, peer):
        assert client.protocol_version == version
        assert text_of(await client.call_tool("t", {"a": 1})) == "done"
    return peer


# Opting in


@pytest.mark.parametrize("version", DRAFTS)
def test_a_draft_is_asked_for_by_name_and_an_older_server_is_spoken_to_as_before(version: Any) -> None:
    async def flow() -> Peer:
        async with meeting(Older(), mode=version) as (client, peer):
            assert client.protocol_version == "2025-11-25"
            await client.call_tool("t", {})
        return peer

    opening = bodies(run(flow()))[0]
    assert opening["params"]["protocolVersion"] == version
    assert "elicitation" in opening["params"]["capabilities"], "a person may answer what no callback does"


@pytest.mark.parametrize("version", DRAFTS)
def test_a_draft_that_nobody_asked_for_is_refused(version: Any) -> None:
    async def flow() -> None:
        other = next(draft for draft in DRAFTS if draft != version)
        async with meeting(Older(opening=initialized(other)), mode=version):
            pass

    with pytest.raises(UnsupportedVersion):
        run(flow())


@pytest.mark.parametrize("version", DRAFTS)
def test_every_request_of_a_draft_names_its_session_and_version(version: Any) -> None:
    peer = run(visited(draft(None, version), version))
    for request in peer.requests[1:]:
        assert request.headers["mcp-session-id"] == "session-1"
        assert request.headers["mcp-protocol-version"] == version
        assert "mcp-method" not in request.headers


def test_multi_turn_streams_are_a_way_of_http() -> None:
    async def flow() -> None:
        async with Client(MCPServer("own"), mode=SEP_1858):
            pass

    with pytest.raises(ValueError, match="HTTP"):
        run(flow())


# The approved text


def asking_2322(*rounds: Json) -> Older:
    left = list(rounds)

    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.line.json(request.reply(left.pop(0) if left else DONE))

    return draft(call, SEP_2322)


def test_the_approved_text_asks_in_the_result_and_is_answered_in_the_parameters() -> None:
    interim = {"resultType": "input_required", "inputRequests": {"who": CITY}, "requestState": "foo"}
    server = asking_2322(interim, {"resultType": "input_required", "requestState": "bar"})
    peer = run(visited(server, SEP_2322, elicitation_callback=ulm))
    first, second, third = calls(peer)
    assert first["params"] == {"name": "t", "arguments": {"a": 1}}
    answers = {"who": {"action": "accept", "content": {"city": "Ulm"}}}
    assert second["params"] == {**first["params"], "inputResponses": answers, "requestState": "foo"}
    assert third["params"] == {**first["params"], "requestState": "bar"}
    assert len({first["id"], second["id"], third["id"]}) == 3


# The first draft


def asking_in_the_first_draft(*rounds: Json) -> Older:
    left = list(rounds)

    async def call(server: Older, request: Request, stream: Stream) -> None:
        reply = {"jsonrpc": "2.0", "id": request.id}
        await stream.line.json({**reply, **left.pop(0)} if left else {**reply, "result": DONE})

    return draft(call, DRAFT_2026_02)


def test_the_first_draft_asks_and_is_answered_beside_the_parameters() -> None:
    rounds: list[Json] = [{"input_requests": {"who": CITY}, "request_state": "foo"}, {"request_state": "bar"}]
    peer = run(visited(asking_in_the_first_draft(*rounds), DRAFT_2026_02, elicitation_callback=ulm))
    first, second, third = calls(peer)
    assert first.keys() == {"jsonrpc", "id", "method", "params"}
    assert second["params"] == third["params"] == first["params"] == {"name": "t", "arguments": {"a": 1}}
    assert second["input_responses"] == {"who": {"result": {"action": "accept", "content": {"city": "Ulm"}}}}
    assert second["request_state"] == "foo"
    assert third["request_state"] == "bar"
    assert "input_responses" not in third


def test_a_question_without_state_is_retried_without_one() -> None:
    server = asking_in_the_first_draft({"input_requests": {"who": CITY}})
    peer = run(visited(server, DRAFT_2026_02, elicitation_callback=ulm))
    assert "request_state" not in calls(peer)[1]


@pytest.mark.parametrize(
    "members", [{"input_requests": 7}, {"request_state": 7}, {"input_requests": None}, {"input_requests": {"a": 7}}]
)
def test_a_question_of_the_first_draft_of_the_wrong_shape_is_refused(members: Json) -> None:
    with pytest.raises(PeerError):
        run(visited(asking_in_the_first_draft(members), DRAFT_2026_02, elicitation_callback=ulm))


# Multi-turn streams


def turn(*questions: tuple[Any, Json], mark: bytes = b"id: last\n") -> bytes:
    asked = b"".join(event({"jsonrpc": "2.0", "id": number, **question}) for number, question in questions)
    return b"event: buffer_input\nid: first\n\n" + asked + b"event: input_required\n" + mark + b"\n"


def asking_1858(*turns: bytes, then: str = "json") -> Older:
    """The tool asks in these turns; what is POSTed with a Last-Event-ID gets the next one."""
    left = list(turns)

    async def next_turn(server: Older, number: Any, stream: Stream) -> None:
        if left:
            await stream.raw(left.pop(0))
            await stream.end()
        elif then == "json":
            await stream.line.json({"jsonrpc": "2.0", "id": number, "result": DONE})
        else:
            await stream.say({"jsonrpc": "2.0", "id": number, "result": DONE})
            await stream.end()

    class Server(Older):
        original: Any = None

        async def __call__(self, request: Request, line: Any) -> None:
            if "last-event-id" in request.headers and request.method == "POST":
                await next_turn(self, self.original, Stream(line))
            else:
                await super().__call__(request, line)

    async def call(server: Older, request: Request, stream: Stream) -> None:
        server.original = request.id  # type: ignore[attr-defined]
        await next_turn(server, request.id, stream)

    return Server(call, opening=initialized(SEP_1858))


@pytest.mark.parametrize("then", ["json", "stream"])
def test_buffered_answers_are_posted_as_an_array_after_the_stream_has_ended(then: str) -> None:
    server = asking_1858(turn((1, CITY), ("b", CITY)), then=then)
    peer = run(visited(server, SEP_1858, elicitation_callback=ulm))
    answers = peer.requests[-2]
    assert answers.headers["last-event-id"] == "last"
    result = {"action": "accept", "content": {"city": "Ulm"}}
    assert json.loads(answers.body) == [{"jsonrpc": "2.0", "id": number, "result": result} for number in (1, "b")]
    assert not any(request.method == "GET" for request in peer.requests), "the stream is not taken up again"


def test_a_server_may_ask_in_as_many_turns_as_it_likes() -> None:
    server = asking_1858(turn((1, CITY), mark=b"id: a\n"), turn(mark=b"id: b\n"), turn((1, CITY), mark=b"id: c\n"))
    peer = run(visited(server, SEP_1858, elicitation_callback=ulm))
    posts = [request for request in peer.requests if "last-event-id" in request.headers]
    assert [request.headers["last-event-id"] for request in posts] == ["a", "b", "c"]
    assert json.loads(posts[1].body) == []


def test_too_many_turns_are_too_many() -> None:
    server = asking_1858(*[turn((1, CITY))] * 9)
    with pytest.raises(TooManyRounds):
        run(visited(server, SEP_1858, elicitation_callback=ulm, input_required_max_rounds=3))


def test_without_a_word_of_buffering_a_question_is_answered_at_once() -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        told = await server.ask(stream, "elicitation/create", FORM)
        assert told["result"]["action"] == "accept"
        await stream.say(request.reply(DONE))

    run(visited(draft(call, SEP_1858), SEP_1858, elicitation_callback=ulm))


def test_progress_is_heard_between_the_questions() -> None:
    heard: list[Any] = []
    news = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 2, "progress": 3}}
    server = asking_1858(turn((1, CITY)).replace(b"event: input", event(news) + b"event: input"))

    async def flow() -> None:
        async with meeting(server, mode=SEP_1858, elicitation_callback=ulm) as (client, _):
            await client.call_tool("t", {}, progress_callback=lambda *news: heard.append(news))

    run(flow())
    assert heard == [(3.0, None, None)]


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(turn((1, CITY), mark=b"id: a\x01\n"), id="an id that no header carries"),
        pytest.param(turn((1, CITY), mark=b"id:\n"), id="no id"),
        pytest.param(turn((1, CITY), (1, CITY)), id="the same id twice"),
        pytest.param(turn((1, CITY), ("1", CITY)), id="ids that look the same"),
        pytest.param(turn((None, CITY)), id="an id that is none"),
    ],
)
def test_a_turn_that_cannot_be_answered_is_refused(stream: bytes) -> None:
    with pytest.raises(InvalidReply):
        run(visited(asking_1858(stream), SEP_1858, elicitation_callback=ulm))


def test_the_events_mean_nothing_in_another_version() -> None:
    async def call(server: Older, request: Request, stream: Stream) -> None:
        await stream.raw(b"event: buffer_input\nid: a\n\nevent: input_required\nid: b\n\n")
        await stream.say(request.reply(DONE))

    async def flow() -> None:
        async with meeting(Older(call), mode=SEP_1858) as (client, _):
            assert client.protocol_version == "2025-11-25"
            assert text_of(await client.call_tool("t", {})) == "done"

    run(flow())


# The loop of a call over each of them


def asking_once(version: str) -> Older:
    if version == SEP_1858:
        return asking_1858(turn(("who", CITY)))
    if version == SEP_2322:
        return asking_2322({"resultType": "input_required", "inputRequests": {"who": CITY}, "requestState": "foo"})
    return asking_in_the_first_draft({"input_requests": {"who": CITY}, "request_state": "foo"})


@pytest.mark.parametrize("version", DRAFTS)
def test_a_call_is_put_down_and_picked_up_by_another_client(version: Any) -> None:
    async def flow() -> Any:
        server = asking_once(version)
        async with serving(server) as peer:
            async with Client(peer.url, mode=version) as client:
                pending = await client.begin("t", {"a": 1})
                assert isinstance(pending, Pending)
                assert pending.unanswered == ("who",)
            text = pending.to_json()
            async with Client(peer.url, mode=version) as client:
                return await client.resume(Pending.from_json(text), {"who": await ulm()})

    assert text_of(run(flow()).result) == "done"


@pytest.mark.parametrize("version", DRAFTS)
def test_a_question_without_a_callback_ends_the_call_as_on_every_wire(version: Any) -> None:
    async def flow() -> None:
        async with meeting(asking_once(version), mode=version) as (client, _):
            with pytest.raises(Unanswerable, match="or use begin"):
                await client.call_tool("t", {})

    run(flow())


def test_a_call_of_another_wire_is_not_picked_up() -> None:
    async def flow() -> None:
        async with meeting(asking_once(SEP_2322), mode=SEP_2322) as (client, peer):
            pending = await client.begin("t")
            assert isinstance(pending, Pending)
        async with meeting(asking_once(SEP_1858), mode=SEP_1858) as (client, peer):
            with pytest.raises(CallerError, match="wire"):
                await client.resume(replace(pending, server=None), {"who": await ulm()})
            assert methods(peer) == ["initialize", "notifications/initialized"]

    run(flow())
