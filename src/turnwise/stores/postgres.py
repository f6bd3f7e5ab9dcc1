"""A store for instances on any number of machines, and the one for money: PostgreSQL, by way of asyncpg.

The room knows two tables and how to take a row before anybody else does. It is the only one that needs asyncpg (the
extra `turnwise[postgres]`), so nothing else imports it.
"""

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any, Final

from .._guards import Begun, Known, Running
from ..errors import CallerError

try:
    import asyncpg
except ImportError as missing:
    raise ImportError("PostgresStore needs asyncpg, which comes with the extra turnwise[postgres]") from missing

if TYPE_CHECKING:
    Pool = asyncpg.Pool[asyncpg.Record]

PURGE_EVERY = 1000
PURGE_MOST = 5000
LONGEST: Final = 100 * 365 * 24 * 3600.0
"""Seconds: a `ttl` may be infinite, a date may not."""
CONNECT_SECONDS, COMMAND_SECONDS, CLOSE_SECONDS = 10.0, 30.0, 5.0
PAUSES = (0.0, 0.2, 1.0)
"""Seconds before each new attempt: the first for a connection that died unnoticed, the others for a quick restart."""
_LOCK: Final = 0x7475726E77697365
_PREFIX = re.compile(r"([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,39}")
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_PASSING = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.SerializationError,
    asyncpg.InternalClientError,  # What the server said as it closed an idle connection, read in the wrong place.
    OSError,
)

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
    unless `prefix` says otherwise ("schema.prefix_" is understood), are made by the first use; where your role may not
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
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"prefix= begins the names of tables: lower case letters, digits and _, not {prefix!r}")
        if isinstance(dsn_or_pool, str):
            self._dsn, self._given = dsn_or_pool, None
        else:
            self._dsn, self._given = "", dsn_or_pool
        self._prefix = prefix
        self._pool_size = pool_size
        self._statement_cache_size = statement_cache_size
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._is_made = False
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
        pool, self._pool = self._pool, None
        if pool is None or pool is self._given or self._loop is not asyncio.get_running_loop():
            return
        try:
            await asyncio.wait_for(pool.close(), CLOSE_SECONDS)
        except _ERRORS:
            pool.terminate()

    async def _purge_some(self) -> int:
        rows = [await self._row(_PURGE.replace("{1}", table), PURGE_MOST) for table in ("guards", "blobs")]
        return sum(int(row[0]) for row in rows)

    async def _row(self, statement: str, *arguments: Any) -> Any:
        """The row that one statement gives, if any. CallerError where the database cannot be used."""
        pauses = iter(PAUSES)
        while True:
            try:
                pool = await self._opened()
                return await pool.fetchrow(statement.replace("{0}", self._prefix), *arguments)
            except _ERRORS as error:
                pause = next(pauses, None)
                if pause is None or not isinstance(error, _PASSING) or isinstance(error, TimeoutError):
                    reason = str(error) or type(error).__name__
                    raise CallerError(f"the store in PostgreSQL cannot be used: {reason}") from error
            await asyncio.sleep(pause)

    async def _opened(self) -> "Pool":
        """The pool, with the tables in place."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # Connections belong to the loop that opened them.
            self._loop, self._lock, self._pool = loop, asyncio.Lock(), None
        if self._pool is not None and self._is_made:
            return self._pool
        async with self._lock:
            if self._pool is None:
                self._pool = self._given or await self._connected()
            if not self._is_made:
                await _make(self._pool, self._prefix)
                self._is_made = True
            return self._pool

    async def _connected(self) -> "Pool":
        # Nothing here leaves a trace in a session, so none is wiped when a connection goes back: one trip, not two.
        return await asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._pool_size,
            timeout=CONNECT_SECONDS,
            command_timeout=COMMAND_SECONDS,
            statement_cache_size=self._statement_cache_size,
            reset=_keep,
        )


async def _keep(connection: Any) -> None:
    """Let a connection be as it is."""


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
