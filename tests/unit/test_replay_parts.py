"""The parts of replay: functions that are steps by themselves, and effects that happen once."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from tests.unit.replayed import Tool, ask, instance, rounds, send, text, to_the_end, tool_error
from turnwise import (
    AuthorError,
    Begun,
    Budget,
    Context,
    EffectUnknown,
    InvalidSignature,
    Known,
    MCPServer,
    MemoryStore,
    RoundOver,
    Running,
    StepFailed,
    ToolError,
    step,
)
from turnwise.testing import connect

# Functions that are steps by themselves


class Receipt(BaseModel):
    number: int
    lines: list[str] = []


done: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@step
async def charge(amount: int) -> Receipt:
    """Take money."""
    done.append(amount)
    return Receipt(number=amount, lines=["a"])


@step
def charge_plainly(amount: int, *, currency: str = "EUR") -> Receipt:
    done.append(amount)
    return Receipt(number=amount, lines=[currency])


@step(name="pay", on_change="rerun")
async def charge_by_name(amount: int) -> int:
    done.append(amount)
    return amount


@step(once=True)
async def charge_once(amount: int) -> int:
    done.append(amount)
    return amount


def test_a_declared_step_is_run_once_and_comes_back_as_its_type_in_every_round() -> None:
    seen: list[Receipt] = []

    async def tool(ctx: Context) -> str:
        seen.append(await charge(5))
        await ask(ctx, 2)
        seen.append(await charge_plainly(6, currency="CHF"))
        await ask(ctx)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert done == [5, 6]
    assert all(type(value) is Receipt for value in seen)
    assert seen[-2:] == [Receipt(number=5, lines=["a"]), Receipt(number=6, lines=["CHF"])]


def test_outside_of_a_flow_a_declared_step_is_just_the_function() -> None:
    async def run() -> None:
        assert await charge(5) == Receipt(number=5, lines=["a"])
        assert await charge_plainly(6) == Receipt(number=6, lines=["EUR"])
        assert await charge_once(7) == 7

    asyncio.run(run())
    assert done == [5, 6, 7]
    assert getattr(charge, "__name__", "") == "charge"
    assert charge.__doc__ == "Take money."


def test_a_plain_declared_step_does_not_hold_up_the_loop_wherever_it_is_called() -> None:
    threads: list[int] = []

    @step
    def look() -> None:
        threads.append(threading.get_ident())

    async def tool(ctx: Context) -> str:
        await look()
        return "done"

    asyncio.run(look())
    rounds(tool)
    assert len(threads) == 2
    assert threading.get_ident() not in threads


def test_declared_steps_gathered_are_numbered_as_they_are_written() -> None:
    @step
    async def work(number: int) -> int:
        for _ in range(3 - number):
            await asyncio.sleep(0)
        done.append(number)
        return number * 10

    async def tool(ctx: Context) -> str:
        values = await asyncio.gather(*(work(number) for number in range(3)))
        await ask(ctx, 2)
        return str(values)

    assert text(rounds(tool)[-1]) == "[0, 10, 20]"
    assert sorted(done) == [0, 1, 2]


def test_what_a_step_declares_and_what_its_call_says_add_up() -> None:
    keys: list[str] = []

    async def tool(ctx: Context) -> str:
        with pytest.raises(AuthorError, match="'charge_once' has once=True"):
            await ctx.step(charge_once, 1)
        with pytest.raises(AuthorError, match="'mine' has once=True"):
            await ctx.step(charge_once, 1, name="mine")
        with pytest.raises(AuthorError, match="'pay' has once=True"):
            await ctx.step(charge_by_name, 1, once=True)
        assert ctx.flow is not None
        await charge_by_name(ctx.round)
        keys.extend(ctx.flow.entries)
        await ask(ctx)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert done == [1, 2]
    assert keys[:1] == ["pay#2"]


def test_a_method_may_be_a_step_of_its_other_arguments() -> None:
    @dataclass
    class Till:
        name: str

        @step
        async def charge(self, amount: int) -> str:
            done.append(self.name)
            return f"{self.name} {amount}"

    async def tool(ctx: Context) -> str:
        value = await Till("one").charge(3)
        again = await ctx.step(Till("two").charge, 4)
        await ask(ctx)
        return f"{value}, {again}"

    assert text(rounds(tool)[-1]) == "one 3, two 4"
    assert done == ["one", "two"]
    assert asyncio.run(Till("three").charge(5)) == "three 5"


@pytest.mark.parametrize("option", ["on_change", "on_unknown"])
def test_a_word_that_is_no_policy_is_refused_where_the_step_is_declared(option: str) -> None:
    options: Any = {option: "again"}
    with pytest.raises(ValueError, match=option):
        step(**options)(charge.fn)


def test_an_option_that_there_is_not_is_refused() -> None:
    options: Any = {"twice": True}
    with pytest.raises(TypeError):
        step(**options)(charge.fn)


def test_a_declared_step_that_was_prepared_in_a_round_cannot_run_after_it() -> None:
    kept: list[Awaitable[Any]] = []

    async def tool(ctx: Context) -> str:
        kept.append(charge(5))
        return "done"

    async def run() -> None:
        async with connect(instance(tool)) as client:
            assert "failed" in tool_error(await send(client))
            with pytest.raises(RoundOver):
                await kept[0]

    asyncio.run(run())
    assert done == []


LATE = """
import asyncio
from turnwise import Context, MCPServer
from turnwise.testing import connect
done = []
server = MCPServer("late")
@server.tool()
async def it(ctx: Context) -> str:
    from turnwise import step
    @step
    async def charge() -> str:
        done.append("charged")
        return "ok"
    value = await charge()
    await ctx.elicit("Go on?", str, key="go")
    return value
