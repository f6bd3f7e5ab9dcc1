"""What the pages are made with: strangers' words made harmless, times in words, templates.

A stranger's text is escaped, its invisible characters are made visible, its direction is its own, and it folds where it
is long. The templates put it into marked quotations and nowhere else.
"""

import json
import re
import time
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..dialects.words import ROOTS, SAMPLE
from .forms import NOT_EMPTY, ZONES, pretty

HERE = Path(__file__).parent
SHORT, LINES = 2000, 25
"""Longer texts, and those of more lines, fold: what people say yes to, they have to read."""
MOST = 50_000
"""So many characters of a text are shown."""
MOST_TEXTS = 50
"""So many texts of a result are shown by themselves."""
ONE_LINE = 48
_KEPT = frozenset("\n\t\u200c\u200d\u200e\u200f")
"""Without these, some scripts and emoji cannot be written; within a text that has its own direction they do no harm."""
HEADS = {
    "form": "Question",
    "page": "A page to visit",
    "sample": "A reply to write",
    "review": "A reply to review",
    "roots": "Folders to name",
    "raw": "A question that cannot be shown as a form",
}
INTROS = {
    "form": "",
    "page": "The server wants you to visit a page. Nothing is opened until you open it: look first where it leads.",
    "sample": "The server wants a model to reply to this. Nothing is sent until you do it.",
    "review": "The server wants a model to reply to this. What a model would say is below, and yours to change. "
    "Nothing is sent until you do it.",
    "roots": "The server wants to know which folders you work in. You decide which ones it hears of.",
    "raw": "This is how it came.",
}
ACCEPTS = {"form": "Send answer", "page": "I agree to visit", "sample": "Send reply", "roots": "Send folders"}
BY_METHOD = {SAMPLE: "A model's reply, to write or review", ROOTS: HEADS["roots"]}
"""What stands for questions that have no words."""
KINDS = {"tools/call": "Tool", "prompts/get": "Prompt", "resources/read": "Resource"}
_SLASHES = re.compile(r"(?<=/)(?=[^/])")
_UNITS = ((86400, "day", "days"), (3600, "hour", "hours"), (60, "minute", "minutes"))


def shown(text: object) -> Markup:
    """A stranger's text: as text, with what cannot be seen made visible."""
    whole = str(text)
    if whole.isascii() and whole.isprintable():
        return escape(whole)
    return Markup("".join(map(_letter, whole.replace("\r\n", "\n"))))


def _is_seen(letter: str) -> bool:
    return letter.isprintable() or letter in _KEPT or unicodedata.category(letter) == "Zs"


@lru_cache(maxsize=4096)
def _letter(letter: str) -> str:
    return str(escape(letter)) if _is_seen(letter) else f'<i class="hidden">U+{ord(letter):04X}</i>'


def cut(text: object, most: int = 200) -> str:
    """The beginning of a text, in one line. What cannot be seen is still in it: this is for `shown`."""
    whole = " ".join(str(text).split())
    return whole if len(whole) <= most else whole[:most] + "…"


def line(text: object, most: int = 200) -> str:
    """The same where there is no room for markup, as in a list that folds: what cannot be seen is a number here too."""
    return "".join(one if _is_seen(one) else f"[U+{ord(one):04X}]" for one in cut(text, most))


def path(text: object) -> Markup:
    """An address, which breaks into lines behind its slashes where there is room for that."""
    return Markup("<wbr>").join(shown(part) for part in _SLASHES.split(str(text)))


