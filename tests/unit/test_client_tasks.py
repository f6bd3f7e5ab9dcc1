"""Tasks from the client's side (SEP-2663): followed without a word, handed out, answered, stopped, and servers that
say of a task what no good server says.
"""

import asyncio
import itertools
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.unit.joined import Peer, Tap, accept, form, run, text
from turnwise import (
    CallerError,
    Client,
    ConnectionLost,
    Context,
    DeadlineExceeded,
    Done,
    Elicit,
    InvalidAnswer,
    InvalidReply,
    MCPError,
    MCPServer,
    Pending,
    Resolve,
    SQLitePendingStore,
    SQLiteTaskStore,
    SyncClient,
    TaskCancelled,
    TaskInHand,
    TaskOptions,
    TaskStatus,
    ToolError,
    TooManyRounds,
    Unanswerable,
)

EXTENSION = "io.modelcontextprotocol/tasks"
SOON = 8.0
Json = dict[str, Any]


def make_server(*tools: Callable[..., Any], task: Any = "always", **options: Any) -> MCPServer[Any]:
    kept = TaskOptions(store=SQLiteTaskStore(), poll=0.01, grace=0.1)
    server: MCPServer[Any] = MCPServer("errands", **{"tasks": kept, **options})
    for tool in tools:
        server.add_tool(tool, task=task)
    return server


async def greet(ctx: Context) -> str:
    """Ask for a name."""
    await ctx.report("asking")
    name: Any = await ctx.elicit("Your name?", str, key="name")
    await ctx.report("greeting")
    return f"Hello, {name.data}!" if name.action == "accept" else name.action


async def plain() -> str:
    return "plain"


async def stuck() -> str:
    await asyncio.Event().wait()
    return "never"


async def ada(*_: Any) -> Json:
    return accept(value="Ada")


async def until(client: Client, task_id: str, *statuses: str) -> TaskStatus:
    ends = time.monotonic() + SOON
    while (seen := await client.get_task(task_id)).status not in statuses:
        assert time.monotonic() < ends, seen
        await asyncio.sleep(0.005)
    return seen


async def begun(client: Client, tool: str, **arguments: Any) -> TaskInHand:
    task = await client.begin(tool, arguments)
    assert isinstance(task, TaskInHand)
    return task


# As if it were no task


def test_a_call_gives_the_plain_result() -> None:
    async def work() -> None:
        tap = Tap(make_server(greet))
        async with Client(tap, mode="2026-07-28", elicitation_callback=ada) as client:
            assert text(await client.call_tool("greet")) == "Hello, Ada!"
        assert tap.methods[0] == "tools/call"
        assert set(tap.methods[1:]) == {"tasks/get", "tasks/update"}
        assert tap.methods.count("tasks/update") == 1
        for request in tap.requests:
            declared = request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
            assert declared["extensions"] == {EXTENSION: {}}

    run(work())


def test_the_callback_hears_in_which_call_it_is_asked() -> None:
    askings: list[Any] = []

    async def answer(asking: Any, params: Any) -> Json:
        askings.append((asking, params))
        return accept(value="Ada")

    async def greet_in(city: str, ctx: Context) -> str:
        name: Any = await ctx.elicit(f"Who is in {city}?", str, key="name")
        return f"{name.data} in {city}"

    async def work() -> None:
        async with Client(make_server(greet_in), elicitation_callback=answer) as client:
            assert text(await client.call_tool("greet_in", {"city": "Rome"})) == "Ada in Rome"
        ((asking, params),) = askings
        assert (asking.key, asking.target, asking.arguments) == ("name", "greet_in", {"city": "Rome"})
        assert params.message == "Who is in Rome?"

    run(work())


