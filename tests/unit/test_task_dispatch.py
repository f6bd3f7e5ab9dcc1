"""How legs reach workers: looking into each store by themselves, and by way of PgQueuer.

Servers and clients are joined in process; a worker that is killed is a process of its own, which runs this file.
"""

import asyncio
import importlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from turnwise import CallerError, Context, MCPServer, RequestStateSecurity
from turnwise.tasks import dispatch as dispatch_module
from turnwise.tasks import pgqueuer as pgqueuer_module
from turnwise.tasks import runtime as runtime_module
from turnwise.tasks.model import TaskStore
from turnwise.tasks.options import TaskOptions
from turnwise.tasks.pgqueuer import PgQueuerDispatcher
from turnwise.tasks.postgres import PostgresTaskStore
from turnwise.tasks.sqlite import SQLiteTaskStore
from turnwise.testing import Connection, connect

SOON, PROMPTLY, PATIENCE = 15.0, 3.0, 60.0
TASKS: dict[str, Any] = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
NUMBERS = itertools.count(1)


# Where tasks live, and who plays them


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who have to look by themselves look often."""
    for module in (dispatch_module, pgqueuer_module):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)


class Place:
    """A store, and a way for legs to reach workers."""

    def __init__(self, kind: str, address: str, prefix: str, database: Any = None) -> None:
        self.kind, self.address, self.prefix, self.database = kind, address, prefix, database
        self._memory = SQLiteTaskStore() if kind == "memory" else None

    def store(self) -> TaskStore:
        return self._memory or open_store(self.kind, self.address, self.prefix)

    def options(self, **options: Any) -> TaskOptions:
        dispatcher = PgQueuerDispatcher() if self.kind == "pgqueuer" else None
        return TaskOptions(store=self.store(), dispatcher=dispatcher, **{"grace": 0.05, **options})


def open_store(kind: str, address: str, prefix: str) -> TaskStore:
    return SQLiteTaskStore(address) if kind == "file" else PostgresTaskStore(address, prefix=prefix, pool_size=4)


def make_place(kind: str, request: pytest.FixtureRequest) -> Place:
    if kind in ("postgres", "pgqueuer"):
        server = request.getfixturevalue("postgres")
        return Place(kind, server.address, f"d{next(NUMBERS)}_", server)
    return Place(kind, str(request.getfixturevalue("tmp_path") / "tasks.db"), "")


@pytest.fixture(params=["memory", "file", "postgres", "pgqueuer"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture(params=["file", "postgres", "pgqueuer"])
def shared(request: pytest.FixtureRequest) -> Place:
    """A place that processes share."""
    return make_place(request.param, request)


@pytest.fixture(params=["postgres", "pgqueuer"])
def remote(request: pytest.FixtureRequest) -> Place:
    """A place that tells its workers of what others do."""
    return make_place(request.param, request)


class Shop:
    """A server with tools that are tasks, and what its steps did."""

    def __init__(self, options: TaskOptions) -> None:
        self.done: list[str] = []
        self.begun, self.go_on, self.waited = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.busy = self.busiest = 0
        security = RequestStateSecurity(keys=[b"k" * 32])
        self.server: MCPServer[Any] = MCPServer("shop", tasks=options, request_state_security=security)
        for tool in (self.order, self.slow, self.stubborn, self.brief):
            self.server.add_tool(tool, task="always")

    async def order(self, item: str, ctx: Context) -> str:
        """A step, a question, a rest, and another step."""
        reserved = await ctx.step(self.reserve, item)
        await ctx.report("reserved")
        answer: Any = await ctx.elicit("For whom?", str, key="name")
        await ctx.sleep(0.2)
        return f"{await ctx.step(self.send, reserved)} for {answer.data}"

    async def slow(self, ctx: Context) -> str:
        """A step that is done, and one that takes its time."""
        await ctx.step(self.reserve, "slow")
        return await ctx.step(self.wait)

    async def stubborn(self, ctx: Context) -> str:
        """It does not stop when it is told to."""
        while not self.go_on.is_set():
            self.begun.set()
            try:
                await asyncio.wait_for(self.go_on.wait(), SOON)
            except asyncio.CancelledError:
                self.done.append("told to stop")
        return "done"

    async def brief(self, number: int, ctx: Context) -> int:
        """Something short."""
        return await ctx.step(self.count, number)

    async def count(self, number: int) -> int:
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        await asyncio.sleep(0.01)
        self.busy -= 1
        self.done.append(str(number))
        return number

    async def reserve(self, item: str) -> str:
        self.done.append(f"reserve {item}")
        return item

    async def send(self, item: str) -> str:
        self.done.append(f"send {item}")
        return f"sent {item}"

    async def wait(self) -> str:
        self.begun.set()
        await asyncio.wait_for(self.go_on.wait(), SOON)
        self.done.append("waited")
        self.waited.set()
        return "waited"


@asynccontextmanager
async def opened(place: Place, **options: Any) -> AsyncIterator[tuple[Shop, Connection]]:
    """A shop at a place, and a client of it."""
    shop = Shop(place.options(**options))
    async with connect(shop.server) as client:
        client.capabilities = TASKS
        yield shop, client
    assert shop.server.tasks is not None
    if place.kind != "memory":
        await shop.server.tasks.store.aclose()


async def begin(client: Connection, tool: str, **arguments: Any) -> str:
    result = await client.request("tools/call", {"name": tool, "arguments": arguments})
    return str(result["taskId"])


async def until(client: Connection, task_id: str, *statuses: str) -> dict[str, Any]:
    """The task, once it has one of these statuses."""
    end = time.monotonic() + SOON
    while True:
        seen = await client.request("tasks/get", {"taskId": task_id})
        if seen["status"] in statuses:
            return seen
        assert time.monotonic() < end, seen
        assert seen["status"] not in ("completed", "failed", "cancelled"), seen
        await asyncio.sleep(0.01)


async def answer(client: Connection, task_id: str, name: str) -> None:
    response = {"action": "accept", "content": {"value": name}}
    await client.request("tasks/update", {"taskId": task_id, "inputResponses": {"name": response}})


def text(seen: Mapping[str, Any]) -> str:
    return str(seen["result"]["content"][0]["text"])


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), PATIENCE)

    asyncio.run(bounded())


# A task from its beginning to its end


def test_a_task_asks_sleeps_and_is_done_with_each_step_once(place: Place) -> None:
    async def work() -> None:
        async with opened(place) as (shop, client):
            task_id = await begin(client, "order", item="tea")
            assert (await until(client, task_id, "input_required"))["statusMessage"] == "reserved"
            begun = time.monotonic()
            await answer(client, task_id, "Ann")
            assert text(await until(client, task_id, "completed")) == "sent tea for Ann"
            assert time.monotonic() - begun > 0.15
            assert shop.done == ["reserve tea", "send tea"]

    run(work)


def test_many_tasks_are_played_each_once(place: Place) -> None:
    async def work() -> None:
        async with opened(place, workers=4) as (shop, client):
            tasks = await asyncio.gather(*(begin(client, "brief", number=number) for number in range(30)))
            ends = await asyncio.gather(*(until(client, task_id, "completed") for task_id in tasks))
            assert [text(end) for end in ends] == [str(number) for number in range(30)]
            assert sorted(shop.done, key=int) == [str(number) for number in range(30)]
            assert shop.busiest <= 4

    run(work)


def test_a_process_with_one_worker_plays_one_leg_at_a_time(place: Place) -> None:
    async def work() -> None:
        async with opened(place, workers=1) as (shop, client):
            tasks = await asyncio.gather(*(begin(client, "brief", number=number) for number in range(6)))
            await asyncio.gather(*(until(client, task_id, "completed") for task_id in tasks))
            assert shop.busiest == 1

    run(work)


def test_a_server_is_started_again_in_another_loop(place: Place) -> None:
    shop = Shop(place.options())

    async def work() -> None:
        async with connect(shop.server) as client:
            client.capabilities = TASKS
            await until(client, await begin(client, "brief", number=1), "completed")
        assert shop.server.tasks is not None
        if place.kind != "memory":
            await shop.server.tasks.store.aclose()

    run(work)
    run(work)


# Other processes


def test_a_worker_plays_what_another_process_took_on_and_at_once_where_it_is_told(shared: Place) -> None:
    async def work() -> None:
        async with opened(shared, workers=0) as (front, client), opened(shared) as (back, _):
            for item in ("tea", "milk"):
                begun = time.monotonic()
                task_id = await begin(client, "order", item=item)
                await until(client, task_id, "input_required")
                await answer(client, task_id, "Ann")
                assert text(await until(client, task_id, "completed")) == f"sent {item} for Ann"
                assert time.monotonic() - begun < PROMPTLY < dispatch_module.IDLE_SECONDS
            assert front.done == []
            assert back.done == ["reserve tea", "send tea", "reserve milk", "send milk"]

    run(work)


def test_to_stop_a_task_reaches_its_leg_in_another_process(shared: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the store tells, it is not the heartbeat that does.
    monkeypatch.setattr(runtime_module, "BEAT_SECONDS", 0.1 if shared.kind == "file" else 60.0)

    async def work() -> None:
        async with opened(shared, workers=0) as (_, client), opened(shared, lease=PATIENCE) as (back, _):
            task_id = await begin(client, "slow")
            await asyncio.wait_for(back.begun.wait(), SOON)
            begun = time.monotonic()
            await client.request("tasks/cancel", {"taskId": task_id})
            await until(client, task_id, "cancelled")
            assert time.monotonic() - begun < PROMPTLY
            assert back.done == ["reserve slow"]

    run(work)


def test_to_stop_a_task_reaches_its_leg_in_this_process(place: Place) -> None:
    async def work() -> None:
        async with opened(place) as (shop, client):
            task_id = await begin(client, "slow")
            await asyncio.wait_for(shop.begun.wait(), SOON)
            await client.request("tasks/cancel", {"taskId": task_id})
            await until(client, task_id, "cancelled")
            assert shop.done == ["reserve slow"]

    run(work)


def test_a_limit_holds_over_processes_and_what_waits_for_it_is_played(shared: Place) -> None:
    async def work() -> None:
        limits = {"most": {"brief": 1}}
        async with opened(shared, **limits) as (one, client), opened(shared, **limits) as (two, _):
            both = Shop.count

            async def count(self: Shop, number: int) -> int:
                assert not one.busy
                assert not two.busy
                return await both(self, number)

            Shop.count = count  # type: ignore[method-assign] # for both instances
            try:
                tasks = await asyncio.gather(*(begin(client, "brief", number=number) for number in range(4)))
                for task_id in tasks:
                    assert "isError" not in (await until(client, task_id, "completed"))["result"]
            finally:
                Shop.count = both  # type: ignore[method-assign] # as it was
            assert sorted(one.done + two.done) == ["0", "1", "2", "3"]

    run(work)


def test_a_worker_that_is_killed_is_taken_over_from(shared: Place) -> None:
    async def work() -> None:
        async with opened(shared, workers=0) as (_, client):
            task_id = await begin(client, "slow")
            paths = os.pathsep.join(path for path in sys.path if path)
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                __file__,
                *(shared.kind, shared.address, shared.prefix),
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": paths},
            )
            assert child.stdout is not None
            assert (await asyncio.wait_for(child.stdout.readline(), SOON)).strip() == b"waiting"
            child.send_signal(signal.SIGKILL)
            await child.wait()
            async with opened(shared, lease=1.0) as (shop, _):
                shop.go_on.set()
                assert text(await until(client, task_id, "completed")) == "waited"
                assert shop.done == ["waited"]  # The step before was on record.

    run(work)


# Coming and going


def test_a_worker_that_leaves_gives_its_legs_back(shared: Place) -> None:
    async def work() -> None:
        async with opened(shared, workers=0) as (_, client):
            async with opened(shared, lease=PATIENCE) as (first, _):
                task_id = await begin(client, "slow")
                await asyncio.wait_for(first.begun.wait(), SOON)
            assert first.done == ["reserve slow"]
            begun = time.monotonic()
            async with opened(shared, lease=PATIENCE) as (second, _):
                second.go_on.set()
                assert text(await until(client, task_id, "completed")) == "waited"
                assert time.monotonic() - begun < PROMPTLY
                assert second.done == ["waited"]

    run(work)


def test_a_leg_that_is_nearly_done_is_waited_for(place: Place) -> None:
    async def work() -> None:
        shop = Shop(place.options(grace=SOON))
        async with connect(shop.server) as client:
            client.capabilities = TASKS
            task_id = await begin(client, "slow")
            await asyncio.wait_for(shop.begun.wait(), SOON)
            asyncio.get_running_loop().call_later(0.1, shop.go_on.set)
        assert shop.done == ["reserve slow", "waited"]
        assert shop.server.tasks is not None
        store = shop.server.tasks.store
        task = await store.get(task_id, None)
        assert task is not None
        assert task.status == "completed"
        await store.aclose()

    run(work)


def test_a_function_that_does_not_stop_loses_its_leg(shared: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "STOP_SECONDS", 0.1)

    async def work() -> None:
        async with opened(shared, workers=0) as (_, client):
            async with opened(shared, lease=PATIENCE) as (first, _):
                task_id = await begin(client, "stubborn")
                await asyncio.wait_for(first.begun.wait(), SOON)
            assert first.done == ["told to stop"]
            async with opened(shared, lease=PATIENCE) as (second, _):
                second.go_on.set()
                assert text(await until(client, task_id, "completed")) == "done"
            first.go_on.set()
            await asyncio.wait({task for task in asyncio.all_tasks() if "Tasks._play" in repr(task)})
            assert first.server.tasks is not None
            await first.server.tasks.store.aclose()

    run(work)


def test_a_claim_that_comes_as_the_worker_leaves_is_given_back(tmp_path: Path) -> None:
    class Slow(SQLiteTaskStore):
        is_claiming: asyncio.Event

        async def claim(self, *arguments: Any, **options: Any) -> Any:
            claim = await super().claim(*arguments, **options)
            if claim is not None:
                self.is_claiming.set()
                await asyncio.sleep(0.1)
            return claim

    async def work() -> None:
        store = Slow(tmp_path / "tasks.db")
        store.is_claiming = asyncio.Event()
        shop = Shop(TaskOptions(store=store, lease=PATIENCE))
        async with connect(shop.server) as client:
            client.capabilities = TASKS
            task_id = await begin(client, "brief", number=1)
            await asyncio.wait_for(store.is_claiming.wait(), SOON)
        task = await store.get(task_id, None)
        assert task is not None
        assert (task.status, task.owner, task.leased_until, shop.done) == ("working", None, 0.0, [])
        await store.aclose()

    run(work)


def test_a_server_that_goes_away_and_comes_back_is_worked_on_again(
    remote: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise._postgres.PAUSES", (0.0,))
    monkeypatch.setattr(pgqueuer_module, "AGAIN_SECONDS", 0.1)

    async def work() -> None:
        async with opened(remote) as (shop, client):
            waiting = await begin(client, "order", item="tea")
            await until(client, waiting, "input_required")
            playing = await begin(client, "slow")
            await asyncio.wait_for(shop.begun.wait(), SOON)
            remote.database.stop()
            await asyncio.sleep(0.5)
            remote.database.start()
            shop.go_on.set()
            assert text(await until(client, playing, "completed")) == "waited"
            await answer(client, waiting, "Ann")
            assert text(await until(client, waiting, "completed")) == "sent tea for Ann"
            assert text(await until(client, await begin(client, "brief", number=7), "completed")) == "7"
            assert sorted(shop.done) == ["7", "reserve slow", "reserve tea", "send tea", "waited"]

    run(work)


def test_a_step_that_cannot_be_recorded_does_not_fail_its_task(remote: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwise._postgres.PAUSES", ())
    monkeypatch.setattr(pgqueuer_module, "AGAIN_SECONDS", 0.1)

    async def work() -> None:
        async with opened(remote, lease=1.0) as (shop, client):
            task_id = await begin(client, "slow")
            await asyncio.wait_for(shop.begun.wait(), SOON)
            remote.database.stop()
            shop.go_on.set()
            await asyncio.wait_for(shop.waited.wait(), SOON)
            await asyncio.sleep(0.1)
            remote.database.start()
            assert text(await until(client, task_id, "completed")) == "waited"
            assert shop.done == ["reserve slow", "waited", "waited"]

    run(work)


# PgQueuer alone


def pgqueuer_place(request: pytest.FixtureRequest) -> Place:
    return make_place("pgqueuer", request)


def test_legs_that_the_queue_never_had_are_swept_up(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pgqueuer_module, "SWEEP_SECONDS", 0.1)
    place = pgqueuer_place(request)

    async def work() -> None:
        local = Place("postgres", place.address, place.prefix)
        async with opened(local, workers=0) as (_, client):
            task_id = await begin(client, "brief", number=7)
            async with opened(place) as (shop, _):
                await until(client, task_id, "completed")
                assert shop.done == ["7"]

    run(work)


def test_tools_that_are_added_later_are_served(request: pytest.FixtureRequest) -> None:
    place = pgqueuer_place(request)

    async def work() -> None:
        async with opened(place) as (shop, client):

            async def late() -> str:
                return "better than never"

            shop.server.add_tool(late, task="always")
            task_id = await begin(client, "late")
            assert text(await until(client, task_id, "completed")) == "better than never"

    run(work)


def test_a_leg_is_enqueued_with_the_task_or_not_at_all(request: pytest.FixtureRequest) -> None:
    place = pgqueuer_place(request)

    async def work() -> None:
        async with opened(place, workers=0) as (shop, client):
            assert shop.server.tasks is not None
            store = shop.server.tasks.store
            assert isinstance(store, PostgresTaskStore)
            await begin(client, "brief", number=1)
            enqueued = store.waker.enqueue  # type: ignore[union-attr] # a server attached it

            async def fail(*_: Any) -> None:
                raise ZeroDivisionError

            store.waker.enqueue = fail  # type: ignore[union-attr,method-assign] # as if the queue refused
            refused = await client.request("tools/call", {"name": "brief", "arguments": {"number": 2}})
            assert refused["isError"]
            store.waker.enqueue = enqueued  # type: ignore[union-attr,method-assign] # as it was
            assert len(await store.list()) == 1
            rows = await store.database.rows("SELECT entrypoint, dedupe_key FROM {0}pgqueuer")
            assert [(row[0], row[1].rpartition(":")[2]) for row in rows] == [("brief", "0")]

    run(work)


def test_a_role_that_may_not_make_the_queues_tables_is_told_the_command(request: pytest.FixtureRequest) -> None:
    place = pgqueuer_place(request)

    async def work() -> None:
        role, owner = f"{place.prefix}clerk", PostgresTaskStore(place.address, prefix=place.prefix)
        await owner.database.row(f"CREATE ROLE {role} LOGIN")
        for table in ("tasks", "task_schema"):
            await owner.database.row(f"GRANT SELECT ON {place.prefix}{table} TO {role}")
        clerk = PostgresTaskStore(place.address.replace("postgres@", f"{role}@"), prefix=place.prefix)
        PgQueuerDispatcher().attach(clerk)
        with pytest.raises(CallerError, match=rf"PGQUEUER_PREFIX={place.prefix} pgq install"):
            await clerk.get("task", None)
        await clerk.aclose()
        await owner.aclose()

    run(work)


def test_another_store_is_refused() -> None:
    with pytest.raises(TypeError, match="PostgresTaskStore"):
        MCPServer("shop", tasks=TaskOptions(store=SQLiteTaskStore(), dispatcher=PgQueuerDispatcher()))


def test_missing_packages_are_told_by_the_extra_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "turnwise.tasks.pgqueuer")
    monkeypatch.setitem(sys.modules, "pgqueuer.core.qm", None)
    with pytest.raises(ImportError, match=r"turnwise\[pgqueuer\]"):
        importlib.import_module("turnwise.tasks.pgqueuer")


# What another process does


async def wait_forever(place: Place) -> None:
    async with opened(place, lease=1.0) as (shop, _):
        await shop.begun.wait()
        sys.stdout.write("waiting\n")
        sys.stdout.flush()
        await asyncio.sleep(PATIENCE)


if __name__ == "__main__":
    asyncio.run(wait_forever(Place(*sys.argv[1:])))
