"""Questions on the wires of 2024-11-05 to 2025-11-25: requests to the client, while the call that asks is under way.

The tools are the same that ask in a result on other wires. What holds over HTTP and on a lasting line is held over
both.
"""

import asyncio
import gc
import json
import logging
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp_types.methods import parse_server_request

from tests.unit.handshaken import (
    META,
    NEWEST,
    ROADS,
    VERSIONS,
    Json,
    Web,
    accept,
    answering,
    body,
    calling,
    cancelling,
    events_of,
    kinds,
    notification,
    refusing,
    request,
    run,
    text,
    until,
    web,
)
from turnwise import (
    AcceptedElicitation,
    Client,
    Context,
    Elicit,
    ElicitURL,
    InputRequiredResult,
    ListRoots,
    MCPError,
    MCPServer,
    Resolve,
    RoundOver,
    Sample,
    SessionLimits,
    URLElicitationRequired,
)

roads = pytest.mark.parametrize("road", ROADS, ids=["http", "line"])
ASSISTANT = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "four"}}
HOME = {"roots": [{"uri": "file:///home", "name": "home"}]}
QUESTIONS = {"elicitation/create", "sampling/createMessage", "roots/list"}


def good(question: Json) -> Json:
    """An answer that fits any question of these tests."""
    match question["method"]:
        case "sampling/createMessage":
            return ASSISTANT
        case "roots/list":
            return HOME
        case _:
            return {"action": "accept"} if question["params"].get("mode") == "url" else accept(value="Ulm")


def given(answer: Any) -> str:
    return str(answer.data) if isinstance(answer, AcceptedElicitation) else str(answer.action)


def ask_city() -> Elicit[str]:
    return Elicit("Which city?", str, key="city")


def page(address: str = "https://example.com/consent", name: str | None = None) -> ElicitURL:
    return ElicitURL("Please agree", address, name)


def add_forms(server: MCPServer[Any]) -> None:
    @server.tool()
    async def inline(ctx: Context) -> str:
        return given(await ctx.elicit("Which city?", str, key="city"))

    @server.tool()
    async def declared(city: Annotated[str, Resolve(ask_city)]) -> str:
        return city

    @server.tool()
    async def returned(ctx: Context) -> Any:
        if (answers := ctx.input_responses) is None:
            schema = {"type": "object", "properties": {"value": {"type": "string"}}}
            params = {"mode": "form", "message": "Which city?", "requestedSchema": schema}
            asked = {"city": {"method": "elicitation/create", "params": params}}
            return InputRequiredResult.model_validate({"inputRequests": asked, "requestState": "mine"})
        answer = answers["city"]
        return f"{ctx.request_state}: {answer.content['value'] if answer.content else answer.action}"


def add_kinds(server: MCPServer[Any]) -> None:
    @server.tool()
    async def visit(ctx: Context, name: str | None = None) -> str:
        return (await ctx.elicit_url("Please agree", "https://example.com/consent", name)).action

    @server.tool()
    async def think(ctx: Context) -> str:
        said = await ctx.sample("2 + 2?", max_tokens=5, system_prompt="Be short.")
        return str(getattr(said.content, "text", ""))

    @server.tool()
    async def look(ctx: Context) -> str:
        return ",".join(str(root.uri) for root in await ctx.roots())

    @server.tool()
    async def together(ctx: Context, how: str) -> str:
        if how == "gather":
            answers: Any = await asyncio.gather(ctx.elicit("A?", str), ctx.sample("B?"), ctx.roots())
        elif how == "group":
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in (ctx.elicit("A?", str), ctx.sample("B?"), ctx.roots())]
            answers = [task.result() for task in tasks]
        else:
            answers = await ctx.ask_all(Elicit("A?", str), Sample("B?"), ListRoots())
        return f"{given(answers[0])} {answers[1].content.text} {len(answers[2])}"

    @server.tool()
    async def needs_page(ctx: Context, name: str | None = None) -> str:
        if not ctx.input_responses:
            raise URLElicitationRequired([page(name=name), page("https://example.com/other")], "Agree first")
        return "agreed"


def add_long_ones(server: MCPServer[Any]) -> None:
    @server.tool()
    async def often(ctx: Context, times: int) -> str:
        return ",".join([given(await ctx.elicit(f"Number {n}?", str)) for n in range(times)])

    @server.tool()
    async def told(ctx: Context) -> str:
        await ctx.report_progress(1, 4)
        await ctx.info("begun")
        first = await ctx.elicit("A?", str)
        await ctx.report_progress(2, 4)
        await ctx.info("half")
        second = await ctx.elicit("B?", str)
        await ctx.report_progress(4, 4)
        await ctx.info("done")
        return f"{given(first)} {given(second)}"

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1)
        await asyncio.Event().wait()
        return "never"


def make_server(**options: Any) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("asking", **options)
    add_forms(server)
    add_kinds(server)
    add_long_ones(server)
    return server


# Kinds of questions


@roads
@pytest.mark.parametrize("version", VERSIONS)
def test_a_form_is_a_request_of_its_version(road: Any, version: str) -> None:
    async def main() -> Any:
        async with road(make_server(), version) as client:
            reply = await client.played("inline", good)
            assert text(reply) == "Ulm"
            assert kinds(client.said)[-2:] == ["elicitation/create", "result"]
            (question,) = client.questions()
            return question

    question = run(main())
    mode = {"mode": "form"} if version == NEWEST else {}
    schema = {
        "type": "object",
        "properties": {"value": {"type": "string", "title": "Value"}},
        "required": ["value"],
    }
    params = {**mode, "message": "Which city?", "requestedSchema": schema}
    assert question == {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params}
    parse_server_request("elicitation/create", NEWEST, question["params"])


