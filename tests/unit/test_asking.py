"""Questions: the three forms of asking, what counts as an answer, and what may be asked at all."""

import asyncio
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from datetime import date, time
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import mcp_types
import pytest
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, RootModel, model_validator

from turnwise import (
    AcceptedElicitation,
    CancelledElicitation,
    Context,
    DeclinedElicitation,
    Elicit,
    ElicitationResult,
    ElicitURL,
    InputRequiredResult,
    InvalidSignature,
    ListRoots,
    MCPError,
    MCPServer,
    MissingClientCapability,
    Resolve,
    RoundOver,
    Sample,
    ToolError,
)
from turnwise.errors import TooManyRounds
from turnwise.testing import Connection, connect

ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
IT = {"name": "it"}

Result = dict[str, Any]
Asked = dict[str, Any]
Answers = Mapping[str, Any] | Callable[[Asked], Mapping[str, Any]]


class Region(BaseModel):
    region: str


class Trip(BaseModel):
    region: str
    nights: int


# Helpers: one call, round by round


async def converse(
    client: Connection, answers: Iterable[Answers], method: str = "tools/call", params: Mapping[str, Any] = IT
) -> list[Result]:
    """One call: the first round, and then a round for each set of answers, with the token of the one before."""
    results = [await client.request(method, params)]
    for given in answers:
        last = results[-1]
        assert last["resultType"] == "input_required", last
        replies = given(last["inputRequests"]) if callable(given) else given
        retry = {**params, "inputResponses": replies, "requestState": last["requestState"]}
        results.append(await client.request(method, retry))
    return results


def rounds(
    server: MCPServer[Any],
    *answers: Answers,
    method: str = "tools/call",
    params: Mapping[str, Any] = IT,
    capabilities: dict[str, Any] | None = None,
) -> list[Result]:
    async def run() -> list[Result]:
        async with connect(server) as client:
            client.capabilities = ALL if capabilities is None else capabilities
            return await converse(client, answers, method, params)

    return asyncio.run(run())


def run_in(server: MCPServer[Any], script: Callable[[Connection], Awaitable[None]]) -> None:
    """A conversation that has to look around between its rounds."""

    async def run() -> None:
        async with connect(server) as client:
            client.capabilities = ALL
            await script(client)

    asyncio.run(run())


def accept(**content: Any) -> Result:
    return {"action": "accept", "content": content}


def every(answer: Any) -> Callable[[Asked], Mapping[str, Any]]:
    """The same answer to whatever is asked."""
    return lambda asked: dict.fromkeys(asked, answer)


def keys(result: Result) -> list[str]:
    assert result["resultType"] == "input_required", result
    return [*result["inputRequests"]]


def messages(result: Result) -> list[str]:
    assert result["resultType"] == "input_required", result
    return [request["params"]["message"] for request in result["inputRequests"].values()]


def text(result: Result) -> str:
    assert result["resultType"] == "complete", result
    assert not result.get("isError"), result
    if "messages" in result:
        return str(result["messages"][0]["content"]["text"])
    return str((result["content"] if "content" in result else result["contents"])[0]["text"])


def tool_error(result: Result) -> str:
    assert result["resultType"] == "complete", result
    assert result["isError"] is True
    return str(result["content"][0]["text"])


def one_tool(fn: Callable[..., Any]) -> MCPServer[Any]:
    server = MCPServer("asker")
    server.add_tool(fn, "it")
    return server


SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "a poem"}, "model": "m"}
ROOTS = {"roots": [{"uri": "file:///home", "name": "home"}]}


def region_request(message: str = "Which region?") -> mcp_types.ElicitRequest:
    schema = {"type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]}
    return mcp_types.ElicitRequest(
        params=mcp_types.ElicitRequestFormParams(message=message, requested_schema=schema),
    )


def handed(state: str | None = None, **requests: Any) -> InputRequiredResult:
    return InputRequiredResult(input_requests=requests, request_state=state)


# The three forms in the four places


def told(answer: Any) -> str:
    """What an author makes of an outcome."""
    match answer:
        case AcceptedElicitation(data=Region(region=region)):
            return f"accept {region}"
        case mcp_types.ElicitResult(action="accept", content={"region": region}):
            return f"accept {region}"
        case _:
            return str(answer.action)


def ask_region() -> Elicit[Region]:
    return Elicit("Which region?", Region, key="region")


async def inline(ctx: Context) -> str:
    return told(await ctx.elicit("Which region?", Region, key="region"))


async def declared(region: Annotated[ElicitationResult[Region], Resolve(ask_region)]) -> str:
    return told(region)


async def returned(ctx: Context) -> str | InputRequiredResult:
    if not ctx.input_responses:
        return handed(region=region_request())
    return told(ctx.input_responses["region"])


async def inline_of(city: str, ctx: Context) -> str:
    return await inline(ctx)


async def declared_of(city: str, region: Annotated[ElicitationResult[Region], Resolve(ask_region)]) -> str:
    return told(region)


async def returned_of(city: str, ctx: Context) -> str | InputRequiredResult:
    return await returned(ctx)


FORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "inline": (inline, inline_of),
    "declared": (declared, declared_of),
    "returned": (returned, returned_of),
}
PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": "it"}),
    "prompt": ("prompts/get", {"name": "it"}),
    "resource": ("resources/read", {"uri": "it://front"}),
    "template": ("resources/read", {"uri": "it://city/rome"}),
}


def everywhere(form: str) -> MCPServer[Any]:
    plain, templated = FORMS[form]
    server = MCPServer("asker")
    server.add_tool(plain, "it")
    server.prompt("it")(plain)
    server.resource("it://front")(plain)
    server.resource("it://city/{city}")(templated)
    return server


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_every_form_asks_in_every_place_and_gets_its_answer(form: str, place: str) -> None:
    method, params = PLACES[place]
    asked, done = rounds(everywhere(form), {"region": accept(region="EU")}, method=method, params=params)
    assert messages(asked) == ["Which region?"]
    assert keys(asked) == ["region"]
    assert asked["inputRequests"]["region"]["method"] == "elicitation/create"
    assert asked["inputRequests"]["region"]["params"]["mode"] == "form"
    assert text(done) == "accept EU"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_decline_and_cancel_are_answers_that_reach_the_author(form: str, place: str, action: str) -> None:
    method, params = PLACES[place]
    _, done = rounds(everywhere(form), {"region": {"action": action}}, method=method, params=params)
    assert text(done) == action


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_a_question_the_client_cannot_answer_is_a_missing_capability_everywhere(form: str, place: str) -> None:
    method, params = PLACES[place]
    with pytest.raises(MCPError) as caught:
        rounds(everywhere(form), method=method, params=params, capabilities={})
    assert caught.value.code == -32021
    assert caught.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


def test_a_question_is_a_result_with_a_token_and_nothing_of_a_complete_one() -> None:
    (asked,) = rounds(one_tool(inline))
    assert asked.keys() == {"resultType", "inputRequests", "requestState", "_meta"}


def test_every_other_round_is_a_replay_on_whichever_instance_gets_it() -> None:
    from turnwise import RequestStateSecurity

    def instance() -> MCPServer[Any]:
        server = MCPServer("asker", request_state_security=RequestStateSecurity(keys=[b"k" * 32]))

        async def three(ctx: Context) -> str:
            return " ".join([told(await ctx.elicit(f"Number {number}?", Region)) for number in range(3)])

        server.add_tool(three, "it")
        return server

    async def run() -> None:
        params: dict[str, Any] = dict(IT)
        for number in range(4):
            async with connect(instance()) as client:
                client.capabilities = ALL
                result = await client.request("tools/call", params)
            if number < 3:
                answers = dict.fromkeys(result["inputRequests"], accept(region=str(number)))
                params = {**IT, "inputResponses": answers, "requestState": result["requestState"]}
        assert text(result) == "accept 0 accept 1 accept 2"

    asyncio.run(run())


def test_inline_then_returned_is_asked_one_after_the_other() -> None:
    async def mixed(ctx: Context) -> str | InputRequiredResult:
        name = await ctx.elicit("Name?", Region, key="name")
        if not ctx.input_responses:
            return handed("noted", region=region_request())
        return f"{told(name)} {told(ctx.input_responses['region'])} {ctx.request_state}"

    first, second, done = rounds(one_tool(mixed), {"name": accept(region="Ann")}, {"region": accept(region="EU")})
    assert (keys(first), keys(second)) == (["name"], ["region"])
    assert text(done) == "accept Ann accept EU noted"