def test_what_a_task_says_of_itself_is_progress() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def tell(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def work() -> None:
        async with Client(make_server(greet), elicitation_callback=ada) as client:
            await client.call_tool("greet", progress_callback=tell)
        numbers = [progress for progress, _, _ in heard]
        assert numbers == sorted(set(numbers))
        assert [message for _, _, message in heard][-1] == "greeting"
        assert "asking" in [message for _, _, message in heard]

    run(work())


def test_a_progress_callback_that_fails_does_not_fail_the_call(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no paper")

    async def work() -> None:
        async with Client(make_server(greet), elicitation_callback=ada) as client:
            assert text(await client.call_tool("greet", progress_callback=fail)) == "Hello, Ada!"

    run(work())
    assert "no paper" in caplog.text


def test_errors_are_those_of_a_call() -> None:
    async def fail() -> str:
        raise ToolError("No such thing")

    async def refuse() -> str:
        raise MCPError(4050, "Out of paper", {"tray": 2})

    async def work() -> None:
        async with Client(make_server(fail, refuse)) as client:
            result = await client.call_tool("fail")
            assert (result.is_error, text(result)) == (True, "No such thing")
            with pytest.raises(MCPError, match="Out of paper") as caught:
                await client.call_tool("refuse")
            assert (caught.value.code, caught.value.data) == (4050, {"tray": 2})

    run(work())


def test_a_result_is_held_against_the_tools_schema() -> None:
    task = {"taskId": "t", "status": "completed", "result": {"content": [], "structuredContent": {"n": "one"}}}
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"name": "count", "inputSchema": {"type": "object"}, "outputSchema": schema}

    async def work() -> None:
        async with Client(peer(lambda: task, **{"tools/list": {"tools": [tool]}}), mode="2026-07-28") as client:
            await client.list_tools()
            with pytest.raises(InvalidReply):
                await client.call_tool("count")

    run(work())


def test_rounds_may_come_first() -> None:
    def ask_name() -> Elicit[str]:
        return Elicit("Your name?", str, key="name")

    async def hello(name: Annotated[str, Resolve(ask_name)], ctx: Context) -> str:
        again: Any = await ctx.elicit("Again?", str, key="name")
        return f"{name}, {again.data}"

    async def work() -> None:
        async with Client(make_server(hello), elicitation_callback=ada) as client:
            assert text(await client.call_tool("hello")) == "Ada, Ada"

    run(work())


def test_a_client_without_tasks_says_so() -> None:
    async def work() -> None:
        server = make_server(greet)
        server.add_tool(plain, task="optional")
        tap = Tap(server)
        async with Client(tap, mode="2026-07-28", tasks=False) as client:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("greet")
            assert caught.value.code == -32021
            assert text(await client.call_tool("plain")) == "plain"
            with pytest.raises(MCPError) as caught:
                await client.get_task("x")
            assert caught.value.code == -32021
        declared = tap.requests[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert "extensions" not in declared

    run(work())


def test_other_extensions_are_declared_beside_it() -> None:
    async def work() -> None:
        tap = Tap(make_server(plain))
        async with Client(tap, mode="2026-07-28", capabilities={"extensions": {"x/y": {"z": 1}}}) as client:
            await client.call_tool("plain")
        declared = tap.requests[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert declared["extensions"] == {"x/y": {"z": 1}, EXTENSION: {}}

    run(work())


# In hand


def test_a_task_is_handed_out_and_followed_by_another_client() -> None:
    server = make_server(greet)
    shown: list[tuple[str, str | None]] = []

    async def work() -> None:
        async with Client(server) as first, Client(server, elicitation_callback=ada) as second:
            task = await begun(first, "greet")
            again = TaskInHand.from_json(task.to_json())
            assert again == task
            assert (again.tool, again.arguments, again.server) == ("greet", {}, None)
            result = await second.follow_task(again, on_status=lambda seen: shown.append((seen.status, seen.message)))
            assert text(result) == "Hello, Ada!"
            assert text(await first.follow_task(task.id)) == "Hello, Ada!"
        assert shown[-1] == ("completed", "greeting")
        assert len(shown) == len(set(shown))

    run(work())


@pytest.mark.parametrize(
    "words",
    [
        *(
            "",
            "null",
            "[]",
            "1",
            '"id"',
            "{}",
            "not json",
            b"\xff",
            '{"id": 1, "tool": "t"}',
            '{"id": "", "tool": "t"}',
        ),
        *('{"id": "x"}', '{"id": "x", "tool": 1}', '{"id": "x", "tool": "t", "arguments": []}'),
        *('{"id": "x", "tool": "t", "server": 1}', '{"id": "x", "tool": "t", "more": 1}', '{"id": null, "tool": "t"}'),
    ],
)
def test_what_is_no_task_in_hand_is_refused(words: str | bytes) -> None:
    with pytest.raises(CallerError, match="this is no task in hand"):
        TaskInHand.from_json(words)


def test_a_task_of_another_server_is_not_followed() -> None:
    async def work() -> None:
        task = TaskInHand("t", "greet", {}, "https://example.com/mcp")
        tap = Tap(make_server(greet))
        async with Client(tap, mode="2026-07-28") as client:
            with pytest.raises(CallerError, match="this task belongs to https"):
                await client.follow_task(task)
        assert tap.requests == []

    run(work())


def test_begin_gives_a_result_where_there_is_no_task() -> None:
    async def work() -> None:
        async with Client(make_server(plain, task="never")) as client:
            done = await client.begin("plain")
            assert isinstance(done, Done)

    run(work())


def test_a_pending_call_becomes_a_task_and_is_no_longer_pending(tmp_path: Path) -> None:
    async def order(ctx: Context) -> str:
        who: Any = await ctx.elicit("Who?", str, key="who")
        await ctx.become_task()
        return f"for {who.data}"

    async def work() -> None:
        store = SQLitePendingStore(tmp_path / "pending.db")
        async with Client(make_server(order, task=None), pending_store=store) as client:
            pending = await client.begin("order")
            assert isinstance(pending, Pending)
            task = await client.resume(pending.id, {"who": accept(value="Ada")})
            assert isinstance(task, TaskInHand)
            assert task.tool == "order"
            assert await store.list() == []
            assert text(await client.follow_task(task)) == "for Ada"
        await store.aclose()

    run(work())


def test_looking_answering_and_stopping_by_hand() -> None:
    async def work() -> None:
        async with Client(make_server(greet, stuck)) as client:
            task = await begun(client, "greet")
            seen = await until(client, task.id, "input_required")
            assert (seen.id, seen.message, seen.poll, seen.is_over) == (task.id, "asking", 0.01, False)
            assert seen.requests["name"]["params"]["message"] == "Your name?"
            with pytest.raises(CallerError, match="does not ask age; it asks name"):
                await client.update_task(task.id, {"age": accept(value=7)})
            for wrong in (accept(value=7), {"action": "perhaps"}, 7, {}):
                with pytest.raises(InvalidAnswer):
                    await client.update_task(task.id, {"name": wrong})
            assert (await client.get_task(task.id)).status == "input_required"
            await client.update_task(task.id, {"name": "Ada"})
            seen = await until(client, task.id, "completed")
            assert seen.is_over
            assert seen.result is not None
            assert seen.result["content"][0]["text"] == "Hello, Ada!"
            with pytest.raises(CallerError, match="does not ask name"):
                await client.update_task(task.id, {"name": accept(value="Ada")})
            other = await begun(client, "stuck")
            await client.cancel_task(other.id)
            await until(client, other.id, "cancelled")
            with pytest.raises(TaskCancelled):
                await client.follow_task(other)
            for work_on in (client.get_task, client.cancel_task, client.follow_task):
                with pytest.raises(MCPError, match="Unknown task"):
                    await work_on("nothing")

    run(work())


def test_a_question_that_nobody_answers_leaves_the_task() -> None:
    async def work() -> None:
        server = make_server(greet)
        async with Client(server) as client, Client(server, elicitation_callback=ada) as other:
            task = await begun(client, "greet")
            with pytest.raises(Unanswerable):
                await client.follow_task(task)
            assert (await client.get_task(task.id)).status == "input_required"
            assert text(await other.follow_task(task)) == "Hello, Ada!"

    run(work())


def test_the_same_from_code_without_a_loop() -> None:
    def answer(*_: Any) -> Json:
        return accept(value="Ada")

    shown: list[str] = []
    with SyncClient(make_server(greet, stuck), elicitation_callback=answer) as client:
        assert text(client.call_tool("greet")) == "Hello, Ada!"
        task = client.begin("greet")
        assert isinstance(task, TaskInHand)
        while client.get_task(task.id).status != "input_required":
            time.sleep(0.005)
        client.update_task(task.id, {"name": accept(value="Bob")})
        assert text(client.follow_task(task, on_status=lambda seen: shown.append(seen.status))) == "Hello, Bob!"
        assert shown[-1] == "completed"
        other = client.begin("stuck")
        assert isinstance(other, TaskInHand)
        with pytest.raises(DeadlineExceeded):
            client.follow_task(other, deadline=0.05)
        client.cancel_task(other.id)
        with pytest.raises(TaskCancelled):
            client.follow_task(other.id)


def test_a_client_of_a_server_that_is_started_anew_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        first = make_server(greet)
        async with Client(first) as client:
            task = await begun(client, "greet")
            await until(client, task.id, "input_required")
        async with Client(first, elicitation_callback=ada) as client:
            assert text(await client.follow_task(task)) == "Hello, Ada!"

    run(work())


# Giving up


def test_a_deadline_of_following_leaves_the_task() -> None:
    async def work() -> None:
        async with Client(make_server(stuck)) as client:
            task = await begun(client, "stuck")
            with pytest.raises(DeadlineExceeded, match="it goes on"):
                await client.follow_task(task, deadline=0.05)
            assert (await client.get_task(task.id)).status == "working"

    run(work())


def test_a_deadline_of_the_call_stops_the_task() -> None:
    async def work() -> None:
        tap = Tap(make_server(stuck))
        async with Client(tap, mode="2026-07-28") as client:
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("stuck", deadline=0.1)
            (stopped,) = [request for request in tap.requests if request["method"] == "tasks/cancel"]
            await until(client, stopped["params"]["taskId"], "cancelled")

    run(work())


@pytest.mark.parametrize("way", ["call", "follow"])
def test_who_is_cancelled_stops_the_task(way: str) -> None:
    async def work() -> None:
        tap = Tap(make_server(stuck))
        async with Client(tap, mode="2026-07-28") as client:
            if way == "call":
                waiting = asyncio.create_task(client.call_tool("stuck"))
            else:
                waiting = asyncio.create_task(client.follow_task(await begun(client, "stuck")))
            ends = time.monotonic() + SOON
            while "tasks/get" not in tap.methods:
                assert time.monotonic() < ends
                await asyncio.sleep(0.005)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            (stopped,) = [request for request in tap.requests if request["method"] == "tasks/cancel"]
            await until(client, stopped["params"]["taskId"], "cancelled")

    run(work())


def test_who_interrupts_a_question_stops_the_task() -> None:
    methods: list[str] = []

    async def interrupted(asking: Any, params: Any) -> Json:
        raise KeyboardInterrupt

    async def work() -> None:
        tap = Tap(make_server(greet))
        async with Client(tap, mode="2026-07-28", elicitation_callback=interrupted) as client:
            try:
                await client.call_tool("greet")
            finally:
                methods.extend(tap.methods)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())  # In its main task, where a person's Ctrl-C comes.
    assert methods[-1] == "tasks/cancel"


def test_a_server_that_does_not_hear_of_it_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("turnwise._following.CANCEL_SECONDS", 0.05)

    followed = asyncio.Event()

    async def deaf(method: str, params: Json) -> Json:
        if method == "tasks/cancel":
            await asyncio.sleep(60)
        if method == "tasks/get":
            followed.set()
        return working() if method == "tools/call" else {**working(), "resultType": "complete"}

    async def work() -> None:
        async with Client(Peer(deaf), mode="2026-07-28") as client:
            waiting = asyncio.create_task(client.call_tool("t"))
            await followed.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

    with caplog.at_level(logging.WARNING, "turnwise.client"):
        run(work())
    assert "may go on" in caplog.text


# What servers say


def working(**facts: Any) -> Json:
    return {"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 1, "ttlMs": None, **facts}


def peer(then: Callable[[], Any], **others: Any) -> Peer:
    """A server whose every call becomes a task, of which it says `then()`."""

    def answer(method: str, params: Json) -> Any:
        if method in others:
            return others[method]
        return working() if method == "tools/call" else then() if method == "tasks/get" else {}

    return Peer(answer)


async def called(server: Peer, **options: Any) -> Any:
    async with Client(server, mode="2026-07-28", **options) as client:
        return await client.call_tool("t")


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"taskId": "t"},
        {"status": "working"},
        {"taskId": "", "status": "working"},
        {"taskId": 7, "status": "working"},
        {"taskId": "t", "status": "resting"},
        {"taskId": "t", "status": ["working"]},
        {"taskId": "t", "status": None},
        {"taskId": "another", "status": "working"},
        {"taskId": "t", "status": "completed"},
        {"taskId": "t", "status": "completed", "result": "done"},
        {"taskId": "t", "status": "completed", "result": {"content": 7}},
        {"taskId": "t", "status": "completed", "result": {"messages": []}},
        {"taskId": "t", "status": "failed"},
        {"taskId": "t", "status": "failed", "error": "no"},
        {"taskId": "t", "status": "failed", "error": {"code": "x", "message": "y"}},
        {"taskId": "t", "status": "failed", "error": {"code": True}},
        {"taskId": "t", "status": "input_required", "inputRequests": []},
    ],
)
def test_a_task_of_the_wrong_shape_is_an_invalid_reply(said: Json) -> None:
    with pytest.raises(InvalidReply):
        run(called(peer(lambda: said)))


