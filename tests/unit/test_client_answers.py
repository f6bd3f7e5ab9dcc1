"""What a client is asked, who answers, and what is never sent: joined to servers in the same process."""

import asyncio
import json
import signal
import socket
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import mcp_types as types
import pytest

from tests.unit.joined import Json, Peer, Tap, accept, accepting, asking, form, once, page, run, text
from turnwise import (
    Asking,
    CallbackFailed,
    Client,
    Context,
    Elicit,
    InvalidAnswer,
    InvalidReply,
    ListRoots,
    MalformedQuestion,
    MCPError,
    MCPServer,
    Resolve,
    Sample,
    TooManyRounds,
    TurnwiseError,
    Unanswerable,
    UnknownInputRequest,
)
from turnwise.dialects.answering import check_question, checked_answer
from turnwise.dialects.calling import advised
from turnwise.dialects.v2026_07_28_client import _check_keys

SILENT: Any = {"mode": "2026-07-28"}
ROOTS: Json = {"method": "roots/list"}
Callback = Callable[..., Any]


def ask_city() -> Elicit[str]:
    return Elicit("Which city?", str, key="city")


def bureau() -> MCPServer[Any]:
    """A server that asks in every way."""
    server: MCPServer[Any] = MCPServer("bureau")

    @server.tool()
    async def travel(by: str, ctx: Context) -> str:
        city = await ctx.elicit("Which city?", str, key="city")
        if city.action != "accept":
            return city.action
        day = await ctx.elicit("Which day?", str, key="day")
        return f"{by} to {city.data}, {day.data if day.action == 'accept' else day.action}"

    @server.tool()
    async def pay(url: str, ctx: Context) -> str:
        return (await ctx.elicit_url("Please pay", url, key="payment")).action

    @server.tool()
    async def think(ctx: Context) -> str:
        result = await ctx.sample("What is 1 + 1?", max_tokens=7, key="thought")
        return result.content.text if isinstance(result.content, types.TextContent) else "?"

    @server.tool()
    async def look(ctx: Context) -> str:
        return ",".join(str(root.uri) for root in await ctx.roots(key="folders"))

    @server.tool()
    async def survey(ctx: Context) -> str:
        answers = await ctx.ask_all(
            a=Elicit("A?", str), b=Elicit("B?", str), c=Elicit("C?", str), folders=ListRoots(), thought=Sample("D?")
        )
        return ",".join(answers[key].data for key in "abc")

    @server.prompt()
    async def postcard(city: Annotated[str, Resolve(ask_city)]) -> str:
        return f"Greetings from {city}"

    @server.resource("bureau://map/{scale}")
    async def map_of(scale: str, city: Annotated[str, Resolve(ask_city)]) -> str:
        return f"{city} 1:{scale}"

    return server


