"""Tasks of 2026-07-28 from the server's side (SEP-2663): who gets one, how it asks, sleeps, ends and is stopped.

Client and server are joined by a function call. Tasks are kept by SQLite, in memory unless a restart is tested.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from turnwise import (
    Budget,
    Client,
    Context,
    Elicit,
    ElicitURL,
    InvalidSignature,
    MCPError,
    MCPServer,
    MemoryStore,
    OpenTelemetry,
    RequestStateSecurity,
    Resolve,
    SQLiteTaskStore,
    TaskOptions,
    ToolError,
    URLElicitationRequired,
)
from turnwise._messages import Line, Post, Reply
from turnwise.tasks.following import follow
from turnwise.tasks.model import LostLease
from turnwise.tasks.runtime import Tasks
from turnwise.testing import Connection, connect

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {"elicitation": {}, "extensions": {EXTENSION: {}}}
UNKNOWN = (-32602, "Unknown task: there is none with this id, or it is over its time")
SOON, PATIENCE = 10.0, 25.0
Json = dict[str, Any]


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def patiently() -> None:
        await asyncio.wait_for(work(), PATIENCE)

    asyncio.run(patiently())


def make_server(*tools: Callable[..., Any], task: Any = "always", **options: Any) -> MCPServer[Any]:
    given = {"tasks": TaskOptions(store=SQLiteTaskStore(), grace=0.1), **options}
    server: MCPServer[Any] = MCPServer("errands", **given)
    for tool in tools:
        server.add_tool(tool, task=task)
    return server


class Caller:
    """Who is calling."""

    def __init__(self, principal: str) -> None:
        self.principal = principal


@asynccontextmanager
async def joined(server: MCPServer[Any], who: str | None = None) -> AsyncIterator[Connection]:
    async with connect(server, access=None if who is None else Caller(who)) as client:
        client.capabilities = DECLARED
        yield client


async def begin(client: Connection, tool: str, **arguments: Any) -> str:
    result = await client.request("tools/call", {"name": tool, "arguments": arguments})
    assert (result["resultType"], result["status"]) == ("task", "working")
    return str(result["taskId"])


async def look(client: Connection, task_id: str) -> Json:
    return await client.request("tasks/get", {"taskId": task_id})


async def until(client: Connection, task_id: str, *statuses: str) -> Json:
    """The task, once it has one of these statuses."""
    ends = time.monotonic() + SOON
    while (seen := await look(client, task_id))["status"] not in statuses:
        assert seen["status"] not in ("completed", "failed", "cancelled"), seen
        assert time.monotonic() < ends, seen
        await asyncio.sleep(0.005)
    return seen


async def update(client: Connection, task_id: str, **answers: Any) -> Json:
    return await client.request("tasks/update", {"taskId": task_id, "inputResponses": answers})


async def refused(work: Awaitable[Any]) -> tuple[int, str]:
    with pytest.raises(MCPError) as caught:
        await work
    return caught.value.code, caught.value.message


def accept(value: Any) -> Json:
    return {"action": "accept", "content": {"value": value}}


def said(seen: Mapping[str, Any]) -> str:
    return str(seen["result"]["content"][0]["text"])


async def kept(server: MCPServer[Any]) -> int:
    """How many tasks there are."""
    assert server.tasks is not None
    return len(await server.tasks.store.list())


# Tools that most tests call


async def greet(ctx: Context) -> str:
    """Ask for a name."""
    name: Any = await ctx.elicit("Your name?", str, key="name")
    return f"Hello, {name.data}!" if name.action == "accept" else name.action


async def plain() -> str:
    return "plain"


async def stuck() -> str:
    await asyncio.Event().wait()
    return "never"


async def raw(server: MCPServer[Any], method: str, params: Json, **post: Any) -> Reply:
    """A request as bytes, with headers where they are given."""

    async def unheard(message: bytes) -> None:
        """Nothing is said besides."""

    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return await server.wire.answer(Post(json.dumps(message).encode(), unheard, time.time(), **post))


def meta(capabilities: Any = DECLARED) -> Json:
    return {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        }
    }


# Who is told, and who gets one


def test_the_server_offers_the_extension_where_it_keeps_tasks() -> None:
    async def work() -> None:
        async with joined(make_server(plain)) as client:
            offered = (await client.request("server/discover"))["capabilities"]
            assert offered["extensions"] == {EXTENSION: {}}
            assert "tasks" not in offered
            listed = (await client.request("tools/list"))["tools"]
            assert "execution" not in listed[0]
        async with joined(MCPServer("none")) as client:
            assert "extensions" not in (await client.request("server/discover"))["capabilities"]
            assert (await refused(look(client, "x")))[0] == -32601

    run(work)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", "DRAFT-2026-v1", "DRAFT-2026-02-03"])
@pytest.mark.parametrize("access", [None, Caller("ada")])
@pytest.mark.parametrize("is_http", [True, False])
def test_other_versions_are_offered_the_capability_that_they_have(version: str, access: Any, is_http: bool) -> None:
    """And a list of tasks only where the caller can be told from others."""
    server = make_server(plain, dialects=["DRAFT-2026-v1", "DRAFT-2026-02-03"])

    async def unheard(message: bytes) -> None:
        """Nothing is said besides."""

    async def work() -> None:
        opening = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        channel: Json = {"headers": {}} if is_http else {"line": Line(unheard)}
        reply = await raw(server, "initialize", opening, access=access, **channel)
        offered = json.loads(reply.body or b"")["result"]["capabilities"]
        assert "extensions" not in offered
        if version < "2025-11-25":
            assert "tasks" not in offered
            return
        assert offered["tasks"].pop("list", None) == (None if is_http and access is None else {})
        assert offered["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}

    run(work)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize(
    "capabilities",
    [{}, {"extensions": {}}, {"extensions": {EXTENSION: None}}, {"extensions": [EXTENSION]}, {"tasks": {"list": {}}}],
)
def test_the_methods_are_for_those_who_declare_the_extension(method: str, capabilities: Json) -> None:
    async def work() -> None:
        params = {"taskId": "x", "inputResponses": {}, **meta(capabilities)}
        reply = await raw(make_server(plain), method, params)
        error = json.loads(reply.body or b"")["error"]
        assert (reply.status, error["code"]) == (400, -32021)
        assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}

    run(work)


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel"])
def test_a_client_that_moved_on_may_look_at_and_stop_what_it_began_as_an_older_one(method: str) -> None:
    """ "Servers that simultaneously support the 2025-11-25 Tasks specification [...] SHOULD continue to permit" it."""
    server = make_server(stuck)

    async def unheard(message: bytes) -> None:
        """Nothing is said besides."""

    async def work() -> None:
        async with joined(server) as client:
            line = Line(unheard)
            opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            await raw(server, "initialize", opening, line=line)
            reply = await raw(server, "tools/call", {"name": "stuck", "task": {}}, line=line)
            older = json.loads(reply.body or b"")["result"]["task"]["taskId"]
            newer = await begin(client, "stuck")
            client.capabilities = {"tasks": {"cancel": {}}}
            assert (await client.request(method, {"taskId": older})).get("taskId", older) == older
            assert (await refused(client.request(method, {"taskId": newer})))[0] == -32021
            assert (await refused(client.request("tasks/update", {"taskId": older, "inputResponses": {}})))[0] == -32021
            client.capabilities = {}
            assert (await refused(client.request(method, {"taskId": older})))[0] == -32021
            client.capabilities = DECLARED
            for task_id in (older, newer):
                await client.request("tasks/cancel", {"taskId": task_id})
                assert (await until(client, task_id, "cancelled"))["taskId"] == task_id

    run(work)


@pytest.mark.parametrize(
    ("task", "with_extension", "without"),
    [
        ("always", "task", -32021),
        ("optional", "task", "complete"),
        ("never", "complete", "complete"),
        (None, "complete", "complete"),
    ],
)
def test_who_gets_a_task_of_which_tool(task: Any, with_extension: str, without: str | int) -> None:
    server = make_server(plain, task=task)

    async def work() -> None:
        async with joined(server) as client:
            assert (await client.request("tools/call", {"name": "plain"}))["resultType"] == with_extension
            before = await kept(server)
            client.capabilities = {}
            if isinstance(without, int):
                with pytest.raises(MCPError) as caught:
                    await client.request("tools/call", {"name": "plain"})
                assert caught.value.code == without
                assert caught.value.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            else:
                assert (await client.request("tools/call", {"name": "plain"}))["resultType"] == without
            assert await kept(server) == before

    run(work)


def test_another_word_for_when_a_tool_is_a_task_is_refused() -> None:
    with pytest.raises(InvalidSignature, match="task is 'always', 'optional' or 'never', not 'sometimes'"):
        make_server(plain, task="sometimes")


def test_the_parameter_of_older_clients_is_ignored() -> None:
    server = make_server(greet, task="optional")

    async def work() -> None:
        async with joined(server) as client:
            result = await client.request("tools/call", {"name": "greet", "task": {"ttl": 1}})
            assert (result["resultType"], result["ttlMs"]) == ("task", 86_400_000)
            client.capabilities = {"elicitation": {}}
            result = await client.request("tools/call", {"name": "greet", "task": {"ttl": 1}})
            assert result["resultType"] == "input_required"

    run(work)


def test_a_task_is_kept_before_its_id_is_given_out() -> None:
    server = make_server(plain, tasks=TaskOptions(store=SQLiteTaskStore(), workers=0, poll=0.25, ttl=60))

    async def work() -> None:
        async with joined(server) as client:
            result = await client.request("tools/call", {"name": "plain"})
            assert result.pop("_meta")
            assert len(result["taskId"]) == 40
            assert int(result["taskId"], 16) > 0
            seen = await look(client, result["taskId"])
            assert seen.pop("_meta")
            assert seen == {**result, "resultType": "complete"}
            assert (seen["ttlMs"], seen["pollIntervalMs"], seen["status"]) == (60_000, 250, "working")
            assert seen["createdAt"].endswith("Z")

    run(work)


def test_a_task_that_cannot_be_kept_is_not_given_out() -> None:
    class Full(SQLiteTaskStore):
        async def create(self, task: Any) -> None:
            raise OSError("no space left")

    async def work() -> None:
        async with joined(make_server(plain, tasks=Full())) as client:
            result = await client.request("tools/call", {"name": "plain"})
            assert result["isError"] is True
            assert "taskId" not in result
            assert "space" not in str(result)

    run(work)


def test_arguments_that_do_not_fit_are_refused_before_there_is_a_task() -> None:
    async def count(number: int) -> int:
        return number

    async def strict(number: int) -> int:
        return number

    server = make_server(count)
    schema = {"type": "object", "properties": {"number": {"type": "integer", "minimum": 1}}}
    server.add_tool(strict, input_schema=schema, task="always")

    async def work() -> None:
        async with joined(server) as client:
            for tool, number in (("count", "many"), ("strict", 0)):
                result = await client.request("tools/call", {"name": tool, "arguments": {"number": number}})
                assert (result["resultType"], result["isError"]) == ("complete", True)
            assert (await refused(client.request("tools/call", {"name": "nothing"})))[0] == -32602
            assert await kept(server) == 0

    run(work)


def test_a_store_of_its_own_is_warned_of_where_the_keys_are_shared(caplog: pytest.LogCaptureFixture) -> None:
    security = RequestStateSecurity(keys=[b"k" * 32])
    with caplog.at_level(logging.WARNING, "turnwise.tasks"):
        make_server(plain, tasks=None)
        assert caplog.records == []
        make_server(plain, tasks=None, request_state_security=security)
    assert "for this process alone" in caplog.text


# First a call, then a task


def test_a_call_becomes_a_task_and_keeps_what_it_knows() -> None:
    done: list[str] = []

    async def look_up(name: str) -> str:
        done.append(name)
        return name.upper()

    async def order(ctx: Context) -> str:
        name: Any = await ctx.elicit("Who?", str, key="who")
        known = await ctx.step(look_up, name.data)
        was_task = ctx.is_task
        await ctx.become_task()
        await ctx.become_task()
        again: Any = await ctx.elicit("Who else?", str, key="else")
        return f"{known}, {again.data}, {was_task}, {ctx.is_task}"

    server = make_server(order, task=None)

    async def work() -> None:
        async with joined(server) as client:
            asked = await client.request("tools/call", {"name": "order"})
            assert asked["resultType"] == "input_required"
            assert await kept(server) == 0
            answered = {"inputResponses": {"who": accept("ada")}, "requestState": asked["requestState"]}
            begun = await client.request("tools/call", {"name": "order", **answered})
            assert begun["resultType"] == "task"
            assert "requestState" not in begun
            seen = await until(client, begun["taskId"], "input_required")
            assert seen["inputRequests"].keys() == {"else"}
            assert "requestState" not in seen
            await update(client, begun["taskId"], **{"else": accept("bob")})
            assert said(await until(client, begun["taskId"], "completed")) == "ADA, bob, True, True"
        assert done == ["ada"]

    run(work)


def test_what_becomes_a_task_says_so_to_those_who_take_none() -> None:
    async def turn(ctx: Context) -> str:
        await ctx.become_task()
        return "done"

    async def work() -> None:
        async with joined(make_server(turn, task=None)) as client:
            client.capabilities = {}
            assert (await refused(client.request("tools/call", {"name": "turn"})))[0] == -32021
        server: MCPServer[Any] = MCPServer("none")
        server.add_tool(turn)
        async with joined(server) as client:
            result = await client.request("tools/call", {"name": "turn"})
            assert (result["resultType"], result["isError"]) == ("complete", True)

    run(work)


def test_only_tools_become_tasks() -> None:
    """ "The following methods currently support task-augmented execution: tools/call"."""
    server = make_server(plain, budget=Budget(rounds=1))

    @server.prompt()
    async def turn(ctx: Context) -> str:
        await ctx.become_task()
        return "done"

    @server.prompt()
    async def many(ctx: Context) -> str:
        for number in range(3):
            await ctx.elicit(f"{number}?", str, key=f"q{number}")
        return "done"

    async def work() -> None:
        async with joined(server) as client:
            assert (await refused(client.request("prompts/get", {"name": "turn"})))[0] == -32603
            asked = await client.request("prompts/get", {"name": "many"})
            answered = {"inputResponses": {"q0": accept("x")}, "requestState": asked["requestState"]}
            assert (await refused(client.request("prompts/get", {"name": "many", **answered})))[0] == -32603
            assert await kept(server) == 0

    run(work)


def test_what_is_declared_is_asked_first_and_the_function_is_the_task() -> None:
    def ask_name() -> Elicit[str]:
        return Elicit("Your name?", str, key="name")

    async def hello(name: Annotated[str, Resolve(ask_name)], ctx: Context) -> str:
        return f"Hello, {name}! {ctx.is_task}"

    server = make_server(hello, task="optional")

    async def work() -> None:
        async with joined(server) as client:
            asked = await client.request("tools/call", {"name": "hello"})
            assert asked["resultType"] == "input_required"
            answered = {"inputResponses": {"name": accept("Ada")}, "requestState": asked["requestState"]}
            begun = await client.request("tools/call", {"name": "hello", **answered})
            assert begun["resultType"] == "task"
            assert said(await until(client, begun["taskId"], "completed")) == "Hello, Ada! True"
            client.capabilities = {"elicitation": {}}
            asked = await client.request("tools/call", {"name": "hello"})
            answered["requestState"] = asked["requestState"]
            done = await client.request("tools/call", {"name": "hello", **answered})
            assert done["content"][0]["text"] == "Hello, Ada! False"

    run(work)


def promoted_server(**budget: Any) -> MCPServer[Any]:
    async def load(size: int) -> str:
        return "".join(str(number) for number in range(size))

    async def interview(size: int, ctx: Context) -> str:
        loaded = await ctx.step(load, size)
        answers = [await ctx.elicit(f"{number}?", str, key=f"q{number}") for number in range(4)]
        return f"{len(answers)} {len(loaded) > 0} {ctx.is_task}"

    security = RequestStateSecurity(keys=[b"k" * 32])  # So that there is no store into which a token could spill.
    server = make_server(interview, task=None, budget=Budget(**budget), request_state_security=security)
    server.add_tool(interview, "kept_short", task="never")
    return server


async def asked_on(client: Connection, tool: str, size: int, rounds: int) -> Json:
    """Answer question after question as an ordinary call does."""
    call: Json = {"name": tool, "arguments": {"size": size}}
    result = await client.request("tools/call", call)
    for number in range(rounds):
        assert result["resultType"] == "input_required", result
        answers = {"inputResponses": {f"q{number}": accept("x")}, "requestState": result["requestState"]}
        result = await client.request("tools/call", {**call, **answers})
    return result


def test_a_call_that_runs_out_of_rounds_becomes_a_task() -> None:
    server = promoted_server(rounds=2)

    async def work() -> None:
        async with joined(server) as client:
            result = await asked_on(client, "interview", 1, 2)
            assert result["resultType"] == "task"
            for number in (2, 3):
                seen = await until(client, result["taskId"], "input_required")
                assert seen["inputRequests"].keys() == {f"q{number}"}
                await update(client, result["taskId"], **{f"q{number}": accept("x")})
            assert said(await until(client, result["taskId"], "completed")) == "4 True True"
            assert (await asked_on(client, "kept_short", 1, 2))["isError"] is True
            client.capabilities = {"elicitation": {}}
            assert (await asked_on(client, "interview", 1, 2))["isError"] is True

    run(work)


def test_a_call_whose_token_would_be_too_large_becomes_a_task() -> None:
    server = promoted_server(max_bytes=4096, spill_bytes=4096, warn_bytes=4096)

    async def work() -> None:
        async with joined(server) as client:
            result = await asked_on(client, "interview", 5000, 0)
            assert result["resultType"] == "task"
            await until(client, result["taskId"], "input_required")
            assert (await asked_on(client, "kept_short", 5000, 0))["isError"] is True

    run(work)


# What a task can do


def test_a_task_says_how_far_it_has_come_and_does_not_say_it_again() -> None:
    async def errand(ctx: Context) -> str:
        await ctx.report("gathering")
        await ctx.elicit("Go on?", bool, key="first")
        await ctx.report("writing")
        await ctx.elicit("Really?", bool, key="second")
        await ctx.report_progress(1, 2)
        await ctx.elicit("Sure?", bool, key="third")
        await ctx.report_progress(3, message="nearly")
        await ctx.report_progress(float("nan"))
        return "done"

    async def work() -> None:
        async with joined(make_server(errand, task="optional")) as client:
            task_id = await begin(client, "errand")
            for key, message in (("first", "gathering"), ("second", "writing"), ("third", "1 of 2")):
                assert (await until(client, task_id, "input_required"))["statusMessage"] == message
                await update(client, task_id, **{key: accept(True)})
            assert (await until(client, task_id, "completed"))["statusMessage"] == "nearly"
            assert client.notifications == []
            client.capabilities = {"elicitation": {}}
            assert (await client.request("tools/call", {"name": "errand"}))["resultType"] == "input_required"

    run(work)


def test_a_replay_does_not_report_what_is_behind_it() -> None:
    reported: list[str | None] = []

    class Attentive(SQLiteTaskStore):
        async def note(self, claim: Any, message: str | None, now: float) -> None:
            reported.append(message)
            await super().note(claim, message, now)

    async def errand(ctx: Context) -> str:
        await ctx.report("before")
        await ctx.elicit("Go on?", bool, key="go")
        await ctx.report(None)
        return "done"

    async def work() -> None:
        async with joined(make_server(errand, tasks=Attentive())) as client:
            task_id = await begin(client, "errand")
            await until(client, task_id, "input_required")
            await update(client, task_id, go=accept(True))
            seen = await until(client, task_id, "completed")
            assert "statusMessage" not in seen
        assert reported == ["before", None]

    run(work)


def test_a_sleep_is_kept_and_not_slept_twice() -> None:
    legs: list[float] = []

    async def nap(ctx: Context) -> str:
        legs.append(time.monotonic())
        await ctx.sleep(0.1)
        await ctx.sleep(0.05)
        await ctx.elicit("Awake?", bool, key="awake")
        await ctx.sleep(-1)
        return "rested"

    async def work() -> None:
        async with joined(make_server(nap)) as client:
            task_id = await begin(client, "nap")
            await until(client, task_id, "input_required")
            assert len(legs) == 3
            assert 0.1 <= legs[1] - legs[0] < 2
            assert legs[2] - legs[1] >= 0.04
            await update(client, task_id, awake=accept(True))
            assert said(await until(client, task_id, "completed")) == "rested"
            assert len(legs) <= 5
            assert legs[3] - legs[2] < 2

    run(work)


def test_a_sleep_begins_where_it_is_called_not_where_its_leg_began() -> None:
    times: list[float] = []

    async def work_hard() -> None:
        await asyncio.sleep(0.15)
        times.append(time.monotonic())

    async def rest(ctx: Context) -> str:
        await ctx.step(work_hard)
        await ctx.sleep(0.15)
        times.append(time.monotonic())
        return "rested"

    async def work() -> None:
        async with joined(make_server(rest)) as client:
            await until(client, await begin(client, "rest"), "completed")
            assert times[1] - times[0] >= 0.14

    run(work)


def test_a_task_may_sleep_more_often_than_a_call_may_ask() -> None:
    async def watch(ctx: Context) -> str:
        for _ in range(5):
            await ctx.sleep(0)
        return "watched"

    async def work() -> None:
        async with joined(make_server(watch, budget=Budget(rounds=2))) as client:
            assert said(await until(client, await begin(client, "watch"), "completed")) == "watched"

    run(work)


def test_outside_of_tasks_a_sleep_is_a_sleep_and_slept_once() -> None:
    async def nap(ctx: Context) -> str:
        await ctx.sleep(0.5)
        await ctx.elicit("Awake?", bool, key="awake")
        return str(ctx.is_task)

    async def work() -> None:
        async with joined(make_server(nap, task="never")) as client:
            begun = time.monotonic()
            asked = await client.request("tools/call", {"name": "nap"})
            assert time.monotonic() - begun >= 0.5
            begun = time.monotonic()
            answered = {"inputResponses": {"awake": accept(True)}, "requestState": asked["requestState"]}
            done = await client.request("tools/call", {"name": "nap", **answered})
            assert time.monotonic() - begun < 0.49
            assert done["content"][0]["text"] == "False"

    run(work)


def test_steps_are_taken_once_whatever_the_number_of_legs() -> None:
    taken: list[str] = []

    async def take(name: str) -> str:
        taken.append(name)
        return name

    async def errand(ctx: Context) -> str:
        first = await ctx.step(take, "first")
        await ctx.sleep(0)
        second = await ctx.step(take, "second", once=True)
        answers: Any = await ctx.ask_all(a=Elicit("A?", str), b=Elicit("B?", str))
        third = await ctx.step(take, "third")
        return ", ".join((first, second, third, answers["a"].data, answers["b"].data))

    async def work() -> None:
        async with joined(make_server(errand)) as client:
            task_id = await begin(client, "errand")
            assert (await until(client, task_id, "input_required"))["inputRequests"].keys() == {"a", "b"}
            await update(client, task_id, a=accept("x"), b=accept("y"))
            assert said(await until(client, task_id, "completed")) == "first, second, third, x, y"
        assert taken == ["first", "second", "third"]

    run(work)


@pytest.mark.parametrize("options", [{"effects": True}, {"single_use": True}, {"effects": True, "single_use": True}])
def test_tools_with_effects_are_tasks_like_others(options: Any) -> None:
    taken: list[str] = []

    async def take() -> str:
        taken.append("taken")
        return "taken"

    async def errand(ctx: Context) -> str:
        took = await ctx.step(take)
        name: Any = await ctx.elicit("Who?", str, key="who")
        return f"{took} by {name.data}"

    server = make_server(store=MemoryStore())
    server.add_tool(errand, task="optional", **options)

    async def work() -> None:
        async with joined(server) as client:
            task_id = await begin(client, "errand")
            await until(client, task_id, "input_required")
            await update(client, task_id, who=accept("Ada"))
            assert said(await until(client, task_id, "completed")) == "taken by Ada"
        assert taken == ["taken"]

    run(work)


def test_an_instance_with_too_much_to_do_does_not_hand_its_legs_on() -> None:
    async def take(number: int) -> int:
        return number

    async def errand(ctx: Context) -> str:
        return str([await ctx.step(take, number) for number in range(3)])

    async def work() -> None:
        async with joined(make_server(errand, shed_when=lambda load: True)) as client:
            assert said(await until(client, await begin(client, "errand"), "completed")) == "[0, 1, 2]"

    run(work)


def test_each_leg_is_a_span_and_they_are_linked() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def work() -> None:
        async with joined(make_server(greet, telemetry=OpenTelemetry(provider))) as client:
            task_id = await begin(client, "greet")
            await until(client, task_id, "input_required")
            await update(client, task_id, name=accept("Ada"))
            await until(client, task_id, "completed")
        first, second = exporter.get_finished_spans()
        assert first.name == second.name == "tools/call greet"
        assert [span.attributes["mcp.result.type"] for span in (first, second) if span.attributes] == [
            "input_required",
            "complete",
        ]
        assert first.context is not None
        assert [link.context.span_id for link in second.links] == [first.context.span_id]
        assert "Ada" not in str([span.to_json() for span in (first, second)])

    run(work)


def test_a_call_that_waits_here_for_its_answers_is_told_of_as_well() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def answer(*_: Any) -> Json:
        return accept("Ada")

    async def work() -> None:
        server = make_server(greet, task=None, telemetry=OpenTelemetry(provider))
        async with Client(server, mode="2025-11-25", elicitation_callback=answer) as client:
            assert (await client.call_tool("greet")).content[0].text == "Hello, Ada!"  # type: ignore[union-attr]
        assert len(exporter.get_finished_spans()) == 2

    run(work)


# How a task ends


def test_a_tools_own_error_is_a_result() -> None:
    async def fail() -> str:
        raise ToolError("No such thing")

    async def break_down() -> str:
        raise RuntimeError("the password is tiger")

    async def work() -> None:
        async with joined(make_server(fail, break_down)) as client:
            seen = await until(client, await begin(client, "fail"), "completed")
            assert seen["result"]["isError"] is True
            assert said(seen) == "No such thing"
            seen = await until(client, await begin(client, "break_down"), "completed")
            assert seen["result"]["isError"] is True
            assert "tiger" not in str(seen)

    run(work)


def test_an_error_of_the_protocol_is_a_failure() -> None:
    async def fail() -> str:
        raise MCPError(4050, "Out of paper", {"tray": 2})

    async def work() -> None:
        async with joined(make_server(fail, greet)) as client:
            seen = await until(client, await begin(client, "fail"), "failed")
            assert seen["error"] == {"code": 4050, "message": "Out of paper", "data": {"tray": 2}}
            assert seen["statusMessage"] == "Out of paper"
            assert "result" not in seen
            client.capabilities = {"extensions": {EXTENSION: {}}}
            seen = await until(client, await begin(client, "greet"), "failed")
            assert seen["error"]["code"] == -32021

    run(work)


def test_pages_that_have_to_be_visited_first_are_asked_for() -> None:
    """-32042 is no code of this version."""
    page = {"mode": "url", "message": "Sign in", "url": "https://example.com/x"}

    async def visit(ctx: Context) -> str:
        if ctx.input_responses is None:
            raise URLElicitationRequired([ElicitURL("Sign in", "https://example.com/x", key="page")])
        return "visited"

    async def work() -> None:
        async with joined(make_server(visit)) as client:
            client.capabilities = {**DECLARED, "elicitation": {"url": {}}}
            task_id = await begin(client, "visit")
            seen = await until(client, task_id, "input_required")
            ((key, request),) = seen["inputRequests"].items()
            assert request == {"method": "elicitation/create", "params": page}
            await update(client, task_id, **{key: {"action": "accept"}})
            assert said(await until(client, task_id, "completed")) == "visited"

    run(work)


@pytest.fixture
def _unlogged() -> Iterator[None]:
    """Half a character in a log cannot be passed from one process of the test run to another."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("_unlogged")
