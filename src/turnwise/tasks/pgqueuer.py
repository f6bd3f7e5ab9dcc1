"""Legs by way of PgQueuer, a queue in the same PostgreSQL as the tasks.

A leg is enqueued inside of the transaction that makes it due, so there is none without the other. Each tool is an
entrypoint of its own: a worker takes only legs that it can play, and PgQueuer's figures are by tool. The queue delivers
at least once and takes over from workers that died; that a leg is played by one is the store's business, by its claims.
What the queue lost (it deletes jobs that failed) or never had (tasks of another dispatcher) is swept up now and then.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from .._postgres import Database, is_passing
from ..errors import CallerError
from .dispatch import IDLE_SECONDS, LOOK_SECONDS, background, drain, ended, idle, leg_of
from .postgres import Leg, PostgresTaskStore
from .runtime import Tasks

try:
    import asyncpg
    from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
    from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
    from pgqueuer.core.qm import QueueManager
    from pgqueuer.core.tm import TaskManager
    from pgqueuer.domain.errors import RetryRequested
    from pgqueuer.domain.models import Job, TableChangedEvent, utc_now
    from pgqueuer.domain.settings import DBSettings
    from pgqueuer.domain.types import Channel
    from pgqueuer.queries import Queries
except ImportError as missing:
    raise ImportError("PgQueuerDispatcher needs PgQueuer, which comes with the extra turnwise[pgqueuer]") from missing

log = logging.getLogger("turnwise.tasks")
T = TypeVar("T")

AGAIN_SECONDS = 1.0
SWEEP_SECONDS, SWEEP_MOST = 5.0, 100
PRUNE_SECONDS, KEPT = 600.0, "1 day"
SOON = timedelta(milliseconds=20)


class PgQueuerDispatcher:
    """Workers that PgQueuer wakes: `TaskOptions(store=PostgresTaskStore(dsn), dispatcher=PgQueuerDispatcher())`.

    Its tables begin with the store's prefix (`turnwise_pgqueuer`) and are made by the first use of the store. Every
    process that serves these tasks needs the dispatcher, also one without workers: it enqueues.
    """

    def __init__(self) -> None:
        self._store: PostgresTaskStore | None = None
        self._settings = DBSettings()

    def attach(self, store: Any) -> None:
        """Have a store enqueue its legs here."""
        if not isinstance(store, PostgresTaskStore):
            raise TypeError(f"PgQueuerDispatcher works on a PostgresTaskStore, not on a {type(store).__name__}")
        schema, _, prefix = store.database.prefix.rpartition(".")
        self._settings = DBSettings(prefix=prefix, db_schema=schema or None)
        self._store = store
        store.waker = self

    async def install(self, connection: Any) -> None:
        """Make PgQueuer's tables, unless they are there."""
        queries = self.queries(AsyncpgDriver(connection))
        if await queries.schema_is_installed():
            return
        try:
            await queries.install(create_schema=False)
        except asyncpg.InsufficientPrivilegeError as error:
            raise CallerError(
                f"PgQueuer has no tables here, and this role may not make them: {self._told()}"
            ) from error

    async def enqueue(self, connection: Any, legs: Sequence[Leg]) -> None:
        """Have legs played. A leg that waits in the queue already is not put there twice."""
        await self.queries(AsyncpgDriver(connection)).enqueue(
            [leg.tool for leg in legs],
            [leg.task_id.encode() for leg in legs],
            [0] * len(legs),
            [timedelta(seconds=leg.delay) for leg in legs],
            [f"{leg.task_id}:{leg.epoch}" for leg in legs],
            on_conflict="skip",
        )

    async def run(self, tasks: Tasks) -> None:
        """Play what the queue brings, up to so many legs at a time."""
        assert self._store is not None
        shift = _Shift(self, self._store, tasks)
        aside = [*background(tasks), asyncio.create_task(shift.sweep())]
        working = asyncio.create_task(shift.work())
        try:
            await asyncio.shield(working)
        finally:
            shift.leave()
            await drain(shift.playing, tasks.options.grace)
            await asyncio.wait([working])
            await ended(aside)

    def queries(self, driver: Any) -> Queries:
        """PgQueuer's statements, for our tables."""
        own = self._settings
        return Queries(driver, QueryBuilderEnvironment(own), QueryQueueBuilder(own), QuerySchedulerBuilder(own))

    def manager(self, driver: Any) -> QueueManager:
        """PgQueuer's consumer, of our tables."""
        manager = QueueManager(self.queries(driver), Channel(self._settings.channel))
        manager.min_dequeue_poll_interval = SOON
        return manager

    @property
    def pruning(self) -> str:
        """The statement that drops what PgQueuer has counted and nobody looks at any more."""
        table = self._settings.qualified.queue_table_log
        return f"DELETE FROM {table} WHERE aggregated AND created < now() - interval '{KEPT}'"

    def _told(self) -> str:
        return f"PGQUEUER_PREFIX={self._settings.prefix} pgq install"


