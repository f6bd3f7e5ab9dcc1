"""PostgreSQL for instances on any number of machines: a pool, statements that survive a restart, and an ear.

The only room that needs asyncpg (the extra `turnwise[postgres]`), so only stores import it.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import CallerError

try:
    import asyncpg
except ImportError as missing:
    raise ImportError("PostgreSQL is reached by asyncpg, which comes with the extra turnwise[postgres]") from missing

if TYPE_CHECKING:
    Pool = asyncpg.Pool[asyncpg.Record]

log = logging.getLogger("turnwise.stores")
T = TypeVar("T")

CONNECT_SECONDS, COMMAND_SECONDS, CLOSE_SECONDS = 10.0, 30.0, 5.0
PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 2.0)
"""Seconds before each new attempt: the first for a connection that died unnoticed, the others for a restart."""
LISTEN_AGAIN_SECONDS, PROBE_SECONDS = 0.5, 30.0
_PREFIX = re.compile(r"([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,39}")
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
_PASSING = (
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.TransactionRollbackError,
    asyncpg.InternalClientError,  # What the server said as it closed an idle connection, read in the wrong place.
    OSError,
)
AHEAD = "extract(epoch FROM clock_timestamp())::float8"
"""Less the clock of who asks: by how much the database's is ahead of it. What somebody holds is held by one clock."""


class Database:
    """Tables of ours in a database of yours. In statements, `{0}` begins their names.

    `make` is called once, before the first statement, to put the tables in place.
    """

    def __init__(
        self,
        dsn_or_pool: "str | Pool",
        make: "Callable[[Pool], Awaitable[None]]",
        *,
        prefix: str,
        pool_size: int,
        statement_cache_size: int,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise ValueError(f"prefix= begins the names of tables: lower case letters, digits and _, not {prefix!r}")
        if isinstance(dsn_or_pool, str):
            self._dsn, self._given = dsn_or_pool, None
        else:
            self._dsn, self._given = "", dsn_or_pool
        self.prefix = prefix
        self._make = make
        self._pool_size = pool_size
        self._statement_cache_size = statement_cache_size
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._is_made = False

    async def row(self, statement: str, *arguments: Any) -> Any:
        """The row that one statement gives, if any. CallerError where the database cannot be used."""
        statement = statement.replace("{0}", self.prefix)
        return await self.using(lambda pool: pool.fetchrow(statement, *arguments))

    async def rows(self, statement: str, *arguments: Any) -> list[Any]:
        """All the rows that one statement gives."""
        statement = statement.replace("{0}", self.prefix)
        return await self.using(lambda pool: pool.fetch(statement, *arguments))

    async def within(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Several statements, all or none. Each sees what others had committed when it began."""

        async def transact(pool: "Pool") -> T:
            async with pool.acquire() as connection, connection.transaction(isolation="read_committed"):
                return await work(connection)

        return await self.using(transact)

    async def using(self, attempt: "Callable[[Pool], Awaitable[T]]") -> T:
        """What an attempt gives; it is made again where the database went away for a moment."""
        pauses = iter(PAUSES)
        while True:
            try:
                return await attempt(await self._opened())
            except _ERRORS as error:
                pause = next(pauses, None)
                if pause is None or not is_passing(error) or isinstance(error, TimeoutError):
                    raise CallerError(f"the store in PostgreSQL cannot be used: {_reason(error)}") from error
            await asyncio.sleep(pause)

    async def hear(self, channel: str, heard: Callable[[str], None]) -> None:
        """Until cancelled, call for each notification on a channel; and with "" where some may have been missed."""
        while True:
            try:
                async with (await self._opened()).acquire() as connection:
                    await self._heard_out(connection, channel, heard)
            except _ERRORS as error:
                log.info("PostgreSQL cannot be listened to at the moment: %s", _reason(error))
            await asyncio.sleep(LISTEN_AGAIN_SECONDS)

    async def aclose(self) -> None:
        """Close the connections, unless the pool is yours. The next use opens new ones."""
        pool, self._pool = self._pool, None
        if pool is None or pool is self._given or self._loop is not asyncio.get_running_loop():
            return
        try:
            await asyncio.wait_for(pool.close(), CLOSE_SECONDS)
        except _ERRORS:
            pool.terminate()

    async def _heard_out(self, connection: Any, channel: str, heard: Callable[[str], None]) -> None:
        is_lost = asyncio.Event()

        def lose(_: Any) -> None:
            is_lost.set()

        def relay(_: Any, __: int, ___: str, message: object) -> None:
            heard(str(message))

        connection.add_termination_listener(lose)
        await connection.add_listener(channel, relay)
        try:
            heard("")
            while not is_lost.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(PROBE_SECONDS):
                        await is_lost.wait()
                    return
                await connection.execute("SELECT 1", timeout=CONNECT_SECONDS)
        finally:
            if not connection.is_closed():
                connection.remove_termination_listener(lose)
                await connection.remove_listener(channel, relay)

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
                await self._make(self._pool)
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


async def migrated(connection: Any, schema: str, versions: Sequence[str]) -> None:
    """Bring tables up to date, by the scripts that make each version out of the one before; those of a later version
    are not touched. `schema` is the table that has their version.
    """
    latest = len(versions)
    if is_new := await connection.fetchval(f"SELECT to_regclass('{schema}') IS NULL"):
        await connection.execute(f"CREATE TABLE {schema} (version integer NOT NULL)")
    version = 0 if is_new else await connection.fetchval(f"SELECT version FROM {schema}")
    if version > latest:
        told = f"its tables are of a later version (schema {version}, this one knows {latest})"
        raise CallerError(f"the store in PostgreSQL cannot be used: {told}")
    for script in versions[version:]:
        await connection.execute(script)
    if version < latest:
        await connection.execute(f"DELETE FROM {schema}")
        await connection.execute(f"INSERT INTO {schema} VALUES ({latest})")


def is_passing(error: BaseException | None) -> bool:
    """Whether the database is away, or busy, rather than asked for something wrong."""
    return isinstance(error, _PASSING)


async def _keep(connection: Any) -> None:
    """Let a connection be as it is."""


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
