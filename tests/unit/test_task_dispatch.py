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
from types import SimpleNamespace
from typing import Any

import pytest

from turnwise import CallerError, Context, MCPServer, RequestStateSecurity, _upkeep
from turnwise.tasks import dispatch as dispatch_module
from turnwise.tasks import pgqueuer as pgqueuer_module
from turnwise.tasks import runtime as runtime_module
from turnwise.tasks.dispatch import LocalDispatcher
from turnwise.tasks.model import Claim, TaskStore
from turnwise.tasks.options import TaskOptions
from turnwise.tasks.pgqueuer import PgQueuerDispatcher
from turnwise.tasks.postgres import PostgresTaskStore
from turnwise.tasks.runtime import Tasks
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

    def __init__(self, options: TaskOptions, key: bytes = b"k") -> None:
        self.done: list[str] = []
        self.begun, self.go_on, self.waited = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.busy = self.busiest = 0
        self.seconds = 0.01
        security = RequestStateSecurity(keys=[key * 32])
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
        await asyncio.sleep(self.seconds)
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
        await asyncio.wait_for(self.go_on.wait(), PATIENCE)
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
        async with opened(place, workers=3) as (shop, client):
            tasks = await asyncio.gather(*(begin(client, "brief", number=number) for number in range(30)))
            ends = await asyncio.gather(*(until(client, task_id, "completed") for task_id in tasks))
            assert [text(end) for end in ends] == [str(number) for number in range(30)]
            assert sorted(shop.done, key=int) == [str(number) for number in range(30)]
            assert shop.busiest <= 3

    run(work)


def test_a_process_with_one_worker_plays_one_leg_at_a_time(place: Place) -> None:
    async def work() -> None:
        async with opened(place, workers=1) as (shop, client):
            tasks = await asyncio.gather(*(begin(client, "brief", number=number) for number in range(6)))
            await asyncio.gather(*(until(client, task_id, "completed") for task_id in tasks))
            assert shop.busiest == 1

    run(work)


@pytest.mark.parametrize("limits", [{"workers": 1}, {"most": {"brief": 1}}])
def test_a_leg_that_ends_makes_room_for_the_next(limits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "LOOK_SECONDS", 3600.0)

    async def work() -> None:
        async with opened(Place("memory", "", ""), **limits) as (shop, client):
            shop.seconds = 0.05  # Long enough that nobody looks by himself any more when it is over.
            tasks = await asyncio.gather(*(begin(client, "brief", number=number) for number in range(4)))
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


def test_to_stop_a_task_reaches_its_leg_in_this_process(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "BEAT_SECONDS", 2 * PATIENCE)  # It is not the heartbeat that tells.

    async def work() -> None:
        async with opened(place, lease=6 * PATIENCE) as (shop, client):
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


def test_a_worker_without_the_key_leaves_a_leg_to_others_however_often_it_comes_by(
    shared: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime_module, "SHY_SECONDS", 0.0)
    monkeypatch.setattr(pgqueuer_module, "SWEEP_SECONDS", 0.0)
    monkeypatch.setattr(dispatch_module, "IDLE_SECONDS", 0.05)

    async def work() -> None:
        async with opened(shared, workers=0) as (front, client):
            store = front.server.tasks.store  # type: ignore[union-attr]
            task_id = await begin(client, "brief", number=7)
            stranger = Shop(shared.options(attempts=2), key=b"x")
            async with connect(stranger.server):
                while (await store.get(task_id, None)).epoch < 6:  # type: ignore[union-attr] # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await stranger.server.tasks.store.aclose()  # type: ignore[union-attr]
            async with opened(shared, attempts=2) as (back, _):
                assert text(await until(client, task_id, "completed")) == "7"
                assert (front.done, stranger.done, back.done) == ([], [], ["7"])

    run(work)


