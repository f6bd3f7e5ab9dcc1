"""The limits of a flow: rounds, time and bytes, what waits in a store, calls that move, and versions of the code."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import orjson
import pytest

from tests.unit.replayed import (
    IT,
    META,
    NOW,
    REFUSED,
    Result,
    Tool,
    ask,
    instance,
    rounds,
    said,
    send,
    text,
    to_the_end,
    tool_error,
)
from turnwise import (
    AuthorError,
    Budget,
    Context,
    InputRequiredResult,
    Load,
    MCPError,
    MCPServer,
    MemoryStore,
    Overload,
    ReplayMismatch,
    RequestStateSecurity,
    RoundOver,
    StepFailed,
    StoreFull,
)
from turnwise._guards import Begun, Known, Running
from turnwise._messages import Post
from turnwise._shedding import Gauge
from turnwise.testing import connect

# Budgets


@pytest.mark.parametrize(
    "name", ["rounds", "deadline", "shed_ttl", "warn_bytes", "spill_bytes", "max_bytes", "answer_bytes"]
)
@pytest.mark.parametrize("value", [0, -1, float("nan")])
def test_a_budget_that_allows_nothing_is_refused(name: str, value: float) -> None:
    options: Any = {name: value}
    with pytest.raises(ValueError, match=name):
        Budget(**options)


@pytest.mark.parametrize("name", ["sheds", "last_shed", "patience"])
def test_some_of_a_budget_may_be_nothing_but_not_less(name: str) -> None:
    options: Any = {name: 0}
    Budget(**options)
    options = {name: -1}
    with pytest.raises(ValueError, match=name):
        Budget(**options)


async def asking_once(ctx: Context) -> str:
    answer = await ctx.elicit("What?", str, key="what")
    return f"{len(answer.data)} letters" if answer.action == "accept" else "nothing"


def test_an_answer_that_is_too_large_is_refused_and_a_smaller_one_is_taken() -> None:
    async def run() -> None:
        async with connect(instance(asking_once, budget=Budget(answer_bytes=20_000))) as client:
            asked = await send(client)
            for size, is_taken in ((20_001, False), (19_000, True)):
                answers = {"what": {"action": "accept", "content": {"value": "x" * size}}}
                again = {**IT, "inputResponses": answers, "requestState": asked["requestState"]}
                if is_taken:
                    assert text(await client.request("tools/call", again)) == f"{size} letters"
                else:
                    with pytest.raises(MCPError, match="the answer 'what' is larger than 20000 bytes") as caught:
                        await client.request("tools/call", again)
                    assert caught.value.code == -32602

    asyncio.run(run())


def test_a_token_that_is_longer_than_any_is_refused_unread(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with connect(instance(asking_once, budget=Budget(max_bytes=10_000))) as client:
            with pytest.raises(MCPError) as caught:
                await client.request("tools/call", {**IT, "requestState": "s1." + "A" * 40_000})
            assert (caught.value.code, caught.value.message) == (-32602, "Invalid or expired requestState")

    asyncio.run(run())
    assert "longer than any token of this server" in caplog.text


async def without_end(ctx: Context) -> str:
    while True:
        await ctx.elicit("Again?", str)


def test_a_flow_that_goes_round_for_ever_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    results = rounds(without_end, budget=Budget(rounds=4))
    assert len(results) == 5
    assert tool_error(results[-1]) == "The tool failed; the server's log says why."
    assert "EndlessFlow: the flow asked 4 times without an end" in caplog.text


def test_a_tool_may_have_a_budget_of_its_own() -> None:
    server = instance(without_end, budget=Budget(rounds=4))
    server.add_tool(without_end, "short", budget=Budget(rounds=2))

    async def played(name: str) -> int:
        async with connect(server) as client:
            client.capabilities = {"elicitation": {}}
            last, rounds = await client.request("tools/call", {"name": name}), 1
            while last["resultType"] == "input_required":
                answers = {key: said("yes") for key in last["inputRequests"]}
                params = {"name": name, "inputResponses": answers, "requestState": last["requestState"]}
                last, rounds = await client.request("tools/call", params), rounds + 1
            return rounds

    assert [asyncio.run(played(name)) for name in ("it", "short")] == [5, 3]


class Lasting(MemoryStore):
    """Notes how long it is to remember."""

    def __init__(self) -> None:
        super().__init__()
        self.ttls: list[float] = []

    async def begin(self, key: str, ttl: float) -> Begun | Running | Known:
        self.ttls.append(ttl)
        return await super().begin(key, ttl)


@pytest.mark.parametrize("own", [Budget(deadline=500), Budget(deadline=5)])
def test_what_was_done_is_remembered_for_as_long_as_the_tools_own_flows_may_take(own: Budget) -> None:
    async def tool(ctx: Context) -> str:
        return await ctx.step(str, 1, once=True)

    async def run() -> list[float]:
        store = Lasting()
        server = instance(tool, store, Budget(deadline=50))
        server.add_tool(tool, "its_own", budget=own)
        async with connect(server) as client:
            for name in ("it", "its_own"):
                assert text(await client.request("tools/call", {"name": name})) == "1"
        return store.ttls

    usual, other = asyncio.run(run())
    assert other - usual == own.deadline - 50


async def at(server: MCPServer[Any], now: float, last: Result | None = None) -> Any:
    """One round at a time of the test's choosing: the result, or the error."""

    async def emit(message: bytes) -> None:
        raise AssertionError("nothing is to be told")

    params: Mapping[str, Any] = {**IT, "_meta": META}
    if last is not None:
        answers = {key: said("yes") for key in last["inputRequests"]}
        params = {**params, "inputResponses": answers, "requestState": last["requestState"]}
    body = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    message = orjson.loads((await server.wire.answer(Post(body, emit, now))).body or b"")
    return message["result"] if "result" in message else message["error"]["message"]


