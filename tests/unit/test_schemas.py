"""JSON Schemas that somebody wrote: which dialects there are, and what a schema cannot make us do."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from turnwise import InvalidSignature, MCPServer, _patterns, _schemas
from turnwise._json import encode
from turnwise._schemas import LONGEST_TOLD, MOST_STEPS, MOST_TOLD, check_for, check_for_peers, read_for_peers
from turnwise.testing import connect

DRAFTS = (
    "http://json-schema.org/draft-03/schema#",
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
MAKERS = (check_for, check_for_peers)
REFUSED = (ValueError, InvalidSignature)


def tool(x: Any = None) -> str:
    return f"got {x}"


def served(schema: dict[str, Any]) -> MCPServer[Any]:
    server = MCPServer("schemas")
    server.add_tool(tool, "it", input_schema=schema)
    return server


def called(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with connect(served(schema)) as client:
            return await client.request("tools/call", {"name": "it", "arguments": arguments})

    return asyncio.run(run())


def of(part: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": part}}


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A port that would hear of any attempt to fetch something."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(1000))

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_schema_is_held_against_values_in_its_own_dialect(draft: str) -> None:
    # Draft 3 and 4 write an exclusive bound as a flag, later ones as the bound itself.
    early = draft in DRAFTS[:2]
    bound = {"minimum": 3, "exclusiveMinimum": True} if early else {"exclusiveMinimum": 3}
    schema = {"$schema": draft, **of({"type": "integer", **bound})}
    assert not called(schema, {"x": 4}).get("isError")
    assert called(schema, {"x": 3})["isError"]
    for maker in MAKERS:
        maker(schema)({"x": 4})
        with pytest.raises(ValueError, match="3"):
            maker(schema)({"x": 3})


@pytest.mark.parametrize("dialect", ["https://example.com/mine", "http://json-schema.org/draft-99/schema#"])
def test_a_dialect_that_is_not_known_is_named(dialect: str) -> None:
    for maker in MAKERS:
        with pytest.raises(REFUSED, match=f"not supported: {dialect}"):
            maker({"$schema": dialect, "type": "object"})
    with pytest.raises(InvalidSignature, match="not supported"):
        served({"$schema": dialect, "type": "object"})


@pytest.mark.parametrize(
    "schema",
    [
        of({"type": "no such type"}),
        of({"minimum": "three"}),
        of({"pattern": 5}),
        of({"enum": "red"}),
        {"type": "object", "required": "x"},
        {"type": "object", "properties": ["x"]},
    ],
)
def test_a_schema_that_is_none_in_its_dialect_is_refused_when_it_is_written(schema: dict[str, Any]) -> None:
    for maker in MAKERS:
        with pytest.raises(REFUSED):
            maker(schema)
    with pytest.raises(InvalidSignature, match="not a JSON Schema"):
        served(schema)


@pytest.mark.parametrize("schema", [{}, {"type": "string"}, [], "object", True, {"properties": {}}])
def test_arguments_are_an_object(schema: Any) -> None:
    with pytest.raises(InvalidSignature, match="it: arguments are an object"):
        served(schema)


def test_nothing_is_fetched(listener: tuple[int, list[bytes]]) -> None:
    port, heard = listener
    place = f"http://127.0.0.1:{port}/schema.json"
    for schema in (
        of({"$ref": place}),
        of({"$dynamicRef": place}),
        {**of({"$ref": "schema.json"}), "$id": f"http://127.0.0.1:{port}/"},
        {**of({"type": "string"}), "$ref": place},
    ):
        for maker in MAKERS:
            with pytest.raises(REFUSED, match="refers to something that is not in it"):
                maker(schema)
    # A name is no reference, and an example is no schema.
    for maker in MAKERS:
        maker({**of({"type": "object", "examples": [{"$ref": place}]}), "$id": place})({"x": {"$ref": place}})
    socket.create_connection(("127.0.0.1", port)).close()
    deadline = time.monotonic() + 5
    while not heard and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard == [b""], "only the test itself may have come"


@pytest.mark.parametrize(
    "part",
    [
        {"$ref": "#/$defs/nothing"},
        {"$ref": "#nowhere"},
        {"$ref": "other.json"},
        {"anyOf": [{"type": "string"}, {"$ref": "urn:other"}]},
        {"items": {"properties": {"deep": {"$ref": "#/$defs/nothing"}}}},
    ],
)
def test_a_reference_to_nothing_is_refused_though_no_value_has_come_by_it(part: dict[str, Any]) -> None:
    for maker in MAKERS:
        with pytest.raises(REFUSED, match="refers to something that is not in it"):
            maker(of(part))
    with pytest.raises(InvalidSignature, match="not in it"):
        served(of(part))


def test_references_within_a_schema_are_followed() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}}}
    for schema in (
        {**of({"$ref": "#/$defs/tree"}), "$defs": {"tree": tree}},
        {**of({"$ref": "tree"}), "$id": "https://example.com/", "$defs": {"tree": {**tree, "$id": "tree"}}}
        | {"$defs": {"tree": {"$id": "tree", "properties": {"next": {"$ref": "tree"}, "n": {"type": "integer"}}}}},
    ):
        for maker in MAKERS:
            check = maker(schema)
            check({"x": {"next": {"next": {"n": 1}}}})
            with pytest.raises(ValueError, match=r"x\.next\.next\.n"):
                check({"x": {"next": {"next": {"n": "one"}}}})


def test_a_pattern_takes_no_longer_than_its_text() -> None:
    schema = of({"type": "string", "pattern": "^(a+)+$"})
    began = time.process_time()
    for maker in MAKERS:
        with pytest.raises(ValueError, match="does not match"):
            maker(schema)({"x": "a" * 5000 + "!"})
    # With a pattern that goes back, the time doubles with every letter: 5000 would not end.
    assert time.process_time() - began < 30


def test_an_authors_pattern_may_look_ahead() -> None:
    check = check_for(of({"type": "string", "pattern": "^(?=.*[0-9])[a-z0-9]+$"}))
    check({"x": "abc1"})
    with pytest.raises(ValueError, match="does not match"):
        check({"x": "abc"})


def test_a_peers_schema_cannot_keep_us_busy(caplog: pytest.LogCaptureFixture) -> None:
    """Each level of the tree has both branches, so that there are more ways through it than anybody can walk."""
    levels = {
        f"l{number}": {"anyOf": [{"allOf": [{"$ref": f"#/$defs/l{number + 1}"}, {"not": {}}]}] * 2}
        for number in range(20)
    }
    schema = {**of({"$ref": "#/$defs/l0"}), "$defs": {**levels, "l20": {}}}
    check_for_peers(schema)({"x": 1})
    assert f"more than {MOST_STEPS} steps" in caplog.text


def test_a_schema_that_is_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(5000):
        schema = {"type": "object", "properties": {"x": schema}}
    for maker in MAKERS:
        with pytest.raises(REFUSED, match="too large"):
            maker(schema)


@pytest.mark.parametrize(
    "parts",
    [
        {"t": {"$anchor": "x"}, "a": {"anyOf": [{"$ref": "#x"}] * 4600}},
        {"t": {"$id": "https://example.com/t"}, "a": {"allOf": [{"$ref": "https://example.com/t"}] * 1500}},
        {"t": {"$anchor": "x"}, "a": {"items": {"allOf": [{"$ref": "#x"}] * 4600}}},
    ],
)
def test_many_references_take_no_longer_than_they_are_many(parts: dict[str, Any]) -> None:
    """To look through the whole schema for each of them would take minutes."""
    for maker in (check_for, partial(check_for_peers, most_read=1_000_000)):
        began = time.process_time()
        check = maker({"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": parts})
        check({"x": [[1]]})
        assert time.process_time() - began < 20


def test_a_schema_may_be_an_argument() -> None:
    check = check_for(of({"$ref": "https://json-schema.org/draft/2020-12/schema"}))
    check({"x": {"type": "string"}})
    with pytest.raises(ValueError, match="x"):
        check({"x": {"type": 5}})


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"^\<[a-z]+\>$", "<abc>"),
        ("^[a-z&&0-9]+$", "abc"),
        ("^[a-z0-9--_]+$", "a_b"),
        ("^[~~a-z]+$", "~a"),
        ("^[[a]+$", "["),
        ("^a{,2}$", "a"),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_authors_pattern_means_what_python_takes_it_for(pattern: str, value: str) -> None:
    check_for(of({"type": "string", "pattern": pattern}))({"x": value})


@pytest.mark.parametrize("dialect", [5, None, [], {}, True])
def test_a_dialect_that_is_no_text_is_refused(dialect: Any) -> None:
    for maker in MAKERS:
        with pytest.raises(REFUSED, match="no text"):
            maker({"$schema": dialect, "type": "object"})


@pytest.mark.parametrize(
    "part",
    [
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": 5},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "additionalItems": 5},
    ],
)
def test_a_part_with_a_dialect_of_its_own_that_is_none_in_it_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidSignature, match="not a JSON Schema"):
        check_for({"type": "object", "properties": {"x": {"$defs": {"y": part}}}})


@pytest.mark.parametrize("schema", [{"$ref": ""}, {"$ref": "#"}, {"allOf": [{"$ref": "#"}]}, {"not": {"$ref": "#"}}])
def test_a_schema_that_leads_into_itself_ends_with_a_word_from_any_depth(schema: dict[str, Any]) -> None:
    """Where Python's own limit is met inside of a library in Rust, that may panic, which nobody expects to catch."""

    def below(levels: int, check: Any) -> None:
        if levels:
            below(levels - 1, check)
        else:
            with pytest.raises(ValueError, match="too deep"):
                check({"c": 1})

    for maker in MAKERS:
        check = maker({"type": "object", "properties": {"c": {}}, **schema})
        for levels in range(0, 120, 4):
            below(levels, check)


