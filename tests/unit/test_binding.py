"""Signatures as schemas, arguments as values, and return values as results."""

import asyncio
import base64
import functools
import sqlite3
import typing
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import mcp_types
import pytest
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field

from turnwise import (
    Audio,
    Context,
    Image,
    InputRequiredResult,
    InvalidArguments,
    InvalidSignature,
    MCPServer,
    Resolve,
    ToolError,
)
from turnwise._binding import Binding, bind
from turnwise.testing import connect

if typing.TYPE_CHECKING:
    from turnwise import NothingOfTheKind

Result = dict[str, Any]


def bound(fn: Callable[..., Any]) -> Binding:
    return bind(fn, Context)


def serve(fn: Callable[..., Any], **options: Any) -> MCPServer[Any]:
    server = MCPServer("signs")
    server.add_tool(fn, "it", **options)
    return server


def definition(fn: Callable[..., Any], **options: Any) -> Result:
    async def run() -> Result:
        async with connect(serve(fn, **options)) as client:
            (tool,) = (await client.request("tools/list"))["tools"]
            return dict(tool)

    return asyncio.run(run())


def call(fn: Callable[..., Any], arguments: Mapping[str, Any] | None = None, **options: Any) -> Result:
    async def run() -> Result:
        async with connect(serve(fn, **options)) as client:
            async with asyncio.timeout(1):
                return await client.request("tools/call", {"name": "it", "arguments": dict(arguments or {})})

    return asyncio.run(run())


def text(result: Result) -> str:
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def refusal(result: Result) -> str:
    assert result["isError"] is True
    return str(result["content"][0]["text"])


# From signature to schema


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Spot:
    x: int
    label: str = "here"


def many(  # type: ignore[no-untyped-def] # one parameter has no annotation
    plain: str,
    number: int,
    ratio: float,
    flag: bool,
    colour: Colour,
    choice: Literal["a", "b"],
    when: date,
    point: Point,
    spot: Spot,
    words: list[str],
    scores: dict[str, int],
    maybe: str | None,
    pair: tuple[int, int],
    anything: Any,
    bare,
    limit: int = 10,
) -> str:
    values = (plain, number, ratio, flag, colour, choice, when, point, spot, words, scores, maybe, pair, anything)
    return repr((*values, bare, limit))


ARGUMENTS: dict[str, Any] = {
    "plain": "x",
    "number": 1,
    "ratio": 0.5,
    "flag": True,
    "colour": "red",
    "choice": "b",
    "when": "2026-07-28",
    "point": {"x": 1},
    "spot": {"x": 2},
    "words": ["a"],
    "scores": {"a": 1},
    "maybe": None,
    "pair": [1, 2],
    "anything": {"a": [None]},
    "bare": 5,
}


def test_a_signature_is_published_as_the_schema_of_an_object() -> None:
    schema = definition(many)["inputSchema"]
    assert schema["type"] == "object"
    assert [*schema["properties"]] == [*ARGUMENTS, "limit"]
    assert schema["required"] == [*ARGUMENTS]
    parts = schema["properties"]
    assert parts["plain"]["type"] == "string"
    assert parts["number"]["type"] == "integer"
    assert parts["ratio"]["type"] == "number"
    assert parts["flag"]["type"] == "boolean"
    assert parts["when"]["format"] == "date"
    assert parts["choice"]["enum"] == ["a", "b"]
    assert parts["words"]["items"] == {"type": "string"}
    assert parts["limit"]["default"] == 10
    assert {arm["type"] for arm in parts["maybe"]["anyOf"]} == {"string", "null"}


def test_arguments_arrive_as_the_types_of_the_signature() -> None:
    expected = (
        "x",
        1,
        0.5,
        True,
        Colour.RED,
        "b",
        date(2026, 7, 28),
        Point(x=1),
        Spot(2),
        ["a"],
        {"a": 1},
        None,
        (1, 2),
        {"a": [None]},
        5,
        10,
    )
    assert text(call(many, ARGUMENTS)) == repr(expected)


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    def quiet() -> str:
        return "quiet"

    assert definition(quiet)["inputSchema"]["type"] == "object"
    assert definition(quiet)["inputSchema"].get("properties", {}) == {}
    assert text(call(quiet)) == "quiet"


def test_a_field_says_more_about_a_parameter() -> None:
    def order(
        amount: Annotated[int, Field(ge=1, le=9, description="How many")],
        note: str = Field("none", max_length=5, description="A note"),
        sort: Annotated[str, Field(alias="orderBy")] = "name",
    ) -> str:
        return f"{amount} {note} {sort}"

    parts = definition(order)["inputSchema"]["properties"]
    assert parts["amount"] | {"title": ""} == {
        "type": "integer",
        "minimum": 1,
        "maximum": 9,
        "description": "How many",
        "title": "",
    }
    assert parts["note"]["default"] == "none"
    assert parts["note"]["maxLength"] == 5
    assert "orderBy" in parts
    assert text(call(order, {"amount": 2})) == "2 none name"
    assert text(call(order, {"amount": 2, "orderBy": "price"})) == "2 none price"
    assert "amount" in refusal(call(order, {"amount": 10}))


