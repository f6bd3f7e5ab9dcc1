"""Progress: what is further is told, not too often, and the end always."""

import asyncio
from typing import Any

import pytest

from turnwise import Client, Context, MCPServer, _pacing
from turnwise._pacing import A_SECOND, BURST, Pace
from turnwise.testing import connect


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_pacing, "time", clock)
    return clock


def told(*reports: tuple[float, float | None]) -> list[float]:
    """What a client hears of a tool that reports these, one after the other."""
    server = MCPServer("pace")

    @server.tool()
    async def work(ctx: Context[Any, Any]) -> str:
        for progress, total in reports:
            await ctx.report_progress(progress, total)
        return "done"

    async def run() -> list[float]:
        async with connect(server) as client:
            await client.request("tools/call", {"name": "work"}, progressToken="p")
            return [note["params"]["progress"] for note in client.notifications]

    return asyncio.run(run())


def test_only_what_is_further_than_before_is_told() -> None:
    """ "The `progress` value MUST increase with each notification, even if the total is unknown." """
    assert told((1, None), (1, None), (0.5, None), (2, None), (-1, None), (2.5, None)) == [1, 2, 2.5]
    assert told((-3, None), (-2, None), (0, None)) == [-3, -2, 0]


@pytest.mark.usefixtures("clock")
def test_a_loop_that_reports_every_turn_floods_nobody() -> None:
    heard = told(*((number, 100_000) for number in range(1, 100_001)))
    assert heard == [*range(1, BURST + 1), 100_000], "the first ones, and the end"


def test_after_a_while_more_is_told(clock: Clock) -> None:
    pace = Pace()
    assert all(pace.allows(number, None) for number in range(BURST))
    assert not pace.allows(BURST, None)
    clock.now += 1.5 / A_SECOND
    assert pace.allows(BURST, None)
    assert not pace.allows(BURST + 1, None)
    clock.now += 3600
    assert sum(pace.allows(number, None) for number in range(1000, 2000)) == BURST
    assert pace.allows(5000, 5000)
    assert not pace.allows(5000, 5000)


def test_where_one_request_has_several_rounds_progress_does_not_go_back() -> None:
    """On wires that ask live, a round is played on the same request, under the same token."""
    server = MCPServer("pace")

    @server.tool()
    async def work(ctx: Context[Any, Any]) -> str:
        await ctx.report_progress(50)
        await ctx.elicit("Go on?", bool, key="go")
        await ctx.report_progress(10)
        await ctx.report_progress(60)
        return "done"

    async def answer(asking: Any, params: Any) -> Any:
        return {"action": "accept", "content": {"value": True}}

    async def run(mode: Any) -> list[float]:
        heard: list[float] = []

        async def progress(done: float, *_: Any) -> None:
            heard.append(done)

        async with Client(server, mode=mode, elicitation_callback=answer) as client:
            await client.call_tool("work", progress_callback=progress)
        return heard

    assert asyncio.run(run("2025-11-25")) == [50, 60]
    assert asyncio.run(run("2026-07-28")) == [50, 10, 60], "two requests"
