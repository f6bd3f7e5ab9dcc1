"""JSON Schemas that somebody wrote by hand, as checks. Those made from Python types are pydantic's business.

A reference to another document is never fetched: "Implementations MUST NOT automatically dereference `$ref` values that
resolve to a network URI." The library is imported when the first such schema is met.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from .errors import InvalidSignature

Check = Callable[[Any], None]


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

    Patterns run in linear time, and those that cannot are left to the peer.
    """
    return _check(_cautious(), _undated(schema), _formats())


def _undated(node: Any) -> Any:
    """A copy that names no dialect of JSON Schema: a part that names one would be checked by that dialect's rules."""
    if isinstance(node, Mapping):
        return {key: _undated(value) for key, value in node.items() if key != "$schema"}
    return [_undated(item) for item in node] if isinstance(node, list) else node


def _check(kind: Any, schema: Mapping[str, Any], formats: Any = None) -> Check:
    import jsonschema
    import referencing
    import referencing.exceptions

    try:
        kind.check_schema(dict(schema))
    except (jsonschema.SchemaError, RecursionError) as error:
        raise ValueError(getattr(error, "message", "too deep")) from None
    validator = kind(dict(schema), registry=referencing.Registry(), format_checker=formats)

    def check(value: Any) -> None:
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except referencing.exceptions.Unresolvable as unresolved:
            raise ValueError(f"the schema refers to something that is not in it: {unresolved.ref}") from None
        except RecursionError:
            raise ValueError("the schema refers to itself without end") from None
        if error is not None:
            place = ".".join(str(part) for part in error.absolute_path)
            raise ValueError(f"{place}: {error.message}" if place else error.message)

    return check


@lru_cache(maxsize=1)
def _cautious() -> Any:
    import jsonschema

    rules: dict[str, Any] = {"pattern": _linear_pattern, "patternProperties": _no_rule}
    extend: Any = jsonschema.validators.extend
    return extend(jsonschema.Draft202012Validator, rules)


def _linear_pattern(_validator: Any, pattern: Any, value: Any, _schema: Any) -> Iterator[Any]:
    import jsonschema

    if isinstance(value, str) and not _matcher(pattern)(value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _no_rule(_validator: Any, _rule: Any, _value: Any, _schema: Any) -> Iterator[Any]:
    yield from ()


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