@roads
def test_a_page_has_a_name_of_its_own_or_the_authors(road: Any) -> None:
    async def main() -> list[Json]:
        async with road(make_server()) as client:
            for name in (None, None, "mine"):
                assert text(await client.played("visit", good, {"name": name})) == "accept"
            questions: list[Json] = client.questions()
            return questions

    questions = run(main())
    names = [question["params"].pop("elicitationId") for question in questions]
    assert names[2] == "mine"
    assert len(set(names)) == 3
    assert all(len(name) >= 16 for name in names[:2])
    for question in questions:
        params = {"mode": "url", "message": "Please agree", "url": "https://example.com/consent"}
        assert question["params"] == params
        parse_server_request("elicitation/create", NEWEST, {**params, "elicitationId": "x"})


@roads
@pytest.mark.parametrize("version", VERSIONS)
def test_a_model_and_folders_are_asked_for_as_well(road: Any, version: str) -> None:
    async def main() -> list[Json]:
        async with road(make_server(), version) as client:
            assert text(await client.played("think", good)) == "four"
            assert text(await client.played("look", good)) == "file:///home"
            questions: list[Json] = client.questions()
            return questions

    sampled, roots = run(main())
    assert sampled["params"] == {
        "messages": [{"role": "user", "content": {"type": "text", "text": "2 + 2?"}}],
        "maxTokens": 5,
        "systemPrompt": "Be short.",
    }
    assert roots == {"jsonrpc": "2.0", "id": 2, "method": "roots/list"}
    for question in (sampled, roots):
        parse_server_request(question["method"], version, question.get("params"))


# Three ways to ask


@roads
@pytest.mark.parametrize(("tool", "said"), [("inline", "Ulm"), ("declared", "Ulm"), ("returned", "mine: Ulm")])
def test_every_way_to_ask_is_asked_live(road: Any, tool: str, said: str) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            assert text(await client.played(tool, good)) == said
            (question,) = client.questions()
            assert question["params"]["message"] == "Which city?"
            assert client.session.waits == {}

    run(main())


@roads
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_person_may_say_no(road: Any, action: str) -> None:
    async def main() -> list[Json]:
        async with road(make_server()) as client:
            return [
                await client.played(tool, lambda _: {"action": action}) for tool in ("inline", "declared", "returned")
            ]

    inline, declared, returned = run(main())
    assert (text(inline), text(returned)) == (action, f"mine: {action}")
    assert declared["result"]["isError"] is True


@roads
def test_prompts_and_resources_may_ask_too(road: Any) -> None:
    server = make_server()

    @server.prompt()
    async def poem(ctx: Context) -> str:
        return "About " + given(await ctx.elicit("What about?", str))

    @server.resource("memo://it")
    async def memo(ctx: Context) -> str:
        return "About " + given(await ctx.elicit("What about?", str))

    async def main() -> None:
        async with road(server) as client:
            for method, params in (("prompts/get", {"name": "poem"}), ("resources/read", {"uri": "memo://it"})):
                await client.say(request(method, params, 9))
                await client.say(answering(await client.next(), accept(value="rain")))
                assert "About rain" in json.dumps((await client.next())["result"])

    run(main())


@roads
@pytest.mark.parametrize("how", ["gather", "group", "ask_all"])
@pytest.mark.parametrize("backwards", [False, True])
def test_questions_that_are_asked_together_go_out_together_and_are_answered_in_any_order(
    road: Any, how: str, backwards: bool
) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            call = await client.call("together", {"how": how})
            questions = [await client.next() for _ in range(3)]
            assert {question["method"] for question in questions} == QUESTIONS
            assert len({question["id"] for question in questions}) == 3
            for question in reversed(questions) if backwards else questions:
                assert client.heard.empty()
                await client.say(answering(question, good(question)))
            reply = await client.next()
            assert (reply["id"], text(reply)) == (call, "Ulm four 1")
            assert client.session.waits == {}

    run(main())


