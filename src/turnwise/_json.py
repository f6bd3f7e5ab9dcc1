"""JSON in and out.

Decoding keeps whole numbers whole, whatever their size, and takes neither NaN nor lone surrogates. Encoding is
orjson's; what it cannot write, whole numbers beyond 64 bits, the standard library writes.
"""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import orjson
from pydantic_core import from_json

decode: Callable[[bytes | str], Any] = partial(from_json, allow_inf_nan=False)
_TOO_DEEP = "recursion limit exceeded"


def decode_deep(data: bytes) -> Any:
    """The same for what may be nested more deeply: about a thousand levels. ValueError where it cannot be read."""
    try:
        return decode(data)
    except ValueError as error:
        if _TOO_DEEP not in str(error):
            raise
    return orjson.loads(data)


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested more than so many levels deep, found without going down by recursion."""
    level, depth = _containers([value]), 0
    while level:
        depth += 1
        if depth > levels:
            return True
        level = _containers(child for node in level for child in (node.values() if isinstance(node, dict) else node))
    return False


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list | tuple)]


def encode(value: Any, *, sort_keys: bool = False, default: Callable[[Any], Any] | None = None) -> bytes:
    """The value as JSON; TypeError or ValueError where it has none."""
    try:
        return orjson.dumps(value, default, orjson.OPT_SORT_KEYS if sort_keys else None)
    except TypeError:
        return encode_slowly(value, sort_keys=sort_keys, default=default)


def encode_slowly(value: Any, *, sort_keys: bool = False, default: Callable[[Any], Any] | None = None) -> bytes:
    """The same, by way of the standard library."""
    text = json.dumps(
        value, sort_keys=sort_keys, default=default, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    return text.encode()