def test_returned_then_inline_asks_nothing_twice() -> None:
    async def mixed(ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            return handed("noted", region=region_request())
        name = await ctx.elicit("Name?", Region, key="name")
        return f"{told(name)} {told(ctx.input_responses['region'])} {ctx.request_state}"

    first, second, done = rounds(one_tool(mixed), {"region": accept(region="EU")}, {"name": accept(region="Ann")})
    assert (keys(first), keys(second)) == (["region"], ["name"])
    assert text(done) == "accept Ann accept EU noted"


@pytest.mark.parametrize("later", [accept(region="another"), {"action": "decline"}, None, "x"])
def test_a_returned_question_that_was_answered_is_not_answered_again(later: Any) -> None:
    async def mixed(ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            return handed(region=region_request())
        await ctx.elicit("Name?", Region, key="name")
        return told(ctx.input_responses["region"])

    *_, done = rounds(one_tool(mixed), {"region": accept(region="EU")}, {"name": accept(region="Ann"), "region": later})
    assert text(done) == "accept EU"


def test_all_three_forms_mix_in_one_function() -> None:
    async def mixed(ctx: Context, where: Annotated[Region, Resolve(ask_region)]) -> str | InputRequiredResult:
        name = await ctx.elicit("Name?", Region, key="name")
        if not ctx.input_responses:
            return handed(hotel=region_request("Hotel?"))
        return f"{where.region} {told(name)} {told(ctx.input_responses['hotel'])}"

    *asked, done = rounds(
        one_tool(mixed),
        {"region": accept(region="EU")},
        {"name": accept(region="Ann")},
        {"hotel": accept(region="Ritz")},
    )
    assert [keys(result) for result in asked] == [["region"], ["name"], ["hotel"]]
    assert text(done) == "EU accept Ann accept Ritz"


# Several questions in one round


def both_asked(results: list[Result]) -> None:
    assert messages(results[0]) == ["First?", "Second?"]


def test_ask_all_by_place_gives_a_tuple_in_that_order() -> None:
    async def tool(ctx: Context) -> str:
        first, second = await ctx.ask_all(Elicit("First?", Region, "a"), Elicit("Second?", Region, "b"))
        return f"{told(first)} {told(second)}"

    results = rounds(one_tool(tool), {"b": accept(region="2"), "a": accept(region="1")})
    both_asked(results)
    assert keys(results[0]) == ["a", "b"]
    assert text(results[1]) == "accept 1 accept 2"


def test_ask_all_by_name_gives_a_dict_and_the_names_are_the_keys() -> None:
    async def tool(ctx: Context) -> str:
        given = await ctx.ask_all(
            where=Elicit("Where?", Region, "ignored"),
            poem=Sample(messages="Write"),
            folders=ListRoots(),
            sure=ElicitURL("Sure?", "https://x.example"),
        )
        assert [*given] == ["where", "poem", "folders", "sure"]
        return f"{told(given['where'])} {given['poem'].content.text} {given['folders'][0].name} {given['sure'].action}"

    answers = {"where": accept(region="EU"), "poem": SAMPLED, "folders": ROOTS, "sure": {"action": "accept"}}
    asked, done = rounds(one_tool(tool), answers)
    assert keys(asked) == ["where", "poem", "folders", "sure"]
    assert text(done) == "accept EU a poem home accept"


def test_ask_all_takes_questions_by_place_or_by_name_not_both() -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(TypeError, match="not both"):
            await ctx.ask_all(ListRoots(), more=ListRoots())
        return "refused"

    assert text(rounds(one_tool(tool))[0]) == "refused"


def test_ask_all_of_one_question_twice_is_two_questions() -> None:
    async def tool(ctx: Context) -> str:
        pair = await ctx.ask_all(Elicit("Which?", Region), Elicit("Which?", Region))
        return " ".join(told(answer) for answer in pair)

    asked, done = rounds(one_tool(tool), lambda asked: {key: accept(region=str(n)) for n, key in enumerate(asked)})
    assert len(keys(asked)) == 2
    assert text(done) == "accept 0 accept 1"


BOTH = (("First?", "a"), ("Second?", "b"))


async def asked_by_gather(ctx: Context) -> list[Any]:
    return [*await asyncio.gather(ctx.elicit("First?", Region, "a"), ctx.elicit("Second?", Region, "b"))]


async def asked_by_group(ctx: Context) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.elicit(message, Region, key)) for message, key in BOTH]
    return [task.result() for task in tasks]


async def asked_by_nested_groups(ctx: Context) -> list[Any]:
    async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
        first = inner.create_task(ctx.elicit("First?", Region, "a"))
        second = outer.create_task(ctx.elicit("Second?", Region, "b"))
    return [first.result(), second.result()]


async def asked_by_group_in_a_group(ctx: Context) -> list[Any]:
    async def inside() -> list[Any]:
        return await asked_by_group(ctx)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(inside())
    return task.result()


async def asked_by_gather_in_a_group(ctx: Context) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asked_by_gather(ctx))
    return task.result()


async def asked_beside_a_body_that_waits(ctx: Context) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.elicit(message, Region, key)) for message, key in BOTH]
        await asyncio.wait(tasks)
    return [task.result() for task in tasks]


async def asked_under_a_timeout(ctx: Context) -> list[Any]:
    async with asyncio.timeout(60):
        return await asyncio.wait_for(asked_by_gather(ctx), 60)


async def asked_with_return_exceptions(ctx: Context) -> list[Any]:
    questions = (ctx.elicit("First?", Region, "a"), ctx.elicit("Second?", Region, "b"))
    return [*await asyncio.gather(*questions, return_exceptions=True)]


async def asked_by_ask_all(ctx: Context) -> list[Any]:
    return [*await ctx.ask_all(Elicit("First?", Region, "a"), Elicit("Second?", Region, "b"))]


TOGETHER = [
    asked_by_gather,
    asked_by_group,
    asked_by_nested_groups,
    asked_by_group_in_a_group,
    asked_by_gather_in_a_group,
    asked_beside_a_body_that_waits,
    asked_under_a_timeout,
    asked_with_return_exceptions,
    asked_by_ask_all,
]


def asking_together(how: Callable[[Context], Awaitable[list[Any]]]) -> MCPServer[Any]:
    async def tool(ctx: Context) -> str:
        return " ".join([told(answer) for answer in await how(ctx)])

    return one_tool(tool)


@pytest.mark.parametrize("how", TOGETHER)
def test_questions_asked_together_go_out_in_one_round(how: Callable[[Context], Awaitable[list[Any]]]) -> None:
    results = rounds(asking_together(how), {"a": accept(region="1"), "b": {"action": "decline"}})
    both_asked(results)
    assert text(results[1]) == "accept 1 decline"


@pytest.mark.parametrize("how", TOGETHER)
@pytest.mark.parametrize(("first", "second"), ["ab", "ba"])
def test_of_questions_asked_together_those_that_were_answered_are_kept(
    how: Callable[[Context], Awaitable[list[Any]]], first: str, second: str
) -> None:
    _, again, done = rounds(asking_together(how), {first: accept(region=first)}, {second: accept(region=second)})
    assert keys(again) == [second]
    assert text(done) == "accept a accept b"


def test_an_empty_ask_all_asks_nothing() -> None:
    async def tool(ctx: Context) -> str:
        return str(await ctx.ask_all())

    assert text(rounds(one_tool(tool))[0]) == "{}"


# What is left running


async def forever(tasks: list["asyncio.Task[Any]"]) -> None:
    task = asyncio.current_task()
    assert task is not None
    tasks.append(task)
    await asyncio.Event().wait()


async def all_cancelled(tasks: list["asyncio.Task[Any]"]) -> bool:
    await asyncio.wait(tasks, timeout=0.2)
    return all(task.cancelled() for task in tasks)


Stray = Callable[[Context, list["asyncio.Task[Any]"]], Awaitable[Any]]


async def beside(ctx: Context, tasks: list["asyncio.Task[Any]"]) -> None:
    await asyncio.gather(ctx.elicit("Which?", Region), forever(tasks), forever(tasks))


async def beside_under_a_timeout(ctx: Context, tasks: list["asyncio.Task[Any]"]) -> None:
    async with asyncio.timeout(60):
        await beside(ctx, tasks)


async def beside_under_wait_for(ctx: Context, tasks: list["asyncio.Task[Any]"]) -> None:
    await asyncio.wait_for(beside(ctx, tasks), 60)


async def beside_in_a_gather(ctx: Context, tasks: list["asyncio.Task[Any]"]) -> None:
    await asyncio.gather(beside(ctx, tasks), forever(tasks))


