"""What the pages are made with: strangers' words made harmless, times in words, templates.

A stranger's text is escaped, its invisible characters are made visible, its direction is its own, and it folds where it
is long. The templates put it into marked quotations and nowhere else.
"""

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
from .forms import ZONES, pretty

HERE = Path(__file__).parent
SHORT, LINES = 600, 12
"""Longer texts, and those of more lines, fold."""
MOST = 50_000
"""So many characters of a text are shown."""
PEEK = 240
_KEPT = frozenset("\n\t\u200c\u200d\u200e\u200f")
"""Without these, some scripts and emoji cannot be written; within a text that has its own direction they do no harm."""
HEADS = {
    "form": "A question for you",
    "page": "A page to visit",
    "sample": "A reply to write or review",
    "roots": "Folders to name",
    "raw": "A question that cannot be shown as a form",
}
INTROS = {
    "form": "",
    "page": "The server wants you to visit a page. Nothing is opened until you do it.",
    "sample": "The server wants a model to reply to this. Nothing is sent until you do it.",
    "roots": "The server wants to know which folders you work in.",
    "raw": "This is how it came.",
}
ACCEPTS = {"form": "Send answer", "page": "I agree", "sample": "Send reply", "roots": "Send folders"}
BY_METHOD = {SAMPLE: HEADS["sample"], ROOTS: HEADS["roots"]}
"""What stands for questions that have no words."""
KINDS = {"tools/call": "Tool", "prompts/get": "Prompt", "resources/read": "Resource"}
_UNITS = ((86400, "day", "days"), (3600, "hour", "hours"), (60, "minute", "minutes"))


def shown(text: object) -> Markup:
    """A stranger's text: as text, with what cannot be seen made visible."""
    whole = str(text)
    if whole.isascii() and whole.isprintable():
        return escape(whole)
    return Markup("").join(_letters(whole))


def _letters(text: str) -> list[Markup]:
    parts, plain = [], []
    for letter in text.replace("\r\n", "\n"):
        if letter.isprintable() or letter in _KEPT or unicodedata.category(letter) == "Zs":
            plain.append(letter)
        else:
            parts += [escape("".join(plain)), Markup('<i class="hidden">U+{:04X}</i>').format(ord(letter))]
            plain = []
    return [*parts, escape("".join(plain))]


def line(text: object, most: int = 200) -> str:
    """The same where there is no room for markup, as in a list that folds: one line of plain text."""
    whole = " ".join(str(text).split())
    legible = "".join(one if one.isprintable() or one in _KEPT else "\ufffd" for one in whole[: most + 1])
    return legible if len(whole) <= most else legible[:most] + "…"


def folded(text: object) -> Markup:
    """A stranger's text with its own direction, which folds where it is long."""
    whole = str(text)
    left = len(whole) - MOST
    more = (
        Markup('<p class="more">{} more characters are not shown.</p>').format(f"{left:,}") if left > 0 else Markup("")
    )
    body = Markup('<div class="said" dir="auto">{}</div>{}').format(shown(whole[:MOST]), more)
    if len(whole) <= SHORT and whole.count("\n") < LINES:
        return body
    peek = "\n".join(whole[:PEEK].split("\n")[:3])
    return Markup(
        '<details class="fold"><summary><span class="said peek" dir="auto">{}…</span>'
        '<span class="unfold">All {} characters</span></summary>{}</details>'
    ).format(shown(peek), f"{len(whole):,}", body)


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
    """What a result says in words, and the rest of it."""
    content = result.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
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
        shown=shown, line=line, folded=folded, moment=moment, host=host, pretty=pretty, spoken=spoken, blocks=blocks
    )
    made.globals.update(heads=HEADS, intros=INTROS, by_method=BY_METHOD, accepts=ACCEPTS, kinds=KINDS, zones=ZONES)
    return made


def render(template: str, **facts: Any) -> str:
    """A page, or a part of one."""
    return templates().get_template(template).render(**facts)
