"""Tasks in PostgreSQL, for workers on any number of machines.

Almost every method is one statement, so it is one transaction and one trip. What fences a worker off is the condition
HELD in the statement that would change its task: the row is locked by then, and looked at as it is after whoever was
before. A claim takes a row that nobody holds (SKIP LOCKED) and reads what goes with it afterwards: the lease keeps
others away meanwhile. Leases are by the database's clock: those of workers may differ by more than a lease is long.

Limits of tools hold over all workers because those who claim under one count in turn, one after the other, under an
advisory lock that ends with their transaction; who claims without limits does not wait for it.

Word of a leg that is due goes out after the commit (to notify inside of it would make all commits of the database wait
for each other), so it may be lost, and who listens looks by itself now and then. With a `waker` the leg is enqueued
inside of the transaction instead.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .._postgres import Database, migrated
from ..errors import CallerError
from .model import CANCELLED_MESSAGE, Claim, Limits, LostLease, NewTask, Status, Task
from .statements import (
    APPEND,
    CANCEL,
    CLAIM,
    COUNTS,
    CREATE,
    DUE,
    FINISH,
    GET,
    LEDGER,
    LIST,
    NOTE,
    OVERDUE,
    PARK,
    POSTPONE,
    PURGE,
    RELEASE,
    RENEW,
    RESPOND,
    UNFINISHED,
    VERSIONS,
)

if TYPE_CHECKING:
    from .._postgres import Pool

log = logging.getLogger("turnwise.tasks")

LISTENERS = 2
"""Connections beside those that work: for what the store tells, and for a dispatcher's own ear."""
PURGE_MOST = 1000


class Waker(Protocol):
    """Who is told of legs inside of the transaction that makes them due, such as a queue in the same database."""

    async def install(self, connection: Any) -> None:
        """Put in place what it needs there."""
        ...

    async def enqueue(self, connection: Any, legs: "Sequence[Leg]") -> None:
        """Take legs that are due, or will be. One that is told twice is taken once."""
        ...


class Leg(NamedTuple):
    """A leg that is to be played, in so many seconds. The epoch of the one before tells it from all others."""

    task_id: str
    tool: str
    epoch: int
    delay: float = 0.0


