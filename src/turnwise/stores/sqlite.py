"""A store for several processes on one machine."""

import sqlite3
import time
from pathlib import Path

from .._guards import Begun, Known, Running
from .._sqlite import Database

PURGE_EVERY = 1000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS guards (key TEXT PRIMARY KEY, record BLOB, until REAL NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS guards_until ON guards (until);
CREATE TABLE IF NOT EXISTS blobs (key TEXT PRIMARY KEY, blob BLOB NOT NULL, until REAL NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS blobs_until ON blobs (until);
"""


class SQLiteStore:
    """Guards and large entries in one file. What is over its time is dropped now and then."""

    def __init__(self, path: str | Path) -> None:
        self._database = Database(path, _SCHEMA)
        self._begun = 0

    async def begin(self, key: str, ttl: float) -> Begun | Running | Known:
        """Begin something, unless somebody has."""
        self._begun += 1
        now, purges = time.time(), self._begun % PURGE_EVERY == 0

        def begin(database: sqlite3.Connection) -> Begun | Running | Known:
            if purges:
                _purge(database, now)
            found = _find(database, key, now)
            if found is not None:
                return found
            database.execute("INSERT OR REPLACE INTO guards VALUES (?, NULL, ?)", (key, now + ttl))
            return Begun()

        return await self._database.run(begin)

    async def finish(self, key: str, record: bytes, ttl: float) -> None:
        """Say what came of it."""
        row = (key, record, time.time() + ttl)
        await self._database.run(
            lambda database: database.execute("INSERT OR REPLACE INTO guards VALUES (?, ?, ?)", row)
        )

    async def find(self, key: str) -> Running | Known | None:
        """What is known of it."""
        return await self._database.run(lambda database: _find(database, key, time.time()))

    async def put(self, key: str, blob: bytes, ttl: float) -> None:
        """Keep a blob."""
        row = (key, blob, time.time() + ttl)
        await self._database.run(
            lambda database: database.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?)", row)
        )

    async def get(self, key: str) -> bytes | None:
        """A blob."""

        def get(database: sqlite3.Connection) -> bytes | None:
            statement = "SELECT blob FROM blobs WHERE key = ? AND until > ?"
            row = database.execute(statement, (key, time.time())).fetchone()
            return None if row is None else bytes(row[0])

        return await self._database.run(get)

    async def purge(self) -> int:
        """Forget what is over its time."""
        return await self._database.run(lambda database: _purge(database, time.time()))

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()


def _find(database: sqlite3.Connection, key: str, now: float) -> Running | Known | None:
    row = database.execute("SELECT record FROM guards WHERE key = ? AND until > ?", (key, now)).fetchone()
    if row is None:
        return None
    return Running() if row[0] is None else Known(bytes(row[0]))


def _purge(database: sqlite3.Connection, now: float) -> int:
    return sum(
        database.execute(f"DELETE FROM {table} WHERE until <= ?", (now,)).rowcount for table in ("guards", "blobs")
    )