@pytest.mark.parametrize(
    "data",
    [object(), {"x": {1, 2}}, float("nan"), "\ud800", {"\ud800": 1}],
    ids=["object", "set", "nan", "half a character", "half a key"],
)
def test_an_error_that_json_does_not_have_ends_the_task_all_the_same(data: Any) -> None:
    plays: list[Any] = []

    async def fail(ctx: Context) -> str:
        plays.append(data)
        await ctx.report("bad \ud800 \0 words")
        raise MCPError(4050, "bad \ud800 words", data)

    async def work() -> None:
        async with joined(make_server(fail)) as client:
            seen = await until(client, await begin(client, "fail"), "failed")
            assert (seen["error"]["code"], seen["error"]["message"]) == (4050, "bad ? words")
        assert len(plays) == 1

    run(work)


def test_a_result_is_what_the_call_would_have_given() -> None:
    async def figures() -> dict[str, int]:
        return {"one": 1}

    async def work() -> None:
        async with joined(make_server(figures, task="optional")) as client:
            seen = await until(client, await begin(client, "figures"), "completed")
            client.capabilities = {}
            whole = await client.request("tools/call", {"name": "figures"})
            assert seen["result"] == {name: part for name, part in whole.items() if name != "_meta"}
            assert seen["result"]["structuredContent"] == {"one": 1}

    run(work)


