"""Tasks: how many a second each store and dispatcher brings to their end, and what tasks hold that wait for a person.

Beside FastMCP's tasks on Redis, where they can be had. Each row is measured alone: servers of tasks look for work also
when there is none.
"""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import count, takewhile

import uvloop

from bench import report
from bench.fleet import NotServing, Server, Spec, start
from bench.machine import busy_seconds, cpu_seconds
from bench.measure import Bench, in_quiet
from bench.part import Part
from bench.report import Amount, Bar, Ratio, Rows
from bench.tasks.driving import await_all, begin, lines_to
from bench.tasks.peers import PYTHON, REDIS, fastmcp
from bench.tasks.places import NoPlace, Open, Place, in_a_file, in_postgres, in_redis
from bench.tasks.waiting import waited
from bench.wire import WrongReply

OURS = ("turnwise_sqlite", "turnwise_postgres", "turnwise_pgqueuer")
PEERS = ("fastmcp_redis", "fastmcp_redis_tuned")
SPECS = (
    Spec("turnwise_sqlite", "turnwise_tasks"),
    Spec("turnwise_postgres", "turnwise_tasks"),
    Spec("turnwise_pgqueuer", "turnwise_tasks", ("--queue",)),
    Spec("fastmcp_redis", "fastmcp_tasks", python=str(PYTHON)),
    Spec("fastmcp_redis_tuned", "fastmcp_tasks", ("--tuned",), python=str(PYTHON)),
)
PLACES: dict[str, Open] = {
    "turnwise_sqlite": in_a_file,
    "turnwise_postgres": in_postgres,
    "turnwise_pgqueuer": in_postgres,
    "fastmcp_redis": in_redis(REDIS),
    "fastmcp_redis_tuned": in_redis(REDIS),
}
WARM_UP = 0.5
LOOKED_UP = "Looked up {city}"
HELD = ("threads", "coroutines", "connections", "files")

AHEAD = tuple(
    Ratio(f"{own.removeprefix('turnwise_')}_vs_{peer}", "tasks.per_second", own, peer) for own in OURS for peer in PEERS
)
HOLDING = tuple(
    Amount(f"{own.removeprefix('turnwise_')}_{thing}_for_waiting", f"waiting.{thing}.added", own)
    for own in OURS
    for thing in HELD
)
BARS = (*(Bar(each.name, 1.0) for each in AHEAD), *(Bar(each.name, 0, at_most=True) for each in HOLDING))

COLUMNS = (
    ("tasks/s", "tasks.per_second", "{:.0f}"),
    ("begun/s", "tasks.begun_per_second", "{:.0f}"),
    ("us/task", "tasks.cpu_us", "{:.0f}"),
    ("in store", "tasks.store_us", "{:.0f}"),
    ("1000 waiting: threads", "waiting.threads.before", "{:.0f}"),
    ("added", "waiting.threads.added", "{:+.0f}"),
    ("coroutines", "waiting.coroutines.before", "{:.0f}"),
    ("added", "waiting.coroutines.added", "{:+.0f}"),
    ("connections", "waiting.connections.before", "{:.0f}"),
    ("added", "waiting.connections.added", "{:+.0f}"),
    ("MB", "waiting.rss_mb.before", "{:.1f}"),
    ("added", "waiting.rss_mb.added", "{:+.1f}"),
    ("asked/s", "waiting.asked_per_second", "{:.0f}"),
    ("answered/s", "waiting.answered_per_second", "{:.0f}"),
    ("finished/s", "waiting.finished_per_second", "{:.0f}"),
)


def table(rows: Rows) -> str:
    return report.table("tasks", rows, COLUMNS)


def repeat_once(bench: Bench, specs: Sequence[Spec]) -> Rows:
    """Each row alone, with a new store: tasks as fast as they go, then tasks that wait."""
    return {spec.name: _measured(bench, spec) for spec in specs}


def _measured(bench: Bench, spec: Spec) -> dict[str, float]:
    with ExitStack() as running:
        place, server = _opened(running, spec, bench.server_core)
        _surveyed(server, WARM_UP)
        found = in_quiet(bench, lambda: _throughput(bench, server, place))
        figures = {f"tasks.{name}": value for name, value in found.items()}
        if spec.name in OURS:
            figures |= {f"waiting.{name}": value for name, value in uvloop.run(waited(server.port)).items()}
        return figures


def _opened(running: ExitStack, spec: Spec, core: int) -> tuple[Place, Server]:
    place = running.enter_context(PLACES[spec.name](core))
    server = start(replace(spec, arguments=(place.address, *spec.arguments)), core)
    running.callback(server.stop)
    return place, server


def _throughput(bench: Bench, server: Server, place: Place) -> dict[str, float]:
    """Tasks for some seconds, once; `others_share` is what neither server, store nor generator used of the cores."""
    pids = (server.process.pid, os.getpid())
    busy, stored, used = busy_seconds(bench.cores), place.cpu_seconds(), [cpu_seconds(pid) for pid in pids]
    tasks, beginning, wall = _surveyed(server, bench.seconds)
    served, generated = (cpu_seconds(pid) - before for pid, before in zip(pids, used, strict=True))
    stored = place.cpu_seconds() - stored
    others = busy_seconds(bench.cores) - busy - served - generated - stored
    return {
        "per_second": tasks / wall,
        "begun_per_second": tasks / beginning,
        "cpu_us": served / tasks * 1e6,
        "store_us": stored / tasks * 1e6,
        "generator_share": generated / wall,
        "others_share": max(0.0, others / wall),
    }


def _surveyed(server: Server, seconds: float) -> tuple[int, float, float]:
    """Begin tasks for some seconds, then wait for all of them: how many, seconds to begin them, and all in all."""

    async def work() -> tuple[int, float, float]:
        async with lines_to(server.port) as lines:
            began = time.perf_counter()
            numbers = takewhile(lambda _: time.perf_counter() < began + seconds, count())
            tasks = await begin(lines, "survey", numbers)
            begun = time.perf_counter()
            await await_all(lines, tasks, "completed", LOOKED_UP)
            return len(tasks), begun - began, time.perf_counter() - began

    return uvloop.run(work())


@cache
def absences() -> dict[str, str]:
    """Which rows cannot be measured here, and why; found out by trying."""
    if (absence := fastmcp().absence) is not None:
        return dict.fromkeys(PEERS, f"not installed: {absence}")
    missing = {}
    for spec in SPECS:
        if spec.name in PEERS:
            try:
                with ExitStack() as running:
                    _surveyed(_opened(running, spec, max(os.sched_getaffinity(0)))[1], 0.0)
            except (NotServing, NoPlace, WrongReply, ExceptionGroup, OSError) as error:
                missing[spec.name] = f"does not run: {error}"
    return missing


def notes() -> list[str]:
    """What the figures of others depend on."""
    return fastmcp().described("FastMCP")


TASKS = Part(
    name="tasks",
    specs=SPECS,
    repeats=3,
    seconds=2.0,
    repeat_once=repeat_once,
    table=table,
    ratios=(*AHEAD, *HOLDING),
    bars=BARS,
    opposite="generator",
    absences=absences,
    notes=notes,
)
