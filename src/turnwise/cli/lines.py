"""Lines that a person types at the terminal: they can be edited, Ctrl-C ends the waiting, and keys are no text."""

import asyncio
import signal
import sys
from contextlib import redirect_stdout
from types import ModuleType

from .showing import note

LONGEST_LINE = 4095
"""Bytes that a terminal takes in a line where nothing edits it; what is beyond is lost without a word."""


def read_line(prompt: str) -> str:
    """A line. KeyboardInterrupt where the person has given the call up, be it before the prompt was there."""
    while True:
        line = _typed(prompt)
        if any((letter < " " and letter not in "\t\n") or letter == "\x7f" for letter in line):
            note("  there are keys in this line that are no text: type it again", "red")
        else:
            return line


def _typed(prompt: str) -> str:
    known = signal.signal(signal.SIGINT, signal.default_int_handler)  # The loop's own way would wait for the line.
    try:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise KeyboardInterrupt  # It came before the prompt, and the loop has not got round to it yet.
        return _edited(prompt) if _editor() is not None else _plain(prompt)
    except (KeyboardInterrupt, EOFError):
        sys.stderr.write("\n")  # What comes next is not to stand on the line of the prompt.
        raise
    finally:
        signal.signal(signal.SIGINT, known)


def _editor() -> ModuleType | None:
    """What edits lines, if anything does: it needs a terminal on both sides, and not every Python has it."""
    if sys.__stdout__ is None or not sys.__stdout__.isatty():
        return None
    try:
        import readline
    except ImportError:
        return None
    readline.set_auto_history(False)
    return readline


def _edited(prompt: str) -> str:
    with redirect_stdout(sys.__stdout__):
        return input(prompt)


def _plain(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = input()
    if len(line.encode(errors="surrogateescape")) >= LONGEST_LINE:
        note(f"  a terminal takes {LONGEST_LINE} bytes in a line, and what was beyond is lost; see --answers", "red")
    return line