def test_a_default_is_a_new_one_for_every_call() -> None:
    def collect(item: str, into: list[str] = []) -> str:  # noqa: B006 - the point of the test
        into.append(item)
        return ",".join(into)

    server = serve(collect)

    async def run() -> None:
        async with connect(server) as client:
            for item in ("a", "b"):
                result = await client.request("tools/call", {"name": "it", "arguments": {"item": item}})
                assert text(result) == item

    asyncio.run(run())


def test_keyword_only_parameters_and_a_catch_all_are_fine() -> None:
    def options(first: int, *, second: int = 2, **rest: Any) -> str:
        return f"{first} {second} {rest}"

    assert [*definition(options)["inputSchema"]["properties"]] == ["first", "second"]
    assert text(call(options, {"first": 1, "third": 3})) == "1 2 {}"


# Awkward names


def awkward(
    schema: str,
    copy: int,
    json: bool,
    dict: str,
    model_config: str,
    model_fields: str,
    model_dump: str,
    validate: str,
    construct: str,
    _hidden: str,
    __dunder: str,
    self_: str = "s",
    model_name: str = "m",
    model_dump_file: str = "f",
    model_validate_it: str = "v",
) -> str:
    return f"{schema} {copy} {json} {dict} {model_config} {_hidden} {__dunder} {model_dump_file} {model_validate_it}"


AWKWARD: Result = {
    "schema": "a",
    "copy": 1,
    "json": True,
    "dict": "d",
    "model_config": "e",
    "model_fields": "f",
    "model_dump": "g",
    "validate": "h",
    "construct": "i",
    "_hidden": "j",
    "__dunder": "k",
}


def test_a_parameter_may_have_any_name_that_python_allows() -> None:
    properties = definition(awkward)["inputSchema"]["properties"]
    assert [*properties][: len(AWKWARD)] == [*AWKWARD]
    assert text(call(awkward, AWKWARD)) == "a 1 True d e j k f v"


def test_an_error_names_an_awkward_parameter_as_the_caller_knows_it() -> None:
    assert "copy:" in refusal(call(awkward, AWKWARD | {"copy": "many"}))
    assert "_hidden:" in refusal(call(awkward, {name: part for name, part in AWKWARD.items() if name != "_hidden"}))


def test_names_that_differ_only_in_what_had_to_be_renamed_stay_apart() -> None:
    def clash(json: int, _json: int, __json: int, argument_json: int) -> str:
        return f"{json} {_json} {__json} {argument_json}"

    arguments = {"json": 1, "_json": 2, "__json": 3, "argument_json": 4}
    assert [*definition(clash)["inputSchema"]["properties"]] == [*arguments]
    assert text(call(clash, arguments)) == "1 2 3 4"


def test_the_name_behind_a_renamed_parameter_is_no_way_in() -> None:
    def only(schema: str = "default") -> str:
        return schema

    assert text(call(only, {"argument_schema": "smuggled"})) == "default"


def test_awkward_names_have_defaults_and_fields_as_any_other() -> None:
    def tool(copy: int = Field(3, ge=1, description="n"), schema: Annotated[str, Field(description="d")] = "q") -> str:
        return f"{copy} {schema}"

    parts = definition(tool)["inputSchema"]["properties"]
    assert (parts["copy"]["default"], parts["copy"]["minimum"], parts["copy"]["description"]) == (3, 1, "n")
    assert (parts["schema"]["default"], parts["schema"]["description"]) == ("q", "d")
    assert text(call(tool)) == "3 q"


# The context


class State:
    """What a lifespan might yield."""


async def with_context(ctx: Context, x: int) -> str:
    return f"{type(ctx).__name__} {x}"


async def with_state(x: int, ctx: Context[State]) -> str:
    return f"{type(ctx).__name__} {x}"


async def with_both(x: int, *, ctx: Context[State, Any]) -> str:
    return f"{type(ctx).__name__} {x}"


async def with_optional(x: int, ctx: Context | None = None) -> str:
    return f"{type(ctx).__name__} {x}"


async def with_typing_optional(x: int, ctx: Optional[Context] = None) -> str:  # noqa: UP045 - as people write it
    return f"{type(ctx).__name__} {x}"


async def with_annotated(x: int, ctx: Annotated[Context, "the context"]) -> str:
    return f"{type(ctx).__name__} {x}"


async def with_text(x: int, ctx: "Context[State]") -> str:
    return f"{type(ctx).__name__} {x}"


async def with_another_name(x: int, context: Context) -> str:
    return f"{type(context).__name__} {x}"


def with_plain_function(x: int, ctx: Context) -> str:
    return f"{type(ctx).__name__} {x}"


