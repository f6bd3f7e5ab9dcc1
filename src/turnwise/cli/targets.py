"""Servers as one names them on a command line: a URL, a Python server, or a command to start."""

import shlex
from pathlib import Path
from typing import Any

from .loading import load_or_say


def target_of(name: str) -> Any:
    """What a client takes for this name. NotFound where a Python server is meant, and is not there."""
    if name.startswith(("http://", "https://")):
        return name
    words = shlex.split(name)
    if len(words) == 1 and _is_python(words[0]):
        return load_or_say(words[0])
    return words


def _is_python(word: str) -> bool:
    place, colon, attribute = word.partition(":")
    if place.endswith(".py") and (not colon or attribute.isidentifier()):
        return not Path(place).stat().st_mode & 0o111 if Path(place).is_file() and not colon else True
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in place.split("."))