async def sampled(asking: Asking, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    assert isinstance(params, types.CreateMessageRequestParams)
    content = types.TextContent(type="text", text="2")
    return types.CreateMessageResult(role="assistant", content=content, model="abacus")


async def rooted(asking: Asking) -> types.ListRootsResult:
    return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///home"}]})


def ask(questions: Json, callback: Callback, **options: Any) -> tuple[Any, Peer]:
    """What comes of a call whose server asks these: its structured content, or the error; and the server."""
    peer = Peer(once(questions))

    async def visit() -> Any:
        async with Client(peer, elicitation_callback=callback, **SILENT, **options) as client:
            try:
                return (await client.call_tool("it")).structured_content
            except TurnwiseError as error:
                return error

    return run(visit()), peer


# Who asks


def test_a_callback_is_told_who_asks_and_in_which_call() -> None:
    askings: list[Asking] = []

    async def answer(asking: Asking, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        askings.append(asking)
        assert isinstance(params, types.ElicitRequestFormParams)
        return types.ElicitResult(action="accept", content={"value": params.message})

    async def visit() -> None:
        async with Client(bureau(), elicitation_callback=answer) as client:
            result = await client.call_tool("travel", {"by": "train"})
            assert text(result) == "train to Which city?, Which day?"
            await client.get_prompt("postcard")
            await client.read_resource("bureau://map/100")

    run(visit())
    assert askings == [
        Asking("city", "tools/call", "travel", {"by": "train"}, 1, None),
        Asking("day", "tools/call", "travel", {"by": "train"}, 2, None),
        Asking("city", "prompts/get", "postcard", {}, 1, None),
        Asking("city", "resources/read", "bureau://map/100", {}, 1, None),
    ]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_no_reaches_the_tool(action: Any) -> None:
    async def answer(asking: Asking, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action=action, content={"value": "not to be sent"})

    tap = Tap(bureau())

    async def visit() -> None:
        async with Client(tap, elicitation_callback=answer) as client:
            assert text(await client.call_tool("travel", {"by": "train"})) == action

    run(visit())
    assert tap.params[-1]["inputResponses"] == {"city": {"action": action}}


def test_the_clients_model_is_asked_in_the_official_types() -> None:
    async def visit() -> None:
        async with Client(bureau(), sampling_callback=sampled) as client:
            assert text(await client.call_tool("think")) == "2"

    run(visit())


def test_the_clients_folders_are_asked_for_without_parameters() -> None:
    async def visit() -> None:
        async with Client(bureau(), list_roots_callback=rooted) as client:
            assert text(await client.call_tool("look")) == "file:///home"

    run(visit())


@pytest.mark.parametrize(
    "answer",
    [
        {"role": "assistant", "model": "m", "content": {"type": "text", "text": "2"}},
        {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "2"}]},
        types.CreateMessageResultWithTools(
            role="assistant", model="m", content=[types.TextContent(type="text", text="2")], stop_reason="endTurn"
        ),
    ],
)
def test_a_models_answer_may_come_in_each_of_its_forms(answer: Any) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "1 + 1?"}}
    peer = Peer(once({"q": {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 1}}}))

    async def reply(asking: Asking, params: Any) -> Any:
        return answer

    async def visit() -> Any:
        async with Client(peer, sampling_callback=reply, **SILENT) as client:
            return (await client.call_tool("it")).structured_content

    sent = run(visit())["q"]
    assert (sent["role"], sent["model"]) == ("assistant", "m")
    assert "stop_reason" not in sent


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("sampling/createMessage", {"role": "assistant", "content": "2"}),
        ("sampling/createMessage", {}),
        ("roots/list", {"roots": ["/home"]}),
        ("roots/list", {"roots": [{"uri": "https://not.a.folder"}]}),
        ("roots/list", {}),
        ("roots/list", None),
    ],
)
def test_an_answer_for_a_model_or_folders_that_is_none_is_not_sent(question: str, answer: Any) -> None:
    params = {"params": {"messages": [], "maxTokens": 1}} if question.startswith("sampling") else {}
    peer = Peer(once({"q": {"method": question, **params}}))

    async def reply(*_: Any) -> Any:
        return answer

    async def visit() -> None:
        async with Client(peer, sampling_callback=reply, list_roots_callback=reply, **SILENT) as client:
            with pytest.raises(InvalidAnswer) as raised:
                await client.call_tool("it")
            assert raised.value.key == "q"

    run(visit())
    assert len(peer.requests) == 1


# Pages


@pytest.mark.parametrize(
    ("url", "host", "warnings"),
    [
        ("https://pay.example.com/1?a=b#c", "pay.example.com", 0),
        ("https://PAY.example.com:8443/", "pay.example.com", 0),
        ("HTTPS://pay.example.com", "pay.example.com", 0),
        ("http://pay.example.com/1", "pay.example.com", 1),
        ("https://bank.example.com@evil.example.net/", "evil.example.net", 1),
        ("https://xn--80ak6aa92e.com/", "xn--80ak6aa92e.com", 1),
        ("https://sub.XN--80ak6aa92e.com/", "sub.xn--80ak6aa92e.com", 1),
        ("https://аррӏе.com/", "аррӏе.com", 1),
        ("http://you@аррӏе.com/", "аррӏе.com", 3),
        ("https://[::1]:8000/x", "::1", 0),
    ],
)
def test_a_page_is_shown_with_its_host_and_what_is_odd_about_it(
    url: str, host: str, warnings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Asking] = []
    for name in ("open", "open_new", "open_new_tab", "get"):
        monkeypatch.setattr(webbrowser, name, lambda *_: pytest.fail("a page was opened"))

    async def answer(asking: Asking, params: types.ElicitRequestURLParams) -> Json:
        assert isinstance(params, types.ElicitRequestURLParams)
        seen.append(asking)
        return accept(secret="typed by mistake")

    outcome, _ = ask({"q": page(url)}, answer)
    assert outcome == {"q": {"action": "accept"}}
    assert (seen[0].url, seen[0].host, len(seen[0].warnings)) == (url, host, warnings)


