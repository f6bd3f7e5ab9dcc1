import asyncio

import pytest

from turnwise import Context, MCPError, MCPServer
from turnwise.testing import check_replay, connect

server = MCPServer("reports")


async def gather_figures(year: int) -> list[int]:
    return [year, year * 2]


@server.tool(task="always")
async def report(year: int, ctx: Context) -> str:
    """Write a report, which takes a while."""
    figures = await ctx.step(gather_figures, year)
    title = await ctx.elicit(f"{len(figures)} figures are there. What is the title?", str, key="title")
    return f"{title.data} ({year})" if title.action == "accept" else "Nothing was written."


async def check() -> None:
    async with connect(server, {"title": "Rain"}) as client:
        result = await client.call_tool("report", {"year": 2026})
        assert result.structured_content == {"result": "Rain (2026)"}
        client.flow.check(asked=[["title"]])


async def check_step_by_step() -> None:
    async with connect(server, {}) as client:
        begun = await client.request("tools/call", {"name": "report", "arguments": {"year": 2026}})
        task = {"taskId": begun["taskId"]}
        seen = await client.request("tasks/get", task)
        while seen["status"] == "working":
            await asyncio.sleep(0.01)
            seen = await client.request("tasks/get", task)
        assert list(seen["inputRequests"]) == ["title"]
        await client.request("tasks/cancel", task)
        assert (await client.request("tasks/get", task))["status"] == "cancelled"


async def check_others() -> None:
    async with connect(server, {}, tasks=False) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("report", {"year": 2026})
        assert refused.value.code == -32021


def test_a_report_is_written() -> None:
    asyncio.run(check())


def test_a_report_can_be_stopped() -> None:
    asyncio.run(check_step_by_step())


def test_who_takes_no_tasks_is_refused() -> None:
    asyncio.run(check_others())


def test_a_report_bears_replay() -> None:
    asyncio.run(check_replay(server, {"title": "Rain"}, name="report", arguments={"year": 2026})).raise_for_findings()