@pytest.mark.parametrize("said", [{}, {"taskId": 1}, {"taskId": "", "status": "working"}, {"taskId": "t", "status": 1}])
def test_a_creation_of_the_wrong_shape_is_an_invalid_reply(said: Json) -> None:
    with pytest.raises(InvalidReply):
        run(called(Peer(lambda method, params: {"resultType": "task", **said})))


def test_a_task_in_place_of_anything_but_a_tools_result_is_an_invalid_reply() -> None:
    """ "A client that receives CreateTaskResult in response to an unsupported request type MUST interpret this as an
    invalid response to the request."
    """

    async def work() -> None:
        async with Client(Peer(lambda method, params: working()), mode="2026-07-28") as client:
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: client.get_prompt("p"),
                lambda: client.read_resource("x://y"),
                client.list_tools,
                lambda: client.cancel_task("t"),
                lambda: client.begin_prompt("p"),
                client.discover,
            ]
            for call in calls:
                with pytest.raises(InvalidReply):
                    await call()

    run(work())


def test_one_round_by_hand_gives_the_task_as_it_came() -> None:
    async def work() -> None:
        async with Client(Peer(lambda method, params: working()), mode="2026-07-28") as client:
            assert await client.request("tools/call", {"name": "t"}) == working()

    run(work())