def folded(text: object, short: int = SHORT, lines: int = LINES) -> Markup:
    """A stranger's text with its own direction. Of one that has more characters or lines than these the beginning is
    shown, and the rest folds.
    """
    whole = str(text)
    if len(whole) <= short and whole.count("\n") < lines:
        return Markup('<div class="said" dir="auto">{}</div>').format(shown(whole))
    beginning = _beginning(whole, short * 3 // 4, lines * 3 // 4)
    rest, left = whole[len(beginning) : MOST], len(whole) - MOST
    label = f"Show {len(rest):,} more{f' of {len(whole):,}' if left > 0 else ''} characters"
    more = Markup('<p class="more" dir="ltr">{} more characters are not shown.</p>').format(f"{left:,}")
    return Markup(
        '<div dir="auto"><div class="said peek">{}</div><details class="fold"><summary dir="ltr">'
        '<span class="unfold">{}</span></summary><div class="said">{}</div>{}</details></div>'
    ).format(shown(beginning), label, shown(rest.removeprefix("\n")), more if left > 0 else "")


def _beginning(whole: str, most: int, lines: int) -> str:
    """The beginning of a text, which ends with a line or a word where there is one."""
    found = "\n".join(whole[:most].split("\n")[:lines])
    seam = max(found.rfind("\n"), found.rfind(" "))
    return found[:seam] if len(found) == most and seam > most // 2 else found


def spelt(value: Any) -> str:
    """An argument as a person reads it: text as it is, and JSON in one line where it fits into one."""
    if isinstance(value, str):
        return value
    whole = pretty(value)
    brief = json.dumps(value, ensure_ascii=False) if len(whole) < 4 * ONE_LINE else whole
    return brief if len(brief) <= ONE_LINE else whole


def in_words(seconds: float) -> str:
    """How long something takes or took."""
    for unit, one, many in _UNITS:
        if seconds >= unit:
            count = int(seconds // unit)
            return f"{count} {one if count == 1 else many}"
    return "less than a minute"


def moment(at: float, now: float | None = None) -> Markup:
    """A time: from now in words, and exactly for who wants to know."""
    distance = at - (time.time() if now is None else now)
    words = f"in {in_words(distance)}" if distance > 0 else f"{in_words(-distance)} ago"
    words = "just now" if -60 < distance <= 0 else words
    exact = datetime.fromtimestamp(at, UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(timespec="seconds"), exact.strftime("%Y-%m-%d %H:%M:%S UTC"), words
    )


def host(url: str) -> str:
    """Who a server is, in short."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return line(url, 80)
    return line(parts.netloc.rpartition("@")[2] or url or "an unnamed server", 80)


def blocks(result: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    """What a result says in words, and the rest of it. Of very many texts the last ones are put together."""
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    if len(texts) > MOST_TEXTS:
        texts = [*texts[:MOST_TEXTS], "\n".join(texts[MOST_TEXTS:])]
    return texts, [part for part in parts if not (isinstance(part, Mapping) and isinstance(part.get("text"), str))]


def spoken(content: Any) -> list[tuple[str, str]]:
    """The parts of a message to a model: text as it is, and of the rest what it is. Nothing is played or drawn."""
    parts = content if isinstance(content, list) else [content]
    return [_spoken(part) for part in parts]


def _spoken(part: Any) -> tuple[str, str]:
    if not isinstance(part, Mapping):
        return "raw", pretty(part)
    if part.get("type") == "text":
        return "text", str(part.get("text", ""))
    if part.get("type") in ("image", "audio"):
        size = len(str(part.get("data", "")).rstrip("=")) * 3 // 4
        return "media", f"{part['type']}, {part.get('mimeType', 'of no named type')}, {size:,} bytes, not shown here"
    return "raw", pretty(part)


@lru_cache(maxsize=1)
def templates() -> Environment:
    """The templates, which escape whatever is put into them."""
    loader = FileSystemLoader(HERE / "templates")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(
        shown=shown,
        cut=cut,
        line=line,
        path=path,
        folded=folded,
        moment=moment,
        host=host,
        pretty=pretty,
        spoken=spoken,
        blocks=blocks,
        spelt=spelt,
    )
    made.globals.update(heads=HEADS, intros=INTROS, by_method=BY_METHOD, accepts=ACCEPTS, kinds=KINDS, zones=ZONES)
    made.globals["not_empty"] = NOT_EMPTY
    return made


def render(template: str, **facts: Any) -> str:
    """A page, or a part of one."""
    return templates().get_template(template).render(**facts)
