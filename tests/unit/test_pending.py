"""Calls that are put down at their questions and picked up again, by anybody who has the answers."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Annotated, Any

import mcp_types as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.joined import Json, Peer, Tap, accept, asking, form, page, run, text
from turnwise import (
    Asking,
    CallbackFailed,
    Client,
    Command,
    ConnectionLost,
    Context,
    DeadlineExceeded,
    Done,
    Elicit,
    InvalidAnswer,
    MalformedQuestion,
    MCPError,
    MCPServer,
    Pending,
    RequestStateSecurity,
    Resolve,
    Sample,
    SQLitePendingStore,
    SyncClient,
    TooManyRounds,
    Unanswerable,
    UnknownInputRequest,
)
from turnwise._driver import Given
from turnwise.errors import CallerError

SILENT: Any = {"mode": "2026-07-28"}
KEY = b"k" * 32
OTHER = b"o" * 32
NAMED = ("seat", "meal", "pillow")


def ask_town() -> Elicit[str]:
    return Elicit("Which town?", str, key="town")


def airline(key: bytes = KEY, ttl: float = 3600.0, meal: str = "Which meal?") -> MCPServer[Any]:
    """A server of a fleet: any other one with the same key can go on where this one asked."""
    security = RequestStateSecurity(keys=[key], ttl=ttl)
    server: MCPServer[Any] = MCPServer("airline", request_state_security=security)

    @server.tool()
    async def book(flight: str, ctx: Context) -> str:
        """Three questions, one after the other."""
        seat = await ctx.elicit("Which seat?", str, key="seat")
        food = await ctx.elicit(meal, str, key="meal")
        pillow = await ctx.elicit("A pillow?", str, key="pillow")
        return f"{flight}: {', '.join(answer.data for answer in (seat, food, pillow) if answer.action == 'accept')}"

    @server.tool()
    async def choose(ctx: Context) -> str:
        """Three questions at once, one of them to the model."""
        answers = await ctx.ask_all(
            seat=Elicit("Which seat?", str), meal=Elicit("Which meal?", str), thought=Sample("Which film?")
        )
        return f"{answers['seat'].data}, {answers['meal'].data}, {answers['thought'].content.text}"

    @server.tool()
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Please pay", "https://pay.example.com", key="payment")).action

    @server.tool()
    async def on(day: date) -> str:
        return day.isoformat()

    @server.tool()
    async def ask_on(day: date, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool, key="sure")
        return day.isoformat()

    @server.prompt()
    async def postcard(to: str, town: Annotated[str, Resolve(ask_town)]) -> str:
        return f"To {to} from {town}"

    @server.resource("airline://map/{scale}")
    async def map_of(scale: str, town: Annotated[str, Resolve(ask_town)]) -> str:
        return f"{town} 1:{scale}"

    return server


def pending(outcome: Any) -> Pending:
    assert isinstance(outcome, Pending)
    return outcome


def said(outcome: Any) -> str:
    assert isinstance(outcome, Done)
    return text(outcome.result)


def elsewhere(outcome: Any) -> Pending:
    """The call as another process reads it."""
    return Pending.from_json(pending(outcome).to_json())


async def thought(asking: Asking, params: Any) -> Json:
    return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "a western"}}


# Putting down and picking up


def test_a_call_that_asks_nothing_is_done_at_once() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            done = await client.begin("on", {"day": "2026-07-28"})
            assert isinstance(done, Done)
            assert isinstance(done.result, types.CallToolResult)
            assert said(done) == "2026-07-28"

    run(visit())


def test_a_call_is_carried_on_by_other_clients_of_other_servers_with_the_same_key() -> None:
    taps = [Tap(airline()) for _ in range(4)]

    async def visit() -> None:
        async with Client(taps[0], **SILENT) as client:
            outcome: Any = await client.begin("book", {"flight": "TW 1"})
        asked: list[str] = []
        for tap, answer in zip(taps[1:], ("7A", "rice", "yes"), strict=True):
            call = elsewhere(outcome)
            asked += call.unanswered
            async with Client(tap, **SILENT) as client:
                outcome = await client.resume(call, dict.fromkeys(call.unanswered, accept(value=answer)))
        assert said(outcome) == "TW 1: 7A, rice, yes"
        assert asked == [*NAMED]

    run(visit())
    assert [tap.methods for tap in taps] == [["tools/call"]] * 4


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        (lambda client: client.begin_prompt("postcard", {"to": "Ada"}), "To Ada from Rome"),
        (lambda client: client.begin_resource("airline://map/100"), "Rome 1:100"),
    ],
)
def test_prompts_and_resources_are_put_down_in_the_same_way(
    begin: Callable[[Client], Awaitable[Any]], expected: str
) -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            call = elsewhere(await begin(client))
            done = await client.resume(call, {"town": types.ElicitResult(action="accept", content={"value": "Rome"})})
            assert isinstance(done, Done)
            if isinstance(done.result, types.GetPromptResult):
                assert isinstance(done.result.messages[0].content, types.TextContent)
                assert done.result.messages[0].content.text == expected
            else:
                assert isinstance(done.result, types.ReadResourceResult)
                assert getattr(done.result.contents[0], "text", None) == expected

    run(visit())


def test_a_call_that_waits_says_what_it_is_and_what_it_asks() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            one, two = pending(await client.begin("book", {"flight": "TW 1"})), pending(await client.begin("visit"))
            assert one.id != two.id
            assert (one.method, one.target, one.arguments) == ("tools/call", "book", {"flight": "TW 1"})
            assert (one.server, one.round, one.given, one.unanswered) == (None, 0, (), ("seat",))
            assert one.began <= one.asked
            question = one.questions["seat"]
            assert isinstance(question, types.ElicitRequest)
            assert question.params.message == "Which seat?"
            assert isinstance(two.questions["payment"].params, types.ElicitRequestURLParams)
            assert two.arguments == {}
            second = pending(await client.resume(one, {"seat": accept(value="7A")}))
            assert (second.id, second.began, second.round) == (one.id, one.began, 1)
            assert second.given == (Given("seat", one.requests["seat"], accept(value="7A")),)
            assert one.state is not None
            assert one.state not in repr(one)

    run(visit())


def test_a_question_may_be_put_to_a_person_by_a_client_without_callbacks_but_only_then() -> None:
    async def visit() -> None:
        async with Client(airline(), **SILENT) as client:
            assert isinstance(await client.begin("visit"), Pending)
            with pytest.raises(MCPError) as raised:
                await client.call_tool("visit")
            assert raised.value.code == -32021

    run(visit())


def test_without_all_answers_nothing_is_sent() -> None:
    tap = Tap(airline())

    async def visit() -> None:
        async with Client(tap, sampling_callback=thought, **SILENT) as client:
            call = pending(await client.begin("choose"))
            assert call.unanswered == ("seat", "meal")
            assert await client.resume(call) == call
            half = pending(await client.resume(call, {"meal": accept(value="rice")}))
            assert half.unanswered == ("seat",)
            assert list(half.questions) == list(call.questions)
            assert len(tap.requests) == 1
            assert said(await client.resume(elsewhere(half), {"seat": accept(value="7A")})) == "7A, rice, a western"
            assert len(tap.requests) == 2

    run(visit())


def test_an_answer_changes_nothing_but_the_call_that_it_gives_back() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            call = pending(await client.begin("book", {"flight": "TW 1"}))
            before = call.to_json()
            answered = call.answered({"seat": accept(value="7A")})
            assert (call.to_json(), call.unanswered, answered.unanswered) == (before, ("seat",), ())
            assert isinstance(await client.resume(answered), Pending)
            assert isinstance(await client.resume(answered), Pending)

    run(visit())


@pytest.mark.parametrize(
    "answers",
    [
        {"chair": accept(value="7A")},
        {"seat": accept(value=7)},
        {"seat": accept()},
        {"seat": {"action": "perhaps"}},
        {"seat": 7},
        {"seat": None},
        {"seat": {}},
        {"seat": {"chair": "7A"}},
        {"seat": {"value": "7A", "chair": "7B"}},
        {"seat": {"content": {"value": "7A"}}},
        {"seat": ["7A"]},
        {"seat": accept(value="7A"), "meal": accept(value="not asked yet")},
    ],
)
def test_an_answer_that_does_not_fit_is_refused_and_the_call_still_waits(answers: Any) -> None:
    tap = Tap(airline())

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            call = pending(await client.begin("book", {"flight": "TW 1"}))
            with pytest.raises(InvalidAnswer):
                await client.resume(call, answers)
            assert call.unanswered == ("seat",)
            assert len(tap.requests) == 1
            assert isinstance(await client.resume(call, {"seat": accept(value="7A")}), Pending)

    run(visit())


TWO: Json = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}, "b": {"type": "string"}}}
NONE: Json = {"type": "object", "properties": {}}
ACTION: Json = {"type": "object", "properties": {"action": {"type": "string"}}}
FLAG: Json = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
SEVERAL: Json = {"type": "object", "properties": {"extras": {"type": "array", "items": {"enum": ["rice", "bread"]}}}}


@pytest.mark.parametrize(
    ("schema", "answer", "content"),
    [
        (FLAG, True, {"sure": True}),
        (FLAG, False, {"sure": False}),
        (FLAG, {"sure": True}, {"sure": True}),
        (FLAG, MappingProxyType({"sure": True}), {"sure": True}),
        (TWO, {"b": "x"}, {"a": 1, "b": "x"}),
        (TWO, {"a": 2}, {"a": 2}),
        (SEVERAL, ["rice"], {"extras": ["rice"]}),
        (SEVERAL, [], {"extras": []}),
        (ACTION, "run", {"action": "run"}),
    ],
)
def test_a_plain_answer_accepts_a_form(schema: Any, answer: Any, content: Any) -> None:
    answered = made(requests={"q": form(schema=schema)}).answered({"q": answer})
    assert answered.answers == {"q": {"action": "accept", "content": content}}


@pytest.mark.parametrize(
    ("question", "answer", "told"),
    [
        (form(schema=FLAG), "yes", "sure: 'yes' is not of type 'boolean'"),
        (form(schema=TWO), 5, "the form has 2 fields, a, b: give them by name"),
        (form(schema=TWO), {"c": 5}, "the form has no field 'c'; it has a, b"),
        (form(schema=TWO), {"a": "x"}, "a: 'x' is not of type 'integer'"),
        (form(schema=TWO), {}, "it is empty"),
        (form(schema=TWO), {"content": {"a": 5}}, "the form has no field 'content'"),
        (form(schema=NONE), True, "the form has no fields"),
        (form(schema=ACTION), {"action": "run"}, "action must be"),
        (form(schema=FLAG), None, "not NoneType"),
        (page("https://pay.example.com"), True, "not bool"),
        (page("https://pay.example.com"), {"value": True}, "action must be"),
        ({"method": "roots/list"}, "file:///home", "not str"),
    ],
)
def test_a_plain_answer_that_says_nothing_clear_is_refused(question: Any, answer: Any, told: str) -> None:
    call = made(requests={"q": question})
    with pytest.raises(InvalidAnswer) as refused:
        call.answered({"q": answer})
    assert told in refused.value.reason
    assert call.unanswered == ("q",)


def test_a_call_goes_on_with_plain_answers_with_a_store_and_without(tmp_path: Path) -> None:
    async def visit(store: SQLitePendingStore | None) -> str:
        async with Client(airline(), pending_store=store) as client:
            outcome: Any = await client.begin("book", {"flight": "TW 1"})
            for answer in ("7A", {"value": "rice"}, {"action": "decline"}):
                outcome = await client.resume(outcome.id if store else outcome, {outcome.unanswered[0]: answer})
        return said(outcome)

    store = SQLitePendingStore(tmp_path / "calls.db")
    assert run(visit(None)) == run(visit(store)) == "TW 1: 7A, rice"


def test_what_is_done_to_one_answer_does_not_change_the_defaults_of_the_next() -> None:
    schema = {"type": "object", "properties": {"extras": {"type": "array", "default": ["rice"]}}}
    call = made(requests={"q": form(schema=schema)})
    call.answered({"q": accept()}).answers["q"]["content"]["extras"].append("bread")
    assert call.answered({"q": accept()}).answers["q"]["content"] == {"extras": ["rice"]}


def test_what_was_answered_may_be_answered_anew_until_it_is_sent() -> None:
    async def visit() -> None:
        async with Client(airline(), sampling_callback=thought) as client:
            call = pending(await client.begin("choose")).answered({"seat": accept(value="7A")})
            changed = call.answered({"seat": accept(value="8B"), "meal": accept(value="rice")})
            assert said(await client.resume(changed)) == "8B, rice, a western"

    run(visit())


def test_a_no_is_an_answer() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            outcome: Any = await client.begin("book", {"flight": "TW 1"})
            for action in ("decline", "cancel", "decline"):
                outcome = await client.resume(outcome, {key: {"action": action} for key in outcome.unanswered})
            assert said(outcome) == "TW 1: "

    run(visit())


# Callbacks beside persons


def test_callbacks_answer_their_kinds_and_are_not_asked_again() -> None:
    asked: list[str] = []

    async def noted(asking: Asking, params: Any) -> Json:
        asked.append(asking.key)
        return await thought(asking, params)

    async def visit() -> None:
        async with Client(airline(), sampling_callback=noted) as client:
            call = elsewhere(await client.begin("choose"))
            assert call.unanswered == ("seat", "meal")
            outcome = await client.resume(call, {"seat": accept(value="7A"), "meal": accept(value="rice")})
            assert said(outcome) == "7A, rice, a western"

    run(visit())
    assert asked == ["thought"]


def test_a_call_whose_questions_all_have_callbacks_is_done_at_once() -> None:
    async def answer(asking: Asking, params: Any) -> Json:
        return accept(value=asking.key)

    async def visit() -> None:
        async with Client(airline(), elicitation_callback=answer) as client:
            assert said(await client.begin("book", {"flight": "TW 1"})) == "TW 1: seat, meal, pillow"

    run(visit())


def test_a_callback_that_fails_ends_the_beginning() -> None:
    async def broken(asking: Asking, params: Any) -> Any:
        raise ZeroDivisionError

    async def visit() -> None:
        async with Client(airline(), sampling_callback=broken) as client:
            with pytest.raises(CallbackFailed):
                await client.begin("choose")

    run(visit())


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"method": "tasks/create"}, UnknownInputRequest),
        (page("javascript:alert(1)"), MalformedQuestion),
        (form(schema={"type": "array"}), MalformedQuestion),
        ({"method": "elicitation/create", "params": {"mode": "page", "message": "m"}}, MalformedQuestion),
        ({"method": "elicitation/create", "params": {"requestedSchema": {"type": "object"}}}, MalformedQuestion),
        ({"method": "sampling/createMessage", "params": {"messages": "hello"}}, MalformedQuestion),
    ],
)
def test_a_question_that_cannot_be_put_to_anybody_is_not_put_down(question: Any, expected: type[Exception]) -> None:
    async def visit() -> None:
        peer = Peer(lambda method, params: asking({"fine": form(), "q": question}, "s"))
        async with Client(peer, **SILENT) as client:
            with pytest.raises(expected):
                await client.begin("it")

    run(visit())


def test_a_question_of_a_kind_that_was_not_declared_is_put_down_for_whoever_can_answer_it() -> None:
    async def visit() -> None:
        peer = Peer(lambda method, params: asking({"folders": {"method": "roots/list"}}, "s"))
        async with Client(peer, **SILENT) as client:
            call = pending(await client.begin("it"))
            assert isinstance(call.questions["folders"], types.ListRootsRequest)
            with pytest.raises(Unanswerable):
                await client.call_tool("it")

    run(visit())


# Limits


def test_rounds_are_counted_over_all_processes() -> None:
    async def visit() -> None:
        peer = Peer(lambda method, params: asking({"q": form()}, "s"))
        options: Any = {"input_required_max_rounds": 3, **SILENT}
        async with Client(peer, **options) as client:
            outcome: Any = await client.begin("it")
        for _ in range(2):
            async with Client(peer, **options) as client:
                outcome = await client.resume(elsewhere(outcome), {"q": accept(value="x")})
        async with Client(peer, **options) as client:
            with pytest.raises(TooManyRounds):
                await client.resume(elsewhere(outcome), {"q": accept(value="x")})
        assert len(peer.requests) == 4

    run(visit())


def test_a_deadline_holds_for_beginning_and_for_resuming() -> None:
    async def answer(method: str, params: Json) -> Any:
        if "inputResponses" not in params and params["name"] == "ask":
            return asking({"q": form()}, "s")
        return await asyncio.Event().wait()

    async def visit() -> None:
        async with Client(Peer(answer), **SILENT) as client:
            with pytest.raises(DeadlineExceeded):
                await client.begin("it", deadline=0.02)
            call = pending(await client.begin("ask", deadline=5))
            with pytest.raises(DeadlineExceeded):
                await client.resume(call, {"q": accept(value="x")}, read_timeout_seconds=0.02)

    run(visit())


def test_progress_and_meta_are_for_each_part_of_the_way() -> None:
    tap = Tap(airline())

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            call = pending(await client.begin("book", {"flight": "TW 1"}, meta={"com.example/by": "begin"}))
            await client.resume(call, {"seat": accept(value="7A")}, meta={"com.example/by": "resume"})

    run(visit())
    assert [request["params"]["_meta"]["com.example/by"] for request in tap.requests] == ["begin", "resume"]


# Whose call it is


def test_a_call_goes_back_to_the_server_that_asked() -> None:
    async def visit() -> None:
        async with Client("http://127.0.0.1:9/mcp", **SILENT) as client:
            call = replace(made(), server="https://other.example.com/mcp")
            with pytest.raises(CallerError, match=r"other\.example\.com"):
                await client.resume(call, {"q": accept(value="x")})
            for known in (None, "http://127.0.0.1:9/mcp"):
                with pytest.raises(ConnectionLost):
                    await client.resume(replace(call, server=known), {"q": accept(value="x")})

    run(visit())


def test_a_call_of_a_url_is_not_told_to_a_program(tmp_path: Path) -> None:
    """Its state and its answers are secrets between the user and the server that asked."""

    async def visit() -> None:
        command = Command(
            [sys.executable, "-c", "import sys; open('told', 'w').write(sys.stdin.readline())"], cwd=tmp_path
        )
        async with Client(command, **SILENT) as client:
            call = replace(made(), server="https://other.example.com/mcp")
            with pytest.raises(CallerError, match=r"other\.example\.com"):
                await client.resume(call, {"q": accept(value="x")}, deadline=1)

    run(visit())
    assert not (tmp_path / "told").exists() or not (tmp_path / "told").read_text()


def test_a_name_for_a_call_needs_a_store() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            with pytest.raises(CallerError, match="pending_store"):
                await client.resume("some-id", {"seat": accept(value="7A")})

    run(visit())


# A state that is no longer taken


async def until_pillow(client: Client) -> Pending:
    call = pending(await client.begin("book", {"flight": "TW 1"}))
    call = pending(await client.resume(call, {"seat": accept(value="7A")}))
    return elsewhere(await client.resume(call, {"meal": accept(value="rice")}))


def test_a_call_that_waited_too_long_begins_anew_and_nobody_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1_000_000.0)
    monkeypatch.setattr("turnwise.transports.memory.time", SimpleNamespace(time=lambda: clock.now))
    tap = Tap(airline(ttl=60))

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            call = await until_pillow(client)
            clock.now += 3600
            assert said(await client.resume(call, {"pillow": accept(value="yes")})) == "TW 1: 7A, rice, yes"

    run(visit())
    assert len(tap.requests) == 3 + 1 + 4


def test_a_call_whose_servers_have_a_new_key_begins_anew_and_nobody_is_asked_twice() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            call = await until_pillow(client)
        async with Client(airline(OTHER)) as client:
            assert said(await client.resume(call, {"pillow": accept(value="yes")})) == "TW 1: 7A, rice, yes"

    run(visit())


def test_a_question_that_was_changed_meanwhile_is_asked_again_and_only_that() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            call = await until_pillow(client)
        async with Client(airline(OTHER, meal="Rice or bread?")) as client:
            again = elsewhere(await client.resume(call, {"pillow": accept(value="yes")}))
            assert again.unanswered == ("meal",)
            assert [given.key for given in again.given] == ["seat"]
            assert said(await client.resume(again, {"meal": accept(value="bread")})) == "TW 1: 7A, bread, yes"

    run(visit())


def test_a_call_does_not_begin_anew_where_that_is_not_wanted() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            call = await until_pillow(client)
        tap = Tap(airline(OTHER))
        async with Client(tap, restart_expired=False, **SILENT) as client:
            with pytest.raises(MCPError) as raised:
                await client.resume(call, {"pillow": accept(value="yes")})
            assert raised.value.code == -32602
        assert len(tap.requests) == 1

    run(visit())


def test_a_single_call_of_a_tool_may_be_one_that_is_not_begun_anew() -> None:
    """Its server goes on with other keys, while somebody thinks about the question."""

    def called(**options: Any) -> None:
        server = airline()

        def answer(asking: Any, params: Any) -> Any:
            server.use_keys([OTHER])
            return accept(value="7A")

        async def visit() -> None:
            async with Client(server, elicitation_callback=answer) as client:
                await client.call_tool("book", {"flight": "TW 1"}, **options)

        run(visit())
        with SyncClient(server, elicitation_callback=answer) as client:
            client.call_tool("book", {"flight": "TW 1"}, **options)

    called()
    with pytest.raises(MCPError, match="requestState"):
        called(restart_expired=False)
    with pytest.raises(TypeError, match="a call has no option restart"):
        called(restart=False)


def test_a_call_that_begins_anew_counts_its_rounds_anew() -> None:
    async def visit() -> None:
        async with Client(airline()) as client:
            call = await until_pillow(client)
        async with Client(airline(OTHER), input_required_max_rounds=3) as client:
            assert said(await client.resume(call, {"pillow": accept(value="yes")})) == "TW 1: 7A, rice, yes"

    run(visit())


# As text


def made(**members: Any) -> Pending:
    questions = {"q": form()}
    base: Json = {"id": "1", "server": None, "method": "tools/call", "params": {"name": "it"}, "requests": questions}
    return Pending(**{**base, "began": 1.0, "asked": 2.0, **members})


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(), parts, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), plain, max_size=3)
questions = st.sampled_from([form(), form("Ä\u2028?"), page("https://example.com"), {"method": "roots/list"}])
keyed = st.dictionaries(st.text(), questions, max_size=3)
calls = st.one_of(
    st.tuples(
        st.just("tools/call"), st.builds(lambda name, given: {"name": name, "arguments": given}, st.text(), objects)
    ),
    st.tuples(st.just("prompts/get"), st.builds(lambda name: {"name": name}, st.text())),
    st.tuples(st.just("resources/read"), st.builds(lambda uri: {"uri": uri}, st.text())),
)


@st.composite
def pendings(draw: st.DrawFn) -> Pending:
    method, params = draw(calls)
    requests = draw(keyed)
    answered = {key: draw(objects) for key in requests if draw(st.booleans())}
    return made(
        id=draw(st.text(min_size=1)),
        server=draw(st.none() | st.text()),
        method=method,
        params=params,
        requests=requests,
        answers=answered,
        state=draw(st.none() | st.text()),
        round=draw(st.integers(0, 100)),
        given=tuple(draw(st.lists(st.builds(Given, st.text(), questions, objects), max_size=3))),
        began=draw(st.floats(0, 1e10)),
        asked=draw(st.floats(0, 1e10)),
        revision=draw(st.integers(0, 10**6)),
    )


@settings(max_examples=60, derandomize=True, deadline=None)
@given(pendings())
def test_a_call_is_the_same_after_it_was_text(call: Pending) -> None:
    written = call.to_json()
    read = Pending.from_json(written)
    assert read == call
    assert read.to_json() == written
    assert Pending.from_json(written.encode()) == call


WRITTEN: Json = json.loads(made().to_json())


def changed(**members: Any) -> str:
    return json.dumps({**WRITTEN, **members})


@pytest.mark.parametrize(
    "foreign",
    [
        "",
        "null",
        "5",
        '"text"',
        "[]",
        "{}",
        "[[1, 2, 3]]",
        "not json",
        b"\xff\xfe",
        b"\x80",
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}',
        json.dumps({name: value for name, value in WRITTEN.items() if name != "turnwise"}),
        json.dumps({name: value for name, value in WRITTEN.items() if name != "params"}),
        changed(turnwise=2),
        changed(turnwise="1"),
        changed(more=1),
        changed(method="tools/list"),
        changed(method="initialize"),
        changed(params={"uri": "x"}),
        changed(params={"name": 5}),
        changed(params={"name": "it", "arguments": []}),
        changed(requests={"q": {"method": "tasks/create"}}),
        changed(requests={"q": page("javascript:alert(1)")}),
        changed(requests={"q": {"method": "elicitation/create"}}),
        changed(requests={"q": 5}),
        changed(answers={"other": accept(value="x")}),
        changed(answers={"q": "x"}),
        changed(given=["abc"]),
        changed(given=[["a", "b"]]),
        changed(given=[{"key": 1}]),
        changed(round=-1),
        changed(round=1.5),
        changed(began=float("nan")),
    ],
)
def test_what_is_no_call_is_the_callers_mistake(foreign: str | bytes) -> None:
    with pytest.raises(CallerError):
        Pending.from_json(foreign)


@pytest.mark.parametrize("name", [name for name in WRITTEN if name not in ("turnwise", "requests")])
def test_a_member_of_the_wrong_kind_is_found_before_it_does_harm(name: str) -> None:
    """What is read is a call that can be shown, kept, written and resumed, or it is refused."""

    async def visit(call: Pending) -> None:
        peer = Peer(lambda method, params: {"content": [], "contents": [], "messages": []})
        async with Client(peer, **SILENT) as client:
            assert isinstance(await client.resume(call, {"q": accept(value="x")}), Done)

    for wrong in ("", "x", 5, -1, 1.5, None, True, [], ["x"], {}, {"x": 5}):
        try:
            call = Pending.from_json(changed(**{name: wrong}))
        except CallerError:
            continue
        assert Pending.from_json(call.to_json()) == call
        assert (type(call.id), type(call.target), type(call.round), type(call.revision)) == (str, str, int, int)
        assert (list(call.questions), call.unanswered) == (["q"], ("q",))
        assert isinstance(call.began + call.asked, float | int)
        run(visit(call))


def test_arguments_that_a_call_takes_can_be_put_down() -> None:
    async def visit() -> None:
        day = {"day": date(2026, 7, 28)}
        async with Client(airline()) as client:
            assert text(await client.call_tool("on", day)) == "2026-07-28"
            call = elsewhere(await client.begin("ask_on", day))
            assert said(await client.resume(call, {"sure": accept(value=True)})) == "2026-07-28"

    run(visit())
