"""A question's form as a page has it: fields with controls, and what was typed into them as an answer's content.

The schema is a stranger's. Nothing that it says becomes the name of a control, a pattern that the browser runs, or
anything but text; a schema that is not one of the specification's flat forms is `Unfit`, and can only be refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, cast

from .._fields import FORMATS, Choice, check_field, choices_of, described, number_of
from ..dialects.answering import read_form

Kind = Literal["text", "lines", "email", "uri", "date", "date-time", "integer", "number", "truth", "one", "several"]
Typed = Mapping[str, Sequence[str]]
"""What the controls hold, by their names."""

MOST_FIELDS, MOST_CHOICES = 100, 500
LONG = 120
"""A text that cannot have more characters than this gets a single line."""
SAID = 120
"""Characters of what an author says of a field that are said again where something does not fit it."""
MOST_RADIOS = 7
"""More than so many choices are a list that folds."""
MOST_NAMED = 20
"""So many choices are named where something is none of them."""
ZONE = ".zone"
ANSWER = "Your answer"
"""What the one field of a question is called that wants a single value and has no title of its own."""
NOT_EMPTY = "cannot be left empty: its default would be sent in place of nothing"
_HALVES = {
    -9: "30",
    -3: "30",
    -2: "30",
    3: "30",
    4: "30",
    5: "30 45",
    6: "30",
    8: "45",
    9: "30",
    10: "30",
    12: "45",
    13: "45",
}
ZONES = tuple(
    f"{hour:+03}:{minutes}"
    for hour in range(-12, 15)
    for minutes in sorted(["00", *_HALVES.get(hour, "").split()], reverse=hour < 0)
)
"""The offsets from UTC that are in use."""
_WORDS = {
    **FORMATS,
    "uri": "an address with its scheme, as https://example.com",
    "date": "a date",
    "date-time": "a time",
}


class Unfit(Exception):
    """A schema that no form can be made of; the text says why."""


class Fault(NamedTuple):
    """What is wrong with a field, as the rest of a sentence about it. `control` is the name of its first control."""

    control: str
    title: str
    message: str


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `control` is the name of its control, which is ours."""

    name: str
    control: str
    kind: Kind
    part: Mapping[str, Any]
    choices: tuple[Choice, ...]
    is_required: bool

    @property
    def title(self) -> str:
        """What it is called."""
        title = self.part.get("title")
        return title if isinstance(title, str) and title.strip() else self.name

    @property
    def heading(self) -> str:
        """What it is called beside an answer, which may be another person's."""
        return "Answer" if self.title == ANSWER else self.title

    @property
    def description(self) -> str:
        """What its author says of it."""
        text = self.part.get("description")
        return text if isinstance(text, str) else ""

    @property
    def hint(self) -> str:
        """What may be entered, in our words; nothing where the control shows it."""
        words = described(self.part, _WORDS)
        if self.kind in ("truth", "one", "date", "date-time") or words == "text":
            words = ""
        if self.kind == "several":
            words = words.replace("several of", "any number of these", 1).replace("any number of these,", "choose")
        pattern = self.part.get("pattern")
        return f"{words or 'text'}, of the form {pattern}" if isinstance(pattern, str) else words

    @property
    def is_folded(self) -> bool:
        """Whether its choices are a list that folds."""
        return self.kind == "one" and len(self.choices) > MOST_RADIOS

    @property
    def may_be_left(self) -> bool:
        """Whether there may be no answer: without one, a default is sent in its place, so with a default there is."""
        return not self.is_required and "default" not in self.part

    @property
    def default(self) -> str:
        """What it holds from the start, in words; empty where it holds nothing."""
        if "default" not in self.part:
            return ""
        words = self.worded(self.part["default"]).replace("\n", ", " if self.kind == "several" else " ")
        return words if words.strip() else "empty"

    @property
    def needs_text(self) -> bool:
        """Whether its control must not be emptied: a default would be sent that is not to be seen any more."""
        return self.is_required or ("default" in self.part and not self._takes_nothing)

    @property
    def _takes_nothing(self) -> bool:
        return self.kind in ("text", "lines") and self._fits("")

    def bound(self, word: str) -> Any:
        """A bound that a control can take; None where there is none."""
        value = self.part.get(word)
        is_small = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
        return value if is_small else None

    def shown(self, typed: Typed | None) -> Sequence[str]:
        """What the control holds: what was typed, or the default."""
        if typed is not None:
            return typed.get(self.control, ())
        default = self.part.get("default")
        if default is None:
            return ()
        if self.choices:
            wanted = default if isinstance(default, list) else [default]
            return [
                str(at) for at, choice in enumerate(self.choices) if any(_same(choice.value, one) for one in wanted)
            ]
        if self.kind == "date-time":
            return [_clock(default)[0]]
        return [str(default)]

    def zone(self, typed: Typed | None) -> str:
        """The offset from UTC beside a time."""
        if typed is not None:
            return next(iter(typed.get(self.control + ZONE, ())), "+00:00")
        return _clock(self.part.get("default"))[1]

    def worded(self, value: Any) -> str:
        """A value in the words that it was chosen by; several are on a line each."""
        if self.kind == "truth" and isinstance(value, bool):
            return "Yes" if value else "No"
        if self.kind == "several" and isinstance(value, list):
            return "\n".join(self._chosen(one) for one in value) or "None"
        return self._chosen(value)

    def _chosen(self, value: Any) -> str:
        titles = (choice.title for choice in self.choices if _same(choice.value, value))
        return next(titles, None) or said(value)

    def value(self, typed: Typed) -> Any:
        """What was typed, as JSON, or `...` where nothing was; ValueError where it does not fit."""
        texts = [text.replace("\r\n", "\n") for text in typed.get(self.control, ())]
        if self.kind == "several":
            value = self._several(texts)
        elif not texts or not texts[0].strip():
            return self._nothing()
        else:
            value = self._one(texts[0], typed)
        if value is not ...:
            self._check(value)
        return value

    def _nothing(self) -> Any:
        if self.is_required:
            raise ValueError("is needed")
        if "default" not in self.part:
            return ...
        if self._takes_nothing:
            return ""
        raise ValueError(NOT_EMPTY)

    def _several(self, texts: Sequence[str]) -> Any:
        value = [self.choices[at].value for at in sorted({self._place(text) for text in texts if text})]
        if not value and self.may_be_left:
            return ...
        if not value and self.is_required and self.part.get("minItems") != 0 and not self._fits([]):
            raise ValueError("is needed: choose at least one")
        return value

    def _one(self, text: str, typed: Typed) -> Any:
        if self.choices:
            return self.choices[self._place(text)].value
        if self.kind in ("integer", "number"):
            return self._number(text.strip())
        if self.kind == "date-time":
            return self._moment(text.strip(), self.zone(typed))
        return text if self.kind in ("text", "lines") else text.strip()

    def _number(self, text: str) -> int | float:
        try:
            return number_of(text, self.kind)
        except ValueError:
            raise ValueError(f"must be {self.hint}") from None

    def _place(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 4 or int(text) >= len(self.choices):
            raise ValueError("is none of the choices")
        return int(text)

    def _moment(self, text: str, zone: str) -> str:
        try:
            moment = datetime.fromisoformat(text)
            whole = moment if moment.tzinfo is not None else datetime.fromisoformat(f"{moment.isoformat()}{zone}")
        except ValueError:
            raise ValueError("must be a date and a time") from None
        return whole.isoformat().replace("+00:00", "Z")

    def _fits(self, value: Any) -> bool:
        try:
            check_field(self.name, self.part, value)
        except ValueError:
            return False
        return True

    def _check(self, value: Any) -> None:
        if not self._fits(value):
            wanted = self.hint or described(self.part, _WORDS)
            if self.kind == "one":
                wanted = f"one of {', '.join(choice.title for choice in self.choices[:MOST_NAMED])}"
            if "pattern" in self.part and self.description.strip():
                said = " ".join(self.description.split())
                raise ValueError(f"does not fit: {said[:SAID]}{'…' * (len(said) > SAID)} ({wanted})")
            raise ValueError(f"is not as wanted: {wanted}" if self.kind == "several" else f"must be {wanted}")


@dataclass(frozen=True, slots=True)
class Form:
    """A form: its fields in their order."""

    fields: tuple[Field, ...]

    def read(self, typed: Typed) -> tuple[dict[str, Any], list[Fault]]:
        """The content of an answer, and what is wrong with what was typed."""
        content: dict[str, Any] = {}
        faults = []
        for field in self.fields:
            try:
                value = field.value(typed)
            except ValueError as error:
                faults.append(Fault(field.control, field.title, str(error)))
            else:
                if value is not ...:
                    content[field.name] = value
        return content, faults


def form_of(schema: Any, prefix: str = "") -> Form:
    """The form that a schema describes, with controls named by this prefix and a number; Unfit where there is none."""
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise Unfit("it does not describe a form")
    try:
        read_form(schema)
    except ValueError as error:
        raise Unfit(f"it cannot be used: {error}") from None
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if len(properties) > MOST_FIELDS:
        raise Unfit(f"it has more than {MOST_FIELDS} fields")
    if missing := [name for name in required if name not in properties]:
        raise Unfit(f"it needs a field that it does not describe: {missing[0]}")
    properties = _titled(properties)
    return Form(
        tuple(
            _field(name, f"{prefix}{number}", part, name in required)
            for number, (name, part) in enumerate(properties.items())
        )
    )


def _titled(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same, where a single value is called what a person calls it."""
    part = properties.get("value")
    if len(properties) == 1 and isinstance(part, Mapping) and part.get("title") in (None, "", "Value", "value"):
        return {"value": {**part, "title": ANSWER}}
    return properties


def _field(name: str, control: str, part: Any, is_required: bool) -> Field:
    if not isinstance(part, Mapping):
        raise Unfit(f"the field {name} is not described")
    choices = tuple(choices_of(part))
    if len(choices) > MOST_CHOICES:
        raise Unfit(f"the field {name} has more than {MOST_CHOICES} choices")
    return Field(name, control, _kind(name, part, bool(choices)), part, choices, is_required)


def _kind(name: str, part: Mapping[str, Any], has_choices: bool) -> Kind:
    kind, form = part.get("type"), part.get("format")
    if kind == "boolean":
        return "truth"
    if kind == "array" and has_choices:
        return "several"
    if kind in ("string", "integer", "number", None) and has_choices:
        return "one"
    if kind in ("integer", "number"):
        return cast("Kind", kind)
    if kind != "string" or {"oneOf", "anyOf", "enum"} & part.keys():
        raise Unfit(f"the field {name} is of a kind that forms do not have")
    if form in ("email", "uri", "date", "date-time"):
        return cast("Kind", form)
    most = part.get("maxLength")
    is_line = (isinstance(most, int) and most <= LONG) or not {"format", "pattern"}.isdisjoint(part)
    return "text" if is_line and "\n" not in str(part.get("default", "")) else "lines"


def pretty(value: Any) -> str:
    """JSON as a person reads it."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return "too deep to be shown"


def said(value: Any) -> str:
    """A value as a person reads it."""
    return value if isinstance(value, str) else pretty(value)


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _clock(default: Any) -> tuple[str, str]:
    """A moment as a control has it, and its offset from UTC."""
    try:
        moment = datetime.fromisoformat(default)
    except (ValueError, TypeError):
        return "", "+00:00"
    offset = moment.utcoffset() or timedelta()
    minutes = abs(int(offset.total_seconds())) // 60
    sign = "-" if offset < timedelta() else "+"
    return moment.replace(tzinfo=None).isoformat(), f"{sign}{minutes // 60:02}:{minutes % 60:02}"
