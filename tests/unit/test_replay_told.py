"""What replay tells: spans and log lines of its rounds, and what `check_replay` finds in a tool."""

import asyncio
import datetime
import logging
import os
import random
import secrets
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import time as now
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from turnwise import (
    Context,
    MCPError,
    MCPServer,
    MemoryStore,
    OpenTelemetry,
    RequestStateSecurity,
    SQLiteTaskStore,
    StepFailed,
    ToolError,
    step,
)
from turnwise.testing import Connection, Finding, ReplayReport, check_replay, connect

KEY = b"k" * 32
SECRET = "the secret of the card"
YES = {"action": "accept", "content": {"value": SECRET}}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

Result = dict[str, Any]
Tool = Callable[..., Any]


class Spans:
    """Where spans end up."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def server(self, **options: Any) -> MCPServer[Any]:
        security = RequestStateSecurity(keys=[KEY])
        return MCPServer("told", request_state_security=security, telemetry=OpenTelemetry(self.provider), **options)

    def found(self) -> list[ReadableSpan]:
        """Those of rounds, in their order."""
        return [span for span in self._exporter.get_finished_spans() if span.kind is SpanKind.SERVER]

    def steps(self) -> list[ReadableSpan]:
        """Those of steps, in the order in which they ended."""
        return [span for span in self._exporter.get_finished_spans() if span.name.startswith("step ")]


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


async def pay(card: str, ctx: Context) -> str:
    """Two questions, a step, and a secret in everything."""

    async def charge(number: str) -> str:
        return number

    await ctx.elicit(f"Pay with {card}?", str)
    await ctx.step(charge, card)
    answer: Any = await ctx.elicit("Which address?", str)
    return str(answer.data)


async def fails(card: str, ctx: Context) -> str:
    await ctx.elicit(f"Pay with {card}?", str)
    raise LookupError(card)


async def refuses(card: str, ctx: Context) -> str:
    await ctx.elicit(f"Pay with {card}?", str)
    raise ToolError(card)


async def send(client: Connection, last: Result | None = None, **meta: Any) -> Result:
    client.capabilities = {"elicitation": {}}
    params: dict[str, Any] = {"name": "pay", "arguments": {"card": SECRET}}
    if last is not None:
        params |= {
            "inputResponses": dict.fromkeys(last["inputRequests"], YES),
            "requestState": last["requestState"],
        }
    return await client.request("tools/call", params, **meta)


def played(server: MCPServer[Any], tool: Tool, **options: Any) -> list[Result]:
    """All rounds of one call."""
    server.add_tool(tool, "pay", **options)

    async def run() -> list[Result]:
        async with connect(server) as client:
            results = [await send(client)]
            while results[-1]["resultType"] == "input_required":
                results.append(await send(client, results[-1]))
            return results

    return asyncio.run(run())


# Spans


def test_the_rounds_of_a_flow_are_spans_each_linked_to_the_one_before() -> None:
    spans = Spans()
    results = played(spans.server(), pay)
    first, second, third = spans.found()
    assert [span.name for span in spans.found()] == ["tools/call pay"] * 3
    assert all(span.kind is SpanKind.SERVER and span.parent is None for span in spans.found())
    assert [[link.context.span_id for link in span.links] for span in spans.found()] == [
        [],
        [id_of(first)],
        [id_of(second)],
    ]
    told = [facts(span) for span in spans.found()]
    assert len({fact["turnwise.flow.id"] for fact in told}) == 1
    assert [fact["turnwise.flow.round"] for fact in told] == [1, 2, 3]
    assert [fact["turnwise.flow.sheds"] for fact in told] == [0, 0, 0]
    assert [fact["mcp.result.type"] for fact in told] == ["input_required", "input_required", "complete"]
    assert [fact.get("turnwise.questions") for fact in told] == [1, 1, None]
    assert [fact.get("turnwise.ledger.bytes") for fact in told[:2]] == [len(r["requestState"]) for r in results[:2]]
    assert {fact["gen_ai.tool.name"] for fact in told} == {"pay"}
    assert {fact["mcp.method.name"] for fact in told} == {"tools/call"}
    assert third.status.status_code is StatusCode.UNSET


def test_the_link_holds_from_one_instance_to_another_even_over_one_that_does_not_trace() -> None:
    one, two = Spans(), Spans()
    silent: MCPServer[Any] = MCPServer("told", request_state_security=RequestStateSecurity(keys=[KEY]))

    async def run() -> None:
        last: Result | None = None
        for server in (one.server(), silent, two.server()):
            server.add_tool(pay, "pay")
            async with connect(server) as client:
                last = await send(client, last)

    asyncio.run(run())
    (first,), (last,) = one.found(), two.found()
    assert [link.context.span_id for link in last.links] == [id_of(first)]
    assert facts(last)["turnwise.flow.id"] == facts(first)["turnwise.flow.id"]


def test_the_callers_own_trace_is_the_parent() -> None:
    spans = Spans()
    server = spans.server()
    server.add_tool(pay, "pay")

    async def run() -> None:
        async with connect(server) as client:
            await send(client, traceparent=PARENT)
            await send(client, traceparent="no trace at all")

    asyncio.run(run())
    first, second = spans.found()
    assert first.parent is not None
    assert f"{first.parent.trace_id:032x}-{first.parent.span_id:016x}" == PARENT[3:-3]
    assert second.parent is None


def test_where_the_caller_has_no_trace_the_span_around_the_request_is_the_parent() -> None:
    spans = Spans()
    server = spans.server()
    server.add_tool(pay, "pay")

    async def run() -> int:
        async with connect(server) as client:
            with spans.provider.get_tracer("http").start_as_current_span("POST /mcp") as span:
                await send(client)
                return span.get_span_context().span_id

    around = asyncio.run(run())
    assert parent_of(spans.found()[0]) == around


@pytest.mark.parametrize("single_use", [False, True])
def test_while_a_function_or_a_step_runs_its_span_is_the_current_one(single_use: bool) -> None:
    spans = Spans()
    seen: list[int] = []

    def look() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def tool(card: str, ctx: Context) -> str:
        await ctx.elicit("Go on?", str)
        look()
        await ctx.step(look)
        return "done"

    played(spans.server(store=MemoryStore()), tool, single_use=single_use)
    assert seen == [id_of(spans.found()[1]), id_of(spans.steps()[0])]


def test_a_step_is_a_span_below_the_round_that_took_it_and_below_no_other() -> None:
    spans = Spans()

    async def inner(ctx: Context) -> None:
        await ctx.step(print, "", name="inner")

    async def tool(card: str, ctx: Context) -> str:
        await ctx.step(str, 1, name="charge", once=True)
        await ctx.elicit("Go on?", str)
        await ctx.step(partial(inner, ctx), name="outer")
        await asyncio.gather(ctx.step(str, 2, name="left"), ctx.step(str, 3, name="right"))
        return "done"

    played(spans.server(store=MemoryStore()), tool)
    steps = {span.name: span for span in spans.steps()}
    assert len(steps) == len(spans.steps()) == 5, "each was taken once, however often the function was replayed"
    first, second = spans.found()
    below = {name: parent_of(span) for name, span in steps.items()}
    assert below == {
        "step charge": id_of(first),
        "step outer#/inner": id_of(steps["step outer"]),
        "step outer": id_of(second),
        "step left": id_of(second),
        "step right": id_of(second),
    }
    assert {facts(span)["turnwise.flow.id"] for span in steps.values()} == {facts(first)["turnwise.flow.id"]}
    assert [facts(steps[name])["turnwise.flow.round"] for name in ("step charge", "step left")] == [1, 2]
    assert facts(steps["step outer#/inner"])["turnwise.step.key"] == "outer#/inner"


def test_a_step_that_failed_has_the_kind_of_its_error() -> None:
    spans = Spans()

    async def lost(card: str) -> None:
        raise LookupError(card)

    async def tool(card: str, ctx: Context) -> str:
        with suppress(StepFailed):
            await ctx.step(lost, card)
        return str(await ctx.step(len, card))

    played(spans.server(), tool)
    failed, good = spans.steps()
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "LookupError")
    assert good.status.status_code is StatusCode.UNSET
    assert SECRET not in failed.to_json()


def test_a_step_that_is_given_up_ends_its_span() -> None:
    spans = Spans()

    async def tool(card: str, ctx: Context) -> str:
        with suppress(TimeoutError):
            await asyncio.wait_for(ctx.step(asyncio.sleep, 60), 0.01)
        return "done"

    played(spans.server(), tool)
    (given_up,) = spans.steps()
    assert given_up.status.description == "CancelledError"


@pytest.mark.parametrize("tool", [pay, fails, refuses])
def test_nothing_that_was_said_is_in_a_span(tool: Tool) -> None:
    spans = Spans()
    results = played(spans.server(), tool)
    exported = "".join(span.to_json() for span in (*spans.found(), *spans.steps()))
    assert SECRET not in exported
    assert "address" not in exported
    assert not any(result.get("requestState", SECRET) in exported for result in results)


@pytest.mark.parametrize(("tool", "kind"), [(fails, "LookupError"), (refuses, "ToolError")])
def test_a_round_that_raised_has_the_kind_of_its_error_and_its_flow(tool: Tool, kind: str) -> None:
    spans = Spans()
    played(spans.server(), tool)
    first, second = spans.found()
    assert (second.status.status_code, second.status.description) == (StatusCode.ERROR, kind)
    assert not second.events
    assert facts(second)["turnwise.flow.id"] == facts(first)["turnwise.flow.id"]
    assert facts(second)["turnwise.flow.round"] == 2


def test_a_call_that_moves_is_told_as_one() -> None:
    spans = Spans()

    async def tool(card: str, ctx: Context) -> str:
        await ctx.step(str, 1)
        return "done"

    played(spans.server(shed_when=lambda load: True), tool)
    moved, finished = map(facts, spans.found())
    assert (moved["mcp.result.type"], moved["turnwise.questions"]) == ("input_required", 0)
    assert (moved["turnwise.flow.sheds"], finished["turnwise.flow.sheds"]) == (1, 1)


def test_a_call_that_settled_nothing_has_no_flow() -> None:
    spans = Spans()

    async def tool(card: str) -> str:
        return "done"

    played(spans.server(), tool)
    assert not [name for name in facts(spans.found()[0]) if name.startswith("turnwise.")]


def test_prompts_and_resources_are_told_by_what_they_are() -> None:
    spans = Spans()
    server = spans.server()

    @server.prompt()
    async def review() -> str:
        return "Review this."

    @server.resource("memo://today")
    async def memo() -> str:
        return "today"

    async def run() -> None:
        async with connect(server) as client:
            await client.get_prompt("review")
            await client.read_resource("memo://today")

    asyncio.run(run())
    prompt, resource = spans.found()
    assert (prompt.name, facts(prompt)["gen_ai.prompt.name"]) == ("prompts/get review", "review")
    assert facts(resource)["mcp.resource.uri"] == "memo://today"


def test_a_token_that_is_refused_has_no_span() -> None:
    spans = Spans()
    server = spans.server()
    server.add_tool(pay, "pay")

    async def run() -> None:
        async with connect(server) as client:
            with pytest.raises(MCPError):
                await send(client, {"inputRequests": {}, "requestState": "s1.forged"})

    asyncio.run(run())
    assert spans.found() == []


def test_without_the_package_spans_are_refused_at_once() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import turnwise; turnwise.OpenTelemetry()"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'turnwise[otel]'" in out.stderr


# Log lines


def test_each_round_that_asks_is_a_log_line_with_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "turnwise")
    server: MCPServer[Any] = MCPServer("told", request_state_security=RequestStateSecurity(keys=[KEY]))
    results = played(server, pay)
    lines: list[Any] = [record for record in caplog.records if record.name == "turnwise.flows"]
    assert [line.levelname for line in lines] == ["INFO", "INFO"]
    assert len({line.flow_id for line in lines}) == 1
    assert [line.round for line in lines] == [1, 2]
    assert [line.result_type for line in lines] == ["input_required", "input_required"]
    assert [line.ledger_bytes for line in lines] == [len(result["requestState"]) for result in results[:2]]
    assert lines[0].getMessage().startswith("tools/call 'pay'")
    assert lines[0].flow_id in lines[0].getMessage()


def test_nothing_that_was_said_is_in_the_log_of_a_call_that_went_well(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "turnwise")
    server: MCPServer[Any] = MCPServer("told", request_state_security=RequestStateSecurity(keys=[KEY]))
    results = played(server, pay)
    written = "".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert written
    assert SECRET not in written
    assert "address" not in written
    assert not any(result["requestState"] in written for result in results[:2])


# A check of replay


def check(tool: Any, answers: dict[str, Any] | None = None, **options: Any) -> ReplayReport:
    return asyncio.run(check_replay(tool, {"go": "yes"} if answers is None else answers, **options))


charged: list[int] = []


@step
async def charge(amount: int) -> int:
    charged.append(amount)
    time.time()
    return amount


@step
def charge_plainly(amount: int) -> int:
    charged.append(amount)
    return int(amount + random.random() * 0)


def test_a_tool_that_bears_replay_is_clean(tmp_path: Path) -> None:
    charged.clear()
    target = tmp_path / "receipt"

    def write() -> None:
        target.write_text(str(time.time()) + str(uuid.uuid4()))

    async def draw() -> float:
        return random.random()

    async def tool(amount: int, ctx: Context) -> str:
        await charge(amount)
        await charge_plainly(amount + 1)
        await ctx.step(write)
        await ctx.step(draw)
        steady = random.Random(7).random()
        await ctx.elicit("Go on?", str, key="go")
        target.read_text()
        return f"{ctx.now()} {ctx.random()} {ctx.uuid()} {steady}"

    report = check(tool, arguments={"amount": 5})
    report.raise_for_findings()
    assert report.findings == ()
    assert report.rounds == 2
    assert report.result is not None
    assert charged == [5, 6]


def to_file(path: Path) -> None:
    path.write_text("x")


def to_socket(path: Path) -> None:
    with socket.socket() as line, pytest.raises(OSError, match=r"."):
        line.connect(("127.0.0.1", 1))


EFFECTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "time.time": (lambda path: time.time(), "ctx.now()"),
    "from time import time": (lambda path: now(), "ctx.now()"),
    "time.time_ns": (lambda path: time.time_ns(), "ctx.now()"),
    "datetime.now": (lambda path: datetime.datetime.now(), "ctx.now()"),
    "datetime.now with a zone": (lambda path: datetime.datetime.now(datetime.UTC), "ctx.now()"),
    "date.today": (lambda path: datetime.date.today(), "ctx.now()"),
    "random.random": (lambda path: random.random(), "ctx.random()"),
    "random.randint": (lambda path: random.randint(1, 6), "ctx.random()"),
    "random.shuffle": (lambda path: random.shuffle([1, 2]), "ctx.random()"),
    "uuid.uuid4": (lambda path: uuid.uuid4(), "ctx.uuid()"),
    "os.urandom": (lambda path: os.urandom(1), "ctx.random()"),
    "secrets.token_hex": (lambda path: secrets.token_hex(4), "ctx.random()"),
    "a file that is written": (to_file, "ctx.step(...)"),
    "a folder that is made": (lambda path: path.with_name("folder").mkdir(exist_ok=True), "ctx.step(...)"),
    "a socket": (to_socket, "ctx.step(...)"),
    "a process": (lambda path: subprocess.run([sys.executable, "-c", ""], check=True), "ctx.step(...)"),
    "a database": (lambda path: sqlite3.connect(path.with_suffix(".db")).close(), "ctx.step(...)"),
}


@pytest.mark.parametrize("colour", ["async", "plain"])
@pytest.mark.parametrize("what", EFFECTS)
def test_an_effect_outside_of_a_step_is_found_with_its_line(what: str, colour: str, tmp_path: Path) -> None:
    effect, advice = EFFECTS[what]

    async def coloured(ctx: Context) -> str:
        effect(tmp_path / "file")
        return "done"

    def plain(ctx: Context) -> str:
        effect(tmp_path / "file")
        return "done"

    report = check(coloured if colour == "async" else plain)
    assert report.findings
    assert all(advice in finding.advice for finding in report.findings), report.findings
    assert all(str(finding.where).startswith(f"{__file__}:") for finding in report.findings)
    assert report.findings[0].round == 1
    with pytest.raises(AssertionError, match="round 1: "):
        report.raise_for_findings()


@pytest.mark.parametrize("what", ["time.time", "random.random", "random.randint", "uuid.uuid4", "os.urandom"])
def test_an_effect_is_called_as_its_author_calls_it(what: str, tmp_path: Path) -> None:
    def plain(ctx: Context) -> str:
        EFFECTS[what][0](tmp_path)
        return "done"

    assert [finding.what for finding in check(plain).findings] == [f"{what}()"]


def words(report: ReplayReport) -> str:
    return "\n".join(map(str, report.findings))


class Counting:
    """Tools that do something else every time they run."""

    def __init__(self) -> None:
        self.runs = 0

    def run(self) -> int:
        self.runs += 1
        return self.runs

    async def rewords(self, ctx: Context) -> str:
        await ctx.elicit(f"Go on {self.run()}?", str, key="go")
        return "done"

    async def renames(self, ctx: Context) -> str:
        await ctx.step(str, 1, name=f"step {self.run()}")
        await ctx.elicit("Go on?", str, key="go")
        return "done"

    async def other_arguments(self, ctx: Context) -> str:
        await ctx.step(str, self.run())
        await ctx.elicit("Go on?", str, key="go")
        return "done"

    async def other_result(self, ctx: Context) -> str:
        await ctx.elicit("Go on?", str, key="go")
        return str(self.run())

    async def breaks(self, ctx: Context) -> str:
        if self.run() > 1:
            raise KeyError(SECRET)
        await ctx.elicit("Go on?", str, key="go")
        return "done"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("rewords", "the round ended with the questions go (Go on 1?), its replay with the questions go (Go on 2?)"),
        ("renames", "the replay settled 'step 2', which the round had not"),
        ("other_arguments", "step 'str' ran earlier in this flow with other arguments"),
        ("other_result", "the round ended with the result '1', its replay with the result '2'"),
        ("breaks", "the round failed when it was replayed"),
    ],
)
def test_what_a_replay_does_otherwise_is_found(name: str, found: str) -> None:
    assert found in words(check(getattr(Counting(), name)))


def test_a_question_that_changes_with_the_round_is_found_once() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit(f"Go on in round {ctx.round}?", str, key="go")
        return "done"

    report = check(tool)
    assert [finding.what for finding in report.findings] == ["'go' was answered and is asked again"]
    assert report.result is None


@pytest.mark.parametrize("key", ["changes", None])
def test_a_flow_without_an_end_is_found(key: str | None) -> None:
    async def tool(ctx: Context) -> str:
        name = None if key is None else f"{key} {ctx.round}"
        await ctx.elicit(f"Go on in round {ctx.round}?", str, key=name)
        return "done"

    answers = {f"Go on in round {number}?": "yes" for number in range(1000)}
    assert check(tool, answers).findings


def test_a_step_renamed_in_every_round_is_found() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.step(str, 1, name=f"step {ctx.round}")
        await ctx.elicit("Go on?", str, key="go")
        return "done"

    assert "step 1" in words(check(tool))


def test_a_question_without_an_answer_says_which() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Go on?", str, key="go")
        return "done"

    with pytest.raises(LookupError, match=r"'go' \('Go on\?'\)"):
        check(tool, {})


@pytest.mark.parametrize(
    ("given", "got"),
    [
        ({"go": "yes"}, "accept yes"),
        ({"Go on?": "yes"}, "accept yes"),
        ({"go": {"value": "yes"}}, "accept yes"),
        ({"go": {"action": "accept", "content": {"value": "yes"}}}, "accept yes"),
        ({"go": {"action": "decline"}}, "decline None"),
    ],
)
def test_an_answer_may_be_given_in_several_ways(given: dict[str, Any], got: str) -> None:
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("Go on?", str, key="go")
        return f"{answer.action} {getattr(answer, 'data', None)}"

    report = check(tool, given)
    assert report.findings == ()
    assert report.result is not None
    assert report.result["content"][0]["text"] == got


def test_an_answer_that_does_not_fit_is_not_blamed_on_the_tool() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("How many?", int, key="many")
        return "done"

    with pytest.raises((LookupError, ValueError), match="many"):
        check(tool, {"many": "a lot"})


def test_of_several_tools_one_has_to_be_named() -> None:
    server: MCPServer[Any] = MCPServer("several")

    @server.tool()
    async def first(ctx: Context) -> str:
        return "first"

    @server.tool()
    async def second(amount: int, ctx: Context) -> str:
        return f"second {amount}"

    for name in (None, "third"):
        with pytest.raises(ValueError, match="first, second"):
            check(server, name=name)
    report = check(server, name="second", arguments={"amount": 5})
    assert report.result is not None
    assert report.result["content"][0]["text"] == "second 5"


def test_guarded_steps_and_tools_with_effects_can_be_checked() -> None:
    charged.clear()
    server: MCPServer[Any] = MCPServer("guarded", store=MemoryStore())

    @server.tool(effects=True)
    async def tool(ctx: Context) -> str:
        await ctx.step(charge, 5, once=True)
        await ctx.elicit("Go on?", str, key="go")
        return "done"

    report = check(server)
    assert report.findings == ()
    assert report.rounds == 3
    assert charged == [5]


def test_a_tool_that_becomes_a_task_can_be_checked_and_does_not_sleep() -> None:
    charged.clear()

    async def tool(ctx: Context) -> str:
        await ctx.elicit("Go on?", str, key="go")
        await ctx.become_task()
        await ctx.report("charging")
        await ctx.step(charge, 7)
        await ctx.sleep(3600)
        return f"done as a task: {ctx.is_task}"

    report = check(tool)
    assert report.findings == ()
    assert report.result is not None
    assert report.result["content"][0]["text"] == "done as a task: True"
    assert report.rounds == 4  # The question, the change into a task, the sleep, the end.
    assert charged == [7]


def test_a_tool_that_is_always_a_task_is_checked_as_one() -> None:
    server: MCPServer[Any] = MCPServer("tasks", tasks=SQLiteTaskStore())

    @server.tool(task="always")
    async def tool(ctx: Context) -> str:
        await ctx.sleep(3600)
        return f"{ctx.is_task}"

    report = check(server)
    assert report.findings == ()
    assert report.result is not None
    assert report.result["content"][0]["text"] == "True"


def test_a_check_leaves_nothing_behind() -> None:
    async def tool(ctx: Context) -> str:
        return "done"

    before = sys.getprofile()
    check(tool)
    assert sys.getprofile() is before


def test_a_finding_reads_as_a_sentence() -> None:
    assert str(Finding(2, "time.time()", "use ctx.now()", "tool.py:7")) == (
        "round 2: time.time() (tool.py:7): use ctx.now()"
    )
