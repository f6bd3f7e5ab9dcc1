"""Steps: work that is done once in a flow, and values that are the same in every round of it."""

import asyncio
import functools
import threading
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal

import pytest
from mcp.server.elicitation import AcceptedElicitation
from pydantic import BaseModel, ConfigDict

from turnwise import (
    AuthorError,
    Client,
    Context,
    Elicit,
    MCPServer,
    ReplayMismatch,
    RequestStateSecurity,
    RoundOver,
    StepFailed,
    ToolError,
)
from turnwise.testing import Connection, connect

IT = {"name": "it"}
YES = {"action": "accept", "content": {"value": "yes"}}
ANOTHER = {"action": "accept", "content": {"value": "another"}}

Result = dict[str, Any]


def one_tool(fn: Callable[..., Any]) -> MCPServer[Any]:
    server = MCPServer("worker", request_state_security=RequestStateSecurity(keys=[b"k" * 32]))
    server.add_tool(fn, "it")
    return server


async def play(client: Connection, last: Result | None = None, params: Mapping[str, Any] = IT) -> Result:
    """One round: the first, or one that says yes to whatever the last one asked."""
    client.capabilities = {"elicitation": {}}
    if last is None:
        return await client.request("tools/call", params)
    answers = dict.fromkeys(last["inputRequests"], YES)
    return await client.request(
        "tools/call", {**params, "inputResponses": answers, "requestState": last["requestState"]}
    )


async def finish(client: Connection, params: Mapping[str, Any] = IT) -> list[Result]:
    results = [await play(client, None, params)]
    while results[-1]["resultType"] == "input_required":
        results.append(await play(client, results[-1], params))
    return results


def rounds(fn: Callable[..., Any], params: Mapping[str, Any] = IT) -> list[Result]:
    """All rounds of one call in which the user says yes to everything."""

    async def run() -> list[Result]:
        async with connect(one_tool(fn)) as client:
            return await finish(client, params)

    return asyncio.run(run())


def text(result: Result) -> str:
    assert result["resultType"] == "complete", result
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def tool_error(result: Result) -> str:
    assert result["resultType"] == "complete", result
    assert result["isError"] is True
    return str(result["content"][0]["text"])


async def ask(ctx: Context, times: int = 1) -> None:
    for number in range(times):
        await ctx.elicit(f"Go on after {number}?", str)


# Once


def test_a_step_is_run_once_however_many_rounds_follow() -> None:
    done: list[int] = []

    async def charge(amount: int) -> str:
        done.append(amount)
        return f"charged {amount}"

    async def tool(ctx: Context) -> str:
        first = await ctx.step(charge, 5)
        await ask(ctx, 4)
        return first

    results = rounds(tool)
    assert len(results) == 5
    assert text(results[-1]) == "charged 5"
    assert done == [5]


def test_a_plain_function_is_a_step_too_and_does_not_hold_up_the_loop() -> None:
    threads: list[int] = []

    def charge(amount: int, *, currency: str) -> str:
        threads.append(threading.get_ident())
        return f"{amount} {currency}"

    async def tool(ctx: Context) -> str:
        first = await ctx.step(charge, 5, currency="EUR")
        await ask(ctx)
        return first

    assert text(rounds(tool)[-1]) == "5 EUR"
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_a_plain_function_that_gives_a_coroutine_is_awaited() -> None:
    done: list[str] = []

    async def inner() -> str:
        done.append("x")
        return "x"

    def outer() -> Awaitable[str]:
        return inner()

    async def tool(ctx: Context) -> str:
        first: Any = await ctx.step(outer)
        await ask(ctx)
        return str(first)

    assert text(rounds(tool)[-1]) == "x"
    assert done == ["x"]


