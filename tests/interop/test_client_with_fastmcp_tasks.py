"""Turnwise's client with tasks of another maker: FastMCP's, which speak SEP-2663 too."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
from mcp_types import CallToolResult, ElicitResult, TextContent

from tests.interop.visiting import Serve
from turnwise import Asking, Client, MCPError, TaskCancelled, TaskInHand, TaskStatus

SECONDS = 30


@pytest.fixture(scope="module")
def peer(fastmcp_command: list[str], serve: Serve) -> Iterator[str]:
    with serve(fastmcp_command) as (url, _):
        yield url


class Reader:
    """Answers with the title it was given, or with an action, and remembers the questions."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def __call__(self, _: Asking, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        if self.answer == "decline":
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content={"title": self.answer})


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def in_time() -> None:
        with anyio.fail_after(SECONDS):
            await work()

    anyio.run(in_time)


def text(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


async def begun(client: Client, tool: str, arguments: dict[str, Any]) -> TaskInHand:
    task = await client.begin(tool, arguments)
    assert isinstance(task, TaskInHand)
    return task


def test_a_task_is_a_call_to_who_calls(peer: str) -> None:
    async def work() -> None:
        async with Client(peer) as client:
            assert text(await client.call_tool("survey", {"city": "Rome"})) == "Looked up Rome"

    run(work)


@pytest.mark.parametrize(("answer", "told"), [("Figures", "Figures (2026)"), ("decline", "Nothing: decline")])
def test_a_question_in_the_middle_is_answered_by_the_callback(peer: str, answer: str, told: str) -> None:
    async def work() -> None:
        reader = Reader(answer)
        async with Client(peer, elicitation_callback=reader) as client:
            assert text(await client.call_tool("report", {"year": 2026})) == told
        assert reader.asked == ["A title for 2026?"]

    run(work)


def test_a_task_is_brought_to_its_end_by_another_client(peer: str) -> None:
    async def work() -> None:
        seen: list[TaskStatus] = []
        async with Client(peer) as client:
            saved = (await begun(client, "report", {"year": 2025})).to_json()
        async with Client(peer, elicitation_callback=Reader("Resumed")) as client:
            result = await client.follow_task(TaskInHand.from_json(saved), on_status=seen.append)
        assert text(result) == "Resumed (2025)"
        assert {"input_required", "completed"} <= {task.status for task in seen}

    run(work)


def test_a_tool_that_fails_is_an_error_result(peer: str) -> None:
    async def work() -> None:
        async with Client(peer) as client:
            result = await client.call_tool("jam", {})
        assert result.is_error
        assert "jammed" in text(result)

    run(work)


def test_a_task_is_stopped(peer: str) -> None:
    async def work() -> None:
        async with Client(peer) as client:
            task = await begun(client, "drum", {})
            await client.cancel_task(task.id)
            with pytest.raises(TaskCancelled):
                await client.follow_task(task)

    run(work)


def test_a_client_that_takes_no_tasks_is_refused(peer: str) -> None:
    async def work() -> None:
        async with Client(peer, tasks=False) as client:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("survey", {"city": "Rome"})
        assert refused.value.code == -32021

    run(work)