CONTEXTS = [
    with_context,
    with_state,
    with_both,
    with_optional,
    with_typing_optional,
    with_annotated,
    with_text,
    with_another_name,
    with_plain_function,
]


@pytest.mark.parametrize("fn", CONTEXTS)
def test_the_context_is_injected_by_its_annotation_and_not_published(fn: Callable[..., Any]) -> None:
    assert [*definition(fn)["inputSchema"]["properties"]] == ["x"]
    assert text(call(fn, {"x": 1})) == "Context 1"


@pytest.mark.parametrize("fn", CONTEXTS)
def test_the_caller_cannot_pass_a_context(fn: Callable[..., Any]) -> None:
    assert text(call(fn, {"x": 1, "ctx": "forged", "context": "forged"})) == "Context 1"


def test_two_contexts_are_refused_or_both_given() -> None:
    async def two(one: Context, other: Context) -> str:
        return str(one is other)

    try:
        server = serve(two)
    except InvalidSignature:
        return

    async def run() -> None:
        async with connect(server) as client:
            assert text(await client.request("tools/call", {"name": "it"})) == "True"

    asyncio.run(run())


# What cannot be served


def positional_only(x: int, /) -> str:
    return str(x)


def starred(*xs: int) -> str:
    return str(xs)


def unknown_name(x: "NothingOfTheKind") -> str:
    return str(x)


def unknown_attribute(x: "typing.NothingOfTheKind") -> str:  # type: ignore[name-defined]
    return str(x)


def broken_text(x: "list[") -> str:  # type: ignore[valid-type] # noqa: F722
    return str(x)


def unknown_return() -> "NothingOfTheKind":
    return "x"


def arbitrary_class(x: State) -> str:
    return str(x)


def arbitrary_inside(xs: list[State]) -> str:
    return str(xs)


def function_type(x: Callable[[], int]) -> str:
    return str(x)


@pytest.mark.parametrize(
    "fn",
    [
        positional_only,
        starred,
        unknown_name,
        unknown_attribute,
        broken_text,
        unknown_return,
        arbitrary_class,
        arbitrary_inside,
        function_type,
        max,
    ],
)
def test_what_cannot_be_called_by_name_with_json_is_refused_at_registration(fn: Callable[..., Any]) -> None:
    with pytest.raises(InvalidSignature):
        serve(fn)


@pytest.mark.parametrize("fn", [positional_only, starred, unknown_name])
def test_a_refusal_names_the_function_and_what_is_wrong_with_it(fn: Callable[..., Any]) -> None:
    with pytest.raises(InvalidSignature, match=fn.__name__):
        bound(fn)


def connected(x: int, db: sqlite3.Connection) -> str:
    return f"{x} {db}"


def connected_somewhere(x: int, _dbs: list[sqlite3.Connection] | None = None) -> str:
    return f"{x} {_dbs}"