def test_a_step_runs_in_the_round_that_reaches_it() -> None:
    done: list[str] = []

    def work(name: str) -> str:
        done.append(name)
        return name

    async def tool(ctx: Context) -> str:
        await ctx.step(work, "before", name="before")
        await ask(ctx)
        await ctx.step(work, "after", name="after")
        await ask(ctx)
        return "done"

    async def run() -> None:
        async with connect(one_tool(tool)) as client:
            first = await play(client)
            assert done == ["before"]
            second = await play(client, first)
            assert done == ["before", "after"]
            assert text(await play(client, second)) == "done"
            assert done == ["before", "after"]

    asyncio.run(run())


def test_any_instance_takes_the_step_as_done() -> None:
    done: list[str] = []

    def instance() -> MCPServer[Any]:
        def charge() -> str:
            done.append("charged")
            return "ok"

        async def tool(ctx: Context) -> str:
            result = await ctx.step(charge)
            await ask(ctx)
            return result

        return one_tool(tool)

    async def run() -> None:
        async with connect(instance()) as client:
            first = await play(client)
        async with connect(instance()) as client:
            assert text(await play(client, first)) == "ok"

    asyncio.run(run())
    assert done == ["charged"]


def test_a_new_call_runs_its_steps_anew() -> None:
    done: list[str] = []

    async def charge() -> None:
        done.append("charged")

    async def tool(ctx: Context) -> str:
        await ctx.step(charge)
        await ask(ctx)
        return "done"

    rounds(tool)
    rounds(tool)
    assert done == ["charged", "charged"]


def test_a_step_without_a_result_is_remembered_as_well() -> None:
    done: list[str] = []

    async def charge() -> None:
        done.append("charged")

    async def tool(ctx: Context) -> str:
        seen: list[Any] = [await ctx.step(charge)]
        await ask(ctx, 2)
        return str(seen)

    assert text(rounds(tool)[-1]) == "[None]"
    assert done == ["charged"]


def beside_a_question(work: Callable[[], Any]) -> Callable[..., Any]:
    async def tool(ctx: Context) -> str:
        await asyncio.gather(ctx.elicit("Go on?", str), ctx.step(work))
        return "done"

    return tool


def beside_a_question_in_a_group(work: Callable[[], Any]) -> Callable[..., Any]:
    async def tool(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.elicit("Go on?", str))
            group.create_task(ctx.step(work))
        return "done"

    return tool


def before_a_question(work: Callable[[], Any]) -> Callable[..., Any]:
    async def tool(ctx: Context) -> str:
        await asyncio.gather(ctx.step(work), ctx.elicit("Go on?", str))
        return "done"

    return tool


@pytest.mark.parametrize("shape", [beside_a_question, beside_a_question_in_a_group, before_a_question])
@pytest.mark.parametrize("kind", ["plain", "async", "async that waits"])
def test_a_step_beside_an_open_question_has_its_effect_once(shape: Callable[..., Any], kind: str) -> None:
    done: list[str] = []

    def plain() -> str:
        done.append("charged")
        return "ok"

    async def at_once() -> str:
        return plain()

    async def that_waits() -> str:
        plain()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "ok"

    work: Callable[[], Any] = {"plain": plain, "async": at_once, "async that waits": that_waits}[kind]
    assert text(rounds(shape(work))[-1]) == "done"
    assert done == ["charged"]


def test_a_step_that_was_prepared_in_a_round_cannot_run_after_it() -> None:
    done: list[str] = []
    kept: list[Awaitable[Any]] = []

    async def charge() -> None:
        done.append("charged")

    async def tool(ctx: Context) -> str:
        kept.append(ctx.step(charge))
        return "done"

    async def run() -> None:
        async with connect(one_tool(tool)) as client:
            assert "failed" in tool_error(await play(client))
            with pytest.raises(RoundOver):
                await kept[0]

    asyncio.run(run())
    assert done == []