async def beside_in_a_group(ctx: Context, tasks: list["asyncio.Task[Any]"]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(beside(ctx, tasks))
        group.create_task(forever(tasks))


async def beside_one_that_already_waits(ctx: Context, tasks: list["asyncio.Task[Any]"]) -> None:
    async def later() -> None:
        await asyncio.sleep(0)
        await ctx.elicit("Which?", Region)

    await asyncio.gather(later(), forever(tasks))


@pytest.mark.parametrize(
    "stray",
    [
        beside,
        beside_under_a_timeout,
        beside_under_wait_for,
        beside_in_a_gather,
        beside_in_a_group,
        beside_one_that_already_waits,
    ],
)
def test_what_a_gather_leaves_running_is_cancelled_when_the_round_ends(stray: Stray) -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def tool(ctx: Context) -> str:
        await stray(ctx, tasks)
        return "never"

    async def script(client: Connection) -> None:
        (asked,) = await converse(client, [])
        assert messages(asked) == ["Which?"]
        assert tasks
        assert await all_cancelled(tasks)

    run_in(one_tool(tool), script)


@pytest.mark.parametrize("stray", [beside, beside_in_a_gather, beside_in_a_group])
def test_the_end_of_a_round_leaves_the_calls_beside_it_alone(stray: Stray) -> None:
    tasks: list[asyncio.Task[Any]] = []
    go_on = asyncio.Event()
    server = MCPServer("asker")

    @server.tool()
    async def asks(ctx: Context) -> str:
        await stray(ctx, tasks)
        return "never"

    @server.tool()
    async def waits() -> str:
        await go_on.wait()
        return "undisturbed"

    async def asking(client: Connection) -> Result:
        asked = await client.request("tools/call", {"name": "asks"})
        await all_cancelled(tasks)
        go_on.set()
        return asked

    async def script(client: Connection) -> None:
        waiting = client.request("tools/call", {"name": "waits"})
        results: list[Any] = await asyncio.gather(asking(client), waiting, return_exceptions=True)
        assert not any(isinstance(result, BaseException) for result in results)
        assert messages(results[0]) == ["Which?"]
        assert text(results[1]) == "undisturbed"

    run_in(server, script)


def test_a_context_that_outlives_its_round_asks_and_records_nothing() -> None:
    kept: list[Context] = []
    waiting: list[Callable[[Context], Awaitable[Any]]] = [
        lambda ctx: ctx.elicit("Which?", Region),
        lambda ctx: ctx.elicit_url("Which?", "https://x.example"),
        lambda ctx: ctx.sample("Which?"),
        lambda ctx: ctx.roots(),
        lambda ctx: ctx.ask_all(Elicit("Which?", Region)),
        lambda ctx: ctx.step(str),
        lambda ctx: ctx.session.list_roots(),
    ]
    at_once: list[Callable[[Context], Any]] = [Context.now, Context.random, Context.uuid]

    async def tool(ctx: Context) -> str:
        kept.append(ctx)
        return told(await ctx.elicit("Which?", Region))

    async def script(client: Connection) -> None:
        await converse(client, [])
        for ask in waiting:
            with pytest.raises(RoundOver):
                await ask(kept[0])
        for use in at_once:
            with pytest.raises(RoundOver):
                use(kept[0])

    run_in(one_tool(tool), script)


def test_a_context_is_over_as_well_when_its_round_ended_in_a_result() -> None:
    kept: list[Context] = []

    async def tool(ctx: Context) -> str:
        kept.append(ctx)
        return "done"

    async def script(client: Connection) -> None:
        await converse(client, [])
        with pytest.raises(RoundOver):
            await kept[0].elicit("Which?", Region)

    run_in(one_tool(tool), script)


def test_a_question_that_was_prepared_in_a_round_cannot_be_asked_after_it() -> None:
    kept: list[Awaitable[Any]] = []

    async def tool(ctx: Context) -> str:
        kept.append(ctx.elicit("Which?", Region))
        return "done"

    async def script(client: Connection) -> None:
        (done,) = await converse(client, [])
        assert "failed" in tool_error(done)
        with pytest.raises(RoundOver):
            await kept[0]

    run_in(one_tool(tool), script)


# Exceptions on the way out


def test_an_except_exception_does_not_swallow_a_question() -> None:
    async def tool(ctx: Context) -> str:
        try:
            return told(await ctx.elicit("Which?", Region))
        except Exception:
            return "swallowed"

    asked, done = rounds(one_tool(tool), every(accept(region="EU")))
    assert messages(asked) == ["Which?"]
    assert text(done) == "accept EU"


def test_a_bare_except_cannot_turn_a_question_into_a_result() -> None:
    async def tool(ctx: Context) -> str:
        try:
            return told(await ctx.elicit("Which?", Region))
        except BaseException:
            return "swallowed"

    asked, done = rounds(one_tool(tool), every(accept(region="EU")))
    assert messages(asked) == ["Which?"]
    assert text(done) == "accept EU"


def test_a_bare_except_cannot_turn_a_question_into_an_error() -> None:
    async def tool(ctx: Context) -> str:
        try:
            return told(await ctx.elicit("Which?", Region))
        except BaseException:
            raise ToolError("swallowed") from None

    asked, done = rounds(one_tool(tool), every(accept(region="EU")))
    assert messages(asked) == ["Which?"]
    assert text(done) == "accept EU"


def test_questions_behind_a_swallowed_one_join_its_round() -> None:
    async def tool(ctx: Context) -> str:
        answers = []
        for message in ("First?", "Second?"):
            try:
                answers.append(told(await ctx.elicit(message, Region)))
            except BaseException:
                continue
        return " ".join(answers)

    results = rounds(one_tool(tool), every(accept(region="EU")))
    both_asked(results)
    assert text(results[1]) == "accept EU accept EU"


def test_work_behind_a_swallowed_question_has_no_effect() -> None:
    """What the function goes on to do was decided without the answer."""
    charged: list[str] = []

    def charge() -> str:
        charged.append("charged")
        return "ok"

    async def tool(ctx: Context) -> str:
        try:
            sure = (await ctx.elicit("Sure?", Region, "sure")).action == "accept"
        except BaseException:
            sure = True
        return await ctx.step(charge) if sure else "left alone"

    asked, done = rounds(one_tool(tool), {"sure": {"action": "decline"}})
    assert keys(asked) == ["sure"]
    assert text(done) == "left alone"
    assert charged == []


def test_an_error_in_a_finally_does_not_replace_the_question() -> None:
    async def tool(ctx: Context) -> str:
        try:
            return told(await ctx.elicit("Which?", Region))
        finally:
            if ctx.suspending:
                raise RuntimeError("the cleaning failed")

    asked, done = rounds(one_tool(tool), every(accept(region="EU")))
    assert messages(asked) == ["Which?"]
    assert text(done) == "accept EU"


def test_a_transaction_around_a_question_is_rolled_back_and_committed_in_the_end() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def transaction() -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            seen.append("rollback")
            raise
        seen.append("commit")

    async def tool(ctx: Context) -> str:
        async with transaction():
            return told(await ctx.elicit("Which?", Region))

    asked, done = rounds(one_tool(tool), every(accept(region="EU")))
    assert messages(asked) == ["Which?"]
    assert text(done) == "accept EU"
    assert seen == ["rollback", "commit"]


def test_a_function_can_tell_that_it_is_being_unwound() -> None:
    seen: list[bool] = []

    async def tool(ctx: Context) -> str:
        try:
            return told(await ctx.elicit("Which?", Region))
        finally:
            seen.append(ctx.suspending)

    rounds(one_tool(tool), every(accept(region="EU")))
    assert seen == [True, False]


async def fail(error: Exception) -> None:
    raise error


GroupedErrors = [
    (["ask", ToolError("no more rooms")], "no more rooms"),
    ([ToolError("no more rooms"), "ask"], "no more rooms"),
    (["ask", ToolError("no more rooms"), "ask"], "no more rooms"),
    ([ToolError("no more rooms")], "no more rooms"),
    (["ask", RuntimeError("a secret of the code")], "The tool failed"),
    (["ask", RuntimeError("a secret"), ValueError("another")], "The tool failed"),
]


@pytest.mark.parametrize(("parts", "expected"), GroupedErrors)
@pytest.mark.parametrize("depth", [1, 2])
def test_a_real_error_in_a_task_group_is_what_the_call_ends_in(parts: list[Any], expected: str, depth: int) -> None:
    async def grouped(ctx: Context, depth: int) -> None:
        async with asyncio.TaskGroup() as group:
            if depth > 1:
                group.create_task(grouped(ctx, depth - 1))
                return
            for part in parts:
                group.create_task(ctx.elicit("Which?", Region) if part == "ask" else fail(part))

    async def tool(ctx: Context) -> str:
        await grouped(ctx, depth)
        return "never"

    (done,) = rounds(one_tool(tool))
    assert expected in tool_error(done)
    assert "secret" not in tool_error(done)


def test_a_real_error_in_a_task_group_of_a_prompt_is_a_json_rpc_error() -> None:
    server = MCPServer("asker")

    @server.prompt("it")
    async def prompt(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.elicit("Which?", Region))
            group.create_task(fail(MCPError(4099, "not today")))
        return "never"

    with pytest.raises(MCPError) as caught:
        rounds(server, method="prompts/get")
    assert caught.value.code == 4099


# What is no answer


NO_ANSWER_TO_A_FORM: dict[str, Any] = {
    "null": None,
    "wrong type": accept(region=5, nights=2),
    "wrong type of one": accept(region="EU", nights="two"),
    "missing field": accept(region="EU"),
    "empty content": accept(),
    "no content": {"action": "accept"},
    "null content": {"action": "accept", "content": None},
    "content as a list": {"action": "accept", "content": [{"region": "EU", "nights": 2}]},
    "content as text": {"action": "accept", "content": "EU"},
    "content as a number": {"action": "accept", "content": 1},
    "null field": accept(region=None, nights=2),
    "unknown action": {"action": "maybe", "content": {"region": "EU", "nights": 2}},
    "action in capitals": {"action": "ACCEPT", "content": {"region": "EU", "nights": 2}},
    "action as a list": {"action": ["accept"], "content": {"region": "EU", "nights": 2}},
    "action as an object": {"action": {"accept": True}, "content": {"region": "EU", "nights": 2}},
    "null action": {"action": None, "content": {"region": "EU", "nights": 2}},
    "no action": {"content": {"region": "EU", "nights": 2}},
    "bare content": {"region": "EU", "nights": 2},
    "a list": [accept(region="EU", nights=2)],
    "an empty list": [],
    "an empty object": {},
    "text": "accept",
    "a number": 7,
    "true": True,
    "false": False,
    "a model's answer": SAMPLED,
    "a list of roots": ROOTS,
    "wrapped in a result": {"result": accept(region="EU", nights=2)},
    "a json-rpc response": {"jsonrpc": "2.0", "id": 1, "result": accept(region="EU", nights=2)},
    "an error": {"code": -1, "message": "no"},
}
NO_ANSWER_TO_A_PAGE: dict[str, Any] = {
    "null": None,
    "unknown action": {"action": "visited"},
    "no action": {"content": {}},
    "a list": [{"action": "accept"}],
    "text": "accept",
}
NO_ANSWER_OF_A_MODEL: dict[str, Any] = {
    "null": None,
    "an elicitation": accept(region="EU"),
    "no content": {"role": "assistant", "model": "m"},
    "no model": {"role": "assistant", "content": {"type": "text", "text": "x"}},
    "a role that is none": SAMPLED | {"role": "system"},
    "content as text": SAMPLED | {"content": "a poem"},
    "content of no kind": SAMPLED | {"content": {"type": "smell"}},
    "a list": [SAMPLED],
    "text": "a poem",
}
NO_ROOTS: dict[str, Any] = {
    "null": None,
    "an elicitation": accept(roots=[]),
    "null roots": {"roots": None},
    "a root without uri": {"roots": [{"name": "home"}]},
    "a root that is no file": {"roots": [{"uri": "https://x.example"}]},
    "a root as text": {"roots": ["file:///home"]},
    "a list": [],
    "text": "file:///home",
}


async def ask_trip(ctx: Context) -> str:
    answer = await ctx.elicit("Where to?", Trip, key="q")
    assert isinstance(answer, AcceptedElicitation)
    return f"{answer.data.region} {answer.data.nights}"


def trip_marker() -> Elicit[Trip]:
    return Elicit("Where to?", Trip, key="q")


async def ask_trip_declared(trip: Annotated[Trip, Resolve(trip_marker)]) -> str:
    return f"{trip.region} {trip.nights}"


async def ask_trip_together(ctx: Context) -> str:
    answers = await ctx.ask_all(q=trip_marker())
    return f"{answers['q'].data.region} {answers['q'].data.nights}"


@pytest.mark.parametrize("case", NO_ANSWER_TO_A_FORM)
@pytest.mark.parametrize("tool", [ask_trip, ask_trip_declared, ask_trip_together])
def test_what_is_no_answer_to_a_form_is_asked_again(tool: Callable[..., Any], case: str) -> None:
    good = accept(region="EU", nights=2)
    first, again, done = rounds(one_tool(tool), {"q": NO_ANSWER_TO_A_FORM[case]}, {"q": good})
    assert again["inputRequests"] == first["inputRequests"]
    assert text(done) == "EU 2"


@pytest.mark.parametrize("case", NO_ANSWER_TO_A_PAGE)
def test_what_is_no_answer_to_a_page_is_asked_again(case: str) -> None:
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in", "https://x.example", key="q")).action

    first, again, done = rounds(one_tool(tool), {"q": NO_ANSWER_TO_A_PAGE[case]}, {"q": {"action": "accept"}})
    assert again["inputRequests"] == first["inputRequests"]
    assert text(done) == "accept"


@pytest.mark.parametrize("case", NO_ANSWER_OF_A_MODEL)
def test_what_is_no_answer_of_a_model_is_asked_again(case: str) -> None:
    async def tool(ctx: Context) -> str:
        content = (await ctx.sample("Write", key="q")).content
        assert isinstance(content, mcp_types.TextContent)
        return content.text

    first, again, done = rounds(one_tool(tool), {"q": NO_ANSWER_OF_A_MODEL[case]}, {"q": SAMPLED})
    assert again["inputRequests"] == first["inputRequests"]
    assert text(done) == "a poem"


@pytest.mark.parametrize("case", NO_ROOTS)
def test_what_is_no_list_of_roots_is_asked_again(case: str) -> None:
    async def tool(ctx: Context) -> str:
        return str((await ctx.roots(key="q"))[0].uri)

    first, again, done = rounds(one_tool(tool), {"q": NO_ROOTS[case]}, {"q": ROOTS})
    assert again["inputRequests"] == first["inputRequests"]
    assert text(done) == "file:///home"


@pytest.mark.parametrize("case", ["null", "unknown action", "no action", "a list", "text", "a number", "true"])
def test_what_is_no_answer_is_not_among_the_responses_of_the_returned_form(case: str) -> None:
    first, again, done = rounds(
        one_tool(returned), {"region": NO_ANSWER_TO_A_FORM[case]}, {"region": accept(region="EU")}
    )
    assert again["inputRequests"] == first["inputRequests"]
    assert text(done) == "accept EU"


def test_a_model_that_bears_with_no_content_gets_its_way() -> None:
    class Tolerant(BaseModel):
        region: str = "anywhere"

        @model_validator(mode="before")
        @classmethod
        def fill(cls, value: Any) -> Any:
            return {} if value is None else value

    async def tool(ctx: Context) -> str:
        first = await ctx.elicit("Which?", Tolerant, key="q")
        await ctx.elicit("Sure?", Region, key="sure")
        assert isinstance(first, AcceptedElicitation)
        return first.data.region

    *_, done = rounds(one_tool(tool), {"q": {"action": "accept"}}, {"sure": accept(region="x")})
    assert text(done) == "anywhere"


def test_members_that_were_not_asked_for_are_ignored() -> None:
    async def tool(ctx: Context) -> str:
        first = await ctx.elicit("Where to?", Trip, key="q")
        await ctx.elicit("Sure?", Region, key="sure")
        assert isinstance(first, AcceptedElicitation)
        return str(first.data)

    answer = accept(region="EU", nights=2, price=0, admin=True) | {"_meta": {"x": 1}, "role": "admin"}
    *_, done = rounds(one_tool(tool), {"q": answer}, {"sure": accept(region="x")})
    assert text(done) == "region='EU' nights=2"


def test_a_decline_with_content_is_a_decline() -> None:
    _, done = rounds(one_tool(inline), {"region": {"action": "decline", "content": {"region": "EU"}}})
    assert text(done) == "decline"


def test_an_answer_under_another_key_is_no_answer() -> None:
    _, again, done = rounds(
        one_tool(inline), {"Region": accept(region="x"), "other": accept(region="x")}, {"region": accept(region="EU")}
    )
    assert keys(again) == ["region"]
    assert text(done) == "accept EU"


def test_answers_to_what_was_not_asked_are_forgotten() -> None:
    async def tool(ctx: Context) -> str:
        first = await ctx.elicit("First?", Region, key="first")
        second = await ctx.elicit("Second?", Region, key="second")
        return f"{told(first)} {told(second)}"

    _, again, done = rounds(
        one_tool(tool),
        {"first": accept(region="1"), "second": accept(region="too early")},
        {"second": accept(region="2")},
    )
    assert keys(again) == ["second"]
    assert text(done) == "accept 1 accept 2"


def test_an_answer_given_once_cannot_be_changed_later() -> None:
    async def tool(ctx: Context) -> str:
        first = await ctx.elicit("First?", Region, key="first")
        second = await ctx.elicit("Second?", Region, key="second")
        return f"{told(first)} {told(second)}"

    *_, done = rounds(
        one_tool(tool),
        {"first": accept(region="1")},
        {"first": accept(region="another"), "second": accept(region="2")},
    )
    assert text(done) == "accept 1 accept 2"


@pytest.mark.parametrize("form", ["inline", "declared"])
def test_answers_without_the_token_that_asked_for_them_are_not_accepted(form: str) -> None:
    answered = {**IT, "inputResponses": {"region": accept(region="EU")}}
    (asked,) = rounds(one_tool(FORMS[form][0]), params=answered)
    assert keys(asked) == ["region"]


def test_what_came_without_a_token_does_not_depend_on_the_context_having_been_used() -> None:
    async def tool(ctx: Context, touch: bool) -> str:
        if touch:
            assert ctx.flow_id
        return str(sorted(ctx.input_responses or ()))

    answered = {"inputResponses": {"region": accept(region="EU")}}
    seen = {
        text(rounds(one_tool(tool), params={**IT, "arguments": {"touch": touch}, **answered})[0])
        for touch in (False, True)
    }
    assert len(seen) == 1


def test_a_round_that_brings_nothing_is_asked_the_same_again() -> None:
    first, second, third = rounds(one_tool(inline), {}, {})
    assert first["inputRequests"] == second["inputRequests"] == third["inputRequests"]


def test_an_answer_is_the_same_value_in_its_own_round_and_in_every_replay() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")
        region: str

    seen: list[Any] = []

    async def tool(ctx: Context) -> str:
        seen.append(await ctx.elicit("Which?", Open, key="q"))
        await ctx.elicit("Sure?", Region, key="sure")
        return "done"

    rounds(one_tool(tool), {"q": accept(region="EU", also="this")}, {"sure": accept(region="x")})
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_a_strict_model_takes_what_json_can_say() -> None:
    class Colour(Enum):
        RED = "red"

    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        day: date
        colour: Colour

    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("When?", Strict, key="q")
        assert isinstance(answer, AcceptedElicitation)
        return f"{answer.data.day} {answer.data.colour.name}"

    _, done = rounds(one_tool(tool), {"q": accept(day="2026-07-28", colour="red")})
    assert text(done) == "2026-07-28 RED"


# Questions that change


class Longer(BaseModel):
    region: str
    why: str = ""


CHANGES: dict[str, tuple[tuple[str, Any], tuple[str, Any]]] = {
    "the message": (("Which?", Region), ("Which one?", Region)),
    "the schema": (("Which?", Region), ("Which?", Longer)),
    "a choice more": (("Which?", Literal["a", "b"]), ("Which?", Literal["a", "b", "c"])),
}


@pytest.mark.parametrize("case", CHANGES)
@pytest.mark.parametrize("settled", [False, True], ids=["while it is out", "after its answer"])
def test_an_answer_is_never_given_to_a_question_that_changed(case: str, settled: bool) -> None:
    before, after = CHANGES[case]
    current = [before]

    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit(*current[0], key="q")
        await ctx.elicit("Sure?", Region, key="sure")
        return str(answer.action)

    given = {"q": accept(region="a", value="a")}

    async def script(client: Connection) -> None:
        async def play(last: Result, answers: Mapping[str, Any]) -> Result:
            retry = {**IT, "inputResponses": answers, "requestState": last["requestState"]}
            return await client.request("tools/call", retry)

        last = await client.request("tools/call", IT)
        if settled:
            last = await play(last, given)
            assert keys(last) == ["sure"]
        current[0] = after
        last = await play(last, {"sure": accept(region="x")} if settled else given)
        assert messages(last) == [after[0]]
        last = await play(last, given)
        if not settled:
            assert keys(last) == ["sure"]
            last = await play(last, {"sure": accept(region="x")})
        assert text(last) == "accept"

    run_in(one_tool(tool), script)


def test_a_rolling_upgrade_keeps_what_still_fits_and_asks_the_rest() -> None:
    wanted = [["github", "google"]]

    async def tool(ctx: Context) -> str:
        answers = await ctx.ask_all(**{name: Elicit(f"Log in to {name}", Region) for name in wanted[0]})
        return " ".join(f"{name}={answers[name].data.region}" for name in answers)

    async def script(client: Connection) -> None:
        first = await client.request("tools/call", IT)
        assert keys(first) == ["github", "google"]
        wanted[0] = ["github", "microsoft"]
        answers = {"github": accept(region="1"), "google": accept(region="2")}
        retry = {**IT, "inputResponses": answers, "requestState": first["requestState"]}
        second = await client.request("tools/call", retry)
        assert keys(second) == ["microsoft"]
        retry = {**IT, "inputResponses": {"microsoft": accept(region="3")}, "requestState": second["requestState"]}
        assert text(await client.request("tools/call", retry)) == "github=1 microsoft=3"

    run_in(one_tool(tool), script)


def test_an_answer_that_was_not_reached_this_time_is_kept_for_later() -> None:
    first_asks = [False]

    async def tool(ctx: Context) -> str:
        before = [told(await ctx.elicit("New?", Region, key="new"))] if first_asks[0] else []
        return " ".join(before + [told(answer) for answer in await asked_by_gather(ctx)])

    async def script(client: Connection) -> None:
        first = await client.request("tools/call", IT)
        first_asks[0] = True
        answers = {"a": accept(region="1"), "b": {"action": "decline"}}
        second = await client.request(
            "tools/call", {**IT, "inputResponses": answers, "requestState": first["requestState"]}
        )
        assert keys(second) == ["new"]
        answers = {"new": accept(region="0")}
        third = await client.request(
            "tools/call", {**IT, "inputResponses": answers, "requestState": second["requestState"]}
        )
        assert text(third) == "accept 0 accept 1 decline"

    run_in(one_tool(tool), script)


@pytest.mark.parametrize("case", NO_ANSWER_TO_A_FORM)
def test_an_unreached_answer_that_does_not_fit_is_asked_again_in_the_end(case: str) -> None:
    first_asks = [False]

    async def tool(ctx: Context) -> str:
        if first_asks[0]:
            await ctx.elicit("New?", Region, key="new")
        return await ask_trip(ctx)

    async def script(client: Connection) -> None:
        last = await client.request("tools/call", IT)
        first_asks[0] = True
        for answers in ({"q": NO_ANSWER_TO_A_FORM[case]}, {"new": accept(region="0")}):
            retry = {**IT, "inputResponses": answers, "requestState": last["requestState"]}
            last = await client.request("tools/call", retry)
        assert keys(last) == ["q"]
        retry = {**IT, "inputResponses": {"q": accept(region="EU", nights=2)}, "requestState": last["requestState"]}
        assert text(await client.request("tools/call", retry)) == "EU 2"

    run_in(one_tool(tool), script)


# What the client can do


def url_marker() -> ElicitURL:
    return ElicitURL("Log in", "https://x.example", key="q")


def form_marker() -> Elicit[Region]:
    return Elicit("Which?", Region, key="q")


def sample_marker() -> Sample:
    return Sample(messages="Write", key="q")


TOOL = mcp_types.Tool(name="look", input_schema={"type": "object"})


def sample_with_tools_marker() -> Sample:
    return Sample(messages="Write", key="q", tools=[TOOL])


def sample_with_choice_marker() -> Sample:
    return Sample(messages="Write", key="q", tool_choice=mcp_types.ToolChoice(mode="none"))


def roots_marker() -> ListRoots:
    return ListRoots(key="q")


def request_for(marker: Any) -> Any:
    """A marker as an author would write it in the returned form."""
    messages = [mcp_types.SamplingMessage(role="user", content=mcp_types.TextContent(text="Write"))]
    match marker:
        case Elicit():
            return region_request()
        case ElicitURL():
            params = mcp_types.ElicitRequestURLParams(message="Log in", url="https://x.example", elicitation_id="1")
            return mcp_types.ElicitRequest(params=params)
        case Sample():
            sampling = mcp_types.CreateMessageRequestParams(
                messages=messages, max_tokens=5, tools=marker.tools, tool_choice=marker.tool_choice
            )
            return mcp_types.CreateMessageRequest(params=sampling)
        case _:
            return mcp_types.ListRootsRequest()


def asking_form(form: str, marker: Callable[[], Any]) -> MCPServer[Any]:
    async def by_marker(ctx: Context) -> str:
        await ctx.ask(marker())
        return "answered"

    async def by_ask_all(ctx: Context) -> str:
        await ctx.ask_all(q=marker())
        return "answered"

    async def by_gather(ctx: Context) -> str:
        await asyncio.gather(ctx.ask(marker()))
        return "answered"

    async def by_declaration(value: Annotated[Any, Resolve(marker)]) -> str:
        return "answered"

    async def by_return(ctx: Context) -> InputRequiredResult | str:
        return "answered" if ctx.input_responses else handed(q=request_for(marker()))

    ways: dict[str, Callable[..., Any]] = {
        "inline": by_marker,
        "ask_all": by_ask_all,
        "gather": by_gather,
        "declared": by_declaration,
        "returned": by_return,
    }
    return one_tool(ways[form])


NEEDS_FORM: dict[str, Any] = {"elicitation": {"form": {}}}
NEEDS_URL: dict[str, Any] = {"elicitation": {"url": {}}}
NEEDS_TOOLS: dict[str, Any] = {"sampling": {"tools": {}}}
GATE: list[tuple[Callable[[], Any], dict[str, Any], dict[str, Any] | None]] = [
    (form_marker, {}, NEEDS_FORM),
    (form_marker, {"elicitation": {}}, None),
    (form_marker, {"elicitation": {"form": {}}}, None),
    (form_marker, {"elicitation": {"url": {}}}, NEEDS_FORM),
    (form_marker, {"elicitation": True}, NEEDS_FORM),
    (form_marker, {"elicitation": None}, NEEDS_FORM),
    (form_marker, {"sampling": {}, "roots": {}}, NEEDS_FORM),
    (url_marker, {}, NEEDS_URL),
    (url_marker, {"elicitation": {}}, NEEDS_URL),
    (url_marker, {"elicitation": {"form": {}}}, NEEDS_URL),
    (url_marker, {"elicitation": {"url": {}}}, None),
    (sample_marker, {}, {"sampling": {}}),
    (sample_marker, {"elicitation": {}}, {"sampling": {}}),
    (sample_marker, {"sampling": {}}, None),
    (sample_marker, {"sampling": {"tools": {}}}, None),
    (sample_with_tools_marker, {}, NEEDS_TOOLS),
    (sample_with_tools_marker, {"sampling": {}}, NEEDS_TOOLS),
    (sample_with_tools_marker, {"sampling": {"context": {}}}, NEEDS_TOOLS),
    (sample_with_tools_marker, {"sampling": {"tools": {}}}, None),
    (sample_with_choice_marker, {"sampling": {}}, NEEDS_TOOLS),
    (roots_marker, {}, {"roots": {}}),
    (roots_marker, {"roots": {}}, None),
    (roots_marker, {"roots": {"listChanged": True}}, None),
]


@pytest.mark.parametrize("form", ["inline", "ask_all", "gather", "declared", "returned"])
@pytest.mark.parametrize(("marker", "declared", "missing"), GATE)
def test_only_what_the_client_declared_is_asked(
    form: str, marker: Callable[[], Any], declared: dict[str, Any], missing: dict[str, Any] | None
) -> None:
    server = asking_form(form, marker)
    if missing is None:
        (asked,) = rounds(server, capabilities=declared)
        assert keys(asked) == ["q"]
        return
    with pytest.raises(MCPError) as caught:
        rounds(server, capabilities=declared)
    assert caught.value.code == -32021
    assert caught.value.data == {"requiredCapabilities": missing}


def undeclared(how: str, first: Any, second: Any) -> Callable[..., Any]:
    async def by_ask_all(ctx: Context) -> str:
        return str(await ctx.ask_all(first, second))

    async def by_gather(ctx: Context) -> str:
        return str(await asyncio.gather(ctx.ask(first), ctx.ask(second)))

    async def by_group(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.ask(first))
            group.create_task(ctx.ask(second))
        return "never"

    async def by_declaration(
        one: Annotated[Any, Resolve(lambda: first)], two: Annotated[Any, Resolve(lambda: second)]
    ) -> str:
        return "never"

    async def by_return(ctx: Context) -> InputRequiredResult:
        return handed(one=request_for(first), two=request_for(second))

    ways: dict[str, Callable[..., Any]] = {
        "ask_all": by_ask_all,
        "gather": by_gather,
        "group": by_group,
        "declared": by_declaration,
        "returned": by_return,
    }
    return ways[how]


@pytest.mark.parametrize("how", ["ask_all", "gather", "group", "declared", "returned"])
@pytest.mark.parametrize("order", [1, -1], ids=["the other first", "the other last"])
def test_nothing_is_asked_where_one_of_several_questions_cannot_be(how: str, order: int) -> None:
    first, second = [form_marker(), Sample(messages="Write", key="s")][::order]
    with pytest.raises(MCPError) as caught:
        rounds(one_tool(undeclared(how, first, second)), capabilities={"elicitation": {}})
    assert caught.value.code == -32021
    assert caught.value.data == {"requiredCapabilities": {"sampling": {}}}


@pytest.mark.parametrize("how", ["inline", "ask_all"])
def test_an_author_may_go_without_what_the_client_cannot_answer(how: str) -> None:
    async def tool(ctx: Context) -> str:
        try:
            if how == "inline":
                await ctx.sample("Write")
            await ctx.ask_all(a=form_marker(), b=sample_marker())
        except MissingClientCapability as error:
            return f"without {', '.join(error.required)}"
        return "never"

    (done,) = rounds(one_tool(tool), capabilities={"elicitation": {}})
    assert text(done) == "without sampling"


@pytest.mark.parametrize("how", ["gather", "group"])
def test_an_author_may_go_without_in_one_task_and_ask_in_another(how: str) -> None:
    async def poem(ctx: Context) -> str:
        try:
            return str(await ctx.sample("Write"))
        except MissingClientCapability:
            return "no poem"

    async def tool(ctx: Context) -> str:
        if how == "gather":
            verse, where = await asyncio.gather(poem(ctx), ctx.elicit("Which?", Region, "q"))
            return f"{verse} {told(where)}"
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(poem(ctx)), group.create_task(ctx.elicit("Which?", Region, "q"))
        return f"{first.result()} {told(second.result())}"

    asked, done = rounds(one_tool(tool), {"q": accept(region="EU")}, capabilities={"elicitation": {}})
    assert keys(asked) == ["q"]
    assert text(done) == "no poem accept EU"


def test_capabilities_are_those_of_the_request_at_hand() -> None:
    async def script(client: Connection) -> None:
        (asked,) = await converse(client, [])
        client.capabilities = {}
        retry = {**IT, "inputResponses": {}, "requestState": asked["requestState"]}
        with pytest.raises(MCPError) as caught:
            await client.request("tools/call", retry)
        assert caught.value.code == -32021

    run_in(one_tool(inline), script)


# Who may ask


async def ask_by_hand(ctx: Context, params: dict[str, Any]) -> Any:
    await ctx.elicit("Which?", Region)


async def return_by_hand(ctx: Context, params: dict[str, Any]) -> Any:
    return handed("state", region=region_request())


@pytest.mark.parametrize("fn", [ask_by_hand, return_by_hand])
@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "server/discover", "example/custom"])
def test_no_other_method_asks(fn: Callable[..., Any], method: str) -> None:
    server = MCPServer("asker")
    server.handler(method)(fn)
    with pytest.raises(MCPError) as caught:
        rounds(server, method=method, params={})
    assert caught.value.code == -32603
    assert caught.value.message == "Internal error"


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_a_handler_written_by_hand_asks_where_asking_is_allowed(method: str) -> None:
    server = MCPServer("asker")

    @server.handler(method)
    async def by_hand(ctx: Context, params: dict[str, Any]) -> Any:
        if not ctx.input_responses:
            return handed("noted", region=region_request())
        name = told(ctx.input_responses["region"])
        return {"content": [{"type": "text", "text": f"{name} {ctx.request_state}"}]}

    _, done = rounds(server, {"region": accept(region="EU")}, method=method)
    assert text(done) == "accept EU noted"


