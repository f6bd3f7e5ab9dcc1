"""Lists, page by page: which rows come after which, and which have the words that are looked for."""

import base64
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from .._json import decode, encode
from ..errors import CallerError
from .model import ENDS, OPEN, Line, Page, Wanted
from .records import Records, Seen

CHUNK = 500
"""Rows that are looked at together where words are looked for."""
MOST = 200
"""Lines of a page."""
MOST_COUNTED = 20_000
"""Rows that are looked at to count those with words in them: what is sealed cannot be counted by the database."""


class Cut(NamedTuple):
    """Which rows to read: those of these statuses, and of this caller, in an order, after a place in it."""

    statuses: Sequence[str]
    caller: str | None
    by_asked: bool
    """Oldest question first; otherwise what changed last comes first."""
    is_ended: bool | None
    """All of them have ended, none of them, or some."""
    place: tuple[float, str] | None
    most: int


Read = Callable[[Cut], Awaitable[list[Seen]]]


async def page(
    wanted: Wanted,
    after: str | None,
    most: int,
    records: Records,
    read: Read,
    count: Callable[[Cut], Awaitable[int]],
) -> Page:
    """A page of what is wanted. `read` gives rows, and `count` how many there are in all."""
    most = max(1, min(most, MOST))
    words = [word.casefold() for word in wanted.words if word]
    cut = Cut(wanted.statuses, wanted.caller, _are(wanted, OPEN), _is_ended(wanted), _place(after), most + 1)
    if words:
        found = await _searched(cut, words, most, records, read)
        # What comes before this page counts, too.
        first = found if cut.place is None else await _searched(cut._replace(place=None), words, 1, records, read)
        return found._replace(total=first.total)
    total = await count(cut)
    rows = await read(cut)
    lines = [records.line(row) for row in rows[:most]]
    return Page(lines, _cursor(lines[-1], cut) if len(rows) > most else None, total)


async def _searched(cut: Cut, words: Sequence[str], most: int, records: Records, read: Read) -> Page:
    """Those rows from a place on that have all of these words, and how many there are, unless that takes too long."""
    cut = cut._replace(most=CHUNK)
    lines: list[Line] = []
    count = looked_at = 0
    while True:
        rows = await read(cut)
        looked_at += len(rows)
        for row in rows:
            if _has(row, records.texts(row), words):
                count += 1
                if count <= most:
                    lines.append(records.line(row))
        after = _cursor(lines[-1], cut) if count > most else None
        if len(rows) < cut.most:
            return Page(lines, after, count)
        if after is not None and looked_at >= MOST_COUNTED:
            return Page(lines, after, None)
        cut = cut._replace(place=(rows[-1].asked if cut.by_asked else rows[-1].changed, rows[-1].id))


def _has(row: Seen, texts: str, words: Sequence[str]) -> bool:
    """Whether each of these words is somewhere in a row."""
    text = f"{row.server}\n{row.target}\n{row.caller}\n{texts}".casefold()
    return all(word in text for word in words)


def _are(wanted: Wanted, statuses: Sequence[str]) -> bool:
    return set(wanted.statuses) <= set(statuses)


def _is_ended(wanted: Wanted) -> bool | None:
    return False if _are(wanted, OPEN) else True if _are(wanted, ENDS) else None


def _cursor(line: Line, cut: Cut) -> str:
    place = [line.asked if cut.by_asked else line.changed, line.id]
    return base64.urlsafe_b64encode(encode(place)).decode().rstrip("=")


def _place(after: str | None) -> tuple[float, str] | None:
    if after is None:
        return None
    try:
        moment, name = decode(base64.b64decode(after + "=" * (-len(after) % 4), b"-_", validate=True))
        if isinstance(name, str) and type(moment) in (int, float) and math.isfinite(moment):
            return float(moment), name
    except (ValueError, TypeError, OverflowError):
        pass
    raise CallerError("this is no place to go on from: take `after` from the page before")