def test_a_flow_has_a_deadline_that_no_answer_moves() -> None:
    async def run() -> None:
        server = instance(without_end, budget=Budget(deadline=100))
        last = await at(server, NOW)
        for later in (50, 99):
            last = await at(server, NOW + later, last)
            assert last["resultType"] == "input_required"
        assert await at(server, NOW + 101, last) == REFUSED

    asyncio.run(run())


def test_a_call_that_was_handed_on_waits_less_long_than_a_question() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.step(str, 5)
        await ask(ctx)
        return "done"

    async def run() -> None:
        server = instance(tool, budget=Budget(shed_ttl=10), effects=True)
        moved = await at(server, NOW)
        assert await at(server, NOW + 11, moved) == REFUSED
        asked = await at(server, NOW + 9, moved)
        assert text(await at(server, NOW + 9 + 3599, asked)) == "done"
        assert "waited too long" in tool_error(await at(server, NOW + 9 + 3601, asked))

    asyncio.run(run())


def large(size: int) -> Tool:
    async def tool(ctx: Context) -> str:
        small = await ctx.step(lambda: "y" * 10, name="small")
        value = await ctx.step(lambda: "x" * size, name="large")
        await ask(ctx)
        return f"{len(value)} {len(small)}"

    return tool


def test_a_large_token_is_warned_of_with_what_is_large_in_it(caplog: pytest.LogCaptureFixture) -> None:
    assert text(rounds(large(2000), budget=Budget(warn_bytes=1000))[-1]) == "2000 10"
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "'large' (2002 bytes), 'small' (12 bytes)" in warning.getMessage()
    assert "xxx" not in warning.getMessage()


