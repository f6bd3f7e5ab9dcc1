"""The guide to tasks."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.docs.loading import load
from turnwise import Client, TaskInHand
from turnwise.tasks.options import TaskOptions


async def titled(asking: Any, params: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": "Figures"}}


def quick(sample: Any) -> Any:
    """The sample's server, looked at more often than people would."""
    tasks = sample.server.tasks
    tasks.options = TaskOptions(poll=0.02)
    return sample.server


def test_a_report_is_begun_here_and_finished_there() -> None:
    report, client = load("tasks/report.py"), load("tasks/client.py")

    async def run() -> str:
        server = quick(report)
        await server.start()
        try:
            saved = await client.start(server)
            assert TaskInHand.from_json(saved).tool == "annual_report"
            return str(await client.finish(server, saved, titled))
        finally:
            await server.stop()

    assert asyncio.run(run()) == "Figures (2026)"
    assert report.written == ["Figures"]
    assert client.shown[-1] == "completed: writing"
    assert "input_required: gathering figures" in client.shown


def test_a_report_is_called_as_if_it_were_no_task() -> None:
    report, client = load("tasks/report.py"), load("tasks/client.py")
    assert asyncio.run(client.at_once(quick(report), titled)) == "Figures (2026)"


def test_a_task_is_looked_at_answered_and_stopped_by_hand() -> None:
    report, client = load("tasks/report.py"), load("tasks/client.py")
    assert asyncio.run(client.by_hand(quick(report))) == "title"


@pytest.mark.parametrize(("tool", "said"), [("build", "Built main."), ("deploy", "Deployed.")])
def test_some_ask_before_they_become_tasks(tool: str, said: str) -> None:
    sample = load("tasks/asking_first.py")

    async def answer(asking: Any, params: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"value": "main" if asking.key == "branch" else True}}

    async def run() -> str:
        async with Client(quick(sample), elicitation_callback=answer) as client:
            result = await client.call_tool(tool)
            return str(result.content[0].text)  # type: ignore[union-attr]

    assert asyncio.run(run()) == said


def test_a_server_with_a_store_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KEYS", "k" * 32)
    monkeypatch.setenv("TASKS", str(tmp_path / "tasks.db"))
    sample = load("tasks/keeping.py")

    async def run() -> str:
        async with Client(sample.server) as client:
            result = await client.call_tool("order", {"article": "lavender ink"})
            await sample.server.tasks.store.aclose()
            return str(result.content[0].text)  # type: ignore[union-attr]

    assert asyncio.run(run()) == "Ordered lavender ink."
    assert b"lavender" not in (tmp_path / "tasks.db").read_bytes()


def test_a_server_on_postgresql_leaves_the_playing_to_others(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KEYS", "k" * 32)
    monkeypatch.setenv("DATABASE_URL", postgres.address)
    monkeypatch.setenv("TASK_WORKERS", "0")
    serving = load("tasks/on_postgres.py").server
    monkeypatch.setenv("TASK_WORKERS", "2")
    playing = load("tasks/on_postgres.py").server

    async def sign(asking: Any, params: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"value": True}}

    async def run() -> str:
        await playing.start()
        try:
            async with Client(serving, elicitation_callback=sign) as client:
                result = await client.call_tool("order", {"article": "ink"})
                return str(result.content[0].text)  # type: ignore[union-attr]
        finally:
            await playing.stop()
            for server in (serving, playing):
                await server.tasks.store.aclose()

    assert asyncio.run(run()) == "Ordered ink."
