import asyncio
import random

import pytest

from turnwise import Context, MCPServer
from turnwise.testing import check_replay

server = MCPServer("raffle")


@server.tool()
async def draw(ctx: Context) -> str:
    """Draw a number."""
    number = random.randrange(10**9)
    answer = await ctx.elicit("Keep it?", bool, key="keep")
    return f"{number}, kept: {answer.action == 'accept'}"


@server.tool()
async def draw_well(prizes: int, ctx: Context) -> str:
    """Draw a number that stays."""
    number = int(ctx.random() * prizes)
    answer = await ctx.elicit("Keep it?", bool, key="keep")
    return f"{number}, kept: {answer.action == 'accept'}"


def test_draw_well_bears_replay() -> None:
    report = asyncio.run(check_replay(server, {"keep": True}, name="draw_well", arguments={"prizes": 1000}))
    report.raise_for_findings()
    assert report.rounds == 2


def test_draw_does_not() -> None:
    report = asyncio.run(check_replay(server, {"Keep it?": {"action": "decline"}}, name="draw"))
    assert [finding.round for finding in report.findings] == [1, 2]
    assert "use ctx.random()" in report.findings[0].advice
    with pytest.raises(AssertionError, match="round 1: random"):
        report.raise_for_findings()