def test_a_form_has_no_page() -> None:
    async def answer(asking: Asking, params: Any) -> Json:
        assert (asking.url, asking.host, asking.warnings) == (None, None, ())
        return accept()

    assert ask({"q": form()}, answer)[0] == {"q": accept()}


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "JavaScript://example.com/%0aalert(1)",
        "file:///etc/passwd",
        "data:text/html,hello",
        "ftp://example.com",
        "//example.com",
        "/pay",
        "",
        "https:",
        "https:///pay",
        "https://exa mple.com",
        " https://example.com",
        "https://example.com\n.evil.example.net",
        "\x01https://example.com",
        "https://example.com\\@evil.example.net",
        "https://example.com/\u202egnp.exe",
        "https://[::1",
        None,
        5,
        ["https://example.com"],
    ],
)
def test_an_address_that_is_no_page_is_never_shown(url: Any) -> None:
    outcome, peer = ask({"q": page(url)}, unasked)
    assert isinstance(outcome, MalformedQuestion)
    assert len(peer.requests) == 1


async def unasked(*_: Any) -> Any:
    raise AssertionError("this was not to be asked")


# Several questions


def test_questions_of_one_round_are_asked_together() -> None:
    meeting = asyncio.Barrier(5)

    def met(answer: Any) -> Callback:
        async def callback(asking: Asking, *params: Any) -> Any:
            await meeting.wait()
            return await answer(asking, *params)

        return callback

    async def named(asking: Asking, params: Any) -> Json:
        return accept(value=asking.key)

    async def visit() -> None:
        options: Any = {"sampling_callback": met(sampled), "list_roots_callback": met(rooted)}
        async with Client(bureau(), elicitation_callback=met(named), **options) as client:
            assert text(await client.call_tool("survey")) == "a,b,c"

    run(visit())


def test_questions_are_asked_one_by_one_in_their_order_where_that_is_wanted() -> None:
    trail: list[str] = []

    def noted(answer: Any) -> Callback:
        async def callback(asking: Asking, *params: Any) -> Any:
            trail.append(f"{asking.key} begins")
            await asyncio.sleep(0)
            result = await answer(asking, *params)
            trail.append(f"{asking.key} ends")
            return result

        return callback

    async def visit() -> None:
        options: Any = {"sampling_callback": noted(sampled), "list_roots_callback": noted(rooted)}
        elicited = noted(accepting(value="x"))
        async with Client(bureau(), elicitation_callback=elicited, answer_order="one-by-one", **options) as client:
            await client.call_tool("survey")

    run(visit())
    assert trail == [f"{key} {what}" for key in ("a", "b", "c", "folders", "thought") for what in ("begins", "ends")]


# Callbacks that fail


@pytest.mark.parametrize("order", ["together", "one-by-one"])
def test_a_callback_that_raises_fails_the_call_with_its_cause(order: Any) -> None:
    async def broken(asking: Asking, params: Any) -> Any:
        raise ZeroDivisionError("oh")

    outcome, peer = ask({"q": form()}, broken, answer_order=order)
    assert isinstance(outcome, CallbackFailed)
    assert isinstance(outcome.__cause__, ZeroDivisionError)
    assert (outcome.key, outcome.method) == ("q", "elicitation/create")
    assert len(peer.requests) == 1


def test_the_other_callbacks_are_cancelled_and_awaited_when_one_raises() -> None:
    trail: list[str] = []
    all_there = asyncio.Barrier(3)

    async def answer(asking: Asking, params: Any) -> Any:
        await all_there.wait()
        if asking.key == "b":
            raise ZeroDivisionError
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # Tidying up takes a while.
            trail.append(f"{asking.key} tidied")

    outcome, peer = ask({"a": form(), "b": form(), "c": form()}, answer)
    assert isinstance(outcome, CallbackFailed)
    assert outcome.key == "b"
    assert sorted(trail) == ["a tidied", "c tidied"]
    assert len(peer.requests) == 1


def test_of_two_callbacks_that_raise_the_first_is_told() -> None:
    async def answer(asking: Asking, params: Any) -> Any:
        try:
            if asking.key == "b":
                raise ZeroDivisionError
            await asyncio.Event().wait()
        finally:
            raise ValueError(asking.key)

    outcome, _ = ask({"a": form(), "b": form()}, answer)
    assert isinstance(outcome, CallbackFailed)
    assert outcome.key == "b"


def test_nobody_else_is_asked_after_a_failure_one_by_one() -> None:
    asked: list[str] = []

    async def answer(asking: Asking, params: Any) -> Any:
        asked.append(asking.key)
        raise ZeroDivisionError

    outcome, _ = ask({"a": form(), "b": form()}, answer, answer_order="one-by-one")
    assert isinstance(outcome, CallbackFailed)
    assert asked == ["a"]


