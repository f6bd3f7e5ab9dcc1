"""JSON Schemas that somebody wrote by hand, as checks. Those made from Python types are pydantic's business.

A reference to another document is never fetched: "Implementations MUST NOT automatically dereference `$ref` values that
resolve to a network URI." The library is imported when the first such schema is met.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from ._json import encode
from .errors import InvalidSignature

Check = Callable[[Any], None]

MOST_STEPS = 20_000
_BY_PATTERN = ("$schema", "patternProperties", "additionalProperties", "unevaluatedProperties")
log = logging.getLogger("turnwise.schemas")

_steps: ContextVar[list[int]] = ContextVar("turnwise_schema_steps")


class _TooLong(Exception):
    """A check that would take as long as the peer likes."""


def check_for(schema: Mapping[str, Any]) -> Check:
    """A function that raises ValueError where a value does not fit; a schema that is none is refused now."""
    import jsonschema

    unknown: Any = None
    kind = jsonschema.validators.validator_for(schema, default=unknown)
    if kind is None and "$schema" in schema:
        raise InvalidSignature(f"this dialect of JSON Schema is not supported: {schema['$schema']}")
    try:
        return _check(kind or jsonschema.Draft202012Validator, schema)
    except ValueError as error:
        raise InvalidSignature(f"not a JSON Schema: {error}") from None


def check_for_peers(schema: Mapping[str, Any]) -> Check:
    """The same for a schema that a peer sent, which may want to keep us busy: ValueError where it is none.

    Patterns run in linear time, and those that cannot are left to the peer; a check that takes too long is given up.
    """
    import jsonschema

    unknown: Any = None
    kind = jsonschema.validators.validator_for(schema, default=unknown)
    if kind is None and "$schema" in schema:
        raise ValueError(f"this dialect of JSON Schema is not supported: {schema['$schema']}")
    return _check(_cautious(kind or jsonschema.Draft202012Validator), _tamed(schema), _formats())


def _tamed(node: Any) -> Any:
    """A copy without what would be checked by other rules than ours: parts that name a dialect of JSON Schema, and
    names by pattern.
    """
    if isinstance(node, Mapping):
        dropped = _BY_PATTERN if isinstance(node.get("patternProperties"), Mapping) else ("$schema",)
        return {key: _tamed(value) for key, value in node.items() if key not in dropped}
    return [_tamed(item) for item in node] if isinstance(node, list) else node


def _check(kind: Any, schema: Mapping[str, Any], formats: Any = None) -> Check:
    import jsonschema
    import referencing
    import referencing.exceptions

    try:
        kind.check_schema(dict(schema))
    except (jsonschema.SchemaError, RecursionError, OverflowError) as error:
        raise ValueError(getattr(error, "message", "too large")) from None
    validator = kind(dict(schema), registry=referencing.Registry(), format_checker=formats)

    def check(value: Any) -> None:
        token = _steps.set([0])
        try:
            error = next(iter(validator.iter_errors(value)), None)
            error = error and jsonschema.exceptions.best_match([error])
        except referencing.exceptions.Unresolvable as unresolved:
            raise ValueError(f"the schema refers to something that is not in it: {unresolved.ref}") from None
        except _TooLong:
            log.warning("a schema takes more than %d steps to check: what it describes is taken unchecked", MOST_STEPS)
            return
        except (RecursionError, OverflowError):
            raise ValueError("the schema is too deep, or its numbers are too large") from None
        finally:
            _steps.reset(token)
        if error is not None:
            place = ".".join(str(part) for part in error.absolute_path)
            raise ValueError(f"{place}: {error.message}" if place else error.message)

    return check


@lru_cache(maxsize=16)
def _cautious(kind: Any) -> Any:
    """A dialect of JSON Schema whose rules cannot be made to take for ever."""
    import jsonschema

    rules: dict[str, Any] = {**kind.VALIDATORS, "pattern": _linear_pattern, "uniqueItems": _different}
    extend: Any = jsonschema.validators.extend
    return extend(kind, {name: _counted(rule) for name, rule in rules.items()})


def _counted(rule: Any) -> Any:
    """A rule that gives up where a schema makes a check as long as it likes."""

    def check(validator: Any, part: Any, value: Any, schema: Any) -> Iterator[Any]:
        steps = _steps.get()
        steps[0] += 1
        if steps[0] > MOST_STEPS:
            raise _TooLong
        yield from rule(validator, part, value, schema) or ()

    return check


def _different(_validator: Any, wanted: Any, value: Any, _schema: Any) -> Iterator[Any]:
    import jsonschema

    if wanted and isinstance(value, list) and len({encode(item, sort_keys=True) for item in value}) < len(value):
        yield jsonschema.ValidationError("the items are not all different")


def _linear_pattern(_validator: Any, pattern: Any, value: Any, _schema: Any) -> Iterator[Any]:
    import jsonschema

    if isinstance(value, str) and not _matcher(pattern)(value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> Callable[[str], bool]:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError:  # A pattern that this engine does not know.
        return lambda value: True


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
