"""The samples of the pages on replay, run for real: what the pages promise happens, and what they quote is said."""

import asyncio
import io
import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.docs.loading import ROOT, load
from tests.docs.test_samples import User, call, talk
from turnwise import (
    Budget,
    Load,
    MCPServer,
    MemoryStore,
    Overload,
    PostgresStore,
    RedisStore,
    RequestStateSecurity,
    SQLiteStore,
)
from turnwise.errors import TooManyRounds
from turnwise.testing import check_replay, connect

FAILED = "The tool failed; the server's log says why."
Result = dict[str, Any]


def words(page: str) -> str:
    """The text of a page, with its line breaks taken for blanks."""
    return " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


def quoted(page: str, *messages: str) -> None:
    """A page quotes these messages as they are."""
    text = words(page)
    for message in messages:
        assert " ".join(message.split()) in text, f"{page} does not quote: {message}"


async def attempt(server: MCPServer[Any], tool: str, arguments: Mapping[str, Any], **more: Any) -> Result:
    """One round of a call, by hand."""
    async with connect(server) as client:
        client.capabilities = {"elicitation": {}}
        return await client.request("tools/call", {"name": tool, "arguments": arguments, **more})


def accept(**answers: Any) -> Result:
    return {key: {"action": "accept", "content": {"value": value}} for key, value in answers.items()}


def rounds_of(server: MCPServer[Any], tool: str, arguments: Mapping[str, Any], *answers: Any) -> tuple[Any, list[str]]:
    """What a tool returns, and the type of result that each round had."""

    async def run() -> tuple[Any, list[str]]:
        async with connect(server, elicitation_callback=User(*answers)) as client:
            result = await client.call_tool(tool, arguments)
            types = [turn.reply["result"]["resultType"] for turn in client.rounds]
            return (result.structured_content or {}).get("result"), types

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# What replay asks of your code


def test_time_chance_and_effects_outside_of_steps_are_found_and_in_their_place_they_are_not() -> None:
    sample = load("concepts/outside.py")
    assert call(sample, "careless", None, True)[0].startswith("Notice ")
    assert sample.board.read_text() == "a notice is coming\n" * 2
    sample.board.unlink()
    assert call(sample, "careful", None, True)[0].startswith("Notice ")
    assert sample.board.read_text() == "a notice is coming\n"
    careless = asyncio.run(check_replay(sample.server, {"publish": True}, name="careless"))
    found = [re.sub(r"/\S+/docs_src/", "docs_src/", str(finding)) for finding in careless.findings]
    found = [re.sub(r"Notice \d+ of [\dT:.-]+\d", "Notice 17 of 2026-11-15", text) for text in found]
    assert len(found) == 4
    quoted("concepts/replay.md", *found)
    assert asyncio.run(check_replay(sample.server, {"publish": True}, name="careful")).findings == ()


def test_a_step_whose_arguments_changed_fails_the_call(caplog: pytest.LogCaptureFixture) -> None:
    sample = load("concepts/arguments.py")

    async def run() -> Result:
        asked = await attempt(sample.server, "reserve_all", {})
        sample.stock["tea"] = 2
        (key,) = asked["inputRequests"]
        more = {"inputResponses": accept(**{key: True}), "requestState": asked["requestState"]}
        return await attempt(sample.server, "reserve_all", {}, **more)

    assert asyncio.run(run())["content"][0]["text"] == FAILED
    assert sample.reserved == [3]
    assert caplog.records[-1].exc_info is not None
    quoted("concepts/replay.md", f"ReplayMismatch: {caplog.records[-1].exc_info[1]}")


def test_a_question_that_changes_is_asked_until_somebody_has_had_enough(caplog: pytest.LogCaptureFixture) -> None:
    sample = load("concepts/questions.py")
    with pytest.raises(TooManyRounds):
        call(sample, "changing", None, *[True] * 20)
    said = re.sub(r"elicitation-\w+", "elicitation-5f2c...", caplog.messages[0])
    quoted("concepts/replay.md", said)