@pytest.mark.parametrize(
    ("fn", "told"),
    [
        (connected, "connected: parameter 'db' is a sqlite3.Connection, which no client can send"),
        (connected_somewhere, "connected_somewhere: parameter '_dbs' is a .*Connection.*, which no client can send"),
        (function_type, "function_type: parameter 'x' is a .*Callable.*, which no client can send"),
    ],
)
def test_what_no_client_can_send_is_told_by_its_parameter_and_where_such_things_come_from(
    fn: Callable[..., Any], told: str
) -> None:
    with pytest.raises(InvalidSignature, match=told) as refused:
        serve(fn)
    assert "from its lifespan, by ctx.lifespan" in str(refused.value)
    assert "arbitrary_types_allowed" not in str(refused.value)


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def around(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return around


class Shop:
    def __call__(self, *xs: int) -> str:
        return str(xs)


def resolver_of_nothing(missing: int) -> int:
    return missing


async def resolved(x: Annotated[int, Resolve(resolver_of_nothing)]) -> str:
    return str(x)


def crooked(ctx, *, x: Annotated[int, Resolve(starred)]):  # type: ignore[no-untyped-def]
    return x


def resolved_by_crooked(x: Annotated[int, Resolve(starred)]) -> str:
    return str(x)


def line_of(fn: Callable[..., Any]) -> str:
    return f"(test_binding.py, line {fn.__code__.co_firstlineno})"


@pytest.mark.parametrize(
    ("fn", "written"),
    [
        (positional_only, positional_only),
        (crooked, crooked),
        (arbitrary_class, arbitrary_class),
        (functools.partial(starred), starred),
        (decorated(positional_only), positional_only),
        (Shop(), Shop.__call__),
        (resolved, resolved),
        (resolved_by_crooked, starred),
    ],
)
def test_a_refusal_says_once_where_the_function_is_written(fn: Callable[..., Any], written: Callable[..., Any]) -> None:
    with pytest.raises(InvalidSignature) as refused:
        serve(fn)
    assert str(refused.value).endswith(line_of(written))
    assert str(refused.value).count(".py, line") == 1


def test_a_refusal_of_options_a_prompt_or_a_resource_says_so_too() -> None:
    server: Any = MCPServer("signs")
    for register in (
        server.tool(tags={"a"}),
        server.tool("not a name"),
        server.tool(version=1),
        server.prompt(tags={"a"}),
        server.resource("signs://{missing}"),
        server.resource("signs://{x}{missing}"),
    ):
        with pytest.raises(InvalidSignature) as refused:
            register(arbitrary)
        assert str(refused.value).endswith(line_of(arbitrary))
        assert refused.value.where == line_of(arbitrary)[1:-1]


def arbitrary(x: int) -> str:
    return str(x)


def test_what_is_written_nowhere_is_refused_without_a_place() -> None:
    with pytest.raises(InvalidSignature) as refused:
        serve(max)
    assert refused.value.where is None


class Counter:
    def __init__(self, start: int = 0) -> None:
        self.start = start

    def sell(self, x: int) -> str:
        return str(self.start + x)

    def of_class(cls, x: int) -> str:
        return str(x)

    @staticmethod
    def alone(self: int, x: int) -> int:  # noqa: PLW0211 - an odd name, and no mistake
        return self + x

    def __call__(self) -> Iterator[str]:
        yield "x"


def lines() -> Iterator[str]:
    yield "x"


async def news(ctx: Context) -> AsyncIterator[str]:
    yield "x"


@pytest.mark.parametrize(
    ("fn", "advice"),
    [
        (Counter, "Counter: a class is no function: register a function, or a method of an object"),
        (functools.partial(Counter, start=1), "Counter: a class is no function"),
        (lines, "lines: it yields, and a result comes as a whole"),
        (news, "news: it yields, and a result comes as a whole"),
        (functools.partial(lines), "lines: it yields"),
        (Counter(), "Counter: it yields"),
        (Counter.sell, "sell: in the body of a class .* register Counter"),
        (decorated(Counter.sell), "sell: in the body of a class .* register Counter"),
        (Counter.of_class, "of_class: in the body of a class"),
        (classmethod(lines), "lines: classmethod is nothing that can be called"),  # type: ignore[arg-type]
    ],
)
def test_what_only_looks_like_a_function_is_refused_with_advice(fn: Callable[..., Any], advice: str) -> None:
    server: Any = MCPServer("signs")
    for register in (server.tool(), server.prompt(), server.resource("signs://{x}")):
        with pytest.raises(InvalidSignature, match=advice):
            register(fn)


def test_self_may_be_an_argument_of_what_is_no_method() -> None:
    def add(self: int, x: int) -> int:
        return self + x

    def bare(self, x: int) -> int:  # type: ignore[no-untyped-def]
        return int(self) + x

    for fn in (add, bare, Counter.alone):
        assert text(call(fn, {"self": 1, "x": 2})) == "3"
    assert text(call(functools.partial(Counter.sell, Counter(1)), {"x": 2})) == "3"


def test_a_decorator_without_parentheses_is_refused_with_advice() -> None:
    server: Any = MCPServer("signs")
    for decorate in (server.tool, server.prompt, server.resource):
        with pytest.raises(TypeError, match="parentheses"):
            decorate(positional_only)


# Everything that can be called


class Office:
    """An office."""

    def __init__(self, name: str) -> None:
        self.name = name

    def method(self, x: int, ctx: Context) -> str:
        """A method's words."""
        return f"{self.name} {x} {type(ctx).__name__}"

    async def coloured(self, x: int, ctx: Context) -> str:
        return f"{self.name} {x} {type(ctx).__name__}"

    @classmethod
    def of_the_class(cls, x: int, ctx: Context) -> str:
        return f"{cls.__name__} {x} {type(ctx).__name__}"

    @staticmethod
    def on_its_own(x: int, ctx: Context) -> str:
        return f"static {x} {type(ctx).__name__}"


class Callable_:
    """An object to be called."""

    def __call__(self, x: int, ctx: Context) -> str:
        return f"object {x} {type(ctx).__name__}"


class AsyncCallable:
    """An object to be awaited."""

    async def __call__(self, x: int, ctx: Context) -> str:
        return f"object {x} {type(ctx).__name__}"


def measure(x: int, unit: str, ctx: Context) -> str:
    """Measure something."""
    return f"{x} {unit} {type(ctx).__name__}"


async def measure_async(x: int, unit: str, ctx: Context) -> str:
    return f"{x} {unit} {type(ctx).__name__}"


def traced(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def traced_async(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        value = fn(*args, **kwargs)
        return await value if asyncio.iscoroutine(value) else value

    return wrapper


office = Office("main")
CALLABLES: dict[str, tuple[Callable[..., Any], str]] = {
    "a method": (office.method, "main 1 Context"),
    "an async method": (office.coloured, "main 1 Context"),
    "a class method": (Office.of_the_class, "Office 1 Context"),
    "a static method": (Office.on_its_own, "static 1 Context"),
    "an object": (Callable_(), "object 1 Context"),
    "an async object": (AsyncCallable(), "object 1 Context"),
    "a partial": (functools.partial(measure, unit="m"), "1 m Context"),
    "a partial of an async function": (functools.partial(measure_async, unit="m"), "1 m Context"),
    "a partial of a method": (functools.partial(office.method), "main 1 Context"),
    "a partial of a partial": (functools.partial(functools.partial(measure), unit="m"), "1 m Context"),
    "a wrapped method": (traced(office.method), "main 1 Context"),
    "a wrapped async method": (traced(office.coloured), "main 1 Context"),
    "a plain function in an async wrapper": (traced_async(office.method), "main 1 Context"),
    "an async function in an async wrapper": (traced_async(office.coloured), "main 1 Context"),
    "a wrapper of a wrapper": (traced(traced_async(office.method)), "main 1 Context"),
}


@pytest.mark.parametrize("case", CALLABLES)
def test_whatever_can_be_called_can_be_served(case: str) -> None:
    fn, expected = CALLABLES[case]
    schema = definition(fn)["inputSchema"]
    assert schema["properties"]["x"]["type"] == "integer"
    assert "ctx" not in schema["properties"]
    assert text(call(fn, {"x": 1})) == expected
    assert refusal(call(fn, {"x": "one"}))


def test_what_a_partial_fixed_by_keyword_is_a_default() -> None:
    fixed = functools.partial(measure, unit="m")
    schema = definition(fixed)["inputSchema"]
    assert schema["properties"]["unit"]["type"] == "string"
    assert schema["properties"]["unit"]["default"] == "m"
    assert text(call(fixed, {"x": 1, "unit": "km"})) == "1 km Context"


def test_what_a_partial_fixed_by_place_is_gone() -> None:
    fixed = functools.partial(measure, 7)
    assert [*definition(fixed)["inputSchema"]["properties"]] == ["unit"]
    assert text(call(fixed, {"unit": "m"})) == "7 m Context"


def test_a_description_is_the_functions_own_words() -> None:
    def silent() -> str:
        return ""

    assert definition(measure)["description"] == "Measure something."
    assert definition(office.method)["description"] == "A method's words."
    assert definition(traced(measure))["description"] == "Measure something."
    assert definition(measure, description="Other words")["description"] == "Other words"
    assert "description" not in definition(silent)


def test_a_partials_description_is_not_that_of_partials() -> None:
    assert definition(functools.partial(measure, unit="m")).get("description") == "Measure something."


def test_an_async_function_called_by_a_plain_wrapper_is_a_plain_function() -> None:
    async def inner(x: int) -> str:
        return f"ran {x}"

    @functools.wraps(inner)
    def blocking(*args: Any, **kwargs: Any) -> Any:
        work = inner(*args, **kwargs)
        try:
            return asyncio.run(work)
        finally:
            work.close()

    assert text(call(blocking, {"x": 1})) == "ran 1"


@pytest.mark.parametrize("error", [StopIteration("dry"), StopAsyncIteration("dry"), KeyError("k"), RuntimeError("r")])
@pytest.mark.parametrize("is_async", [False, True])
def test_any_exception_of_a_function_ends_the_call(error: Exception, is_async: bool) -> None:
    def plain() -> str:
        raise error

    async def coloured() -> str:
        raise error

    assert refusal(call(coloured if is_async else plain)).startswith("The tool failed")


def test_a_tool_error_of_a_plain_function_is_told() -> None:
    def plain() -> str:
        raise ToolError("not in stock")

    assert refusal(call(plain)) == "not in stock"


# Arguments that do not fit


WRONG: list[tuple[str, Any]] = [
    ("number", "one"),
    ("number", 1.5),
    ("number", None),
    ("flag", "perhaps"),
    ("colour", "green"),
    ("choice", "c"),
    ("when", "tomorrow"),
    ("point", {"y": 1}),
    ("point", 5),
    ("spot", {}),
    ("words", "a"),
    ("words", [1]),
    ("scores", {"a": "many"}),
    ("pair", [1]),
    ("plain", 5),
    ("plain", None),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_an_argument_that_does_not_fit_is_told_by_its_name(name: str, value: Any) -> None:
    assert name in refusal(call(many, ARGUMENTS | {name: value}))


def test_a_missing_argument_is_told_by_its_name() -> None:
    said = refusal(call(many, {name: value for name, value in ARGUMENTS.items() if name != "number"}))
    assert "number" in said
    assert "plain" not in said


def test_every_argument_that_does_not_fit_is_told() -> None:
    said = refusal(call(many, ARGUMENTS | {"number": "x", "flag": "perhaps"}))
    assert "number" in said
    assert "flag" in said


def test_what_was_passed_is_not_repeated() -> None:
    assert "swordfish" not in refusal(call(many, ARGUMENTS | {"number": "swordfish", "point": {"z": "swordfish"}}))


def test_arguments_that_nobody_asked_for_are_ignored() -> None:
    assert text(call(with_context, {"x": 1, "y": 2})) == "Context 1"


def test_a_function_is_not_run_with_arguments_that_do_not_fit() -> None:
    ran: list[int] = []

    def tool(x: int) -> str:
        ran.append(x)
        return "ran"

    refusal(call(tool, {"x": "one"}))
    assert ran == []


def test_a_binding_can_be_used_without_a_server() -> None:
    binding = bound(measure)
    assert binding.validate({"x": "5", "unit": "m"}) == {"x": 5, "unit": "m"}
    with pytest.raises(InvalidArguments, match="unit"):
        binding.validate({"x": 5})


def test_where_arguments_do_not_fit_those_that_there_are_not_are_named_too() -> None:
    binding = bound(measure)
    assert binding.validate({"x": 5, "unit": "m", "unti": "cm"}) == {"x": 5, "unit": "m"}

    def told(arguments: dict[str, Any]) -> str:
        with pytest.raises(InvalidArguments) as raised:
            binding.validate(arguments)
        return str(raised.value)

    required = "Invalid arguments: unit: Field required"
    assert told({"x": 5}) == required
    assert told({"x": 5, "unti": "cm"}) == f"{required}; there is no argument 'unti'"
    assert told({"x": 5, "a\n": 1, "b": 2}) == f"{required}; there is no argument 'a\\n', 'b'"
    assert told({"x": 5, "n" * 10_000: 1}) == f"{required}; there is no argument '{'n' * 60}…'"
    assert told({"x": 5, **dict.fromkeys("abcdefg")}).endswith("no argument 'a', 'b', 'c', 'd', 'e' and 2 more")


def test_a_strict_model_takes_what_json_can_say() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        when: date
        colour: Colour

    def tool(order: Strict) -> str:
        return f"{order.when} {order.colour.name}"

    assert text(call(tool, {"order": {"when": "2026-07-28", "colour": "red"}})) == "2026-07-28 RED"


def test_a_schema_written_by_hand_is_published_and_held_against_the_arguments() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 3}}, "required": ["x"]}

    def tool(x: int) -> str:
        return f"got {x}"

    assert definition(tool, input_schema=schema)["inputSchema"] == schema
    assert text(call(tool, {"x": 3}, input_schema=schema)) == "got 3"
    assert refusal(call(tool, {"x": 4}, input_schema=schema))
    with pytest.raises(InvalidSignature):
        serve(tool, input_schema={"type": "no such type"})


# What a tool returns


class Weather(BaseModel):
    place: str = Field(alias="placeName")
    degrees: float
    when: datetime | None = None


class City(typing_extensions.TypedDict):
    name: str


class PlainCity(typing.TypedDict):
    name: str


@dataclass
class Trip:
    to: str
    stops: list[str] = field(default_factory=list)


NOON = datetime(2026, 7, 28, 12, tzinfo=UTC)


def gives_text() -> str:
    return "hello"


def gives_number() -> int:
    return 5


def gives_ratio() -> float:
    return 0.5


def gives_truth() -> bool:
    return True


def gives_texts() -> list[str]:
    return ["a", "b"]


def gives_numbers() -> list[int]:
    return [1, 2]


def gives_pair() -> tuple[int, str]:
    return (1, "a")


def gives_optional() -> str | None:
    return None


def gives_union() -> int | str:
    return "five"


def gives_choice() -> Literal["a", "b"]:
    return "b"


def gives_enum() -> Colour:
    return Colour.RED


def gives_time() -> datetime:
    return NOON


def gives_models() -> list[Weather]:
    return [Weather(placeName="Rome", degrees=30)]


def gives_numbered() -> dict[int, str]:
    return {1: "a"}


def gives_limited() -> Annotated[int, Field(ge=1)]:
    return 3


WRAPPED: list[tuple[Callable[[], Any], Any, dict[str, Any]]] = [
    (gives_text, "hello", {"type": "string"}),
    (gives_number, 5, {"type": "integer"}),
    (gives_ratio, 0.5, {"type": "number"}),
    (gives_truth, True, {"type": "boolean"}),
    (gives_texts, ["a", "b"], {"type": "array", "items": {"type": "string"}}),
    (gives_numbers, [1, 2], {"type": "array", "items": {"type": "integer"}}),
    (gives_pair, [1, "a"], {"type": "array"}),
    (gives_optional, None, {}),
    (gives_union, "five", {}),
    (gives_choice, "b", {"enum": ["a", "b"]}),
    (gives_enum, "red", {"enum": ["red", "blue"]}),
    (gives_time, "2026-07-28T12:00:00Z", {"format": "date-time"}),
    (gives_models, [{"placeName": "Rome", "degrees": 30.0, "when": None}], {"type": "array"}),
    (gives_numbered, {"1": "a"}, {"type": "object"}),
    (gives_limited, 3, {"type": "integer", "minimum": 1}),
]


@pytest.mark.parametrize(("fn", "data", "shape"), WRAPPED)
def test_a_value_that_is_no_object_is_structured_as_its_result(
    fn: Callable[[], Any], data: Any, shape: dict[str, Any]
) -> None:
    schema = definition(fn)["outputSchema"]
    assert schema["type"] == "object"
    assert schema["required"] == ["result"]
    assert shape.items() <= schema["properties"]["result"].items()
    assert call(fn)["structuredContent"] == {"result": data}


def gives_model() -> Weather:
    return Weather(placeName="Rome", degrees=30)


def gives_dataclass() -> Trip:
    return Trip("Rome", ["Pisa"])


def gives_typed_dict() -> City:
    return {"name": "Rome"}


def gives_plain_typed_dict() -> PlainCity:
    return {"name": "Rome"}


def gives_mapping() -> dict[str, int]:
    return {"a": 1}


def gives_open_mapping() -> dict[str, Any]:
    return {"a": [1, None]}


def gives_model_as_dict() -> Weather:
    value: Any = {"placeName": "Rome", "degrees": 30}
    return typing.cast("Weather", value)


def gives_annotated_model() -> Annotated[Weather, "the weather"]:
    return gives_model()


OBJECTS: list[tuple[Callable[[], Any], dict[str, Any]]] = [
    (gives_model, {"placeName": "Rome", "degrees": 30.0, "when": None}),
    (gives_dataclass, {"to": "Rome", "stops": ["Pisa"]}),
    (gives_typed_dict, {"name": "Rome"}),
    (gives_plain_typed_dict, {"name": "Rome"}),
    (gives_mapping, {"a": 1}),
    (gives_open_mapping, {"a": [1, None]}),
    (gives_model_as_dict, {"placeName": "Rome", "degrees": 30.0, "when": None}),
    (gives_annotated_model, {"placeName": "Rome", "degrees": 30.0, "when": None}),
]


@pytest.mark.parametrize(("fn", "data"), OBJECTS)
def test_a_value_that_is_an_object_is_structured_as_itself(fn: Callable[[], Any], data: dict[str, Any]) -> None:
    schema = definition(fn)["outputSchema"]
    assert schema["type"] == "object"
    assert "result" not in schema.get("properties", {})
    result = call(fn)
    assert result["structuredContent"] == data
    assert len(result["content"]) == 1
    assert result["content"][0]["type"] == "text"


@pytest.mark.parametrize("fn", [case[0] for case in WRAPPED] + [case[0] for case in OBJECTS])
def test_structured_content_fits_the_schema_that_was_published(fn: Callable[[], Any]) -> None:
    import jsonschema

    schema = definition(fn)["outputSchema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(call(fn)["structuredContent"])


def texts(result: Result) -> list[str]:
    assert not result.get("isError"), result
    return [str(block["text"]) for block in result["content"]]


def test_structured_values_are_text_for_those_who_read_no_structure() -> None:
    assert texts(call(gives_text)) == ["hello"]
    assert texts(call(gives_number)) == ["5"]
    assert texts(call(gives_truth)) == ["true"]
    assert texts(call(gives_texts)) == ["a", "b"]
    assert texts(call(gives_optional)) == []
    (said,) = texts(call(gives_model))
    assert '"placeName": "Rome"' in said


def gives_nothing() -> None:
    return None


def gives_anything() -> Any:
    return {"a": 1}


def gives_unannotated():  # type: ignore[no-untyped-def]
    return "plain"


def gives_object() -> object:
    return "plain"


def gives_bare_list() -> list:  # type: ignore[type-arg]
    return ["a", 1]


def gives_block() -> mcp_types.TextContent:
    return mcp_types.TextContent(text="block")


def gives_blocks() -> list[mcp_types.TextContent | mcp_types.ImageContent]:
    return [mcp_types.TextContent(text="block")]


def gives_content() -> list[mcp_types.ContentBlock]:
    return [mcp_types.TextContent(text="block")]


def gives_picture() -> Image:
    return Image(data=b"pixels", format="png")


def gives_sound() -> Audio:
    return Audio(data=b"noise", format="wav")


def gives_pictures() -> list[Image]:
    return [Image(data=b"1"), Image(data=b"2")]


def gives_picture_or_words() -> str | Image:
    return "no picture today"


def gives_mixed() -> list[str | Image]:
    return ["look:", Image(data=b"1")]


def gives_result() -> mcp_types.CallToolResult:
    content: list[mcp_types.ContentBlock] = [mcp_types.TextContent(text="by hand")]
    return mcp_types.CallToolResult(content=content, structured_content={"a": None}, is_error=False)


def gives_questions() -> InputRequiredResult:
    return InputRequiredResult(request_state="x")


UNSTRUCTURED: list[tuple[Callable[[], Any], list[str]]] = [
    (gives_nothing, []),
    (gives_anything, ["text"]),
    (gives_unannotated, ["text"]),
    (gives_object, ["text"]),
    (gives_bare_list, ["text", "text"]),
    (gives_block, ["text"]),
    (gives_blocks, ["text"]),
    (gives_content, ["text"]),
    (gives_picture, ["image"]),
    (gives_sound, ["audio"]),
    (gives_pictures, ["image", "image"]),
    (gives_picture_or_words, ["text"]),
    (gives_mixed, ["text", "image"]),
]


@pytest.mark.parametrize(("fn", "kinds"), UNSTRUCTURED)
def test_content_and_the_unknown_have_no_structure(fn: Callable[[], Any], kinds: list[str]) -> None:
    assert "outputSchema" not in definition(fn)
    result = call(fn)
    assert not result.get("isError")
    assert [block["type"] for block in result["content"]] == kinds
    assert "structuredContent" not in result


def test_a_picture_is_sent_as_base64_with_its_type(tmp_path: Path) -> None:
    file = tmp_path / "photo.jpeg"
    file.write_bytes(b"pixels")

    def from_file() -> Image:
        return Image(path=file)

    encoded = base64.b64encode(b"pixels").decode()
    assert call(gives_picture)["content"] == [{"type": "image", "data": encoded, "mimeType": "image/png"}]
    assert call(from_file)["content"] == [{"type": "image", "data": encoded, "mimeType": "image/jpeg"}]
    with pytest.raises(ValueError, match="exactly one"):
        Image()
    with pytest.raises(ValueError, match="exactly one"):
        Image(path=file, data=b"")


def test_a_result_built_by_hand_is_sent_as_it_is() -> None:
    assert "outputSchema" not in definition(gives_result)
    result = call(gives_result)
    assert texts(result) == ["by hand"]
    assert result["structuredContent"] == {"a": None}


def test_a_result_built_by_hand_may_be_an_error() -> None:
    def fails() -> mcp_types.CallToolResult:
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text="sorry")], is_error=True)

    assert refusal(call(fails)) == "sorry"