async def accept(connection, params):
    return {"action": "accept", "content": {"value": "yes"}}
async def main():
    async with connect(server, elicitation_callback=accept) as client:
        await client.call_tool("it")
asyncio.run(main())
print(len(done))
"""


def test_a_step_that_is_declared_only_while_a_tool_runs_is_run_once_too() -> None:
    out = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "1"


# Steps inside of steps


def nested(*, once: bool) -> Tool:
    async def tool(ctx: Context) -> str:
        async def inner() -> str:
            done.append("inner")
            return "inner"

        async def outer() -> str:
            done.append("outer")
            return f"outer of {await ctx.step(inner)}"

        value = await ctx.step(outer, once=once)
        await ask(ctx)
        return value

    return tool


@pytest.mark.parametrize("once", [False, True])
def test_a_call_does_not_move_in_the_middle_of_a_step(once: bool) -> None:
    tool = nested(once=once)
    results = rounds(tool, MemoryStore(), Budget(patience=0), shed_when=lambda load: True)
    assert text(results[-1]) == "outer of inner"
    assert done == ["outer", "inner"]


def test_what_a_step_did_on_the_way_is_nothing_odd(caplog: pytest.LogCaptureFixture) -> None:
    rounds(nested(once=False))
    assert not caplog.records


@pytest.mark.parametrize("once", [False, True])
def test_a_question_beside_a_step_does_not_cut_off_what_the_step_does(once: bool) -> None:
    async def tool(ctx: Context) -> str:
        async def inner() -> str:
            done.append("inner")
            return "inner"

        async def outer() -> str:
            done.append("outer")
            await asyncio.sleep(0)
            return await ctx.step(inner)

        answers = await asyncio.gather(ctx.step(outer, once=once), ctx.elicit("Go on?", str))
        return str(answers[0])

    assert text(rounds(tool, MemoryStore(), Budget(patience=0))[-1]) == "inner"
    assert done == ["outer", "inner"]


@pytest.mark.parametrize("depth", [1, 2])
def test_a_guarded_step_cannot_ask(depth: int, caplog: pytest.LogCaptureFixture) -> None:
    async def tool(ctx: Context) -> str:
        async def asks() -> str:
            await ask(ctx)
            return "never"

        async def around() -> str:
            return await ctx.step(asks)

        return await ctx.step(asks if depth == 1 else around, once=True)

    (result,) = rounds(tool, MemoryStore(), Budget(patience=0))
    assert tool_error(result) == "The tool failed; the server's log says why."
    assert "cannot ask" in caplog.text


def test_what_a_step_uses_inside_does_not_change_what_the_same_names_give_outside() -> None:
    seen: list[Any] = []

    async def tool(ctx: Context) -> str:
        async def fetch() -> int:
            done.append("fetched")
            return len(done)

        async def outer() -> str:
            return f"{ctx.uuid()} {ctx.random()} {ctx.now()} {await ctx.step(fetch)}"

        await ctx.step(outer)
        seen.append([await ctx.step(fetch), ctx.uuid(), ctx.random()])
        await ask(ctx, 2)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert done == ["fetched", "fetched"]
    assert seen[0] == seen[1] == seen[2]


def test_a_step_that_wants_the_process_to_end_fails_its_call_and_nothing_else() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.step(sys.exit, 3)
        return "never"

    assert "failed" in tool_error(rounds(tool)[0])


@pytest.mark.parametrize("words", ["\ud800", "x" * 10])
def test_a_step_may_fail_with_any_words(words: str) -> None:
    def fails() -> None:
        raise LookupError(words)

    async def tool(ctx: Context) -> str:
        with suppress(StepFailed):
            await ctx.step(fails)
        await ask(ctx)
        return "done"

    assert text(rounds(tool)[-1]) == "done"


# Once


async def paying(ctx: Context) -> str:
    answer: Any = await ctx.elicit("How much?", str)
    value = await ctx.step(charge_once, len(answer.data))
    await ask(ctx)
    return str(value)


class Failing(MemoryStore):
    """A store that is gone when it is to be told what came of a step."""

    def __init__(self) -> None:
        super().__init__()
        self.is_gone = True

    async def finish(self, key: str, record: bytes, ttl: float) -> None:
        """Say what came of it."""
        if self.is_gone:
            raise ConnectionError("the store is gone")
        await super().finish(key, record, ttl)


class Slow(MemoryStore):
    """A store that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def begin(self, key: str, ttl: float) -> Begun | Running | Known:
        """Begin something, unless somebody has."""
        found = await super().begin(key, ttl)
        self.reached.set()
        await self.go_on.wait()
        return found