# Whose it is, and for how long


@pytest.mark.parametrize("which", ["unknown", "another's", "expired"])
def test_who_has_no_such_task_learns_nothing(which: str) -> None:
    ttl = 0.03 if which == "expired" else 60
    server = make_server(greet, tasks=TaskOptions(store=SQLiteTaskStore(), ttl=ttl))

    async def work() -> None:
        async with joined(server, "ada") as ada, joined(server, "bob") as bob:
            task_id = await begin(ada, "greet")
            if which == "another's":
                client = bob
                await until(ada, task_id, "input_required")
            else:
                client = ada
                await asyncio.sleep(0.05)
            named = {"taskId": "0" * 40 if which == "unknown" else task_id}
            assert await refused(client.request("tasks/get", named)) == UNKNOWN
            answers = {"inputResponses": {"name": accept("Eve")}}
            assert await refused(client.request("tasks/update", {**named, **answers})) == UNKNOWN
            assert await refused(client.request("tasks/cancel", named)) == UNKNOWN
            if which == "another's":
                assert (await look(ada, task_id))["status"] == "input_required"

    run(work)


def test_a_task_of_nobody_is_not_somebodys() -> None:
    server = make_server(greet)

    async def work() -> None:
        async with joined(server) as nobody, joined(server, "ada") as ada:
            assert await refused(look(ada, await begin(nobody, "greet"))) == UNKNOWN
            assert await refused(look(nobody, await begin(ada, "greet"))) == UNKNOWN

    run(work)


