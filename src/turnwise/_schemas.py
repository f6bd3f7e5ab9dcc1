"""JSON Schemas that somebody wrote by hand, as checks. Those made from Python types are pydantic's business.

A reference to another document is never fetched: "Implementations MUST NOT automatically dereference `$ref` values that
resolve to a network URI." The library is imported when the first such schema is met.
"""

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from . import _patterns
from ._json import encode
from .errors import InvalidSignature

Check = Callable[[Any], None]

MOST_STEPS = 20_000
"""So many steps it may take to check a value by a peer's schema, or to read one: that has some 500 fields."""
MOST_TOLD, LONGEST_TOLD = 20, 300
"""So many things that are wrong with a value are told, each in so many characters."""
MOST_NESTED = 120
"""So many rules may be at work inside of each other: Python has room for more, but what runs out of it may panic."""
_USUAL = "https://json-schema.org/draft/2020-12/schema"
_BY_PATTERN = ("$schema", "patternProperties", "additionalProperties", "unevaluatedProperties")
log = logging.getLogger("turnwise.schemas")

_effort: ContextVar[list[float]] = ContextVar("turnwise_schema_effort")
"""The steps that a check took, the rules that are at work, and the steps that it may take."""


class _TooLong(Exception):
    """A check that would take as long as the peer likes."""


class _TooDeep(Exception):
    """A check that would go as deep as the peer likes."""


def check_for(schema: Mapping[str, Any]) -> Check:
    """A function that raises ValueError where a value does not fit; a schema that is none is refused now."""
    try:
        kind = _quick(_dialect_of(schema))
        _hold(schema, kind.check_schema)
        return _check(kind, schema)
    except ValueError as error:
        raise InvalidSignature(f"not a JSON Schema: {error}") from None


def check_for_peers(schema: Mapping[str, Any], most_read: int = MOST_STEPS, *, with_formats: bool = True) -> Check:
    """The same for a schema that a peer sent, which may want to keep us busy: ValueError where it is none, or where it
    takes too long to find out.

    Patterns run in linear time, and those that cannot are left to the peer; a check that takes too long is given up.
    `format` is checked in what we send. In what comes it is an annotation, as JSON Schema has it.
    """
    found, _ = read_for_peers(schema, most_read, with_formats=with_formats)
    if isinstance(found, str):
        raise ValueError(found)
    return found


def read_for_peers(
    schema: Mapping[str, Any], most_read: int = MOST_STEPS, *, with_formats: bool = True
) -> tuple[Check | str, float]:
    """A check, or why there is none; and how many steps it took to find out."""
    effort: list[float] = [0, 0, most_read]
    token = _effort.set(effort)
    try:
        kind = _dialect_of(schema)
        tamed = _tamed(schema)
        _hold(tamed, _reader(kind).validate)
        formats = _formats() if with_formats else None
        return _check(_cautious(kind), tamed, formats, most_steps=MOST_STEPS, most_told=MOST_TOLD), effort[0]
    except _TooLong:
        return f"it takes more than {most_read} steps to read", effort[0]
    except (ValueError, RecursionError) as error:
        return str(error) if isinstance(error, ValueError) else "too large", effort[0]
    finally:
        _effort.reset(token)


def _hold(schema: Mapping[str, Any], check: Callable[[Any], None]) -> None:
    """Hold a schema against the rules of its dialect; ValueError where it is none."""
    import jsonschema

    try:
        check(dict(schema))
    except (jsonschema.SchemaError, jsonschema.ValidationError, RecursionError, OverflowError) as error:
        raise ValueError(getattr(error, "message", "too large")) from None


def _dialect_of(schema: Mapping[str, Any]) -> Any:
    import jsonschema

    name = schema.get("$schema", _USUAL)
    if not isinstance(name, str):
        raise ValueError("its $schema is no text")
    unknown: Any = None
    kind = jsonschema.validators.validator_for({"$schema": name}, default=unknown)
    if kind is None:
        raise ValueError(f"this dialect of JSON Schema is not supported: {name}")
    return kind