def test_a_task_for_who_takes_none_is_an_invalid_reply() -> None:
    with pytest.raises(InvalidReply):
        run(called(Peer(lambda method, params: working()), tasks=False))


@pytest.mark.parametrize("facts", [{"message": 7}, {}, {"message": None, "data": [1]}])
def test_a_failure_may_say_little(facts: Json) -> None:
    said = {"taskId": "t", "status": "failed", "error": {"code": -1, **facts}}
    with pytest.raises(MCPError) as caught:
        run(called(peer(lambda: said)))
    assert caught.value.code == -1


@pytest.mark.parametrize(
    ("poll", "seconds"),
    [(0, 0.01), (-5, 0.01), (10**30, 60.0), (1500, 1.5), (None, 1.0), ("soon", 1.0), (True, 1.0), (0.5, 0.01)],
)
def test_a_server_is_looked_at_neither_all_the_time_nor_never(poll: Any, seconds: float) -> None:
    said = {"taskId": "t", "status": "working", **({} if poll is None else {"pollIntervalMs": poll})}

    async def work() -> None:
        async with Client(peer(lambda: said), mode="2026-07-28") as client:
            assert (await client.get_task("t")).poll == seconds

    run(work())


def test_a_client_looks_no_more_often_than_it_is_told_to() -> None:
    looks: list[float] = []

    def look() -> Json:
        looks.append(time.monotonic())
        return {**working(pollIntervalMs=60), "status": "completed" if len(looks) == 3 else "working", "result": DONE}

    async def work() -> None:
        begins = time.monotonic()
        server = peer(look, **{"tools/call": working(pollIntervalMs=40)})
        async with Client(server, mode="2026-07-28") as client:
            await client.call_tool("t")
        assert looks[0] - begins >= 0.039
        assert all(later - sooner >= 0.059 for sooner, later in itertools.pairwise(looks))

    run(work())


