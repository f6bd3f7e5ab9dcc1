"""An inbox in PostgreSQL, for several inbox processes on any number of machines."""

import hashlib
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._postgres import Database, migrated
from ..errors import AlreadyAnswered, UnknownPending
from . import statements as say
from .model import RESEAL_MOST, Hook, Item, Page, Shut, Unreadable, Wanted
from .paging import Cut, page
from .records import Records, Seen
from .sharing import PendingView
from .sqlite import UNREADABLE_PAUSE

if TYPE_CHECKING:
    from .._postgres import Pool
    from .model import InboxStore

PURGE_MOST = 100
_NAMES = ("id", "server", "target", "caller")


class PostgresInboxStore:
    """Items in tables of a database that you run already: a DSN, or a pool of asyncpg that stays yours to close.

    The tables, `turnwise_inbox_items` and others unless `prefix` says otherwise, are made by the first use. `keys` seal
    what is secret: the first seals, all open.
    """

    def __init__(
        self,
        dsn_or_pool: "str | Pool",
        keys: Sequence[bytes | bytearray | str],
        *,
        prefix: str = "turnwise_inbox_",
        pool_size: int = 8,
        statement_cache_size: int = 100,
    ) -> None:
        self._database = Database(
            dsn_or_pool,
            self._make,
            prefix=prefix,
            pool_size=pool_size,
            statement_cache_size=statement_cache_size,
        )
        self._records = Records(keys)

    def pending(self, caller: str, **options: Any) -> PendingView:
        """The same calls, as a client's `pending_store` keeps them."""
        store: InboxStore = self
        return PendingView(store, caller, **options)

    async def add(self, item: Item, tell: Sequence[Hook] = ()) -> Item:
        """Keep a new item."""

        async def add(connection: Any) -> Item:
            return await self._written(connection, item, tell, say.ADD)

        return await self._database.within(add)

    async def put(self, item: Item, tell: Sequence[Hook] = ()) -> Item:
        """Keep what has become of an item."""

        async def put(connection: Any) -> Item:
            revision = await connection.fetchval(self._said(say.REVISION), _bytes(item.id))
            if revision is None:
                raise UnknownPending(item.id)
            if revision != item.revision:
                raise AlreadyAnswered(item.id, "it was changed meanwhile")
            return await self._written(connection, item, tell, say.PUT)

        return await self._database.within(put)

    async def answer(
        self, item_id: str, answers: Mapping[str, Any], *, round: int | None, by: str, now: float, delay: float = 0.0
    ) -> Item:
        """Add answers, unless somebody was first."""

        async def answer(connection: Any) -> Item:
            item = self._item(item_id, await connection.fetchrow(self._said(say.LOCK), _bytes(item_id)))
            number = item.round if round is None else round
            after = item.answered(answers, round=number, by=by, now=now, delay=delay)
            return await self._written(connection, after, (), say.CHANGE)

        return await self._database.within(answer)

    async def get(self, item_id: str) -> Item:
        """One item."""
        return self._item(item_id, await self._database.row(say.GET, _bytes(item_id)))

    async def page(self, wanted: Wanted, *, after: str | None = None, most: int = 50) -> Page:
        """A page of a list."""

        facts = (list(wanted.statuses), None if wanted.caller is None else _bytes(wanted.caller))

        async def count(_: Cut) -> int:
            total: int = (await self._database.row(say.COUNT, *facts))[0]
            return total

        async def read(cut: Cut) -> list[Seen]:
            place = () if cut.place is None else (cut.place[0], _bytes(cut.place[1]))
            statement = say.cut(by_asked=cut.by_asked, is_ended=cut.is_ended, has_place=bool(place))
            rows = await self._database.rows(statement, *facts, cut.most, *place)
            return [_seen(row) for row in rows]

        return await page(wanted, after, most, self._records, read, count)

    async def claim(
        self, now: float, seconds: float, *, item_id: str | None = None, without: Sequence[str] = ()
    ) -> Item | None:
        """An item that is due."""
        name = uuid.uuid4().hex
        which: Any = [_bytes(server) for server in without] if item_id is None else _bytes(item_id)
        statement = say.CLAIM if item_id is None else say.CLAIM_ONE
        row = await self._database.row(statement, now, now + seconds, name, which, time.time())
        if row is None:
            return None
        try:
            return self._records.item(_text(row["id"]), row["revision"], row["due"], row["body"], name)
        except Unreadable:
            await self._database.row(say.UNREADABLE, row["id"], now + UNREADABLE_PAUSE, name)
            raise

    async def renew(self, item: Item, until: float) -> None:
        """Hold a claim for longer."""
        if await self._database.row(say.RENEW, _bytes(item.id), item.claim, until, time.time()) is None:
            raise AlreadyAnswered(item.id, "the claim was lost")

    async def release(self, item: Item, due: float | None) -> None:
        """Give a claim back."""
        await self._database.row(say.RELEASE, _bytes(item.id), item.claim, item.revision, due)

    async def next_due(self, now: float) -> float | None:
        """When the next is due."""
        found: float | None = (await self._database.row(say.NEXT, now))[0]
        return found

    async def changes(self, since: int | None) -> tuple[int, Sequence[str]]:
        """What was changed."""
        mark: int = (await self._database.row(say.NOW))[0]
        if since is None or since == mark:
            return mark, []
        return mark, [_text(row["id"]) for row in await self._database.rows(say.SINCE, since, mark)]

    async def purge(self, now: float, retention: float) -> int:
        """Forget what ended long ago."""
        await self._database.row(say.OLD_SESSIONS, now)
        gone = 0
        while some := (await self._database.row(say.PURGE, now - retention, PURGE_MOST))[0]:
            gone += some
        return gone

    async def claim_hook(self, now: float, seconds: float, *, without: Sequence[str] = ()) -> Hook | None:
        """Something to be told."""
        facts = (now, now + seconds, list(without), time.time())
        while (row := await self._database.row(say.CLAIM_HOOK, *facts)) is not None:
            try:
                return self._records.hook(*row)
            except Unreadable:
                await self._database.row(say.POSTPONE_HOOK, row["id"], now + UNREADABLE_PAUSE, row["tries"])
        return None

    async def end_hook(self, hook_id: str) -> None:
        """It was told."""
        await self._database.row(say.END_HOOK, hook_id)

    async def postpone_hook(self, hook: Hook) -> None:
        """It is told later."""
        await self._database.row(say.POSTPONE_HOOK, hook.id, hook.due, hook.tries)

    def use_keys(self, keys: Sequence[bytes | bytearray | str]) -> None:
        """Go on with other keys."""
        self._records.use_keys(keys)

    async def sealed_elsewhere(self, keys: Sequence[bytes | bytearray | str] | None = None) -> Shut:
        """What none of these keys opens."""
        rows = await self._database.rows(say.BEGINNINGS)
        return self._records.shut([(bytes(row[0]), row[1], row[2]) for row in rows], keys)

    async def reseal(self, after: str = "", *, most: int = RESEAL_MOST) -> str | None:
        """Seal some of what is open under the first key."""
        old, records = self._records.old, self._records

        async def reseal(connection: Any) -> str | None:
            for row in await connection.fetch(self._said(say.OLD_HOOKS), old, most):
                with suppress(Unreadable):
                    blobs = records.resealed(row["id"], hook=row["body"])
                    await connection.execute(self._said(say.RESEAL_HOOK), row["id"], *blobs)
            rows = await connection.fetch(self._said(say.OLD_ITEMS), _bytes(after), old, most)
            for row in rows:
                with suppress(Unreadable):
                    blobs = records.resealed(_text(row["id"]), headline=row["headline"], body=row["body"])
                    await connection.execute(self._said(say.RESEAL_ITEM), row["id"], *blobs)
            return _text(rows[-1]["id"]) if rows else None

        return await self._database.within(reseal) if old else None

    async def keep_session(self, name: str, blob: bytes, until: float) -> None:
        """Keep what belongs to somebody who has come in."""
        await self._database.row(say.KEEP_SESSION, name, blob, until)

    async def find_session(self, name: str, now: float) -> bytes | None:
        """What was kept."""
        row = await self._database.row(say.FIND_SESSION, name, now)
        return None if row is None else bytes(row[0])

    async def drop_session(self, name: str) -> None:
        """Forget it."""
        await self._database.row(say.DROP_SESSION, name)

    async def aclose(self) -> None:
        """Close the connections, unless the pool is yours. The next use opens new ones."""
        await self._database.aclose()

    def _said(self, statement: str) -> str:
        return statement.replace("{0}", self._database.prefix)

    def _item(self, item_id: str, row: Any) -> Item:
        if row is None:
            raise UnknownPending(item_id)
        return self._records.item(item_id, row["revision"], row["due"], row["body"])

    async def _written(self, connection: Any, item: Item, tell: Sequence[Hook], statement: str) -> Item:
        kept = replace(item, revision=item.revision + 1, claim=None)
        row = self._records.row(kept)
        values = [_bytes(value) if name in _NAMES else value for name, value in row._asdict().items()]
        mark = await connection.fetchval(self._said(say.MARK))
        written = await connection.fetchval(self._said(statement), *values, mark)
        if statement is say.ADD and written is None:
            raise AlreadyAnswered(item.id, "there is one with this id already")
        for hook in tell:
            facts = (hook.id, hook.made, hook.due, hook.tries, self._records.sealed_hook(hook))
            await connection.execute(self._said(say.ADD_HOOK), *facts)
        return kept

    async def _make(self, pool: "Pool") -> None:
        """Bring the tables up to date, once, whoever else is about to; those of a later version are not touched."""
        prefix = self._database.prefix
        turn = int.from_bytes(hashlib.sha256(f"turnwise inbox|schema|{prefix}".encode()).digest()[:8]) >> 1
        async with pool.acquire() as connection, connection.transaction(isolation="read_committed"):
            await connection.execute("SELECT pg_advisory_xact_lock($1)", turn)
            await migrated(connection, f"{prefix}schema", [self._said(script) for script in say.VERSIONS])


def _seen(row: Any) -> Seen:
    values: Any = [_text(value) if name in _NAMES else value for name, value in row.items()]
    return Seen(*values)


def _bytes(text: Any) -> bytes:
    return str(text).encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "surrogatepass")