def _tamed(node: Any) -> Any:
    """A copy without what would be checked by other rules than ours: parts that name a dialect of JSON Schema, and
    names by pattern.
    """
    if isinstance(node, Mapping):
        dropped = _BY_PATTERN if isinstance(node.get("patternProperties"), Mapping) else ("$schema",)
        return {key: _tamed(value) for key, value in node.items() if key not in dropped}
    return [_tamed(item) for item in node] if isinstance(node, list) else node


def _check(
    kind: Any, schema: Mapping[str, Any], formats: Any = None, *, most_steps: float = math.inf, most_told: int = 1
) -> Check:
    import referencing.exceptions

    try:
        resolver = _resolver(kind, schema)
    except (RecursionError, OverflowError):
        raise ValueError("too large") from None
    # By itself a validator would look through the whole schema anew for each reference to an anchor.
    validator = kind(dict(schema), _resolver=resolver, format_checker=formats)

    def check(value: Any) -> None:
        token = _effort.set([0, 0, most_steps])
        wrong: list[str] = []
        try:
            for error in islice(validator.iter_errors(value), most_told):
                wrong.append(_told(error))
        except referencing.exceptions.Unresolvable as unresolved:
            raise ValueError(f"the schema refers to something that is not in it: {unresolved.ref}") from None
        except _TooLong:
            if not wrong:
                log.warning(
                    "a schema takes more than %d steps to check: what it describes is taken unchecked", MOST_STEPS
                )
        except (_TooDeep, RecursionError, OverflowError):
            raise ValueError("the schema is too deep, or its numbers are too large") from None
        finally:
            _effort.reset(token)
        if wrong:
            raise ValueError("; ".join(dict.fromkeys(wrong)))

    return check


def _told(error: Any) -> str:
    """What is wrong, in words. Of alternatives that are all of one value each, the values are named."""
    import jsonschema

    choices = error.validator_value if error.validator in ("oneOf", "anyOf") else None
    if isinstance(choices, list) and all(isinstance(one, Mapping) and "const" in one for one in choices):
        place, message = error.absolute_path, f"{error.instance!r} is not one of {[one['const'] for one in choices]!r}"
    else:
        best: Any = jsonschema.exceptions.best_match([error])
        place, message = best.absolute_path, best.message
    where = ".".join(str(part) for part in place)
    half = LONGEST_TOLD // 2  # A value comes first, and may be long; what is wrong with it comes last.
    told = message if len(message) <= LONGEST_TOLD else f"{message[:half]}…{message[-half:]}"
    return f"{where}: {told}" if where else told


def _resolver(kind: Any, schema: Mapping[str, Any]) -> Any:
    """What finds the references of a schema, of which all were found once: "Schemas that fail to validate due to an
    unresolved external `$ref` SHOULD be rejected rather than silently treated as permissive", also where the first
    values would not need what is not there.
    """
    import referencing.exceptions
    import referencing.jsonschema
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    dialect = referencing.jsonschema.specification_with(kind.META_SCHEMA["$schema"])
    try:
        root: Any = dialect.create_resource(dict(schema))
        place = root.id() or ""
        resolver: Any = REGISTRY.with_resource(place, root).crawl().resolver(place)
        open_parts = [(root, resolver)]
        while open_parts:
            part, there = open_parts.pop()
            for target in _references(part.contents):
                try:
                    there.lookup(target)
                except (referencing.exceptions.Unresolvable, ValueError):
                    raise ValueError(f"the schema refers to something that is not in it: {target}") from None
            open_parts.extend((inner, there.in_subresource(inner)) for inner in part.subresources())
    except (AttributeError, TypeError):  # A part that names a dialect of its own is held against that of the whole.
        raise ValueError("a part that names a dialect of its own is none in it") from None
    return resolver


def _references(part: Any) -> list[str]:
    found = [part.get(word) for word in ("$ref", "$dynamicRef", "$recursiveRef")] if isinstance(part, Mapping) else []
    return [target for target in found if isinstance(target, str)]


@lru_cache(maxsize=16)
def _quick(kind: Any) -> Any:
    """A dialect for schemas that an author wrote: what values make of them may not go on for ever."""
    import jsonschema

    rules: dict[str, Any] = {**kind.VALIDATORS, "pattern": _quick_pattern}
    extend: Any = jsonschema.validators.extend
    return extend(kind, {name: _counted(rule) for name, rule in rules.items()})