DONE: Json = {"content": [{"type": "text", "text": "done"}]}


def test_a_task_that_works_for_ever_ends_with_the_deadline() -> None:
    async def work() -> None:
        server = peer(working)
        async with Client(server, mode="2026-07-28") as client:
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("t", deadline=0.1)
        assert server.requests[-1]["method"] == "tasks/cancel"

    run(work())


def test_a_question_is_asked_once_however_often_it_is_seen() -> None:
    asked: list[str] = []
    looks = iter(["a", "a", "a", "ab", "b", "b"])

    async def answer(asking: Any, params: Any) -> Json:
        asked.append(asking.key)
        return accept(value="x")

    def look() -> Json:
        keys = next(looks, None)
        if keys is None:
            return {**working(), "status": "completed", "result": DONE}
        return {**working(), "status": "input_required", "inputRequests": {key: form() for key in keys}}

    async def work() -> None:
        server = peer(look)
        async with Client(server, mode="2026-07-28", elicitation_callback=answer) as client:
            assert text(await client.call_tool("t")) == "done"
        updates = [request["params"] for request in server.requests if request["method"] == "tasks/update"]
        assert [update["inputResponses"].keys() for update in updates] == [{"a"}, {"b"}]
        assert {update["taskId"] for update in updates} == {"t"}

    run(work())
    assert asked == ["a", "b"]


