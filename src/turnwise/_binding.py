"""A Python signature as JSON Schema in, validated arguments out. Built once, when a function is registered.

The room knows pydantic and `inspect`. It does not know the wire, nor what a context is: the caller says which class is
injected.
"""

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError

from ._calling import hints_of, inner, is_async, name_of, owner_of, place_of, yields
from ._json import encode
from .errors import InvalidArguments, InvalidSignature

MOST_NAMED = 5
LONGEST_NAME = 60
_NOT_JSON = ("schema-for-unknown-type", "invalid-for-json-schema")
"""What pydantic calls types of which it knows nothing, or which JSON has nothing for."""


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
    """What there is to know of a function before it is called. `required` names the parameters that the caller gives,
    and says which it must.
    """

    fn: Callable[..., Any]
    name: str
    required: Mapping[str, bool]
    model: type[BaseModel]
    schema: dict[str, Any]
    renamed: Mapping[str, str]
    context: str | None
    resolved: tuple[Parameter, ...]
    returns: Any
    is_async: bool

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments for a call, converted; InvalidArguments says what is wrong with them."""
        try:
            values: dict[str, Any] = self.model.__pydantic_validator__.validate_python(arguments).__dict__
        except ValidationError:
            values = self._strictly(arguments)
        if self.renamed:
            return {self.renamed.get(name, name): value for name, value in values.items()}
        return values

    def _strictly(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(vars(read_json(self.model.__pydantic_validator__, arguments)))
        except ValidationError as error:
            raise InvalidArguments(describe(error) + self._unknown(arguments)) from None

    def _unknown(self, arguments: Mapping[str, Any]) -> str:
        """The arguments that there are not: by themselves they do no harm, but one may be another that is misspelt."""
        names = [_short(name) for name in arguments if name not in self.schema.get("properties", {})]
        if not names:
            return ""
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"; there is no argument {', '.join(names[:MOST_NAMED])}{more}"


def read_json(validator: Any, data: Any) -> Any:
    """Validate decoded JSON. What strict types refuse as Python, such as a date in text, they may take as JSON."""
    try:
        return validator.validate_python(data)
    except ValidationError:
        return validator.validate_json(encode(data))


@contextmanager
def placed(fn: Callable[..., Any]) -> Iterator[None]:
    """Have what is wrong with a function say where that is written; what says so already is left alone."""
    try:
        yield
    except InvalidSignature as error:
        if error.where is None and (where := place_of(fn)) is not None:
            error.where, error.args = where, (f"{error} ({where})",)
        raise


def bind(fn: Callable[..., Any], context: type, *, is_resolver: bool = False) -> Binding:
    """Read a function's signature; raises InvalidSignature where it cannot be called by name with JSON.

    What a resolver takes is not given by the caller, and may be anything.
    """
    with placed(fn):
        _refuse_accidents(fn, is_resolver)
        return _bound(fn, context, is_resolver)


def _refuse_accidents(fn: Callable[..., Any], is_resolver: bool) -> None:
    """Tell of what looks like a function and would fail, or do something else, when it is called."""
    name, made = name_of(fn), inner(fn)
    if isinstance(made, type):
        if not is_resolver:
            raise InvalidSignature(f"{name}: a class is no function: register a function, or a method of an object")
    elif not callable(made):
        raise InvalidSignature(f"{name}: {type(made).__name__} is nothing that can be called")
    elif yields(made):
        raise InvalidSignature(
            f"{name}: it yields, and a result comes as a whole: return it. "
            "How far it has come is told by ctx.report_progress"
        )
    elif (owner := owner_of(fn)) is not None:
        raise InvalidSignature(
            f"{name}: in the body of a class it is not the method of an object yet, and its first parameter would be "
            f"an argument: register {owner}(...).{name}"
        )


def _bound(fn: Callable[..., Any], context: type, is_resolver: bool) -> Binding:
    name = name_of(fn)
    hints = _hints(fn, name)
    parameters = _parameters(fn, name)
    fields: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    resolved: list[Parameter] = []
    injected = None
    for parameter in parameters:
        annotation = hints.get(parameter.name, Any)
        if parameter.name == "ctx" and parameter.name not in hints:
            raise InvalidSignature(f"{name}: annotate the context, `ctx: Context`; as it is, it would be an argument")
        if _is_context(annotation, context):
            if injected is not None:
                raise InvalidSignature(f"{name}: one context is enough, {injected!r} or {parameter.name!r}")
            injected = parameter.name
        elif (resolve := _resolve_of(annotation)) is not None:
            resolved.append(Parameter(parameter.name, annotation, resolve))
        else:
            field = _safe_name(parameter.name, parameters)
            if field != parameter.name:
                renamed[field] = parameter.name
            fields[field] = _field(parameter, annotation, field)
    required = {renamed.get(field, field): default is ... for field, (_, default) in fields.items()}
    model, schema = _model(name, {} if is_resolver else fields, renamed)
    returns = hints.get("return", Any)
    return Binding(fn, name, required, model, schema, renamed, injected, tuple(resolved), returns, is_async(fn))


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return hints_of(fn)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise InvalidSignature(f"{name}: an annotation cannot be resolved: {error}") from None


def _parameters(fn: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except ValueError as error:
        raise InvalidSignature(f"{name}: {error}") from None
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


def _model(name: str, fields: dict[str, Any], renamed: Mapping[str, str]) -> tuple[type[BaseModel], dict[str, Any]]:
    try:
        return _modelled(name, fields)
    except PydanticUserError as error:
        told = error.message
    for field, made in fields.items():
        try:
            _modelled(name, {field: made})
        except PydanticUserError as error:
            raise InvalidSignature(f"{name}: {_unfit(renamed.get(field, field), made[0], error)}") from None
    raise InvalidSignature(f"{name}: {told}")


def _modelled(name: str, fields: dict[str, Any]) -> tuple[type[BaseModel], dict[str, Any]]:
    model = create_model(f"{name}Arguments", **fields)
    return model, model.model_json_schema(by_alias=True)


def _unfit(parameter: str, annotation: Any, error: PydanticUserError) -> str:
    if error.code not in _NOT_JSON:
        return f"parameter {parameter!r}: {error.message}"
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return (
        f"parameter {parameter!r} is a {inspect.formatannotation(annotation)}, which no client can send. What lives in "
        "the server comes from its lifespan, by ctx.lifespan; what is data is a model or a dataclass"
    )


def _safe_name(name: str, parameters: list[inspect.Parameter]) -> str:
    """A field name that pydantic accepts: no leading underscore, none of its own attributes, nothing taken."""
    if not name.startswith(("_", "model_")) and not hasattr(BaseModel, name):
        return name
    taken = {parameter.name for parameter in parameters}
    place = next(place for place, parameter in enumerate(parameters) if parameter.name == name)
    candidate = f"argument_{place}"
    while candidate in taken:
        candidate += "_"
    return candidate


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


def _short(name: str) -> str:
    return repr(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")


def describe(error: ValidationError) -> str:
    """What is wrong, a line each, without repeating the input."""
    lines = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        place = ".".join(str(part) for part in item["loc"])
        lines.append(f"{place}: {item['msg']}" if place else item["msg"])
    return "Invalid arguments: " + "; ".join(lines)