class PostgresTaskStore:
    """Tasks in tables of a database that you run already.

    Give it a DSN, or a pool of asyncpg that stays yours to close and has two connections to spare for who listens. The
    tables, `turnwise_tasks` and three others unless `prefix` says otherwise (`schema.prefix_` is understood), are made
    by the first use; where your role may not create tables, let one that may use the store once. A pooler that gives
    every transaction another connection, such as PgBouncer, wants `statement_cache_size=0`, and passes no notifications
    on: workers look by themselves then.
    """

    is_durable = True

    def __init__(
        self,
        dsn_or_pool: "str | Pool",
        *,
        prefix: str = "turnwise_",
        pool_size: int = 8,
        statement_cache_size: int = 100,
    ) -> None:
        self.database = Database(
            dsn_or_pool,
            self._make,
            prefix=prefix,
            pool_size=pool_size + LISTENERS,
            statement_cache_size=statement_cache_size,
        )
        self.waker: Waker | None = None
        self._channel = f"turnwise_{_hashed(prefix, 'channel'):016x}"
        self._bell = _Bell(self.database, self._channel)

    async def create(self, task: NewTask) -> None:
        """Keep a task."""
        facts = (_bytes(task.id), task.principal, task.tool, task.now, task.ttl, task.call, task.state)
        if await self._waking(task.id, task.now, CREATE, *facts) is None:
            raise CallerError(f"there is a task {task.id!r} already")

    async def get(self, task_id: str, principal: str | None) -> Task | None:
        """A task, for those whose it is."""
        row = await self.database.row(GET, _bytes(task_id), principal, time.time())
        return None if row is None else _task(row)

    async def respond(self, task_id: str, principal: str, answers: Mapping[str, bytes], now: float) -> bool:
        """Keep the first answer to each open question."""
        keys, blobs = [_bytes(key) for key in answers], list(answers.values())
        facts = (_bytes(task_id), principal, keys, blobs, now)
        return await self._waking(task_id, now, RESPOND, *facts) is not None

    async def cancel(self, task_id: str, principal: str | None, now: float) -> Task | None:
        """End a task that waits; ask the one who plays it to stop."""
        facts = (now, CANCELLED_MESSAGE, self._channel, time.time())
        await self.database.row(CANCEL, _bytes(task_id), principal, *facts)
        return await self.get(task_id, principal)

    async def claim(
        self, owner: str, lease: float, now: float, limits: Limits, task_id: str | None = None
    ) -> Claim | None:
        """The right to play a leg that is due."""
        most = [limits.most.get(tool) for tool in limits.tools]
        one = () if task_id is None else (_bytes(task_id),)
        statement = CLAIM.replace("{1}", " AND id = $7" if one else "")
        facts = (now, owner, now + lease, list(limits.tools), most, time.time(), *one)
        while (row := await self._claimed(statement, facts, is_limited=bool(limits.most))) is not None:
            key, epoch, tool, principal, call, state, woken, is_cancelling = row
            entries, answers = await self._ledger(key) if epoch > 1 else ([], {})
            claim = Claim(_text(key), epoch, tool, principal, call, state, entries, answers, woken)
            if not is_cancelling:
                return claim
            with suppress(LostLease):  # Its worker died before it heard.
                await self.finish(claim, "cancelled", None, CANCELLED_MESSAGE, now)
        return None

    async def append(self, claim: Claim, entries: Sequence[tuple[str, bytes]], until: float) -> bool:
        """Keep what the leg has settled so far, and extend the lease."""
        keys, blobs = [_bytes(key) for key, _ in entries], [entry for _, entry in entries]
        return bool(_held(claim, await self.database.row(APPEND, *_fence(claim), until, keys, blobs, time.time()))[0])

    async def renew(self, claim: Claim, until: float) -> bool:
        """Extend the lease."""
        return bool(_held(claim, await self.database.row(RENEW, *_fence(claim), until, time.time()))[0])

    async def note(self, claim: Claim, message: str | None, now: float) -> None:
        """Say how far it has come."""
        _held(claim, await self.database.row(NOTE, *_fence(claim), message, now))

    async def park(self, claim: Claim, state: bytes, waits: Sequence[str], payload: bytes, now: float) -> None:
        """End the leg with open questions."""
        facts = (state, [_bytes(key) for key in waits], payload, now)
        _held(claim, await self.database.row(PARK, *_fence(claim), *facts))

    async def postpone(self, claim: Claim, state: bytes, wake_at: float, now: float) -> None:
        """End the leg; the next is due at this time."""
        _held(claim, await self._waking(claim.id, now, POSTPONE, *_fence(claim), state, wake_at, now))

    async def release(self, claim: Claim, now: float) -> None:
        """Give the leg back as it was."""
        _held(claim, await self._waking(claim.id, now, RELEASE, *_fence(claim), now))

    async def finish(
        self, claim: Claim, status: Status, payload: bytes | None, message: str | None, now: float
    ) -> None:
        """End the task."""
        _held(claim, await self.database.row(FINISH, *_fence(claim), status, payload, message, now))

    async def unfinished(self, principal: str, most: int, now: float) -> int:
        """How many tasks of this caller are not over."""
        return int((await self.database.row(UNFINISHED, principal, now, most))[0])

    async def due(self, now: float) -> float | None:
        """When the next of the tasks wakes that sleep now."""
        found: float | None = (await self.database.row(DUE, now))[0]
        return found

    async def overdue(self, before: float, tools: Sequence[str], most: int) -> list[Leg]:
        """Legs that were due at this time, and that nobody plays."""
        rows = await self.database.rows(OVERDUE, before, list(tools), most, time.time())
        return [Leg(_text(row["id"]), row["tool"], row["epoch"]) for row in rows]

    async def list(
        self, *, principal: str | None = None, status: str | None = None, after: str = "", most: int = 100
    ) -> list[Task]:
        """Tasks by id."""
        rows = await self.database.rows(LIST, _bytes(after), principal, status, most, time.time())
        return [_task(row) for row in rows]

    async def counts(self, now: float) -> Mapping[str, tuple[int, float]]:
        """How many tasks there are of each status, and the age of the oldest."""
        rows = await self.database.rows(COUNTS)
        return {status: (count, max(0.0, now - oldest)) for status, count, oldest in rows}

    async def purge(self, now: float) -> int:
        """Forget tasks that are over their time."""
        gone = 0
        while some := (await self.database.row(PURGE, now, PURGE_MOST))[0]:
            gone += some
        return gone

    async def listen(self, heard: Callable[[str, str], None]) -> None:
        """Until cancelled, tell of legs that are due, and of tasks that are to stop."""

        def relay(message: str) -> None:
            what, _, task_id = message.partition(" ")
            heard(*(("stop", _text(bytes.fromhex(task_id))) if what == "stop" else ("due", "")))

        try:
            await self.database.hear(self._channel, relay)
        finally:
            # A worker that leaves says so of the legs that it gives back, before its loop ends.
            await self._bell.settle()

    async def aclose(self) -> None:
        """Close the connections, unless the pool is yours. The next use opens new ones."""
        await self._bell.settle()
        await self.database.aclose()

    async def _waking(self, task_id: str, now: float, statement: str, *facts: Any) -> Any:
        """The row of a statement that may make a task due, and word of it where it does."""
        if (waker := self.waker) is None:
            row = await self.database.row(statement, *facts)
            if row is not None and row["due"] is not None:
                self._bell.ring()
            return row
        written = statement.replace("{0}", self.database.prefix)

        async def work(connection: Any) -> Any:
            row = await connection.fetchrow(written, *facts)
            if row is not None and row["due"] is not None:
                leg = Leg(task_id, row["tool"], row["epoch"], max(0.0, row["due"] - now))
                await waker.enqueue(connection, [leg])
            return row

        return await self.database.within(work)

    async def _claimed(self, statement: str, facts: tuple[Any, ...], *, is_limited: bool) -> Any:
        if not is_limited:
            return await self.database.row(statement, *facts)
        written = statement.replace("{0}", self.database.prefix)
        turn = _hashed(self.database.prefix, "limits")

        async def work(connection: Any) -> Any:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", turn)
            return await connection.fetchrow(written, *facts)

        return await self.database.within(work)

    async def _ledger(self, task_id: bytes) -> tuple[Sequence[tuple[str, bytes]], dict[str, bytes]]:
        rows = await self.database.rows(LEDGER, task_id)
        entries = [(_text(key), entry) for number, key, entry in rows if number is not None]
        return entries, {_text(key): answer for number, key, answer in rows if number is None}

    async def _make(self, pool: "Pool") -> None:
        """Bring the tables up to date, once, whoever else is about to; those of a later version are not touched."""
        prefix = self.database.prefix
        async with pool.acquire() as connection, connection.transaction(isolation="read_committed"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _hashed(prefix, "schema"))
            scripts = [script.replace("{0}", prefix) for script in VERSIONS]
            await migrated(connection, f"{prefix}task_schema", scripts)
            if self.waker is not None:
                await self.waker.install(connection)


