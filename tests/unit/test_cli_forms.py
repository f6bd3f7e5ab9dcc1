"""A form with every kind of field that the specification allows, filled in at a terminal, with mistakes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.test_cli_call import Commands, Terminal, commands
from turnwise.cli.forms import Form, Refused

SIZES = ["small", "large"]
COLORS = [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]
FIELDS: dict[str, Any] = {
    "name": {"type": "string", "title": "Your name", "description": "As on the card", "minLength": 2, "maxLength": 5},
    "mail": {"type": "string", "format": "email"},
    "page": {"type": "string", "format": "uri"},
    "day": {"type": "string", "format": "date"},
    "moment": {"type": "string", "format": "date-time"},
    "weight": {"type": "number", "minimum": 0.5, "maximum": 9.5},
    "count": {"type": "integer", "minimum": 1, "maximum": 10},
    "sure": {"type": "boolean"},
    "size": {"type": "string", "enum": SIZES},
    "color": {"type": "string", "oneOf": COLORS},
    "speed": {"type": "string", "enum": ["s", "f"], "enumNames": ["Slow", "Fast"]},
    "sides": {"type": "array", "items": {"type": "string", "enum": ["rice", "bread", "salad"]}, "minItems": 1},
    "paints": {"type": "array", "items": {"anyOf": COLORS}, "minItems": 1, "maxItems": 1},
    "city": {"type": "string", "default": "York"},
    "cups": {"type": "integer", "default": 2},
    "ratio": {"type": "number", "default": 1.5},
    "wrapped": {"type": "boolean", "default": True},
    "shade": {"type": "string", "oneOf": COLORS, "default": "#0f0"},
    "extras": {"type": "array", "items": {"type": "string", "enum": SIZES}, "default": ["large"]},
    "note": {"type": "string"},
    "tip": {"type": "number"},
    "gift": {"type": "boolean"},
    "layers": {"type": "array", "items": {"type": "string", "enum": SIZES}, "maxItems": 1},
}
OPTIONAL = ("note", "tip", "gift", "layers")
SCHEMA = {"type": "object", "properties": FIELDS, "required": [name for name in FIELDS if name not in OPTIONAL]}
# What is typed, field by field: first the mistakes, each with what is said to it, then what is right.
TYPED: list[tuple[str, str, str | None]] = [
    ("name", "", "this one is needed"),
    ("name", "A", "'A' is too short"),
    ("name", "Adelaide", "'Adelaide' is too long"),
    ("name", "Ada", None),
    ("mail", "ada", "an email address looks like ada@example.com"),
    ("mail", "ada@example.com", None),
    ("page", "nowhere", "a URI looks like https://example.com/page"),
    ("page", "https://example.com/?a=1", None),
    ("day", "tomorrow", "a date looks like 2026-12-31"),
    ("day", "2026-12-31", None),
    ("moment", "2026-12-31", "a time looks like 2026-12-31T10:00:00Z"),
    ("moment", "2026-12-31T10:00:00", "the zone is missing: Z at the end for UTC, or one such as +01:00"),
    ("moment", "2026-12-31T10:00:00Z", None),
    ("weight", "heavy", "'heavy' is not a number"),
    ("weight", "nan", "'nan' is not a number"),
    ("weight", "0.4", "0.4 is less than the minimum of 0.5"),
    ("weight", "10", "10 is greater than the maximum of 9.5"),
    ("weight", "7.25", None),
    ("count", "1.5", "'1.5' is not a whole number"),
    ("count", "11", "11 is greater than the maximum of 10"),
    ("count", "3", None),
    ("sure", "perhaps", "yes or no"),
    ("sure", "No", None),
    ("size", "medium", "'medium' is none of these"),
    ("size", "3", "'3' is none of these"),
    ("size", "2", None),
    ("color", "Blue", "'Blue' is none of these"),
    ("color", "Red", None),
    ("speed", "Fast", None),
    ("sides", ",", "at least 1 of these, not 0"),
    ("sides", "rice, soup", "'soup' is none of these"),
    ("sides", "1 salad, rice", None),
    ("paints", "1, 2", "1 of these, not 2"),
    ("paints", "Green", None),
    *((name, "", None) for name in ("city", "cups", "ratio", "wrapped", "shade", "extras", *OPTIONAL)),
]
FILLED = {
    "name": "Ada",
    "mail": "ada@example.com",
    "page": "https://example.com/?a=1",
    "day": "2026-12-31",
    "moment": "2026-12-31T10:00:00Z",
    "weight": 7.25,
    "count": 3,
    "sure": False,
    "size": "large",
    "color": "#f00",
    "speed": "f",
    "sides": ["rice", "salad"],
    "paints": ["#0f0"],
    "city": "York",
    "cups": 2,
    "ratio": 1.5,
    "wrapped": True,
    "shade": "#0f0",
    "extras": ["large"],
}
SHOP = f"""
import json
from mcp_types import ElicitRequest, ElicitRequestFormParams
from turnwise import Context, InputRequiredResult, MCPServer

