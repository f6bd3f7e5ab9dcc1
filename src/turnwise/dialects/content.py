"""What handlers return, as every wire writes it: tool results, prompt messages, resource contents."""

import base64
import mimetypes
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NotRequired, Union, cast, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import to_json, to_jsonable_python
from typing_extensions import TypedDict, is_typeddict

from .._ledger import is_json
from ..errors import AuthorError, InvalidSignature
from .asking import wire_dict

_PLAIN = frozenset({str, int, bool})


class _Media:
    """Bytes, or a file that is read when the content is sent."""

    kind: ClassVar[str]
    fallback: ClassVar[str]

    def __init__(self, path: str | Path | None = None, data: bytes | None = None, format: str | None = None) -> None:
        if (path is None) == (data is None):
            raise ValueError(f"{type(self).__name__} takes exactly one of path= and data=")
        self.path = None if path is None else Path(path)
        self.data = data
        self.format = format

    @property
    def mime_type(self) -> str:
        """From `format`, else from the file's name."""
        if self.format is not None:
            return f"{self.kind}/{self.format}"
        guess = mimetypes.guess_type(self.path.name)[0] if self.path is not None else None
        return guess or self.fallback

    def block(self) -> dict[str, Any]:
        """The content block."""
        data = self.data if self.path is None else self.path.read_bytes()
        encoded = base64.b64encode(cast("bytes", data)).decode()
        return {"type": self.kind, "data": encoded, "mimeType": self.mime_type}


class Image(_Media):
    """A picture to return from a tool."""

    kind = "image"
    fallback = "image/png"


class Audio(_Media):
    """A recording to return from a tool."""

    kind = "audio"
    fallback = "audio/wav"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt; `content` is a text, a media object or a content block."""

    role: Literal["user", "assistant"]
    content: Any


def UserMessage(content: Any) -> Message:
    """A message in the user's voice."""
    return Message("user", content)


def AssistantMessage(content: Any) -> Message:
    """A message in the assistant's voice."""
    return Message("assistant", content)


def block(value: Any) -> dict[str, Any]:
    """One content block."""
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if isinstance(value, _Media):
        return value.block()
    if isinstance(value, BaseModel) and _is_block(type(value)):
        return wire_dict(value)
    return {"type": "text", "text": json_text(value)}


def blocks(value: Any) -> list[dict[str, Any]]:
    """The content blocks of whatever a tool returned."""
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [part for item in value for part in blocks(item)]
    return [block(value)]


def json_text(value: Any) -> str:
    """A value as JSON for a model to read."""
    try:
        return to_json(value, indent=2).decode()
    except ValueError as error:
        raise AuthorError(f"a result cannot be written as JSON: {error}") from None


def _is_block(kind: type) -> bool:
    return kind.__module__.startswith("mcp_types") and "type" in getattr(kind, "model_fields", {})


class Output:
    """How a tool's return value becomes its result; the output schema is worked out once."""

    def __init__(self, name: str, annotation: Any, structured: bool | None) -> None:
        self.schema: dict[str, Any] | None = None
        self._adapter: TypeAdapter[Any] | None = None
        self._plain: type | None = None
        self._wrap = False
        annotation = _without_questions(annotation)
        if structured is False or (structured is None and not _is_structured(annotation)):
            return
        if not _is_structured(annotation):
            raise InvalidSignature(f"{name}: structured_output=True needs a return annotation that has a schema")
        self._wrap = not _is_object(annotation)
        self._plain = annotation if annotation in _PLAIN else None
        self._shape(name, annotation, required=structured is True)

    def _shape(self, name: str, annotation: Any, *, required: bool) -> None:
        try:
            self._adapter = TypeAdapter(_modern(annotation))
            inner = self._adapter.json_schema(mode="serialization")
        except PydanticUserError as error:
            if required:
                raise InvalidSignature(f"{name}: no schema can be made of its return annotation: {error}") from None
            self._adapter, self._wrap = None, False
            return
        self.schema = _wrapped(name, inner) if self._wrap else inner

    def result(self, value: Any) -> dict[str, Any]:
        """The body of a complete result."""
        if type(value) is self._plain:
            text = value if self._plain is str else json_text(value)
            return {"content": [{"type": "text", "text": text}], "structuredContent": {"result": value}}
        if isinstance(value, BaseModel) and type(value).__name__ == "CallToolResult":
            return wire_dict(value)
        if self._adapter is None:
            return {"content": blocks(value)}
        try:
            checked = self._adapter.validate_python(value)
            data = self._adapter.dump_python(checked, mode="json", by_alias=True)
        except (ValidationError, ValueError) as error:
            raise AuthorError(f"the tool returned something that its annotation does not allow: {error}") from None
        if not is_json(data):
            raise AuthorError("the tool returned NaN or an infinity, which JSON does not have")
        return {"content": blocks(checked), "structuredContent": {"result": data} if self._wrap else data}