def test_an_error_of_the_library_passes_as_it_is() -> None:
    refusal = MCPError(-1, "not today")

    async def answer(asking: Asking, params: Any) -> Any:
        raise refusal

    assert ask({"q": form()}, answer)[0] is refusal


def test_a_time_that_is_over_inside_a_callback_is_a_failed_callback() -> None:
    async def answer(asking: Asking, params: Any) -> Any:
        raise TimeoutError("the user fell asleep")

    outcome, _ = ask({"q": form()}, answer, deadline=60)
    assert isinstance(outcome, CallbackFailed)
    assert isinstance(outcome.__cause__, TimeoutError)


def test_error_data_in_place_of_an_answer_is_a_failed_callback() -> None:
    async def answer(asking: Asking, params: Any) -> Any:
        return types.ErrorData(code=-1, message="cannot ask now")

    outcome, peer = ask({"q": form()}, answer)
    assert isinstance(outcome, CallbackFailed)
    assert "cannot ask now" in str(outcome)
    assert len(peer.requests) == 1


def test_a_plain_function_is_a_callback_too() -> None:
    outcome, _ = ask({"q": form(), "r": form()}, lambda asking, params: accept(value=asking.key))
    assert outcome == {"q": accept(value="q"), "r": accept(value="r")}


def test_a_plain_function_that_raises_is_a_failed_callback() -> None:
    def broken(asking: Asking, params: Any) -> Any:
        raise ZeroDivisionError("oh")

    outcome, peer = ask({"q": form(), "r": form()}, broken)
    assert isinstance(outcome, CallbackFailed)
    assert isinstance(outcome.__cause__, ZeroDivisionError)
    assert len(peer.requests) == 1


# Nobody to ask


def test_what_a_client_cannot_be_asked_a_good_server_does_not_ask() -> None:
    async def visit() -> None:
        async with Client(bureau(), elicitation_callback=unasked) as client:
            with pytest.raises(MCPError) as raised:
                await client.call_tool("think")
            assert raised.value.code == -32021
            assert raised.value.data == {"requiredCapabilities": {"sampling": {}}}
            assert raised.value.message == "The client did not declare a required capability: sampling"
            assert str(raised.value) == f"{raised.value.message} (pass sampling_callback= to the client)"

    run(visit())


def test_advice_to_a_client_stays_where_it_is_given() -> None:
    inner, outer = bureau(), MCPServer("outer")

    @outer.prompt()
    async def relay() -> str:
        async with Client(inner) as client:
            await client.call_tool("think")
        return "never"

    async def visit() -> None:
        async with Client(outer) as client:
            with pytest.raises(MCPError) as raised:
                await client.get_prompt("relay")
            assert raised.value.message == "The client did not declare a required capability: sampling"

    run(visit())


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (
            {"requiredCapabilities": {"elicitation": {"url": {}}, "roots": {}}},
            "pass list_roots_callback= to",
        ),
        (
            {"requiredCapabilities": {"sampling": {}, "roots": {}}},
            "sampling_callback= and list_roots_callback=",
        ),
        ({"requiredCapabilities": {"elicitation": {"form": {}}}}, None),
        ({"requiredCapabilities": {"extensions": {}}}, None),
        ({"requiredCapabilities": ["sampling"]}, None),
        (["requiredCapabilities"], None),
        (None, None),
    ],
)
def test_only_callbacks_that_a_client_lacks_are_advised(data: Any, advice: str | None) -> None:
    error = advised(MCPError(-32021, "no", data), {"elicitation/create"})
    assert (error.code, error.message, error.data) == (-32021, "no", data)
    assert (advice in str(error)) if advice else str(error) == "no"


def test_a_question_without_a_callback_is_the_servers_mistake_and_then_nobody_is_asked() -> None:
    outcome, peer = ask({"q": form(), "folders": ROOTS}, unasked)
    assert isinstance(outcome, Unanswerable)
    assert (outcome.key, outcome.method) == ("folders", "roots/list")
    assert len(peer.requests) == 1


