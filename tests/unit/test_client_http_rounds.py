"""The client's rounds as the wire shows them: what is sent again, under which id, and with which answers."""

import asyncio
import gc
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from mcp_types import ElicitResult

from tests.unit.scripted import (
    CITY,
    DONE,
    READS,
    Line,
    Request,
    Script,
    accept,
    called,
    form,
    http,
    in_turn,
    interim,
    is_done,
    run,
    text_of,
    tool,
    visiting,
)
from turnwise import (
    Client,
    ConnectionLost,
    Done,
    InvalidAnswer,
    InvalidReply,
    MalformedQuestion,
    MCPError,
    Pending,
    TooManyRounds,
    Unanswerable,
    UnexpectedStatus,
    UnknownInputRequest,
)


class Counting:
    """A callback that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, asking: Any, _: Any) -> ElicitResult:
        self.asked.append(asking.key)
        return ElicitResult(action="accept", content={"city": f"Ulm {len(self.asked)}"})


# Sending again


def losing(times: int, result: dict[str, Any], rpc: str | None = None, listed: tuple[Any, ...] = ()) -> Script:
    """Drop the connection before any byte of a reply, so many times."""
    left = times

    async def script(request: Request, line: Line) -> None:
        nonlocal left
        if request.rpc == "tools/list" and listed:
            await line.json(request.reply({"tools": list(listed)}))
        elif left > 0 and rpc in (None, request.rpc):
            left -= 1
            line.close()
        else:
            await line.json(request.reply(result))

    return script


@pytest.mark.parametrize("rpc", READS)
def test_a_request_that_only_reads_is_sent_again_under_a_new_id(rpc: str) -> None:
    ask, result = READS[rpc]

    async def flow() -> list[Request]:
        async with visiting(losing(1, result)) as (client, peer):
            await ask(client)
            return peer.requests

    first, second = run(flow())
    assert first.id != second.id
    assert first.params == second.params
    assert first.rpc == second.rpc == rpc


def test_a_request_that_only_reads_is_sent_again_after_half_a_reply() -> None:
    left = [True]

    async def script(request: Request, line: Line) -> None:
        if left:
            left.pop()
            await line.send(http(b"{", content_length="100"))
            line.close()
        else:
            await line.json(request.reply({"prompts": []}))

    async def flow() -> int:
        async with visiting(script) as (client, peer):
            await client.list_prompts()
            return len(peer.requests)

    assert run(flow()) == 2


def test_a_request_is_not_sent_again_for_ever() -> None:
    async def flow() -> list[Request]:
        async with visiting(losing(1000, {})) as (client, peer):
            with pytest.raises(ConnectionLost) as caught:
                await client.list_prompts()
            assert caught.value.sent
            return peer.requests

    requests = run(flow())
    assert len(requests) == 3
    assert len({request.id for request in requests}) == 3


@pytest.mark.parametrize(
    "listed",
    [
        (),
        (tool("other", annotations={"readOnlyHint": True}),),
        (tool(),),
        (tool(annotations={}),),
        (tool(annotations={"readOnlyHint": False, "idempotentHint": False}),),
        (tool(annotations={"readOnlyHint": 1, "idempotentHint": "true"}),),
        (tool(annotations={"destructiveHint": False}),),
    ],
)
def test_a_tool_call_is_not_sent_twice(listed: tuple[Any, ...]) -> None:
    async def flow() -> int:
        async with visiting(losing(1, DONE, listed=listed)) as (client, peer):
            if listed:
                try:
                    await client.list_tools()
                except InvalidReply:
                    assert listed[0]["annotations"]["readOnlyHint"] == 1
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool("t", {})
            assert caught.value.sent
            return len(peer.sent("tools/call"))

    assert run(flow()) == 1


def busy(times: int, status: int, after: str | None) -> Script:
    """Too much to do, so many times."""
    left = times

    async def script(request: Request, line: Line) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            headers = {} if after is None else {"retry_after": after}
            await line.json(request.refusal(-32000), status, **headers)
        else:
            await line.json(request.reply(DONE))

    return script


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_with_too_much_to_do_is_asked_again_when_it_says(status: int) -> None:
    async def flow() -> list[Request]:
        async with visiting(busy(2, status, "0")) as (client, peer):
            assert text_of(await client.call_tool("t", {})) == "done"
            return peer.sent("tools/call")

    requests = run(flow())
    assert len({request.id for request in requests}) == len(requests) == 3


def test_the_seconds_that_a_server_names_are_waited_for() -> None:
    async def flow() -> list[Request]:
        async with visiting(busy(1, 503, "1")) as (client, peer):
            await client.call_tool("t", {})
            return peer.sent("tools/call")

    first, second = run(flow())
    assert second.at - first.at >= 1


@pytest.mark.parametrize(
    ("times", "status", "after", "sent"),
    [
        (100, 503, "0", 4),
        (1, 503, None, 1),
        (1, 503, "31", 1),
        (1, 503, "-1", 1),
        (1, 503, "Wed, 21 Oct 2026 07:28:00 GMT", 1),
        (1, 503, "9" * 100, 1),
        (1, 502, "0", 1),
        (1, 500, "0", 1),
    ],
)
def test_a_server_is_not_waited_for_otherwise(times: int, status: int, after: str | None, sent: int) -> None:
    async def flow() -> int:
        async with visiting(busy(times, status, after)) as (client, peer):
            with pytest.raises((UnexpectedStatus, MCPError)):
                await client.call_tool("t", {})
            return len(peer.sent("tools/call"))

    assert run(flow()) == sent


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_a_tool_that_says_that_it_may_be_called_twice_is_called_again_under_a_new_id(hint: str) -> None:
    async def flow() -> list[Request]:
        async with visiting(losing(1, DONE, listed=(tool(annotations={hint: True}),))) as (client, peer):
            await client.list_tools()
            assert text_of(await client.call_tool("t", {"a": 1})) == "done"
            return peer.sent("tools/call")

    first, second = run(flow())
    assert first.id != second.id
    assert first.params == second.params == {"name": "t", "arguments": {"a": 1}}


def test_a_tool_that_no_longer_says_so_is_not_called_again() -> None:
    pages = [[tool(annotations={"readOnlyHint": True})], [tool()]]

    async def script(request: Request, line: Line) -> None:
        if request.rpc == "tools/list":
            await line.json(request.reply({"tools": pages.pop(0)}))
        else:
            line.close()

    async def flow() -> int:
        async with visiting(script) as (client, peer):
            await client.list_tools()
            await client.list_tools()
            with pytest.raises(ConnectionLost):
                await client.call_tool("t", {})
            return len(peer.sent("tools/call"))

    assert run(flow()) == 1


def test_a_method_that_nobody_knows_is_not_sent_twice() -> None:
    async def flow() -> int:
        async with visiting(losing(1, {})) as (client, peer):
            with pytest.raises(ConnectionLost):
                await client.request("example/pay", {"amount": 1})
            return len(peer.requests)

    assert run(flow()) == 1


def test_answers_are_sent_again_as_they_were_and_nobody_is_asked_twice() -> None:
    callback, lost = Counting(), [True]

    async def script(request: Request, line: Line) -> None:
        if "inputResponses" not in request.params:
            await line.json(request.reply(interim({"k": CITY}, "state")))
        elif lost:
            lost.pop()
            line.close()
        else:
            await line.json(request.reply({"messages": []}))

    async def flow() -> list[Request]:
        async with visiting(script, elicitation_callback=callback) as (client, peer):
            await client.get_prompt("p")
            return peer.requests

    first, second, third = run(flow())
    assert second.params == third.params
    assert third.params["inputResponses"] == {"k": {"action": "accept", "content": {"city": "Ulm 1"}}}
    assert len({first.id, second.id, third.id}) == 3
    assert callback.asked == ["k"]


def test_answers_to_a_tool_are_not_sent_twice() -> None:
    callback = Counting()

    async def script(request: Request, line: Line) -> None:
        if "inputResponses" in request.params:
            line.close()
        else:
            await line.json(request.reply(interim({"k": CITY})))

    async def flow() -> int:
        async with visiting(script, elicitation_callback=callback) as (client, peer):
            with pytest.raises(ConnectionLost):
                await client.call_tool("t", {})
            return len(peer.requests)

    assert run(flow()) == 2
    assert callback.asked == ["k"]


# Rounds


STATES = [
    "s",
    "",
    " ",
    "  padded\t",
    'quo"ted \\ \\" \\u0041',
    "Größe 世界 🙂",
    "\x00\x1f\x7f\u2028\ufeff",
    "x" * 200_000,
]


@pytest.mark.parametrize("state", STATES, ids=range(len(STATES)))
def test_each_round_is_the_same_request_under_a_new_id_with_its_answers_and_its_state(state: str) -> None:
    arguments = {"a": [1, {"b": None}], "ü": "ß"}

    async def flow() -> list[Request]:
        script = in_turn(interim({"k": CITY}, state), interim({"l": CITY}), interim(state="last"))
        async with visiting(script, elicitation_callback=accept) as (client, peer):
            assert text_of(await client.call_tool("t", arguments)) == "done"
            return peer.requests

    requests = run(flow())
    answer = {"action": "accept", "content": {"city": "Ulm"}}
    original = {"name": "t", "arguments": arguments}
    assert [request.params for request in requests] == [
        original,
        {**original, "inputResponses": {"k": answer}, "requestState": state},
        {**original, "inputResponses": {"l": answer}},
        {**original, "requestState": "last"},
    ]
    assert len({request.id for request in requests}) == 4
    assert [request.headers["mcp-name"] for request in requests] == ["t"] * 4


def test_answers_and_state_stay_with_their_own_call() -> None:
    async def script(request: Request, line: Line) -> None:
        name = request.params["name"]
        if name == "plain":
            await line.json(request.reply(DONE))
        elif "inputResponses" in request.params:
            text = f"{request.params['requestState']} {request.params['inputResponses'][name]['content']['city']}"
            await line.json(request.reply({"content": [{"type": "text", "text": text}]}))
        else:
            await line.json(request.reply(interim({name: CITY}, f"state of {name}")))

    gathered = asyncio.Barrier(3)

    async def callback(asking: Any, _: Any) -> ElicitResult:
        await gathered.wait()
        await gathered.wait()
        return ElicitResult(action="accept", content={"city": f"city of {asking.target}"})

    async def plain(client: Client) -> None:
        await gathered.wait()
        for _ in range(3):
            await client.call_tool("plain", {})
        await gathered.wait()

    async def flow() -> list[Request]:
        async with visiting(script, elicitation_callback=callback) as (client, peer):
            first, second, _ = await asyncio.gather(client.call_tool("a"), client.call_tool("b"), plain(client))
            assert text_of(first) == "state of a city of a"
            assert text_of(second) == "state of b city of b"
            return peer.requests

    for request in run(flow()):
        if request.params["name"] == "plain":
            assert request.params == {"name": "plain", "arguments": {}}


def test_rounds_without_a_question_are_paced() -> None:
    async def flow() -> list[float]:
        async with visiting(in_turn(interim(state="1"), interim(state="2"), interim({}, "3"))) as (client, peer):
            await client.call_tool("t", {})
            return [request.at for request in peer.requests]

    times = run(flow())
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(gaps) == 3
    assert all(gap > 0.04 for gap in gaps)
    assert gaps[1] > gaps[0]


@pytest.mark.parametrize("endless", [interim({"k": CITY}, "s"), interim({"k": CITY}), interim(state="s")])
def test_a_server_that_asks_for_ever_is_left(endless: dict[str, Any]) -> None:
    async def flow() -> int:
        script = in_turn(then=endless)
        async with visiting(script, elicitation_callback=accept, input_required_max_rounds=3) as (client, peer):
            with pytest.raises(TooManyRounds) as caught:
                await client.call_tool("t", {})
            assert caught.value.rounds == 3
            return len(peer.requests)

    assert run(flow()) == 4


def test_a_state_beyond_all_measure_is_refused() -> None:
    with pytest.raises(InvalidReply):
        run(called(in_turn(interim(state="x" * (1024 * 1024 + 1)))))


@pytest.mark.parametrize("state", [1, 1.5, True, [], {}, {"a": "b"}])
def test_a_state_that_is_no_text_is_refused(state: Any) -> None:
    with pytest.raises(InvalidReply):
        run(called(in_turn(interim({"k": CITY}, state)), elicitation_callback=accept))


@pytest.mark.parametrize("requests", [[], [CITY], "k", 1, True])
def test_questions_that_are_no_object_are_refused(requests: Any) -> None:
    with pytest.raises(InvalidReply):
        run(called(in_turn(interim(requests, "s")), elicitation_callback=accept))


def test_questions_without_number_are_refused_and_nobody_is_asked() -> None:
    counting = Counting()
    questions = {f"k{number}": CITY for number in range(1001)}
    with pytest.raises(InvalidReply, match="more than 1000 questions"):
        run(called(in_turn(interim(questions, "s")), elicitation_callback=counting))
    assert counting.asked == []


@pytest.mark.parametrize("extra", [{}, {"inputRequests": None}, {"requestState": None}])
def test_a_result_that_asks_nothing_and_has_no_state_is_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(InvalidReply):
        run(called(in_turn({**interim(), **extra})))


@pytest.mark.parametrize("rpc", [rpc for rpc in READS if rpc not in ("resources/read", "prompts/get")])
def test_a_method_that_cannot_ask_must_not(rpc: str) -> None:
    async def flow() -> None:
        async with visiting(in_turn(then=interim({"k": CITY}, "s")), elicitation_callback=accept) as (client, _):
            with pytest.raises(InvalidReply):
                await READS[rpc][0](client)

    run(flow())


@pytest.mark.parametrize("second", ['"k"', '"\\u006b"', '"\\u006B"'])
@pytest.mark.parametrize("through", ["call_tool", "begin"])
def test_two_questions_under_one_key_are_refused(second: str, through: str) -> None:
    asked = json.dumps(CITY)

    async def script(request: Request, line: Line) -> None:
        result = f'{{"resultType":"input_required","inputRequests":{{"k":{asked},{second}:{asked}}}}}'
        await line.send(http(f'{{"jsonrpc":"2.0","id":{request.id},"result":{result}}}'.encode()))

    async def flow() -> None:
        callback = Counting()
        async with visiting(script, elicitation_callback=callback) as (client, _):
            with pytest.raises(InvalidReply):
                await (client.call_tool("t", {}) if through == "call_tool" else client.begin("t", {}))
        assert callback.asked == []

    run(flow())


def test_questions_given_twice_over_are_refused() -> None:
    asked = json.dumps(CITY)

    async def script(request: Request, line: Line) -> None:
        result = f'{{"resultType":"input_required","inputRequests":{{"a":{asked}}},"inputRequests":{{"b":{asked}}}}}'
        await line.send(http(f'{{"jsonrpc":"2.0","id":{request.id},"result":{result}}}'.encode()))

    with pytest.raises(InvalidReply):
        run(called(script, elicitation_callback=accept))


@pytest.mark.parametrize(
    "key", ["k", "", " ", "ü", 'a"b', "\\", "name", "method", "inputRequests", "\u2028", "x" * 5000]
)
def test_a_key_may_be_any_text(key: str) -> None:
    async def flow() -> Any:
        async with visiting(in_turn(interim({key: CITY})), elicitation_callback=accept) as (client, peer):
            await client.call_tool("t", {})
            return peer.requests[1].params["inputResponses"]

    assert run(flow()) == {key: {"action": "accept", "content": {"city": "Ulm"}}}


@pytest.mark.parametrize("request_member", [None, [], "elicitation/create", 1, {}, {"method": None}, {"method": []}])
def test_what_is_no_question_is_refused(request_member: Any) -> None:
    with pytest.raises(UnknownInputRequest):
        run(called(in_turn(interim({"k": request_member})), elicitation_callback=accept))


@pytest.mark.parametrize("method", ["ping", "tools/call", "elicitation/Create", ""])
def test_a_question_of_an_unknown_method_is_refused(method: str) -> None:
    with pytest.raises(UnknownInputRequest) as caught:
        run(called(in_turn(interim({"k": {"method": method, "params": {}}})), elicitation_callback=accept))
    assert (caught.value.key, caught.value.method) == ("k", method)


MALFORMED: dict[str, Any] = {
    "no params": {"method": "elicitation/create"},
    "params null": {"method": "elicitation/create", "params": None},
    "no schema": {"method": "elicitation/create", "params": {"mode": "form", "message": "?"}},
    "no message": {"method": "elicitation/create", "params": {"requestedSchema": {"type": "object", "properties": {}}}},
    "schema no object": {
        "method": "elicitation/create",
        "params": {"message": "?", "requestedSchema": {"type": "string"}},
    },
    "schema is none": form(city={"type": "wat"}),
    "schema without end": form(city={"description": "x" * 100_000}),
    "unknown mode": {"method": "elicitation/create", "params": {"mode": "dance", "message": "?"}},
    "mode is a list": {"method": "elicitation/create", "params": {"mode": ["form"], "message": "?"}},
    "no url": {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "elicitationId": "1"}},
    "file url": {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "file:///etc"}},
    "broken url": {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://["}},
    "sampling": {"method": "sampling/createMessage", "params": {"messages": "hello"}},
    "roots": {"method": "roots/list", "params": []},
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_question_that_cannot_be_asked_is_refused_and_nobody_is_asked(name: str) -> None:
    callback = Counting()
    options = dict.fromkeys(["elicitation_callback", "sampling_callback", "list_roots_callback"], callback)
    with pytest.raises(MalformedQuestion):
        run(called(in_turn(interim({"k": MALFORMED[name]})), **options))
    assert callback.asked == []


@pytest.mark.parametrize(
    "part",
    [
        {"type": ["string", "null"]},
        {"type": ["string"]},
        {},
        True,
        {"enum": ["Ulm"]},
        {"const": "Ulm"},
        {"oneOf": [{"const": "Ulm", "title": "Ulm"}]},
        {"type": "string", "pattern": "^(U+)+lm$"},
        {"type": "string", "minLength": 3, "maxLength": 3},
        {"type": "string", "default": "Bonn"},
    ],
)
def test_a_form_may_describe_its_fields_in_any_way_of_json_schema(part: Any) -> None:
    assert is_done(in_turn(interim({"k": form(city=part)})), elicitation_callback=accept)


@pytest.mark.parametrize("bound", [{"multipleOf": 10**400}, {"multipleOf": 1e-320}, {"minimum": 10**400}])
def test_a_form_with_absurd_bounds_does_no_harm(bound: dict[str, Any]) -> None:
    async def callback(*_: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"n": 1.5})

    with pytest.raises((InvalidAnswer, MalformedQuestion)):
        run(called(in_turn(interim({"k": form(n={"type": "number", **bound})})), elicitation_callback=callback))


def test_a_form_with_bounds_that_no_number_has_is_refused() -> None:
    async def script(request: Request, line: Line) -> None:
        asked = json.dumps(
            request.reply(interim({"k": form(n={"type": "number", "minimum": 10**30, "maximum": "INF"})}))
        )
        await line.send(http(asked.replace('"INF"', "1e999").encode()))

    with pytest.raises(MalformedQuestion):
        run(called(script, elicitation_callback=accept))


def test_a_question_that_no_callback_answers_is_told() -> None:
    with pytest.raises(Unanswerable) as caught:
        run(called(in_turn(interim({"k": CITY}))))
    assert (caught.value.key, caught.value.method) == ("k", "elicitation/create")


@pytest.mark.parametrize("last", [{"method": "roots/list"}, {"method": "ping"}, form(city={"type": "wat"})])
def test_a_round_with_one_question_that_cannot_be_answered_asks_nobody_and_leaves_nothing_behind(last: Any) -> None:
    callback = Counting()

    def refused() -> None:
        with pytest.raises((Unanswerable, UnknownInputRequest, MalformedQuestion)):
            run(called(in_turn(interim({"a": CITY, "b": last})), elicitation_callback=callback))

    refused()
    assert callback.asked == []
    gc.collect()  # What was begun and never awaited is told now.


def test_a_state_that_expired_begins_the_call_anew_and_nobody_is_asked_twice() -> None:
    callback, refused = Counting(), [True]

    async def script(request: Request, line: Line) -> None:
        if "requestState" not in request.params:
            await line.json(request.reply(interim({"k": CITY}, "old" if refused else "new")))
        elif refused:
            refused.pop()
            await line.json(request.refusal(-32602, {"reason": "invalid_request_state"}), 400)
        else:
            await line.json(request.reply(DONE))

    async def flow() -> list[Any]:
        async with visiting(script, elicitation_callback=callback) as (client, peer):
            await client.call_tool("t", {})
            return [request.params.get("requestState") for request in peer.requests]

    assert run(flow()) == [None, "old", None, "new"]
    assert callback.asked == ["k"]


def test_a_call_in_hand_is_carried_on_with_its_answers_and_its_state() -> None:
    async def flow() -> list[Request]:
        async with visiting(in_turn(interim({"k": CITY}, "s"))) as (client, peer):
            pending = await client.begin("t", {"a": 1})
            assert isinstance(pending, Pending)
            outcome = await client.resume(Pending.from_json(pending.to_json()), {"k": {"action": "decline"}})
            assert isinstance(outcome, Done)
            return peer.requests

    first, second = run(flow())
    answered = {"inputResponses": {"k": {"action": "decline"}}, "requestState": "s"}
    assert second.params == {**first.params, **answered}
    assert first.id != second.id


def test_a_server_that_was_restarted_while_a_callback_blocked_the_loop_is_called_again() -> None:
    """Its connection is closed, and the client cannot have seen it: the loop did nothing meanwhile."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(5)
    taken: list[bytes] = []

    def serve(replies: list[dict[str, Any]]) -> None:
        for reply in replies:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                length = next(int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
                while lines.readline().strip():
                    pass
                taken.append(lines.read(length))
                body = json.dumps({"jsonrpc": "2.0", "id": json.loads(taken[-1])["id"], "result": reply}).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)

    async def block(_: Any, __: Any) -> Any:
        time.sleep(0.3)  # noqa: ASYNC251 - just so
        return {"action": "decline"}

    async def called() -> Any:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        async with Client(url, mode="2026-07-28", elicitation_callback=block) as client:
            return await client.call_tool("it")

    asked = {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://x.example"}}
    first = {"resultType": "input_required", "inputRequests": {"page": asked}, "requestState": "s"}
    last = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
    with listener, ThreadPoolExecutor(1) as elsewhere:
        served = elsewhere.submit(serve, [first, last])
        assert run(called()).content[0].text == "done"
        served.result()
    assert [b"requestState" in body for body in taken] == [False, True]
