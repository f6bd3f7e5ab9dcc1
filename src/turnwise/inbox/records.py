"""Items as stores keep them: facts by which they are found, in the clear, and the rest sealed.

In the clear are id, status, server, target, caller, times and counts. The headline is sealed by itself, with what else
was asked, the round, the gist of the arguments and what has become of it, so that a list need not open whole items.
"""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from typing import Any, NamedTuple

from .._pending import restored
from .._sealed import PREFIX, KeyRing
from ..errors import CallerError, InvalidRequestState
from ..tasks.vault import Vault
from .gists import Gist, Outcome, gist
from .model import ENDS, Earlier, Hook, Item, Line, Shut, Unreadable
from .outcomes import outcome_of, words_of

KEY_IS_GONE = "it is sealed under a key that this inbox does not have; start the inbox with that key among its keys"
UNREADABLE = "(sealed under a key that this inbox does not have)"
MOST_KEPT = 32 * 1024 * 1024
"""Bytes of headlines that a process keeps open, more or less: a search looks at them all."""
_BESIDE = 800
"""What one takes besides its texts."""
BEGINNING = len(PREFIX) + 5
"""Bytes of what is sealed that tell its key, and nothing else: an id of four, in base64."""
_BY_THEMSELVES = ("claim", "revision", "due", "pending", "given")
_PLAIN = tuple(field.name for field in fields(Item) if field.name not in _BY_THEMSELVES)


def _beginnings(ring: KeyRing) -> list[bytes]:
    ids = [base64.urlsafe_b64encode(bytes.fromhex(name)) for name in ring.ids]
    return [PREFIX.encode() + name[: BEGINNING - len(PREFIX)] for name in ids]


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


class Told(NamedTuple):
    """What is sealed for a list: the headline and below it what else was asked, the round, the gist of arguments, and
    what has become of it.
    """

    texts: str
    round: int = 0
    gist: Gist = ()
    outcome: Outcome = Outcome()


class Records:
    """Makes rows of items, and items of rows, under these keys: the first seals, all open."""

    def __init__(self, keys: Sequence[bytes | bytearray | str]) -> None:
        self._ring = KeyRing(keys)
        self._vault = Vault(self._ring, "inbox")
        self._headlines: dict[bytes, Told] = {}
        self._size = 0

    def use_keys(self, keys: Sequence[bytes | bytearray | str]) -> None:
        """Go on with other keys."""
        self._ring.replace(keys)

    @property
    def old(self) -> list[bytes]:
        """The beginnings of what is sealed under keys that open and no longer seal."""
        return _beginnings(self._ring)[1:]

    def shut(self, counts: Iterable[tuple[bytes, bool, int]], keys: Sequence[bytes | bytearray | str] | None) -> Shut:
        """What none of these keys opens, or of those in use, by how many rows begin so, ended or not."""
        known, rows = _beginnings(self._ring if keys is None else KeyRing(keys)), list(counts)
        missing = [(is_ended, count) for mark, is_ended, count in rows if bytes(mark) not in known]
        waiting = sum(count for is_ended, count in missing if not is_ended)
        return Shut(sum(count for _, count in missing), sum(count for _, _, count in rows), waiting)

    def resealed(self, owner: str, **blobs: bytes) -> list[bytes]:
        """What was sealed in these places, under the first key; Unreadable where no key opens it."""
        return [self._vault.seal(owner, place, self._opened(owner, place, blob)) for place, blob in blobs.items()]

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
            self._vault.seal(item.id, "headline", _told(item)),
            self._vault.seal(item.id, "body", facts),
        )

    def item(self, item_id: str, revision: int, due: float | None, body: bytes, claim: str | None = None) -> Item:
        """The item in a row; CallerError where it cannot be read."""
        facts = self._opened(item_id, "body", body)
        try:
            facts["pending"] = restored(facts["pending"])
            facts["given"] = tuple(Earlier(**one) for one in facts["given"])
            return Item(**facts, revision=revision, due=due, claim=claim)
        except (TypeError, KeyError, ValueError, AttributeError, CallerError) as error:
            raise Unreadable(f"call {item_id} was kept by another version of Turnwise: {error!r}") from None

    def line(self, seen: Seen) -> Line:
        """A line of a list."""
        status: Any = seen.status
        told = self._told(seen)
        return Line(
            seen.id,
            status,
            seen.server,
            seen.target,
            seen.caller,
            told.texts.partition("\n")[0],
            seen.questions,
            seen.asked,
            seen.until,
            seen.changed,
            bool(seen.is_task),
            told.round,
            told.gist,
            told.outcome,
        )

    def sealed_hook(self, hook: Hook) -> bytes:
        """What is to be told, and where: both may be secrets."""
        return self._vault.seal(hook.id, "hook", [hook.url, hook.body])

    def hook(self, hook_id: str, blob: bytes, made: float, due: float, tries: int) -> Hook:
        """What is to be told."""
        url, body = self._opened(hook_id, "hook", blob)
        return Hook(hook_id, url, body, made, due, tries)

    def texts(self, seen: Seen) -> str:
        """The headline of a row, and below it what else is known of it: what a search looks at."""
        told = self._told(seen)
        return f"{told.texts}\n{words_of(told.gist, told.outcome)}"

    def _told(self, seen: Seen) -> Told:
        blob = bytes(seen.headline)
        known = self._headlines.get(blob)
        if known is None:
            try:
                found = self._opened(seen.id, "headline", blob)
            except Unreadable:
                return Told(UNREADABLE)
            known = _heard(found)
            self._size += len(blob) + len(known.texts) + _BESIDE
            if self._size > MOST_KEPT:
                self._headlines, self._size = {}, 0
            self._headlines[blob] = known
        return known

    def _opened(self, owner: str, place: str, blob: bytes) -> Any:
        try:
            return self._vault.open(owner, place, blob)
        except InvalidRequestState as error:
            reason = KEY_IS_GONE if error.kind == "key" else error.reason
            raise Unreadable(f"call {owner} cannot be read: {reason}") from None


def _told(item: Item) -> list[Any]:
    return ["\n".join(item.texts), item.round, gist(item.pending.arguments), outcome_of(item)]


def _heard(found: Any) -> Told:
    if isinstance(found, str):  # A row that nobody has changed since there were texts alone.
        return Told(found)
    texts, number, pairs, *rest = found
    state, said, by, reply = rest[0] if rest else Outcome()
    outcome = Outcome(state, tuple((name, text) for name, text in said), by, reply)
    return Told(texts, number, tuple((name, text) for name, text in pairs), outcome)