def test_a_question_that_disappears_is_missed_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    assert call(load("concepts/questions.py"), "disappearing", None, True, 5)[0] == "accept"
    quoted("concepts/replay.md", *caplog.messages)
    assert "tools/call 'disappearing' finished without 'sun'" in caplog.messages[-1]


def test_two_questions_under_one_key_are_asked_again_when_their_order_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result, user = call(load("concepts/questions.py"), "one_key", None, *[True] * 4)
    assert result == "accept accept"
    assert user.asked == ["Water the roses?", "Water the herbs?", "Water the herbs?", "Water the roses?"]
    quoted("concepts/replay.md", caplog.messages[0])
    result, user = call(load("concepts/questions.py"), "own_keys", None, True, True)
    assert user.asked == ["Water the roses?", "Water the herbs?"]


def test_a_question_goes_out_though_everything_is_caught_but_what_was_done_about_it_is_done() -> None:
    sample = load("concepts/catching.py")
    assert call(sample, "lock", None, True)[0] == "accept"
    assert sample.alarms == ["the lock failed"]
    assert call(sample, "lock_well", None, True)[0] == "accept"
    assert sample.alarms == ["the lock failed"]


def test_a_task_that_nobody_awaits_finds_its_round_over() -> None:
    sample = load("concepts/background.py")

    async def run() -> None:
        async with talk(sample, True) as (client, _):
            await client.call_tool("bake")
            sample.hot.set()
            await asyncio.gather(*sample.tasks)

    asyncio.run(run())
    assert len(sample.heard) == 2
    quoted("concepts/replay.md", f"RoundOver: {sample.heard[0]}")
    sample = load("concepts/background.py")
    sample.hot.set()
    assert call(sample, "bake_well", None, True)[0] == "accept"
    assert sample.heard == ["the oven is hot"]


# Steps


def test_a_function_can_be_a_step_by_itself() -> None:
    sample = load("steps/declared.py")
    assert call(sample, "borrow", {"book": "Emma"}, "Ada")[0] == "Emma for Ada: shelf 1."
    assert sample.written == ["Emma", "to Ada: shelf 1"]
    assert asyncio.run(sample.reserve("Persuasion")) == "shelf 3"


def test_a_new_version_keeps_the_answer_it_needs_and_asks_for_the_one_it_lacks() -> None:
    sample, key = load("steps/logins.py"), os.urandom(32)

    async def run() -> list[Result]:
        first = await attempt(sample.old(key), "connect", {})
        given = accept(github_login="ada", google_login="ada@g")
        second = await attempt(sample.new(key), "connect", {}, inputResponses=given, requestState=first["requestState"])
        given = accept(microsoft_login="ada@m")
        third = await attempt(sample.new(key), "connect", {}, inputResponses=given, requestState=second["requestState"])
        return [first, second, third]

    first, second, third = asyncio.run(run())
    assert [*first["inputRequests"]] == ["github_login", "google_login"]
    assert [*second["inputRequests"]] == ["microsoft_login"]
    assert third["structuredContent"] == {"result": "ada and ada@m, begun under 1"}


def test_a_patch_is_for_flows_that_come_by_it_after_the_change() -> None:
    sample, key = load("steps/patched.py"), os.urandom(32)

    async def flow(first: MCPServer[Any], second: MCPServer[Any]) -> str:
        asked = await attempt(first, "ship", {"article": "lamp"})
        more = {"inputResponses": accept(express=True), "requestState": asked["requestState"]}
        return str((await attempt(second, "ship", {"article": "lamp"}, **more))["structuredContent"]["result"])

    old, new = sample.old(key), sample.new(key)
    assert asyncio.run(flow(old, old)) == "lamp is under way."
    assert asyncio.run(flow(old, new)) == "lamp is under way, an unknown weight."
    assert asyncio.run(flow(new, new)) == "lamp is under way, 2 kg."
    assert sample.packed == ["lamp", "lamp", "lamp, weighed", "lamp"]