@roads
def test_questions_that_are_open_when_the_server_leaves_all_end_without_a_word(
    road: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            await client.call("together", {"how": "gather"})
            for _ in range(3):
                await client.next()
            client.session.wind_up()
            assert "shutting down" in json.dumps(await client.next())
            gc.collect()
            await asyncio.sleep(0)

    run(main())
    assert "never retrieved" not in caplog.text


def test_who_is_asked_when_the_client_is_left_is_not_cancelled() -> None:
    async def main() -> None:
        async def thinking(*_: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        asked = asyncio.Event()
        client = Client(make_server(), mode="2025-11-25", elicitation_callback=thinking)
        await client.__aenter__()
        call = asyncio.create_task(client.call_tool("inline"))
        await asked.wait()
        await client.__aexit__()
        with pytest.raises(MCPError, match="The session has ended"):
            await call

    run(main())


def number_of(question: Json) -> Json:
    return accept(value=question["params"]["message"].removeprefix("Number ").removesuffix("?"))


@roads
def test_a_call_may_ask_more_often_than_other_wires_go_round(road: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            reply = await client.played("often", number_of, {"times": 25})
            assert text(reply) == ",".join(str(number) for number in range(25))
            assert len(client.questions()) == 25
            assert len({question["id"] for question in client.questions()}) == 25

    run(main())


def test_a_call_that_would_ask_for_ever_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> tuple[bool, int]:
        async with web(make_server()) as client:
            reply = await client.played("often", good, {"times": 1000})
            return reply["result"]["isError"], len(client.questions())

    with caplog.at_level(logging.ERROR, "turnwise"):
        is_error, asked = run(main())
    assert is_error
    assert asked == 100
    assert "the flow asked 100 times without an end" in caplog.text


@roads
@pytest.mark.parametrize(
    "unfit",
    [
        None,
        5,
        "accept",
        [],
        {},
        {"action": "maybe"},
        {"action": "accept"},
        {"action": "accept", "content": {"value": 5}},
        {"action": "accept", "content": {"other": "x"}},
        {"action": "accept", "content": []},
        ASSISTANT,
    ],
    ids=str,
)
def test_an_answer_that_does_not_fit_is_asked_for_again(road: Any, unfit: Any) -> None:
    async def main() -> list[Json]:
        async with road(make_server()) as client:
            answers = [unfit, unfit, accept(value="Ulm")]
            assert text(await client.played("inline", lambda _: answers.pop(0))) == "Ulm"
            questions: list[Json] = client.questions()
            return questions

    questions = run(main())
    assert len(questions) == 3
    assert len({question["id"] for question in questions}) == 3
    assert questions[0]["params"] == questions[1]["params"] == questions[2]["params"]


@roads
@pytest.mark.parametrize("unfit", [{}, {"roots": 5}, {"roots": [{"uri": 5}]}, {"action": "accept"}], ids=str)
def test_folders_that_are_none_are_asked_for_again(road: Any, unfit: Any) -> None:
    async def main() -> tuple[str, int]:
        async with road(make_server()) as client:
            answers = [unfit, HOME]
            return text(await client.played("look", lambda _: answers.pop(0))), len(client.questions())

    assert run(main()) == ("file:///home", 2)


# A client that does not answer


@roads
@pytest.mark.parametrize("tool", ["inline", "declared", "returned", "think", "look", "visit"])
def test_an_error_in_place_of_an_answer_is_the_tools_error(road: Any, tool: str) -> None:
    async def main() -> Any:
        async with road(make_server()) as client:
            await client.call(tool)
            await client.say(refusing(await client.next(), -1, "User rejected the request"))
            reply = await client.next()
            assert client.session.waits == {}
            return reply

    result = run(main())["result"]
    assert result["isError"] is True
    assert "User rejected the request (-1)" in result["content"][0]["text"]


@roads
@pytest.mark.parametrize(
    "odd", [{"error": None}, {"error": 5}, {"error": []}, {"error": {}}, {"error": {"code": "x", "message": {}}}]
)
def test_an_error_of_any_shape_is_an_error(road: Any, odd: Json) -> None:
    async def main() -> Json:
        async with road(make_server()) as client:
            await client.call("inline")
            await client.say({"jsonrpc": "2.0", "id": (await client.next())["id"], **odd})
            result: Json = (await client.next())["result"]
            return result

    assert run(main())["isError"] is True


@roads
@pytest.mark.parametrize(
    "refused",
    [
        0,
        1,
        2,
    ],
)
def test_when_one_question_is_refused_the_others_are_taken_back(road: Any, refused: int) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            call = await client.call("together", {"how": "ask_all"})
            questions = [await client.next() for _ in range(3)]
            await client.say(refusing(questions[refused]))
            await until(lambda: not client.session.waits)
            others = [question["id"] for question in questions if question is not questions[refused]]
            taken_back = [await client.next() for _ in others]
            assert [message["method"] for message in taken_back] == ["notifications/cancelled"] * 2
            assert sorted(message["params"]["requestId"] for message in taken_back) == sorted(others)
            reply = await client.next()
            assert reply["id"] == call
            assert reply["result"]["isError"] is True

    impatient(main())


def impatient(work: Any) -> None:
    """A test that fails by waiting, and need not wait for as long as others."""

    async def soon() -> None:
        async with asyncio.timeout(5):
            await work

    run(soon())


@roads
def test_a_question_that_was_answered_is_not_taken_back(road: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            await client.call("together", {"how": "ask_all"})
            questions = [await client.next() for _ in range(3)]
            await client.say(answering(questions[2], good(questions[2])))
            await until(lambda: len(client.session.waits) == 2)
            await client.say(refusing(questions[0]))
            taken_back = await client.next()
            assert taken_back == notification("notifications/cancelled", {"requestId": questions[1]["id"]})
            assert "result" in await client.next()

    run(main())


@roads
@pytest.mark.parametrize(
    ("capabilities", "tool", "needs"),
    [
        ({}, "inline", "elicitation.form"),
        ({"elicitation": None}, "inline", "elicitation.form"),
        ({"elicitation": {"url": {}}}, "inline", "elicitation.form"),
        ({"elicitation": {}}, "visit", "elicitation.url"),
        ({"elicitation": {"form": {}}}, "visit", "elicitation.url"),
        ({"roots": {}}, "think", "sampling"),
        ({"sampling": {}}, "look", "roots"),
        ({}, "declared", "elicitation.form"),
        ({}, "returned", "elicitation.form"),
        ({"elicitation": {}, "roots": {}}, "together", "sampling"),
    ],
)
def test_what_a_client_did_not_declare_it_is_not_asked(road: Any, capabilities: Json, tool: str, needs: str) -> None:
    async def main() -> Json:
        async with road(make_server(), NEWEST, capabilities) as client:
            reply = await client.played(tool, None, {"how": "ask_all"} if tool == "together" else None)
            assert client.questions() == []
            result: Json = reply["result"]
            return result

    result = run(main())
    assert result["isError"] is True
    assert result["content"][0]["text"] == f"The client did not declare a required capability: {needs}"


@roads
def test_a_client_that_declares_elicitation_with_nothing_in_it_is_shown_forms(road: Any) -> None:
    async def main() -> str:
        async with road(make_server(), VERSIONS[2], {"elicitation": {}}) as client:
            return text(await client.played("inline", good))

    assert run(main()) == "Ulm"


# -32042


@roads
def test_pages_that_have_to_be_visited_first_are_an_error_of_their_own(road: Any) -> None:
    async def main() -> Json:
        async with road(make_server()) as client:
            reply = await client.played("needs_page", None, {"name": "mine"})
            error: Json = reply["error"]
            return error

    error = run(main())
    other = error["data"]["elicitations"][1].pop("elicitationId")
    assert isinstance(other, str)
    assert len(other) >= 16
    shown = {"mode": "url", "message": "Please agree"}
    assert error == {
        "code": -32042,
        "message": "Agree first",
        "data": {
            "elicitations": [
                {**shown, "url": "https://example.com/consent", "elicitationId": "mine"},
                {**shown, "url": "https://example.com/other"},
            ]
        },
    }


def modern(tool: str, **params: Any) -> tuple[Json, Json]:
    """A call of 2026-07-28, and its headers."""
    message = request("tools/call", {"name": tool, "arguments": {}, "_meta": META, **params})
    return message, {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call", "mcp_name": tool}


def test_on_2026_the_same_pages_are_questions() -> None:
    async def main() -> None:
        client = Web(make_server())
        message, headers = modern("needs_page")
        result = body(await client.reply(message, **headers))["result"]
        asked = list(result["inputRequests"].values())
        assert [question["params"] for question in asked] == [
            {"mode": "url", "message": "Please agree", "url": "https://example.com/consent"},
            {"mode": "url", "message": "Please agree", "url": "https://example.com/other"},
        ]
        answers = {key: {"action": "accept"} for key in result["inputRequests"]}
        message, headers = modern("needs_page", inputResponses=answers, requestState=result["requestState"])
        assert text(body(await client.reply(message, **headers))) == "agreed"

    run(main())


def test_on_2026_pages_that_a_declared_parameter_needs_are_questions_too() -> None:
    server: MCPServer[Any] = MCPServer("pages")

    def consent() -> str:
        raise URLElicitationRequired([page()])

    @server.tool()
    async def resolved(agreed: Annotated[str, Resolve(consent)]) -> str:
        return agreed

    async def main() -> Json:
        message, headers = modern("resolved")
        return body(await Web(server).reply(message, **headers))

    assert run(main())["result"]["resultType"] == "input_required"


# What is done once


class Counted:
    """Something that must not be done twice."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> int:
        self.times += 1
        return self.times


@roads
@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("options", [{}, {"effects": True}, {"single_use": True}], ids=["plain", "effects", "single"])
def test_a_step_is_taken_once_however_often_the_call_asks(road: Any, once: bool, options: dict[str, Any]) -> None:
    server, charge = make_server(), Counted()

    @server.tool(**options)
    async def pay(ctx: Context) -> str:
        await ctx.report_progress(1)
        await ctx.elicit("Sure?", str)
        paid = await ctx.step(charge, name="charge", once=once)
        await ctx.elicit("Receipt?", str)
        return f"paid {paid}"

    async def main() -> None:
        async with road(server) as client:
            assert text(await client.played("pay", good, progressToken=1)) == "paid 1"
            assert charge.times == 1
            assert len(client.questions()) == 2
            assert text(await client.played("pay", good)) == "paid 2"

    run(main())


@roads
def test_a_tool_with_effects_plays_no_round_for_a_token_that_nobody_gets(road: Any) -> None:
    server, runs = make_server(), Counted()

    @server.tool(effects=True)
    async def pay(ctx: Context) -> str:
        runs()
        await ctx.report_progress(1)
        await ctx.step(lambda: "paid", name="charge", once=True)
        await ctx.report_progress(2)
        return "paid"

    async def main() -> list[str]:
        async with road(server) as client:
            await client.played("pay", progressToken=1)
            return kinds(client.said)[-3:]

    assert run(main()) == ["notifications/progress", "notifications/progress", "result"]
    assert runs.times == 1


@roads
def test_the_version_and_the_id_of_a_flow_stay_the_same_while_it_asks(road: Any) -> None:
    server, seen = make_server(), set[Any]()

    @server.tool(version="v7")
    async def versioned(ctx: Context) -> str:
        seen.add((ctx.flow_version, ctx.flow_id, str(ctx.uuid()), ctx.random(), ctx.idempotency_key("x")))
        await ctx.elicit("A?", str)
        await ctx.elicit("B?", str)
        return f"{ctx.flow_version} in round {ctx.round}"

    async def main() -> str:
        async with road(server) as client:
            return text(await client.played("versioned", good))

    assert run(main()) == "v7 in round 3"
    assert len(seen) == 1


@roads
def test_a_busy_server_keeps_a_call_that_cannot_go_elsewhere(road: Any) -> None:
    server: MCPServer[Any] = MCPServer("busy", shed_when=lambda load: True)
    runs, steps = Counted(), Counted()

    @server.tool()
    async def long(ctx: Context) -> str:
        runs()
        await ctx.report_progress(1)
        await ctx.step(steps, name="one")
        await ctx.checkpoint({"at": 1})
        await ctx.report_progress(2)
        await ctx.elicit("Sure?", str)
        return f"{ctx.checkpointed}"

    async def main() -> None:
        async with road(server) as client:
            assert text(await client.played("long", good, progressToken=1)) == "{'at': 1}"
            progress = [message["params"]["progress"] for message in client.said if "progress" in str(message)]
            assert progress == [1, 2]

    run(main())
    assert (runs.times, steps.times) == (2, 1)


@roads
def test_what_was_said_before_a_question_is_not_said_again_after_it(road: Any) -> None:
    async def main() -> list[Any]:
        async with road(make_server()) as client:
            assert text(await client.played("told", good, progressToken="p")) == "Ulm Ulm"
            return [message for message in client.said if message.get("method", "").startswith("notifications/")]

    told = run(main())
    progress = [message["params"] for message in told if message["method"] == "notifications/progress"]
    assert progress == [{"progressToken": "p", "progress": number, "total": 4} for number in (1, 2, 4)]
    logged = [message["params"]["data"] for message in told if message["method"] == "notifications/message"]
    assert logged == ["begun", "half", "done"]


@roads
def test_what_was_said_is_not_said_again_when_an_answer_did_not_fit(road: Any) -> None:
    async def main() -> list[str]:
        async with road(make_server()) as client:
            answers = [{}, accept(value=5), accept(value="a"), {}, accept(value="b")]
            assert text(await client.played("told", lambda _: answers.pop(0), progressToken="p")) == "a b"
            return [message["params"]["data"] for message in client.said if "data" in message.get("params", {})]

    assert run(main()) == ["begun", "half", "done"]


# Answers that belong nowhere


@roads
@pytest.mark.parametrize(
    "stray",
    [
        {"jsonrpc": "2.0", "id": 77, "result": {}},
        {"jsonrpc": "2.0", "id": "1", "result": {"action": "decline"}},
        {"jsonrpc": "2.0", "id": 1.0, "result": {"action": "decline"}},
        {"jsonrpc": "2.0", "id": True, "result": {"action": "decline"}},
        {"jsonrpc": "2.0", "id": None, "result": {"action": "decline"}},
        {"jsonrpc": "2.0", "result": {"action": "decline"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "?"}},
        {"jsonrpc": "2.0", "id": 10**30, "result": {}},
    ],
    ids=str,
)
def test_an_answer_to_no_question_is_passed_over(road: Any, stray: Json) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            await client.call("inline")
            question = await client.next()
            if isinstance(client, Web):
                reply = await client.reply(stray)
                assert (reply.status, reply.body) == (202, None)
            else:
                await client.say(stray)
            await client.say(answering(question, accept(value="Ulm")))
            assert text(await client.next()) == "Ulm"

    run(main())


@roads
@pytest.mark.parametrize(
    "odd",
    [
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "1.0", "id": 1, "result": {"action": "decline"}},
        {"id": 1, "result": {"action": "decline"}},
    ],
    ids=str,
)
def test_what_is_no_answer_is_refused_and_the_question_stays_open(road: Any, odd: Json) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            await client.call("inline")
            question = await client.next()
            await client.say(odd)
            assert (await client.next())["error"]["code"] == -32600
            await client.say(answering(question, accept(value="Ulm")))
            assert text(await client.next()) == "Ulm"

    run(main())


@roads
def test_the_first_answer_counts_and_one_that_comes_later_is_passed_over(road: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            await client.call("often", {"times": 2})
            first = await client.next()
            await client.say(answering(first, accept(value="one")))
            second = await client.next()
            assert second["id"] != first["id"]
            await client.say(answering(first, accept(value="two")))
            await client.say(answering(second, accept(value="three")))
            assert text(await client.next()) == "one,three"
            await client.say(answering(second, accept(value="four")))
            assert (await client.asked("ping"))["result"] == {}

    run(main())


def test_an_answer_of_another_session_answers_nothing() -> None:
    async def main() -> None:
        server = make_server()
        async with web(server) as one, web(server) as two:
            await one.call("inline")
            mine = await one.next()
            await two.call("inline")
            theirs = await two.next()
            assert mine["id"] == theirs["id"]
            assert (await two.reply(answering(mine, accept(value="two")))).status == 202
            assert text(await two.next()) == "two"
            assert one.heard.empty()
            assert (await two.reply(answering(mine, accept(value="forged")))).status == 202
            await one.say(answering(mine, accept(value="one")))
            assert text(await one.next()) == "one"

    run(main())


# Cancelling


@roads
@pytest.mark.parametrize("tool", ["inline", "work"])
def test_a_call_that_is_cancelled_stops_and_is_not_answered(road: Any, tool: str) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            call = await client.call(tool, progressToken=1)
            first = await client.next()
            carrying = list(client.tasks)
            await client.say(cancelling(call))
            await asyncio.wait_for(asyncio.gather(*carrying, return_exceptions=True), 2)
            assert (client.session.waits, client.session.calls) == ({}, {})
            await client.say(answering({"id": first.get("id", 1)}, accept(value="late")))
            assert (await client.asked("ping"))["result"] == {}
            assert [message for message in client.said if message.get("id") == call and "method" not in message] == []
            await client.say(calling("inline", id=call))
            assert (await client.next())["method"] == "elicitation/create"

    run(main())


@roads
def test_one_call_is_cancelled_and_the_others_go_on(road: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            calls = [await client.call("inline") for _ in range(3)]
            questions = [await client.next() for _ in range(3)]
            await client.say(cancelling(calls[1]))
            await until(lambda: len(client.session.waits) == 2)
            for question in questions:
                await client.say(answering(question, accept(value="x")))
            replies = [await client.next() for _ in range(2)]
            assert {reply["id"] for reply in replies} == {calls[0], calls[2]}

    run(main())


def test_a_session_cannot_cancel_the_calls_of_another() -> None:
    async def main() -> None:
        server = make_server()
        async with web(server) as one, web(server) as two:
            call = await one.call("inline")
            question = await one.next()
            await two.reply(cancelling(call))
            await one.say(answering(question, accept(value="x")))
            assert text(await one.next()) == "x"

    run(main())


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("how", ["cancelled", "deleted"])
def test_a_call_that_ends_in_the_moment_in_which_it_begins_has_ended(how: str) -> None:
    async def main() -> tuple[int, bool]:
        async with web(make_server()) as client:
            session = client.session
            other = client.reply(cancelling(5)) if how == "cancelled" else client.attend("DELETE")
            both = [asyncio.create_task(client.reply(calling("inline", id=5))), asyncio.ensure_future(other)]
            done, _ = await asyncio.wait(both, timeout=0.1)
            for task in both:
                task.cancel()
            return len(done), bool(session.calls)

    try:
        assert run(main()) == (2, False)
    finally:
        gc.collect()


@roads
def test_what_a_call_says_after_it_was_cancelled_is_not_sent(road: Any) -> None:
    server, ended = make_server(), asyncio.Event()

    @server.tool()
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.report_progress(1)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.report_progress(2)
        finally:
            ended.set()
        return "too late"

    async def main() -> list[Json]:
        async with road(server) as client:
            call = await client.call("stubborn", progressToken=1)
            await client.next()
            client.said.clear()
            await client.say(cancelling(call))
            await ended.wait()
            await client.asked("ping")
            said: list[Json] = client.said
            return said

    assert kinds(run(main())) == ["result"]


# Connections that break


async def begun(client: Web, tool: str, arguments: Json | None = None) -> tuple[Any, str, Json]:
    """A call whose stream was opened and has asked: the stream, the id of its last event, and the question."""
    reply = await client.reply(calling(tool, arguments, progressToken=1))
    assert reply.events is not None
    raw = b""
    while b'"id":' not in raw:
        raw = await anext(reply.events)
    lines = dict(line.split(": ", 1) for line in raw.decode().strip().split("\r\n"))
    return reply.events, lines["id"], json.loads(lines["data"])


def test_who_hangs_up_has_not_cancelled_and_gets_the_rest_later() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            stream, last, question = await begun(client, "often", {"times": 2})
            await stream.aclose()
            await client.reply(answering(question, accept(value="one")))
            await until(lambda: 2 in client.session.waits)
            await client.listen(last_event_id=last)
            again = await client.next()
            assert (again["method"], again["id"]) == ("elicitation/create", 2)
            await client.say(answering(again, accept(value="two")))
            assert text(await client.next()) == "one,two"
            await asyncio.wait_for(asyncio.gather(*client.tasks), 2)
            assert client.session.calls == {}

    run(main())


def test_a_call_ends_while_nobody_is_connected_and_its_result_waits() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            stream, last, question = await begun(client, "inline")
            await stream.aclose()
            await client.reply(answering(question, accept(value="Ulm")))
            await until(lambda: not client.session.calls)
            for _ in range(2):
                reply = await client.attend("GET", last_event_id=last)
                assert reply is not None
                (event,) = await events_of(reply)
                assert text(event.message) == "Ulm"
            assert event.id != last

    run(main())


@pytest.mark.parametrize("ending", ["answered", "cancelled"])
def test_who_comes_back_for_what_is_over_and_read_is_told_that_nothing_is_left(ending: str) -> None:
    """An empty stream would have a client come back for more, again and again."""

    async def main() -> None:
        async with web(make_server()) as client:
            stream, last, question = await begun(client, "inline")
            await stream.aclose()
            if ending == "answered":
                await client.reply(answering(question, accept(value="Ulm")))
            else:
                [number] = client.session.calls
                cancelled = {"method": "notifications/cancelled", "params": {"requestId": number}}
                await client.reply({"jsonrpc": "2.0", **cancelled})
            await until(lambda: not client.session.calls)
            if ending == "answered":
                reply = await client.attend("GET", last_event_id=last)
                assert reply is not None
                (event,) = await events_of(reply)
                last = event.id
            done = await client.attend("GET", last_event_id=last)
            assert done is not None
            assert (done.status, done.body, done.events) == (405, None, None)

    run(main())


def test_who_lost_the_question_gets_it_again() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            stream, last, question = await begun(client, "inline")
            await stream.aclose()
            assert last.endswith("_1")
            await client.listen(last_event_id=last.removesuffix("1") + "0")
            assert await client.next() == question
            await client.say(answering(question, accept(value="Ulm")))
            assert text(await client.next()) == "Ulm"

    run(main())


def test_a_stream_begins_with_an_id_from_which_it_can_be_taken_up_and_says_when_to_come_back() -> None:
    async def main() -> None:
        server = make_server()
        for version in VERSIONS:
            async with web(server, version) as client:
                await client.played("inline", good)
                first, *others = client.events
                if version == NEWEST:
                    assert (first.message, first.id, first.retry) == (None, "0_0", 1000)
                else:
                    others = client.events
                assert [event.message is None for event in others] == [False, False]
                assert [event.retry for event in others] == [None, None]
                assert len({event.id for event in client.events}) == len(client.events)

    run(main())


def add_closing(server: MCPServer[Any]) -> tuple[asyncio.Event, asyncio.Event]:
    """A tool that lets its client go, an event when it has done so, and one that lets it end."""
    has_closed, may_end = asyncio.Event(), asyncio.Event()

    @server.tool()
    async def slow(ctx: Context, first: bool = False) -> str:
        if first:
            await ctx.report_progress(1)
            ctx.close_stream()
        else:
            await ctx.close_sse_stream()
        has_closed.set()
        await may_end.wait()
        return "done"

    return has_closed, may_end


@pytest.mark.parametrize("first", [False, True])
def test_a_long_call_lets_its_client_go_and_the_client_comes_back_for_the_result(first: bool) -> None:
    async def main() -> None:
        server = make_server()
        _, may_end = add_closing(server)
        async with web(server) as client:
            reply = await client.reply(calling("slow", {"first": first}, progressToken=1))
            events = await events_of(reply)
            assert events[0].retry is not None
            assert client.session.calls.keys() == {1}
            may_end.set()
            again = await client.attend("GET", last_event_id=events[0].id)
            assert again is not None
            rest = [event.message for event in await events_of(again)]
            assert text(rest[-1]) == "done"
            assert [message.get("method") for message in rest[:-1]] == ["notifications/progress"] * first

    run(main())


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_a_client_that_would_not_come_back_is_not_let_go(version: str) -> None:
    async def main() -> None:
        server = make_server()
        has_closed, may_end = add_closing(server)
        async with web(server, version) as client:
            call = await client.call("slow")
            await has_closed.wait()
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(client.tasks) == 1
            may_end.set()
            reply = await client.next()
            assert (reply["id"], text(reply)) == (call, "done")

    run(main())


@pytest.mark.parametrize(
    "odd",
    ["", "x", "0", "_", "0_", "_0", "0_-1", "0_x", "0_1.5", "0_" + "9" * 400, "9_1", "s_1", "0_²", "0_1 ", "0_0x1"],
)
def test_an_event_that_was_not_is_no_place_to_go_on_from(odd: str) -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            stream, _, _ = await begun(client, "inline")
            reply = await client.attend("GET", last_event_id=odd)
            assert reply is not None
            assert (reply.status, reply.events) == (400, None)
            assert json.loads(reply.body or b"")["error"]["code"] == -32600
            await stream.aclose()

    run(main())


def test_events_of_another_session_are_not_to_be_had() -> None:
    async def main() -> None:
        server = make_server()
        async with web(server) as one, web(server) as two:
            await one.played("often", lambda question: accept(value="secret"), {"times": 2})
            last = one.events[0].id
            reply = await two.attend("GET", last_event_id=last)
            assert reply is not None
            assert reply.status == 400
            stream, _, _ = await begun(two, "inline")
            await stream.aclose()
            await two.listen(last_event_id=last)
            assert (await two.next())["params"]["message"] == "Which city?"
            assert "secret" not in str(two.events)

    run(main())


def test_a_stream_says_only_what_belongs_to_its_own_call() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            streams = [await client.reply(calling("told", id=number, progressToken=number)) for number in (1, 2)]
            for number, reply in enumerate(streams, 1):
                assert reply.events is not None
                heard = [await anext(reply.events) for _ in range(4)]
                assert f'"progressToken":{number}'.encode() in heard[1]
                assert f'"id":{number},"method":"elicitation/create"'.encode() in heard[3]
            for number in (1, 2):
                await client.reply(answering({"id": number}, accept(value=f"for {number}")))
            await client.attend("DELETE")

    run(main())


def test_everything_that_is_said_at_once_arrives() -> None:
    server = make_server()

    @server.tool()
    async def chatty(ctx: Context) -> str:
        for number in range(300):
            await ctx.info(number)
        return "said"

    async def main() -> None:
        async with web(server) as client:
            await client.played("chatty")
            assert [message["params"]["data"] for message in client.said[:-1]] == list(range(300))

    run(main())


def test_much_that_is_said_at_once_arrives_too() -> None:
    server = make_server()

    @server.tool()
    async def chatty(ctx: Context) -> str:
        for number in range(20):
            await ctx.info([number, "x" * 100_000])
        return "said"

    async def main() -> list[int]:
        async with web(server) as client:
            await client.played("chatty")
            return [message["params"]["data"][0] for message in client.said[:-1]]

    assert run(main()) == list(range(20))


# Calls at the same time


def test_an_id_that_is_under_way_cannot_be_used_again() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            await client.call("inline")
            question = await client.next()
            refused = await client.reply(calling("inline", id=1))
            assert (refused.status, body(refused)["error"]["code"]) == (400, -32600)
            assert "still under way" in body(refused)["error"]["message"]
            await client.say(answering(question, accept(value="x")))
            assert text(await client.next()) == "x"
            assert text(await client.played("inline", good)) == "Ulm"

    run(main())


def test_one_session_has_only_so_many_calls_under_way() -> None:
    async def main() -> None:
        server = make_server(sessions=SessionLimits(calls=3))
        async with web(server) as client, web(server) as other:
            for _ in range(3):
                await client.call("inline")
            questions = [await client.next() for _ in range(3)]
            refused = await client.reply(calling("inline", id=50))
            assert (refused.status, body(refused)["error"]["code"]) == (503, -32000)
            assert "at most 3" in body(refused)["error"]["message"]
            assert (await client.asked("ping"))["result"] == {}
            assert text(await other.played("inline", good)) == "Ulm"
            await client.say(answering(questions[0], accept(value="x")))
            await client.next()
            await client.call("inline")
            assert (await client.next())["method"] == "elicitation/create"

    run(main())


# Batches


@roads
@pytest.mark.parametrize("version", VERSIONS[:2])
def test_a_call_in_a_batch_may_ask(road: Any, version: str) -> None:
    async def main() -> Any:
        async with road(make_server(), version) as client:
            await client.say([request("ping", id=8), calling("inline", id=9)])
            await client.say([answering(await client.next(), accept(value="Ulm"))])
            return await client.next()

    replies: Any = run(main())
    assert [reply["id"] for reply in replies] == [8, 9]
    assert text(replies[1]) == "Ulm"


@roads
def test_a_call_in_a_batch_may_be_cancelled(road: Any) -> None:
    async def main() -> None:
        async with road(make_server(), VERSIONS[1]) as client:
            await client.say([request("ping", id=8), calling("inline", id=9)])
            await client.next()
            await client.say(cancelling(9))
            assert [reply["id"] for reply in await client.next()] == [8]

    impatient(main())


# SEP-2260: questions belong to a request of the client


class Kept:
    """A context that outlives its call, and what becomes of a question that is asked by it then."""

    def __init__(self) -> None:
        self.context: Any = None
        self.may_ask = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None

    def serve(self) -> MCPServer[Any]:
        server = make_server()

        @server.tool()
        async def leave(ctx: Context, wait: bool = False) -> str:
            self.context = ctx
            self.task = asyncio.create_task(self.ask(ctx))
            if wait:
                await ctx.elicit("Sure?", str)
            return "left"

        return server

    async def ask(self, ctx: Context) -> Any:
        await self.may_ask.wait()
        return await ctx.elicit("Still there?", str)


ways: list[Callable[[Any], Any]] = [
    lambda ctx: ctx.elicit("Still there?", str),
    lambda ctx: ctx.elicit_url("Visit", "https://example.com"),
    lambda ctx: ctx.sample("Think"),
    lambda ctx: ctx.roots(),
    lambda ctx: ctx.ask(ListRoots()),
    lambda ctx: ctx.ask_all(Elicit("Still there?", str)),
    lambda ctx: ctx.session.list_roots(),
    lambda ctx: ctx.session.create_message([], max_tokens=1),
]


@roads
@pytest.mark.parametrize("way", ways)
def test_after_its_request_has_ended_nothing_can_be_asked(road: Any, way: Callable[[Any], Any]) -> None:
    async def main() -> None:
        kept = Kept()
        async with road(kept.serve()) as client:
            if isinstance(client, Web):
                await client.listen()
            await client.played("leave")
            with pytest.raises(RoundOver):
                await way(kept.context)
            kept.may_ask.set()
            assert kept.task is not None
            with pytest.raises(RoundOver):
                await kept.task
            assert (await client.asked("ping"))["result"] == {}
            assert client.questions() == []
            assert client.heard.empty()
            assert client.session.waits == {}

    run(main())


def test_who_asks_after_the_request_is_told_the_rule() -> None:
    async def main() -> str:
        kept = Kept()
        async with web(kept.serve()) as client:
            await client.played("leave")
            with pytest.raises(RoundOver) as told:
                await kept.context.elicit("Still there?", str)
            return str(told.value)

    assert "a question belongs to a request that is under way (SEP-2260)" in run(main())


def test_a_task_of_an_earlier_round_cannot_ask_in_a_later_one() -> None:
    async def main() -> None:
        kept = Kept()
        async with web(kept.serve()) as client:
            await client.call("leave", {"wait": True})
            question = await client.next()
            first = kept.task
            assert first is not None
            kept.may_ask.set()
            with pytest.raises(RoundOver):
                await first
            kept.may_ask.clear()
            assert client.heard.empty()
            await client.say(answering(question, accept(value="x")))
            assert text(await client.next()) == "left"
            assert kept.task is not None
            kept.task.cancel()

    run(main())


def test_no_question_is_ever_on_the_stream_of_get() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            listening = await client.attend("GET")
            assert listening is not None
            assert listening.events is not None
            for tool in ("inline", "declared", "returned", "visit", "think", "look", "told"):
                await client.played(tool, good)
            stream, _, question = await begun(client, "inline")
            await stream.aclose()
            await client.reply(answering(question, accept(value="x")))
            await until(lambda: not client.session.calls)
            assert len(client.questions()) == 8
            await client.attend("DELETE")
            assert [raw async for raw in listening.events] == []

    run(main())


@roads
def test_a_method_that_may_not_ask_asks_nothing(road: Any, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    @server.handler("example/own")
    async def own(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"said": given(await ctx.elicit("Well?", str))}

    async def main() -> None:
        async with road(server) as client:
            reply = await client.asked("example/own", {})
            assert reply["error"]["code"] == -32603
            assert client.questions() == []

    with caplog.at_level(logging.CRITICAL, "turnwise"):
        run(main())