def test_questions_in_a_return_annotation_are_no_part_of_its_structure() -> None:
    def words() -> str | InputRequiredResult:
        return "hello"

    def model() -> InputRequiredResult | Weather:
        return gives_model()

    def several() -> int | str | InputRequiredResult:
        return 5

    def optional() -> Optional[InputRequiredResult]:  # noqa: UP045 - as people write it
        return None

    assert definition(words)["outputSchema"] == definition(gives_text)["outputSchema"]
    assert call(words)["structuredContent"] == {"result": "hello"}
    assert "placeName" in definition(model)["outputSchema"]["properties"]
    assert call(several)["structuredContent"] == {"result": 5}
    assert "outputSchema" not in definition(optional)
    assert "outputSchema" not in definition(gives_questions)


def test_structure_can_be_turned_off_and_insisted_upon() -> None:
    assert "outputSchema" not in definition(gives_model, structured_output=False)
    off = call(gives_model, structured_output=False)
    assert "structuredContent" not in off
    assert '"Rome"' in text(off)
    assert "outputSchema" in definition(gives_model, structured_output=True)
    for fn in (gives_anything, gives_unannotated, gives_nothing, gives_block):
        with pytest.raises(InvalidSignature):
            serve(fn, structured_output=True)


def test_a_return_type_that_has_no_schema_is_served_as_text() -> None:
    @dataclass
    class Odd:
        state: State

    def odd() -> Odd:
        return Odd(State())

    assert "outputSchema" not in definition(odd)
    with pytest.raises(InvalidSignature):
        serve(odd, structured_output=True)


