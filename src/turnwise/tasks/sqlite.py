"""Tasks in one file, for several processes on one machine, or in memory for one."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._sqlite import Database, migrated
from .model import CANCELLED_MESSAGE, TERMINAL, Claim, Limits, LostLease, NewTask, Status, Task

_SCHEMA = "CREATE TABLE IF NOT EXISTS turnwise_schema (version INTEGER NOT NULL) STRICT"
_VERSIONS = (
    """
CREATE TABLE tasks (
    id TEXT PRIMARY KEY, principal TEXT NOT NULL, tool TEXT NOT NULL, status TEXT NOT NULL, message TEXT,
    created REAL NOT NULL, updated REAL NOT NULL, ttl REAL, payload BLOB, waits TEXT NOT NULL DEFAULT '[]',
    owner TEXT, leased_until REAL NOT NULL DEFAULT 0, wake_at REAL NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0,
    cancelling INTEGER NOT NULL DEFAULT 0, call BLOB NOT NULL, state BLOB NOT NULL
) STRICT;
CREATE INDEX tasks_due ON tasks (wake_at) WHERE status = 'working';
CREATE INDEX tasks_over ON tasks (created) WHERE ttl IS NOT NULL;
CREATE TABLE task_entries (
    task TEXT NOT NULL, key TEXT NOT NULL, entry BLOB NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (task, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE task_answers (
    task TEXT NOT NULL, key TEXT NOT NULL, answer BLOB NOT NULL, PRIMARY KEY (task, key)
) STRICT, WITHOUT ROWID;
""",
    "CREATE INDEX tasks_open ON tasks (principal) WHERE status IN ('working', 'input_required')",
)
"""What makes each version of the tables out of the one before."""
_FACTS = (
    "id, principal, tool, status, message, created, updated, ttl, payload, waits, owner, leased_until, wake_at, epoch"
)
_DUE = "status = 'working' AND wake_at <= ? AND leased_until <= ?"


class SQLiteTaskStore:
    """Tasks in a file, or, with `":memory:"`, in this process alone."""

    def __init__(self, path: str | Path = ":memory:") -> None:
        self._database = Database(
            path, _SCHEMA, migrate=lambda database: migrated(database, "turnwise_schema", _VERSIONS)
        )
        self.is_durable = str(path) != ":memory:"

    async def create(self, task: NewTask) -> None:
        """Keep a task."""
        statement = (
            "INSERT INTO tasks (id, principal, tool, status, created, updated, ttl, wake_at, call, state) "
            "VALUES (?, ?, ?, 'working', ?, ?, ?, ?, ?, ?)"
        )
        row = (task.id, task.principal, task.tool, task.now, task.now, task.ttl, task.now, task.call, task.state)
        await self._database.run(lambda database: database.execute(statement, row))

    async def get(self, task_id: str, principal: str | None) -> Task | None:
        """A task, for those whose it is."""
        return await self._database.run(lambda database: _get(database, task_id, principal))

    async def respond(self, task_id: str, principal: str, answers: Mapping[str, bytes], now: float) -> bool:
        """Keep the first answer to each open question."""

        def respond(database: sqlite3.Connection) -> bool:
            task = _get(database, task_id, principal)
            if task is None:
                return False
            taken = [key for key in task.waits if key in answers]
            if not taken or task.status != "input_required":
                return True
            for key in taken:
                database.execute("INSERT OR IGNORE INTO task_answers VALUES (?, ?, ?)", (task_id, key, answers[key]))
            waits = [key for key in task.waits if key not in answers]
            status = "input_required" if waits else "working"
            database.execute(
                "UPDATE tasks SET waits = ?, status = ?, updated = ?, wake_at = ? WHERE id = ?",
                (json.dumps(waits), status, now, now, task_id),
            )
            return True

        return await self._database.run(respond)

    async def cancel(self, task_id: str, principal: str | None, now: float) -> Task | None:
        """End a task that waits; ask the one who plays it to stop."""

        def cancel(database: sqlite3.Connection) -> Task | None:
            task = _get(database, task_id, principal)
            if task is None or task.status in TERMINAL:
                return task
            if task.status == "working" and task.leased_until > now:
                database.execute("UPDATE tasks SET cancelling = 1, updated = ? WHERE id = ?", (now, task_id))
            else:
                _end(database, task_id, "cancelled", None, CANCELLED_MESSAGE, now)
            return _get(database, task_id, principal)

        return await self._database.run(cancel)

    async def claim(
        self, owner: str, lease: float, now: float, limits: Limits, task_id: str | None = None
    ) -> Claim | None:
        """The right to play a leg that is due."""

        def claim(database: sqlite3.Connection) -> Claim | None:
            tools = _free(database, limits, now)
            marks = ", ".join("?" * len(tools))
            which = "" if task_id is None else " AND id = ?"
            statement = f"SELECT id, cancelling FROM tasks WHERE {_DUE}{which} AND tool IN ({marks}) ORDER BY wake_at"
            values = (now, now, *(() if task_id is None else (task_id,)), *tools)
            while (found := database.execute(f"{statement} LIMIT 1", values).fetchone()) is not None:
                if not found[1]:
                    database.execute(
                        "UPDATE tasks SET epoch = epoch + 1, owner = ?, leased_until = ? WHERE id = ?",
                        (owner, now + lease, found[0]),
                    )
                    return _claimed(database, found[0])
                # Its worker died before it heard.
                _end(database, found[0], "cancelled", None, CANCELLED_MESSAGE, now)
            return None

        # A machine that dies forgets who had a claim, and takes them with it.
        return await self._database.run(claim, is_soft=True)

    async def append(self, claim: Claim, entries: Sequence[tuple[str, bytes]], until: float) -> bool:
        """Keep what the leg has settled so far, and extend the lease."""

        def append(database: sqlite3.Connection) -> bool:
            is_cancelling = _held(database, claim, until)
            statement = "SELECT coalesce(max(number), 0) + 1 FROM task_entries WHERE task = ?"
            [number] = database.execute(statement, (claim.id,)).fetchone()
            rows = [(claim.id, key, entry, number + place) for place, (key, entry) in enumerate(entries)]
            database.executemany(
                "INSERT INTO task_entries VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET entry = excluded.entry", rows
            )
            return is_cancelling

        return await self._database.run(append)

    async def renew(self, claim: Claim, until: float) -> bool:
        """Extend the lease."""
        return await self._database.run(lambda database: _held(database, claim, until), is_soft=True)

    async def note(self, claim: Claim, message: str | None, now: float) -> None:
        """Say how far it has come."""

        def note(database: sqlite3.Connection) -> None:
            _held(database, claim)
            database.execute("UPDATE tasks SET message = ?, updated = ? WHERE id = ?", (message, now, claim.id))

        await self._database.run(note, is_soft=True)

    async def park(self, claim: Claim, state: bytes, waits: Sequence[str], payload: bytes, now: float) -> None:
        """End the leg with open questions."""

        def park(database: sqlite3.Connection) -> None:
            is_cancelling = _held(database, claim)
            _leave(database, claim, state, now)
            database.execute(
                "UPDATE tasks SET status = 'input_required', waits = ?, payload = ? WHERE id = ?",
                (json.dumps(list(waits)), payload, claim.id),
            )
            if is_cancelling:
                _end(database, claim.id, "cancelled", None, CANCELLED_MESSAGE, now)

        await self._database.run(park)

    async def postpone(self, claim: Claim, state: bytes, wake_at: float, now: float) -> None:
        """End the leg; the next is due at this time."""

        def postpone(database: sqlite3.Connection) -> None:
            is_cancelling = _held(database, claim)
            _leave(database, claim, state, now)
            database.execute("UPDATE tasks SET wake_at = ? WHERE id = ?", (wake_at, claim.id))
            if is_cancelling:
                _end(database, claim.id, "cancelled", None, CANCELLED_MESSAGE, now)

        await self._database.run(postpone)

    async def release(self, claim: Claim, now: float) -> None:
        """Give the leg back as it was."""

        def release(database: sqlite3.Connection) -> None:
            is_cancelling = _held(database, claim)
            database.execute("UPDATE tasks SET owner = NULL, leased_until = 0 WHERE id = ?", (claim.id,))
            if is_cancelling:
                _end(database, claim.id, "cancelled", None, CANCELLED_MESSAGE, now)

        await self._database.run(release)

    async def finish(
        self, claim: Claim, status: Status, payload: bytes | None, message: str | None, now: float
    ) -> None:
        """End the task."""

        def finish(database: sqlite3.Connection) -> None:
            _held(database, claim)
            _end(database, claim.id, status, payload, message, now)

        await self._database.run(finish)

    async def unfinished(self, principal: str, most: int, now: float) -> int:
        """How many tasks of this caller are not over."""
        statement = (
            "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE principal = ? AND status IN ('working', 'input_required') "
            "AND (ttl IS NULL OR created + ttl > ?) LIMIT ?)"
        )
        found = await self._database.run(
            lambda database: database.execute(statement, (principal, now, most)).fetchone()
        )
        return int(found[0])

    async def due(self, now: float) -> float | None:
        """When the next of the tasks wakes that sleep now."""

        def due(database: sqlite3.Connection) -> float | None:
            statement = "SELECT min(wake_at) FROM tasks WHERE status = 'working' AND wake_at > ?"
            found: float | None = database.execute(statement, (now,)).fetchone()[0]
            return found

        return await self._database.run(due)

    async def list(
        self, *, principal: str | None = None, status: str | None = None, after: str = "", most: int = 100
    ) -> list[Task]:
        """Tasks by id."""
        where = (
            "id > ?" + (" AND principal = ?" if principal is not None else "") + (" AND status = ?" if status else "")
        )
        values = [after, *(() if principal is None else (principal,)), *((status,) if status else ()), most]

        def rows(database: sqlite3.Connection) -> list[Task]:
            found = database.execute(f"SELECT {_FACTS} FROM tasks WHERE {where} ORDER BY id LIMIT ?", values)
            return [_task(row) for row in found]

        return await self._database.run(rows)

    async def counts(self, now: float) -> Mapping[str, tuple[int, float]]:
        """How many tasks there are of each status, and the age of the oldest."""

        def counts(database: sqlite3.Connection) -> dict[str, tuple[int, float]]:
            rows = database.execute("SELECT status, count(*), min(created) FROM tasks GROUP BY status")
            return {status: (count, max(0.0, now - oldest)) for status, count, oldest in rows}

        return await self._database.run(counts)

    async def purge(self, now: float) -> int:
        """Forget tasks that are over their time."""

        def purge(database: sqlite3.Connection) -> int:
            old = "SELECT id FROM tasks WHERE ttl IS NOT NULL AND created + ttl <= ?"
            for table in ("task_entries", "task_answers"):
                database.execute(f"DELETE FROM {table} WHERE task IN ({old})", (now,))
            return database.execute("DELETE FROM tasks WHERE ttl IS NOT NULL AND created + ttl <= ?", (now,)).rowcount

        return await self._database.run(purge)

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()


def _get(database: sqlite3.Connection, task_id: str, principal: str | None) -> Task | None:
    statement = f"SELECT {_FACTS} FROM tasks WHERE id = :id AND (:who IS NULL OR principal = :who)"
    row = database.execute(statement, {"id": task_id, "who": principal}).fetchone()
    return None if row is None else _task(row)


def _task(row: Any) -> Task:
    facts = list(row)
    facts[9] = tuple(json.loads(facts[9]))
    return Task(*facts)


def _free(database: sqlite3.Connection, limits: Limits, now: float) -> list[str]:
    """The tools of which one more may be played."""
    if not limits.most:
        return list(limits.tools)
    rows = database.execute(
        "SELECT tool, count(*) FROM tasks WHERE status = 'working' AND leased_until > ? GROUP BY tool", (now,)
    )
    running = dict(rows.fetchall())
    return [tool for tool in limits.tools if running.get(tool, 0) < limits.most.get(tool, 1 << 30)]


def _claimed(database: sqlite3.Connection, task_id: str) -> Claim:
    statement = "SELECT id, epoch, tool, principal, call, state, wake_at FROM tasks WHERE id = ?"
    found: Any = database.execute(statement, (task_id,)).fetchone()
    entries = database.execute("SELECT key, entry FROM task_entries WHERE task = ? ORDER BY number", (task_id,))
    answers = database.execute("SELECT key, answer FROM task_answers WHERE task = ?", (task_id,))
    name, epoch, tool, principal, call, state, woken = found
    return Claim(name, epoch, tool, principal, call, state, entries.fetchall(), dict(answers.fetchall()), woken)


def _held(database: sqlite3.Connection, claim: Claim, until: float | None = None) -> bool:
    """Whether a task that is still this claim's is to be stopped; LostLease where it is not."""
    row = database.execute("SELECT epoch, status, owner, cancelling FROM tasks WHERE id = ?", (claim.id,)).fetchone()
    if row is None or row[0] != claim.epoch or row[1] != "working" or row[2] is None:
        raise LostLease(claim.id)
    if until is not None:
        database.execute("UPDATE tasks SET leased_until = ? WHERE id = ?", (until, claim.id))
    return bool(row[3])


def _leave(database: sqlite3.Connection, claim: Claim, state: bytes, now: float) -> None:
    """The ledger as the leg leaves it; what went into it is not needed any more."""
    database.execute(
        "UPDATE tasks SET state = ?, updated = ?, owner = NULL, leased_until = 0 WHERE id = ?", (state, now, claim.id)
    )
    _clear(database, claim.id)


def _end(
    database: sqlite3.Connection, task_id: str, status: str, payload: bytes | None, message: str | None, now: float
) -> None:
    database.execute(
        "UPDATE tasks SET status = ?, payload = ?, message = coalesce(?, message), updated = ?, waits = '[]', "
        "owner = NULL, leased_until = 0, cancelling = 0 WHERE id = ?",
        (status, payload, message, now, task_id),
    )
    _clear(database, task_id)


def _clear(database: sqlite3.Connection, task_id: str) -> None:
    database.execute("DELETE FROM task_entries WHERE task = ?", (task_id,))
    database.execute("DELETE FROM task_answers WHERE task = ?", (task_id,))