def test_a_step_that_the_author_gave_up_on_is_cut_off_and_holds_up_nothing() -> None:
    cut: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut.append("cut")
            raise

    async def tool(ctx: Context) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await ctx.step(endless)
        await ask(ctx)
        return "done"

    async def run() -> None:
        async with connect(one_tool(tool)) as client, asyncio.timeout(1):
            assert text((await finish(client))[-1]) == "done"
            assert cut == ["cut", "cut"]

    asyncio.run(run())


def test_a_step_that_fails_beside_another_leaves_that_one_to_finish() -> None:
    done: list[str] = []

    async def fails() -> None:
        raise LookupError("no such card")

    async def slow() -> str:
        done.append("begun")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done.append("finished")
        return "ok"

    async def tool(ctx: Context) -> str:
        with pytest.raises(StepFailed):
            await asyncio.gather(ctx.step(fails), ctx.step(slow))
        await ask(ctx)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert done == ["begun", "finished"]


def test_a_step_may_take_steps_of_its_own() -> None:
    done: list[str] = []

    async def tool(ctx: Context) -> str:
        async def inner() -> str:
            done.append("inner")
            return "inner"

        async def outer() -> str:
            done.append("outer")
            return f"outer of {await ctx.step(inner)}"

        value = await ctx.step(outer)
        await ask(ctx, 2)
        return value

    assert text(rounds(tool)[-1]) == "outer of inner"
    assert done == ["outer", "inner"]


# The value


class Colour(Enum):
    RED = "red"


@dataclass
class Receipt:
    number: int
    at: datetime


class Order(BaseModel):
    item: str
    due: date
    colour: Colour = Colour.RED
    receipts: list[Receipt] = []


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    due: date
    colour: Colour
    pair: tuple[int, int]


NOON = datetime(2026, 7, 28, 12, tzinfo=UTC)


def gives_dataclass() -> Receipt:
    return Receipt(7, NOON)


def gives_model() -> Order:
    return Order(item="hat", due=date(2026, 7, 28), receipts=[Receipt(7, NOON)])


def gives_strict_model() -> Strict:
    return Strict(due=date(2026, 7, 28), colour=Colour.RED, pair=(1, 2))


def gives_datetime() -> datetime:
    return NOON


def gives_decimal() -> Decimal:
    return Decimal("0.10")


def gives_uuid() -> uuid.UUID:
    return uuid.UUID(int=7)


def gives_enum() -> Colour:
    return Colour.RED


def gives_tuple() -> tuple[int, str]:
    return (1, "a")


def gives_set() -> set[int]:
    return {1, 2}


def gives_bytes() -> bytes:
    return b"plain"


def gives_numbered() -> dict[int, str]:
    return {1: "a"}


def gives_union() -> Order | Receipt | None:
    return Receipt(7, NOON)


def gives_list() -> list[Order]:
    return [gives_model()]


def gives_float() -> float:
    return 0.1


def gives_large_number() -> int:
    return 2**63 - 1


async def gives_async() -> Receipt:
    return Receipt(7, NOON)


TYPED: list[Callable[[], Any]] = [
    gives_dataclass,
    gives_model,
    gives_strict_model,
    gives_datetime,
    gives_decimal,
    gives_uuid,
    gives_enum,
    gives_tuple,
    gives_set,
    gives_bytes,
    gives_numbered,
    gives_union,
    gives_list,
    gives_float,
    gives_large_number,
    gives_async,
]


def values_of(fn: Callable[..., Any], *args: Any) -> list[Any]:
    """What a step gives: in the round where it ran, and in the two replays after it."""
    seen: list[Any] = []

    async def tool(ctx: Context) -> str:
        seen.append(await ctx.step(fn, *args))
        await ask(ctx, 2)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert len(seen) == 3
    return seen


@pytest.mark.parametrize("fn", TYPED)
def test_a_result_comes_back_as_the_type_it_is_annotated_with(fn: Callable[[], Any]) -> None:
    expected = asyncio.run(fn()) if asyncio.iscoroutinefunction(fn) else fn()
    for value in values_of(fn):
        assert value == expected
        assert type(value) is type(expected)


