"""A question's form, filled in at a terminal: a line for each field, and a mistake is asked about again at once.

The schema is a stranger's: what it says is shown as text, and checked as the client checks all answers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .._fields import Choice, check_field, choices_of, described, number_of
from .showing import legible

DECLINE, CANCEL, BACK = "!decline", "!cancel", "!back"
HELP = f"{DECLINE} refuses, {CANCEL} gives up, {BACK} goes to the field before. Empty takes what is in [brackets]."

Read = Callable[[str], str]
Say = Callable[[str, str], None]


class Refused(Exception):
    """The user does not want to answer: `action` is decline or cancel."""

    def __init__(self, action: str) -> None:
        self.action = action
        super().__init__(action)


class _Back(Exception):
    """The field before is to be filled in again."""


class _Skip(Exception):
    """A field that need not be filled in."""


class Form:
    """One form. `read` shows a prompt and gives a line; `say` shows a line in a style."""

    def __init__(self, schema: Mapping[str, Any], read: Read, say: Say) -> None:
        self._fields: dict[str, Mapping[str, Any]] = dict(schema.get("properties", {}))
        self._required = set(schema.get("required", ()))
        self._read = read
        self._say = say

    def fill(self) -> dict[str, Any]:
        """The content of an answer; Refused where the user does not want to."""
        names, content, place = list(self._fields), {}, 0
        while place < len(names):
            name = names[place]
            try:
                content[name] = self._field(name)
            except _Skip:
                content.pop(name, None)
            except _Back:
                place = max(0, place - 1)
                continue
            place += 1
        return content

    def _field(self, name: str) -> Any:
        part = self._fields[name]
        choices = choices_of(part)
        self._introduce(name, part, choices)
        while True:
            text = self._line(name, part)
            try:
                value = default_of(part, name in self._required) if not text else value_of(text, part, choices)
                check_field(name, part, value)
            except ValueError as error:
                self._say(f"  {legible(str(error))}", "red")
            else:
                return value

    def _introduce(self, name: str, part: Mapping[str, Any], choices: list[Choice]) -> None:
        title = part.get("title")
        label = name if not isinstance(title, str) or title == name else f"{title} ({name})"
        need = "" if name in self._required else ", optional"
        self._say(legible(f"{label}: {described(part)}{need}"), "bold")
        if isinstance(part.get("description"), str):
            self._say(f"  {legible(part['description'])}", "dim")
        for number, choice in enumerate(choices, 1):
            self._say(legible(f"  {number}  {choice.title}"), "")

    def _line(self, name: str, part: Mapping[str, Any]) -> str:
        default = part.get("default")
        shown = "" if default is None else f" [{legible(spelled(default))}]"
        line = self._read(f"{legible(name)}{shown}> ").strip()
        if line in (DECLINE, CANCEL):
            raise Refused(line.removeprefix("!"))
        if line == BACK:
            raise _Back
        return line.replace("!!", "!", 1) if line.startswith("!!") else line


def default_of(part: Mapping[str, Any], is_required: bool) -> Any:
    """What an empty line stands for."""
    if "default" in part:
        return part["default"]
    if is_required:
        raise ValueError("this one is needed")
    raise _Skip


def value_of(text: str, part: Mapping[str, Any], choices: list[Choice]) -> Any:
    """What a line stands for; ValueError where it is of another kind."""
    kind = part.get("type")
    if kind == "array":
        return [_chosen(word.strip(), choices) for word in text.split(",") if word.strip()]
    if kind == "boolean":
        return _truth(text)
    if choices:
        return _chosen(text, choices)
    return number_of(text, kind) if kind in ("integer", "number") else text


def _chosen(text: str, choices: list[Choice]) -> Any:
    """A choice, by its number, its value or its title."""
    for choice in choices:
        if text in (str(choice.value), choice.title):
            return choice.value
    if text.isdigit() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1].value
    raise ValueError(f"{text!r} is none of these: give a number from 1 to {len(choices)}, or the words")


def _truth(text: str) -> bool:
    word = text.lower()
    if word in ("y", "yes", "true", "1"):
        return True
    if word in ("n", "no", "false", "0"):
        return False
    raise ValueError("yes or no")


def spelled(value: Any) -> str:
    """A default, as one would type it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