server = MCPServer("forms")

@server.tool()
async def ask(ctx: Context) -> str | InputRequiredResult:
    answer = (ctx.input_responses or {{}}).get("form")
    if answer is None:
        params = ElicitRequestFormParams(message="Fill it in", requested_schema={SCHEMA!r})
        return InputRequiredResult(input_requests={{"form": ElicitRequest(params=params)}})
    return answer.action if answer.content is None else json.dumps(answer.content)
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with commands({"shop.py": SHOP}, tmp_path_factory.mktemp("forms")) as begun:
        yield begun


def prompt(name: str) -> str:
    default = FIELDS[name].get("default")
    shown = {True: "yes", None: ""}.get(default, default) if not isinstance(default, list) else "large"
    return f"{name} [{shown}]" if default is not None else f"\n{name}"


def fill(terminal: Terminal, typed: list[tuple[str, str, str | None]] = TYPED) -> None:
    mistake = None
    for name, line, wrong in typed:
        said = terminal.answers(prompt(name), line)
        assert mistake is None or mistake in said, said
        mistake = wrong


def test_a_form_with_every_kind_of_field_is_filled_in_and_mistakes_are_mended_in_place(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "ask") as terminal:
        fill(terminal)
        told = terminal.ended()
    assert told.code == 0
    assert json.loads(told.out) == FILLED
    lines = terminal.shown.splitlines()
    for line in (
        "Your name (name): text, 2 to 5 characters",
        "  As on the card",
        "mail: an email address",
        "page: a URI",
        "weight: a number, 0.5 to 9.5",
        "moment: a time with its zone, 2026-12-31T10:00:00Z",
        "count: a whole number, 1 to 10",
        "sure: yes or no",
        "  2  Green",
        "  2  Fast",
        "sides: at least 1 of these, with commas between",
        "size: one of these",
        "paints: 1 of these",
        "note: text, optional",
        "layers: at most 1 of these, optional",
    ):
        assert line in lines, line


def test_a_field_can_be_filled_in_again_and_a_form_refused(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "ask") as terminal:
        terminal.answers("\nname", "!back")
        assert "there is no field before this one" in terminal.answers("\nname", "Bob")
        terminal.answers("\nmail", "ada@example.com")
        terminal.answers("\npage", "!back")
        terminal.answers("\nmail [ada@example.com]", "!back")
        terminal.answers("\nname [Bob]", "Ada")
        terminal.answers("\nmail [ada@example.com]", "")
        fill(terminal, [line for line in TYPED if line[0] not in ("name", "mail")])
        assert json.loads(terminal.ended().out) == FILLED
    for word, action in (("!decline", "decline"), ("!cancel", "cancel")):
        with shop.terminal("call", "shop.py", "ask") as terminal:
            terminal.answers("\nname", "Ada")
            terminal.answers("\nmail", word)
            assert terminal.ended().out.splitlines()[-1] == action


# A form without a terminal


def filled(schema: Any, *lines: str, said: list[str] | None = None) -> dict[str, Any]:
    left, heard = list(lines), [] if said is None else said
    content = Form(schema, lambda prompt: left.pop(0), lambda text, style: heard.append(text)).fill()
    assert not left
    return content


