"""The fields of a form in words, for who types at a terminal: what is wanted, and what is wrong with what was typed."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .._fields import check_field, described

_LOOKS = {
    "email": "an email address looks like ada@example.com",
    "uri": "a URI looks like https://example.com/page",
    "date": "a date looks like 2026-12-31",
    "date-time": "a time looks like 2026-12-31T10:00:00Z",
}
_ZONE = "the zone is missing: Z at the end for UTC, or one such as +01:00"


def wanted(part: Mapping[str, Any]) -> str:
    """What a field takes."""
    if part.get("type") == "array":
        commas = "" if part.get("maxItems") == 1 else ", with commas between"
        return f"{_bounds(part) or 'any'} of these{commas}"
    words = described(part)
    return "one of these" if words == "one of" else words


def misfit(part: Mapping[str, Any], value: Any, reason: str) -> str:
    """Why a value does not fit, in better words than a schema's where there are some."""
    if isinstance(value, list) and (few := _bounds(part)) is not None:
        least, most = part.get("minItems") or 0, part.get("maxItems")
        if len(value) < least or (most is not None and len(value) > most):
            return f"{few} of these, not {len(value)}"
    form = part.get("format")
    if isinstance(value, str) and form in _LOOKS and not _fits(form, value):
        return _ZONE if form == "date-time" and _lacks_zone(value) else _LOOKS[form]
    return reason


def _bounds(part: Mapping[str, Any]) -> str | None:
    """How many; None where any number is right."""
    least, most = part.get("minItems") or 0, part.get("maxItems")
    if most is None:
        return f"at least {least}" if least else None
    if least == most:
        return str(most)
    return f"{least} to {most}" if least else f"at most {most}"


def _fits(form: str, value: str) -> bool:
    try:
        check_field("value", {"type": "string", "format": form}, value)
    except ValueError:
        return False
    return True


def _lacks_zone(text: str) -> bool:
    try:
        return ":" in text and datetime.fromisoformat(text).tzinfo is None
    except ValueError:
        return False
