"""Servers as one names them on a command line: a URL, a Python server, or a command to start."""

import re
import shlex
import shutil
import sys
from contextlib import redirect_stdout
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from .keys import NO_SOURCE, KeySource
from .loading import NotFound, load_or_say

KINDS = "TARGET is a URL with http:// or https://, module:attribute, file.py, or a command in quotes"
_HOST = re.compile(
    r"(?P<host>localhost|[\w-]+(\.[\w-]+)*|\[[0-9a-fA-F:]+\])(?P<port>:[0-9]+)?(?P<path>/\S*)?", re.ASCII
)


def target_of(name: str, source: KeySource = NO_SOURCE) -> Any:
    """What a client takes for this name; a Python server gets the keys of `source`. NotFound where one is meant and is
    not there, ValueError where keys are given to another's.
    """
    words = [] if is_url(name) else shlex.split(name)
    if len(words) == 1:
        if _is_python(words[0]) or _is_module(words[0]):
            with redirect_stdout(sys.stderr):  # What its author prints is no result.
                return load_or_say(words[0], source)
        _check_command(words[0])
    if source:
        raise ValueError(f"keys are for a server that runs in this process, module:attribute; {name} has its own")
    return words or name


def is_url(name: str) -> bool:
    """Whether a server is somewhere else, and not to be started or imported here."""
    return name.startswith(("http://", "https://"))


def _is_python(word: str) -> bool:
    place, colon, attribute = word.partition(":")
    if place.endswith(".py") and (not colon or attribute.isidentifier()):
        return not Path(place).stat().st_mode & 0o111 if Path(place).is_file() and not colon else True
    return bool(colon) and attribute.isidentifier() and all(part.isidentifier() for part in place.split("."))


def _is_module(word: str) -> bool:
    """Whether a word without an attribute is a module. A command of the same name comes first."""
    parts = word.split(".")
    if not all(part.isidentifier() for part in parts) or shutil.which(word) is not None:
        return False
    return PathFinder.find_spec(parts[0], ["", *sys.path]) is not None


def _check_command(word: str) -> None:
    """NotFound where one word is no command, with what may have been meant."""
    if shutil.which(word) is not None or Path(word).exists():
        return
    if (url := _url_of(word)) is not None:
        raise NotFound(f"there is no command {word!r}; did you mean {url}?")
    if "/" not in word or "://" in word:
        raise NotFound(f"there is no command and no module {word!r}; {KINDS}")


def _url_of(word: str) -> str | None:
    """The URL that lacks its scheme; None where a word does not look like one."""
    found = _HOST.fullmatch(word)
    if found is None:
        return None
    host, port, path = found["host"], found["port"], found["path"]
    is_near = host in ("localhost", "127.0.0.1", "[::1]")
    if port is None and not (path and (is_near or "." in host)):
        return None
    return f"http{'' if is_near or port else 's'}://{host}{port or ''}{path or '/mcp'}"
