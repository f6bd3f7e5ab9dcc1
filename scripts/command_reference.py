"""Write docs/reference/command.md: every command, argument and option, as the command itself knows them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from turnwise.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command.md"
HEAD = """# The command

Every command with its arguments and options. What they are for, and what they print, is in [the
guide](../guides/command.md). `scripts/command_reference.py` writes this page, and a test holds it to the code.
`turnwise --version` says which release it is.
"""


def commands(command: Any, name: str = "turnwise") -> Iterator[tuple[str, Any]]:
    """Each command that does something, with its whole name."""
    below = getattr(command, "commands", None)
    if below is None:
        yield name, command
        return
    for word, part in below.items():
        yield from commands(part, f"{name} {word}")


def all_commands() -> dict[str, Any]:
    """Commands by name."""
    return dict(commands(typer.main.get_command(app)))


def flags(parameter: Any) -> list[str]:
    """How an option is written; nothing for an argument."""
    if parameter.param_type_name == "argument":
        return []
    return [*parameter.opts, *parameter.secondary_opts]


def written() -> str:
    """The page."""
    return HEAD + "".join(_section(name, command) for name, command in all_commands().items())


def _section(name: str, command: Any) -> str:
    parameters = [part for part in command.params if part.name != "help"]
    usage = " ".join([name, *(["[OPTIONS]"] if any(map(flags, parameters)) else []), *map(_place, parameters)]).split()
    lines = [f"\n## {name}\n", f"    {' '.join(usage)}\n", f"{_plain(command.help or '')}\n"]
    if parameters:
        lines += ["| | | default |", "|---|---|---|", *map(_row, parameters), ""]
    return "\n".join(lines)


def _place(parameter: Any) -> str:
    if flags(parameter):
        return ""
    name = parameter.metavar or f"{parameter.name.upper()}{'...' if parameter.nargs == -1 else ''}"
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _row(parameter: Any) -> str:
    name = " / ".join(f"`{flag}`" for flag in flags(parameter)) or f"`{_place(parameter).strip('[]')}`"
    return f"| {name} | {_plain(getattr(parameter, 'help', None) or '')} | {_default(parameter)} |"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "needed"
    value = parameter.default
    if value is None or value == () or (value is False and not parameter.secondary_opts):
        return ""
    if isinstance(value, bool):
        return f"`{(parameter.opts if value else parameter.secondary_opts)[0]}`"
    return f"`{value}`"


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")