def test_a_capability_that_was_declared_without_a_callback_cannot_be_answered() -> None:
    async def visit() -> None:
        async with Client(bureau(), capabilities={"roots": {}}) as client:
            with pytest.raises(Unanswerable, match="roots/list"):
                await client.call_tool("look")

    run(visit())


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"method": "tasks/create"}, UnknownInputRequest),
        ({"params": {}}, UnknownInputRequest),
        ("elicitation/create", UnknownInputRequest),
        (None, UnknownInputRequest),
        ([], UnknownInputRequest),
        ({"method": ["roots/list"]}, UnknownInputRequest),
        ({"method": "elicitation/create"}, MalformedQuestion),
        ({"method": "elicitation/create", "params": []}, MalformedQuestion),
        ({"method": "elicitation/create", "params": {"requestedSchema": {"type": "object"}}}, MalformedQuestion),
        ({"method": "elicitation/create", "params": {"mode": "page", "message": "m"}}, MalformedQuestion),
        ({"method": "elicitation/create", "params": {"mode": None, "message": "m"}}, MalformedQuestion),
        (form(schema={"type": "array"}), MalformedQuestion),
        (form(schema={"type": "object", "properties": []}), MalformedQuestion),
        (form(schema={"type": "object", "properties": {"a": {"type": "what"}}}), MalformedQuestion),
        (form(schema={"type": "object", "properties": {"a": {"pattern": "("}}}), MalformedQuestion),
        (form(schema={"type": "object", "properties": {"a": {"pattern": "(" * 5000}}}), MalformedQuestion),
        (form(schema={"type": "object", "properties": {"a": {"pattern": "a{99999999999}"}}}), MalformedQuestion),
        (form(schema={"type": "object", "properties": {"a": {"$ref": 5}}}), MalformedQuestion),
        (form(schema={"type": "object", "description": "x" * 70_000}), MalformedQuestion),
        (form(message=5), MalformedQuestion),  # type: ignore[arg-type]
        ({"method": "sampling/createMessage", "params": {"messages": "hello"}}, MalformedQuestion),
    ],
)
def test_a_question_that_cannot_be_asked_is_the_servers_mistake(question: Any, expected: type[Exception]) -> None:
    peer = Peer(once({"fine": form(), "q": question}))

    async def visit() -> None:
        async with Client(peer, elicitation_callback=fine, sampling_callback=unasked, **SILENT) as client:
            with pytest.raises(expected) as raised:
                await client.call_tool("it")
            assert getattr(raised.value, "key", None) == "q"

    run(visit())
    assert len(peer.requests) == 1


async def fine(asking: Asking, params: Any) -> Json:
    assert asking.key == "fine"
    return accept()


def test_a_question_without_a_mode_is_a_form() -> None:
    question = form(schema={"type": "object", "properties": {"city": {"type": "string"}}})
    del question["params"]["mode"]
    peer = Peer(once({"q": question}))

    async def answer(asking: Asking, params: Any) -> Json:
        assert isinstance(params, types.ElicitRequestFormParams)
        return {"action": "accept", "content": {"city": "Rome"}}

    async def visit() -> None:
        async with Client(peer, elicitation_callback=answer, **SILENT) as client:
            await client.call_tool("it")

    run(visit())
    assert peer.requests[-1]["params"]["inputResponses"]["q"]["content"] == {"city": "Rome"}


@pytest.mark.parametrize("others", [0, 10])
@pytest.mark.parametrize("key", [b"q", b"\\u0071"])
def test_two_questions_under_one_key_are_refused_because_one_would_be_unseen(key: bytes, others: int) -> None:
    question = json.dumps(form()).encode()
    more = b"".join(b', "other%d": %b' % (number, question) for number in range(others))
    asked = b'{"q": %b, "%b": %b%b}' % (question, key, question, more)
    result = b'{"resultType": "input_required", "requestState": "s", "inputRequests": %b}' % asked
    reply = b'{"jsonrpc": "2.0", "id": 1, "result": %b}' % result

    async def visit() -> None:
        peer = Peer(lambda method, params: reply)
        async with Client(peer, elicitation_callback=unasked, **SILENT) as client:
            with pytest.raises(InvalidReply, match="twice"):
                await client.call_tool("it")

    run(visit())


def test_a_reply_is_gone_through_once_for_many_questions_and_a_few_times_for_few() -> None:
    class Gone(bytes):
        times = 0

        def count(self, *given: Any) -> int:
            self.times += 1
            return super().count(*given)

        def split(self, *given: Any) -> list[bytes]:
            self.times += 1
            return super().split(*given)

    def times(questions: int) -> int:
        requests = {f"q{number}": ROOTS for number in range(questions)}
        raw = Gone(json.dumps({"result": {"inputRequests": requests}}).encode())
        _check_keys(requests, raw)
        return raw.times

    assert times(1000) == times(10) == 1
    assert max(times(questions) for questions in range(1, 10)) <= 4


