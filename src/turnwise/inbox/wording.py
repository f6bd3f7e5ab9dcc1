"""What the pages say of calls in words of our own: headings, titles, what a screen reader hears.

A stranger's name becomes a heading only where it is a plain one; everything else of theirs stays in its own place.
"""

import re

from .model import Item, Page
from .outcomes import state_of
from .rendering import BY_METHOD, KINDS

WORDS = {
    "waiting": "Waiting",
    "going": "Going on",
    "unreached": "Server away",
    "held": "Held",
    "done": "Done",
    "declined": "Declined",
    "cancelled": "Cancelled",
    "failed": "Failed",
    "withdrawn": "Withdrawn",
    "expired": "Expired",
}
"""How it is with a call, in a word."""
AWAY = "The server cannot be reached"

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}", re.ASCII)
_SEAMS = re.compile(r"[_.-]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def heading(method: str, target: str) -> str:
    """What was called, as words: `update_work_item` is "Update work item". A name that is not one of plain letters is
    not put into our mouth: its kind stands for it, and the name beside it.
    """
    words = "" if method == "resources/read" else _words(target)
    return words or f"{KINDS[method]} that asks"


def is_plain(method: str, target: str) -> bool:
    """Whether that is made of its name."""
    return method != "resources/read" and bool(_words(target))


def named(target: str) -> str:
    """The same where it is marked as a name: one that is not plain is shown as it is."""
    return _words(target) or target


def _words(name: str) -> str:
    if not _PLAIN.fullmatch(name):
        return ""
    parts = [part if len(part) > 1 and part.isupper() else part.lower() for part in _SEAMS.split(name) if part]
    text = " ".join(parts)
    return text[:1].upper() + text[1:]


def item_title(item: Item, questions: int, *, faults: int, is_late: bool) -> str:
    """The title of an item's page: what there is to know first, then what was called."""
    asks = "A question" if questions == 1 else f"{questions} questions"
    words = {**WORDS, "waiting": asks, "going": "Under way"}
    state = "Not right yet" if faults else "Too late" if is_late else words[state_of(item)]
    return f"{state}: {heading(item.pending.method, item.target)}"


def list_title(page: Page, here: str, q: str) -> str:
    """The title of a list: how many there are, then which list."""
    name = "History" if here == "history" else "Waiting"
    if q:
        return f"{counted(page, here, q)}: {name}"
    return f"({page.total:,}) {name}" if here == "waiting" and page.total else name


def told(item: Item, questions: int) -> str:
    """What a screen reader says when an item has changed."""
    if item.status == "waiting":
        many = "A question" if questions == 1 else f"{questions} questions"
        return f"Round {item.round + 1}. {many}: {BY_METHOD.get(item.headline, item.headline)}"
    going = "The task is under way." if item.task else "All is answered. The call goes on."
    held = "Held: the server does not take the credentials."
    state = state_of(item)
    ends = {"going": going, "unreached": f"{AWAY}.", "held": held}
    ends |= {"failed": "The call failed.", "expired": "The call expired."}
    return ends.get(state, f"{WORDS[state]}.")


def counted(page: Page, here: str, q: str) -> str:
    """How many there are in a list."""
    total = len(page.lines) if page.total is None else page.total
    calls = "1 call" if total == 1 else f"{total:,} calls"
    if q:
        return f"{calls}{' or more' if page.total is None else ''} found" if total else "Nothing found"
    if here == "history":
        return f"{calls} in the history"
    return f"{calls} open" if total else "All clear"