def test_a_resource_that_asks_cannot_be_read_from_inside_a_call() -> None:
    server = MCPServer("asker")
    server.resource("it://front")(inline)

    @server.tool("it")
    async def tool(ctx: Context) -> str:
        return str(await ctx.read_resource("it://front"))

    (done,) = rounds(server)
    assert tool_error(done)


# The returned form


def test_a_returned_state_alone_is_a_result_with_an_empty_list_of_questions() -> None:
    async def tool(ctx: Context) -> str | InputRequiredResult:
        if ctx.request_state is None:
            return InputRequiredResult(request_state="half way, in plain text")
        return f"from {ctx.request_state}: {ctx.input_responses}"

    asked, done = rounds(one_tool(tool), {})
    assert asked["inputRequests"] == {}
    assert "half way" not in asked["requestState"]
    assert text(done) == "from half way, in plain text: None"


def test_a_returned_question_without_state_still_has_a_token() -> None:
    (asked,) = rounds(one_tool(returned))
    assert isinstance(asked["requestState"], str)


def test_a_returned_result_without_questions_and_state_is_the_authors_mistake() -> None:
    async def tool(ctx: Context) -> InputRequiredResult:
        return InputRequiredResult.model_construct(input_requests=None, request_state=None)

    (done,) = rounds(one_tool(tool))
    assert tool_error(done).startswith("The tool failed")


