"""Resource templates: a URI with `{parameters}`, matched against the URIs that are read.

`{name}` is one path segment, `{name*}` (or `{+name}`) may span several. A value that would climb out of its place, by
`..`, a leading slash, a backslash or a NUL, does not match, however it was percent-encoded.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote

from .errors import InvalidSignature

_PLACE = re.compile(r"\{(\+?)([A-Za-z_][A-Za-z0-9_]*)(\*?)\}")


class Template(NamedTuple):
    """A template that can be matched."""

    pattern: re.Pattern[str]
    names: frozenset[str]
    spanning: frozenset[str]

    def match(self, uri: str) -> dict[str, str] | None:
        """The parameters that a URI gives, or None."""
        found = self.pattern.fullmatch(uri)
        if found is None:
            return None
        values = {name: unquote(value) for name, value in found.groupdict().items()}
        return values if all(_is_safe(value, name in self.spanning) for name, value in values.items()) else None


def _is_safe(value: str, spans: bool) -> bool:
    if "\0" in value or "\\" in value or (not spans and "/" in value):
        return False
    return not value.startswith("/") and ".." not in value.split("/")


def is_template(uri: str) -> bool:
    """Whether a URI has parameters in it."""
    return "{" in uri


def compile_template(uri: str) -> Template:
    """Make a template matchable; InvalidSignature where it cannot be read."""
    if "{" in _PLACE.sub("", uri):
        raise InvalidSignature(f"cannot read the template {uri!r}; use {{name}} or {{name*}}")
    pattern, position, spanning, names = "", 0, set[str](), set[str]()
    for place in _PLACE.finditer(uri):
        reserved, name, star = place.groups()
        spans = bool(reserved or star)
        pattern += re.escape(uri[position : place.start()]) + f"(?P<{name}>{'.+' if spans else '[^/]+'})"
        position = place.end()
        names.add(name)
        if spans:
            spanning.add(name)
    pattern += re.escape(uri[position:])
    return Template(re.compile(pattern), frozenset(names), frozenset(spanning))