def test_a_server_that_goes_on_asking_is_left() -> None:
    count = 0

    def look() -> Json:
        nonlocal count
        count += 1
        return {**working(), "status": "input_required", "inputRequests": {f"q{count}": form()}}

    async def answer(*_: Any) -> Json:
        return accept(value="x")

    with pytest.raises(TooManyRounds):
        run(called(peer(look), elicitation_callback=answer, input_required_max_rounds=3))
    assert count == 4


@pytest.mark.parametrize("asked", [{"q": 7}, {"q": {}}, {"q": {"method": "root/access"}}, {"q": {"method": []}}])
def test_a_question_that_is_none_is_put_to_nobody(asked: Json) -> None:
    heard: list[Any] = []

    async def answer(*_: Any) -> Json:
        heard.append(_)
        return accept(value="x")

    said = {**working(), "status": "input_required", "inputRequests": asked}

    async def work() -> None:
        server = peer(lambda: said)
        with pytest.raises(Exception, match="q") as caught:
            await called(server, elicitation_callback=answer)
        assert type(caught.value).__name__ in ("UnknownInputRequest", "MalformedQuestion")
        assert "tasks/update" not in [request["method"] for request in server.requests]

    run(work())
    assert heard == []


def test_a_server_that_is_away_for_a_moment_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise._following.LOST_SECONDS", 0.01)
    monkeypatch.setattr("turnwise._conversation.REISSUES", ())
    away = iter([True, True, False, True, False])

    def look() -> Json:
        if next(away, False):
            raise ConnectionLost("away", sent=True)
        return {**working(), "status": "completed", "result": DONE} if next(away, None) is None else working()

    assert text(run(called(peer(look)))) == "done"  # After two losses, a look, another loss, and the end.

    def gone() -> Json:
        raise ConnectionLost("gone", sent=True)

    server = peer(gone)
    with pytest.raises(ConnectionLost):
        run(called(server))
    assert [request["method"] for request in server.requests].count("tasks/get") == 6


def test_a_look_whose_reply_was_lost_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look, to answer and to stop say the same when they are said twice."""
    monkeypatch.setattr("turnwise._conversation.REISSUES", (0.001, 0.001))
    lost: set[str] = set()

    def answer(method: str, params: Json) -> Json:
        if method not in lost:
            lost.add(method)
            raise ConnectionLost("gone", sent=True)
        return {**working(), "resultType": "complete", "inputRequests": {"q": form()}, "status": "input_required"}

    async def work() -> None:
        async with Client(Peer(answer), mode="2026-07-28") as client:
            await client.get_task("t")
            await client.update_task("t", {"q": accept(value="x")})
            await client.cancel_task("t")
        assert lost == {"tasks/get", "tasks/update", "tasks/cancel"}

    run(work())


def test_over_http_the_headers_name_the_task() -> None:
    from turnwise.dialects.v2026_07_28_client import Caller

    caller = Caller({"name": "c", "version": "1"}, None, has_headers=True)
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        request = caller.request(method, {"taskId": "0123abc"}, {})
        assert request.headers["Mcp-Method"] == method
        assert request.headers["Mcp-Name"] == "0123abc"
        assert json.loads(request.body)["params"]["taskId"] == "0123abc"