def test_a_returned_state_lasts_for_one_round() -> None:
    async def tool(ctx: Context) -> str | InputRequiredResult:
        match ctx.request_state:
            case None:
                return handed("one", region=region_request())
            case "one":
                return InputRequiredResult(input_requests={"region": region_request("And then?")})
            case other:
                raise AssertionError(other)

    first, second, third = rounds(one_tool(tool), {"region": accept(region="1")}, {"region": accept(region="2")})
    assert (messages(first), messages(second), messages(third)) == (["Which region?"], ["And then?"], ["Which region?"])


def test_a_returned_question_may_be_asked_over_and_over_under_one_key() -> None:
    async def tool(ctx: Context) -> str | InputRequiredResult:
        seen = ctx.request_state or ""
        if ctx.input_responses:
            seen += str(ctx.input_responses["region"].content["region"])
        return f"all: {seen}" if len(seen) == 3 else handed(seen, region=region_request())

    *_, done = rounds(one_tool(tool), *({"region": accept(region=letter)} for letter in "abc"))
    assert text(done) == "all: abc"


def test_each_kind_of_returned_question_is_answered_in_its_official_type() -> None:
    async def tool(ctx: Context) -> str | InputRequiredResult:
        if not ctx.input_responses:
            return handed(
                form=region_request(),
                page=request_for(url_marker()),
                poem=request_for(sample_marker()),
                folders=request_for(roots_marker()),
                tooled=request_for(sample_with_tools_marker()),
            )
        return " ".join(type(answer).__name__ for answer in ctx.input_responses.values())

    answers = {
        "form": accept(region="EU"),
        "page": {"action": "accept"},
        "poem": SAMPLED,
        "folders": ROOTS,
        "tooled": SAMPLED | {"content": [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]},
    }
    asked, done = rounds(one_tool(tool), answers)
    assert asked["inputRequests"]["folders"]["method"] == "roots/list"
    assert asked["inputRequests"]["poem"]["params"]["maxTokens"] == 5
    expected = "ElicitResult ElicitResult CreateMessageResult ListRootsResult CreateMessageResultWithTools"
    assert text(done) == expected