@pytest.mark.parametrize(
    "value", [Receipt(7, NOON), (1, 2), {1, 2}, NOON, {1: "a"}, Colour.RED, gives_model(), "x", 5, None, [1, [2]]]
)
def test_a_result_without_annotation_is_the_same_plain_data_every_time(value: Any) -> None:
    first, *replayed = values_of(lambda: value)
    assert all(again == first for again in replayed)
    assert all(type(again) is type(first) for again in replayed)


def test_a_result_changed_by_the_function_is_unchanged_in_the_next_round() -> None:
    seen: list[int] = []

    def listed() -> list[int]:
        return [1]

    async def tool(ctx: Context) -> str:
        got = await ctx.step(listed)
        seen.append(len(got))
        got.append(2)
        await ask(ctx, 2)
        return "done"

    rounds(tool)
    assert seen == [1, 1, 1]


def test_a_bound_method_a_partial_and_an_object_can_be_steps() -> None:
    done: list[str] = []

    @dataclass
    class Till:
        name: str

        def charge(self, amount: int) -> str:
            done.append(self.name)
            return f"{self.name} {amount}"

        def __call__(self, amount: int) -> str:
            return self.charge(amount)

    async def tool(ctx: Context) -> str:
        till = Till("one")
        values = [
            await ctx.step(till.charge, 1),
            await ctx.step(functools.partial(till.charge, 2), name="partial"),
            await ctx.step(till, 3, name="object"),
        ]
        await ask(ctx, 2)
        return ", ".join(values)

    assert text(rounds(tool)[-1]) == "one 1, one 2, one 3"
    assert len(done) == 3


# What is no plain data


class Connected:
    """Something that cannot be written down."""


def circle() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


UNWRITABLE: dict[str, Callable[[], Any]] = {
    "an object": Connected,
    "an object inside": lambda: {"a": [Connected()]},
    "a circle": circle,
    "bytes that are no text": lambda: b"\xff\xfe",
    "a number beyond 64 bits": lambda: 2**64,
    "not a number": lambda: float("nan"),
    "an infinity": lambda: {"a": float("inf")},
    "half a character": lambda: "\ud800",
    "a function": lambda: print,
}


@pytest.mark.parametrize("case", UNWRITABLE)
def test_a_result_that_is_no_plain_data_is_refused_clearly_and_at_once(case: str) -> None:
    make = UNWRITABLE[case]

    async def tool(ctx: Context) -> str:
        with pytest.raises(AuthorError, match="purchase"):
            await ctx.step(make, name="purchase")
        return "refused"

    assert text(rounds(tool)[-1]) == "refused"


@pytest.mark.parametrize("case", [case for case in UNWRITABLE if case != "bytes that are no text"])
def test_an_argument_that_is_no_plain_data_is_refused_before_the_step_runs(case: str) -> None:
    value = UNWRITABLE[case]()
    done: list[str] = []

    def work(value: Any) -> None:
        done.append("worked")

    async def tool(ctx: Context) -> str:
        with pytest.raises(AuthorError, match="purchase"):
            await ctx.step(work, value, name="purchase")
        return "refused"

    assert text(rounds(tool)[-1]) == "refused"
    assert done == []


def test_a_result_that_breaks_its_own_annotation_is_refused() -> None:
    def lies() -> int:
        wrong: Any = "seven"
        result: int = wrong
        return result

    async def tool(ctx: Context) -> str:
        with pytest.raises(AuthorError, match="lies"):
            await ctx.step(lies)
        return "refused"

    assert text(rounds(tool)[-1]) == "refused"


# Errors


