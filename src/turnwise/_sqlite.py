"""SQLite for several processes on one machine: one connection, off the event loop.

A commit waits for the disk, and most of what a store costs is that wait. So calls that come while a commit is under way
are done together in the next transaction, each behind a savepoint of its own: one that fails undoes itself and nobody
else, and none is told its result before the commit that holds it.
"""

import asyncio
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .errors import CallerError

T = TypeVar("T")

BUSY_SECONDS = 30.0
MOST_TOGETHER = 128
"""Calls in one transaction: other processes wait for its end."""


class _Waiting(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    future: "asyncio.Future[Any]"
    is_soft: bool


class Database:
    """A file that only its owner may read, made when it is first used."""

    def __init__(
        self, path: str | Path, schema: str, migrate: Callable[[sqlite3.Connection], None] | None = None
    ) -> None:
        self.path = Path(path)
        self._schema = schema
        self._migrate = migrate
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_soft = False
        self._queue_lock = threading.Lock()
        self._queue: deque[_Waiting] = deque()
        self._is_draining = False
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T], *, is_soft: bool = False) -> T:
        """All of this work, or nothing, in a thread. CallerError where the file cannot be used.

        What is soft may be forgotten when the machine dies, though not when the process does: it waits for no disk.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._queue_lock:
            self._queue.append(_Waiting(work, future, is_soft))
            if not self._is_draining:
                self._is_draining = True
                self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="turnwise-sqlite")
                self._thread.submit(self._drain)
        return await future

    async def aclose(self) -> None:
        """Close the file. It is opened again by the next use."""

        def close() -> None:
            with self._lock:
                if self._connection is not None:
                    self._connection.close()
                self._connection = None

        await asyncio.to_thread(close)
        with self._queue_lock:
            if self._thread is not None and not self._is_draining:
                self._thread.shutdown(wait=False)
                self._thread = None

    def _drain(self) -> None:
        """Do what waits, until nothing does."""
        while True:
            with self._queue_lock:
                batch = [self._queue.popleft() for _ in range(min(len(self._queue), MOST_TOGETHER))]
                self._is_draining = bool(batch)
            if not batch:
                return
            batch = [waiting for waiting in batch if not waiting.future.cancelled()]
            with self._lock:
                outcomes = self._done(batch)
            _tell(batch, outcomes)

    def _done(self, batch: list[_Waiting]) -> list[tuple[Any, BaseException | None]]:
        """What each work gives or raises; the same error for all where the transaction failed."""
        try:
            return self._committed(batch)
        except Exception as error:  # Whatever it is, those who wait have to hear of it.
            return [(None, self._named(error))] * len(batch)

    def _committed(self, batch: list[_Waiting]) -> list[tuple[Any, BaseException | None]]:
        connection = self._connection = self._connection or self._open()
        if (is_soft := all(waiting.is_soft for waiting in batch)) != self._is_soft:
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if is_soft else 'FULL'}")
            self._is_soft = is_soft
        connection.execute("BEGIN IMMEDIATE")
        try:
            outcomes = [self._tried(connection, waiting.work) for waiting in batch]
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return outcomes

    def _tried(
        self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], Any]
    ) -> tuple[Any, BaseException | None]:
        connection.execute("SAVEPOINT work")
        try:
            result = work(connection)
        except BaseException as error:  # It is the caller's, who gets it after the commit.
            if not connection.in_transaction:  # A full disk, for one, ends the whole transaction.
                raise sqlite3.OperationalError(str(error)) from error
            connection.execute("ROLLBACK TO work")
            connection.execute("RELEASE work")
            return None, self._named(error)
        connection.execute("RELEASE work")
        return result, None

    def _named(self, error: BaseException) -> BaseException:
        if not isinstance(error, sqlite3.Error | OSError):
            return error
        found = CallerError(f"the store {self.path} cannot be used: {error}")
        found.__cause__ = error
        return found

    def _open(self) -> sqlite3.Connection:
        if str(self.path) != ":memory:":
            # Only where there is none: to close a file that SQLite has open would drop this process's locks on it.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _log_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            self._is_soft = False
            connection.executescript(self._schema)
            if self._migrate is not None:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    self._migrate(connection)
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def migrated(database: sqlite3.Connection, table: str, versions: Sequence[str]) -> None:
    """Bring an older file up to date, by the scripts that make each version out of the one before; a newer one is not
    touched. `table` has the version of the file.
    """
    row = database.execute(f"SELECT version FROM {table}").fetchone()
    version, latest = 0 if row is None else row[0], len(versions)
    if version > latest:
        raise sqlite3.DatabaseError(f"it was written by a later version (schema {version}, this one knows {latest})")
    for script in versions[version:]:
        for statement in script.split(";"):
            database.execute(statement)
    if version < latest:
        database.execute(f"DELETE FROM {table}")
        database.execute(f"INSERT INTO {table} VALUES (?)", (latest,))


def _tell(batch: list[_Waiting], outcomes: list[tuple[Any, BaseException | None]]) -> None:
    """Hand out what came of it: one call into each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any, BaseException | None]]] = {}
    for waiting, (result, error) in zip(batch, outcomes, strict=True):
        by_loop.setdefault(waiting.future.get_loop(), []).append((waiting.future, result, error))
    for loop, told in by_loop.items():
        with suppress(RuntimeError):  # The loop was closed meanwhile, and nobody waits.
            loop.call_soon_threadsafe(_settle, told)


def _settle(told: "list[tuple[asyncio.Future[Any], Any, BaseException | None]]") -> None:
    for future, result, error in told:
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging: the one statement that does not wait while others do the same."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(0.005)