def test_a_value_may_be_as_deep_as_a_message() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}}
    for maker in MAKERS:
        check = maker({**of({"$ref": "#/$defs/tree"}), "$defs": {"tree": tree}})
        value: dict[str, Any] = {}
        for _ in range(50):
            value = {"next": value}
        check({"x": value})
        for _ in range(1000):
            value = {"next": value}
        with pytest.raises(ValueError, match="too deep"):
            check({"x": value})


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ({"const": nested(300)}, nested(300)),
        ({"enum": [nested(300)]}, nested(300)),
        ({"multipleOf": 0.5}, 10**400),
    ],
)
def test_values_that_python_cannot_compare_are_refused_with_a_word(part: dict[str, Any], value: Any) -> None:
    for maker in MAKERS:
        with pytest.raises(ValueError, match="too deep, or its numbers are too large"):
            maker(of(part))({"x": value})


def test_a_reference_to_nothing_is_refused_also_in_a_part_that_no_rule_leads_to() -> None:
    schema = {**of({"$ref": "#/elsewhere/y"}), "elsewhere": {"y": {"$ref": "#/nothing"}}}
    for maker in MAKERS:
        with pytest.raises(ValueError, match="not in it: /nothing"):
            maker(schema)({"x": 1})


def test_a_peer_is_told_all_that_is_wrong_up_to_a_limit_and_an_author_the_first() -> None:
    names = [f"n{number:02}" for number in range(MOST_TOLD + 1)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    told = {}
    for maker in MAKERS:
        with pytest.raises(ValueError, match="n00") as raised:
            maker(schema)(dict.fromkeys(names, 1))
        told[maker] = str(raised.value).split("; ")
    assert told[check_for] == ["n00: 1 is not of type 'string'"]
    assert told[check_for_peers] == [f"{name}: 1 is not of type 'string'" for name in names[:MOST_TOLD]]


def test_the_same_thing_is_told_once() -> None:
    part = {"type": "string"}
    with pytest.raises(ValueError, match=r"^1 is not of type 'string'$"):
        check_for_peers({"allOf": [part, part]})(1)


@pytest.mark.parametrize("more", [0, 1, 1000])
def test_what_is_wrong_with_a_long_value_is_told_by_its_ends(more: int) -> None:
    rest = " is not of type 'integer'"
    value = "x" * (LONGEST_TOLD - len(rest) - 2 + more)
    with pytest.raises(ValueError, match="integer") as raised:
        check_for_peers({"type": "integer"})(value)
    whole = f"'{value}'{rest}"
    half = LONGEST_TOLD // 2
    assert str(raised.value) == (whole if not more else f"{whole[:half]}…{whole[-half:]}")


def test_alternatives_of_one_value_each_are_told_by_their_values() -> None:
    schema = of({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]})
    with pytest.raises(ValueError, match=r"^x: 'c' is not one of \['a', 'b'\]$"):
        check_for_peers(schema)({"x": "c"})
    for others in ([{"const": "a"}, {"type": "string"}], [False]):
        with pytest.raises(ValueError, match=r"^x: ") as raised:
            check_for_peers(of({"anyOf": others}))({"x": 1})
        assert "one of" not in str(raised.value)