def test_an_error_in_a_step_is_the_same_in_its_own_round_and_in_every_replay() -> None:
    done: list[str] = []
    seen: list[tuple[str, str, str]] = []

    async def fails() -> None:
        done.append("tried")
        raise LookupError("no such card")

    async def tool(ctx: Context) -> str:
        try:
            await ctx.step(fails)
        except StepFailed as error:
            seen.append((error.key, error.kind, error.text))
        await ask(ctx, 2)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert done == ["tried"]
    assert seen == [("fails", "LookupError", "no such card")] * 3


@pytest.mark.parametrize("error", [StopIteration("dry"), StopAsyncIteration("dry"), KeyError("k"), TimeoutError()])
@pytest.mark.parametrize("is_async", [False, True])
def test_any_exception_in_a_step_is_journaled(error: Exception, is_async: bool) -> None:
    def plain() -> None:
        raise error

    async def coloured() -> None:
        raise error

    async def tool(ctx: Context) -> str:
        try:
            async with asyncio.timeout(1):
                await ctx.step(coloured if is_async else plain, name="work")
        except StepFailed:
            await ask(ctx)
            return "failed"
        return "never"

    assert text(rounds(tool)[-1]) == "failed"


def test_an_error_that_nobody_catches_tells_the_wire_nothing() -> None:
    def fails() -> None:
        raise LookupError("the secret of the card")

    async def tool(ctx: Context) -> str:
        await ctx.step(fails)
        return "never"

    (done,) = rounds(tool)
    assert "secret" not in tool_error(done)


def test_an_error_that_nobody_catches_is_in_the_log_with_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise LookupError("no such card")

    async def tool(ctx: Context) -> str:
        await ctx.step(fails)
        return "never"

    rounds(tool)
    assert "LookupError" in caplog.text
    assert "no such card" in caplog.text


class Refused(ToolError):
    """An author's own kind of tool error."""


@pytest.mark.parametrize("kind", [ToolError, Refused])
def test_a_tool_error_in_a_step_reaches_the_wire_in_every_round(kind: type[ToolError]) -> None:
    done: list[str] = []

    def fails() -> None:
        done.append("tried")
        raise kind("the card was refused")

    async def at_once(ctx: Context) -> str:
        await ctx.step(fails)
        return "never"

    async def later(ctx: Context) -> str:
        try:
            await ctx.step(fails)
        except ToolError:
            await ask(ctx)
            raise
        return "never"

    assert tool_error(rounds(at_once)[-1]) == "the card was refused"
    assert tool_error(rounds(later)[-1]) == "the card was refused"
    assert len(done) == 2


# Changed arguments


class Changing:
    """A tool whose step is called with something else in every round."""

    def __init__(self, on_change: Literal["fail", "rerun"] = "fail") -> None:
        self.amount = 0
        self.done: list[int] = []
        self.on_change: Literal["fail", "rerun"] = on_change

    async def charge(self, amount: int) -> int:
        self.done.append(amount)
        return amount

    async def tool(self, ctx: Context) -> str:
        self.amount += 1
        result = await ctx.step(self.charge, self.amount, on_change=self.on_change)
        await ask(ctx)
        return f"charged {result}"


def test_a_step_that_already_ran_with_other_arguments_fails_closed() -> None:
    changing = Changing()
    first, second = rounds(changing.tool)
    assert first["resultType"] == "input_required"
    assert tool_error(second).startswith("The tool failed")
    assert changing.done == [1]


def test_the_mismatch_is_the_authors_to_see(caplog: pytest.LogCaptureFixture) -> None:
    changing = Changing()
    seen: list[str] = []

    async def tool(ctx: Context) -> str:
        try:
            return await changing.tool(ctx)
        except ReplayMismatch as error:
            seen.append(error.key)
            raise

    rounds(tool)
    assert seen == ["charge"]
    assert "charge" in caplog.text


def test_a_step_may_be_declared_harmless_to_run_again() -> None:
    changing = Changing("rerun")
    assert text(rounds(changing.tool)[-1]) == "charged 2"
    assert changing.done == [1, 2]