@pytest.mark.parametrize("value", ["seven", None, [1], {"a": 1}, 1.5])
def test_a_value_that_breaks_its_annotation_is_the_authors_mistake(value: Any) -> None:
    def lies() -> int:
        return typing.cast("int", value)

    said = refusal(call(lies))
    assert said.startswith("The tool failed")


@pytest.mark.parametrize("value", [State(), {"a": State()}, b"\xff", float("nan"), 2**70, "\ud800", [float("inf")]])
def test_a_value_that_cannot_be_written_as_json_is_the_authors_mistake(value: Any) -> None:
    def anything() -> Any:
        return value

    def typed() -> dict[str, Any]:
        return {"value": value}

    for fn in (anything, typed):
        result = call(fn)
        assert result["resultType"] == "complete"
        if result.get("isError"):
            assert refusal(result).startswith("The tool failed")


def test_words_around_pictures_keep_their_order() -> None:
    def story() -> list[Any]:
        return ["one", Image(data=b"1"), ["two", {"three": 3}], mcp_types.TextContent(text="four")]

    blocks = call(story)["content"]
    assert [block["type"] for block in blocks] == ["text", "image", "text", "text", "text"]
    assert [block.get("text") for block in blocks] == ["one", None, "two", '{\n  "three": 3\n}', "four"]