class _Shift:
    """The workers of one process, from their first leg to their last."""

    def __init__(self, dispatcher: PgQueuerDispatcher, store: PostgresTaskStore, tasks: Tasks) -> None:
        self.playing: set[asyncio.Task[bool]] = set()
        self._dispatcher = dispatcher
        self._store = store
        self._tasks = tasks
        self._driver = _Driver(store.database)
        self._manager = dispatcher.manager(self._driver)
        self._room = asyncio.Semaphore(tasks.options.workers)

    async def work(self) -> None:
        """Consume the queue, whatever befalls it."""
        workers = max(2, self._tasks.options.workers)
        while not self._driver.shutdown.is_set():
            self._manager = self._dispatcher.manager(self._driver)
            self._register()
            try:
                # A job that is over counts until PgQueuer has written that down, so there may be more than are played.
                await self._manager.run(
                    dequeue_timeout=timedelta(seconds=idle(self._tasks)),
                    batch_size=workers // 2,
                    max_concurrent_tasks=2 * workers,
                    heartbeat_timeout=timedelta(seconds=self._tasks.options.lease),
                )
            except Exception:  # It must not end before the server does.
                log.exception("PgQueuer ended; it is begun anew")
                await asyncio.sleep(AGAIN_SECONDS)

    def leave(self) -> None:
        """Take no more legs."""
        self._driver.shutdown.set()
        self._manager.shutdown.set()

    async def sweep(self) -> None:
        """Serve tools that were added meanwhile, enqueue what is due since some time, and prune PgQueuer's log."""
        swept = pruned = 0.0
        while True:
            self._register()
            now = time.monotonic()
            try:
                if now - swept > SWEEP_SECONDS:
                    await self._swept()
                    swept = now
                if now - pruned > PRUNE_SECONDS:
                    await self._store.database.row(self._dispatcher.pruning)
                    pruned = now
            except CallerError as error:
                log.warning("legs that the queue may have lost cannot be looked for: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    async def _swept(self) -> None:
        legs = await self._store.overdue(time.time() - SWEEP_SECONDS, list(self._tasks.tools), SWEEP_MOST)
        if legs:
            await self._store.database.within(lambda connection: self._dispatcher.enqueue(connection, legs))

    def _register(self) -> None:
        most = self._tasks.options.most or {}
        if fresh := [tool for tool in self._tasks.tools if tool not in self._manager.entrypoint_registry]:
            for tool in fresh:
                limit = most.get(tool, 0)
                self._manager.entrypoint(tool, concurrency_limit=limit, accepts_context=False)(self._consume)
            self._driver.nudge()

    async def _consume(self, job: Job) -> None:
        """One job: the claim of its leg, and the leg. Where that cannot be now, the job is for later."""
        tasks, task_id = self._tasks, (job.payload or b"").decode()
        async with self._room:
            try:
                if self._driver.shutdown.is_set():
                    raise RetryRequested()
                claim = await leg_of(tasks, task_id)
                if claim is None:
                    await self._put_off(task_id)
                    return
                if self._driver.shutdown.is_set():  # A leg that is cancelled before it begins would give nothing back.
                    await self._store.release(claim, time.time())
                    return
                leg = asyncio.create_task(tasks.play(claim))
                self.playing.add(leg)
                leg.add_done_callback(self.playing.discard)
                await asyncio.wait([leg])
            except CallerError as error:
                raise RetryRequested(timedelta(seconds=AGAIN_SECONDS), str(error)) from error
            if not leg.cancelled() and not leg.result():
                raise RetryRequested(timedelta(seconds=tasks.options.lease), "the leg could not be recorded")

    async def _put_off(self, task_id: str) -> None:
        """Nothing to claim: the leg was played; or another worker has it, a limit is reached, a clock is slow."""
        task = await self._store.get(task_id, None)
        if task is not None and task.status == "working":
            wait = max(task.wake_at, task.leased_until) - time.time()
            raise RetryRequested(timedelta(seconds=min(max(LOOK_SECONDS, wait), IDLE_SECONDS)))


class _Driver:
    """PgQueuer's way to the database: the store's own pool, patient while the database is away."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ears: list[asyncio.Task[None]] = []
        self._listeners: list[Callable[[str], None]] = []
        self.shutdown = asyncio.Event()
        self.tm = TaskManager()

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        return [dict(row) for row in await self._waited(lambda pool: pool.fetch(query, *args))]

    async def execute(self, query: str, *args: object) -> str:
        return str(await self._waited(lambda pool: pool.execute(query, *args)))

    async def notify(self, channel: str, payload: str) -> None:
        await self.execute("SELECT pg_notify($1, $2)", channel, payload)

    async def add_listener(self, channel: str, callback: Callable[[str | bytes | bytearray], None]) -> None:
        def relay(message: str) -> None:
            callback(message or _news(channel))

        self._listeners.append(relay)
        self._ears.append(asyncio.create_task(self._database.hear(channel, relay)))

    def nudge(self) -> None:
        """Have PgQueuer look into its queue."""
        for listener in self._listeners:
            listener("")

    async def _waited(self, attempt: Callable[[Any], Awaitable[T]]) -> T:
        while True:
            try:
                return await self._database.using(attempt)
            except CallerError as error:
                cause = error.__cause__ or error
                if self.shutdown.is_set() or not is_passing(cause):
                    raise cause from None
                log.error("the queue of tasks cannot be reached: %s", cause)
            await asyncio.sleep(AGAIN_SECONDS)

    async def __aenter__(self) -> "_Driver":
        return self

    async def __aexit__(self, *_: object) -> None:
        for ear in self._ears:
            ear.cancel()
        self._ears.clear()
        self._listeners.clear()


def _news(channel: str) -> str:
    """What PgQueuer's own trigger would say when there is something new."""
    news = TableChangedEvent(
        channel=Channel(channel), operation="insert", sent_at=utc_now(), table="", type="table_changed_event"
    )
    return news.model_dump_json()