def test_a_plain_function_may_return_its_questions() -> None:
    def tool(ctx: Context) -> str | InputRequiredResult:
        return told(ctx.input_responses["region"]) if ctx.input_responses else handed(region=region_request())

    _, done = rounds(one_tool(tool), {"region": accept(region="EU")})
    assert text(done) == "accept EU"


# Keys


SOURCE = """
from enum import Enum
from typing import Annotated
from pydantic import BaseModel
from turnwise import Context, Elicit, Resolve

class Colour{suffix}(Enum):
    RED = "red"
    BLUE = "blue"

class SecretModel{suffix}(BaseModel):
    region: str
    paint: Colour{suffix} = Colour{suffix}.RED

def secret_resolver{suffix}() -> Elicit[SecretModel{suffix}]:
    return Elicit("Declared?", SecretModel{suffix})

async def secret_function{suffix}(
    ctx: Context, first: Annotated[SecretModel{suffix}, Resolve(secret_resolver{suffix})]
) -> str:
    await ctx.ask_all(Elicit("Inline?", SecretModel{suffix}), Elicit("Plain?", str))
    return "done"

tool = secret_function{suffix}
"""


def questions_of(module_name: str, suffix: str) -> list[Asked]:
    module = types.ModuleType(module_name)
    exec(SOURCE.format(suffix=suffix), module.__dict__)
    results = rounds(one_tool(module.tool), every(accept(region="EU")))
    return [result["inputRequests"] for result in results]


def test_derived_keys_survive_moving_the_module() -> None:
    assert questions_of("one.module", "") == questions_of("quite.another", "")


def test_derived_keys_survive_renaming_everything_that_is_python() -> None:
    before, after = questions_of("one.module", ""), questions_of("one.module", "Renamed")
    assert [[*asked] for asked in before] == [[*asked] for asked in after]


def test_questions_show_nothing_of_the_codes_names() -> None:
    shown = str(questions_of("a.private.module", ""))
    for name in ("private", "module", "Secret", "secret", "resolver", "Colour"):
        assert name not in shown


def test_a_field_of_choices_is_labelled_by_its_own_name() -> None:
    class Colour(Enum):
        RED = "red"

    class Car(BaseModel):
        body: Colour

    async def tool(ctx: Context) -> str:
        await ctx.elicit("Which?", Car, key="q")
        return "never"

    (asked,) = rounds(one_tool(tool))
    assert asked["inputRequests"]["q"]["params"]["requestedSchema"]["properties"]["body"].get("title") == "Body"


def test_different_questions_have_different_derived_keys() -> None:
    markers: list[Any] = [
        Elicit("Which?", Region),
        Elicit("Which one?", Region),
        Elicit("Which?", Longer),
        Elicit("Which?", str),
        ElicitURL("Which?", "https://x.example"),
        ElicitURL("Which?", "https://y.example"),
        Sample(messages="Which?"),
        Sample(messages="Which?", max_tokens=5),
        ListRoots(),
    ]

    async def tool(ctx: Context) -> str:
        await ctx.ask_all(*markers)
        return "never"

    (asked,) = rounds(one_tool(tool))
    assert len(keys(asked)) == len(markers)
    assert not any("#" in key for key in keys(asked))


def test_the_authors_key_is_the_key_on_the_wire() -> None:
    async def tool(ctx: Context) -> str:
        await asyncio.gather(
            ctx.elicit("Which?", Region, key="github_login"),
            ctx.elicit_url("Log in", "https://x.example", key="a page"),
            ctx.sample("Write", key="poem"),
            ctx.roots(key="folders"),
        )
        return "never"

    (asked,) = rounds(one_tool(tool))
    assert keys(asked) == ["github_login", "a page", "poem", "folders"]


def test_a_key_used_twice_is_numbered_from_its_second_use_on() -> None:
    async def tool(ctx: Context) -> str:
        answers = await asyncio.gather(*(ctx.elicit(f"Number {n}?", Region, key="k") for n in range(3)))
        return " ".join(told(answer) for answer in answers)

    answers = {"k": accept(region="0"), "k#2": accept(region="1"), "k#3": accept(region="2")}
    asked, done = rounds(one_tool(tool), answers)
    assert keys(asked) == ["k", "k#2", "k#3"]
    assert text(done) == "accept 0 accept 1 accept 2"


@pytest.mark.parametrize("key", ["k#2", "#", ""])
def test_a_key_that_could_be_mistaken_for_a_numbered_one_is_refused(key: str) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(ValueError, match="#"):
            await ctx.elicit("Which?", Region, key)
        with pytest.raises(ValueError, match="#"):
            await ctx.ask_all(**{key: Elicit("Which?", Region)})
        return "refused"

    assert text(rounds(one_tool(tool))[0]) == "refused"


def test_a_loop_may_ask_the_same_question_until_the_user_has_had_enough() -> None:
    async def tool(ctx: Context) -> str:
        got = []
        while isinstance(answer := await ctx.elicit("Another?", Region, key="more"), AcceptedElicitation):
            got.append(answer.data.region)
        return " ".join(got)

    *asked, done = rounds(
        one_tool(tool),
        {"more": accept(region="a")},
        {"more#2": accept(region="b")},
        {"more#3": accept(region="c")},
        {"more#4": {"action": "decline"}},
    )
    assert [keys(result) for result in asked] == [["more"], ["more#2"], ["more#3"], ["more#4"]]
    assert text(done) == "a b c"


def test_a_loop_without_an_end_is_stopped_by_the_client() -> None:
    async def tool(ctx: Context) -> str:
        while True:
            await ctx.elicit("Another?", Region)

    async def answer(client: Any, params: Any) -> Any:
        return accept(region="x")

    async def run() -> None:
        async with connect(one_tool(tool), elicitation_callback=answer) as client:
            with pytest.raises(TooManyRounds):
                await client.call_tool("it")
            assert len(client.rounds) == 11

    asyncio.run(run())


# The declared form


class Counted:
    """Resolvers that count how often they were run, and depend on each other."""

    def __init__(self) -> None:
        self.runs: list[str] = []

    def base(self) -> Elicit[Region]:
        self.runs.append("base")
        return Elicit("Base?", Region, key="base")

    def server(self) -> MCPServer[Any]:
        def left(base: Annotated[Region, Resolve(self.base)]) -> Elicit[Region]:
            self.runs.append("left")
            return Elicit(f"Left of {base.region}?", Region, key="left")

        def right(base: Annotated[Region, Resolve(self.base)]) -> Elicit[Region]:
            self.runs.append("right")
            return Elicit(f"Right of {base.region}?", Region, key="right")

        async def tool(
            one: Annotated[Region, Resolve(left)],
            two: Annotated[Region, Resolve(right)],
            three: Annotated[Region, Resolve(self.base)],
        ) -> str:
            return f"{one.region} {two.region} {three.region}"

        return one_tool(tool)


def test_a_resolver_that_several_others_share_is_asked_once() -> None:
    first, second, done = rounds(
        Counted().server(),
        {"base": accept(region="here")},
        {"left": accept(region="L"), "right": accept(region="R")},
    )
    assert keys(first) == ["base"]
    assert messages(second) == ["Left of here?", "Right of here?"]
    assert text(done) == "L R here"


def test_a_shared_resolver_runs_once_in_a_round() -> None:
    counted = Counted()
    rounds(counted.server(), {"base": accept(region="here")})
    assert counted.runs == ["base", "base", "left", "right"]


def test_questions_that_do_not_depend_on_each_other_go_out_together() -> None:
    def deeper(where: Annotated[Region, Resolve(ask_region)]) -> Elicit[Region]:
        return Elicit(f"Where in {where.region}?", Region, key="deeper")

    async def tool(
        one: Annotated[Region, Resolve(deeper)],
        two: Annotated[Trip, Resolve(trip_marker)],
        three: Annotated[Any, Resolve(lambda: ListRoots("folders"))],
    ) -> str:
        return f"{one.region} {two.region} {three[0].name}"

    first, second, done = rounds(
        one_tool(tool),
        {"region": accept(region="EU"), "q": accept(region="Rome", nights=2), "folders": ROOTS},
        {"deeper": accept(region="Alps")},
    )
    assert keys(first) == ["region", "q", "folders"]
    assert messages(second) == ["Where in EU?"]
    assert text(done) == "Alps Rome home"


def test_resolvers_may_be_async_take_arguments_and_context_and_answer_by_themselves() -> None:
    async def resolver(city: str, ctx: Context, days: int = 1, unknown: str = "default") -> Elicit[Region] | Region:
        if city == "Rome":
            return Region(region=f"Lazio {days} {unknown}")
        return Elicit(f"Region of {city}? {ctx.protocol_version}", Region, key="region")

    async def tool(city: str, region: Annotated[Region, Resolve(resolver)], days: int = 3) -> str:
        return region.region

    server = one_tool(tool)
    (done,) = rounds(server, params={**IT, "arguments": {"city": "Rome"}})
    assert text(done) == "Lazio 3 default"
    params = {**IT, "arguments": {"city": "Oslo"}}
    asked, done = rounds(server, {"region": accept(region="Viken")}, params=params)
    assert messages(asked) == ["Region of Oslo? 2026-07-28"]
    assert text(done) == "Viken"