def test_a_task_without_an_end_has_no_ttl() -> None:
    async def work() -> None:
        options = TaskOptions(store=SQLiteTaskStore(), ttl=None, poll=0.0001)
        async with joined(make_server(plain, tasks=options)) as client:
            result = await client.request("tools/call", {"name": "plain"})
            assert result["ttlMs"] is None
            assert result["pollIntervalMs"] == 1

    run(work)


@pytest.mark.parametrize(
    "options", [{"ttl": 0}, {"ttl": -1}, {"poll": 0}, {"lease": 0}, {"workers": -1}, {"workers": True}]
)
def test_options_that_cannot_be_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        TaskOptions(**options)


# Answers


async def interview(ctx: Context) -> str:
    answers: Any = await ctx.ask_all(first=Elicit("First?", str), last=Elicit("Last?", str))
    return " ".join(answer.data for answer in answers.values())


def test_answers_may_come_in_parts_and_the_first_of_each_counts() -> None:
    async def work() -> None:
        async with joined(make_server(interview)) as client:
            task_id = await begin(client, "interview")
            await until(client, task_id, "input_required")
            ack = await update(client, task_id, first=accept("Ada"))
            assert ack.keys() == {"resultType", "_meta"}
            assert ack["resultType"] == "complete"
            seen = await look(client, task_id)
            assert (seen["status"], seen["inputRequests"].keys()) == ("input_required", {"last"})
            await update(client, task_id, first=accept("Eve"))
            assert (await look(client, task_id))["inputRequests"].keys() == {"last"}
            await update(client, task_id, last=accept("Lovelace"), first=accept("Eve"))
            assert said(await until(client, task_id, "completed")) == "Ada Lovelace"

    run(work)


def test_what_makes_a_task_due_wakes_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.tasks.dispatch.LOOK_SECONDS", 3600.0)

    async def doze(ctx: Context) -> str:
        name: Any = await ctx.elicit("Your name?", str, key="name")
        await asyncio.sleep(0.05)
        await ctx.sleep(0.05)
        return f"{name.data} is awake"

    async def work() -> None:
        async with joined(make_server(doze)) as client:
            await asyncio.sleep(0.05)  # By now nobody looks by himself.
            task_id = await begin(client, "doze")
            await until(client, task_id, "input_required")
            await asyncio.sleep(0.05)
            await update(client, task_id, name=accept("Ada"))
            assert said(await until(client, task_id, "completed")) == "Ada is awake"

    run(work)


def test_answers_to_what_is_not_asked_are_passed_over() -> None:
    async def work() -> None:
        async with joined(make_server(interview)) as client:
            task_id = await begin(client, "interview")
            await update(client, task_id, first=accept("too early"))
            before = await until(client, task_id, "input_required")
            for answers in ({}, {"middle": accept("x")}, {"first": "Ada"}, {"first": None, "last": [1]}):
                await update(client, task_id, **answers)
                assert await look(client, task_id) == before
            await update(client, task_id, first=accept("Ada"), last=accept("Lovelace"))
            await until(client, task_id, "completed")
            await update(client, task_id, first=accept("too late"))
            assert said(await look(client, task_id)) == "Ada Lovelace"

    run(work)


@pytest.mark.parametrize("answers", [None, [], "yes", 1])
def test_answers_are_an_object(answers: Any) -> None:
    async def work() -> None:
        async with joined(make_server(interview)) as client:
            task_id = await begin(client, "interview")
            params = {"taskId": task_id} if answers is None else {"taskId": task_id, "inputResponses": answers}
            assert (await refused(client.request("tasks/update", params)))[0] == -32602

    run(work)