def test_once_needs_a_store_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert tool_error(rounds(paying)[-1]) == "The tool failed; the server's log says why."
    assert "step 'charge_once' has once=True, but the instances of this server share no store" in caplog.text
    assert done == []


def test_a_server_of_one_process_has_a_store_of_its_own() -> None:
    server: MCPServer[Any] = MCPServer("alone")
    server.add_tool(paying, "it")

    async def run() -> None:
        async with connect(server) as client:
            assert text((await to_the_end(client))[-1]) == "3"

    asyncio.run(run())


def test_an_old_token_does_not_bring_a_guarded_step_back() -> None:
    async def run() -> None:
        store = MemoryStore()
        async with connect(instance(paying, store)) as client, connect(instance(paying, store)) as other:
            first = await send(client)
            assert text((await to_the_end(client, first))[-1]) == "3"
            assert text((await to_the_end(other, first))[-1]) == "3"
            assert done == [3]
            assert tool_error(await send(other, first, "much more")).startswith("The tool failed")
            assert done == [3]
            assert text((await to_the_end(client))[-1]) == "3"
            assert done == [3, 3]

    asyncio.run(run())


def test_what_failed_once_has_failed_in_every_history() -> None:
    @step(once=True)
    async def refuse() -> None:
        done.append("tried")
        raise ToolError("The card was refused.")

    async def tool(ctx: Context) -> str:
        await ask(ctx)
        await refuse()
        return "never"

    async def run() -> None:
        async with connect(instance(tool, MemoryStore())) as client:
            first = await send(client)
            for _ in range(3):
                assert tool_error(await send(client, first)) == "The card was refused."

    asyncio.run(run())
    assert done == ["tried"]


def test_a_guarded_step_whose_result_cannot_be_kept_was_done_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    async def tool(ctx: Context) -> str:
        await ask(ctx)
        return str(await ctx.step(object, name="work", once=True))

    async def run() -> None:
        async with connect(instance(tool, MemoryStore(), Budget(patience=0))) as client:
            first = await send(client)
            for _ in range(2):
                assert tool_error(await send(client, first)) == "The tool failed; the server's log says why."

    asyncio.run(run())
    assert caplog.text.count("its result is no plain data") >= 2