def _quick_pattern(validator: Any, pattern: Any, value: Any, schema: Any) -> Iterator[Any]:
    import jsonschema

    rule = (
        jsonschema.Draft202012Validator.VALIDATORS["pattern"] if _patterns.matcher(pattern) is None else _linear_pattern
    )
    yield from rule(validator, pattern, value, schema) or ()


@lru_cache(maxsize=16)
def _cautious(kind: Any) -> Any:
    """A dialect of JSON Schema whose rules cannot be made to take for ever."""
    import jsonschema

    rules: dict[str, Any] = {**kind.VALIDATORS, "pattern": _light_pattern, "uniqueItems": _different}
    extend: Any = jsonschema.validators.extend
    return extend(kind, {name: _counted(rule) for name, rule in rules.items()})


def _counted(rule: Any) -> Any:
    """A rule that gives up where a check takes as long, or goes as deep, as somebody likes."""

    def check(validator: Any, part: Any, value: Any, schema: Any) -> Iterator[Any]:
        effort = _spent(1 + (len(part) // 16 if type(part) is list else 0))
        if effort[1] >= MOST_NESTED:
            raise _TooDeep
        effort[1] += 1
        try:
            yield from rule(validator, part, value, schema) or ()
        finally:
            effort[1] -= 1

    return check


def _spent(steps: float) -> list[float]:
    effort = _effort.get()
    effort[0] += steps
    if effort[0] > effort[2]:
        raise _TooLong
    return effort


@lru_cache(maxsize=16)
def _reader(kind: Any) -> Any:
    """What a schema of this dialect is held against, by rules that count their steps. By themselves the parts of it
    would be read by other rules, because they name their dialect.
    """
    import jsonschema
    import referencing
    import referencing.jsonschema
    from jsonschema_specifications import REGISTRY

    def counted(rule: Any) -> Any:
        def check(*given: Any) -> Any:
            _spent(1)
            return rule(*given)

        return check

    def nameless(contents: Any) -> Any:
        dialect = referencing.jsonschema.specification_with(contents["$schema"])
        return dialect.create_resource({word: part for word, part in contents.items() if word != "$schema"})

    rules = {**kind.VALIDATORS, "uniqueItems": _different}
    extend: Any = jsonschema.validators.extend
    counting = extend(kind, {name: counted(rule) for name, rule in rules.items()})
    parts = [(address, nameless(REGISTRY.contents(address))) for address in REGISTRY]
    registry: Any = referencing.Registry().with_resources(parts).crawl()
    formats = jsonschema.FormatChecker(())
    formats.checks("regex", re.error)(_is_pattern)
    return counting(nameless(kind.META_SCHEMA).contents, registry=registry, format_checker=formats)


def _is_pattern(value: Any) -> bool:
    if isinstance(value, str):
        _spent(_patterns.reading(value))
        re.compile(value)
    return True


def _different(_validator: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[Any]:
    import jsonschema

    if wanted and isinstance(value, list) and len({encode(item, sort_keys=True) for item in value}) < len(value):
        yield jsonschema.ValidationError("the items are not all different")


def _light_pattern(validator: Any, pattern: Any, value: Any, schema: Any) -> Iterator[Any]:
    effort = _patterns.effort(pattern, value) if isinstance(value, str) else math.inf
    if effort <= _patterns.HEAVIEST:
        _spent(effort)
        yield from _linear_pattern(validator, pattern, value, schema)


def _linear_pattern(_validator: Any, pattern: Any, value: Any, _schema: Any) -> Iterator[Any]:
    import jsonschema

    matches = _patterns.matcher(pattern)
    if isinstance(value, str) and matches is not None and not matches(value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


@lru_cache(maxsize=1)
def _formats() -> Any:
    import jsonschema

    checker = jsonschema.FormatChecker(("email", "date"))
    checker.checks("date-time", ValueError)(_is_moment)
    checker.checks("uri", ValueError)(_is_uri)
    return checker


def _is_moment(value: Any) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def _is_uri(value: Any) -> bool:
    return not isinstance(value, str) or bool(urlsplit(value).scheme)