# Answers that fit, and answers that do not


def whole(part: Json, **more: Any) -> Json:
    return {"type": "object", "properties": {"v": part}, **more}


CITY: Json = {"type": "string", "enum": ["Rome", "Oslo"]}
TITLED: Json = {"type": "string", "oneOf": [{"const": "r", "title": "Rome"}, {"const": "o", "title": "Oslo"}]}
SEVERAL: Json = {"type": "array", "items": CITY, "minItems": 1, "maxItems": 2}


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        (whole({"type": "string"}), {"v": ""}),
        (whole({"type": "string", "minLength": 1, "maxLength": 3}), {"v": "äöü"}),
        (whole({"type": "integer", "minimum": 0, "maximum": 2}), {"v": 2}),
        (whole({"type": "number"}), {"v": 0.5}),
        (whole({"type": "boolean"}), {"v": False}),
        (whole({"type": ["string", "null"]}), {"v": None}),
        (whole(CITY), {"v": "Rome"}),
        (whole({**CITY, "enumNames": ["Roma", "Oslo"]}), {"v": "Oslo"}),
        (whole(TITLED), {"v": "o"}),
        (whole(SEVERAL), {"v": ["Rome", "Oslo"]}),
        (whole({"type": "string", "format": "email"}), {"v": "ada@example.com"}),
        (whole({"type": "string", "format": "uri"}), {"v": "https://example.com"}),
        (whole({"type": "string", "format": "date"}), {"v": "2026-02-28"}),
        (whole({"type": "string", "format": "date-time"}), {"v": "2026-02-28T12:00:00Z"}),
        (whole({"type": "string", "format": "unheard-of"}), {"v": "anything"}),
        (whole({"type": "string", "pattern": "^[a-z]+$"}), {"v": "abc"}),
        (whole({"type": "string", "pattern": "^(?=a)b$"}), {"v": "only the server knows"}),
        (whole({"type": "string"}), {}),
        (whole({"type": "string"}), {"v": "x", "more": [1]}),
        (whole({"type": "string"}, **{"$schema": "https://json-schema.org/draft/2020-12/schema"}), {"v": "x"}),
        (whole({"$ref": "#/$defs/city"}, **{"$defs": {"city": CITY}}), {"v": "Rome"}),
        (whole({"anyOf": [{"$ref": "#"}, {"type": "null"}]}), {"v": {"v": {"v": None}}}),
    ],
)
def test_an_answer_that_fits_its_schema_is_sent_as_it_is(schema: Json, content: Json) -> None:
    outcome, _ = ask({"q": form(schema=schema)}, accepting(**content))
    assert outcome == {"q": {"action": "accept", "content": content}}


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        (whole({"type": "string"}), {"v": 5}),
        (whole({"type": "string"}, required=["v"]), {}),
        (whole({"type": "string", "minLength": 1}), {"v": ""}),
        (whole({"type": "string", "maxLength": 1}), {"v": "ab"}),
        (whole({"type": "integer"}), {"v": "5"}),
        (whole({"type": "integer"}), {"v": 5.5}),
        (whole({"type": "integer"}), {"v": True}),
        (whole({"type": "integer", "minimum": 1}), {"v": 0}),
        (whole({"type": "number", "maximum": 1}), {"v": 1.1}),
        (whole({"type": "number", "multipleOf": 0.5}), {"v": 10**400}),
        (whole({"type": "boolean"}), {"v": "yes"}),
        (whole(CITY), {"v": "rome"}),
        (whole(TITLED), {"v": "Rome"}),
        (whole(SEVERAL), {"v": "Rome"}),
        (whole(SEVERAL), {"v": []}),
        (whole(SEVERAL), {"v": ["Rome", "Bonn"]}),
        (whole(SEVERAL), {"v": ["Rome", "Oslo", "Rome"]}),
        (whole({"type": "string", "format": "email"}), {"v": "ada"}),
        (whole({"type": "string", "format": "uri"}), {"v": "example.com"}),
        (whole({"type": "string", "format": "date"}), {"v": "28.2.2026"}),
        (whole({"type": "string", "format": "date"}), {"v": "2026-02-30"}),
        (whole({"type": "string", "format": "date-time"}), {"v": "2026-02-28T12:00:00"}),
        (whole({"type": "string", "pattern": "^[a-z]+$"}), {"v": "ABC"}),
        (whole({"type": "string"}, additionalProperties=False), {"v": "x", "more": 1}),
        (whole({"$ref": "#/$defs/city"}, **{"$defs": {"city": CITY}}), {"v": "Bonn"}),
    ],
)
def test_an_answer_that_does_not_fit_is_not_sent(schema: Json, content: Json) -> None:
    outcome, peer = ask({"q": form(schema=schema)}, accepting(**content))
    assert isinstance(outcome, InvalidAnswer)
    assert outcome.key == "q"
    assert len(peer.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "yes",
        5,
        ["accept"],
        {},
        {"action": "maybe"},
        {"action": ["accept"]},
        {"action": "accept", "content": "x"},
        {"action": "accept", "content": ["x"]},
        {"content": {}},
    ],
)
def test_an_answer_that_is_none_is_not_sent(answer: Any) -> None:
    async def callback(asking: Asking, params: Any) -> Any:
        return answer

    outcome, peer = ask({"q": form()}, callback)
    assert isinstance(outcome, InvalidAnswer)
    assert len(peer.requests) == 1