def test_nobody_knows_what_came_of_a_step_that_did_not_report() -> None:
    async def run() -> None:
        store = Failing()
        async with connect(instance(paying, store, Budget(patience=0))) as client:
            first = await send(client)
            assert "It is not known" in tool_error(await send(client, first))
            store.is_gone = False
            words = "It is not known whether 'charge_once' was done: it was begun earlier and did not report."
            for _ in range(2):
                assert tool_error(await send(client, first)) == words

    asyncio.run(run())
    assert done == [3]
    assert EffectUnknown("charge").what == "charge"
    assert isinstance(EffectUnknown("charge"), ToolError)


def test_a_step_that_does_no_harm_may_run_again_where_nobody_knows() -> None:
    async def work() -> str:
        done.append("worked")
        return "ok"

    async def tool(ctx: Context) -> str:
        return await ctx.step(work, once=True, on_unknown="rerun")

    async def run() -> None:
        store = Failing()
        async with connect(instance(tool, store, Budget(patience=0), effects=True)) as client:
            first = await send(client)
            assert "It is not known" in tool_error(await send(client, first))
            store.is_gone = False
            for _ in range(2):
                assert text(await send(client, first)) == "ok"

    asyncio.run(run())
    assert done == ["worked", "worked"]


def test_a_guarded_step_is_finished_though_its_client_goes_away() -> None:
    async def run() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> str:
            done.append("begun")
            begun.set()
            await go_on.wait()
            done.append("finished")
            return "ok"

        async def tool(ctx: Context) -> str:
            await ask(ctx)
            return await ctx.step(work, once=True)

        store = MemoryStore()
        async with connect(instance(tool, store)) as client, connect(instance(tool, store)) as other:
            first = await send(client)
            request = asyncio.ensure_future(send(client, first))
            await begun.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            again = asyncio.ensure_future(send(other, first))
            go_on.set()
            assert text(await again) == "ok"

    asyncio.run(run())
    assert done == ["begun", "finished"]


def test_what_a_guarded_step_does_inside_is_finished_as_well() -> None:
    async def run() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def tool(ctx: Context) -> str:
            async def inner() -> str:
                done.append("inner")
                begun.set()
                await go_on.wait()
                return "ok"

            async def last() -> str:
                done.append("last")
                return str(ctx.uuid())

            async def outer() -> str:
                done.append("outer")
                return f"{await ctx.step(inner)} {await ctx.step(last)} {ctx.uuid()}"

            await ask(ctx)
            return await ctx.step(outer, once=True)

        async with connect(instance(tool, MemoryStore(), Budget(patience=1))) as client:
            first = await send(client)
            request = asyncio.ensure_future(send(client, first))
            await begun.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            go_on.set()
            assert text(await send(client, first)).startswith("ok ")

    asyncio.run(run())
    assert done == ["outer", "inner", "last"]


def test_a_client_that_goes_away_while_the_beginning_is_written_leaves_no_riddle() -> None:
    async def run() -> None:
        store = Slow()
        async with connect(instance(paying, store, Budget(patience=1))) as client:
            first = await send(client)
            request = asyncio.ensure_future(send(client, first))
            await store.reached.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            store.go_on.set()
            assert text((await to_the_end(client, first))[-1]) == "3"

    asyncio.run(run())
    assert done == [3]


def test_a_call_that_is_cancelled_asks_nobody_as_it_ends() -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def tool(ctx: Context) -> str:
            try:
                begun.set()
                await asyncio.Event().wait()
            finally:
                done.append("ends")
                await ask(ctx)
            return "never"

        async with connect(instance(tool)) as client:
            request = asyncio.ensure_future(send(client))
            await begun.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request

    asyncio.run(run())
    assert done == ["ends"]


