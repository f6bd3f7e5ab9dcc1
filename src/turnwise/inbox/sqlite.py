"""An inbox in an SQLite file, for processes of one machine."""

import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._sqlite import Database, migrated
from ..errors import AlreadyAnswered, UnknownPending
from .model import PLACE, RESEAL_MOST, Hook, Item, Page, Shut, Unreadable, Wanted
from .paging import Cut, page
from .records import BEGINNING, Records, Row, Seen
from .sharing import PendingView

if TYPE_CHECKING:
    from .model import InboxStore

_SCHEMA = "CREATE TABLE IF NOT EXISTS inbox_schema (version INTEGER NOT NULL) STRICT"
_VERSIONS = (
    """
CREATE TABLE inbox_items (
    id TEXT PRIMARY KEY, revision INTEGER NOT NULL, status TEXT NOT NULL, is_ended INTEGER NOT NULL,
    server TEXT NOT NULL, target TEXT NOT NULL, caller TEXT NOT NULL, questions INTEGER NOT NULL, asked REAL NOT NULL,
    until REAL, changed REAL NOT NULL, is_task INTEGER NOT NULL, due REAL, headline BLOB NOT NULL, body BLOB NOT NULL,
    claim TEXT, claimed_until REAL NOT NULL DEFAULT 0, mark INTEGER NOT NULL
) STRICT;
CREATE INDEX inbox_asked ON inbox_items (asked, id) WHERE is_ended = 0;
CREATE INDEX inbox_changed ON inbox_items (changed, id);
CREATE INDEX inbox_ended ON inbox_items (changed, id) WHERE is_ended = 1;
CREATE INDEX inbox_status ON inbox_items (status, caller);
CREATE INDEX inbox_due ON inbox_items (due) WHERE due IS NOT NULL;
CREATE INDEX inbox_mark ON inbox_items (mark);
CREATE TABLE inbox_hooks (
    id TEXT PRIMARY KEY, made REAL NOT NULL, due REAL NOT NULL, tries INTEGER NOT NULL, body BLOB NOT NULL,
    claimed_until REAL NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX inbox_hooks_due ON inbox_hooks (due);
CREATE TABLE inbox_sessions (name TEXT PRIMARY KEY, body BLOB NOT NULL, until REAL NOT NULL) STRICT;
CREATE TABLE inbox_marks (mark INTEGER NOT NULL) STRICT;
INSERT INTO inbox_marks VALUES (0)
""",
)
"""What makes each version of the tables out of the one before."""
_SEEN = ", ".join(Seen._fields)
_COLUMNS = ", ".join(Row._fields)
_MARKS = ", ".join("?" * len(Row._fields))
_SET = ", ".join(f"{name} = excluded.{name}" for name in Row._fields if name != "id")
PURGE_MOST = 50
"""Items that are forgotten together: others wait for the store meanwhile."""
UNREADABLE_PAUSE = 300.0
"""Seconds for which an item is left alone that cannot be read: its key may come."""