class _Bell:
    """Says that there are legs to play: once for all that became due since it was said last."""

    def __init__(self, database: Database, channel: str) -> None:
        self._database = database
        self._channel = channel
        self._is_wanted = False
        self._ringing: asyncio.Task[None] | None = None

    def ring(self) -> None:
        self._is_wanted = True
        if self._ringing is None or self._ringing.done() or self._ringing.get_loop() is not asyncio.get_running_loop():
            self._ringing = asyncio.create_task(self._ring())

    async def settle(self) -> None:
        if self._ringing is not None and self._ringing.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._ringing])

    async def _ring(self) -> None:
        while self._is_wanted:
            self._is_wanted = False
            try:
                await self._database.row("SELECT pg_notify($1, 'due')", self._channel)
            except CallerError as error:
                log.info("nobody hears that a leg is due: %s", error)


def _hashed(prefix: str, purpose: str) -> int:
    """A number of our own for a lock, or a name, that others in the database do not use."""
    return int.from_bytes(hashlib.sha256(f"turnwise tasks|{purpose}|{prefix}".encode()).digest()[:8]) >> 1


def _fence(claim: Claim) -> tuple[bytes, int]:
    return _bytes(claim.id), claim.epoch


def _held(claim: Claim, row: Any) -> Any:
    """The row of a statement that only who holds the task may make."""
    if row is None:
        raise LostLease(claim.id)
    return row


def _task(row: Any) -> Task:
    facts = dict(row)
    return Task(**{**facts, "id": _text(facts["id"]), "waits": tuple(map(_text, facts["waits"]))})


def _bytes(text: str) -> bytes:
    """Any text, also one that PostgreSQL would not take for text; as bytes it sorts as SQLite sorts it."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")
