"""SQLite for several processes on one machine: one connection, one transaction at a time, off the event loop."""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from .errors import CallerError

T = TypeVar("T")

BUSY_SECONDS = 30.0


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

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """One transaction, in a thread: all of it, or nothing. CallerError where the file cannot be used."""

        def run() -> T:
            with self._lock:
                try:
                    self._connection = self._connection or self._open()
                    with self._connection:
                        self._connection.execute("BEGIN IMMEDIATE")
                        return work(self._connection)
                except (sqlite3.Error, OSError) as error:
                    raise CallerError(f"the store {self.path} cannot be used: {error}") from error

        return await asyncio.to_thread(run)

    async def aclose(self) -> None:
        """Close the file. It is opened again by the next use."""

        def close() -> None:
            with self._lock:
                if self._connection is not None:
                    self._connection.close()
                self._connection = None

        await asyncio.to_thread(close)

    def _open(self) -> sqlite3.Connection:
        if str(self.path) != ":memory:":
            # Only where there is none: to close a file that SQLite has open would drop this process's locks on it.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _log_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(self._schema)
            if self._migrate is not None:
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    self._migrate(connection)
        except sqlite3.Error:
            connection.close()
            raise
        return connection


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