class SQLiteInboxStore:
    """Items in one file, which only its owner may read. `keys` seal what is secret: the first seals, all open."""

    def __init__(self, path: str | Path, keys: Sequence[bytes | bytearray | str]) -> None:
        self._database = Database(path, _SCHEMA, migrate=lambda database: migrated(database, "inbox_schema", _VERSIONS))
        self._records = Records(keys)

    def pending(self, caller: str, **options: Any) -> PendingView:
        """The same calls, as a client's `pending_store` keeps them."""
        store: InboxStore = self
        return PendingView(store, caller, **options)

    async def add(self, item: Item, tell: Sequence[Hook] = ()) -> Item:
        """Keep a new item."""

        def add(database: sqlite3.Connection) -> Item:
            if database.execute("SELECT 1 FROM inbox_items WHERE id = ?", (item.id,)).fetchone():
                raise AlreadyAnswered(item.id, "there is one with this id already")
            return self._written(database, item, tell)

        return await self._database.run(add)

    async def put(self, item: Item, tell: Sequence[Hook] = ()) -> Item:
        """Keep what has become of an item."""

        def put(database: sqlite3.Connection) -> Item:
            row = database.execute("SELECT revision FROM inbox_items WHERE id = ?", (item.id,)).fetchone()
            if row is None:
                raise UnknownPending(item.id)
            if row[0] != item.revision:
                raise AlreadyAnswered(item.id, "it was changed meanwhile")
            return self._written(database, item, tell, "claim = NULL, claimed_until = 0")

        return await self._database.run(put)

    async def answer(
        self, item_id: str, answers: Mapping[str, Any], *, round: int | None, by: str, now: float, delay: float = 0.0
    ) -> Item:
        """Add answers, unless somebody was first."""

        def answer(database: sqlite3.Connection) -> Item:
            item = self._read(database, item_id)
            number = item.round if round is None else round
            return self._written(database, item.answered(answers, round=number, by=by, now=now, delay=delay))

        return await self._database.run(answer)

    async def get(self, item_id: str) -> Item:
        """One item."""
        return await self._database.run(lambda database: self._read(database, item_id))

    async def page(self, wanted: Wanted, *, after: str | None = None, most: int = 50) -> Page:
        """A page of a list."""

        async def read(cut: Cut) -> list[Seen]:
            return await self._database.run(lambda database: _cut(database, cut), is_soft=True)

        async def count(cut: Cut) -> int:
            return await self._database.run(lambda database: _count(database, cut), is_soft=True)

        return await page(wanted, after, most, self._records, read, count)

    async def claim(
        self, now: float, seconds: float, *, item_id: str | None = None, without: Sequence[str] = ()
    ) -> Item | None:
        """An item that is due."""
        which: tuple[str, list[Any]] = ("id = ? AND is_ended = 0", [item_id])
        if item_id is None:
            those = f"({', '.join('?' * len(without))})"
            which = (f"due <= ? AND server NOT IN {those} AND id NOT IN {those}", [now, *without, *without])
        statement = (
            f"SELECT id, revision, due, body FROM inbox_items WHERE {which[0]} AND claimed_until <= ? "
            "ORDER BY due LIMIT 1"
        )

        def claim(database: sqlite3.Connection) -> Item | Unreadable | None:
            row = database.execute(statement, [*which[1], now]).fetchone()
            if row is None:
                return None
            name = uuid.uuid4().hex
            try:
                item = self._records.item(row[0], row[1], row[2], row[3], name)
            except Unreadable as error:
                database.execute("UPDATE inbox_items SET due = ? WHERE id = ?", (now + UNREADABLE_PAUSE, row[0]))
                return error
            change = "UPDATE inbox_items SET claim = ?, claimed_until = ? WHERE id = ?"
            database.execute(change, (name, now + seconds, row[0]))
            return item

        found = await self._database.run(claim, is_soft=True)
        if isinstance(found, Unreadable):
            raise found
        return found

    async def renew(self, item: Item, until: float) -> None:
        """Hold a claim for longer."""
        statement = "UPDATE inbox_items SET claimed_until = ? WHERE id = ? AND claim = ?"
        values = (until, item.id, item.claim)
        if await self._database.run(lambda database: database.execute(statement, values).rowcount, is_soft=True) == 0:
            raise AlreadyAnswered(item.id, "the claim was lost")

    async def release(self, item: Item, due: float | None) -> None:
        """Give a claim back."""
        statement = (
            "UPDATE inbox_items SET claim = NULL, claimed_until = 0, due = CASE WHEN revision = ? THEN ? ELSE due END "
            "WHERE id = ? AND claim = ?"
        )
        values = (item.revision, due, item.id, item.claim)
        await self._database.run(lambda database: database.execute(statement, values), is_soft=True)

    async def next_due(self, now: float) -> float | None:
        """When the next is due."""
        statement = (
            "SELECT min(due) FROM (SELECT min(due) AS due FROM inbox_items WHERE due > :now "
            "UNION ALL SELECT min(due) FROM inbox_hooks WHERE due > :now)"
        )
        row: Any = await self._database.run(
            lambda database: database.execute(statement, {"now": now}).fetchone(), is_soft=True
        )
        return None if row[0] is None else float(row[0])

    async def changes(self, since: int | None) -> tuple[int, Sequence[str]]:
        """What was changed."""

        def changes(database: sqlite3.Connection) -> tuple[int, list[str]]:
            mark: int = database.execute("SELECT mark FROM inbox_marks").fetchone()[0]
            if since is None or since == mark:
                return mark, []
            rows = database.execute("SELECT id FROM inbox_items WHERE mark > ? ORDER BY mark", (since,))
            return mark, [name for (name,) in rows]

        return await self._database.run(changes, is_soft=True)

    async def purge(self, now: float, retention: float) -> int:
        """Forget what ended long ago."""

        which = "SELECT id FROM inbox_items WHERE is_ended = 1 AND changed <= ? LIMIT ?"

        def purge(database: sqlite3.Connection) -> int:
            database.execute("DELETE FROM inbox_sessions WHERE until <= ?", (now,))
            statement = f"DELETE FROM inbox_items WHERE id IN ({which})"
            return database.execute(statement, (now - retention, PURGE_MOST)).rowcount

        gone = 0
        while some := await self._database.run(purge, is_soft=True):
            gone += some
        return gone

    async def claim_hook(self, now: float, seconds: float, *, without: Sequence[str] = ()) -> Hook | None:
        """Something to be told."""
        statement = (
            "SELECT id, body, made, due, tries FROM inbox_hooks WHERE due <= ? AND claimed_until <= ? "
            f"AND substr(id, 1, {PLACE}) NOT IN ({', '.join('?' * len(without))}) ORDER BY due LIMIT 1"
        )

        def claim(database: sqlite3.Connection) -> Hook | None:
            while row := database.execute(statement, (now, now, *without)).fetchone():
                with suppress(Unreadable):
                    hook = self._records.hook(*row)
                    change = "UPDATE inbox_hooks SET claimed_until = ? WHERE id = ?"
                    database.execute(change, (now + seconds, hook.id))
                    return hook
                change = "UPDATE inbox_hooks SET due = ? WHERE id = ?"
                database.execute(change, (now + UNREADABLE_PAUSE, row[0]))
            return None

        return await self._database.run(claim, is_soft=True)

    async def end_hook(self, hook_id: str) -> None:
        """It was told."""
        statement = "DELETE FROM inbox_hooks WHERE id = ?"
        await self._database.run(lambda database: database.execute(statement, (hook_id,)))

    async def postpone_hook(self, hook: Hook) -> None:
        """It is told later."""
        statement = "UPDATE inbox_hooks SET due = ?, tries = ?, claimed_until = 0 WHERE id = ?"
        values = (hook.due, hook.tries, hook.id)
        await self._database.run(lambda database: database.execute(statement, values))

    def use_keys(self, keys: Sequence[bytes | bytearray | str]) -> None:
        """Go on with other keys."""
        self._records.use_keys(keys)

    async def sealed_elsewhere(self, keys: Sequence[bytes | bytearray | str] | None = None) -> Shut:
        """What none of these keys opens."""
        statement = f"SELECT substr(headline, 1, {BEGINNING}), is_ended, count(*) FROM inbox_items GROUP BY 1, 2"
        rows = await self._database.run(lambda database: database.execute(statement).fetchall(), is_soft=True)
        return self._records.shut(rows, keys)

    async def reseal(self, after: str = "", *, most: int = RESEAL_MOST) -> str | None:
        """Seal some of what is open under the first key."""
        old, records = self._records.old, self._records
        marks = f"IN ({', '.join('?' * len(old))})"

        def reseal(database: sqlite3.Connection) -> str | None:
            hooks = f"SELECT id, body FROM inbox_hooks WHERE substr(body, 1, {BEGINNING}) {marks} LIMIT ?"
            for name, blob in database.execute(hooks, (*old, most)).fetchall():
                with suppress(Unreadable):
                    values = (*records.resealed(name, hook=blob), name)
                    database.execute("UPDATE inbox_hooks SET body = ? WHERE id = ?", values)
            where = f"is_ended = 0 AND id > ? AND substr(headline, 1, {BEGINNING}) {marks} ORDER BY id LIMIT ?"
            items = f"SELECT id, headline, body FROM inbox_items WHERE {where}"
            rows = database.execute(items, (after, *old, most)).fetchall()
            for name, headline, body in rows:
                with suppress(Unreadable):
                    values = (*records.resealed(name, headline=headline, body=body), name)
                    database.execute("UPDATE inbox_items SET headline = ?, body = ? WHERE id = ?", values)
            return rows[-1][0] if rows else None

        return await self._database.run(reseal) if old else None

    async def keep_session(self, name: str, blob: bytes, until: float) -> None:
        """Keep what belongs to somebody who has come in."""
        statement = "INSERT OR REPLACE INTO inbox_sessions VALUES (?, ?, ?)"
        await self._database.run(lambda database: database.execute(statement, (name, blob, until)))

    async def find_session(self, name: str, now: float) -> bytes | None:
        """What was kept."""
        statement = "SELECT body FROM inbox_sessions WHERE name = ? AND until > ?"
        row = await self._database.run(lambda database: database.execute(statement, (name, now)).fetchone())
        return None if row is None else bytes(row[0])

    async def drop_session(self, name: str) -> None:
        """Forget it."""
        statement = "DELETE FROM inbox_sessions WHERE name = ?"
        await self._database.run(lambda database: database.execute(statement, (name,)))

    async def aclose(self) -> None:
        """Close the file."""
        await self._database.aclose()

    def _read(self, database: sqlite3.Connection, item_id: str) -> Item:
        statement = "SELECT id, revision, due, body FROM inbox_items WHERE id = ?"
        row = database.execute(statement, (item_id,)).fetchone()
        if row is None:
            raise UnknownPending(item_id)
        return self._records.item(*row)

    def _written(self, database: sqlite3.Connection, item: Item, tell: Sequence[Hook] = (), also: str = "") -> Item:
        kept = replace(item, revision=item.revision + 1, claim=None)
        database.execute("UPDATE inbox_marks SET mark = mark + 1")
        database.execute(
            f"INSERT INTO inbox_items ({_COLUMNS}, mark) VALUES ({_MARKS}, (SELECT mark FROM inbox_marks)) "
            f"ON CONFLICT (id) DO UPDATE SET {_SET}, mark = excluded.mark{', ' + also if also else ''}",
            self._records.row(kept),
        )
        for hook in tell:
            values = (hook.id, hook.made, hook.due, hook.tries, self._records.sealed_hook(hook))
            database.execute("INSERT INTO inbox_hooks (id, made, due, tries, body) VALUES (?, ?, ?, ?, ?)", values)
        return kept


