"""What goes to a terminal. Results go to standard output and all else to standard error, so that pipes get results."""

import json
import sys
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text

UNSHOWN = "\ufffd"
_HARMLESS = "\u00a0\u2007\u202f\u3000\u200c\u200d"
"""What is not printable and does nothing to a terminal: spaces that languages need, and what joins letters."""
WIDE = 1000
"""Columns where nobody looks: lines are for other programs, and are not broken."""


def legible(text: str, *, lines: bool = False) -> str:
    """What others wrote, without what a terminal would take for a command, or what turns the direction of text."""
    if text.isprintable():
        return text
    if lines:
        return "\n".join(map(_shown, text.split("\n")))
    return "".join(letter if letter.isprintable() or letter in _HARMLESS else UNSHOWN for letter in text)


def _shown(line: str) -> str:
    """A line with its tabs, and with the end that other systems give to lines."""
    end = "\r" if line.endswith("\r") else ""
    return "\t".join(map(legible, line.removesuffix("\r").split("\t"))) + end


def as_json(value: Any) -> str:
    """A value as JSON, in which the same is escaped: programs read what was written, and terminals obey nothing."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in text)


def note(text: str, style: str = "") -> None:
    """Say something to the person at the terminal. Nothing in it is markup."""
    console().print(Text(text, style=style))


lent: list[Console] = []
"""The console of what is at the foot of the terminal now: lines that are printed by it come above."""


def console() -> Console:
    """Standard error, as it is now."""
    if lent:
        return lent[-1]
    return Console(stderr=True, width=None if sys.stderr.isatty() else WIDE, highlight=False)


def fail(reason: str, code: int = 1) -> NoReturn:
    """Say what is wrong, and end."""
    typer.echo(legible(reason, lines=True), err=True)
    raise typer.Exit(code)