def test_a_word_that_is_no_policy_is_not_taken_for_leave_to_run_again() -> None:
    word: Any = "Fail"
    changing = Changing(word)
    assert tool_error(rounds(changing.tool)[-1])
    assert len(changing.done) <= 1


@pytest.mark.parametrize(
    ("before", "after"), [(1, True), (1, 1.0), ([1], [[1]]), ("1", 1), (None, False), ({"a": 1}, {"b": 1})]
)
def test_arguments_that_only_look_alike_are_other_arguments(before: Any, after: Any) -> None:
    given = [before, after]
    done: list[Any] = []

    def work(value: Any) -> None:
        done.append(value)

    async def tool(ctx: Context) -> str:
        await ctx.step(work, given.pop(0))
        await ask(ctx)
        return "never"

    assert tool_error(rounds(tool)[-1])
    assert done == [before]


def test_the_order_of_keyword_arguments_is_no_change() -> None:
    given: list[dict[str, Any]] = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]
    done: list[Any] = []

    def work(a: int, b: int) -> None:
        done.append((a, b))

    async def tool(ctx: Context) -> str:
        await ctx.step(work, **given.pop(0))
        await ask(ctx)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert done == [(1, 2)]


def test_a_failed_step_with_other_arguments_is_not_run_again_either() -> None:
    given = [1, 2]
    done: list[int] = []

    def fails(amount: int) -> None:
        done.append(amount)
        raise LookupError("after the money had left")

    async def tool(ctx: Context) -> str:
        try:
            await ctx.step(fails, given.pop(0))
        except StepFailed:
            await ask(ctx)
        return "never"

    assert tool_error(rounds(tool)[-1])
    assert done == [1]


# Names and numbers


def test_a_step_used_again_is_numbered_and_remembered_by_its_number() -> None:
    done: list[int] = []

    async def work(number: int) -> int:
        done.append(number)
        return number * 10

    async def tool(ctx: Context) -> str:
        values = []
        for number in range(3):
            values.append(await ctx.step(work, number))
            await ask(ctx)
        return str(values)

    assert text(rounds(tool)[-1]) == "[0, 10, 20]"
    assert done == [0, 1, 2]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_steps_gathered_are_numbered_as_they_are_written_whoever_finishes_first(order: tuple[int, ...]) -> None:
    done: list[int] = []

    async def work(number: int) -> int:
        for _ in range(order[number]):
            await asyncio.sleep(0)
        done.append(number)
        return number * 10

    async def tool(ctx: Context) -> str:
        values = await asyncio.gather(*(ctx.step(work, number) for number in range(3)))
        await ask(ctx, 2)
        return str(values)

    assert text(rounds(tool)[-1]) == "[0, 10, 20]"
    assert sorted(done) == [0, 1, 2]


def test_steps_are_numbered_when_they_are_called_not_when_they_are_awaited() -> None:
    done: list[str] = []

    async def work(name: str) -> str:
        done.append(name)
        return name

    async def tool(ctx: Context) -> str:
        first, second = ctx.step(work, "first"), ctx.step(work, "second")
        values = [await first, await second] if done else [await second, await first][::-1]
        await ask(ctx)
        return str(values)

    assert text(rounds(tool)[-1]) == "['first', 'second']"
    assert done == ["second", "first"]


def test_a_named_step_keeps_its_result_when_the_code_around_it_moves() -> None:
    done: list[str] = []
    new_code = [False]

    def work(name: str) -> str:
        done.append(name)
        return name

    async def tool(ctx: Context) -> str:
        if new_code[0]:
            await ctx.step(work, "new", name="new")
        value = await ctx.step(work, "old", name="old")
        await ask(ctx)
        return value

    async def run() -> None:
        async with connect(one_tool(tool)) as client:
            first = await play(client)
            new_code[0] = True
            assert text(await play(client, first)) == "old"

    asyncio.run(run())
    assert done == ["old", "new"]


