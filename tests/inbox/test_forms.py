"""Forms out of schemas: what becomes a field, what is typed becomes content, and what is no form is refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise._fields import described
from turnwise.inbox.forms import MOST_FIELDS, ZONES, Field, Form, Unfit, form_of


def form(*, required: list[str] | None = None, **properties: Any) -> Form:
    return form_of({"type": "object", "properties": properties, "required": required or []})


def field(part: dict[str, Any], *, required: bool = True) -> Field:
    return form(required=["x"] if required else [], x=part).fields[0]


def content(part: dict[str, Any], *texts: str, required: bool = True, **more: list[str]) -> Any:
    made = form(required=["x"] if required else [], x=part)
    read, faults = made.read({"0": list(texts), **{f"0.{name}": value for name, value in more.items()}})
    assert not faults, faults
    return read.get("x", ...)


def fault(part: dict[str, Any], *texts: str, required: bool = True) -> str:
    made = form(required=["x"] if required else [], x=part)
    _, faults = made.read({"0": list(texts)})
    [found] = faults
    assert found.control == "0"
    return found.message


COLOURS = {"type": "string", "enum": ["red", "green"]}
TITLED = {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]}
NAMED = {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}
SEVERAL = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}
SEVERAL_TITLED = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}}


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "string"}, "lines"),
        ({"type": "string", "maxLength": 120}, "text"),
        ({"type": "string", "maxLength": 121}, "lines"),
        ({"type": "string", "pattern": "^x+$"}, "text"),
        ({"type": "string", "maxLength": 2000}, "lines"),
        ({"type": "string", "maxLength": 20, "default": "a\nb"}, "lines"),
        ({"type": "string", "format": "email"}, "email"),
        ({"type": "string", "format": "uri"}, "uri"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "date-time"),
        ({"type": "string", "format": "somebody's own"}, "text"),
        ({"type": "integer"}, "integer"),
        ({"type": "number"}, "number"),
        ({"type": "boolean"}, "truth"),
        (COLOURS, "one"),
        (TITLED, "one"),
        (NAMED, "one"),
        ({"enum": [1, 2]}, "one"),
        (SEVERAL, "several"),
        (SEVERAL_TITLED, "several"),
    ],
)
def test_every_kind_of_the_specification_has_a_control(part: dict[str, Any], kind: str) -> None:
    assert field(part).kind == kind


@pytest.mark.parametrize(
    ("part", "typed", "value"),
    [
        ({"type": "string"}, "Ada", "Ada"),
        ({"type": "string"}, " a b ", " a b "),
        ({"type": "string", "maxLength": 999}, "a\r\nb", "a\nb"),
        ({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z]+$"}, "abc", "abc"),
        ({"type": "string", "format": "email"}, " ada@example.com ", "ada@example.com"),
        ({"type": "string", "format": "uri"}, "https://example.com/x", "https://example.com/x"),
        ({"type": "string", "format": "date"}, "2026-12-31", "2026-12-31"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "5", 5),
        ({"type": "integer"}, "123456789012345678901234567890", 123456789012345678901234567890),
        ({"type": "number"}, "-1.5e3", -1500.0),
        ({"type": "number"}, "7", 7),
        ({"type": "boolean"}, "0", True),
        ({"type": "boolean"}, "1", False),
        (COLOURS, "1", "green"),
        (TITLED, "0", "r"),
        (NAMED, "1", "g"),
        ({"enum": [1, 2]}, "1", 2),
    ],
)
def test_what_is_typed_becomes_a_value(part: dict[str, Any], typed: str, value: Any) -> None:
    assert content(part, typed) == value


@pytest.mark.parametrize(
    ("part", "typed", "words"),
    [
        ({"type": "string"}, "  ", "is needed"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "a", "must be text, 2 to 3 characters"),
        ({"type": "string", "pattern": "^[a-z]+$"}, "A", "must be text, of the form ^[a-z]+$"),
        (
            {"type": "string", "pattern": "^[a-z]+$", "description": "Small\nletters"},
            "A",
            "does not fit: Small letters (text, of the form ^[a-z]+$)",
        ),
        ({"type": "string", "format": "email"}, "nobody", "must be an email address"),
        ({"type": "string", "format": "uri"}, "nowhere", "must be an address with its scheme"),
        ({"type": "string", "format": "date"}, "2026-02-30", "must be a date"),
        ({"type": "string", "format": "date-time"}, "yesterday", "must be a date and a time"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "6", "must be a whole number, 1 to 5"),
        ({"type": "integer"}, "1.5", "must be a whole number"),
        ({"type": "number"}, "nan", "must be a number"),
        ({"type": "number"}, "1e999", "must be a number"),
        (COLOURS, "2", "is none of the choices"),
        (COLOURS, "red", "is none of the choices"),
        (COLOURS, "-1", "is none of the choices"),
        (COLOURS, "²", "is none of the choices"),
        ({"type": "boolean"}, "", "is needed"),
    ],
)
def test_what_does_not_fit_is_said_in_words(part: dict[str, Any], typed: str, words: str) -> None:
    assert words in fault(part, typed)


def test_several_are_chosen_in_their_order_and_once() -> None:
    assert content(SEVERAL, "2", "0", "2") == ["a", "c"]
    assert content(SEVERAL_TITLED, "1") == ["b"]


def test_too_few_and_too_many_are_said() -> None:
    assert fault({**SEVERAL, "minItems": 2}, "0") == "is not as wanted: choose at least 2"
    assert fault({**SEVERAL, "maxItems": 1}, "0", "1") == "is not as wanted: choose at most 1"
    assert fault({**SEVERAL, "minItems": 1}) == "is needed: choose at least one"


def test_none_of_several_is_an_answer_where_it_may_be() -> None:
    assert content(SEVERAL) == []
    assert content(SEVERAL, required=False) is ...
    assert content({**SEVERAL, "default": ["a"]}, required=False) == []


@pytest.mark.parametrize(
    ("zone", "value"), [("+02:00", "2026-12-31T10:00:00+02:00"), ("+00:00", "2026-12-31T10:00:00Z")]
)
def test_a_time_gets_the_zone_beside_it(zone: str, value: str) -> None:
    assert content({"type": "string", "format": "date-time"}, "2026-12-31T10:00", zone=[zone]) == value


def test_zones_are_in_their_order() -> None:
    minutes = [(-1 if zone[0] == "-" else 1) * (int(zone[1:3]) * 60 + int(zone[4:])) for zone in ZONES]
    assert minutes == sorted(minutes)
    assert "-09:30" in ZONES


def test_a_zone_that_is_none_is_said() -> None:
    read, faults = form(x={"type": "string", "format": "date-time"}).read(
        {"0": ["2026-12-31T10:00"], "0.zone": ["<b>"]}
    )
    assert read == {}
    assert faults[0].message == "must be a date and a time"


def test_what_is_optional_may_be_left() -> None:
    for part in ({"type": "string", "minLength": 3}, {"type": "integer"}, {"type": "boolean"}, COLOURS):
        assert content(part, "", required=False) is ...
        assert content(part, required=False) is ...


def test_a_default_that_was_taken_out_is_not_put_back_unseen() -> None:
    """An answer without the field would be completed with the default on its way."""
    assert content({"type": "string", "default": "x"}, "", required=False) == ""
    assert "default" in fault({"type": "string", "default": "x", "minLength": 1}, "", required=False)
    assert "default" in fault({"type": "integer", "default": 5}, "", required=False)
    assert not field({"type": "boolean", "default": True}, required=False).may_be_left


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ({"type": "string", "default": "x"}, ["x"]),
        ({"type": "integer", "default": 5}, ["5"]),
        ({"type": "number", "default": 0.5}, ["0.5"]),
        ({"type": "boolean", "default": False}, ["1"]),
        ({**TITLED, "default": "g"}, ["1"]),
        ({**SEVERAL, "default": ["a", "c"]}, ["0", "2"]),
        ({"enum": [1, True], "default": True}, ["1"]),
        ({"type": "string", "format": "date-time", "default": "2026-01-02T03:04:05+05:30"}, ["2026-01-02T03:04:05"]),
        ({"type": "string", "format": "date-time", "default": 5}, [""]),
        ({"type": "string"}, []),
    ],
)
def test_defaults_are_in_the_controls(part: dict[str, Any], shown: list[str]) -> None:
    assert list(field(part).shown(None)) == shown


def test_a_field_with_a_default_names_it_and_is_not_called_optional() -> None:
    default = field({"type": "integer", "default": 100}, required=False)
    assert (default.default, default.may_be_left, default.needs_text) == ("100", False, True)
    text = field({"type": "string", "default": "x"}, required=False)
    assert (text.default, text.needs_text) == ("x", False), "an empty text is a text"
    assert field({"type": "string", "default": "x", "minLength": 1}, required=False).needs_text
    assert field({**SEVERAL, "default": ["a", "c"]}, required=False).default.count(", ") == 1
    assert field({**SEVERAL, "default": ["a", "c"]}).default == "a, c", "where it is needed, too"
    assert field({"type": "string", "default": ""}, required=False).default == "empty"
    assert field({**SEVERAL, "default": []}, required=False).default == "None"
    plain = field({"type": "string"}, required=False)
    assert (plain.default, plain.may_be_left, plain.needs_text) == ("", True, False)


def test_what_was_typed_is_shown_again_in_place_of_a_default() -> None:
    one = field({"type": "string", "format": "date-time", "default": "2026-01-02T03:04:05-05:00"})
    assert one.zone(None) == "-05:00"
    assert one.shown({"0": ["typed"]}) == ["typed"]
    assert one.zone({"0.zone": ["+01:00"]}) == "+01:00"
    assert one.shown({}) == ()


def test_names_of_controls_are_ours() -> None:
    fields: Any = {'"><script>': {"type": "string"}, "b": {"type": "boolean"}}
    made = form(**fields)
    assert [one.control for one in made.fields] == ["0", "1"]
    assert made.fields[0].title == '"><script>'


def nested(depth: int) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        part = {"type": "object", "properties": {"x": part}}
    return part


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "text",
        {},
        {"type": "array"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"x": True}},
        {"type": "object", "properties": {"x": 1}},
        {"type": "object", "properties": {"x": {}}},
        {"type": "object", "properties": {"x": {"type": "null"}}},
        {"type": "object", "properties": {"x": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"x": {"type": "object"}}},
        {"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}},
        {"type": "object", "properties": {"x": {"type": "array", "items": True}}},
        {"type": "object", "properties": {"x": {"type": "string", "oneOf": [True]}}},
        {"type": "object", "properties": {"x": {"type": "string", "minLength": "much"}}},
        {"type": "object", "properties": {}, "required": ["x"]},
        {"type": "object", "properties": {}, "required": [["x"]]},
        {"type": "object", "properties": {"x": {"type": "string", "enum": [str(n) for n in range(501)]}}},
        {"type": "object", "properties": {str(n): {"type": "string"} for n in range(MOST_FIELDS + 1)}},
        {"type": "object", "properties": {"x": {"type": "string", "title": "x" * 70_000}}},
        nested(3),
        nested(200),
    ],
)
def test_what_is_no_form_can_only_be_refused(schema: Any) -> None:
    with pytest.raises(Unfit):
        form_of(schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
WORDS = ("type", "enum", "oneOf", "anyOf", "items", "format", "default", "title", "minLength", "maximum", "pattern")
KINDS = st.sampled_from(["string", "integer", "number", "boolean", "array"])
PARTS = st.dictionaries(st.sampled_from(WORDS), JSON, max_size=4).flatmap(
    lambda part: st.just(part) | KINDS.map(lambda kind: {**part, "type": kind})
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=5), PARTS, max_size=3), st.lists(st.text(max_size=6), max_size=3))
def test_no_schema_and_no_typing_breaks_a_form(properties: dict[str, Any], texts: list[str]) -> None:
    try:
        made = form_of({"type": "object", "properties": properties})
    except Unfit:
        return
    for one in made.fields:
        one.shown(None), one.zone(None), one.hint, one.title, one.description, one.bound("maximum")
    read, faults = made.read({str(number): texts for number in range(3)})
    assert len(read) + len(faults) <= len(properties)


def test_bounds_that_must_not_be_reached_are_told() -> None:
    assert described({"type": "number", "exclusiveMinimum": 0, "maximum": 5000}) == "a number, at most 5000, above 0"
    assert described({"type": "integer", "exclusiveMaximum": 10}) == "a whole number, below 10"