def test_a_checkpoint_is_where_the_next_round_goes_on() -> None:
    sample = load("steps/checkpoint.py")
    assert rounds_of(sample.server, "words", {"pages": 3}, True) == (304, ["input_required", "complete"])
    assert sample.read == [0, 1, 2]
    sample.read.clear()
    busy = MCPServer("archive", shed_when=lambda load: True)
    busy.add_tool(sample.words)
    assert rounds_of(busy, "words", {"pages": 3}, True) == (304, ["input_required"] * 3 + ["complete"])
    assert sample.read == [0, 1, 2]


# Effects


def test_an_idempotency_key_is_the_same_whatever_the_token_is() -> None:
    sample = load("effects/payment.py")

    async def run() -> None:
        asked = await attempt(sample.server, "pay_by_key", {"cents": 1200})
        more = {"inputResponses": accept(pay=True), "requestState": asked["requestState"]}
        for _ in range(3):  # The reply is lost, and the same request is sent again.
            await attempt(sample.server, "pay_by_key", {"cents": 1200}, **more)

    asyncio.run(run())
    assert [*sample.bank.values()] == [1200]


def test_a_guarded_step_is_done_once_though_replies_are_lost_from_the_first_on() -> None:
    sample = load("effects/payment.py")

    async def run() -> list[Result]:
        lost = await attempt(sample.server, "pay_once", {"cents": 1200})
        assert lost["inputRequests"] == {}
        assert sample.charged == []
        begun = await attempt(sample.server, "pay_once", {"cents": 1200})
        again = {"requestState": begun["requestState"]}
        return [await attempt(sample.server, "pay_once", {"cents": 1200}, **again) for _ in range(3)]

    assert all([*asked["inputRequests"]] == ["print"] for asked in asyncio.run(run()))
    assert sample.charged == [1200]


def test_a_flow_of_single_use_cannot_be_taken_back() -> None:
    sample = load("effects/payment.py")

    async def send(asked: Result, **answers: Any) -> Result:
        more = {"inputResponses": accept(**answers), "requestState": asked["requestState"]}
        return await attempt(sample.server, "pay_strictly", {"cents": 1200}, **more)

    async def run() -> None:
        first = await attempt(sample.server, "pay_strictly", {"cents": 1200})
        second = await send(first, tip=100)
        assert await send(first, tip=5000) == second
        done = await send(second, print=True)
        assert done["structuredContent"] == {"result": "R-1"}
        assert await send(second, print=False) == done
        refused = await send(first, tip=5000)
        assert refused["isError"]
        quoted("guides/effects.md", refused["content"][0]["text"])

    asyncio.run(run())
    assert sample.charged == [1300]


