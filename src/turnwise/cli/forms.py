"""A question's form, filled in at a terminal: a line for each field, and a mistake is asked about again at once.

The schema is a stranger's: what it says is shown as text, and checked as the client checks all answers.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .._fields import Choice, check_field, choices_of, number_of
from .showing import legible
from .wording import misfit, wanted

DECLINE, CANCEL, BACK, NONE = "!decline", "!cancel", "!back", "!none"
_EMPTY: Any = object()
"""What is typed for nothing at all."""

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
        self._content: dict[str, Any] = {}

    @property
    def help(self) -> str:
        """What can be typed beside answers."""
        has_several = len(self._fields) > 1
        words = [f"{DECLINE} refuses", f"{CANCEL} gives up"]
        words += [f"{BACK} goes to the field before"] * has_several
        words += [f"{NONE} leaves a field empty"] * any(map(self._can_be_emptied, self._fields))
        has_defaults = has_several or any("default" in part for part in self._fields.values())
        is_free = any("default" not in part and name not in self._required for name, part in self._fields.items())
        empty = ["takes what is in [brackets]"] * has_defaults + ["leaves out what is optional"] * is_free
        return f"{', '.join(words)}." + f" Empty {', or '.join(empty)}." * bool(empty)

    def fill(self) -> dict[str, Any]:
        """The content of an answer; Refused where the user does not want to."""
        names, place = list(self._fields), 0
        while place < len(names):
            name = names[place]
            try:
                self._content[name] = self._field(name)
            except _Skip:
                self._content.pop(name, None)
            except _Back:
                if not place:
                    self._say("  there is no field before this one", "red")
                place = max(0, place - 1)
                continue
            place += 1
        return {name: self._content[name] for name in names if name in self._content}

    def _can_be_emptied(self, name: str) -> bool:
        """Whether there is, or may be after going back, something to be cleared that Enter would leave as it is."""
        part = self._fields[name]
        if "default" not in part:
            return name not in self._required and len(self._fields) > 1
        if part.get("type") == "array":
            return bool(part["default"]) and not part.get("minItems")
        return bool(part["default"]) and _is_text(part) and not part.get("minLength")

    def _field(self, name: str) -> Any:
        part = self._fields[name]
        choices = choices_of(part)
        self._introduce(name, part, choices)
        while True:
            value: Any = None
            try:
                value = self._value(name, part, choices)
                check_field(name, part, value)
            except ValueError as error:
                self._say(f"  {legible(misfit(part, value, str(error)))}", "red")
            else:
                return value

    def _value(self, name: str, part: Mapping[str, Any], choices: list[Choice]) -> Any:
        text = self._line(name, part)
        if text is _EMPTY:
            return nothing(part, name in self._required)
        if text:
            return value_of(text, part, choices)
        if name in self._content:
            return self._content[name]
        if "default" in part:
            return part["default"]
        if name not in self._required:
            raise _Skip
        return nothing(part, is_required=True)

    def _introduce(self, name: str, part: Mapping[str, Any], choices: list[Choice]) -> None:
        title = part.get("title")
        is_same = not isinstance(title, str) or title.casefold().split() == name.casefold().replace("_", " ").split()
        need = "" if name in self._required else ", optional"
        self._say(legible(f"{name if is_same else f'{title} ({name})'}: {wanted(part)}{need}"), "bold")
        if isinstance(part.get("description"), str):
            self._say(f"  {legible(part['description'])}", "dim")
        if part.get("type") != "boolean":
            wide = len(str(len(choices)))
            for number, choice in enumerate(choices, 1):
                self._say(legible(f"  {number:>{wide}}  {choice.title}"), "")

    def _line(self, name: str, part: Mapping[str, Any]) -> Any:
        """What is typed; _EMPTY where that is to be nothing at all."""
        default = self._content.get(name, part.get("default"))
        shown = "" if default is None else f" [{legible(spelled(default))}]"
        line = self._read(f"{legible(name)}{shown}> ").strip()
        if not line.startswith("!"):
            return line
        if line.startswith("!!"):
            return line[1:]
        word = line.lower()
        if word in (DECLINE, CANCEL):
            raise Refused(word.removeprefix("!"))
        if word == BACK:
            raise _Back
        if word == NONE:
            return _EMPTY
        words = f"{DECLINE}, {CANCEL}, {BACK} and {NONE}"
        raise ValueError(f"there are {words}, and no {line}. Text that begins with ! is typed as !{line}")


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "string" and "format" not in part and not choices_of(part)


def nothing(part: Mapping[str, Any], is_required: bool) -> Any:
    """The value of a field that is to be empty; ValueError where it cannot be."""
    if part.get("type") == "array":
        return []
    if "default" in part:
        if _is_text(part):
            return ""
        raise ValueError(f"this one is {spelled(part['default'])} where nothing is said, and cannot be empty")
    if not is_required:
        raise _Skip
    raise ValueError("this one is needed")


def value_of(text: str, part: Mapping[str, Any], choices: list[Choice]) -> Any:
    """What a line stands for; ValueError where it is of another kind."""
    kind = part.get("type")
    if kind == "array":
        return _several(text, choices)
    if kind == "boolean":
        return _truth(text)
    if choices:
        return _chosen(text, choices)
    return number_of(text, kind) if kind in ("integer", "number") else text


def _several(text: str, choices: list[Choice]) -> list[Any]:
    """Choices between commas, each once; also between spaces, where words with spaces are none."""
    found: list[Any] = []
    whole = [text] if _is_choice(text, choices) else [word.strip() for word in text.split(",")]
    for word in filter(None, whole):
        parts = word.split()
        is_split = not _is_choice(word, choices) and all(_is_choice(part, choices) for part in parts)
        for part in parts if is_split else [word]:
            value = _chosen(part, choices)
            if value not in found:
                found.append(value)
    return found


def _is_choice(text: str, choices: list[Choice]) -> bool:
    try:
        _chosen(text, choices)
    except ValueError:
        return False
    return True


def _chosen(text: str, choices: list[Choice]) -> Any:
    """A choice, by its number, its value or its title."""
    for choice in choices:
        if text in (str(choice.value), choice.title):
            return choice.value
    if text.isdigit() and 1 <= int(text) <= len(choices):
        return choices[int(text) - 1].value
    alike = [choice for choice in choices if text.casefold() in (str(choice.value).casefold(), choice.title.casefold())]
    if len(alike) == 1:
        return alike[0].value
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
