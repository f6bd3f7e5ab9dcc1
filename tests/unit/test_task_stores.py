"""What every store of tasks has to do, over each of them: SQLite in memory and in a file, PostgreSQL.

A store is told what time it is, so nothing here waits for a clock. Those who race are processes too: this file is also
the program that they run.
"""

import asyncio
import itertools
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest

from tests.unit.keeping import using
from turnwise import CallerError
from turnwise._sqlite import Database
from turnwise.tasks import postgres as postgres_module
from turnwise.tasks import sqlite as sqlite_module
from turnwise.tasks.model import CANCELLED_MESSAGE, Claim, Limits, LostLease, NewTask, Status, Task, TaskStore, Telling
from turnwise.tasks.postgres import PostgresTaskStore
from turnwise.tasks.sqlite import SQLiteTaskStore

T = TypeVar("T")

NOW, LEASE, PATIENCE = 1000.0, 30.0, 60.0
LATER = NOW + LEASE + 1
ANY = Limits(("tool", "other"), {})
NUMBERS = itertools.count(1)
KINDS = ["memory", "file", "postgres"]
SHARED = ["file", "postgres"]


# Where stores live


class Place:
    """Where the stores of one test keep their things; no two tests share one."""

    def __init__(self, kind: str, address: str, prefix: str, server: Any = None) -> None:
        self.kind, self.address, self.prefix, self.server = kind, address, prefix, server
        self._memory: TaskStore | None = SQLiteTaskStore() if kind == "memory" else None

    def open(self) -> TaskStore:
        """Another instance's store, on the same things."""
        return self._memory or open_store(self.kind, self.address, self.prefix)


def open_store(kind: str, address: str, prefix: str) -> TaskStore:
    return SQLiteTaskStore(address) if kind == "file" else PostgresTaskStore(address, prefix=prefix, pool_size=4)


def make_place(kind: str, request: pytest.FixtureRequest) -> Place:
    if kind == "postgres":
        server = request.getfixturevalue("postgres")
        return Place(kind, server.address, f"s{next(NUMBERS)}_", server)
    return Place(kind, str(request.getfixturevalue("tmp_path") / "tasks.db"), "")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest) -> Place:
    """A place that processes share."""
    return make_place(request.param, request)


# Words for the tests


def new(task_id: str = "task", **facts: Any) -> NewTask:
    given = {"principal": "ann", "tool": "tool", "call": b"call", "state": b"state", "now": NOW, **facts}
    return NewTask(task_id, **given)


async def claimed(store: TaskStore, now: float = NOW, task_id: str | None = None, owner: str = "worker") -> Claim:
    claim = await store.claim(owner, LEASE, now, ANY, task_id)
    assert claim is not None
    return claim


async def known(store: TaskStore, task_id: str = "task") -> Task:
    """A task; PostgreSQL's clock has gone on a little since it was claimed, so the seconds of a lease are rounded."""
    task = await store.get(task_id, None)
    assert task is not None
    return replace(task, leased_until=round(task.leased_until, -1))


async def parked(store: TaskStore, *waits: str, task_id: str = "task") -> None:
    """A task that waits for answers."""
    await store.create(new(task_id))
    await store.park(await claimed(store, NOW, task_id), b"asked", waits, b"questions", NOW + 1)


# To create and to see


def test_a_task_is_seen_as_it_was_created(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new(ttl=60.0))
        assert await store.get("task", "ann") == Task(
            "task", "ann", "tool", "working", None, NOW, NOW, 60.0, None, (), None, 0.0, NOW, 0
        )

    using(place, work)