def test_what_does_not_fit_is_asked_again_and_no_key_is_used_twice() -> None:
    async def work() -> None:
        async with joined(make_server(interview)) as client:
            task_id = await begin(client, "interview")
            keys: list[str] = []
            wrong: tuple[Json, ...] = ({"action": "accept", "content": {"value": 7}}, {"action": "perhaps"}, {})
            for answer in wrong:
                seen = await until(client, task_id, "input_required")
                (key, *_) = [key for key in seen["inputRequests"] if key.startswith("first")]
                keys.append(key)
                await update(client, task_id, **{key: answer}, last=accept("Lovelace"))
            seen = await until(client, task_id, "input_required")
            assert keys == ["first", "first~2", "first~3"]
            assert seen["inputRequests"].keys() == {"first~4"}
            await update(client, task_id, first=accept("Eve"))
            assert (await look(client, task_id))["inputRequests"].keys() == {"first~4"}
            await update(client, task_id, **{"first~4": accept("Ada")})
            assert said(await until(client, task_id, "completed")) == "Ada Lovelace"

    run(work)


def test_the_same_question_in_a_later_leg_has_another_key() -> None:
    async def ask_twice(ctx: Context) -> str:
        answers = []
        for _ in range(2):
            answers.append((await ctx.elicit("Again?", str, key="again")).data)  # type: ignore[union-attr]
        return " ".join(answers)

    async def work() -> None:
        async with joined(make_server(ask_twice)) as client:
            task_id = await begin(client, "ask_twice")
            seen: set[str] = set()
            for word in ("once", "twice"):
                (key,) = (await until(client, task_id, "input_required"))["inputRequests"]
                assert key not in seen
                seen.add(key)
                await update(client, task_id, **{key: accept(word)})
            assert said(await until(client, task_id, "completed")) == "once twice"

    run(work)


def test_a_person_may_say_no() -> None:
    async def work() -> None:
        async with joined(make_server(greet)) as client:
            task_id = await begin(client, "greet")
            await until(client, task_id, "input_required")
            await update(client, task_id, name={"action": "decline"})
            assert said(await until(client, task_id, "completed")) == "decline"

    run(work)


# Stopping


async def nap(ctx: Context) -> str:
    await ctx.sleep(60)
    return "rested"


async def fail() -> str:
    raise MCPError(4050, "no")


@pytest.mark.parametrize(
    ("tool", "reaches", "ends"),
    [
        ("stuck", "working", "cancelled"),
        ("nap", "working", "cancelled"),
        ("greet", "input_required", "cancelled"),
        ("plain", "completed", "completed"),
        ("fail", "failed", "failed"),
    ],
)
def test_a_task_is_stopped_unless_it_is_over(tool: str, reaches: str, ends: str) -> None:
    server = make_server(stuck, nap, greet, plain, fail)

    async def work() -> None:
        async with joined(server) as client:
            task_id = await begin(client, tool)
            await until(client, task_id, reaches)
            for _ in range(2):
                ack = await client.request("tasks/cancel", {"taskId": task_id})
                assert ack.keys() == {"resultType", "_meta"}
                assert ack["resultType"] == "complete"
                seen = await until(client, task_id, ends)
            if ends == "cancelled":
                assert not seen.keys() & {"result", "error", "inputRequests"}
                assert seen["statusMessage"] == "The task was cancelled by request."
                await update(client, task_id, name=accept("Ada"))
                assert (await look(client, task_id))["status"] == "cancelled"

    run(work)


def test_what_a_leg_holds_is_let_go_when_it_is_stopped() -> None:
    let_go = asyncio.Event()

    async def hold() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()
        return "never"

    async def work() -> None:
        async with joined(make_server(hold)) as client:
            task_id = await begin(client, "hold")
            await asyncio.sleep(0.02)
            await client.request("tasks/cancel", {"taskId": task_id})
            await asyncio.wait_for(let_go.wait(), SOON)
            await until(client, task_id, "cancelled")

    run(work)


# Headers


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_over_http_the_task_is_named_in_a_header(method: str) -> None:
    server = make_server(greet)

    async def work() -> None:
        async with joined(server) as client:
            task_id = await begin(client, "greet")
            params = {"taskId": task_id, "inputResponses": {}, **meta()}
            usual = {b"mcp-protocol-version": b"2026-07-28", b"mcp-method": method.encode()}
            for name in (None, b"another", b"", task_id.upper().encode() + b"x"):
                headers = usual if name is None else {**usual, b"mcp-name": name}
                reply = await raw(server, method, params, headers=headers)
                assert (reply.status, json.loads(reply.body or b"")["error"]["code"]) == (400, -32020)
            reply = await raw(server, method, params, headers={**usual, b"mcp-name": task_id.encode()})
            assert reply.status == 200
            assert json.loads(reply.body or b"")["result"]["resultType"] == "complete"

    run(work)


# Being told


@asynccontextmanager
async def listening(client: Connection, *task_ids: Any, **more: Any) -> AsyncIterator[list[Json]]:
    """What a subscription to these tasks hears."""
    heard = client.notifications = []
    wanted = {"notifications": {"taskIds": list(task_ids), **more}}
    stream = asyncio.create_task(client.request("subscriptions/listen", wanted))
    try:
        await first_word(client)
        yield heard
    finally:
        stream.cancel()
        await asyncio.wait([stream])


async def first_word(client: Connection) -> None:
    ends = time.monotonic() + SOON
    while not client.notifications:
        assert time.monotonic() < ends
        await asyncio.sleep(0.001)


async def hear(heard: list[Json], status: str) -> Json:
    ends = time.monotonic() + SOON
    while True:
        for message in heard:
            if message["method"] == "notifications/tasks" and message["params"]["status"] == status:
                params: Json = message["params"]
                return params
        assert time.monotonic() < ends, heard
        await asyncio.sleep(0.005)


def test_who_listens_is_told_of_the_whole_task_as_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.tasks.following.LOOK_SECONDS", 0.01)

    async def work() -> None:
        async with joined(make_server(greet)) as client, joined(make_server(greet)) as stranger:
            task_id, foreign = await begin(client, "greet"), await begin(stranger, "greet")
            async with listening(client, task_id, foreign, "nonsense", task_id) as heard:
                listened = heard[0]["params"]["_meta"]
                assert heard[0]["method"] == "notifications/subscriptions/acknowledged"
                assert heard[0]["params"]["notifications"] == {"taskIds": [task_id]}
                asked = await hear(heard, "input_required")
                assert asked.pop("_meta") == listened
                whole = await look(client, task_id)
                assert asked == {name: part for name, part in whole.items() if name not in ("_meta", "resultType")}
                await update(client, task_id, name=accept("Ada"))
                assert said(await hear(heard, "completed")) == "Hello, Ada!"
                assert {message["method"] for message in heard} <= {
                    "notifications/tasks",
                    "notifications/subscriptions/acknowledged",
                }

    run(work)


def test_who_listens_hears_on_after_the_store_was_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("turnwise.tasks.following.LOOK_SECONDS", 0.01)

    async def work() -> None:
        server = make_server(greet)
        assert server.tasks is not None
        get, failures, missed = server.tasks.store.get, 0, asyncio.Event()

        async def away(task_id: str, principal: str | None) -> Any:
            nonlocal failures
            failures += 1
            if failures == 3:
                missed.set()
            raise ConnectionError("no store")

        async with joined(server) as client:
            task_id = await begin(client, "greet")
            async with listening(client, task_id) as heard:
                await hear(heard, "input_required")
                monkeypatch.setattr(server.tasks.store, "get", away)
                await asyncio.wait_for(missed.wait(), SOON)
                monkeypatch.setattr(server.tasks.store, "get", get)
                await update(client, task_id, name=accept("Ada"))
                assert said(await hear(heard, "completed")) == "Hello, Ada!"

    run(work)
    assert sum("the store cannot be asked" in record.getMessage() for record in caplog.records) == 1


async def followed(tasks: Tasks, task_id: str) -> AsyncIterator[str]:
    """The statuses that somebody who listens to a task is told."""
    async for told in follow(tasks, [task_id], None, lambda seen, _: {"status": seen.task.status}):
        yield told["status"]


def test_who_listens_is_told_of_changes_alone_and_no_more_of_a_task_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnwise.tasks.following.LOOK_SECONDS", 0.001)

    async def work() -> None:
        server = make_server(greet)
        assert server.tasks is not None
        get, looks = server.tasks.store.get, 0

        async def forgetting(task_id: str, principal: str | None) -> Any:
            nonlocal looks
            looks += 1
            return await get(task_id, principal) if looks < 5 else None

        async with joined(server) as client:
            task_id = await begin(client, "greet")
            await until(client, task_id, "input_required")
            monkeypatch.setattr(server.tasks.store, "get", forgetting)
            assert [status async for status in followed(server.tasks, task_id)] == ["input_required"]

    run(work)