def test_a_resolver_may_have_things_of_its_own() -> None:
    class Atlas:
        def region(self, city: str) -> str:
            return f"region of {city}"

    def resolver(city: str, atlas: Atlas = Atlas()) -> Region:  # noqa: B008 - as people write it
        return Region(region=atlas.region(city))

    async def tool(city: str, where: Annotated[Region, Resolve(resolver)]) -> str:
        return where.region

    (done,) = rounds(one_tool(tool), params={**IT, "arguments": {"city": "Rome"}})
    assert text(done) == "region of Rome"


def test_a_resolver_may_ask_inline() -> None:
    async def resolver(ctx: Context) -> str:
        return told(await ctx.elicit("Which?", Region))

    async def tool(where: Annotated[str, Resolve(resolver)]) -> str:
        return where

    _, done = rounds(one_tool(tool), every(accept(region="EU")))
    assert text(done) == "accept EU"


def test_a_resolved_parameter_is_none_of_the_callers_business() -> None:
    server = one_tool(declared)

    async def script(client: Connection) -> None:
        (tool,) = (await client.list_tools()).tools
        assert tool.input_schema.get("properties", {}) == {}
        asked = await client.request("tools/call", {**IT, "arguments": {"region": {"region": "forged"}}})
        assert keys(asked) == ["region"]

    run_in(server, script)


def test_a_resolver_gives_whatever_kind_of_answer_it_asked_for() -> None:
    async def tool(
        poem: Annotated[mcp_types.CreateMessageResult, Resolve(lambda: Sample(messages="Write", key="poem"))],
        folders: Annotated[list[mcp_types.Root], Resolve(lambda: ListRoots("folders"))],
        plain: Annotated[int, Resolve(lambda: Elicit("How many?", int, "many"))],
    ) -> str:
        assert isinstance(poem.content, mcp_types.TextContent)
        return f"{poem.content.text} {folders[0].name} {plain + 1}"

    answers = {"poem": SAMPLED, "folders": ROOTS, "many": accept(value=4)}
    assert text(rounds(one_tool(tool), answers)[1]) == "a poem home 5"


async def takes_union(region: Annotated[ElicitationResult[Region], Resolve(ask_region)]) -> str:
    match region:
        case AcceptedElicitation(data=data):
            return f"accepted {data.region}"
        case DeclinedElicitation():
            return "declined"
        case CancelledElicitation():
            return "cancelled"


async def takes_two_arms(
    region: Annotated[AcceptedElicitation[Region] | DeclinedElicitation, Resolve(ask_region)],
) -> str:
    return "accepted x" if isinstance(region, AcceptedElicitation) else region.action + "d"


@pytest.mark.parametrize("tool", [takes_union, takes_two_arms])
def test_a_parameter_annotated_with_outcomes_gets_the_outcome(tool: Callable[..., Any]) -> None:
    server = one_tool(tool)
    assert text(rounds(server, {"region": accept(region="x")})[1]) == "accepted x"
    assert text(rounds(server, {"region": {"action": "decline"}})[1]) == "declined"


@pytest.mark.parametrize(("action", "verb"), [("decline", "declined"), ("cancel", "cancelled")])
def test_a_parameter_that_is_not_given_ends_the_call_in_a_tool_error(action: str, verb: str) -> None:
    ran: list[str] = []

    async def tool(where: Annotated[Region, Resolve(ask_region)]) -> str:
        ran.append("tool")
        return "never"

    _, done = rounds(one_tool(tool), {"region": {"action": action}})
    assert verb in tool_error(done)
    assert "where" in tool_error(done)
    assert ran == []


def test_a_prompt_whose_parameter_is_declined_is_an_error_that_says_so() -> None:
    server = MCPServer("asker")

    @server.prompt("it")
    async def prompt(where: Annotated[Region, Resolve(ask_region)]) -> str:
        return "never"

    with pytest.raises(MCPError, match="declined"):
        rounds(server, {"region": {"action": "decline"}}, method="prompts/get")


def test_a_declined_parameter_ends_the_call_though_another_question_is_open() -> None:
    async def tool(first: Annotated[Trip, Resolve(trip_marker)], second: Annotated[Region, Resolve(ask_region)]) -> str:
        return "never"

    first, done = rounds(one_tool(tool), {"region": {"action": "decline"}})
    assert keys(first) == ["q", "region"]
    assert "declined" in tool_error(done)


def circle_one(other: "Annotated[Region, Resolve(circle_two)]") -> Region:
    return other


def circle_two(other: Annotated[Region, Resolve(circle_one)]) -> Region:
    return other


def circle_alone(other: "Annotated[Region, Resolve(circle_alone)]") -> Region:
    return other


@pytest.mark.parametrize("resolver", [circle_one, circle_two, circle_alone])
def test_resolvers_that_depend_on_each_other_in_a_circle_are_refused_at_once(resolver: Callable[..., Any]) -> None:
    async def tool(where: Annotated[Region, Resolve(resolver)]) -> str:
        return "never"

    with pytest.raises(InvalidSignature, match="circle"):
        one_tool(tool)


def test_a_resolver_that_takes_what_the_call_does_not_have_is_refused_at_once() -> None:
    def resolver(country: str) -> Region:
        return Region(region=country)

    async def tool(city: str, where: Annotated[Region, Resolve(resolver)]) -> str:
        return "never"

    with pytest.raises(InvalidSignature, match="country"):
        one_tool(tool)


# Schemas


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


