"""The inbox as a client's `pending_store`: a client on the same machine keeps its calls where people answer them."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._pending import Pending
from ..errors import AlreadyAnswered, BeingCarriedOn, UnknownPending
from .model import OPEN, InboxStore, Item, Status, Wanted

FIRST_SECONDS = 5.0
"""For so long a call that its own client answered is left to that client; then the inbox carries it on."""


class PendingView:
    """A `PendingStore` over an inbox.

    The inbox carries a call on once it is answered there, with `authorization` for its server; with `carries=False`,
    and wherever the server is no URL, it only gathers answers, and the client carries on.
    """

    shows_raw = True
    """Questions that can only be refused are shown as they came."""

    def __init__(
        self,
        store: InboxStore,
        caller: str,
        *,
        authorization: str | None = None,
        carries: bool = True,
        restart_expired: bool = False,
    ) -> None:
        self._store = store
        self._caller = caller
        self._authorization = authorization
        self._carries = carries
        self._restart_expired = restart_expired
        self._claims: dict[str, str] = {}

    async def keep(self, pending: Pending) -> Pending:
        """Keep a call, or what has become of it."""
        now = time.time()
        if not pending.revision:
            return _shown(await self._store.add(self._new(pending, now)))
        item = await self._store.get(pending.id)
        has_moved = pending.requests != item.pending.requests or pending.state != item.pending.state
        after = replace(
            item,
            pending=replace(pending, revision=0),
            revision=pending.revision,
            round=item.round + 1 if has_moved else item.round,
            status="waiting" if pending.unanswered else "going",
            changed=now,
        )
        due = item.until if pending.unanswered or not item.carries else now + FIRST_SECONDS
        return _shown(await self._store.put(replace(after, due=due)))

    async def list(self) -> "list[Pending]":
        """All calls of this caller that wait, oldest first."""
        found: list[Pending] = []
        after = None
        while True:
            page = await self._store.page(Wanted(caller=self._caller), after=after, most=200)
            for line in page.lines:
                if not line.is_task:
                    found.append(_shown(await self._store.get(line.id)))
            if (after := page.after) is None:
                return found

    async def get(self, pending_id: str) -> Pending:
        """One call."""
        return _shown(await self._item(pending_id))

    async def answer(self, pending_id: str, answers: Mapping[str, Any], *, round: int | None = None) -> Pending:
        """Add answers."""
        item = await self._item(pending_id)
        if round not in (None, item.pending.round):
            raise AlreadyAnswered(pending_id, "it has gone on to other questions")
        facts: dict[str, Any] = {"round": item.round, "by": self._caller, "now": time.time(), "delay": FIRST_SECONDS}
        return _shown(await self._store.answer(pending_id, answers, **facts))

    async def claim(self, pending_id: str, seconds: float) -> Pending:
        """Take a call, so that nobody else carries it on for so long."""
        await self._item(pending_id)
        claimed = await self._store.claim(time.time(), seconds, item_id=pending_id)
        if claimed is None:
            raise BeingCarriedOn(pending_id, "somebody is carrying it on")
        self._claims[pending_id] = claimed.claim or ""
        return _shown(claimed)

    async def renew(self, pending: Pending, seconds: float) -> None:
        """Hold a claim for longer."""
        item = replace(await self._store.get(pending.id), claim=self._claims.get(pending.id))
        await self._store.renew(item, time.time() + seconds)

    async def forget(self, pending_id: str) -> bool:
        """The call is finished, or no longer wanted: in the inbox it is over."""
        return await self._over(pending_id, "done")

    async def expire(self, older_than: float) -> int:
        """End what was asked more than so many seconds ago; how many those were."""
        limit = time.time() - older_than
        old = [pending.id for pending in await self.list() if pending.asked < limit]
        return sum([await self._over(pending_id, "expired") for pending_id in old])

    async def _over(self, pending_id: str, status: Status) -> bool:
        self._claims.pop(pending_id, None)
        try:
            item = await self._item(pending_id)
        except UnknownPending:
            return False
        await self._store.put(item.ended(status, time.time()))
        return True

    async def _item(self, pending_id: str) -> Item:
        item = await self._store.get(pending_id)
        if item.status not in OPEN or item.task is not None:
            raise UnknownPending(pending_id)
        return item

    def _new(self, pending: Pending, now: float) -> Item:
        carries = self._carries and (pending.server or "").startswith(("http://", "https://"))
        is_open = bool(pending.unanswered)
        return Item(
            id=pending.id,
            status="waiting" if is_open else "going",
            pending=pending,
            caller=self._caller,
            authorization=self._authorization,
            came=now,
            changed=now,
            carries=carries,
            restart_expired=self._restart_expired,
            due=None if is_open or not carries else now + FIRST_SECONDS,
        )


def _shown(item: Item) -> Pending:
    return replace(item.pending, revision=item.revision)