def test_steps_questions_and_clocks_of_one_name_do_not_mix() -> None:
    def now() -> str:
        return "step"

    async def tool(ctx: Context) -> str:
        moment = ctx.now()
        step = await ctx.step(now)
        answer = await ctx.elicit("Now?", str, key="now")
        await ask(ctx)
        assert ctx.now() >= moment
        return f"{type(moment).__name__} {step} {answer.action}"

    assert text(rounds(tool)[-1]) == "float step accept"


@pytest.mark.parametrize("name", ["work#2", "#"])
def test_a_name_that_could_be_mistaken_for_a_numbered_one_is_refused(name: str) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(ValueError, match="#"):
            await ctx.step(str, name=name)
        return "refused"

    assert text(rounds(tool)[-1]) == "refused"


# Values that are the same in every round


def observed(look: Callable[[Context], Any]) -> list[Any]:
    """What a context shows in each of the three rounds of one flow."""
    seen: list[Any] = []

    async def tool(ctx: Context) -> str:
        seen.append(look(ctx))
        await ask(ctx, 2)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert len(seen) == 3
    return seen


LOOKS: dict[str, Callable[[Context], Any]] = {
    "random": lambda ctx: [ctx.random() for _ in range(3)],
    "uuid": lambda ctx: [ctx.uuid() for _ in range(3)],
    "flow_id": lambda ctx: ctx.flow_id,
    "idempotency_key": lambda ctx: ctx.idempotency_key("charge"),
}


@pytest.mark.parametrize("name", [*LOOKS, "now"])
def test_a_value_is_the_same_in_every_round_of_a_flow(name: str) -> None:
    looks = LOOKS | {"now": lambda ctx: [ctx.now() for _ in range(3)]}
    first, second, third = observed(looks[name])
    assert first == second == third


@pytest.mark.parametrize("name", LOOKS)
def test_a_value_is_another_in_another_flow(name: str) -> None:
    assert observed(LOOKS[name])[0] != observed(LOOKS[name])[0]


def test_each_use_in_a_round_gives_another_value() -> None:
    assert len(set(observed(LOOKS["random"])[0])) == 3
    assert len(set(observed(LOOKS["uuid"])[0])) == 3


def test_values_are_of_their_kind() -> None:
    def look(ctx: Context) -> bool:
        identifier = ctx.uuid()
        return 0 <= ctx.random() < 1 and identifier.version == 4 and identifier.variant == uuid.RFC_4122

    assert observed(look) == [True] * 3


def test_the_clock_stands_at_the_round_that_first_read_it() -> None:
    seen: list[tuple[float, float]] = []

    async def tool(ctx: Context) -> str:
        before = ctx.now()
        await ask(ctx)
        seen.append((before, ctx.now()))
        await ctx.elicit("And again?", str)
        return "done"

    rounds(tool)
    (before, after), replayed = seen
    assert replayed == (before, after)
    assert after > before


def test_an_idempotency_key_is_that_of_the_step_and_of_nothing_else() -> None:
    def look(ctx: Context) -> tuple[str, ...]:
        return (ctx.idempotency_key("charge"), ctx.idempotency_key("refund"), ctx.idempotency_key("charge"))

    charge, refund, again = observed(look)[0]
    assert charge == again != refund


def test_a_fork_of_a_flow_has_its_idempotency_keys() -> None:
    """An old token, sent again with another answer, must not charge a second time."""
    keys: list[str] = []

    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("Which card?", str)
        keys.append(ctx.idempotency_key("charge"))
        return str(answer)

    async def run() -> None:
        async with connect(one_tool(tool)) as client:
            first = await play(client)
            await play(client, first)
            other = dict.fromkeys(first["inputRequests"], ANOTHER)
            await client.request("tools/call", {**IT, "inputResponses": other, "requestState": first["requestState"]})

    asyncio.run(run())
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_a_flows_names_do_not_give_away_what_they_are_made_from() -> None:
    def look(ctx: Context) -> tuple[str, str, str]:
        return (ctx.flow_id, ctx.idempotency_key("flow"), ctx.idempotency_key(""))

    assert len(set(observed(look)[0])) == 3


