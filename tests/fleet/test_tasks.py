"""Tasks over workers that are killed, stopped and sent away, on every store and by every dispatcher."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.crews import (
    OWNER,
    STRANGER,
    Counter,
    Errands,
    Place,
    Record,
    Reply,
    each,
    errands,
    eventually,
    replacing,
)
from tests.fleet.forks import Forks, forks
from tests.unit.test_flow_stores import Postgres, temporary_home

MANY, SOME = 200, 40
EVERY = 20 if os.environ.get("TURNWISE_CRASHES") else MANY
"""At every so-manieth task a worker dies, in each of the ways."""
LEASE, LONG_LEASE, GRACE = 2.0, 60.0, 0.5
PROMPTLY, PATIENCE = 4.0, 90.0
NEVER = "0" * 40
"""An id that no task has."""


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with temporary_home() as home:
        server = Postgres(home)
        yield server
        server.stop()


@pytest.fixture(scope="module")
def origin() -> Iterator[Forks]:
    with forks() as begun:
        yield begun


def place_of(kind: str, path: Path, request: pytest.FixtureRequest) -> Place:
    database = None if kind == "file" else request.getfixturevalue("database")
    return Place(kind, path, request.getfixturevalue("origin"), database)


@pytest.fixture(params=["file", "postgres", "pgqueuer"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, tmp_path, request)


@pytest.fixture(params=["postgres", "pgqueuer"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(request.param, tmp_path, request)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), PATIENCE)

    asyncio.run(bounded())


# How people answer: each gives the street and the town that the errand must have come to know


async def at_once(counter: Counter, task_id: str) -> set[tuple[str, str]]:
    await counter.tell(task_id, street="Elm Street", town="York")
    return {("Elm Street", "York")}


async def in_parts(counter: Counter, task_id: str) -> set[tuple[str, str]]:
    await counter.tell(task_id, town="York")
    assert [*(await counter.get(task_id)).result["inputRequests"]] == ["street"]
    await counter.tell(task_id, street="Elm Street", town="Rome", planet="Mars")
    return {("Elm Street", "York")}


async def twice(counter: Counter, task_id: str) -> set[tuple[str, str]]:
    for street, town in (("Elm Street", "York"), ("Via Appia", "Rome")):
        await counter.tell(task_id, street=street, town=town)
    return {("Elm Street", "York")}


async def two_at_a_time(counter: Counter, task_id: str) -> set[tuple[str, str]]:
    both = {("Elm Street", "York"), ("Via Appia", "Rome")}
    await asyncio.gather(*(counter.tell(task_id, street=street, town=town) for street, town in both))
    return both


async def after_a_stranger(counter: Counter, task_id: str) -> set[tuple[str, str]]:
    await counter.answer(task_id, who=STRANGER, street="Via Appia", town="Rome")
    return await at_once(counter, task_id)


MANNERS = (at_once, in_parts, twice, two_at_a_time, after_a_stranger)


async def tried_by(who: str, counter: Counter, task_id: str) -> list[Reply]:
    """All that one can try with an id."""
    return [
        await counter.get(task_id, who),
        await counter.answer(task_id, who, street="Via Appia", town="Rome"),
        await counter.cancel(task_id, who),
    ]


async def check_strangers_learn_nothing(counter: Counter, tasks: list[str]) -> None:
    """To them an id is as good as another that never was."""
    nothing = await tried_by(STRANGER, counter, NEVER)
    assert [reply.message["error"]["code"] for reply in nothing] == [-32602] * 3
    assert nothing == await tried_by(OWNER, counter, NEVER)
    assert await each(lambda task_id: tried_by(STRANGER, counter, task_id), tasks) == [nothing] * len(tasks)


# What must be true in the end


def check_keys(record: Record, numbers: range, steps: tuple[str, ...] = ("pack", "send")) -> None:
    """Every step happened, always with the same key, which no other has."""
    assert record.runs.keys() == {(step, number) for step in steps for number in numbers}
    keys = [{run.key for run in runs} for runs in record.runs.values()]
    assert all(len(own) == 1 for own in keys)
    assert len(set().union(*keys)) == len(keys)
    assert all(len(kept) <= 1 for kept in record.kept.values())


def check_steps(record: Record, numbers: range, killed: set[int], stopped: set[int]) -> int:
    """A step ran again only where its worker was killed or stopped, and never once it was known to be on the ledger.
    How many did.
    """
    check_keys(record, numbers)
    for step, runs in record.runs.items():
        assert len([run for run in runs if run.pid not in killed | stopped]) <= 1, (step, runs)
        for _, place in record.kept.get(step, []):
            assert {run.pid for run in runs if run.place > place} <= stopped, (step, runs)
    return sum(len(runs) - 1 for runs in record.runs.values())


def check_result(
    record: Record, number: int, asked: dict[str, Any], done: dict[str, Any], answers: set[tuple[str, str]]
) -> None:
    """The result has what the question had, and what that worker got whose step went on the ledger."""
    packed, street, town, sent = json.loads(done["result"]["content"][0]["text"])
    assert (street, town) in answers
    assert packed in asked["inputRequests"]["street"]["params"]["message"]
    for step, receipt in (("pack", packed), ("send", sent)):
        [run] = [run for run in record.runs[step, number] if run.receipt == receipt]
        assert {pid for pid, _ in record.kept.get((step, number), [])} <= {run.pid}


# Workers that die


def test_every_task_is_done_with_each_step_once_however_workers_die(place: Place) -> None:
    async def work() -> None:
        async with errands(place, workers=3, lease=LEASE) as here:
            async with replacing(here.crew):
                await survive(here)
            assert here.crew.dismiss() == [0, 0, 0]

    run(work)


async def survive(here: Errands) -> None:
    counter, crew, numbers = here.counter, here.crew, range(MANY)
    here.destine("kill with a claim for errand")
    here.destine(*(f"kill in pack {number}" for number in numbers[20::EVERY]))
    here.destine(*(f"kill having kept pack {number}" for number in numbers[70::EVERY]))
    tasks = await each(counter.begin, numbers)
    await check_strangers_learn_nothing(counter, tasks[::20])
    asked = await each(lambda task_id: counter.until(task_id, "input_required"), tasks)
    missed = here.spare()

    crew.signal(signal.SIGKILL)  # while all tasks wait
    await check_strangers_learn_nothing(counter, tasks[::20])
    here.destine("stop in send 60")
    here.destine(*(f"kill in send {number}" for number in numbers[30::EVERY]))
    here.destine(*(f"kill having kept send {number}" for number in numbers[90::EVERY]))
    answers = await each(lambda number: MANNERS[number % len(MANNERS)](counter, tasks[number]), numbers)
    done = await each(lambda task_id: counter.until(task_id, "completed"), tasks)
    missed += here.spare()

    # All is done while one is stopped; he goes on as if nothing had happened, and nobody heeds him.
    [stopped] = here.record.who_met("stop")
    # Others may have been killed at the same errand before him, by what befell another errand of theirs.
    assert receipts(here, stopped, "send", 60) == [None]
    os.kill(stopped, signal.SIGCONT)
    await eventually(lambda: receipts(here, stopped, "send", 60) != [None])
    await each(lambda task_id: counter.tell(task_id, street="Too Late", town="Rome"), tasks)
    assert [reply.result for reply in await each(counter.get, tasks)] == done
    await check_strangers_learn_nothing(counter, tasks[::20])

    record, fates = here.record, sum(len(numbers[first::EVERY]) for first in (20, 70, 30, 90))
    # Who is killed as a step of his goes on the ledger has not lived to be killed for it.
    assert all("having kept" in fate for fate in missed)
    assert len(record.who_met("kill")) == fates + 1 - len(missed) > fates / 2
    assert check_steps(record, numbers, crew.killed, {stopped}) > 0
    for number in numbers:
        check_result(record, number, asked[number], done[number], answers[number])


def receipts(here: Errands, pid: int, step: str, number: int) -> list[str | None]:
    """What came of a step, each time that this worker began it."""
    return [run.receipt for run in here.record.runs[step, number] if run.pid == pid]


# A database that goes away


def test_work_goes_on_by_itself_when_the_database_was_restarted(remote: Place) -> None:
    async def work() -> None:
        async with errands(remote, workers=2, lease=LEASE) as here:
            crew = [worker.pid for worker in here.crew.workers]
            counter, numbers = here.counter, range(SOME)
            begun = asyncio.gather(*(counter.begin(number) for number in numbers))
            await here.noted("kept", "pack")
            restart(remote, "fast")
            tasks = await begun
            asked = await each(lambda task_id: counter.until(task_id, "input_required"), tasks)
            answers = await each(lambda task_id: at_once(counter, task_id), tasks)
            await here.noted("kept", "send")
            restart(remote, "immediate", pause=1.5)
            done = await each(lambda task_id: counter.until(task_id, "completed"), tasks)

            assert ([worker.pid for worker in here.crew.workers], here.crew.dismiss()) == (crew, [0, 0])
            record = here.record
            check_keys(record, numbers)
            for number in numbers:
                check_result(record, number, asked[number], done[number], answers[number])

    run(work)


def restart(place: Place, mode: str, pause: float = 0.0) -> None:
    """Have the database away for a moment; "immediate" is how it would crash."""
    place.postgres.stop(mode)
    time.sleep(pause)
    place.postgres.start()


# Workers that leave, and tasks that are to stop


def test_a_worker_that_is_sent_away_finishes_its_legs_or_gives_them_back_at_once(place: Place) -> None:
    async def work() -> None:
        async with errands(place, workers=1, lease=LONG_LEASE, grace=GRACE, servers=1) as here:
            short, long = here.hold("pack 1"), here.hold("pack 2")
            tasks = [await here.counter.begin(number) for number in (1, 2)]
            [leaving] = here.crew.workers
            assert await here.noted("began", "pack", 1) == await here.noted("began", "pack", 2) == leaving.pid
            here.crew.hire(1)
            await here.crew.ready()
            asked = time.monotonic()
            leaving.signal(signal.SIGTERM)
            short.unlink()
            assert await asyncio.to_thread(leaving.wait) == 0
            await eventually(lambda: len(here.record.runs["pack", 2]) == 2)
            assert time.monotonic() - asked < GRACE + PROMPTLY
            long.unlink()
            for task_id in tasks:
                await here.counter.until(task_id, "input_required")
            staying = here.crew.workers[1]
            runs = {number: [run.pid for run in here.record.runs["pack", number]] for number in (1, 2)}
            assert runs == {1: [leaving.pid], 2: [leaving.pid, staying.pid]}
            check_keys(here.record, range(1, 3), steps=("pack",))

            await check_cancelled(here, staying.pid)

    run(work)


async def check_cancelled(here: Errands, worker: int) -> None:
    """To cancel reaches a leg that another process plays, and one that waits; neither goes on."""
    here.hold("pack 3")
    playing, waiting = await here.counter.begin(3), await here.counter.begin(4)
    assert await here.noted("began", "pack", 3) == worker
    await here.counter.until(waiting, "input_required")
    asked = time.monotonic()
    for task_id in (playing, waiting):
        await here.counter.cancel(task_id)
        await here.counter.until(task_id, "cancelled")
        await here.counter.tell(task_id, street="Elm Street", town="York")
    assert time.monotonic() - asked < PROMPTLY
    assert here.crew.workers[1].poll() is None
    assert [run.receipt for run in here.record.runs["pack", 3]] == [None]
    assert ("send", 4) not in here.record.runs