PLAIN: list[tuple[Any, dict[str, Any], Any, Any, Any]] = [
    (str, {"type": "string"}, "x", "x", 5),
    (int, {"type": "integer"}, 4, 4, "four"),
    (float, {"type": "number"}, 0.5, 0.5, "half"),
    (bool, {"type": "boolean"}, True, True, "perhaps"),
    (date, {"type": "string", "format": "date"}, "2026-07-28", date(2026, 7, 28), "tomorrow"),
    (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "a", "a", "c"),
    (Literal["a"], {"type": "string", "enum": ["a"]}, "a", "a", "b"),
    (int | float, {"type": "number"}, 0.5, 0.5, "half"),
    (Colour, {"type": "string", "enum": ["red", "blue"]}, "red", Colour.RED, "RED"),
    (Level, {"type": "integer", "enum": [1, 2]}, 2, Level.HIGH, 3),
    (Annotated[int, Field(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 9, 10),
    (Annotated[str, Field(max_length=3)], {"type": "string", "maxLength": 3}, "abc", "abc", "abcd"),
    (
        list[Literal["a", "b"]],
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
        ["b", "a"],
        ["b", "a"],
        ["c"],
    ),
]


@pytest.mark.parametrize(("kind", "shape", "sent", "got", "wrong"), PLAIN)
def test_a_plain_type_is_a_form_with_one_value(kind: Any, shape: Any, sent: Any, got: Any, wrong: Any) -> None:
    seen: list[Any] = []

    async def tool(ctx: Context) -> str:
        seen.append(await ctx.elicit("Which?", kind, key="q"))
        return "done"

    first, again, done = rounds(one_tool(tool), {"q": accept(value=wrong)}, {"q": accept(value=sent)})
    requested = first["inputRequests"]["q"]["params"]["requestedSchema"]
    assert requested["type"] == "object"
    assert requested["required"] == ["value"]
    assert {name: part for name, part in requested["properties"]["value"].items() if name != "title"} == shape
    assert keys(again) == ["q"]
    assert text(done) == "done"
    assert seen == [AcceptedElicitation(got)]
    assert type(seen[0].data) is type(got)


def requested_by(schema: Any) -> dict[str, Any]:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Which?", schema, key="q")
        return "never"

    (asked,) = rounds(one_tool(tool))
    requested: dict[str, Any] = asked["inputRequests"]["q"]["params"]["requestedSchema"]
    return requested


class Many(BaseModel):
    needed: str
    nick: str | None = None
    age: int | None = Field(None, ge=0, description="In years")
    colour: Colour = Colour.BLUE
    second: Colour | None = None
    tags: list[Colour] = Field(default_factory=list)


def test_optional_fields_are_not_required_and_never_null() -> None:
    requested = requested_by(Many)
    parts = requested["properties"]
    assert requested["required"] == ["needed"]
    assert parts["nick"]["type"] == "string"
    assert parts["age"]["type"] == "integer"
    assert parts["age"]["minimum"] == 0
    assert parts["age"]["description"] == "In years"
    assert "null" not in str(requested)
    assert "None" not in str(requested)
    assert "anyOf" not in str(requested)


def test_choices_are_written_where_they_are_used() -> None:
    requested = requested_by(Many)
    parts = requested["properties"]
    assert "$defs" not in requested
    assert "$ref" not in str(requested)
    assert parts["colour"]["enum"] == parts["second"]["enum"] == parts["tags"]["items"]["enum"] == ["red", "blue"]
    assert parts["colour"]["default"] == "blue"


def test_an_optional_field_may_be_left_out_or_null() -> None:
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("Which?", Many, key="q")
        assert isinstance(answer, AcceptedElicitation)
        return f"{answer.data.nick} {answer.data.colour.name}"

    for content in ({"needed": "x"}, {"needed": "x", "nick": None}):
        assert text(rounds(one_tool(tool), {"q": accept(**content)})[1]) == "None BLUE"


class Inner(BaseModel):
    x: int


class Nested(BaseModel):
    inner: Inner


class NestedOptional(BaseModel):
    inner: Inner | None = None


class Listed(BaseModel):
    inner: list[Inner]


class Mapped(BaseModel):
    inner: dict[str, int]


class Texts(BaseModel):
    inner: list[str]


class Whatever(BaseModel):
    inner: Any


class Either(BaseModel):
    inner: int | Inner


class Recursive(BaseModel):
    inner: "Recursive | None" = None


@pytest.mark.parametrize(
    "schema",
    [
        Nested,
        NestedOptional,
        Listed,
        Mapped,
        Texts,
        Whatever,
        Either,
        Recursive,
        RootModel[int],
        RootModel[list[int]],
        dict[str, int],
        list[str],
        Any,
    ],
)
def test_a_form_that_is_not_flat_is_refused(schema: Any) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(InvalidSignature):
            await ctx.elicit("Which?", schema)
        return "refused"

    assert text(rounds(one_tool(tool))[0]) == "refused"


@pytest.mark.parametrize("schema", [UUID, time, bytes])
def test_a_form_uses_no_format_that_the_protocol_does_not_know(schema: Any) -> None:
    """ "format": "date" | "date-time" | "email" | "uri", and no other."""

    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit("Which?", schema, key="q")
        except InvalidSignature:
            return "refused"
        return "never"

    (result,) = rounds(one_tool(tool))
    if result["resultType"] == "input_required":
        value = result["inputRequests"]["q"]["params"]["requestedSchema"]["properties"]["value"]
        assert value.get("format") in (None, "date", "date-time", "email", "uri")


def asked_and_got(schema: Any, *contents: Any) -> tuple[dict[str, Any], str, list[Any]]:
    """What a form asks, under which key, and what the function got for answers of which the last fits."""
    got: list[Any] = []

    async def tool(ctx: Context) -> str:
        got.append(await ctx.elicit("Which?", schema))
        return "done"

    first, *again, done = rounds(one_tool(tool), *(every(accept(**content)) for content in contents))
    assert all(result["inputRequests"] == first["inputRequests"] for result in again)
    assert text(done) == "done"
    ((key, request),) = first["inputRequests"].items()
    return request["params"]["requestedSchema"], key, got


@dataclass
class Booking:
    nights: int
    colour: Colour = Colour.BLUE
    note: str | None = None
    extras: list[Literal["tea", "milk"]] = dataclass_field(default_factory=list)

    def __post_init__(self) -> None:
        if self.nights < 1:
            raise ValueError("a night at least")


class BookingModel(BaseModel):
    nights: int
    colour: Colour = Colour.BLUE
    note: str | None = None
    extras: list[Literal["tea", "milk"]] = Field(default_factory=list)


def test_a_dataclass_is_a_form_of_its_fields_and_the_same_as_a_model_of_them() -> None:
    requested, key, got = asked_and_got(Booking, {"nights": "many"}, {"nights": 0}, {"nights": 2, "colour": "red"})
    assert requested["required"] == ["nights"]
    assert got == [AcceptedElicitation(Booking(2, Colour.RED))]
    assert type(got[0].data) is Booking
    assert (requested, key) == asked_and_got(BookingModel, {"nights": 2})[:2]


def test_a_list_of_texts_is_a_choice_of_one_and_the_same_as_a_literal_of_them() -> None:
    requested, key, got = asked_and_got(["small", "large"], {"value": "huge"}, {"value": "large"})
    assert requested["properties"]["value"]["enum"] == ["small", "large"]
    assert got == [AcceptedElicitation("large")]
    assert (requested, key) == asked_and_got(Literal["small", "large"], {"value": "small"})[:2]
    assert asked_and_got(["large", "small"], {"value": "large"})[0]["properties"]["value"]["enum"] == ["large", "small"]


def test_a_list_of_texts_may_be_declared_and_asked_with_others() -> None:
    async def tool(ctx: Context, size: Annotated[str, Resolve(lambda: Elicit("Size?", ["s", "l"], "size"))]) -> str:
        answers = await ctx.ask_all(drink=Elicit("Drink?", ["tea", "milk"]), stay=Elicit("Stay?", Booking))
        return f"{size} {answers['drink'].data} {answers['stay'].data.nights}"

    together = {"drink": accept(value="tea"), "stay": accept(nights=3)}
    assert text(rounds(one_tool(tool), {"size": accept(value="l")}, together)[-1]) == "l tea 3"


def test_the_keys_of_questions_are_what_they_were() -> None:
    """Flows that are open have them: a key is made of the form and the message."""
    kinds: list[tuple[Any, Any, str]] = [
        (str, {"value": "x"}, "elicitation-9b4bae40af0b8e23"),
        (Literal["a", "b"], {"value": "a"}, "elicitation-9498dc03d89dee43"),
        (Colour, {"value": "red"}, "elicitation-2166833b075a229e"),
        (BookingModel, {"nights": 1}, "elicitation-d4b1a609271781d2"),
    ]
    assert [asked_and_got(kind, content)[1] for kind, content, _ in kinds] == [key for _, _, key in kinds]


class OldDict(typing.TypedDict):
    x: int


class NewDict(typing_extensions.TypedDict):
    x: int


@dataclass
class NestedSpot:
    inner: Booking


@dataclass
class Unknown:
    inner: "NothingOfTheKind"  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    "schema", [OldDict, NewDict, None, 5, "small", {"a": {"title": "A"}}, {1}, ("a", "b"), object()]
)
def test_what_no_form_can_be_made_of_is_refused_with_what_can_be_given(schema: Any) -> None:
    assert "a form is made of a pydantic model, a dataclass, a list of texts" in refused_form(schema)


@pytest.mark.parametrize("texts", [[], [1, 2], ["a", None], [["a", "b"]], [{"a": {}}]])
def test_a_list_to_choose_from_has_texts(texts: Any) -> None:
    assert "a list to choose from has texts, and at least one" in refused_form(texts)


def test_a_dataclass_that_is_no_form_is_refused_by_its_name() -> None:
    assert refused_form(NestedSpot).startswith("NestedSpot.inner: forms are flat")
    assert refused_form(Unknown).startswith("Unknown: ")
    assert "NothingOfTheKind" in refused_form(Unknown)


def refused_form(schema: Any) -> str:
    async def tool(ctx: Context) -> str:
        with pytest.raises(TypeError) as refused:
            await ctx.elicit("Which?", schema)
        assert isinstance(refused.value, InvalidSignature)
        return str(refused.value)

    return text(rounds(one_tool(tool))[0])


def test_the_order_of_choices_is_that_of_the_type_at_hand() -> None:
    assert requested_by(Literal["x", "y"])["properties"]["value"]["enum"] == ["x", "y"]
    assert requested_by(Literal["y", "x"])["properties"]["value"]["enum"] == ["y", "x"]


def test_a_page_is_asked_with_its_address() -> None:
    async def tool(ctx: Context) -> str:
        return (await ctx.elicit_url("Log in", "https://x.example/login", "id-1", key="q")).action

    for action in ("accept", "decline", "cancel"):
        asked, done = rounds(one_tool(tool), {"q": {"action": action}})
        request = asked["inputRequests"]["q"]
        assert request["method"] == "elicitation/create"
        assert request["params"]["mode"] == "url"
        assert request["params"]["url"] == "https://x.example/login"
        assert "requestedSchema" not in request["params"]
        assert text(done) == action


def test_a_model_is_asked_with_all_that_the_author_said() -> None:
    async def tool(ctx: Context) -> str:
        result = await ctx.sample(
            "Write", key="q", max_tokens=7, system_prompt="Be brief", temperature=0.5, stop_sequences=["end"]
        )
        return result.model

    asked, done = rounds(one_tool(tool), {"q": SAMPLED})
    assert asked["inputRequests"]["q"] == {
        "method": "sampling/createMessage",
        "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Write"}}],
            "maxTokens": 7,
            "systemPrompt": "Be brief",
            "temperature": 0.5,
            "stopSequences": ["end"],
        },
    }
    assert text(done) == "m"


def test_a_model_with_tools_may_answer_by_using_them() -> None:
    async def tool(ctx: Context) -> str:
        result = await ctx.sample("Write", key="q", tools=[TOOL])
        return type(result.content).__name__

    content = [{"type": "tool_use", "id": "1", "name": "look", "input": {}}]
    _, done = rounds(one_tool(tool), {"q": SAMPLED | {"content": content}})
    assert text(done) == "list"


# The vocabulary


def test_a_context_lists_the_authors_vocabulary_and_nothing_of_the_engine() -> None:
    async def tool(ctx: Context) -> str:
        return " ".join(name for name in dir(ctx) if not name.startswith("_"))

    (done,) = rounds(one_tool(tool))
    names = set(text(done).split())
    assert {"elicit", "step", "now", "suspending", "session", "headers", "patched"} <= names
    assert not names & {"desk", "carry_out", "boundary", "call", "service", "terms", "open", "wake_at"}


# Tools written for the official SDK


def test_a_tool_written_for_the_official_sdk_asks_by_its_session() -> None:
    async def tool(ctx: Context) -> str:
        message = mcp_types.SamplingMessage(role="user", content=mcp_types.TextContent(type="text", text="Write"))
        poem = await ctx.session.create_message([message], max_tokens=9, related_request_id=ctx.request_id)
        folders = await ctx.session.list_roots()
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        form = await ctx.session.elicit_form("How many?", schema)
        page = await ctx.session.elicit_url("Log in", "https://x.example", "id-1")
        assert isinstance(poem, mcp_types.CreateMessageResult)
        assert isinstance(folders, mcp_types.ListRootsResult)
        assert isinstance(form, mcp_types.ElicitResult)
        assert isinstance(page, mcp_types.ElicitResult)
        assert isinstance(poem.content, mcp_types.TextContent)
        return f"{poem.content.text} {folders.roots[0].name} {form.content} {page.action}"

    *asked, done = rounds(one_tool(tool), every(SAMPLED), every(ROOTS), every(accept(n=2)), every({"action": "cancel"}))
    methods = [request["method"] for result in asked for request in result["inputRequests"].values()]
    assert methods == ["sampling/createMessage", "roots/list", "elicitation/create", "elicitation/create"]
    assert text(done) == "a poem home {'n': 2} cancel"


@pytest.mark.parametrize(
    "wrong",
    [accept(), accept(n="two"), accept(n=2.5), accept(n=True), accept(n=0), {"action": "accept"}, [], None, "x"],
)
def test_an_answer_to_a_schema_written_by_hand_is_held_against_it(wrong: Any) -> None:
    async def tool(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
        form = await ctx.session.elicit_form("How many?", schema)
        return str(form.content)

    _, again, done = rounds(one_tool(tool), every(wrong), every(accept(n=2)))
    assert messages(again) == ["How many?"]
    assert text(done) == "{'n': 2}"


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_refusal_reaches_a_tool_written_for_the_official_sdk(action: str) -> None:
    async def tool(ctx: Context) -> str:
        form = await ctx.session.elicit("How many?", {"type": "object", "properties": {}})
        return f"{form.action} {form.content}"

    _, done = rounds(one_tool(tool), every({"action": action}))
    assert text(done) == f"{action} None"


def test_questions_by_the_session_go_out_together_and_are_numbered_alike() -> None:
    async def tool(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        answers = await asyncio.gather(*(ctx.session.elicit_form("How many?", schema) for _ in range(2)))
        return str([answer.content for answer in answers])

    asked, done = rounds(one_tool(tool), lambda asked: {key: accept(n=n) for n, key in enumerate(asked)})
    assert len(keys(asked)) == 2
    assert text(done) == "[{'n': 0}, {'n': 1}]"