@pytest.mark.parametrize("place", ["allOf", "anyOf", "oneOf", "prefixItems"])
def test_names_by_pattern_are_left_to_the_peer_wherever_they_stand(place: str) -> None:
    """A pattern of a peer's own could take for ever; and what a name without a rule may be depends on them."""
    part = {"patternProperties": {"^(a+)+$": False}, "additionalProperties": False}
    value: Any = {"a" * 5000 + "!": 1}
    check_for_peers(of({place: [part]}))({"x": [value] if place == "prefixItems" else value})


def test_what_is_found_wrong_before_a_check_is_given_up_counts(caplog: pytest.LogCaptureFixture) -> None:
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(20)}
    schema = {"required": ["y"], **of({"$ref": "#/$defs/l0"}), "$defs": {**levels, "l20": {}}}
    with pytest.raises(ValueError, match="'y' is a required property"):
        check_for_peers(schema)({"x": 1})
    assert not caplog.records


DR4, DR7 = DRAFTS[1], DRAFTS[3]


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{}] * 20_000},
        {"properties": {f"p{number}": True for number in range(5000)}},
        {"properties": {"a": {"type": [[], 1, "a", {}, True] * 3000}}},
        {"$schema": DR7, "definitions": {"a": {"not": {"allOf": [{}] * 20_000}}}},
    ],
)
def test_no_more_than_so_many_steps_are_taken_to_read_a_peers_schema(schema: dict[str, Any]) -> None:
    reason, steps = read_for_peers({"type": "object", **schema})
    assert reason == f"it takes more than {MOST_STEPS} steps to read"
    assert steps == MOST_STEPS + 1
    with pytest.raises(ValueError, match="steps to read"):
        check_for_peers({"type": "object", **schema})


