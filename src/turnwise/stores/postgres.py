"""A store for instances on any number of machines, and the one for money: PostgreSQL, by way of asyncpg.

The room knows two tables and how to take a row before anybody else does.
"""

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .._guards import Begun, Known, Running
from .._postgres import Database

if TYPE_CHECKING:
    from .._postgres import Pool

PURGE_EVERY = 1000
PURGE_MOST = 5000
LONGEST: Final = 100 * 365 * 24 * 3600.0
"""Seconds: a `ttl` may be infinite, a date may not."""
_LOCK: Final = 0x7475726E77697365

_SCHEMA = """
CREATE TABLE IF NOT EXISTS {0}guards (key bytea PRIMARY KEY, claim bytea, record bytea, until timestamptz NOT NULL);
CREATE INDEX ON {0}guards (until);
CREATE TABLE IF NOT EXISTS {0}blobs (key bytea PRIMARY KEY, blob bytea NOT NULL, until timestamptz NOT NULL);
CREATE INDEX ON {0}blobs (until);
"""
_IS_MADE = "SELECT to_regclass('{0}guards') IS NOT NULL AND to_regclass('{0}blobs') IS NOT NULL"
_UNTIL = "now() + $3::float8 * interval '1 second'"

# What is there is only read, so that those who wait for it write nothing. The claim tells an attempt that is made
# again, because its reply was lost, from somebody else's.
_BEGIN = f"""
WITH found AS (
    SELECT claim, record FROM {{0}}guards WHERE key = $1::bytea AND until > now()
), begun AS (
    INSERT INTO {{0}}guards AS guard (key, claim, until)
    SELECT $1::bytea, $2::bytea, {_UNTIL} WHERE NOT EXISTS (SELECT FROM found)
    ON CONFLICT (key) DO UPDATE SET claim = excluded.claim, record = NULL, until = excluded.until
    WHERE guard.until <= now()
    RETURNING TRUE
)
SELECT TRUE, NULL::bytea FROM begun
UNION ALL
SELECT record IS NULL AND claim = $2, record FROM found
"""
_FINISH = f"""
INSERT INTO {{0}}guards (key, record, until) VALUES ($1, $2, {_UNTIL})
ON CONFLICT (key) DO UPDATE SET record = excluded.record, until = excluded.until
"""
_FIND = "SELECT record FROM {0}guards WHERE key = $1 AND until > now()"
_PUT = f"""
INSERT INTO {{0}}blobs (key, blob, until) VALUES ($1, $2, {_UNTIL})
ON CONFLICT (key) DO UPDATE SET blob = excluded.blob, until = excluded.until
"""
_GET = "SELECT blob FROM {0}blobs WHERE key = $1 AND until > now()"
# Rows that somebody holds are left for the next time: two who purge neither wait for each other nor deadlock.
_PURGE = """
WITH old AS (
    DELETE FROM {0}{1} WHERE key = ANY (ARRAY (
        SELECT key FROM {0}{1} WHERE until <= now() ORDER BY until LIMIT $1 FOR UPDATE SKIP LOCKED
    )) RETURNING 1
)
SELECT count(*) FROM old
"""


class PostgresStore:
    """Guards and large entries in two tables of a database that you run already.

    Give it a DSN, or a pool of asyncpg that stays yours to close. The tables, `turnwise_guards` and `turnwise_blobs`
    unless `prefix` says otherwise (`schema.prefix_` is understood), are made by the first use; where your role may not
    create tables, let one that may use the store once. All times are the database's. A pooler that gives every
    transaction another connection, such as PgBouncer, wants `statement_cache_size=0`.
    """

    def __init__(
        self,
        dsn_or_pool: "str | Pool",
        *,
        prefix: str = "turnwise_",
        pool_size: int = 4,
        statement_cache_size: int = 100,
    ) -> None:
        self._database = Database(
            dsn_or_pool,
            partial(_make, prefix=prefix),
            prefix=prefix,
            pool_size=pool_size,
            statement_cache_size=statement_cache_size,
        )
        self._begun = 0

    async def begin(self, key: str, ttl: float) -> Begun | Running | Known:
        """Begin something, unless somebody has."""
        self._begun += 1
        if self._begun % PURGE_EVERY == 0:
            await self._purge_some()
        arguments = (key.encode(), os.urandom(16), min(ttl, LONGEST))
        # Nothing comes back where somebody began it after this statement had looked: the next one sees it.
        while (row := await self._row(_BEGIN, *arguments)) is None:
            pass
        return Begun() if row[0] else _told(row[1])

    async def finish(self, key: str, record: bytes, ttl: float) -> None:
        """Say what came of it."""
        await self._row(_FINISH, key.encode(), record, min(ttl, LONGEST))

    async def find(self, key: str) -> Running | Known | None:
        """What is known of it."""
        row = await self._row(_FIND, key.encode())
        return None if row is None else _told(row[0])

    async def put(self, key: str, blob: bytes, ttl: float) -> None:
        """Keep a blob."""
        await self._row(_PUT, key.encode(), blob, min(ttl, LONGEST))

    async def get(self, key: str) -> bytes | None:
        """A blob."""
        row = await self._row(_GET, key.encode())
        return None if row is None else bytes(row[0])

    async def purge(self) -> int:
        """Forget what is over its time."""
        count = 0
        while some := await self._purge_some():
            count += some
        return count

    async def aclose(self) -> None:
        """Close the connections, unless the pool is yours. The next use opens new ones."""
        await self._database.aclose()

    async def _purge_some(self) -> int:
        rows = [await self._row(_PURGE.replace("{1}", table), PURGE_MOST) for table in ("guards", "blobs")]
        return sum(int(row[0]) for row in rows)

    async def _row(self, statement: str, *arguments: Any) -> Any:
        return await self._database.row(statement, *arguments)


async def _make(pool: "Pool", prefix: str) -> None:
    """Create the tables, once, whoever else is about to. The lock ends with the transaction, so poolers do not mind."""
    if await pool.fetchval(_IS_MADE.format(prefix)):
        return
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})")
        if not await connection.fetchval(_IS_MADE.format(prefix)):
            await connection.execute(_SCHEMA.format(prefix))


def _told(record: bytes | None) -> Running | Known:
    return Running() if record is None else Known(bytes(record))