def test_a_limit_of_the_authors_own_that_is_over_is_no_cancellation() -> None:
    async def tool(ctx: Context) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                try:
                    await asyncio.sleep(1)
                finally:
                    await ask(ctx)
        return "asked"

    async def run() -> None:
        async with connect(instance(tool)) as client:
            assert "inputRequests" in await send(client)

    asyncio.run(run())


def test_two_who_come_at_once_get_one_result() -> None:
    async def run() -> None:
        async def work() -> str:
            done.append("worked")
            for _ in range(5):
                await asyncio.sleep(0)
            return "ok"

        async def tool(ctx: Context) -> str:
            await ask(ctx)
            return await ctx.step(work, once=True)

        store = MemoryStore()
        async with connect(instance(tool, store)) as client, connect(instance(tool, store)) as other:
            first = await send(client)
            both = await asyncio.gather(send(client, first), send(other, first))
            assert [text(result) for result in both] == ["ok", "ok"]

    asyncio.run(run())
    assert done == ["worked"]


# A token before the first effect


def test_with_effects_nothing_is_done_before_the_client_has_a_token() -> None:
    async def tool(ctx: Context) -> str:
        value = await charge(5)
        await ask(ctx)
        return str(value.number)

    async def run() -> None:
        async with connect(instance(tool, effects=True)) as client:
            first = await send(client)
            assert first["resultType"] == "input_required"
            assert first["inputRequests"] == {}
            assert done == []
            assert text((await to_the_end(client, first))[-1]) == "5"

    asyncio.run(run())
    assert done == [5]


def test_with_effects_a_tool_that_asks_first_or_does_nothing_needs_no_round_more() -> None:
    async def asks(ctx: Context) -> str:
        await ask(ctx)
        await charge(5)
        return "done"

    async def asks_beside(ctx: Context) -> str:
        await asyncio.gather(charge(5), ctx.elicit("Go on?", str))
        return "done"

    async def plain(ctx: Context) -> str:
        return "done"

    assert len(rounds(asks, effects=True)) == 2
    assert len(rounds(asks_beside, effects=True)) == 2
    assert len(rounds(plain, effects=True)) == 1
    assert done == [5, 5]


# Tokens that are used once


def test_a_token_of_single_use_gets_one_reply_whatever_is_answered() -> None:
    async def tool(ctx: Context) -> str:
        answer: Any = await ctx.elicit("How much?", str)
        done.append(answer.data)
        second: Any = await ctx.elicit("Sure?", str)
        return f"{answer.data} {second.data}"

    async def run() -> None:
        store = MemoryStore()
        server, beside = (instance(tool, store, single_use=True) for _ in range(2))
        async with connect(server) as client, connect(beside) as other:
            first = await send(client)
            second = await send(client, first)
            assert await send(other, first, "another") == second
            last = await send(client, second)
            assert text(last) == "yes yes"
            assert await send(other, second, "another") == last
            assert "has gone on" in tool_error(await send(other, first))

    asyncio.run(run())
    assert set(done) == {"yes"}


def test_a_token_of_single_use_that_failed_has_failed() -> None:
    async def tool(ctx: Context) -> str:
        await ask(ctx)
        done.append("tried")
        raise LookupError("the secret of the card")

    async def run() -> None:
        async with connect(instance(tool, MemoryStore(), Budget(patience=0), single_use=True)) as client:
            first = await send(client)
            for _ in range(2):
                assert tool_error(await send(client, first)) == "The tool failed; the server's log says why."

    asyncio.run(run())
    assert done == ["tried"]


def test_a_round_of_single_use_is_finished_though_its_client_goes_away() -> None:
    async def run() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def tool(ctx: Context) -> str:
            await ask(ctx)
            done.append("begun")
            begun.set()
            await go_on.wait()
            return "done"

        async with connect(instance(tool, MemoryStore(), single_use=True)) as client:
            first = await send(client)
            request = asyncio.ensure_future(send(client, first))
            await begun.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            go_on.set()
            assert text(await send(client, first)) == "done"

    asyncio.run(run())
    assert done == ["begun"]


def test_single_use_without_a_store_is_refused_at_once() -> None:
    with pytest.raises(InvalidSignature, match="store"):
        instance(paying, single_use=True)