def test_one_wrong_answer_of_several_keeps_all_of_them_back() -> None:
    async def answer(asking: Asking, params: Any) -> Any:
        return accept(value="x") if asking.key == "a" else accept(value=5)

    outcome, peer = ask({"a": form(), "b": form()}, answer)
    assert isinstance(outcome, InvalidAnswer)
    assert len(peer.requests) == 1


DEFAULTS: Json = {
    "type": "object",
    "properties": {
        "city": {**CITY, "default": "Rome"},
        "nights": {"type": "integer", "default": 0},
        "extras": {**SEVERAL, "default": ["Oslo"]},
        "name": {"type": "string"},
    },
    "required": ["city"],
}


def test_what_is_left_out_is_filled_with_the_defaults_of_the_form() -> None:
    outcome, _ = ask({"q": form(schema=DEFAULTS)}, accepting(nights=3))
    assert outcome["q"]["content"] == {"city": "Rome", "nights": 3, "extras": ["Oslo"]}


@pytest.mark.parametrize("answer", [{"action": "accept"}, {"action": "accept", "content": None}, accept()])
def test_an_answer_without_content_takes_all_defaults(answer: Json) -> None:
    async def callback(asking: Asking, params: Any) -> Any:
        return answer

    outcome, _ = ask({"q": form(schema=DEFAULTS)}, callback)
    assert outcome["q"]["content"] == {"city": "Rome", "nights": 0, "extras": ["Oslo"]}


def test_a_no_takes_no_defaults() -> None:
    async def callback(asking: Asking, params: Any) -> Any:
        return {"action": "decline"}

    assert ask({"q": form(schema=DEFAULTS)}, callback)[0] == {"q": {"action": "decline"}}


# Schemas that mean harm


@pytest.mark.parametrize("reference", ["#/$defs/a", "#"])
def test_a_schema_that_only_refers_to_itself_does_not_run_for_ever(reference: str) -> None:
    schema = whole({}, **{"$defs": {"a": {"$ref": reference}}, "allOf": [{"$ref": reference}]})
    outcome, peer = ask({"q": form(schema=schema)}, accepting(v="x"))
    assert isinstance(outcome, TurnwiseError)
    assert len(peer.requests) == 1


def test_a_schema_elsewhere_is_never_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        there = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        for schema in (
            whole({"$ref": there}),
            whole({"$ref": "schema.json"}, **{"$id": there}),
            whole({"$dynamicRef": there}),
            whole({"$schema": there, "$ref": there}, **{"$schema": there}),
        ):
            outcome, peer = ask({"q": form(schema=schema)}, accepting(v="x"))
            assert isinstance(outcome, TurnwiseError)
            assert len(peer.requests) == 1
        with pytest.raises(BlockingIOError):
            listener.accept()


TRAP = "a" * 60 + "!"
DOUBLED: Json = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {"d30": {"type": "null"}}


@pytest.mark.parametrize(
    ("dialect", "is_taken"),
    [
        ("https://json-schema.org/draft/2020-12/schema", False),
        ("http://json-schema.org/draft-04/schema#", True),
        (None, False),
    ],
)
def test_a_form_is_held_to_the_dialect_that_it_names(dialect: str | None, is_taken: bool) -> None:
    """Draft 4 knows no `const`, so there every value is as good as another."""
    schema: Json = {"type": "object", "properties": {"v": {"const": 1}}}
    question = form(schema=schema if dialect is None else {**schema, "$schema": dialect})
    if is_taken:
        assert checked_answer("q", question, accept(v=2))["content"] == {"v": 2}
    else:
        with pytest.raises(InvalidAnswer):
            checked_answer("q", question, accept(v=2))
    with pytest.raises(MalformedQuestion, match="not supported"):
        check_question("q", form(schema={**schema, "$schema": "https://example.com/mine"}))