def one(part: Any, *, required: bool = True) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": part}, "required": ["value"] if required else []}


def several(*choices: str, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "enum": list(choices)}, **more}


def help_of(schema: Any) -> str:
    return Form(schema, lambda prompt: "", lambda text, style: None).help


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e999", "1_000", "٣", ""])
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_a_number_is_one_that_json_has(kind: str, text: str) -> None:
    assert filled(one({"type": kind}), text, "3") == {"value": 3}


def test_an_answer_may_begin_with_an_exclamation_mark() -> None:
    assert filled(one({"type": "string"}), "!!decline") == {"value": "!decline"}
    for word in ("!decline", "!Cancel"):
        with pytest.raises(Refused):
            filled(one({"type": "string"}), word)


def test_a_word_that_is_misspelt_is_no_answer() -> None:
    said: list[str] = []
    assert filled(one({"type": "string"}), "!cancl", "!!cancl", said=said) == {"value": "!cancl"}
    assert said[-1] == (
        "  there are !decline, !cancel, !back and !none, and no !cancl. Text that begins with ! is typed as !!cancl"
    )


def test_a_choice_is_made_by_its_value_before_its_number() -> None:
    part = {"type": "string", "enum": ["2", "1"]}
    assert filled(one(part), "2") == {"value": "2"}
    assert filled(one({"type": "array", "items": part}), "1,2") == {"value": ["1", "2"]}


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("rice, bread", ["rice", "bread"]),
        ("rice bread", ["rice", "bread"]),
        ("3 1, 1", ["bread", "rice"]),
        ("rice,,rice, 1", ["rice"]),
        ("ice cream", ["ice cream"]),
        ("ice cream, 1", ["ice cream", "rice"]),
        ("salt, pepper", ["salt, pepper"]),
    ],
)
def test_choices_stand_between_commas_or_spaces_and_count_once(typed: str, value: list[str]) -> None:
    part = several("rice", "ice cream", "bread", "salt, pepper")
    assert filled(one(part), typed) == {"value": value}


def test_a_list_can_be_empty_where_it_has_no_minimum() -> None:
    assert filled(one(several("a", "b")), "") == {"value": []}
    assert filled(one(several("a", "b"), required=False), "") == {}
    for required in (True, False):
        assert filled(one(several("a", "b", default=["a"]), required=required), "!none") == {"value": []}
    said: list[str] = []
    part = several("a", "b", default=["a"], minItems=1, maxItems=1)
    assert filled(one(part), "!none", "a, b", "", said=said) == {"value": ["a"]}
    assert said[-2:] == ["  1 of these, not 0", "  1 of these, not 2"]


def test_a_field_that_was_filled_in_can_be_left_out_after_all() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    assert filled(schema, "x", "!back", "!none", "y") == {"b": "y"}
    assert filled(schema, "x", "!back", "", "y") == {"a": "x", "b": "y"}


def test_a_default_that_cannot_be_cleared_is_told() -> None:
    assert filled(one({"type": "string", "default": "x"}), "!none") == {"value": ""}
    said: list[str] = []
    assert filled(one({"type": "integer", "default": 3}), "!none", "4", said=said) == {"value": 4}
    assert said[-1] == "  this one is 3 where nothing is said, and cannot be empty"


def test_what_is_of_no_use_is_not_explained() -> None:
    assert help_of(one({"type": "string"})) == "!decline refuses, !cancel gives up."
    assert help_of(one(several("a", default=["a"]))) == (
        "!decline refuses, !cancel gives up, !none leaves a field empty. Empty takes what is in [brackets]."
    )
    assert help_of(SCHEMA) == (
        "!decline refuses, !cancel gives up, !back goes to the field before, !none leaves a field empty. "
        "Empty takes what is in [brackets], or leaves out what is optional."
    )


def test_a_title_that_is_the_name_is_not_said_twice() -> None:
    said: list[str] = []
    properties = {"top_color": {"type": "string", "title": "Top Color"}, "b": {"type": "boolean", "title": "Really"}}
    filled({"type": "object", "properties": properties, "required": ["b"]}, "", "no", said=said)
    assert said == ["top_color: text, optional", "Really (b): yes or no"]
