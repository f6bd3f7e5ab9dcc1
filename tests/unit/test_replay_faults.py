"""What a hurried author does to steps: nothing is done twice unseen, and the log says what happened."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.replayed import IT, META, NOW, ask, instance, rounds, said, send, text, to_the_end, tool_error
from turnwise import (
    Budget,
    Context,
    EffectUnknown,
    InvalidSignature,
    MCPServer,
    MemoryStore,
    StepFailed,
    ToolError,
)
from turnwise._messages import Post
from turnwise.testing import check_replay, connect

LATE = "This call waited too long, and is not taken up again. What it did before is done."
HOUR = 3600


class Bank:
    """Takes money."""

    def __init__(self) -> None:
        self.charges: list[int] = []

    async def charge(self, cents: int) -> int:
        self.charges.append(cents)
        return len(self.charges)

    async def slowly(self, cents: int) -> int:
        await asyncio.sleep(0.05)
        return await self.charge(cents)


async def at(server: MCPServer[Any], now: float, last: dict[str, Any] | None = None) -> dict[str, Any]:
    """One round at this time: the result, or the text of the error."""
    import json

    params: dict[str, Any] = {**IT, "_meta": META}
    if last is not None:
        answers = {key: said("yes") for key in last["inputRequests"]}
        params |= {"inputResponses": answers, "requestState": last["requestState"]}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()

    async def emit(message: bytes) -> None:
        raise AssertionError(message)

    reply = await server.wire.answer(Post(body, emit, now))
    assert reply.body is not None
    message: dict[str, Any] = json.loads(reply.body)
    return message["result"] if "result" in message else {"refused": message["error"]["message"]}


# An answer that comes too late


def paying(bank: Bank, **manner: Any) -> Callable[..., Any]:
    async def pay(ctx: Context) -> str:
        await ctx.elicit("Pay?", str, key="pay")
        await ctx.step(bank.charge, 5, name="charge", **manner)
        await ctx.elicit("Receipt to?", str, key="receipt")
        return "paid"

    return pay


@pytest.mark.parametrize(
    ("manner", "options", "is_ended"),
    [
        ({"once": True}, {}, True),
        ({"once": True}, {"single_use": True}, True),
        ({}, {"effects": True}, True),
        ({}, {"single_use": True}, True),
        ({}, {}, False),
    ],
)
def test_a_flow_that_acted_is_not_begun_anew_when_its_answer_comes_too_late(
    manner: dict[str, Any], options: dict[str, Any], is_ended: bool
) -> None:
    async def run() -> None:
        server = instance(paying(Bank(), **manner), MemoryStore(), **options)
        first = await at(server, NOW)
        assert await at(server, NOW + HOUR + 1, first) == {"refused": "Invalid or expired requestState"}
        second = await at(server, NOW + 1, first)
        late = await at(server, NOW + 2 * HOUR, second)
        assert (tool_error(late) == LATE) if is_ended else ("refused" in late)

    asyncio.run(run())


def test_a_flow_that_acted_is_not_begun_anew_after_its_deadline() -> None:
    async def run() -> None:
        server = instance(paying(Bank(), once=True), MemoryStore(), Budget(deadline=10))
        second = await at(server, NOW + 1, await at(server, NOW))
        assert tool_error(await at(server, NOW + 12, second)) == LATE

    asyncio.run(run())


def test_a_token_older_than_the_effect_is_known_where_tokens_are_good_once() -> None:
    async def run() -> None:
        server = instance(paying(Bank()), MemoryStore(), single_use=True)
        first = await at(server, NOW)
        await at(server, NOW + 1, await at(server, NOW + 1, first))
        assert tool_error(await at(server, NOW + 2 * HOUR, first)) == LATE

    asyncio.run(run())


# Arguments that are used up by looking at them


@pytest.mark.parametrize("make", [lambda: (n for n in (1, 2)), lambda: map(int, "12"), lambda: iter([1])])
def test_what_can_be_read_only_once_is_no_argument(make: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> None:
    ran: list[Any] = []

    def ship(parcels: Any) -> int:
        ran.extend(parcels)
        return len(ran)

    async def tool(ctx: Context) -> str:
        await ctx.step(ship, make())
        return "shipped"

    [result] = rounds(tool)
    assert "failed" in tool_error(result)
    assert ran == []
    assert "can be read only once; make a list of it" in caplog.text


def test_an_open_file_is_no_argument_either(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "x"
    path.write_text("one\n")

    async def tool(ctx: Context) -> int:
        with path.open() as file:
            return await ctx.step(lambda given: len(given["file"].read()), {"file": file}, name="read")

    assert "failed" in tool_error(rounds(tool)[0])
    assert "make a list of it" in caplog.text


# Steps that ask, that are given up, that give what cannot be kept


def test_a_step_that_asks_fails_the_call_before_it_can_run_again(caplog: pytest.LogCaptureFixture) -> None:
    bank = Bank()

    async def tool(ctx: Context) -> str:
        async def both() -> str:
            await bank.charge(1)
            await ask(ctx)
            return "both"

        try:
            return await ctx.step(both)
        except StepFailed as error:
            return str(error)

    [result] = rounds(tool)
    assert "a step cannot ask" in text(result)
    assert bank.charges == [1]


def test_a_step_that_is_given_up_from_outside_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    bank = Bank()

    async def tool(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.005):
                await ctx.step(bank.slowly, 1, name="charge")
        except TimeoutError:
            pass
        await ask(ctx)
        return "late"

    assert text(rounds(tool)[-1]) == "late"
    assert "given up from outside and not recorded: charge, which runs again" in caplog.text


def test_a_guarded_step_that_was_given_up_is_not_taken_again_in_the_same_round() -> None:
    bank = Bank()

    async def tool(ctx: Context) -> str:
        for _ in range(3):
            try:
                async with asyncio.timeout(0.005):
                    return str(await ctx.step(bank.slowly, 1, name="charge", once=True))
            except TimeoutError:
                continue
            except EffectUnknown:
                break
        await asyncio.sleep(0.1)
        return f"unknown after {len(bank.charges)}"

    assert text(rounds(tool, MemoryStore())[-1]) == "unknown after 1"


def test_a_call_that_its_client_gives_up_is_no_step_given_up(caplog: pytest.LogCaptureFixture) -> None:
    bank = Bank()

    async def tool(ctx: Context) -> str:
        return str(await ctx.step(bank.slowly, 1, name="charge"))

    async def run() -> None:
        async with connect(instance(tool)) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.005):
                    await send(client)

    asyncio.run(run())
    assert "given up from outside" not in caplog.text


def test_a_step_whose_result_cannot_be_kept_was_done_and_is_not_done_again() -> None:
    bank = Bank()

    async def tool(ctx: Context) -> str:
        async def charge() -> Any:
            await bank.charge(1)
            return object()

        try:
            await ctx.step(charge)
        except Exception as error:
            await ask(ctx, 2)
            return str(error)
        return "kept"

    assert "its result is no plain data" in text(rounds(tool)[-1])
    assert bank.charges == [1]


# What operators read


class Losing(MemoryStore):
    """Loses what came of a step."""

    async def finish(self, key: str, record: bytes, ttl: float) -> None:
        raise OSError("the disk is full")


def test_a_step_that_was_done_and_not_recorded_is_unknown_at_once_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bank = Bank()

    async def tool(ctx: Context) -> str:
        try:
            return str(await ctx.step(bank.charge, 1, once=True, name="charge"))
        except EffectUnknown:
            return "look it up"

    assert text(rounds(tool, Losing())[-1]) == "look it up"
    assert (
        "step 'charge' was done, and the store does not know what came of it: the disk is full (tools/call"
        in caplog.text
    )


def test_a_failure_is_logged_with_its_tool_flow_and_round(caplog: pytest.LogCaptureFixture) -> None:
    flows = []

    async def tool(ctx: Context) -> str:
        flows.append(ctx.flow_id)
        await ask(ctx)
        raise KeyError("x")

    assert "failed" in tool_error(rounds(tool)[-1])
    assert "tools/call 'it' failed" in caplog.text
    assert f"flow {flows[-1]}, round 2" in caplog.text


def test_a_token_that_lacked_a_capability_is_answered_the_same_again() -> None:
    async def tool(ctx: Context) -> str:
        await ask(ctx)
        await ctx.roots()
        return "rooted"

    async def run() -> None:
        async with connect(instance(tool, MemoryStore(), single_use=True)) as client:
            first = await send(client)
            for _ in range(2):
                with pytest.raises(Exception, match="did not declare a required capability: roots"):
                    await send(client, first)

    asyncio.run(run())


# Options that are looked at when they are given


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"store": "flows.db"}, "store is a FlowStore, such as SQLiteStore(path), not str"),
        ({"budget": {}}, "budget is a Budget(...), not dict"),
        ({"shed_when": True}, "shed_when is a plain function"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_at_once(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as refused:
        MCPServer("s", **options)
    assert words in str(refused.value)


def test_a_tools_budget_of_the_wrong_kind_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="budget is a Budget"):
        MCPServer("s").add_tool(ask, "it", budget={"rounds": 3})  # type: ignore[arg-type]


def test_a_policy_that_has_to_be_awaited_is_refused() -> None:
    async def policy(load: Any) -> bool:
        return False

    with pytest.raises(TypeError, match="shed_when is a plain function"):
        MCPServer("s", shed_when=policy)  # type: ignore[arg-type]


def test_a_policy_that_fails_sheds_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bank = Bank()

    def policy(load: Any) -> bool:
        raise ZeroDivisionError

    async def tool(ctx: Context) -> str:
        return str(await ctx.step(bank.charge, 1, name="charge"))

    assert text(rounds(tool, shed_when=policy)[-1]) == "1"
    assert "shed_when failed; nothing is shed" in caplog.text


def test_a_version_and_a_name_are_texts() -> None:
    with pytest.raises(InvalidSignature, match="version is a text, not 2"):
        instance(paying(Bank()), version=2)

    async def tool(ctx: Context) -> str:
        return str(await ctx.step(len, "x", name=3))

    assert "failed" in tool_error(rounds(tool)[0])


# Versions


def test_a_question_that_another_version_asked_is_no_reason_to_warn(caplog: pytest.LogCaptureFixture) -> None:
    async def old(ctx: Context) -> str:
        await ctx.elicit("Tip?", str, key="tip")
        return "old"

    async def new(ctx: Context) -> str:
        await ctx.elicit("Address?", str, key="address")
        return "new"

    async def run() -> str:
        async with connect(instance(old, version="1")) as before, connect(instance(new, version="2")) as after:
            return text((await to_the_end(after, await send(before)))[-1])

    caplog.set_level(logging.WARNING)
    assert asyncio.run(run()) == "new"
    assert caplog.text == ""


# Checking a path that ends in an error


def test_a_path_that_ends_in_a_tool_error_can_be_checked() -> None:
    async def tool(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", bool, key="sure")
        raise ToolError(f"Not done: {answer.action}")

    report = asyncio.run(check_replay(instance(tool), {"sure": {"action": "decline"}}, name="it"))
    assert report.findings == ()
    assert report.result is not None
    assert report.result["isError"] is True


def test_a_path_that_ends_in_an_exception_is_a_finding() -> None:
    async def tool(ctx: Context) -> str:
        await ctx.elicit("Sure?", bool, key="sure")
        raise KeyError("x")

    report = asyncio.run(check_replay(instance(tool), {"sure": True}, name="it"))
    assert [finding.what for finding in report.findings] == ["the round failed"]
    assert "KeyError" in report.findings[0].advice