def died(sample: ModuleType, tool: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    """A payment whose process dies after it charged and before it said so; gives what is sent again."""

    async def nothing(*_: Any) -> None:
        """The process is dead."""

    async def run() -> Result:
        begun = await attempt(sample.server, tool, {"cents": 1200})
        with monkeypatch.context() as patch:
            patch.setattr(sample.store, "finish", nothing)
            await attempt(sample.server, tool, {"cents": 1200}, requestState=begun["requestState"])
        return {"requestState": begun["requestState"]}

    return asyncio.run(run())


def test_what_became_of_a_payment_is_looked_up_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = load("effects/unknown.py")
    again = died(sample, "pay", monkeypatch)
    result = asyncio.run(attempt(sample.server, "pay", {"cents": 1200}, **again))
    assert result["structuredContent"] == {"result": "R-1200"}
    sample.payments.clear()
    refused = asyncio.run(attempt(sample.server, "pay", {"cents": 1200}, **again))
    assert refused["content"][0]["text"].startswith("The payment did not get through.")
    assert sample.payments == {}


def test_a_step_that_may_run_again_does_so_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = load("effects/unknown.py")
    again = died(sample, "pay_by_key", monkeypatch)
    sample.payments.clear()
    result = asyncio.run(attempt(sample.server, "pay_by_key", {"cents": 1200}, **again))
    assert result["structuredContent"] == {"result": "R-1200"}
    assert len(sample.payments) == 1


def test_an_effect_that_is_not_known_is_told_to_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = load("effects/unknown.py")

    @sample.server.tool(effects=True)  # type: ignore[untyped-decorator]
    async def pay_bluntly(cents: int, ctx: sample.Context) -> str:  # type: ignore[name-defined]
        return str(await ctx.step(sample.charge, cents, "k", once=True))

    again = died(sample, "pay_bluntly", monkeypatch)
    told = asyncio.run(attempt(sample.server, "pay_bluntly", {"cents": 1200}, **again))
    quoted("guides/effects.md", told["content"][0]["text"])


def test_a_round_of_single_use_that_did_not_report_is_not_known_either(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sample = load("effects/unknown.py")
    sample.server.add_tool(sample.pay, "pay_strictly", single_use=True)
    again = died(sample, "pay_strictly", monkeypatch)
    told = asyncio.run(attempt(sample.server, "pay_strictly", {"cents": 1200}, **again))
    assert "'the last round of this call'" in told["content"][0]["text"]
    quoted("guides/effects.md", "(`EffectUnknown`, for `'the last round of this call'`)")
    assert "did not report (tools/call 'pay_strictly', flow " in caplog.text


def test_a_store_is_chosen_by_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KEYS", os.urandom(32).hex())
    monkeypatch.setenv("FLOWS", str(tmp_path / "flows.db"))
    sample = load("effects/stores.py")
    kinds = {
        "memory": MemoryStore,
        "flows.db": SQLiteStore,
        "postgresql://localhost/shop": PostgresStore,
        "redis://localhost": RedisStore,
    }
    for url, kind in kinds.items():
        assert isinstance(sample.choose(url), kind)
    assert rounds_of(sample.server, "pay", {"order": "4711"}) == (1, ["input_required", "complete"])
    assert (tmp_path / "flows.db").stat().st_mode & 0o777 == 0o600


def test_a_guarded_step_without_a_store_says_what_it_needs(caplog: pytest.LogCaptureFixture) -> None:
    sample = load("effects/payment.py")
    bare = MCPServer("shop", request_state_security=RequestStateSecurity(keys=[os.urandom(32)]))
    bare.add_tool(sample.pay_once)
    assert asyncio.run(attempt(bare, "pay_once", {"cents": 1}))["content"][0]["text"] == FAILED
    assert caplog.records[-1].exc_info is not None
    quoted("guides/effects.md", str(caplog.records[-1].exc_info[1]))


def test_what_lies_in_the_store_is_encrypted() -> None:
    sample = load("effects/payment.py")
    rounds_of(sample.server, "pay_once", {"cents": 1200}, True)
    stored = b"".join(path.read_bytes() for path in Path.cwd().glob("flows.db*"))
    assert stored
    assert b'"R-1"' not in stored
    assert b"charge" not in stored


# Limits


def test_a_token_is_warned_of_and_then_refused(caplog: pytest.LogCaptureFixture) -> None:
    sample = load("limits/budget.py")
    assert call(sample, "summarize", {"kib": 1}, True)[0] == "1024 characters"
    assert caplog.messages == []
    assert call(sample, "summarize", {"kib": 4}, True)[0] == "4096 characters"
    quoted("guides/limits.md", re.sub(r"a token of \d+", "a token of 5843", caplog.messages[-1]))
    assert call(sample, "summarize", {"kib": 20})[0] == FAILED
    assert caplog.records[-1].exc_info is not None
    said = f"LedgerTooLarge: {caplog.records[-1].exc_info[1]}"
    quoted("guides/limits.md", re.sub(r"token has \d+", "token has 27683", said))


def test_a_flow_that_does_not_end_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    sample = load("limits/budget.py")
    assert call(sample, "guess", None, 1, 2, 42)[0] == "3 guesses"
    assert call(sample, "guess", None, *[1] * 8)[0] == FAILED
    assert caplog.records[-1].exc_info is not None
    quoted("guides/limits.md", f"EndlessFlow: {caplog.records[-1].exc_info[1]}")


def test_a_large_entry_waits_in_the_store() -> None:
    sample = load("limits/spilling.py")

    async def run() -> tuple[Any, int]:
        async with talk(sample, True) as (client, _):
            result = await client.call_tool("summarize", {"kib": 64})
            return result.structured_content, len(client.rounds[0].reply["result"]["requestState"])

    result, size = asyncio.run(run())
    assert result == {"result": "65536 characters"}
    assert size < 1024


def test_a_busy_instance_hands_a_call_on_twice_and_then_finishes_it() -> None:
    sample = load("limits/shedding.py")
    assert rounds_of(sample.server, "count_words", {"chapters": 5}) == (5010, ["complete"])
    busy = MCPServer("reports", shed_when=lambda load: True)
    busy.add_tool(sample.count_words)
    assert rounds_of(busy, "count_words", {"chapters": 5}) == (5010, ["input_required"] * 2 + ["complete"])
    assert Overload(in_flight=200)(Load(201, 0.0))
    assert Overload(lag=0.25)(Load(1, 0.3))
    assert not Overload(in_flight=200)(Load(200, 0.0))
    assert sample.by_lag_alone(Load(500, 1.5))


def test_the_page_on_limits_gives_the_limits_as_they_are() -> None:
    budget, text = Budget(), words("guides/limits.md")
    for name, value in {
        "rounds": "100",
        "sheds": "2",
        "last_shed": "7",
        "deadline": "7 days",
        "shed_ttl": "120 seconds",
        "warn_bytes": "8 KiB",
        "spill_bytes": "32 KiB",
        "max_bytes": "256 KiB",
        "patience": "10 seconds",
    }.items():
        assert f"| `{name}` | {value} |" in text
        factor = {"days": 24 * 3600, "KiB": 1024}.get(value.partition(" ")[2], 1)
        assert getattr(budget, name) == int(value.partition(" ")[0]) * factor


# Telemetry


def test_each_round_is_a_span_that_is_linked_to_the_one_before() -> None:
    sample, exporter = load("telemetry/spans.py"), InMemorySpanExporter()
    sample.provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert call(sample, "book", {"flight": "TW 2322"}, 12)[0] == "Row 12."
    first, second = exporter.get_finished_spans()
    assert first.name == second.name == "tools/call book"
    assert first.context is not None
    assert [link.context.span_id for link in second.links] == [first.context.span_id]
    facts, later = dict(first.attributes or {}), dict(second.attributes or {})
    assert facts["turnwise.flow.id"] == later["turnwise.flow.id"]
    assert (facts["mcp.result.type"], later["mcp.result.type"]) == ("input_required", "complete")
    assert (facts["turnwise.flow.round"], later["turnwise.flow.round"]) == (1, 2)
    text = words("guides/telemetry.md")
    assert all(f"`{name}`" in text for name in {**facts, **later})
    assert "TW 2322" not in first.to_json() + second.to_json()

    async def traced() -> None:
        async with talk(sample, 12) as (client, _):
            await client.call_tool("book", {"flight": "TW 1"}, traceparent=f"00-{'a' * 32}-{'b' * 16}-01")

    asyncio.run(traced())
    assert [span.parent.span_id for span in exporter.get_finished_spans()[2:] if span.parent] == [
        0xBBBBBBBBBBBBBBBB
    ] * 2
    sample.provider.shutdown()


def test_a_round_that_asks_is_a_record_with_facts() -> None:
    sample, lines, log = load("telemetry/logs.py"), io.StringIO(), logging.getLogger("turnwise")
    handler = logging.StreamHandler(lines)
    level = log.level
    try:
        sample.set_up(handler)
        call(load("telemetry/spans.py"), "book", {"flight": "TW 2322"}, 12)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    (line,) = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert line["logger"] == "turnwise.flows"
    assert (line["round"], line["result_type"]) == (1, "input_required")
    assert line["ledger_bytes"] > 100
    assert len(line["flow_id"]) == 32
    assert "TW 2322" not in lines.getvalue()


# Testing


def test_the_replay_tests_of_the_testing_guide_pass() -> None:
    sample = load("testing/replaying.py")
    sample.test_draw_well_bears_replay()
    sample.test_draw_does_not()