HARMFUL = {
    "a pattern": (whole({"pattern": "^(a+)+$"}), {"v": TRAP}),
    "a pattern of names": (whole({}, patternProperties={"^(a+)+$": {}}), {TRAP: 1}),
    "other names": (whole({}, patternProperties={"^(a+)+$": {}}, additionalProperties=False), {TRAP: 1}),
    "unevaluated names": (whole({}, patternProperties={"^(a+)+$": {}}, unevaluatedProperties=False), {TRAP: 1}),
    "names": (whole({}, propertyNames={"pattern": "^(a+)+$"}), {TRAP: 1}),
    "a part of another dialect": (
        whole({"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}),
        {"v": TRAP},
    ),
    "different items": (whole({"uniqueItems": True}), {"v": [{"a": number} for number in range(20_000)]}),
    "references that double": (whole({"$ref": "#/$defs/d0"}, **{"$defs": DOUBLED}), {"v": 1}),
}


class Busy(BaseException):
    """The client still has to do with a schema."""


@contextmanager
def busy_at_most(seconds: float) -> Iterator[None]:
    """What runs for too long in the one thread that there is can only be ended by a signal; others do not count."""

    def give_up(*_: Any) -> None:
        raise Busy

    previous = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


@pytest.mark.parametrize("case", HARMFUL)
def test_a_schema_cannot_keep_a_client_busy(case: str) -> None:
    """Both the schema and the result that is held against it are the peer's."""
    schema, result = HARMFUL[case]
    listed = {"tools": [{"name": "it", "inputSchema": {"type": "object"}, "outputSchema": schema}]}
    called = {"content": [], "structuredContent": result}

    async def visit() -> None:
        peer = Peer(lambda method, params: listed if method == "tools/list" else called)
        async with Client(peer, **SILENT) as client:
            await client.list_tools()
            with suppress(InvalidReply):
                await client.call_tool("it")

    with busy_at_most(5):
        run(visit())


# Rounds


def test_a_server_that_goes_on_asking_is_left_and_the_user_is_not_asked_in_vain() -> None:
    asked: list[int] = []

    async def answer(asking: Asking, params: Any) -> Json:
        asked.append(asking.round)
        return accept()

    peer = Peer(lambda method, params: asking({"q": form()}, "s"))

    async def visit() -> None:
        async with Client(peer, elicitation_callback=answer, input_required_max_rounds=3, **SILENT) as client:
            with pytest.raises(TooManyRounds):
                await client.call_tool("it")

    run(visit())
    assert asked == [1, 2, 3]
    assert len(peer.requests) == 4


def test_a_server_that_only_wants_to_be_called_again_is_called_again_with_its_state() -> None:
    def answer(method: str, params: Json) -> Json:
        count = int(params.get("requestState", 0))
        return {"content": []} if count == 2 else asking({}, str(count + 1))

    peer = Peer(answer)

    async def visit() -> None:
        async with Client(peer, **SILENT) as client:
            await client.call_tool("it", {"a": 1})

    run(visit())
    assert [request["params"].get("requestState") for request in peer.requests] == [None, "1", "2"]
    assert len({request["id"] for request in peer.requests}) == 3
    assert all(request["params"]["arguments"] == {"a": 1} for request in peer.requests)


def test_a_server_that_lost_its_key_in_the_middle_is_called_anew_and_the_user_is_asked_once() -> None:
    asked: list[str] = []
    servers = [bureau(), bureau()]  # Each has a key of its own.

    class Moving(Tap):
        async def exchange(self, *args: Any) -> Any:
            self._server = servers[len(self.requests) >= 2]
            return await super().exchange(*args)

    async def answer(asking: Asking, params: Any) -> Json:
        asked.append(asking.key)
        return accept(value=asking.key)

    tap = Moving(servers[0])

    async def visit() -> None:
        async with Client(tap, elicitation_callback=answer, **SILENT) as client:
            assert text(await client.call_tool("travel", {"by": "bus"})) == "bus to city, day"

    run(visit())
    assert asked == ["city", "day"]
    assert len(tap.requests) == 6