def _chosen(cut: Cut) -> tuple[str, list[Any]]:
    where = f"status IN ({', '.join('?' * len(cut.statuses))})" + ("" if cut.caller is None else " AND caller = ?")
    return where, [*cut.statuses, *(() if cut.caller is None else (cut.caller,))]


def _count(database: sqlite3.Connection, cut: Cut) -> int:
    where, values = _chosen(cut)
    total: int = database.execute(f"SELECT count(*) FROM inbox_items WHERE {where}", values).fetchone()[0]
    return total


def _cut(database: sqlite3.Connection, cut: Cut) -> list[Seen]:
    chosen, values = _chosen(cut)
    column, way, sign = ("asked", "", ">") if cut.by_asked else ("changed", " DESC", "<")
    where = chosen if cut.is_ended is None else f"is_ended = {int(cut.is_ended)} AND {chosen}"
    if cut.place is not None:
        where += f" AND ({column}, id) {sign} (?, ?)"
        values += cut.place
    # With the + an index on the status is not considered: the order is worth more.
    where = where.replace("status IN", "+status IN")
    order = f"ORDER BY {column}{way}, id{way} LIMIT ?"
    rows = database.execute(f"SELECT {_SEEN} FROM inbox_items WHERE {where} {order}", [*values, cut.most])
    return [Seen(*row) for row in rows]