def test_of_many_tasks_those_are_looked_at_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.tasks.following.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("turnwise.tasks.following.MOST_LOOKS", 0.01)

    async def work() -> None:
        server = make_server(greet)
        assert server.tasks is not None
        get, read = server.tasks.store.get, set()

        async def noted(task_id: str, principal: str | None) -> Any:
            read.add(task_id)
            return await get(task_id, principal)

        async with joined(server) as client:
            tasks = [await begin(client, "greet") for _ in range(5)]
            for task_id in tasks:
                await until(client, task_id, "input_required")
            async with listening(client, *tasks) as heard:
                while len(heard) < 6:  # noqa: ASYNC110 - the list is the test's only ear
                    await asyncio.sleep(0.001)
                monkeypatch.setattr(server.tasks.store, "get", noted)
                await update(client, tasks[2], name=accept("Ada"))
                assert said(await hear(heard, "completed")) == "Hello, Ada!"
                await client.request("tasks/cancel", {"taskId": tasks[4]})
                assert (await hear(heard, "cancelled"))["taskId"] == tasks[4]
                assert read == {tasks[2], tasks[4]}

    run(work)


def test_who_listens_hears_of_each_answer_and_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.tasks.following.LOOK_SECONDS", 0.01)
    monkeypatch.setattr("turnwise.tasks.following.MOST_LOOKS", 0.01)
    is_heard = asyncio.Event()

    async def considered(ctx: Context) -> str:
        name = await interview(ctx)
        await is_heard.wait()
        return name

    async def work() -> None:
        async with joined(make_server(considered)) as client:
            task_id = await begin(client, "considered")
            await until(client, task_id, "input_required")
            async with listening(client, task_id) as heard:
                assert (await hear(heard, "input_required"))["inputRequests"].keys() == {"first", "last"}
                heard.clear()
                await update(client, task_id, first=accept("Ada"))
                assert (await hear(heard, "input_required"))["inputRequests"].keys() == {"last"}
                await update(client, task_id, last=accept("Lovelace"))
                await hear(heard, "working")
                is_heard.set()
                assert said(await hear(heard, "completed")) == "Ada Lovelace"

    run(work)


def test_who_listens_hears_of_what_another_process_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.tasks.following.LOOK_SECONDS", 0.01)

    async def work() -> None:
        front, back = (opened(tmp_path / "tasks.db", greet, workers=workers) for workers in (0, 1))
        async with joined(front) as client:
            task_id = await begin(client, "greet")
            async with listening(client, task_id) as heard:
                await hear(heard, "working")
                async with joined(back) as other:
                    await hear(heard, "input_required")
                    await update(other, task_id, name=accept("Ada"))
                    assert said(await hear(heard, "completed")) == "Hello, Ada!"
        await closed(front)
        await closed(back)

    run(work)


def test_a_subscription_without_tasks_says_nothing_of_them() -> None:
    async def work() -> None:
        async with joined(make_server(greet)) as client, listening(client, toolsListChanged=True) as heard:
            assert heard[0]["params"]["notifications"] == {"toolsListChanged": True, "taskIds": []}
        server = make_server(greet)
        async with joined(server) as client:
            client.capabilities = {}
            stream = asyncio.create_task(client.request("subscriptions/listen", {"notifications": {}}))
            await first_word(client)
            assert client.notifications[0]["params"]["notifications"] == {}
            stream.cancel()
            await asyncio.wait([stream])

    run(work)


@pytest.mark.parametrize(
    ("asked", "capabilities", "code"),
    [
        (["x"], {}, -32021),
        ([], {}, -32021),
        ("x", DECLARED, -32602),
        ([1], DECLARED, -32602),
        ({}, DECLARED, -32602),
        ([str(number) for number in range(1001)], DECLARED, -32602),
    ],
)
def test_who_may_not_listen_is_told(asked: Any, capabilities: Json, code: int) -> None:
    async def work() -> None:
        params = {"notifications": {"taskIds": asked}, **meta(capabilities)}
        reply = await raw(make_server(greet), "subscriptions/listen", params)
        error = json.loads(reply.body or b"")["error"]
        assert (reply.status, error["code"]) == (400, code)
        if code == -32021:
            assert error["data"] == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}

    run(work)


def test_another_callers_task_is_not_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.tasks.following.LOOK_SECONDS", 0.01)
    server = make_server(greet)

    async def work() -> None:
        async with joined(server, "ada") as ada, joined(server, "bob") as bob:
            task_id = await begin(ada, "greet")
            async with listening(bob, task_id) as heard:
                await until(ada, task_id, "input_required")
                await asyncio.sleep(0.05)
                assert [message["params"]["notifications"] for message in heard] == [{"taskIds": []}]

    run(work)


# The server goes away and comes back


def opened(path: Path, *tools: Callable[..., Any], **options: Any) -> MCPServer[Any]:
    """An instance of one service, with its tasks in a file."""
    security = RequestStateSecurity(keys=[b"k" * 32])
    kept_there = TaskOptions(store=SQLiteTaskStore(path), grace=0.05, **options)
    return make_server(*tools, tasks=kept_there, request_state_security=security)


async def closed(server: MCPServer[Any]) -> None:
    assert server.tasks is not None
    await server.tasks.store.aclose()


def test_a_task_goes_on_where_another_process_left_it(tmp_path: Path) -> None:
    done: list[str] = []

    async def act(name: str) -> str:
        done.append(name)
        return name

    async def order(ctx: Context) -> str:
        first = await ctx.step(act, "reserve")
        name: Any = await ctx.elicit("For whom?", str, key="name")
        await ctx.sleep(0.05)
        return f"{first}, {await ctx.step(act, 'send')} for {name.data}"

    async def work() -> None:
        one = opened(tmp_path / "tasks.db", order)
        async with joined(one) as client:
            task_id = await begin(client, "order")
            before = await until(client, task_id, "input_required")
        await closed(one)
        two = opened(tmp_path / "tasks.db", order)
        async with joined(two) as client:
            seen = await look(client, task_id)
            assert seen == before
            await update(client, task_id, name=accept("Ada"))
        await closed(two)
        three = opened(tmp_path / "tasks.db", order)
        async with joined(three) as client:
            assert said(await until(client, task_id, "completed")) == "reserve, send for Ada"
        await closed(three)
        assert done == ["reserve", "send"]

    run(work)


def test_a_leg_in_the_middle_of_a_shutdown_is_played_again(tmp_path: Path) -> None:
    begun = asyncio.Event()
    done: list[str] = []

    async def act(name: str) -> str:
        done.append(name)
        return name

    async def long(ctx: Context) -> str:
        await ctx.step(act, "first")
        begun.set()
        if len(done) == 1 and ctx.round == 1 and not (tmp_path / "again").exists():
            await asyncio.Event().wait()
        return await ctx.step(act, "second")

    async def work() -> None:
        one = opened(tmp_path / "tasks.db", long)
        async with joined(one) as client:
            task_id = await begin(client, "long")
            await asyncio.wait_for(begun.wait(), SOON)
        await closed(one)
        (tmp_path / "again").touch()
        two = opened(tmp_path / "tasks.db", long)
        async with joined(two) as client:
            assert said(await until(client, task_id, "completed")) == "second"
        await closed(two)
        assert done == ["first", "second"]

    run(work)


def test_a_new_version_goes_on_with_tasks_of_the_old_one(tmp_path: Path) -> None:
    done: list[str] = []

    async def act(name: str) -> str:
        done.append(name)
        return name

    def version(number: int) -> Callable[..., Any]:
        async def order(ctx: Context) -> str:
            await ctx.step(act, "reserve")
            words = "Who?" if number == 1 else "Who is it for?"
            name: Any = await ctx.elicit(words, str, key="name")
            is_new = ctx.patched("wrap")
            return f"{name.data}, begun by {ctx.flow_version}, {is_new}"

        return order

    async def work() -> None:
        one = opened(tmp_path / "tasks.db")
        one.add_tool(version(1), "order", task="always", version="1")
        async with joined(one) as client:
            task_id = await begin(client, "order")
            await until(client, task_id, "input_required")
        await closed(one)
        two = opened(tmp_path / "tasks.db")
        two.add_tool(version(2), "order", task="always", version="2")
        async with joined(two) as client:
            await update(client, task_id, name=accept("Ada"))
            seen = await until(client, task_id, "input_required")
            ((key, request),) = seen["inputRequests"].items()
            assert key == "name~2"
            assert request["params"]["message"] == "Who is it for?"
            await update(client, task_id, **{key: accept("Ada")})
            assert said(await until(client, task_id, "completed")) == "Ada, begun by 1, True"
        await closed(two)
        assert done == ["reserve"]

    run(work)