@pytest.mark.parametrize("warn_bytes", [100, 10**9])
def test_a_token_that_is_too_large_fails_the_call_and_says_what_is_large(
    warn_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    (result,) = rounds(large(2000), budget=Budget(warn_bytes=warn_bytes, max_bytes=1000))
    assert tool_error(result) == "The tool failed; the server's log says why."
    assert "LedgerTooLarge" in caplog.text
    assert "at most 1000 are allowed; its largest entries: 'large' (2002 bytes)" in caplog.text


# Spilling


SMALL = Budget(spill_bytes=1000)


class Shelf(MemoryStore):
    """A store whose blobs can be looked at, and lost."""

    @property
    def blobs(self) -> dict[str, tuple[float, bytes]]:
        return self._blobs


def test_what_is_too_large_for_a_token_waits_in_the_store() -> None:
    async def tool(ctx: Context) -> str:
        value = await ctx.step(lambda: "x" * 3000, name="large")
        with pytest.raises(StepFailed) as failed:
            await ctx.step(fails)
        answer: Any = await ctx.elicit("Go on?", str, key="go")
        await ctx.checkpoint("z" * 3000)
        await ctx.elicit("And on?", str, key="on")
        return f"{len(value)} {len(failed.value.text)} {answer.data}"

    def fails() -> None:
        raise LookupError("w" * 3000)

    async def run() -> None:
        store = Shelf()
        async with connect(instance(tool, store, SMALL)) as client, connect(instance(tool, store, SMALL)) as other:
            first = await send(client)
            assert len(first["requestState"]) < 1000
            assert len(store.blobs) == 2
            second = await send(other, first, "a" * 3000)
            assert len(second["requestState"]) < 1500
            assert text(await send(client, second)) == f"3000 3000 {'a' * 3000}"
            kept = json.dumps({key: blob.decode() for key, (_, blob) in store.blobs.items()})
            assert not any(letters * 20 in kept for letters in "xwza")

    asyncio.run(run())


def test_clients_that_leave_their_large_answers_behind_fill_the_memory_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server without keys or a store has one in memory, for whoever comes."""
    monkeypatch.setattr("turnwise._guards.BLOB_BYTES", 20_000)

    async def run(max_bytes: int) -> tuple[list[Result], int]:
        server: MCPServer[Any] = MCPServer("default", budget=Budget(spill_bytes=1000, max_bytes=max_bytes))

        async def tool(ctx: Context) -> str:
            await ask(ctx, 2)
            return "done"

        server.add_tool(tool, "it")
        store: Any = server._store
        async with connect(server) as client:
            seconds = [await send(client, await send(client), "x" * 3000) for _ in range(20)]
            held = sum(len(blob) for _, blob in store._blobs.values())
            if max_bytes > 3000:
                assert {text(await send(client, second)) for second in seconds} == {"done"}
        return seconds, held

    seconds, held = asyncio.run(run(100_000))
    assert 10_000 < held <= 20_000
    assert {len(second["requestState"]) > 3000 for second in seconds} == {False, True}
    assert "cannot be made smaller" in caplog.text
    seconds, held = asyncio.run(run(2000))
    assert 10_000 < held <= 20_000
    assert tool_error(seconds[-1]) == "The tool failed; the server's log says why."
    assert "LedgerTooLarge" in caplog.text


def test_a_store_in_memory_has_room_again_when_the_time_of_large_entries_is_over() -> None:
    async def run() -> None:
        now = 0.0
        store = MemoryStore(lambda: now, blob_bytes=100)
        await store.begin("guard", 1000)
        await store.put("a", b"x" * 60, 10)
        for _ in range(3):
            await store.put("a", b"x" * 60, 10)
        with pytest.raises(StoreFull, match="all the room"):
            await store.put("b", b"x" * 60, 10)
        assert await store.get("a") == b"x" * 60
        now = 11.0
        await store.put("b", b"x" * 60, 10)
        assert (await store.get("a"), await store.get("b")) == (None, b"x" * 60)
        assert await store.find("guard") == Running()

    asyncio.run(run())


def test_a_large_entry_lives_as_long_as_its_token_and_a_guard_as_long_as_its_flow() -> None:
    class Noting(Lasting):
        async def put(self, key: str, blob: bytes, ttl: float) -> None:
            put.append(ttl)
            await super().put(key, blob, ttl)

    put: list[float] = []

    async def tool(ctx: Context) -> str:
        await ctx.step(lambda: "x" * 3000, name="large", once=True)
        await ask(ctx)
        return "done"

    store = Noting()
    assert text(rounds(tool, store, Budget(spill_bytes=1000, deadline=50_000))[-1]) == "done"
    state_ttl = RequestStateSecurity(keys=[b"k" * 32]).ttl
    assert set(store.ttls) == {50_000 + state_ttl}
    assert all(state_ttl < ttl < 2 * state_ttl for ttl in put)
    assert put


@pytest.mark.parametrize("loss", ["blobs", "store"])
def test_a_token_whose_entries_are_lost_is_refused(loss: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        store = Shelf()
        async with connect(instance(large(3000), store, SMALL)) as client:
            first = await send(client)
        store.blobs.clear()
        async with connect(instance(large(3000), store if loss == "blobs" else None, SMALL)) as client:
            with pytest.raises(MCPError, match=REFUSED) as refused:
                await send(client, first)
            assert refused.value.code == -32602

    asyncio.run(run())
    words = {"blobs": "a spilled entry is no longer in the store", "store": "has entries in a store"}
    assert words[loss] in caplog.text


def test_an_entry_of_one_flow_is_worth_nothing_under_the_name_of_another() -> None:
    async def run() -> None:
        store = Shelf()
        async with connect(instance(large(3000), store, SMALL)) as client:
            one, other = await send(client), await send(client)
            first, second = store.blobs
            store.blobs[first], store.blobs[second] = store.blobs[second], store.blobs[first]
            for last in (one, other):
                with pytest.raises(MCPError, match=REFUSED):
                    await send(client, last)

    asyncio.run(run())


def test_small_entries_stay_in_the_token_whatever_its_size() -> None:
    async def tool(ctx: Context) -> str:
        for number in range(20):
            await ctx.step(lambda: "x" * 100, name=f"step {number}")
        await ask(ctx)
        return "done"

    store = Shelf()
    assert text(rounds(tool, store, SMALL)[-1]) == "done"
    assert store.blobs == {}


def test_a_step_under_other_arguments_is_told_from_what_was_spilled() -> None:
    given = [1, 2]

    async def work(number: int) -> str:
        return "x" * 3000

    async def tool(ctx: Context) -> str:
        with suppress(ReplayMismatch):
            await ctx.step(work, given.pop(0))
            await ask(ctx)
            return "never"
        return "told"

    assert text(rounds(tool, Shelf(), SMALL)[-1]) == "told"


# Checkpoints


def test_a_checkpoint_is_there_for_whoever_goes_on() -> None:
    seen: list[Any] = []

    async def tool(ctx: Context) -> str:
        seen.append(ctx.checkpointed)
        for number in range(ctx.checkpointed or 0, 3):
            await ctx.step(lambda: "done", name=f"page {number}")
            await ctx.checkpoint(number + 1)
            await ctx.elicit("Go on?", str, key=f"after {number}")
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert seen == [None, 1, 2, 3]


def test_the_last_checkpoint_counts() -> None:
    seen: list[Any] = []

    async def tool(ctx: Context) -> str:
        seen.append(ctx.checkpointed)
        await ctx.checkpoint({"page": 1})
        await ctx.checkpoint()
        seen.append(ctx.checkpointed)
        await ctx.checkpoint([2])
        await ask(ctx)
        return "done"

    assert text(rounds(tool)[-1]) == "done"
    assert seen == [None, None, [2], None]


def test_a_checkpoint_is_plain_data_of_a_round_that_is_not_over() -> None:
    kept: list[Context] = []

    async def tool(ctx: Context) -> str:
        kept.append(ctx)
        with pytest.raises(AuthorError, match="checkpoint"):
            await ctx.checkpoint(object())
        return "done"

    assert text(rounds(tool)[0]) == "done"
    with pytest.raises(RoundOver):
        asyncio.run(kept[0].checkpoint(1))


# Calls that move


def busy(load: Load) -> bool:
    return True


def test_a_busy_instance_hands_a_call_on_twice_and_then_finishes_it() -> None:
    done: list[int] = []

    async def tool(ctx: Context) -> str:
        for number in range(5):
            await ctx.step(done.append, number)
        return "done"

    results = rounds(tool, shed_when=busy)
    assert [result.get("inputRequests") for result in results] == [{}, {}, None]
    assert text(results[-1]) == "done"
    assert done == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("budget", [Budget(sheds=0), Budget(last_shed=0)])
def test_a_budget_may_keep_calls_where_they_are(budget: Budget) -> None:
    async def tool(ctx: Context) -> str:
        await ctx.step(str, 1, name="one")
        return "done"

    assert len(rounds(tool, budget=budget, shed_when=busy)) == 1


def test_a_call_moves_only_where_it_got_further() -> None:
    async def plain(ctx: Context) -> str:
        ctx.now()
        return "done"

    async def asking(ctx: Context) -> str:
        await ctx.step(str, 1, name="one")
        await ask(ctx, 2)
        return "done"

    assert len(rounds(plain, shed_when=busy)) == 1
    assert [bool(result.get("inputRequests")) for result in rounds(asking, shed_when=busy)] == [
        False,
        True,
        True,
        False,
    ]


def test_a_checkpoint_that_was_passed_before_is_no_progress() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.checkpoint(1)
        return "done"

    assert len(rounds(tool, shed_when=busy)) == 2


def test_the_token_before_the_first_effect_is_one_of_the_moves() -> None:
    async def tool(ctx: Context) -> str:
        for number in range(5):
            await ctx.step(str, number)
        return "done"

    assert len(rounds(tool, shed_when=busy, effects=True)) == 3


def test_a_function_can_tell_that_its_call_moves() -> None:
    seen: list[bool] = []

    async def tool(ctx: Context) -> str:
        try:
            await ctx.step(str, 1)
        finally:
            seen.append(ctx.suspending)
        return "done"

    rounds(tool, shed_when=busy)
    assert seen == [True, False]


@pytest.mark.parametrize(
    "limits", [{"lag": None}, {"in_flight": 0}, {"in_flight": -1}, {"lag": 0}, {"lag": -1.0}, {"lag": float("nan")}]
)
def test_a_limit_that_limits_nothing_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"in_flight|lag"):
        Overload(**limits)


def test_a_limit_is_what_is_still_borne() -> None:
    by_calls, by_lag = Overload(in_flight=2, lag=None), Overload(lag=0.25)
    assert [by_calls(Load(count, 9.0)) for count in (1, 2, 3)] == [False, False, True]
    assert [by_lag(Load(99, lag)) for lag in (0.0, 0.25, 0.3)] == [False, False, True]


def test_calls_under_way_are_counted_and_so_are_those_that_fail() -> None:
    loads: list[int] = []

    def look(load: Load) -> bool:
        loads.append(load.in_flight)
        return False

    async def run() -> None:
        both = asyncio.Barrier(2)

        async def tool(ctx: Context) -> str:
            if len(loads) < 2:
                await both.wait()
                await ctx.step(str, 1)
                await both.wait()
                raise LookupError("no such card")
            await ctx.step(str, 1)
            return "done"

        async with connect(instance(tool, shed_when=look)) as client:
            await asyncio.gather(send(client), send(client))
            await send(client)

    asyncio.run(run())
    assert loads == [2, 2, 1]


def test_a_loop_that_comes_late_is_seen_by_its_lag() -> None:
    async def blocks() -> None:
        time.sleep(0.15)  # noqa: ASYNC251 - what a busy loop is like

    async def tool(ctx: Context) -> str:
        await ctx.step(blocks)
        return "done"

    assert len(rounds(tool, shed_when=Overload(lag=0.05))) == 2
    assert len(rounds(tool, shed_when=Overload(lag=5.0))) == 1


def test_lag_is_forgotten_when_the_loop_comes_in_time_again() -> None:
    async def run() -> None:
        gauge = Gauge()
        with gauge:
            time.sleep(0.15)  # noqa: ASYNC251 - what a busy loop is like
            late = gauge.load().lag
            assert late > 0.05
            assert gauge.load().in_flight == 1
            for _ in range(100):
                if gauge.load().lag < late / 2:
                    break
                await asyncio.sleep(0.05)
            assert gauge.load().lag < late / 2
        assert gauge.load().in_flight == 0

    asyncio.run(run())


def test_a_gauge_that_was_left_in_a_loop_that_ended_begins_anew() -> None:
    gauge = Gauge()

    async def look() -> float:
        with gauge:
            return gauge.load().lag

    assert asyncio.run(look()) < 0.05
    time.sleep(0.15)
    assert asyncio.run(look()) < 0.05


# Changed code


class Edited:
    """A tool that is changed while a flow is open."""

    def __init__(self, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        self.is_new = False
        self.seen: list[bool] = []
        self._before, self._after = before, after

    async def tool(self, ctx: Context) -> str:
        await (self._after(ctx, self) if self.is_new else self._before(ctx))
        await ask(ctx)
        return "done"

    def look(self, ctx: Context) -> bool:
        self.seen.append(ctx.patched("change"))
        return self.seen[-1]


def seen_after(edited: Edited, rounds_before: int, *, moves: bool = False) -> list[bool]:
    """What `patched` says in a flow that had this many rounds before the code was changed."""

    async def run() -> None:
        shed_when = (lambda load: not edited.is_new) if moves else None
        async with connect(instance(edited.tool, shed_when=shed_when)) as client:
            last: Result | None = None
            for _ in range(rounds_before):
                last = await send(client, last)
            edited.is_new = True
            assert text((await to_the_end(client, last))[-1]) == "done"

    asyncio.run(run())
    return edited.seen


async def nothing(ctx: Context) -> None:
    pass


async def asks_first(ctx: Context) -> None:
    await ctx.elicit("First?", str, key="first")


async def takes_a_step(ctx: Context) -> None:
    await ctx.step(str, 1, name="step")


async def asks_twice(ctx: Context) -> None:
    await ctx.elicit("Same?", str, key="same")
    await ctx.elicit("Same?", str, key="same")


def test_a_new_flow_runs_the_new_code_in_all_its_rounds() -> None:
    async def after(ctx: Context, edited: Edited) -> None:
        if edited.look(ctx):
            await ctx.step(str, 2, name="new")

    assert seen_after(Edited(nothing, after), 0) == [True, True]


def test_a_flow_that_did_not_come_to_a_place_yet_runs_the_new_code_there() -> None:
    async def after(ctx: Context, edited: Edited) -> None:
        await asks_first(ctx)
        edited.look(ctx)

    assert seen_after(Edited(asks_first, after), 1) == [True, True]


def test_a_flow_that_settled_something_behind_a_place_keeps_the_old_code_there() -> None:
    async def after(ctx: Context, edited: Edited) -> None:
        edited.look(ctx)
        await takes_a_step(ctx)
        await ctx.elicit("More?", str)

    assert seen_after(Edited(takes_a_step, after), 1) == [False, False]


def test_a_flow_that_asked_something_behind_a_place_keeps_the_old_code_there() -> None:
    async def after(ctx: Context, edited: Edited) -> None:
        edited.look(ctx)
        await asks_first(ctx)

    assert seen_after(Edited(asks_first, after), 1) == [False, False]
    assert seen_after(Edited(asks_first, after), 2) == [False]


def test_the_second_question_under_one_key_is_behind_a_place_between_the_two() -> None:
    async def after(ctx: Context, edited: Edited) -> None:
        await ctx.elicit("Same?", str, key="same")
        edited.look(ctx)
        await ctx.elicit("Same?", str, key="same")

    assert seen_after(Edited(asks_twice, after), 2) == [False, False]
    assert seen_after(Edited(asks_twice, after), 1) == [True, True, True]


def test_what_else_the_new_code_does_before_a_place_is_not_taken_for_what_the_old_one_did() -> None:
    async def after(ctx: Context, edited: Edited) -> None:
        ctx.uuid()
        edited.look(ctx)
        await takes_a_step(ctx)

    assert seen_after(Edited(takes_a_step, after), 1, moves=True) == [False, False]


def test_a_new_flow_that_asked_by_returning_runs_the_new_code() -> None:
    seen: list[bool] = []

    async def tool(ctx: Context) -> Any:
        if not ctx.input_responses:
            params = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            asked = {"hand": {"method": "elicitation/create", "params": params}}
            return InputRequiredResult.model_validate({"inputRequests": asked})
        seen.append(ctx.patched("change"))
        return "done"

    rounds(tool)
    assert seen == [True]


# Versions


async def across(before: tuple[Tool, str | None], *after: tuple[Tool, str | None]) -> list[Result]:
    """A flow whose every round is played by another version."""
    results: list[Result] = []
    for fn, version in (before, *after):
        async with connect(instance(fn, version=version)) as client:
            results.append(await send(client, results[-1] if results else None))
    return results


@pytest.mark.parametrize(("began", "goes_on"), [("1", "2"), ("1", None), (None, "2")])
def test_a_flow_knows_the_version_it_began_with(began: str | None, goes_on: str | None) -> None:
    seen: list[str | None] = []

    async def tool(ctx: Context) -> str:
        seen.append(ctx.flow_version)
        await ask(ctx, 2)
        return "done"

    asyncio.run(across((tool, began), (tool, goes_on), (tool, goes_on)))
    assert seen == [began, began, began]


async def with_a_step(ctx: Context) -> str:
    await ctx.step(str, 1, name="old")
    await ask(ctx)
    return "done"


async def without_it(ctx: Context) -> str:
    await ask(ctx)
    return "done"


@pytest.mark.parametrize(("version", "level"), [("1", logging.WARNING), ("2", logging.INFO)])
def test_what_a_flow_did_not_use_is_a_sign_of_trouble_only_within_a_version(
    version: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnwise.flows")
    results = asyncio.run(across((with_a_step, "1"), (without_it, version)))
    assert text(results[-1]) == "done"
    (record,) = [record for record in caplog.records if "finished without" in record.getMessage()]
    assert record.levelno == level
    assert "tools/call 'it' finished without 'old'" in record.getMessage()


def test_a_flow_that_used_all_it_has_is_nothing_to_talk_about(caplog: pytest.LogCaptureFixture) -> None:
    asyncio.run(across((with_a_step, "1"), (with_a_step, "1")))
    assert not caplog.records


def asking(words: str) -> Tool:
    async def tool(ctx: Context) -> str:
        answer: Any = await ctx.elicit(words, str, key="sure")
        await ask(ctx)
        return f"{words} {answer.data}"

    return tool


def test_a_question_that_changed_under_its_key_is_asked_again_and_told_of(caplog: pytest.LogCaptureFixture) -> None:
    results = asyncio.run(across((asking("Sure?"), "1"), (asking("Sure?"), "1"), (asking("Very sure?"), "2")))
    assert results[-1]["inputRequests"]["sure"]["params"]["message"] == "Very sure?"
    assert "question 'sure' is not the one that was answered under this key" in caplog.text
    assert "yes" not in caplog.text


async def a_step_called(ctx: Context) -> str:
    await ctx.step(accepted, name="both")
    await ask(ctx)
    return "never"


def accepted() -> dict[str, Any]:
    return {"action": "accept", "content": {"value": "the result of a step"}}


async def a_question_called(ctx: Context) -> str:
    answer: Any = await ctx.elicit("Both?", str, key="both")
    return str(answer.data)


def test_the_result_of_a_step_is_never_taken_for_an_answer() -> None:
    results = asyncio.run(across((a_step_called, "1"), (a_question_called, "2"), (a_question_called, "2")))
    assert list(results[1]["inputRequests"]) == ["both"]
    assert text(results[-1]) == "yes"


def test_what_an_older_version_kept_under_the_name_of_a_clock_is_no_time() -> None:
    async def before(ctx: Context) -> str:
        await ctx.step(accepted, name="now")
        await ask(ctx)
        return "never"

    async def after(ctx: Context) -> str:
        moment = ctx.now()
        await ask(ctx)
        return f"{moment > 0}"

    results = asyncio.run(across((before, "1"), (after, "2")))
    assert text(results[-1]) == "True"
