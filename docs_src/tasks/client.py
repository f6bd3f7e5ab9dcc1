import asyncio
from typing import Any

from turnwise import Client, Done, TaskInHand, TaskStatus

shown: list[str] = []


def show(task: TaskStatus) -> None:
    shown.append(f"{task.status}: {task.message}")


async def start(server: Any) -> str:
    """Begin a call, and leave with its task in hand."""
    async with Client(server) as client:
        task = await client.begin("annual_report", {"year": 2026})
        assert isinstance(task, TaskInHand)
        return task.to_json()


async def finish(server: Any, saved: str, answer: Any) -> str:
    """In another process, on another day: bring it to its end."""
    async with Client(server, elicitation_callback=answer) as client:
        result = await client.follow_task(TaskInHand.from_json(saved), on_status=show)
        return str(result.content[0].text)  # type: ignore[union-attr]


async def at_once(server: Any, answer: Any) -> str:
    """Or as if it were no task at all."""
    async with Client(server, elicitation_callback=answer) as client:
        result = await client.call_tool("annual_report", {"year": 2026})
        return str(result.content[0].text)  # type: ignore[union-attr]


async def by_hand(server: Any) -> str:
    """Look, answer, stop."""
    async with Client(server) as client:
        task = await client.begin("annual_report", {"year": 2025})
        assert not isinstance(task, Done)
        seen = await client.get_task(task.id)
        while not seen.requests:
            await asyncio.sleep(seen.poll)
            seen = await client.get_task(task.id)
        await client.update_task(task.id, {"title": {"action": "accept", "content": {"value": "Figures"}}})
        await client.cancel_task(task.id)
        return ", ".join(seen.requests)