def _wrapped(name: str, inner: dict[str, Any]) -> dict[str, Any]:
    definitions = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
    inner.setdefault("title", "Result")
    shape = {"type": "object", "title": f"{name}Output", "properties": {"result": inner}, "required": ["result"]}
    return {**shape, **definitions}


def _without_questions(annotation: Any) -> Any:
    """`T | InputRequiredResult` is `T` to the outside."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    arms = [arm for arm in get_args(annotation) if getattr(arm, "__name__", "") != "InputRequiredResult"]
    return Union[tuple(arms)] if arms else Any  # noqa: UP007 - built from a tuple


def _is_structured(annotation: Any) -> bool:
    """Whether a return annotation promises data, as against content blocks or nothing."""
    if get_origin(annotation) is Annotated:
        return _is_structured(get_args(annotation)[0])
    if annotation in (Any, None, type(None), typing.NoReturn, object):
        return False
    if isinstance(annotation, type) and not get_args(annotation):
        if issubclass(annotation, _Media) or annotation.__module__.startswith("mcp_types"):
            return False
        return annotation not in (list, dict, tuple, set)
    open_ended = (Any, type(None)) if get_origin(annotation) is dict else (type(None), ...)
    return all(arm in open_ended or _is_structured(arm) for arm in get_args(annotation))


def _modern(annotation: Any) -> Any:
    """pydantic takes `typing.TypedDict` from Python 3.12 on only; here it is as the extension that it takes before."""
    if not is_typeddict(annotation) or sys.version_info >= (3, 12):
        return annotation
    hints = typing.get_type_hints(annotation, include_extras=True)
    fields = {name: hint if name in annotation.__required_keys__ else NotRequired[hint] for name, hint in hints.items()}
    return TypedDict(annotation.__name__, fields)  # type: ignore[operator]


def _is_object(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_object(get_args(annotation)[0])
    if get_origin(annotation) is dict:
        return get_args(annotation)[0] is str
    is_class = isinstance(annotation, type)
    return is_class and (issubclass(annotation, BaseModel) or is_dataclass(annotation) or is_typeddict(annotation))


def prompt_result(description: str | None, value: Any) -> dict[str, Any]:
    """The body of a prompt's result."""
    if isinstance(value, BaseModel) and type(value).__name__ == "GetPromptResult":
        return wire_dict(value)
    parts = value if isinstance(value, list | tuple) else [value]
    result: dict[str, Any] = {"messages": [_prompt_message(part) for part in parts]}
    if description:
        result["description"] = description
    return result


def _prompt_message(part: Any) -> dict[str, Any]:
    if isinstance(part, Message):
        return {"role": part.role, "content": block(part.content)}
    if isinstance(part, BaseModel) and type(part).__name__ == "PromptMessage":
        return wire_dict(part)
    if isinstance(part, Mapping):
        return {"role": part.get("role", "user"), "content": block(part.get("content", ""))}
    return {"role": "user", "content": block(part)}


def resource_result(uri: str, mime_type: str | None, value: Any) -> dict[str, Any]:
    """The body of a resource's result."""
    if isinstance(value, BaseModel) and type(value).__name__ == "ReadResourceResult":
        return wire_dict(value)
    if isinstance(value, BaseModel) and type(value).__name__.endswith("ResourceContents"):
        return {"contents": [wire_dict(value)]}
    if isinstance(value, bytes | bytearray):
        blob = base64.b64encode(value).decode()
        return {"contents": [{"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": blob}]}
    if isinstance(value, str):
        return {"contents": [{"uri": uri, "mimeType": mime_type or "text/plain", "text": value}]}
    return {"contents": [{"uri": uri, "mimeType": mime_type or "application/json", "text": json_text(value)}]}


def completion_result(value: Any) -> dict[str, Any]:
    """The body of a completion: at most 100 values, as the protocol allows."""
    if value is None:
        return {"completion": {"values": [], "hasMore": False}}
    body = wire_dict(value) if isinstance(value, BaseModel) else {"values": [str(item) for item in value]}
    if len(body["values"]) > 100:
        body = {"total": len(body["values"]), **body, "values": body["values"][:100], "hasMore": True}
    return {"completion": body}


def raw_result(value: Any) -> dict[str, Any]:
    """What a low-level handler returned: an official model, or a mapping as it is."""
    if isinstance(value, BaseModel):
        unset = {"ttl_ms", "cache_scope"} - value.model_fields_set
        return value.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=unset)
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return cast("dict[str, Any]", to_jsonable_python(dict(value)))
    raise AuthorError(f"a low-level handler returns a result model or a mapping, not {type(value).__name__}")
