"""Patterns as checks that take no longer than the text that they are held against, and what it takes to make one."""

import re
from collections.abc import Callable
from functools import lru_cache

HEAVIEST = 8_000
"""What takes more effort is left to the peer whose pattern it is."""
_OTHERWISE = re.compile(r"\\[<>]|&&|--|~~|\{,|\[[^\]]*\[")
"""What the engine that takes linear time reads otherwise than Python, or than JSON Schema."""
_PARTS = re.compile(
    r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|\\[pP](?:\{[^}]*\}|.)|\\.|[*+?]|\{(?P<least>[0-9]{1,6})(?:,(?P<most>[0-9]{0,6}))?\}|.",
    re.DOTALL,
)
_WIDE, _DIGITS = re.compile(r"\\[wWpP]"), re.compile(r"\\[dD]")
_BROAD = re.compile(r"\\[uUxN0-9]|[^\x00-\x7f]")
_UNWEIGHED = re.compile(r"\(\?[a-zA-Z-]*x|\[(?:\\.|[^\]\\])*\[", re.DOTALL)
"""Spaces that mean nothing, and sets in sets."""


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[str], bool] | None:
    """A pattern that takes as long as its text is, or None where it has parts that need more or mean something else."""
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    if _OTHERWISE.search(pattern):
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError:  # A pattern that this engine does not know.
        return None


def reading(pattern: str) -> int:
    """What it takes, about, to find out whether a text is a pattern: Python looks at each character that a set has."""
    sets = [part["set"] for part in _PARTS.finditer(pattern) if part["set"]]
    return len(pattern) + sum(2000 if _BROAD.search(text) else 40 for text in sets)


def effort(pattern: str, text: str) -> int:
    """What it takes to compile a pattern and to hold it against a text, about, in steps of a check."""
    return _weight(pattern) * (1 + len(text) // 500)


@lru_cache(maxsize=256)
def _weight(pattern: str) -> int:
    """What is repeated is written out so often, and a letter of any script is as much as sixty of one."""
    if len(pattern) > HEAVIEST or _UNWEIGHED.search(pattern):
        return HEAVIEST + 1
    groups, last = [0], 0
    for part in _PARTS.finditer(pattern):
        text = part[0]
        if part["least"]:
            times = max(int(part["least"]), int(part["most"] or 0), 1)
            groups[-1] += last * (times - 1)
            last *= times
        elif text == "(":
            groups.append(1)
        elif text == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif text not in "*+?":
            last = 1 + len(text) // 8 + 60 * len(_WIDE.findall(text)) + 5 * len(_DIGITS.findall(text))
            groups[-1] += last
    return sum(groups)
