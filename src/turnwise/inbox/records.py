"""Items as stores keep them: facts by which they are found, in the clear, and the rest sealed.

In the clear are id, status, server, target, caller, times and counts. The headline is sealed by itself, with
what else was asked, so that a list need not open whole items.
"""

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from .._pending import Pending
from .._sealed import KeyRing
from ..errors import CallerError, InvalidRequestState
from ..tasks.vault import Vault
from .model import ENDS, Earlier, Hook, Item, Line, Unreadable

KEY_IS_GONE = "it is sealed under a key that this inbox does not have; start the inbox with that key among its keys"
UNREADABLE = "(sealed under a key that this inbox does not have)"
MOST_KEPT = 50_000
"""Headlines that a process keeps open: a search looks at them all."""
_BY_THEMSELVES = ("claim", "revision", "due", "pending", "given")
_PLAIN = tuple(field.name for field in fields(Item) if field.name not in _BY_THEMSELVES)


class Row(NamedTuple):
    """What a store writes of an item."""

    id: str
    revision: int
    status: str
    is_ended: bool
    server: str
    target: str
    caller: str
    questions: int
    asked: float
    until: float | None
    changed: float
    is_task: bool
    due: float | None
    headline: bytes
    body: bytes


class Seen(NamedTuple):
    """What a store reads for a list."""

    id: str
    status: str
    server: str
    target: str
    caller: str
    questions: int
    asked: float
    until: float | None
    changed: float
    is_task: bool
    headline: bytes


class Records:
    """Makes rows of items, and items of rows, under these keys: the first seals, all open."""

    def __init__(self, keys: Sequence[bytes | bytearray | str]) -> None:
        self._vault = Vault(KeyRing(keys), "inbox")
        self._headlines: dict[bytes, str] = {}

    def row(self, item: Item) -> Row:
        """An item, for a store."""
        facts = {name: getattr(item, name) for name in _PLAIN}
        facts |= {"pending": item.pending.to_json(), "given": [asdict(one) for one in item.given]}
        return Row(
            item.id,
            item.revision,
            item.status,
            item.status in ENDS,
            item.server,
            item.target,
            item.caller,
            len(item.pending.unanswered),
            item.pending.asked,
            item.until,
            item.changed,
            item.task is not None,
            item.due,
            self._vault.seal(item.id, "headline", "\n".join(item.texts)),
            self._vault.seal(item.id, "body", facts),
        )

    def item(self, item_id: str, revision: int, due: float | None, body: bytes, claim: str | None = None) -> Item:
        """The item in a row; CallerError where it cannot be read."""
        facts = self._opened(item_id, "body", body)
        try:
            facts["pending"] = Pending.from_json(facts["pending"])
            facts["given"] = tuple(Earlier(**one) for one in facts["given"])
            return Item(**facts, revision=revision, due=due, claim=claim)
        except (TypeError, KeyError, CallerError) as error:
            raise Unreadable(f"call {item_id} was kept by another version of Turnwise: {error!r}") from None

    def line(self, seen: Seen) -> Line:
        """A line of a list."""
        status: Any = seen.status
        return Line(
            seen.id,
            status,
            seen.server,
            seen.target,
            seen.caller,
            self.headline(seen),
            seen.questions,
            seen.asked,
            seen.until,
            seen.changed,
            bool(seen.is_task),
        )

    def sealed_hook(self, hook: Hook) -> bytes:
        """What is to be told, and where: both may be secrets."""
        return self._vault.seal(hook.id, "hook", [hook.url, hook.body])

    def hook(self, hook_id: str, blob: bytes, made: float, due: float, tries: int) -> Hook:
        """What is to be told."""
        url, body = self._opened(hook_id, "hook", blob)
        return Hook(hook_id, url, body, made, due, tries)

    def headline(self, seen: Seen) -> str:
        """The headline of a row."""
        return self.texts(seen).partition("\n")[0]

    def texts(self, seen: Seen) -> str:
        """The headline of a row, and below it what else was asked: what a search looks at."""
        blob = bytes(seen.headline)
        known = self._headlines.get(blob)
        if known is None:
            try:
                known = str(self._opened(seen.id, "headline", blob))
            except Unreadable:
                return UNREADABLE
            if len(self._headlines) >= MOST_KEPT:
                self._headlines.clear()
            self._headlines[blob] = known
        return known

    def _opened(self, owner: str, place: str, blob: bytes) -> Any:
        try:
            return self._vault.open(owner, place, blob)
        except InvalidRequestState as error:
            reason = KEY_IS_GONE if error.kind == "key" else error.reason
            raise Unreadable(f"call {owner} cannot be read: {reason}") from None