def test_a_tool_that_is_gone_leaves_its_tasks_alone(tmp_path: Path) -> None:
    async def work() -> None:
        one = opened(tmp_path / "tasks.db", greet, workers=0)
        async with joined(one) as client:
            task_id = await begin(client, "greet")
        await closed(one)
        two = opened(tmp_path / "tasks.db", plain)
        async with joined(two) as client:
            await asyncio.sleep(0.05)
            assert (await look(client, task_id))["status"] == "working"
            await client.request("tasks/cancel", {"taskId": task_id})
            assert (await look(client, task_id))["status"] == "cancelled"
        await closed(two)

    run(work)


def test_what_is_kept_cannot_be_read_without_the_keys(tmp_path: Path) -> None:
    async def whisper(word: str, ctx: Context) -> str:
        said_back: Any = await ctx.elicit("And yours?", str, key="mine")
        return f"{word} {said_back.data}"

    async def work() -> None:
        server = opened(tmp_path / "tasks.db", whisper)
        async with joined(server, "ada") as client:
            task_id = await begin(client, "whisper", word="swordfish")
            await until(client, task_id, "input_required")
            await update(client, task_id, mine=accept("marlin"))
            await until(client, task_id, "completed")
        await closed(server)

    run(work)
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert not any(word in stored for word in (b"swordfish", b"marlin", b"And yours", b"ada"))


# Whatever is sent


@pytest.mark.parametrize(
    "named", [None, 1, [], {}, True, "", "\0", "x" * 100_000, "../../etc/passwd", "' OR 1=1 --", "\N{SNOWMAN}"]
)
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_any_name_of_a_task_gives_an_error_of_the_protocol(method: str, named: Any) -> None:
    async def work() -> None:
        async with joined(make_server(greet)) as client:
            params = {"taskId": named, "inputResponses": {"": {}, "\0": {"action": "accept"}}}
            code, message = await refused(client.request(method, params))
            assert code == -32602
            assert isinstance(named, str) == (message == UNKNOWN[1])

    run(work)


def test_answers_of_any_kind_end_nothing() -> None:
    odd: list[Any] = [{"action": []}, {"content": {}}, {"action": "accept", "content": [1]}, {"action": "accept"}]
    odd += [{"a": {"b": {"c": [[[]]]}}}, {"action": "accept", "content": {"value": "x" * 10_000, "more": 1}}]

    async def work() -> None:
        async with joined(make_server(greet)) as client:
            task_id = await begin(client, "greet")
            for answer in odd[:-1]:
                (key,) = (await until(client, task_id, "input_required"))["inputRequests"]
                await update(client, task_id, **{key: answer, "\N{GRINNING FACE}": {}})
            (key,) = (await until(client, task_id, "input_required"))["inputRequests"]
            await update(client, task_id, **{key: odd[-1]})
            seen = await until(client, task_id, "completed", "input_required")
            assert seen["status"] == "completed"

    run(work)


# Clients of 2025-11-25


RELEASED = {b"mcp-protocol-version": b"2025-11-25"}


@asynccontextmanager
async def older(server: MCPServer[Any], who: str | None) -> AsyncIterator[Callable[..., Awaitable[Json]]]:
    """Requests in a session over HTTP."""
    access = None if who is None else Caller(who)
    opening = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "c"}}
    reply = await raw(server, "initialize", opening, headers={}, access=access)
    headers = {**RELEASED, **dict(reply.headers)}

    async def request(method: str, **params: Any) -> Json:
        reply = await raw(server, method, params, headers=headers, access=access)
        found: Json = json.loads(reply.body or b"{}")
        return found

    await server.start()
    try:
        yield request
    finally:
        await server.stop()


async def listed(request: Callable[..., Awaitable[Json]]) -> list[list[str]]:
    """The ids of all tasks, page by page."""
    page = (await request("tasks/list"))["result"]
    pages = [page]
    while "nextCursor" in page:
        page = (await request("tasks/list", cursor=page["nextCursor"]))["result"]
        pages.append(page)
    return [[task["taskId"] for task in page["tasks"]] for page in pages]


def test_a_task_that_cannot_be_opened_is_in_the_list_beside_those_that_can(caplog: pytest.LogCaptureFixture) -> None:
    store = SQLiteTaskStore()

    def with_key(key: str) -> MCPServer[Any]:
        security = RequestStateSecurity(keys=[key * 32])
        return make_server(greet, page_size=1, request_state_security=security, tasks=TaskOptions(store=store))

    async def work() -> None:
        own = set()
        for key in ("a", "b"):
            async with older(with_key(key), "ada") as ada:
                own.add((await ada("tools/call", name="greet", task={}))["result"]["task"]["taskId"])
                for task_id in own:
                    await ada("tasks/result", taskId=task_id)
        async with older(with_key("b"), "ada") as ada:
            assert {task_id for page in await listed(ada) for task_id in page} == own

    run(work)
    assert "cannot be opened" in caplog.text


def test_a_list_has_the_callers_own_tasks_and_no_others() -> None:
    server = make_server(greet, page_size=2)

    async def work() -> None:
        async with older(server, "ada") as ada, older(server, "bob") as bob, older(server, None) as nobody:
            own = set()
            for _ in range(5):
                own.add((await ada("tools/call", name="greet", task={}))["result"]["task"]["taskId"])
            foreign = (await bob("tools/call", name="greet", task={}))["result"]["task"]["taskId"]
            pages = await listed(ada)
            seen = [task_id for page in pages for task_id in page]
            assert [len(page) for page in pages] == [2, 2, 1]
            assert set(seen) == own
            assert [task["taskId"] for task in (await bob("tasks/list"))["result"]["tasks"]] == [foreign]
            assert (await bob("tasks/list", cursor=seen[0]))["error"]["code"] == -32602
            assert (await nobody("tasks/list"))["error"]["code"] == -32601
            for method in ("tasks/get", "tasks/result", "tasks/cancel"):
                assert (await bob(method, taskId=seen[0]))["error"]["code"] == -32602

    run(work)


def test_a_list_goes_on_past_tasks_that_are_over_their_time() -> None:
    async def work() -> None:
        async with older(make_server(stuck, page_size=2), "ada") as ada:

            async def begun(ttl: int) -> str:
                return str((await ada("tools/call", name="stuck", task={"ttl": ttl}))["result"]["task"]["taskId"])

            kept = {await begun(60_000) for _ in range(5)}
            for _ in range(9):
                await begun(1)
            await asyncio.sleep(0.01)
            pages = await listed(ada)
            assert [len(page) for page in pages] == [2, 2, 1]
            assert {task_id for page in pages for task_id in page} == kept

    run(work)


def test_who_waits_for_a_result_is_told_when_the_tasks_time_is_over() -> None:
    async def work() -> None:
        async with older(make_server(stuck), None) as request:
            task_id = (await request("tools/call", name="stuck", task={"ttl": 100}))["result"]["task"]["taskId"]
            assert (await request("tasks/result", taskId=task_id))["error"]["code"] == -32602

    run(work)


@pytest.mark.parametrize(
    ("ttl", "kept_for"),
    [
        (60_000, 60_000),
        (10**12, 86_400_000),
        (10**400, 86_400_000),
        (0, 86_400_000),
        (-5, 86_400_000),
        ("x", 86_400_000),
        (True, 86_400_000),
    ],
)
def test_a_client_may_have_a_task_kept_for_less_but_not_for_longer(ttl: Any, kept_for: int) -> None:
    async def work() -> None:
        async with older(make_server(greet), None) as request:
            result = (await request("tools/call", name="greet", task={"ttl": ttl}))["result"]
            assert result["task"]["ttl"] == kept_for

    run(work)


def test_a_client_that_asks_for_longer_than_there_are_numbers_is_told_for_how_long_a_task_is_kept() -> None:
    async def work() -> None:
        options = TaskOptions(store=SQLiteTaskStore(), ttl=None)
        async with older(make_server(greet, tasks=options), None) as request:
            result = (await request("tools/call", name="greet", task={"ttl": 10**400}))["result"]
            assert result["task"]["ttl"] == 10**12

    run(work)


def test_a_task_that_does_not_stop_is_not_said_to_have_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise._tasking.STOP_SECONDS", 0.1)

    async def work() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def stubborn() -> str:
            while not go_on.is_set():
                begun.set()
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    continue
            return "done"

        async with older(make_server(stubborn), None) as request:
            task_id = (await request("tools/call", name="stubborn", task={}))["result"]["task"]["taskId"]
            await asyncio.wait_for(begun.wait(), SOON)
            assert (await request("tasks/cancel", taskId=task_id))["error"]["code"] == -32603
            assert (await request("tasks/get", taskId=task_id))["result"]["status"] == "working"
            monkeypatch.setattr("turnwise._tasking.STOP_SECONDS", SOON)
            asyncio.get_running_loop().call_later(0.03, go_on.set)
            error = (await request("tasks/cancel", taskId=task_id))["error"]
            assert error["message"] == "Cannot cancel task: already in terminal status 'completed'"

    run(work)


