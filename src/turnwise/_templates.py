"""Resource templates: a URI with `{parameters}`, matched against the URIs that are read.

`{name}` is one path segment, `{name*}` (or `{+name}`) may span several; the first that does takes what the others
leave. Each of those takes as little as the text beside it allows, so that matching takes linear time. A value that
would climb out of its place, by `..`, a leading slash, a backslash or a NUL, does not match, however it was
percent-encoded.
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
        """The parameters that a URI gives, or None: from the left up to the first that spans, then from the right."""
        if not uri.startswith(self.texts[0]) or not uri.endswith(self.texts[-1]):
            return None
        start, stop = len(self.texts[0]), len(uri) - len(self.texts[-1])
        between = self.texts[1:-1]
        pivot = next((place for place, name in enumerate(self.names) if name in self.spanning), len(between))
        left: list[str] = []
        for text in between[:pivot]:
            cut = uri.find(text, start + 1, stop)
            left.append(uri[start:cut])
            start = cut + len(text)
            if cut < 0:
                return None
        right: list[str] = []
        for text in reversed(between[pivot:]):
            cut = uri.rfind(text, start + 1, stop - 1)
            right.append(uri[cut + len(text) : stop])
            stop = cut
            if cut < 0:
                return None
        return self._read([*left, uri[start:stop], *reversed(right)]) if stop > start else None

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
