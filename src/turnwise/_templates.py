"""Resource templates: a URI with `{parameters}`, matched against the URIs that are read.

`{name}` is one path segment, `{name*}` (or `{+name}`) may span several. Each takes as little as the text after it
allows, so that matching takes linear time. A value that would climb out of its place, by `..`, a leading slash, a
backslash or a NUL, does not match, however it was percent-encoded.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote

from .errors import InvalidSignature

_PLACE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)(\*?)\}")


class Template(NamedTuple):
    """A template that can be matched: the text before each parameter, the parameters, the text after the last."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    spanning: frozenset[str]

    def match(self, uri: str) -> dict[str, str] | None:
        """The parameters that a URI gives, or None."""
        first, *between, last = self.texts
        if not uri.startswith(first) or not uri.endswith(last):
            return None
        position, end = len(first), len(uri) - len(last)
        values = []
        for text in between:
            stop = uri.find(text, position + 1, end)
            if stop < 0:
                return None
            values.append(uri[position:stop])
            position = stop + len(text)
        values.append(uri[position:end])
        return self._read(values) if end > position else None

    def _read(self, values: list[str]) -> dict[str, str] | None:
        found = {}
        for name, raw in zip(self.names, values, strict=True):
            spans = name in self.spanning
            value = unquote(raw)
            if not _is_safe(value, spans) or (not spans and "/" in raw):
                return None
            found[name] = value
        return found


def _is_safe(value: str, spans: bool) -> bool:
    if "\0" in value or "\\" in value or (not spans and "/" in value):
        return False
    return not value.startswith("/") and ".." not in value.split("/")


def is_template(uri: str) -> bool:
    """Whether a URI has parameters in it."""
    return "{" in uri


def compile_template(uri: str) -> Template:
    """Make a template matchable; InvalidSignature where it cannot be read."""
    places = list(_PLACE.finditer(uri))
    names = tuple(place[2] for place in places)
    if not places or "{" in _PLACE.sub("", uri):
        raise InvalidSignature(f"cannot read the template {uri!r}; use {{name}} or {{name*}}")
    if len(set(names)) != len(names):
        raise InvalidSignature(f"the template {uri!r} has a parameter twice")
    edges = [0, *(edge for place in places for edge in place.span()), len(uri)]
    texts = tuple(uri[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))
    if "" in texts[1:-1]:
        raise InvalidSignature(f"the template {uri!r} has two parameters with nothing between them")
    return Template(texts, names, frozenset(place[2] for place in places if place[1] or place[3]))
