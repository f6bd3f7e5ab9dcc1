"""HTTP headers that repeat the body, so that balancers can route without reading it.

"Servers that process the request body MUST reject requests where the values specified in the headers do not match the
corresponding values in the request body."
"""

import base64
import re
from collections.abc import Mapping
from typing import Any

from ..errors import HeaderMismatch

_OPEN, _CLOSE = b"=?base64?", b"?="
_SAFE_INTEGER = 2**53
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]{1,16})?", re.ASCII)
VERSION, METHOD, NAME = b"mcp-protocol-version", b"mcp-method", b"mcp-name"


def written(method: str, name: str | None, version: str) -> dict[str, str]:
    """The standard headers of a request; `name` is None for methods that name nothing."""
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    if name is not None:
        headers["Mcp-Name"] = encoded(name)
    return headers


def written_parameters(marks: Mapping[bytes, tuple[str, ...]], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that repeat a tool's arguments: those that have a value which a header can carry."""
    values = {header.decode().title(): _text(_at(arguments, path)) for header, path in marks.items()}
    return {header: encoded(text) for header, text in values.items() if text is not None}


def encoded(text: str) -> str:
    """A text as a header carries it: plain where that is safe, in Base64 where it is not."""
    is_plain = text.isascii() and text.replace("\t", " ").isprintable() and text == text.strip(" \t")
    if is_plain and not (text.startswith(_OPEN.decode()) and text.endswith(_CLOSE.decode())):
        return text
    return f"{_OPEN.decode()}{base64.b64encode(text.encode()).decode()}{_CLOSE.decode()}"


def check(headers: Mapping[bytes, bytes], method: str, name: str | None, version: str) -> None:
    """Hold the standard headers against the body; `name` is None for methods that name nothing."""
    if _plain(headers, VERSION) != version:
        raise HeaderMismatch("Header mismatch: MCP-Protocol-Version differs from the version in _meta")
    if _plain(headers, METHOD) != method:
        raise HeaderMismatch("Header mismatch: Mcp-Method differs from the request's method")
    if name is not None and _decoded(headers.get(NAME), "Mcp-Name") != name:
        raise HeaderMismatch("Header mismatch: Mcp-Name differs from the name or URI in the body")


def check_parameters(
    headers: Mapping[bytes, bytes], marks: Mapping[bytes, tuple[str, ...]], arguments: Mapping[str, Any]
) -> None:
    """Hold the mirrored parameters of a tool against its arguments: present exactly where a value is."""
    for header, path in marks.items():
        value = _at(arguments, path)
        raw = headers.get(header)
        if value is None and raw is None:
            continue
        label = header.decode().title()
        if value is None or raw is None:
            raise HeaderMismatch(f"Header mismatch: {label} and the argument {'.'.join(path)!r} do not come together")
        if not _same(_decoded(raw, label), value):
            raise HeaderMismatch(f"Header mismatch: {label} differs from the argument {'.'.join(path)!r}")


def _plain(headers: Mapping[bytes, bytes], name: bytes) -> str:
    raw = headers.get(name)
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: {name.decode().title()} is missing")
    return raw.strip(b" \t").decode("latin-1")


def _decoded(raw: bytes | None, label: str) -> str:
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: {label} is missing")
    raw = raw.strip(b" \t")
    if raw.startswith(_OPEN) and raw.endswith(_CLOSE) and len(raw) >= len(_OPEN) + len(_CLOSE):
        try:
            return base64.b64decode(raw[len(_OPEN) : -len(_CLOSE)], validate=True).decode()
        except ValueError:
            raise HeaderMismatch(f"Header mismatch: {label} is not valid Base64 of UTF-8") from None
    text = raw.decode("latin-1")
    if not (text.isascii() and text.replace("\t", " ").isprintable()):
        raise HeaderMismatch(f"Header mismatch: {label} has characters that a header cannot carry")
    return text


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else None
    return str(value) if isinstance(value, str | int) else None


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        arguments = arguments.get(part) if isinstance(arguments, Mapping) else None
    return arguments


def _same(text: str, value: Any) -> bool:
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        # "servers SHOULD compare the header value and the body value numerically"
        return _NUMBER.fullmatch(text) is not None and abs(value) < _SAFE_INTEGER and float(text) == value
    return isinstance(value, str) and text == value