def test_what_people_fill_in_is_read_in_few_steps() -> None:
    field = {"type": "string", "title": "A", "description": "B", "minLength": 1, "format": "email", "default": "c"}
    choices = {"type": "string", "oneOf": [{"const": str(number), "title": "A"} for number in range(500)]}
    _, of_fields = read_for_peers({"type": "object", "properties": {f"p{number}": field for number in range(100)}})
    _, of_choices = read_for_peers(of(choices))
    assert of_fields < MOST_STEPS / 4
    assert of_choices < MOST_STEPS


def test_many_values_of_different_kinds_are_compared_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draft 4 wants those of an enum to differ: each with each would be millions."""
    written: list[Any] = []

    def counted(value: Any, **options: Any) -> bytes:
        written.append(value)
        return encode(value, **options)

    monkeypatch.setattr(_schemas, "encode", counted)
    values = [value for number in range(2000) for value in (number, [number])]
    check_for_peers({"$schema": DR4, **of({"enum": values})})({"x": [1999]})
    assert len(written) == len(values)


def test_patterns_of_a_peer_are_compiled_while_that_is_little_work(caplog: pytest.LogCaptureFixture) -> None:
    def answered(patterns: list[str]) -> int:
        _patterns.matcher.cache_clear()
        parts = {f"p{number}": {"type": "string", "pattern": pattern} for number, pattern in enumerate(patterns)}
        check_for_peers({"type": "object", "properties": parts})(dict.fromkeys(parts, "a"))
        return _patterns.matcher.cache_info().misses

    assert answered([rf"a|\w{{{number}}}" for number in range(60, 100)]) < 6
    assert "taken unchecked" in caplog.text
    caplog.clear()
    assert answered([rf"a|[a-z]{{{number}}}" for number in range(60, 100)]) == 40
    assert not caplog.text


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w{200}",
        r"(\w{30}){20}",
        r"\w+{200}",
        r"\w{10}{10}{10}",
        r"\pL{200}",
        r"\p{L}{200}",
        r"[\w-]{200}",
        r"[\][\w]]{200}",
        r"(?x)\w {200}",
        r"(?ix:\w {200})",
        r"(((a{30}){30}){30}){30}",
        r"(?:(?:\d|x{3}){30}){30}",
        "x" * 10_000,
    ],
)
def test_a_heavy_pattern_is_left_to_the_peer(pattern: str) -> None:
    _patterns.matcher.cache_clear()
    # What is found by reference need not be a pattern of Python's.
    check_for_peers(of({"$ref": "#/properties/x/default", "default": {"pattern": pattern}}))({"x": "-"})
    assert _patterns.matcher.cache_info().misses == 0


def test_a_heavy_pattern_of_an_author_is_checked() -> None:
    with pytest.raises(ValueError, match="does not match"):
        check_for(of({"pattern": r"\w{200}"}))({"x": "-"})


def test_a_pattern_that_is_held_against_a_long_text_takes_more() -> None:
    check = check_for_peers(of({"pattern": "^[ab]*a[ab]{500}c$"}))
    with pytest.raises(ValueError, match="does not match"):
        check({"x": "a" * 5000})
    check({"x": "a" * 50_000})


def test_patterns_of_a_peer_are_read_in_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python looks at each of the characters that a set has, and there may be a million."""
    read: list[str] = []

    def counted(pattern: str) -> None:
        read.append(pattern)

    monkeypatch.setattr(_schemas, "re", SimpleNamespace(compile=counted))
    for pattern in ("(?i)[\0-\uffff]", r"(?i)[\0-\uffff]", r"[^\x00-\U0010ffff]", r"[\000-\377]"):
        parts = {f"p{number}": {"pattern": f"{pattern}{number}"} for number in range(300)}
        with pytest.raises(ValueError, match="steps to read"):
            check_for_peers({"type": "object", "properties": parts})
        assert 0 < len(read) < 10
        read.clear()
    with pytest.raises(ValueError, match="steps to read"):
        check_for_peers(of({"pattern": "a" * 30_000}))
    assert read == []