def test_who_has_no_such_task_learns_nothing_and_changes_nothing(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await parked(store, "name")
        before = await known(store)
        for task_id, principal in (("task", "bob"), ("task", ""), ("task", "ann "), ("nothing", "ann"), ("", "ann")):
            assert await store.get(task_id, principal) is None
            assert await store.respond(task_id, principal, {"name": b"Bob"}, NOW + 2) is False
            assert await store.cancel(task_id, principal, NOW + 2) is None
        assert await known(store) == before
        assert await store.claim("worker", LEASE, NOW + 3, ANY) is None

    using(place, work)


def test_an_operator_sees_and_stops_everybodys(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        assert (await known(store)).principal == "ann"
        task = await store.cancel("task", None, NOW + 1)
        assert task is not None
        assert task.status == "cancelled"
        assert await store.get("nothing", None) is None
        assert await store.cancel("nothing", None, NOW) is None

    using(place, work)


def test_an_id_is_taken_once(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        with pytest.raises(CallerError):
            await store.create(new(principal="bob", call=b"another"))
        assert (await known(store)).principal == "ann"
        assert (await claimed(store)).call == b"call"

    using(place, work)


HOSTILE = [
    "",
    " ",
    "task",
    "TASK",
    "task ",
    "a\0b",
    "a",
    "'; DROP TABLE tasks; --",
    "%s $1 {0} {1} ? :name",
    "clé",
    "cle\u0301",
    "🗝️",
    "\U0010ffff",
    "k" * 1000,
]


def test_any_text_is_an_id_and_a_key_and_no_two_are_taken_for_one(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        for name in HOSTILE:
            assert await store.get(name, "ann") is None
            assert await store.cancel(name, "ann", NOW) is None
            await store.create(new(name, state=name.encode()))
        for name in HOSTILE:
            claim = await claimed(store, task_id=name)
            assert (claim.id, claim.state) == (name, name.encode())
            await store.append(claim, [(key, key.encode()) for key in HOSTILE], NOW + LEASE)
        for name in HOSTILE:
            claim = await claimed(store, LATER, name)
            assert claim.entries == [(key, key.encode()) for key in HOSTILE]
            await store.park(claim, b"", HOSTILE, b"", LATER)
            assert (await known(store, name)).waits == tuple(HOSTILE)
            assert await store.respond(name, "ann", {key: key.encode() for key in HOSTILE}, LATER + 1)
            assert (await claimed(store, LATER + 1, name)).answers == {key: key.encode() for key in HOSTILE}
        assert ["", *(task.id for task in await store.list())] == sorted(HOSTILE, key=str.encode)
        assert await store.list(after="\U0010ffff\U0010ffff") == []

    using(place, work)


def test_what_is_kept_may_be_large(place: Place) -> None:
    blobs = [os.urandom(2 * 2**20) for _ in range(5)]

    async def work(store: TaskStore) -> None:
        await store.create(new(call=blobs[0], state=blobs[1]))
        claim = await claimed(store)
        await store.append(claim, [("step", blobs[2])], NOW + LEASE)
        claim = await claimed(store, LATER)
        assert (claim.call, claim.state, claim.entries) == (blobs[0], blobs[1], [("step", blobs[2])])
        await store.park(claim, blobs[1], ["name"], blobs[3], LATER)
        assert (await known(store)).payload == blobs[3]
        await store.respond("task", "ann", {"name": blobs[4]}, LATER)
        assert (await claimed(store, LATER)).answers == {"name": blobs[4]}

    using(place, work)


# To claim


def test_a_claim_has_all_that_a_leg_takes(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        assert replace(claim, entries=list(claim.entries)) == Claim(
            "task", 1, "tool", "ann", b"call", b"state", [], {}, NOW
        )
        task = await known(store)
        assert (task.status, task.owner, task.leased_until, task.epoch) == ("working", "worker", NOW + LEASE, 1)

    using(place, work)


def test_a_leg_is_claimed_by_one_until_its_lease_is_over(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        await claimed(store)
        for task_id in (None, "task"):
            assert await store.claim("another", LEASE, NOW + LEASE - 1, ANY, task_id) is None
        again = await claimed(store, LATER, owner="another")
        assert (again.epoch, again.woken) == (2, NOW)
        assert (await known(store)).owner == "another"

    using(place, work)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_leases_are_held_by_the_databases_clock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers on several machines, whose clocks differ by more than a lease is long."""

    async def work(store: TaskStore) -> None:
        began = time.time()
        clocks = {"right": began, "fast": began + 100, "slow": began - 100}

        def at(clock: str) -> float:
            monkeypatch.setattr("turnwise.tasks.postgres.time.time", lambda: clocks[clock])
            return clocks[clock]

        assert isinstance(store, PostgresTaskStore)
        await store.create(new(now=began - 200))
        claim = await claimed(store, at("slow"))
        for how in (lambda until: store.append(claim, [], until), lambda until: store.renew(claim, until), None):
            for clock, now in clocks.items():
                assert await store.claim("another", LEASE, at(clock), ANY) is None, clock
                assert await store.overdue(now, ["tool"], 9) == [], clock
                for seen in (await known(store), *await store.list()):
                    assert 0 < seen.leased_until - now < LEASE + 10, clock
            if how is not None:
                await how(at("fast") + LEASE)
        task = await store.cancel("task", "ann", at("fast"))
        assert task is not None
        assert task.status == "working", "who plays it is told to stop"
        await store.renew(claim, at("fast") - 1)  # It is over, by the clock of who said so.
        at("slow")
        assert await store.overdue(clocks["slow"], ["tool"], 9) != []

    using(place, work)


def test_what_a_dead_worker_left_is_there_for_the_next(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await parked(store, "name")
        await store.respond("task", "ann", {"name": b"Ann"}, NOW + 2)
        first = await claimed(store, NOW + 3)
        await store.append(first, [("one", b"1"), ("two", b"2")], NOW + 3 + LEASE)
        await store.append(first, [("one", b"1!"), ("three", b"3")], NOW + 3 + LEASE)
        await store.append(first, [("four", b"4")], NOW + 3 + LEASE)
        for number in (3, 4):
            claim = await claimed(store, NOW + number * 2 * LEASE)
            assert claim.epoch == number
            assert claim.entries == [("one", b"1!"), ("two", b"2"), ("three", b"3"), ("four", b"4")]
            assert claim.answers == {"name": b"Ann"}
            assert (claim.state, claim.woken) == (b"asked", NOW + 2)

    using(place, work)


def test_legs_are_claimed_in_the_order_in_which_they_became_due(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        for name, now in (("c", NOW + 2), ("a", NOW + 1), ("b", NOW), ("d", NOW + 3)):
            await store.create(new(name, now=now))
        found = [await store.claim("worker", LEASE, NOW + 2, ANY) for _ in range(4)]
        assert [claim and claim.id for claim in found] == ["b", "a", "c", None]

    using(place, work)


def test_a_worker_claims_only_tools_that_it_has_and_tasks_that_it_wants(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new("a"))
        await store.create(new("b", tool="other"))
        assert await store.claim("worker", LEASE, NOW, Limits((), {})) is None
        assert await store.claim("worker", LEASE, NOW, Limits(("third",), {})) is None
        assert await store.claim("worker", LEASE, NOW, Limits(("other",), {}), "a") is None
        assert await store.claim("worker", LEASE, NOW, ANY, "nothing") is None
        found = await store.claim("worker", LEASE, NOW, Limits(("other",), {}))
        assert found is not None
        assert found.id == "b"
        assert (await claimed(store, task_id="a")).id == "a"

    using(place, work)


def test_many_who_claim_at_once_get_each_leg_once(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await asyncio.gather(*(store.create(new(f"{number:03}")) for number in range(40)))
        stores = [place.open() for _ in range(3)]
        found = await asyncio.gather(*(each.claim("worker", LEASE, NOW, ANY) for each in stores * 20))
        assert sorted(claim.id for claim in found if claim) == [f"{number:03}" for number in range(40)]
        if place.kind != "memory":
            await asyncio.gather(*(each.aclose() for each in stores))

    using(place, work)


def test_a_limit_holds_however_many_claim_at_once(place: Place) -> None:
    limits = Limits(("tool", "other"), {"tool": 3})

    async def work(store: TaskStore) -> None:
        for number in range(10):
            await store.create(new(f"t{number}"))
            await store.create(new(f"o{number}", tool="other", now=NOW + 1))
        stores = [place.open() for _ in range(3)]
        found = await asyncio.gather(*(each.claim("worker", LEASE, NOW + 1, limits) for each in stores * 5))
        tools = [claim.tool for claim in found if claim is not None]
        assert (tools.count("tool"), tools.count("other")) == (3, 10)
        assert await store.claim("worker", LEASE, NOW + 1, limits, "t9") is None
        await store.finish(
            next(claim for claim in found if claim and claim.tool == "tool"), "completed", b"", None, NOW
        )
        assert await store.claim("worker", LEASE, NOW + 1, limits, "t9") is not None
        assert await store.claim("worker", LEASE, NOW + 1, limits) is None
        # Workers that fell silent do not count.
        found = await asyncio.gather(*(each.claim("worker", LEASE, NOW + 99, limits) for each in stores * 7))
        assert [claim.tool for claim in found if claim is not None].count("tool") == 3
        if place.kind != "memory":
            await asyncio.gather(*(each.aclose() for each in stores))

    using(place, work)


# Legs


def test_a_lease_is_extended_by_what_a_worker_says(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        assert await store.renew(claim, NOW + 50) is False
        assert await store.claim("another", LEASE, NOW + 49, ANY) is None
        assert await store.append(claim, [("step", b"1")], NOW + 90) is False
        assert await store.append(claim, [], NOW + 90) is False
        assert await store.claim("another", LEASE, NOW + 89, ANY) is None
        await store.note(claim, "halfway", NOW + 5)
        task = await known(store)
        assert (task.message, task.updated, task.leased_until) == ("halfway", NOW + 5, NOW + 90)
        assert (await claimed(store, NOW + 95)).entries == [("step", b"1")]

    using(place, work)


def test_a_leg_that_asks_is_not_due_until_it_is_answered(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        await store.append(claim, [("step", b"1")], NOW + LEASE)
        await store.park(claim, b"asked", ["name", "size"], b"questions", NOW + 1)
        task = await known(store)
        assert (task.status, task.waits, task.payload, task.updated) == (
            "input_required",
            ("name", "size"),
            b"questions",
            NOW + 1,
        )
        assert (task.owner, task.leased_until) == (None, 0.0)
        assert await store.claim("worker", LEASE, NOW + 999, ANY) is None
        assert await store.respond("task", "ann", {"size": b"7", "colour": b"red"}, NOW + 2)
        task = await known(store)
        assert (task.status, task.waits, task.updated) == ("input_required", ("name",), NOW + 2)
        assert await store.claim("worker", LEASE, NOW + 999, ANY) is None
        assert await store.respond("task", "ann", {"name": b"Ann"}, NOW + 3)
        task = await known(store)
        assert (task.status, task.waits) == ("working", ())
        assert await store.claim("worker", LEASE, NOW + 2, ANY) is None
        claim = await claimed(store, NOW + 3)
        assert (claim.epoch, claim.state, list(claim.entries), claim.woken) == (2, b"asked", [], NOW + 3)
        assert claim.answers == {"name": b"Ann", "size": b"7"}
        await store.park(claim, b"asked again", ["name~2"], b"more", NOW + 4)
        await store.respond("task", "ann", {"name~2": b"Anna"}, NOW + 5)
        assert (await claimed(store, NOW + 5)).answers == {"name~2": b"Anna"}

    using(place, work)


def test_the_first_answer_counts(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await parked(store, "name", "size")
        assert await store.respond("task", "ann", {"name": b"first"}, NOW + 2)
        assert await store.respond("task", "ann", {"name": b"second"}, NOW + 3)
        assert await store.respond("task", "ann", {}, NOW + 3)
        assert (await known(store)).updated == NOW + 2
        outcomes = await asyncio.gather(
            *(store.respond("task", "ann", {"size": str(number).encode()}, NOW + 4) for number in range(10))
        )
        assert outcomes == [True] * 10
        claim = await claimed(store, NOW + 4)
        assert claim.answers["name"] == b"first"
        before = await known(store)
        assert await store.respond("task", "ann", {"name": b"late", "size": b"late"}, NOW + 5)
        assert await known(store) == before
        assert (await claimed(store, NOW + 99)).answers == claim.answers

    using(place, work)


def test_a_leg_that_sleeps_is_due_when_it_wakes(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        assert await store.due(NOW) is None
        await store.create(new("a"))
        await store.create(new("b"))
        assert await store.due(NOW) is None
        for number, name in enumerate(("a", "b")):
            claim = await claimed(store, task_id=name)
            await store.append(claim, [("step", b"1")], NOW + LEASE)
            await store.postpone(claim, b"slept", NOW + 600 - number, NOW + 1)
        task = await known(store, "a")
        assert (task.status, task.wake_at, task.updated, task.owner) == ("working", NOW + 600, NOW + 1, None)
        assert await store.due(NOW) == NOW + 599
        assert await store.due(NOW + 599) == NOW + 600
        assert await store.due(NOW + 600) is None
        assert await store.claim("worker", LEASE, NOW + 598, ANY) is None
        claim = await claimed(store, NOW + 700)
        assert (claim.id, claim.state, list(claim.entries), claim.woken) == ("b", b"slept", [], NOW + 599)

    using(place, work)


def test_a_leg_that_is_given_back_is_due_as_it_was(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await parked(store, "name")
        await store.respond("task", "ann", {"name": b"Ann"}, NOW + 2)
        claim = await claimed(store, NOW + 2)
        await store.append(claim, [("step", b"1")], NOW + LEASE)
        await store.release(claim, NOW + 3)
        assert (await known(store)).owner is None
        again = await claimed(store, NOW + 3)
        assert (again.epoch, again.entries, again.answers, again.woken) == (
            claim.epoch + 1,
            [("step", b"1")],
            {"name": b"Ann"},
            NOW + 2,
        )

    using(place, work)


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_what_is_over_stays_as_it_is(place: Place, status: Status) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        await store.note(claim, "halfway", NOW + 1)
        await store.append(claim, [("step", b"1")], NOW + LEASE)
        await store.finish(claim, status, b"result", "why" if status == "failed" else None, NOW + 2)
        task = await known(store)
        assert (task.status, task.payload, task.updated, task.owner) == (status, b"result", NOW + 2, None)
        assert task.message == ("why" if status == "failed" else "halfway")
        assert await store.cancel("task", "ann", NOW + 3) == task
        assert await store.respond("task", "ann", {"name": b"late"}, NOW + 3)
        assert await store.claim("worker", LEASE, NOW + 999, ANY) is None
        assert await known(store) == task

    using(place, work)


# To stop


async def stopped(store: TaskStore, now: float = NOW + 2) -> None:
    task = await store.cancel("task", "ann", now)
    assert task is not None
    assert (task.status, task.message, task.updated, task.waits, task.owner, task.payload) == (
        "cancelled",
        CANCELLED_MESSAGE,
        now,
        (),
        None,
        None,
    )
    assert await known(store) == task
    assert await store.claim("worker", LEASE, NOW + 9999, ANY) is None


def test_a_task_that_nobody_plays_is_stopped_at_once(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        await stopped(store)

    using(place, work)


def test_a_task_that_waits_for_an_answer_is_stopped_at_once(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await parked(store, "name", "size")
        await store.respond("task", "ann", {"name": b"Ann"}, NOW + 2)
        await stopped(store)
        await store.respond("task", "ann", {"size": b"7"}, NOW + 3)
        assert (await known(store)).status == "cancelled"

    using(place, work)


def test_a_task_that_sleeps_is_stopped_at_once(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        await store.postpone(await claimed(store), b"slept", NOW + 600, NOW + 1)
        await stopped(store)

    using(place, work)


def test_a_task_whose_worker_fell_silent_is_stopped_at_once(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        await stopped(store, LATER)
        with pytest.raises(LostLease):
            await store.append(claim, [("step", b"1")], LATER + LEASE)

    using(place, work)


def test_who_plays_a_task_is_told_to_stop(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        task = await store.cancel("task", "ann", NOW + 1)
        assert task is not None
        assert (task.status, task.owner, task.updated) == ("working", "worker", NOW + 1)
        assert await store.renew(claim, NOW + LEASE) is True
        assert await store.append(claim, [("step", b"1")], NOW + LEASE) is True
        await store.finish(claim, "cancelled", None, CANCELLED_MESSAGE, NOW + 2)
        assert (await known(store)).status == "cancelled"

    using(place, work)


def test_a_leg_that_was_done_before_it_heard_counts(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        await store.cancel("task", "ann", NOW + 1)
        await store.finish(claim, "completed", b"result", None, NOW + 2)
        assert (await known(store)).status == "completed"

    using(place, work)


@pytest.mark.parametrize("end", ["park", "postpone", "release"])
def test_a_leg_that_ends_without_having_heard_is_the_last(place: Place, end: str) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        await store.append(claim, [("step", b"1")], NOW + LEASE)
        await store.cancel("task", "ann", NOW + 1)
        await OPERATIONS[end](store, claim)
        task = await known(store)
        assert (task.status, task.message, task.waits, task.owner) == ("cancelled", CANCELLED_MESSAGE, (), None)
        assert await store.claim("worker", LEASE, NOW + 9999, ANY) is None

    using(place, work)


def test_a_worker_that_dies_before_it_hears_does_not_keep_others_from_work(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        for name in ("a", "b", "c"):
            await store.create(new(name))
        for name in ("a", "b"):
            await claimed(store, task_id=name)
            await store.cancel(name, "ann", NOW + 1)
        assert (await claimed(store, LATER)).id == "c"
        for name in ("a", "b"):
            task = await known(store, name)
            assert (task.status, task.message) == ("cancelled", CANCELLED_MESSAGE)

    using(place, work)


# Fences

OPERATIONS: dict[str, Callable[[TaskStore, Claim], Awaitable[Any]]] = {
    "append": lambda store, claim: store.append(claim, [("step", b"stale"), ("new", b"stale")], NOW + 9999),
    "renew": lambda store, claim: store.renew(claim, NOW + 9999),
    "note": lambda store, claim: store.note(claim, "stale", NOW + 7),
    "park": lambda store, claim: store.park(claim, b"stale", ["stale"], b"stale", NOW + 7),
    "postpone": lambda store, claim: store.postpone(claim, b"stale", NOW + 7, NOW + 7),
    "release": lambda store, claim: store.release(claim, NOW + 7),
    "finish": lambda store, claim: store.finish(claim, "failed", b"stale", "stale", NOW + 7),
}


async def elsewhere(store: TaskStore, claim: Claim) -> None:
    again = await claimed(store, LATER, owner="another")
    await store.append(again, [("step", b"1")], LATER + LEASE)


async def over(store: TaskStore, claim: Claim) -> None:
    await store.finish(claim, "completed", b"result", None, NOW + 2)


async def asking(store: TaskStore, claim: Claim) -> None:
    await store.park(claim, b"asked", ["name"], b"questions", NOW + 2)


async def sleeping(store: TaskStore, claim: Claim) -> None:
    await store.postpone(claim, b"slept", NOW + 600, NOW + 2)


async def given_back(store: TaskStore, claim: Claim) -> None:
    await store.release(claim, NOW + 2)


@pytest.mark.parametrize("change", [elsewhere, over, asking, sleeping, given_back])
def test_who_lost_a_task_is_told_and_changes_nothing(
    place: Place, change: Callable[[TaskStore, Claim], Awaitable[None]]
) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new())
        claim = await claimed(store)
        await store.append(claim, [("step", b"0")], NOW + LEASE)
        await change(store, claim)
        before = await known(store)
        for operation in OPERATIONS.values():
            with pytest.raises(LostLease):
                await operation(store, claim)
            with pytest.raises(LostLease):
                await operation(store, replace(claim, epoch=claim.epoch + 7))
        assert await known(store) == before
        if change in (elsewhere, given_back):
            entry = b"1" if change is elsewhere else b"0"
            assert (await claimed(store, NOW + 200)).entries == [("step", entry)]

    using(place, work)


def test_a_task_that_is_gone_was_lost(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new(ttl=5.0))
        claim = await claimed(store)
        assert await store.purge(NOW + 5) == 1
        for operation in OPERATIONS.values():
            with pytest.raises(LostLease):
                await operation(store, claim)
        assert await store.list() == []

    using(place, work)


# To look after


def test_tasks_are_forgotten_when_their_time_is_over(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        await store.create(new("forever"))
        for name in ("waiting", "played", "over", "due"):
            await store.create(new(name, ttl=10.0))
        await store.create(new("young", ttl=11.0))
        await store.park(await claimed(store, task_id="waiting"), b"", ["name"], b"", NOW)
        await store.append(await claimed(store, task_id="played"), [("step", b"1")], NOW + 99)
        await store.finish(await claimed(store, task_id="over"), "completed", b"", None, NOW)
        assert await store.purge(NOW + 9) == 0
        assert await store.purge(NOW + 10) == 4
        assert [task.id for task in await store.list()] == ["forever", "young"]
        await store.create(new("played", now=NOW + 10))
        assert list((await claimed(store, NOW + 10, "played")).entries) == []

    using(place, work)


def test_more_are_forgotten_than_go_into_one_statement(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "PURGE_MOST", 3)

    async def work(store: TaskStore) -> None:
        await asyncio.gather(*(store.create(new(str(number), ttl=1.0)) for number in range(10)))
        assert await store.purge(NOW + 1) == 10

    using(place, work)


def test_tasks_are_listed_page_by_page(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        for number in range(7):
            await store.create(new(f"task-{number}", principal="ann" if number % 2 else "bob"))
        await store.finish(await claimed(store, task_id="task-3"), "completed", b"", None, NOW)
        pages, after = [], ""
        while page := await store.list(after=after, most=3):
            pages.append([task.id for task in page])
            after = page[-1].id
        assert pages == [["task-0", "task-1", "task-2"], ["task-3", "task-4", "task-5"], ["task-6"]]
        assert [task.id for task in await store.list(principal="ann")] == ["task-1", "task-3", "task-5"]
        assert [task.id for task in await store.list(principal="ann", status="working", after="task-1")] == ["task-5"]
        assert [task.id for task in await store.list(status="completed")] == ["task-3"]
        assert await store.list(principal="eve") == []

    using(place, work)


def test_tasks_are_counted_by_status_with_the_age_of_the_oldest(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        assert await store.counts(NOW) == {}
        for number in range(3):
            await store.create(new(str(number), now=NOW + number))
        await store.finish(await claimed(store, task_id="0"), "completed", b"", None, NOW)
        assert await store.counts(NOW + 10) == {"working": (2, 9.0), "completed": (1, 10.0)}
        assert await store.counts(NOW) == {"working": (2, 0.0), "completed": (1, 0.0)}

    using(place, work)


# Several instances


def test_another_instance_goes_on_with_it(shared: Place) -> None:
    async def work(store: TaskStore) -> None:
        other = shared.open()
        await parked(store, "name")
        assert await other.respond("task", "ann", {"name": b"Ann"}, NOW + 2)
        claim = await claimed(store, NOW + 2)
        assert await other.claim("another", LEASE, NOW + 3, ANY) is None
        await other.cancel("task", "ann", NOW + 3)
        assert await store.renew(claim, NOW + LEASE) is True
        await other.aclose()

    using(shared, work)


def test_many_instances_may_be_the_first(shared: Place) -> None:
    async def run() -> None:
        stores = [shared.open() for _ in range(6)]
        await asyncio.gather(*(store.create(new(str(number))) for number, store in enumerate(stores)))
        assert len(await stores[0].list()) == 6
        await asyncio.gather(*(store.aclose() for store in stores))

    asyncio.run(run())


def test_of_processes_that_race_each_leg_goes_to_one(shared: Place) -> None:
    names = [f"{number:03}" for number in range(60)]

    async def fill(store: TaskStore) -> None:
        await asyncio.gather(*(store.create(new(name)) for name in names))

    using(shared, fill)
    command = [sys.executable, __file__, shared.kind, shared.address, shared.prefix]
    paths = os.pathsep.join(path for path in sys.path if path)
    children = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
        )
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        found = [json.loads(child.communicate("go\n", PATIENCE)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()
    assert sorted(found[0] + found[1]) == names


def test_a_store_that_was_closed_is_opened_by_its_next_use(shared: Place) -> None:
    store = shared.open()

    async def first() -> None:
        await store.aclose()
        await store.create(new())
        await store.aclose()
        await store.aclose()
        assert (await known(store)).status == "working"
        await store.aclose()

    async def second() -> None:
        assert (await claimed(store)).id == "task"
        await store.aclose()

    asyncio.run(first())
    asyncio.run(second())


def test_tasks_of_a_caller_that_are_not_over_are_counted(place: Place) -> None:
    async def work(store: TaskStore) -> None:
        for number in range(5):
            await store.create(replace(new(f"own{number}"), principal="ada"))
        await store.create(replace(new("other"), principal="bob"))
        await store.create(replace(new("late"), principal="ada", ttl=1.0))
        later = new().now + 2
        assert await store.unfinished("ada", 100, later) == 5
        assert await store.unfinished("ada", 3, later) == 3
        assert await store.unfinished("nobody", 3, later) == 0
        await store.cancel("own0", "ada", later)
        claim = await store.claim("me", 30.0, later, Limits(("tool",), {}), "own1")
        assert claim is not None
        assert await store.unfinished("ada", 100, later) == 4
        await store.finish(claim, "completed", b"", None, later)
        assert await store.unfinished("ada", 100, later) == 3

    using(place, work)


# Versions


def module_of(place: Place) -> tuple[Any, str]:
    return (postgres_module, "VERSIONS") if place.kind == "postgres" else (sqlite_module, "_VERSIONS")


def test_older_tables_are_brought_up_to_date_and_newer_ones_are_refused(
    shared: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = module_of(shared)
    versions = getattr(module, name)

    async def create(store: TaskStore) -> None:
        await store.create(new())

    async def look(store: TaskStore) -> None:
        assert (await known(store)).status == "working"

    async def refused(store: TaskStore) -> None:
        with pytest.raises(CallerError, match=r"cannot be used: .* later version \(schema 3, this one knows 2\)"):
            await store.get("task", None)

    using(shared, create)
    prefix = shared.prefix or "turnwise_"
    with monkeypatch.context() as patch:
        patch.setattr(module, name, (*versions, f"CREATE TABLE {prefix}more (id integer)"))
        using(shared, look)
        using(shared, look)
    using(shared, refused)


# SQLite alone


@asynccontextmanager
async def held_up(database: Database) -> AsyncIterator[None]:
    """Keep the thread of a database busy."""
    begun, go_on = threading.Event(), threading.Event()

    def work(connection: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait(PATIENCE)

    first = asyncio.ensure_future(database.run(work))
    await asyncio.to_thread(begun.wait, PATIENCE)
    yield
    go_on.set()
    await first


def test_a_work_that_fails_undoes_itself_and_nobody_elses(tmp_path: Path) -> None:
    async def run() -> None:
        database = Database(tmp_path / "some.db", "CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY)")

        def add(number: int) -> Callable[[sqlite3.Connection], int]:
            def work(connection: sqlite3.Connection) -> int:
                connection.execute("INSERT INTO numbers VALUES (?)", (number,))
                if number % 3 == 0:
                    raise LostLease("mine")
                connection.execute("INSERT INTO numbers VALUES (?)", (number + 100 if number % 3 == 1 else number,))
                return number

            return work

        outcomes = await asyncio.gather(*(database.run(add(number)) for number in range(9)), return_exceptions=True)
        kinds = [outcome if isinstance(outcome, int) else type(outcome).__name__ for outcome in outcomes]
        lost, refused = "LostLease", "CallerError"
        assert kinds == [lost, 1, refused, lost, 4, refused, lost, 7, refused]
        rows = await database.run(lambda connection: connection.execute("SELECT number FROM numbers").fetchall())
        assert [number for (number,) in rows] == [1, 4, 7, 101, 104, 107]
        await database.aclose()

    asyncio.run(run())


def test_a_transaction_that_fails_is_told_to_all_who_are_in_it(tmp_path: Path) -> None:
    async def run() -> None:
        database = Database(tmp_path / "some.db", "CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY)")

        def end(connection: sqlite3.Connection) -> None:
            connection.execute("ROLLBACK")  # As SQLite does by itself when the disk is full.
            raise sqlite3.OperationalError("database or disk is full")

        def add(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO numbers VALUES (1)")

        async with held_up(database):  # It finds the others together.
            both = asyncio.gather(database.run(add), database.run(end), return_exceptions=True)
            await asyncio.sleep(0)
        outcomes = await both
        assert all(isinstance(outcome, CallerError) and "disk is full" in str(outcome) for outcome in outcomes)
        rows = await database.run(lambda connection: connection.execute("SELECT number FROM numbers").fetchall())
        assert rows == []
        await database.aclose()

    asyncio.run(run())


def test_work_that_nobody_waits_for_any_more_is_not_begun(tmp_path: Path) -> None:
    async def run() -> None:
        database, done = Database(tmp_path / "some.db", ""), list[int]()
        async with held_up(database):
            first = asyncio.ensure_future(database.run(lambda connection: done.append(1)))
            second = asyncio.ensure_future(database.run(lambda connection: done.append(2)))
            await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait({second})
        await first
        assert done == [1]
        await database.aclose()

    asyncio.run(run())


# PostgreSQL alone


def on_postgres(request: pytest.FixtureRequest) -> tuple[Any, Place]:
    place = make_place("postgres", request)
    return place.server, place


def test_a_server_that_goes_away_is_a_clear_error_and_one_that_comes_back_is_used(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, place = on_postgres(request)
    monkeypatch.setattr("turnwise._postgres.PAUSES", (0.0,))

    async def work(store: TaskStore) -> None:
        await parked(store, "name")
        await store.create(new("b"))
        claim = await claimed(store, task_id="b")
        server.stop()
        try:
            for attempt in (
                store.create(new("c")),
                store.get("task", "ann"),
                store.respond("task", "ann", {"name": b"Ann"}, NOW),
                store.claim("worker", LEASE, NOW, ANY),
                store.claim("worker", LEASE, NOW, Limits(("tool",), {"tool": 1})),
                store.append(claim, [("step", b"1")], NOW + LEASE),
                store.finish(claim, "completed", b"", None, NOW),
                store.purge(NOW),
            ):
                with pytest.raises(CallerError, match=r"the store in PostgreSQL cannot be used: .+"):
                    await attempt
        finally:
            server.start()
        assert await store.respond("task", "ann", {"name": b"Ann"}, NOW + 2)
        assert (await claimed(store, NOW + 2)).answers == {"name": b"Ann"}
        await store.finish(claim, "completed", b"", None, NOW)

    using(place, work)


def test_a_restart_is_not_noticed(request: pytest.FixtureRequest) -> None:
    server, place = on_postgres(request)

    async def work(store: TaskStore) -> None:
        await asyncio.gather(*(store.create(new(str(number))) for number in range(10)))
        server.stop()
        server.start()
        found = await asyncio.gather(*(store.claim("worker", LEASE, NOW, ANY) for _ in range(12)))
        assert sorted(claim.id for claim in found if claim) == [str(number) for number in range(10)]

    using(place, work)


def test_a_creation_whose_reply_was_lost_is_not_refused(request: pytest.FixtureRequest) -> None:
    _, place = on_postgres(request)

    async def work(store: TaskStore) -> None:
        await store.create(new())
        await claimed(store)
        await store.create(new())
        assert (await known(store)).epoch == 1

    using(place, work)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_pool_of_yours_stays_open_and_limits_hold_whatever_its_isolation(
    request: pytest.FixtureRequest, isolation: str
) -> None:
    server, place = on_postgres(request)
    limits = Limits(("tool",), {"tool": 2})

    async def run() -> None:
        settings = {"default_transaction_isolation": isolation}
        async with asyncpg.create_pool(server.address, min_size=0, max_size=6, server_settings=settings) as pool:
            store = PostgresTaskStore(pool, prefix=place.prefix)
            for number in range(6):
                await store.create(new(str(number)))
            found = await asyncio.gather(*(store.claim("worker", LEASE, NOW, limits) for _ in range(8)))
            assert len([claim for claim in found if claim]) == 2
            await store.aclose()
            assert await pool.fetchval("SELECT 1") == 1

    asyncio.run(run())


def test_a_role_that_may_not_create_tables_uses_those_that_are_there(request: pytest.FixtureRequest) -> None:
    server, place = on_postgres(request)

    async def run() -> None:
        role, owner = f"{place.prefix}clerk", place.open()
        assert isinstance(owner, PostgresTaskStore)
        await owner.create(new())
        await owner.database.row(f"CREATE ROLE {role} LOGIN")
        for table in ("tasks", "task_entries", "task_answers", "task_schema"):
            await owner.database.row(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {place.prefix}{table} TO {role}")
        address = server.address.replace("postgres@", f"{role}@")
        clerk = PostgresTaskStore(address, prefix=place.prefix)
        claim = await claimed(clerk)
        await clerk.append(claim, [("step", b"1")], NOW + LEASE)
        await clerk.finish(claim, "completed", b"", None, NOW)
        stranger = PostgresTaskStore(address, prefix="no_such_")
        with pytest.raises(CallerError, match="permission denied"):
            await stranger.get("task", None)
        for store in (owner, clerk, stranger):
            await store.aclose()

    asyncio.run(run())


def test_who_listens_hears_of_legs_and_of_tasks_that_are_to_stop(request: pytest.FixtureRequest) -> None:
    server, place = on_postgres(request)

    async def work(store: TaskStore) -> None:
        other, heard = place.open(), asyncio.Queue[tuple[str, str]]()
        assert isinstance(other, Telling)
        listening = asyncio.create_task(other.listen(lambda *word: heard.put_nowait(word)))
        assert await heard.get() == ("due", "")  # It may have missed some before it listened.
        await store.create(new())
        assert await heard.get() == ("due", "")
        claim = await claimed(store)
        await store.cancel("task", "ann", NOW)
        assert await heard.get() == ("stop", "task")
        await store.finish(claim, "cancelled", None, None, NOW)
        await parked(store, "name", "size", task_id="b")
        assert await heard.get() == ("due", "")
        await store.respond("b", "ann", {"name": b""}, NOW)
        await store.respond("b", "ann", {"size": b""}, NOW)
        assert await heard.get() == ("due", "")
        await store.release(await claimed(store), NOW)
        assert await heard.get() == ("due", "")
        await store.postpone(await claimed(store), b"", NOW + 9, NOW)
        assert await heard.get() == ("due", "")
        assert heard.empty()
        server.stop()
        server.start()
        assert await heard.get() == ("due", "")
        await store.create(new("c"))
        assert await heard.get() == ("due", "")
        listening.cancel()
        await asyncio.wait({listening})
        await other.aclose()

    using(place, work)


def test_who_leaves_lets_the_last_word_go_out(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    _, place = on_postgres(request)

    async def leave() -> None:
        store, heard = place.open(), asyncio.Event()
        assert isinstance(store, PostgresTaskStore)
        listening = asyncio.create_task(store.listen(lambda *_: heard.set()))
        await heard.wait()
        row = store.database.row

        async def slow_row(statement: str, *arguments: Any) -> Any:
            await asyncio.sleep(0.2 if "pg_notify" in statement else 0)
            return await row(statement, *arguments)

        monkeypatch.setattr(store.database, "row", slow_row)
        await store.create(new())
        listening.cancel()
        await asyncio.wait({listening})
        await store.database.aclose()

    async def work(store: TaskStore) -> None:
        heard = asyncio.Queue[tuple[str, str]]()
        assert isinstance(store, Telling)
        listening = asyncio.create_task(store.listen(lambda *word: heard.put_nowait(word)))
        assert await heard.get() == ("due", "")
        await asyncio.to_thread(asyncio.run, leave())
        assert await asyncio.wait_for(heard.get(), 5) == ("due", "")
        listening.cancel()
        await asyncio.wait({listening})

    using(place, work)


def test_a_prefix_that_is_no_name_is_refused() -> None:
    with pytest.raises(ValueError, match="prefix="):
        PostgresTaskStore("postgresql://", prefix="tasks; --")


# What another process does


async def race(store: TaskStore) -> None:
    await store.get("nothing", None)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    found = []
    while True:
        claims = await asyncio.gather(*(store.claim("child", LEASE, NOW, ANY) for _ in range(4)))
        found += [claim.id for claim in claims if claim is not None]
        if None in claims:
            break
    await store.aclose()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(race(open_store(*sys.argv[1:])))
