"""Calls that wait for a person, in an SQLite file that several processes share.

Every change is one transaction that names the revision it was made from, so of two processes that answer the same
question one wins and the other is told. A call that is being carried on is claimed for a while: if its process dies,
another one may take it when the claim runs out.
"""

import logging
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ._pending import Pending
from ._sqlite import Database
from .errors import AlreadyAnswered, BeingCarriedOn, CallerError, UnknownPending

log = logging.getLogger("turnwise.client")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pending (
    id TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    asked REAL NOT NULL,
    claimed_until REAL NOT NULL DEFAULT 0,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS pending_asked ON pending (asked);
"""


class SQLitePendingStore:
    """A store in one file, which only its owner may read: it holds answers and the servers' states."""

    def __init__(self, path: str | Path) -> None:
        self._database = Database(path, _SCHEMA)

    async def keep(self, pending: Pending) -> Pending:
        """Keep a call, or what has become of it, and end its claim."""

        def keep(database: sqlite3.Connection) -> Pending:
            row = database.execute("SELECT revision FROM pending WHERE id = ?", (pending.id,)).fetchone()
            if row is None and pending.revision:
                raise UnknownPending(pending.id)
            if row is not None and row[0] != pending.revision:
                raise AlreadyAnswered(pending.id, "it was changed meanwhile")
            return _write(database, replace(pending, revision=pending.revision + 1))

        return await self._database.run(keep)

    async def list(self) -> "list[Pending]":
        """All calls that wait, those first that were asked first. One that cannot be read hides none of the others."""
        rows: list[tuple[str, str]] = await self._database.run(
            lambda database: database.execute("SELECT id, body FROM pending ORDER BY asked, id").fetchall()
        )
        found = []
        for pending_id, body in rows:
            try:
                found.append(Pending.from_json(body, raw_questions=True))
            except CallerError as error:
                log.error("call %s cannot be read, and is passed over: %s", pending_id, error)
        return found

    async def get(self, pending_id: str) -> Pending:
        """One call."""
        return await self._database.run(lambda database: _read(database, pending_id)[0])

    async def answer(self, pending_id: str, answers: Mapping[str, Any], *, round: int | None = None) -> Pending:
        """Add answers, unless one of these questions has an answer or the call is being carried on."""

        def answer(database: sqlite3.Connection) -> Pending:
            pending, claimed_until = _read(database, pending_id)
            if claimed_until > time.time():
                raise BeingCarriedOn(pending_id, "somebody is carrying it on")
            if round not in (None, pending.round):
                raise AlreadyAnswered(pending_id, "it has gone on to other questions")
            if taken := sorted(answers.keys() & pending.answers.keys()):
                raise AlreadyAnswered(pending_id, f"{', '.join(taken)} has an answer already")
            return _write(database, replace(pending.answered(answers), revision=pending.revision + 1))

        return await self._database.run(answer)

    async def claim(self, pending_id: str, seconds: float) -> Pending:
        """Take a call, so that nobody else carries it on for so long."""

        def claim(database: sqlite3.Connection) -> Pending:
            pending, claimed_until = _read(database, pending_id)
            if claimed_until > time.time():
                raise BeingCarriedOn(pending_id, "somebody is carrying it on")
            taken = replace(pending, revision=pending.revision + 1)
            return _write(database, taken, time.time() + seconds)

        return await self._database.run(claim)

    async def renew(self, pending: Pending, seconds: float) -> None:
        """Hold a claim for longer, unless somebody else has the call by now."""
        statement = "UPDATE pending SET claimed_until = ? WHERE id = ? AND revision = ?"
        values = (time.time() + seconds, pending.id, pending.revision)
        if await self._database.run(lambda database: database.execute(statement, values).rowcount) == 0:
            raise AlreadyAnswered(pending.id, "the claim was lost")

    async def forget(self, pending_id: str) -> bool:
        """Drop a call; whether it was there."""
        statement = "DELETE FROM pending WHERE id = ?"
        return await self._database.run(lambda database: database.execute(statement, (pending_id,)).rowcount > 0)

    async def expire(self, older_than: float) -> int:
        """Drop the calls that were asked more than so many seconds ago; how many those were."""
        statement, limit = "DELETE FROM pending WHERE asked < ?", time.time() - older_than
        return await self._database.run(lambda database: database.execute(statement, (limit,)).rowcount)

    async def aclose(self) -> None:
        """Close the file. It is opened again by the next use."""
        await self._database.aclose()


def _read(database: sqlite3.Connection, pending_id: str) -> tuple[Pending, float]:
    statement = "SELECT body, claimed_until FROM pending WHERE id = ?"
    row = database.execute(statement, (pending_id,)).fetchone()
    if row is None:
        raise UnknownPending(pending_id)
    return Pending.from_json(row[0], raw_questions=True), row[1]


def _write(database: sqlite3.Connection, pending: Pending, claimed_until: float = 0) -> Pending:
    database.execute(
        "INSERT INTO pending (id, revision, asked, claimed_until, body) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, asked = excluded.asked, "
        "claimed_until = excluded.claimed_until, body = excluded.body",
        (pending.id, pending.revision, pending.asked, claimed_until, pending.to_json()),
    )
    return pending