def test_the_extension_means_nothing_to_other_versions() -> None:
    """ "Servers MUST NOT treat this capability as enabling tasks under that protocol version"."""

    async def work() -> None:
        server = make_server(plain, task="optional")
        async with Client(server, mode="2025-11-25", capabilities={"extensions": {EXTENSION: {}}}) as client:
            assert (await client.call_tool("plain")).content[0].text == "plain"  # type: ignore[union-attr]
        assert await kept(server) == 0

    run(work)


@pytest.mark.parametrize("mode", ["2024-11-05", "2025-06-18"])
def test_versions_without_tasks_are_told_that_a_tool_is_one(mode: Any) -> None:
    async def work() -> None:
        server = make_server(plain)
        async with Client(server, mode=mode) as client:
            result = await client.call_tool("plain")
            assert result.is_error
            (tool,) = (await client.list_tools()).tools
            assert tool.execution is None
        assert await kept(server) == 0

    run(work)


# Workers that cannot, and legs that bring them down


@pytest.mark.parametrize("left", [0, 5])
def test_a_leg_that_gets_no_further_is_given_up_in_the_end(tmp_path: Path, left: int) -> None:
    """A worker that dies says nothing: here one claims the leg again and again, and never comes back. Those who could
    not open it, and left it to others, do not count.
    """
    plays: list[int] = []

    async def deadly() -> str:
        plays.append(1)
        return "alive"

    async def work() -> None:
        store = SQLiteTaskStore(tmp_path / "tasks.db")
        options = TaskOptions(store=store, workers=0, attempts=2, lease=0.01)
        server = make_server(deadly, task="always", tasks=options)
        other = make_server(
            deadly, task="always", tasks=options, request_state_security=RequestStateSecurity(keys=["b" * 32])
        )
        async with joined(server) as client:
            task_id = await begin(client, "deadly")
            assert server.tasks is not None
            assert other.tasks is not None
            for number in range(left):
                claim = await store.claim("stranger", 0.01, time.time() + 10 * number, server.tasks.limits)
                assert claim is not None
                await other.tasks.play(claim)
            for number in (1, 2):
                assert await store.claim("dead", 0.01, time.time() + 100 * number, server.tasks.limits) is not None
            claim = await store.claim("alive", 60, time.time() + 300, server.tasks.limits)
            assert claim is not None
            await server.tasks.play(claim)
            seen = await until(client, task_id, "failed")
            assert "Given up: 2 workers fell silent" in seen["error"]["message"]
        assert plays == []
        await store.aclose()

    run(work)


def test_a_leg_is_not_given_up_before_it_was_tried_as_often_as_is_allowed(tmp_path: Path) -> None:
    async def work() -> None:
        server = opened(tmp_path / "tasks.db", plain, workers=0, attempts=2)
        async with joined(server) as client:
            task_id = await begin(client, "plain")
            assert server.tasks is not None
            store, limits = server.tasks.store, server.tasks.limits
            assert await store.claim("dead", 0.01, time.time(), limits) is not None
            claim = await store.claim("alive", 60, time.time() + 100, limits)
            assert claim is not None
            await server.tasks.play(claim)
            assert said(await until(client, task_id, "completed")) == "plain"
        await closed(server)

    run(work)


def test_legs_that_ended_well_and_steps_that_were_taken_do_not_count_as_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise.tasks.dispatch.LOOK_SECONDS", 0.01)
    begun: set[str] = set()

    async def act(name: str) -> str:
        if name not in begun:
            begun.add(name)
            raise LostLease  # As if the process had died over it.
        return name

    async def advance(ctx: Context) -> str:
        for _ in range(3):
            await ctx.elicit("Go on?", str)
        return " ".join([await ctx.step(act, name) for name in ("one", "two", "three", "four")])

    async def work() -> None:
        options = TaskOptions(store=SQLiteTaskStore(), attempts=2, lease=0.05)
        async with joined(make_server(advance, tasks=options)) as client:
            task_id = await begin(client, "advance")
            for _ in range(3):
                (key,) = (await until(client, task_id, "input_required"))["inputRequests"]
                await update(client, task_id, **{key: accept("yes")})
            assert said(await until(client, task_id, "completed")) == "one two three four"

    run(work)


def test_who_has_other_keys_leaves_a_task_alone_and_can_stop_it(tmp_path: Path) -> None:
    async def ask(ctx: Context) -> str:
        await ctx.elicit("Go on?", str, key="go")
        return "done"

    def server_with(key: str) -> MCPServer[Any]:
        options = TaskOptions(store=SQLiteTaskStore(tmp_path / "tasks.db"), workers=0)
        security = RequestStateSecurity(keys=[key * 32])
        return make_server(ask, task="always", tasks=options, request_state_security=security)

    async def work() -> None:
        ours, other = server_with("a"), server_with("b")
        async with joined(ours) as client, joined(other) as stranger:
            task_id = await begin(client, "ask")
            assert other.tasks is not None
            assert ours.tasks is not None
            claim = await other.tasks.store.claim("stranger", 60, time.time(), other.tasks.limits)
            assert claim is not None
            await other.tasks.play(claim)
            claim = await ours.tasks.store.claim("ours", 60, time.time() + 3, ours.tasks.limits)
            assert claim is not None
            await ours.tasks.play(claim)
            await until(client, task_id, "input_required")
            with pytest.raises(MCPError, match="cannot open the task"):
                await stranger.request("tasks/get", {"taskId": task_id})
            await stranger.request("tasks/cancel", {"taskId": task_id})
            await until(client, task_id, "cancelled")
            await ours.tasks.store.aclose()
            await other.tasks.store.aclose()

    run(work)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300, "1"])
def test_a_sleep_that_never_ends_is_the_authors_mistake(seconds: Any) -> None:
    async def dream(ctx: Context) -> str:
        await ctx.sleep(seconds)
        return "awake"

    async def work() -> None:
        async with joined(make_server(dream)) as client:
            seen = await until(client, await begin(client, "dream"), "completed")
            assert seen["result"]["isError"] is True

    run(work)


# How many


def test_a_caller_has_no_more_tasks_at_a_time_than_the_server_allows() -> None:
    options = TaskOptions(store=SQLiteTaskStore(), grace=0.1, per_caller=2)
    server = make_server(greet, stuck, tasks=options)

    async def work() -> None:
        async with joined(server, "ada") as ada, joined(server, "bob") as bob:
            first, _ = await begin(ada, "greet"), await begin(ada, "stuck")
            code, words = await refused(ada.request("tools/call", {"name": "stuck"}))
            assert (code, words) == (-32603, "There are 2 tasks of yours already that are not over; no more are begun")
            assert await kept(server) == 2
            await begin(bob, "stuck")
            # One that waits counts, one that is over does not.
            seen = await until(ada, first, "input_required")
            assert (await refused(ada.request("tools/call", {"name": "stuck"})))[0] == -32603
            await update(ada, first, **{key: accept("Ada") for key in seen["inputRequests"]})
            await until(ada, first, "completed")
            await begin(ada, "stuck")

    run(work)


def test_callers_who_are_nobody_are_not_counted() -> None:
    async def work() -> None:
        async with joined(make_server(stuck, tasks=TaskOptions(store=SQLiteTaskStore(), per_caller=1))) as client:
            await begin(client, "stuck")
            await begin(client, "stuck")

    run(work)


@pytest.mark.parametrize("most", [0, -1, 1.5, "2", True])
def test_a_limit_that_is_none_is_refused(most: Any) -> None:
    with pytest.raises(ValueError, match="per_caller is a whole number above 0, or None"):
        TaskOptions(per_caller=most)


def test_the_log_says_when_a_task_begins_and_how_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with joined(make_server(plain, stuck)) as client:
            done, stopped = await begin(client, "plain"), await begin(client, "stuck")
            await until(client, done, "completed")
            await client.request("tasks/cancel", {"taskId": stopped})
            await until(client, stopped, "cancelled")
            lines = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
            for task_id, tool, end in ((done, "plain", "completed"), (stopped, "stuck", "cancelled")):
                assert f"task {task_id}: tools/call {tool!r} began" in lines
                assert f"task {task_id}: {tool!r} {end}" in lines

    caplog.set_level(logging.INFO, logger="turnwise.tasks")
    run(work)
