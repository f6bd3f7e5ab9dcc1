"""Tasks that wait for a person: what a server holds for them, and what happens when all are answered at once."""

import asyncio
import time
from typing import Any

from bench.tasks.driving import Line, answer, await_all, begin, lines_to

TASKS, WARM_UP = 1_000, 300
ASKED, GREETED = "Who is visiting {city}?", "Hello {visitor} from {city}"
LOOKS, LOOK_SECONDS = 10, 0.1


async def waited(port: int) -> dict[str, float]:
    """Let tasks get to their question, count what the server holds, answer them all, and see them to their end."""
    async with lines_to(port) as lines:
        await _whole(lines, WARM_UP)
    before = await _held(port)
    async with lines_to(port) as lines:
        began = time.perf_counter()
        tasks = await begin(lines, "greet", iter(range(TASKS)))
        await await_all(lines, tasks, "input_required", ASKED)
        asking = time.perf_counter() - began
    during = await _held(port)
    async with lines_to(port) as lines:
        began = time.perf_counter()
        await answer(lines, tasks)
        answering = time.perf_counter() - began
        await await_all(lines, tasks, "completed", GREETED)
        ending = time.perf_counter() - began
    return {
        **{f"{name}.before": value for name, value in before.items()},
        **{f"{name}.added": during[name] - before[name] for name in before},
        "asked_per_second": TASKS / asking,
        "answered_per_second": TASKS / answering,
        "finished_per_second": TASKS / ending,
    }


async def _whole(lines: list[Line], count: int) -> None:
    """Tasks from beginning to end, so that what a server opens for its work is open."""
    tasks = await begin(lines, "greet", iter(range(count)))
    await await_all(lines, tasks, "input_required", ASKED)
    await answer(lines, tasks)
    await await_all(lines, tasks, "completed", GREETED)


async def _held(port: int) -> dict[str, float]:
    """What is there at every look: the least of several."""
    looks: list[dict[str, Any]] = []
    async with lines_to(port, 1) as [line]:
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_SECONDS)
            looks.append((await line.call("census", {}))["structuredContent"])
    return {name: min(look[name] for look in looks) for name in looks[0]}
