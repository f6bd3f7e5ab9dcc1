"""Who waits for something to change, and is told: by this process at once, of other processes' work within a second."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable

from ..errors import CallerError
from .model import InboxStore

LOOK_SECONDS = 1.0

log = logging.getLogger("turnwise.inbox")


class Watch:
    """Ids that were changed, gathered for one who waits."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._event = asyncio.Event()
        self.is_over = False

    def tell(self, ids: Iterable[str]) -> None:
        """These were changed."""
        self._ids.update(ids)
        self._event.set()

    def end(self) -> None:
        """Nothing more will be told."""
        self.is_over = True
        self._event.set()

    async def next(self) -> frozenset[str]:
        """What was changed since the last time; nothing where it is over."""
        await self._event.wait()
        if not self.is_over:  # Who still has something to read looks once more, and is let go then.
            self._event.clear()
        ids, self._ids = frozenset(self._ids), set()
        return ids


class Changes:
    """Spreads the news of changes."""

    def __init__(self, store: InboxStore) -> None:
        self._store = store
        self._watches: set[Watch] = set()
        self._by_id: dict[str, set[Watch]] = {}
        self._is_over = False

    def tell(self, ids: Iterable[str]) -> None:
        """These were changed."""
        ids = tuple(ids)
        for watch in self._watches if ids else ():
            watch.tell(ids)
        for name in ids:
            for watch in self._by_id.get(name, ()):
                watch.tell((name,))

    def open(self, item_id: str | None = None) -> Watch:
        """Somebody waits, for one item or for all."""
        watch = Watch()
        if item_id is None:
            self._watches.add(watch)
        else:
            self._by_id.setdefault(item_id, set()).add(watch)
        if self._is_over:
            watch.end()
        return watch

    def close(self, watch: Watch, item_id: str | None = None) -> None:
        """They no longer wait."""
        if item_id is None:
            self._watches.discard(watch)
            return
        watches = self._by_id.get(item_id, set())
        watches.discard(watch)
        if not watches:
            self._by_id.pop(item_id, None)

    async def all(self) -> AsyncIterator[frozenset[str]]:
        """The ids of what was changed, as it happens."""
        watch = self.open()
        try:
            while ids := await watch.next():
                yield ids
        finally:
            self.close(watch)

    async def look(self) -> None:
        """Until cancelled, tell of what other processes did."""
        mark: int | None = None
        self._is_over = False
        while True:
            try:
                known, (mark, ids) = mark, await self._store.changes(mark)
                # What was changed before the first look is not known: who waits for something looks at it again.
                self.tell([*self._by_id] if known is None else ids)
            except CallerError as error:
                log.warning("the inbox's store does not say what was changed: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    def end(self) -> None:
        """Nobody looks any more: those who wait are let go."""
        self._is_over = True
        for watch in [*self._watches, *(watch for watches in self._by_id.values() for watch in watches)]:
            watch.end()
