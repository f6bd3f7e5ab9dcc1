"""A Python signature as JSON Schema in, validated arguments out. Built once, when a function is registered.

The room knows pydantic and `inspect`. It does not know the wire, nor what a context is: the caller says which class is
injected.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from .errors import InvalidArguments, InvalidSignature


class Resolve:
    """`Annotated[T, Resolve(fn)]`: the parameter is filled by running `fn`, which may ask, not by the caller."""

    __slots__ = ("fn",)

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter that the caller does not see."""

    name: str
    annotation: Any
    resolve: Resolve | None


@dataclass(frozen=True, slots=True)
class Binding:
    """What there is to know of a function before it is called."""

    fn: Callable[..., Any]
    name: str
    model: type[BaseModel]
    renamed: Mapping[str, str]
    context: str | None
    resolved: tuple[Parameter, ...]
    returns: Any
    is_async: bool

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for a call, converted; InvalidArguments says what is wrong with them."""
        try:
            values = read_json(self.model, arguments).__dict__
        except ValidationError as error:
            raise InvalidArguments(describe(error)) from None
        if self.renamed:
            return {self.renamed.get(name, name): value for name, value in values.items()}
        return typing.cast("dict[str, Any]", values)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of what the caller passes."""
        return self.model.model_json_schema(by_alias=True)


def read_json(model: type[BaseModel], data: Any) -> Any:
    """Validate decoded JSON. What strict types refuse as Python, such as a date in text, they may take as JSON."""
    validator = model.__pydantic_validator__
    try:
        return validator.validate_python(data)
    except ValidationError:
        return validator.validate_json(orjson.dumps(data))


class _Arguments(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, populate_by_name=False)


def bind(fn: Callable[..., Any], context: type) -> Binding:
    """Read a function's signature; raises InvalidSignature where it cannot be called by name."""
    name = getattr(fn, "__name__", type(fn).__name__)
    hints = _hints(fn, name)
    fields: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    resolved: list[Parameter] = []
    injected = None
    for parameter in _parameters(fn, name):
        annotation = hints.get(parameter.name, Any)
        if _is_context(annotation, context):
            injected = parameter.name
        elif (resolve := _resolve_of(annotation)) is not None:
            resolved.append(Parameter(parameter.name, annotation, resolve))
        else:
            field = _safe_name(parameter.name)
            if field != parameter.name:
                renamed[field] = parameter.name
            fields[field] = _field(parameter, annotation, field)
    model = _model(name, fields)
    is_async = inspect.iscoroutinefunction(inspect.unwrap(fn)) or inspect.iscoroutinefunction(
        getattr(fn, "__call__", None)  # noqa: B004 - an object whose __call__ is async
    )
    return Binding(fn, name, model, renamed, injected, tuple(resolved), hints.get("return", Any), is_async)


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    target = fn if inspect.isroutine(fn) else getattr(fn, "__call__", fn)  # noqa: B004
    try:
        return typing.get_type_hints(inspect.unwrap(target), include_extras=True)
    except NameError as error:
        raise InvalidSignature(f"{name}: an annotation cannot be resolved: {error}") from None


def _parameters(fn: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InvalidSignature(f"{name}: parameter {parameter.name!r} is positional-only; arguments come by name")
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            raise InvalidSignature(f"{name}: *{parameter.name} cannot be filled by name")
    return [parameter for parameter in parameters if parameter.kind is not inspect.Parameter.VAR_KEYWORD]


def _field(parameter: inspect.Parameter, annotation: Any, field: str) -> tuple[Any, Any]:
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    if field == parameter.name:
        return annotation, default
    return Annotated[annotation, Field(alias=parameter.name)], default


def _model(name: str, fields: dict[str, Any]) -> type[BaseModel]:
    try:
        return create_model(f"{name}Arguments", __base__=_Arguments, **fields)
    except PydanticUserError as error:
        raise InvalidSignature(f"{name}: {error.message}") from None


def _safe_name(name: str) -> str:
    """A field name that pydantic accepts: no leading underscore, none of its own attributes."""
    return f"argument_{name.lstrip('_')}" if name.startswith("_") or hasattr(BaseModel, name) else name


def _is_context(annotation: Any, context: type) -> bool:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _is_context(get_args(annotation)[0], context)
    if origin in (Union, types.UnionType):
        return any(_is_context(arm, context) for arm in get_args(annotation))
    candidate = origin or annotation
    return isinstance(candidate, type) and issubclass(candidate, context)


def _resolve_of(annotation: Any) -> Resolve | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((extra for extra in get_args(annotation)[1:] if isinstance(extra, Resolve)), None)


def describe(error: ValidationError) -> str:
    """What is wrong, a line each, without repeating the input."""
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(part) for part in item["loc"])
        lines.append(f"{place}: {item['msg']}" if place else item["msg"])
    return "Invalid arguments: " + "; ".join(lines)