def test_a_call_of_one_round_has_a_flow_of_its_own() -> None:
    async def tool(ctx: Context) -> str:
        assert ctx.flow_id == ctx.flow_id
        return f"{ctx.flow_id} {ctx.uuid()} {ctx.random()} {ctx.now()}"

    assert text(rounds(tool)[0]) != text(rounds(tool)[0])


@pytest.mark.parametrize("what", ["elicit", "step", "sample", "ask_all"])
def test_what_was_begun_and_not_awaited_fails_the_call_instead_of_passing_for_done(what: str) -> None:
    async def tool(ctx: Context) -> str:
        if what == "elicit":
            forgotten: Any = ctx.elicit("Sure?", bool)
        elif what == "sample":
            forgotten = ctx.sample("Write")
        elif what == "ask_all":
            forgotten = ctx.ask_all(Elicit("Sure?", bool), Elicit("Really?", bool))
        else:
            forgotten = ctx.step(lambda: "charged", name="charge")
        forgotten.close()
        return "done"

    assert "failed" in tool_error(rounds(tool)[-1])


def test_what_was_begun_and_not_awaited_is_named_once_and_nothing_else_is(caplog: pytest.LogCaptureFixture) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Who?", str, key="who")
        await ctx.step(str.upper, "a", name="charge")
        ctx.uuid()
        ctx.elicit("Sure?", bool, key="sure").close()
        ctx.step(str.upper, "b", name="charge").close()
        return "done"

    assert "failed" in tool_error(rounds(tool)[-1])
    assert caplog.text.count("a question or a step was begun and not awaited ('charge#2', 'sure'): write `await") == 1


def test_a_step_that_was_called_by_mistake_says_how_to_pass_it() -> None:
    async def tool(ctx: Context) -> str:
        called: Any = "charged"
        with pytest.raises(TypeError, match="the function and its arguments"):
            await ctx.step(called)
        return "told"

    assert text(rounds(tool)[-1]) == "told"


def test_a_step_may_call_a_tool_in_the_same_process_that_asks_and_steps_itself() -> None:
    other = MCPServer("other", request_state_security=RequestStateSecurity(keys=[b"k" * 32]))

    @other.tool(structured_output=False)
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", str, key="who")
        made = await ctx.step(str.upper, answer.data, name="make")  # type: ignore[union-attr]
        return f"Hello, {made}"

    async def answer(_: Any, __: Any) -> Any:
        return {"action": "accept", "content": {"value": "ann"}}

    async def greeted() -> str:
        async with Client(other, elicitation_callback=answer) as client:
            result = await client.call_tool("greet")
            return str(result.content[0].text)  # type: ignore[union-attr]

    async def tool(ctx: Context) -> str:
        return await ctx.step(greeted, name="make")

    assert text(rounds(tool)[-1]) == "Hello, ANN"


def test_who_uses_a_question_that_was_not_awaited_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def tool(ctx: Context) -> str:
        answer: Any = ctx.elicit("Sure?", bool)
        try:
            return str(answer.action)
        finally:
            answer.close()

    assert "failed" in tool_error(rounds(tool)[-1])
    assert "not awaited ('elicitation-" in caplog.text
    assert "write `await ctx...`" in caplog.text


def test_classes_of_the_official_sdk_that_did_not_move_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def tool(ctx: Context) -> str:
        answer: Any = await ctx.elicit("Sure?", bool)
        return "yes" if isinstance(answer, AcceptedElicitation) else "no"

    one_tool(tool)
    assert "it uses AcceptedElicitation of mcp.server.elicitation" in caplog.text
    assert "from turnwise import AcceptedElicitation" in caplog.text
