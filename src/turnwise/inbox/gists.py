"""The arguments of a call in a line, for lists. They are sealed beside the headline: no list opens whole items."""

from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

MOST_ARGUMENTS = 6
"""So many arguments are in a gist; more are counted."""
NAME, VALUE = 30, 60
"""Characters of each."""
HEADLINE = 300
"""Characters of a question."""
_INSIDE, _ITEMS = 3, 4

Gist = tuple[tuple[str, str], ...]
"""Names with values, as strangers wrote them; a value without a name says what was left out."""


class Outcome(NamedTuple):
    """What has become of a call: how it is with it in a word, what was answered last, by whom, and what it gave."""

    state: str = ""
    said: Gist = ()
    by: str = ""
    reply: str = ""


def in_a_line(request: Mapping[str, Any]) -> str:
    """What is asked, or the kind of a question that has no words."""
    text = str(request.get("params", {}).get("message") or request["method"])
    return " ".join(text[: 2 * HEADLINE].split())[:HEADLINE]


def gist(arguments: Mapping[str, Any]) -> Gist:
    """The first arguments of a call, whatever their size."""
    shown = tuple((cut(name, NAME), brief(value)) for name, value in islice(arguments.items(), MOST_ARGUMENTS))
    more = len(arguments) - len(shown)
    return (*shown, ("", f"and {more} more")) if more > 0 else shown


def brief(value: Any) -> str:
    """A value, whatever its size."""
    return cut(_inside(value, _INSIDE), VALUE)


def cut(text: str, most: int) -> str:
    """The beginning of a text, in one line."""
    whole = " ".join(text[: 4 * most].split())
    return whole if len(whole) <= most else whole[:most] + "…"


def _inside(value: Any, depth: int) -> str:
    """A value as JSON is read aloud, of which only the beginning is looked at."""
    if isinstance(value, str):
        return value[: 4 * VALUE]
    if isinstance(value, Mapping | list) and not depth:
        return "…"
    if isinstance(value, Mapping):
        parts = [f"{name[:NAME]}: {_inside(one, depth - 1)}" for name, one in islice(value.items(), _ITEMS)]
        return "{" + ", ".join(parts) + (", …" if len(value) > _ITEMS else "") + "}"
    if isinstance(value, list):
        parts = [_inside(one, depth - 1) for one in value[:_ITEMS]]
        return "[" + ", ".join(parts) + (", …" if len(value) > _ITEMS else "") + "]"
    return "yes" if value is True else "no" if value is False else "nothing" if value is None else str(value)
