"""The fields of a form that a stranger wrote: what can be chosen, what is wanted in words, what a text stands for.

The room knows neither terminals nor pages; both fill in forms by it. What a schema says may be anything.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ._schemas import check_for_peers

_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
_BROKEN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

FORMATS = {
    "email": "an email address",
    "uri": "a URI",
    "date": "a date, 2026-12-31",
    "date-time": "a time with its zone, 2026-12-31T10:00:00Z",
}


class Choice(NamedTuple):
    """Something that can be chosen, and what it is called."""

    value: Any
    title: str


def choices_of(part: Mapping[str, Any]) -> list[Choice]:
    """What there is to choose from; nothing where a field is free."""
    source = part.get("items") if part.get("type") == "array" else part
    if not isinstance(source, Mapping):
        return []
    titled = source.get("oneOf") or source.get("anyOf")
    if isinstance(titled, list):
        known = [item for item in titled if isinstance(item, Mapping) and "const" in item]
        is_whole = len(known) == len(titled)
        return [Choice(item["const"], str(item.get("title", item["const"]))) for item in known] if is_whole else []
    values = source.get("enum")
    if not isinstance(values, list):
        return [Choice(True, "yes"), Choice(False, "no")] if part.get("type") == "boolean" else []
    names = source.get("enumNames")
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return [Choice(value, str(title)) for value, title in zip(values, titles, strict=True)]


def described(part: Mapping[str, Any], formats: Mapping[str, str] = FORMATS) -> str:
    """The kind of a field, and its bounds, in words."""
    kind = part.get("type")
    if kind == "array":
        return _between("several of", part.get("minItems"), part.get("maxItems"))
    if kind == "boolean":
        return "yes or no"
    if choices_of(part):
        return "one of"
    words = {"integer": "a whole number", "number": "a number"}.get(str(kind), "text")
    words = formats.get(str(part.get("format")), words)
    if kind == "string":
        return _between(words, part.get("minLength"), part.get("maxLength"), " characters")
    words = _between(words, part.get("minimum"), part.get("maximum"))
    above, below = part.get("exclusiveMinimum"), part.get("exclusiveMaximum")
    words = words if above is None else f"{words}, above {above}"
    return words if below is None else f"{words}, below {below}"


def _between(words: str, least: Any, most: Any, unit: str = "") -> str:
    if least is not None and most is not None:
        return f"{words}, {least} to {most}{unit}"
    if least is not None:
        return f"{words}, at least {least}{unit}"
    return words if most is None else f"{words}, at most {most}{unit}"


def number_of(text: str, kind: str) -> int | float:
    """A number as JSON has them, which Python has more of; ValueError where it is none."""
    if _WHOLE.fullmatch(text):
        return int(text)
    value = float(text) if kind == "number" and _BROKEN.fullmatch(text) else math.inf
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not {'a number' if kind == 'number' else 'a whole number'}")
    return value


def check_field(name: str, part: Mapping[str, Any], value: Any) -> None:
    """ValueError where a value does not fit its field."""
    check_for_peers({"type": "object", "properties": {name: dict(part)}, "required": [name]})({name: value})
