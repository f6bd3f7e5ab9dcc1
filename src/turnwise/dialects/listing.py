"""What a server offers, as every wire lists it: definitions, pages and cursors."""

import base64
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from .._binding import Binding
from .._messages import CacheHint
from ..errors import InvalidParams, InvalidSignature
from .asking import wire_dict
from .words import HEADER_NAME

CACHEABLE = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)


def definition(**members: Any) -> dict[str, Any]:
    """One entry of a list: snake_case members in, the wire's names out, what is None left away."""
    wire = {_WIRE.get(name, name): _plain(value) for name, value in members.items() if value is not None}
    return {name: value for name, value in wire.items() if value != []}


_WIRE = {
    "input_schema": "inputSchema",
    "output_schema": "outputSchema",
    "mime_type": "mimeType",
    "uri_template": "uriTemplate",
    "website_url": "websiteUrl",
    "meta": "_meta",
}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return wire_dict(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def prompt_arguments(binding: Binding) -> list[dict[str, Any]]:
    """A prompt's arguments, from its signature."""
    schema = binding.schema
    required = schema.get("required", ())
    return [
        definition(name=name, description=part.get("description"), required=name in required)
        for name, part in schema.get("properties", {}).items()
    ]


def page(entries: Mapping[str, dict[str, Any]], cursor: Any, size: int | None) -> tuple[list[Any], str | None]:
    """One page of a list and the cursor of the next. A cursor names the last entry that was seen."""
    names = list(entries)
    start = 0 if cursor is None else _after(names, cursor)
    shown = names[start:] if size is None else names[start : start + size]
    more = size is not None and start + size < len(names)
    return [entries[name] for name in shown], _cursor(shown[-1]) if more else None


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _after(names: list[str], cursor: Any) -> int:
    try:
        return names.index(base64.urlsafe_b64decode(cursor.encode()).decode()) + 1
    except (AttributeError, ValueError):
        raise InvalidParams("Invalid cursor") from None


def checked_hints(hints: Mapping[str, CacheHint]) -> dict[str, CacheHint]:
    """Hints for results that can be cached; ValueError for one that cannot."""
    if unknown := [method for method in hints if method not in CACHEABLE]:
        raise ValueError(f"cache_hints: results of {unknown[0]} are not cacheable; those of {', '.join(CACHEABLE)} are")
    return dict(hints)


def cache_members(hint: CacheHint) -> dict[str, Any]:
    """The caching hints of a complete result."""
    return {"ttlMs": hint.ttl_ms, "cacheScope": hint.scope}


def mirrored_parameters(name: str, schema: Mapping[str, Any]) -> dict[bytes, tuple[str, ...]]:
    """The headers that repeat a tool's parameters: lower-case header name to the parameter's path."""
    found: dict[bytes, tuple[str, ...]] = {}
    _walk(name, schema, (), found)
    if (marks := _count(schema)) != len(found):
        raise InvalidSignature(
            f"{name}: {marks - len(found)} x-mcp-header mark(s) on parameters that are not reached by names alone"
        )
    return found


def _walk(name: str, schema: Mapping[str, Any], path: tuple[str, ...], found: dict[bytes, tuple[str, ...]]) -> None:
    for key, part in schema.get("properties", {}).items():
        if not isinstance(part, Mapping):
            continue
        header = part.get("x-mcp-header")
        if header is not None:
            _check_header(name, key, header, part)
            lower = b"mcp-param-" + header.lower().encode()
            if lower in found:
                raise InvalidSignature(f"{name}: two parameters mirror into the header {header!r}")
            found[lower] = (*path, key)
        _walk(name, part, (*path, key), found)


def _check_header(name: str, key: str, header: Any, part: Mapping[str, Any]) -> None:
    if not isinstance(header, str) or not HEADER_NAME.fullmatch(header):
        raise InvalidSignature(f"{name}: x-mcp-header of {key!r} is not an HTTP field name: {header!r}")
    arms = [part, *(arm for arm in part.get("anyOf", ()) if isinstance(arm, Mapping))]
    types = [arm.get("type") for arm in arms]
    kinds = {kind for item in types for kind in (item if isinstance(item, list) else [item])} - {None, "null"}
    if not kinds or not kinds <= {"string", "integer", "boolean"}:
        raise InvalidSignature(f"{name}: only strings, integers and booleans mirror into headers, not {key!r}")


def _count(node: Any) -> int:
    if isinstance(node, Mapping):
        return sum(_count(value) for value in node.values()) + ("x-mcp-header" in node)
    return sum(_count(item) for item in node) if isinstance(node, list) else 0