@pytest.mark.parametrize("fault", [ConnectionError("the broker is away"), None])
def test_a_dispatcher_that_ends_is_told_of_and_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Exception | None
) -> None:
    monkeypatch.setattr(_upkeep, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(_upkeep, "STEADY_SECONDS", 0.0)
    troubles: list[str | None] = []

    class Faulty(LocalDispatcher):
        async def run(self, tasks: Tasks) -> None:
            troubles.append(shop.server._trouble())
            if len(troubles) <= 3:
                if fault is not None:
                    raise fault
                return
            await super().run(tasks)

    shop = Shop(TaskOptions(store=SQLiteTaskStore(), dispatcher=Faulty()))

    async def work() -> None:
        async with connect(shop.server) as client:
            client.capabilities = TASKS
            await until(client, await begin(client, "brief", number=1), "completed")
            assert shop.server._trouble() is None

    run(work)
    failed = "what works in the background has failed"
    assert troubles == [None, failed, failed, failed]
    told = [record for record in caplog.records if failed in record.message]
    assert [record.levelname for record in told] == ["ERROR"] * 3
    assert all(fault is None or "the broker is away" in record.message for record in told)


def test_a_server_ends_though_its_dispatcher_does_not_end_well(caplog: pytest.LogCaptureFixture) -> None:
    class Sore:
        async def run(self, tasks: Tasks) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("no goodbye")

    shop = Shop(TaskOptions(store=SQLiteTaskStore(), dispatcher=Sore()))

    async def work() -> None:
        async with connect(shop.server):
            await asyncio.sleep(0)

    run(work)
    assert "did not end well" in caplog.text


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


def test_a_worker_that_leaves_asks_nothing_in_the_name_of_a_tool_that_it_cancels(shared: Place) -> None:
    async def tidy(ctx: Context) -> str:
        try:
            places[-1].begun.set()
            await places[-1].go_on.wait()
            return "tidy"
        finally:
            if not places[-1].go_on.is_set():
                await ctx.elicit("Shall I tidy up?", bool)

    places: list[Shop] = []

    async def work() -> None:
        async with opened(shared, workers=0) as (front, client):
            front.server.add_tool(tidy, task="always")
            async with opened(shared, lease=PATIENCE) as (first, _):
                places.append(first)
                first.server.add_tool(tidy, task="always")
                task_id = await begin(client, "tidy")
                await asyncio.wait_for(first.begun.wait(), SOON)
            async with opened(shared, lease=PATIENCE) as (second, _):
                places.append(second)
                second.go_on.set()
                second.server.add_tool(tidy, task="always")
                assert text(await until(client, task_id, "completed")) == "tidy"

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
        assert not shop.server.tasks._running, "nothing of it stays in memory"
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


class Slow(SQLiteTaskStore):
    """Its claims are made, and take a while to arrive."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.is_claiming = asyncio.Event()

    async def claim(self, *arguments: Any, **options: Any) -> Any:
        claim = await super().claim(*arguments, **options)
        if claim is not None:
            self.is_claiming.set()
            await asyncio.sleep(0.1)
        return claim


@asynccontextmanager
async def while_claimed(store: Slow) -> AsyncIterator[tuple[Shop, Any, str]]:
    """A task whose claim has been made, and has not arrived yet."""
    shop = Shop(TaskOptions(store=store, lease=PATIENCE))
    async with connect(shop.server) as client:
        client.capabilities = TASKS
        task_id = await begin(client, "brief", number=1)
        await asyncio.wait_for(store.is_claiming.wait(), SOON)
        yield shop, client, task_id


def test_a_task_that_is_stopped_before_its_leg_has_begun_does_not_begin(tmp_path: Path) -> None:
    async def work() -> None:
        store = Slow(tmp_path / "tasks.db")
        async with while_claimed(store) as (shop, client, task_id):
            await client.request("tasks/cancel", {"taskId": task_id})
            await until(client, task_id, "cancelled")
            assert shop.done == []
        await store.aclose()

    run(work)


def test_a_claim_that_comes_as_the_worker_leaves_is_given_back(tmp_path: Path) -> None:
    async def work() -> None:
        store = Slow(tmp_path / "tasks.db")
        async with while_claimed(store) as (shop, _, task_id):
            pass
        task = await store.get(task_id, None)
        assert task is not None
        assert (task.status, task.owner, task.leased_until, shop.done) == ("working", None, 0.0, [])
        await store.aclose()

    run(work)


def test_claims_that_come_too_late_are_given_back_though_one_cannot_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    claims = [Claim(f"task {number}", 1, "brief", "", b"", b"", (), {}, 0.0) for number in range(3)]
    given_back: list[str] = []

    class Sore(Slow):
        async def claim(self, *arguments: Any, **options: Any) -> Any:
            self.is_claiming.set()
            await asyncio.sleep(0.05)
            return claims.pop()

        async def release(self, claim: Any, now: float) -> None:
            if claim.id == "task 2":
                raise CallerError("the disk is full")
            given_back.append(claim.id)

    async def work() -> None:
        store = Sore(tmp_path / "tasks.db")
        tasks: Any = SimpleNamespace(store=store, owner="shop", options=TaskOptions(store=store), limits=None)
        claiming = asyncio.create_task(dispatch_module._claimed(tasks, 3))
        await store.is_claiming.wait()
        claiming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await claiming

    run(work)
    assert sorted(given_back) == ["task 0", "task 1"]
    assert "the disk is full" in caplog.text


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


def test_a_store_that_is_away_is_told_of_in_a_line_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    class Away(SQLiteTaskStore):
        is_away = False

        async def claim(self, *arguments: Any, **options: Any) -> Any:
            self._check()
            return await super().claim(*arguments, **options)

        async def due(self, now: float) -> float | None:
            self._check()
            return await super().due(now)

        def _check(self) -> None:
            if self.is_away:
                raise CallerError("nobody is at home")

    async def work() -> None:
        store = Away()
        shop = Shop(TaskOptions(store=store))
        async with connect(shop.server) as client:
            client.capabilities = TASKS
            store.is_away = True
            task_id = await begin(client, "brief", number=1)
            await asyncio.sleep(0.2)
            assert shop.server._trouble() is None
            store.is_away = False
            assert text(await until(client, task_id, "completed")) == "1"

    run(work)
    told = [record for record in caplog.records if "nobody is at home" in record.message]
    assert {(record.message.partition(":")[0], record.exc_info) for record in told} == {
        ("the store of tasks cannot be asked for work", None)
    }


def test_a_worker_says_that_it_is_alive_before_its_lease_is_over_also_after_nobody_heard_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime_module, "BEAT_SECONDS", 3600.0)
    legs: list[int] = []

    class Away(SQLiteTaskStore):
        async def renew(self, claim: Claim, until: float) -> bool:
            legs.append(claim.epoch)
            if legs.count(claim.epoch) == 1:
                raise CallerError("nobody is at home")
            return await super().renew(claim, until)

    async def work() -> None:
        shop = Shop(TaskOptions(store=Away(), lease=0.3))
        async with connect(shop.server) as client:
            client.capabilities = TASKS
            task_id = await begin(client, "slow")
            while len(legs) == len(set(legs)):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
            shop.go_on.set()
            assert text(await until(client, task_id, "completed")) == "waited"

    run(work)


def test_what_is_over_its_time_is_forgotten_though_that_failed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch_module, "PURGE_SECONDS", 0.01)
    purges: list[int] = []

    class Away(SQLiteTaskStore):
        async def purge(self, now: float) -> int:
            purges.append(len(await self.list()))
            if len(purges) < 3:
                raise CallerError("nobody is at home")
            return await super().purge(now)

    async def work() -> None:
        store = Away()
        shop = Shop(TaskOptions(store=store, ttl=0.01))
        async with connect(shop.server) as client:
            client.capabilities = TASKS
            await begin(client, "brief", number=1)
            while await store.list():  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)

    run(work)
    assert len(purges) >= 3


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


def test_a_claim_that_comes_as_the_queue_is_left_is_given_back(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, leave = pgqueuer_place(request), pgqueuer_module._Shift.leave

    async def work() -> None:
        is_claimed, is_left = asyncio.Event(), asyncio.Event()
        shop = Shop(place.options(lease=PATIENCE))
        assert shop.server.tasks is not None
        store = shop.server.tasks.store
        claimed = store.claim

        async def slow(*arguments: Any) -> Any:
            claim = await claimed(*arguments)
            is_claimed.set()
            await is_left.wait()
            return claim

        def left(shift: Any) -> None:
            leave(shift)
            is_left.set()

        monkeypatch.setattr(store, "claim", slow)
        monkeypatch.setattr(pgqueuer_module._Shift, "leave", left)
        async with connect(shop.server) as client:
            client.capabilities = TASKS
            task_id = await begin(client, "brief", number=1)
            await asyncio.wait_for(is_claimed.wait(), SOON)
        task = await store.get(task_id, None)
        assert task is not None
        assert (task.status, task.owner, task.leased_until, shop.done) == ("working", None, 0.0, [])
        await store.aclose()

    run(work)


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
