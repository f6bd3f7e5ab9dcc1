"""JSON Schemas that an author wrote by hand, as checks. Those made from Python types are pydantic's business.

A reference to another document is never fetched: "Implementations MUST NOT automatically dereference `$ref` values that
resolve to a network URI." The library is imported when the first such schema is met.
"""

from collections.abc import Callable, Mapping
from typing import Any

from .errors import InvalidSignature

Check = Callable[[Any], None]


def check_for(schema: Mapping[str, Any]) -> Check:
    """A function that raises ValueError where a value does not fit; a schema that is none is refused now."""
    import jsonschema
    import referencing
    import referencing.exceptions

    try:
        unknown: Any = None
        kind = jsonschema.validators.validator_for(schema, default=unknown)
        if kind is None and "$schema" in schema:
            raise InvalidSignature(f"this dialect of JSON Schema is not supported: {schema['$schema']}")
        kind = kind or jsonschema.Draft202012Validator
        kind.check_schema(dict(schema))
    except jsonschema.SchemaError as error:
        raise InvalidSignature(f"not a JSON Schema: {error.message}") from None
    validator = kind(dict(schema), registry=referencing.Registry())

    def check(value: Any) -> None:
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except referencing.exceptions.Unresolvable as unresolved:
            raise ValueError(f"the schema refers to something that is not in it: {unresolved.ref}") from None
        if error is not None:
            place = ".".join(str(part) for part in error.absolute_path)
            raise ValueError(f"{place}: {error.message}" if place else error.message)

    return check
