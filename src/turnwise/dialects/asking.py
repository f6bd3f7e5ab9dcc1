"""Questions as every wire shows them, and how their answers are read.

A marker (`Elicit`, `ElicitURL`, `Sample`, `ListRoots`) or a returned `InputRequiredResult` becomes `Question`s. A
form's schema is rendered once per type. Reading an answer raises ValueError where it does not fit; the engine then
asks again.
"""

import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from .._binding import read_json
from .._json import encode
from .._ledger import ACCEPTED, ANSWER, MARK_BYTES, check_key, fingerprint
from .._messages import (
    AcceptedElicitation,
    AcceptedUrlElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    ElicitURL,
    ListRoots,
    Marker,
    Question,
    Sample,
    Sampling,
)
from .._schemas import check_for
from ..errors import AuthorError, InvalidSignature
from .words import ELICIT, FORM, ROOTS, SAMPLE, URL

if TYPE_CHECKING:
    from mcp_types import InputRequiredResult

_PRIMITIVES = {"string", "integer", "number", "boolean"}
_FORMATS = {"email", "uri", "date", "date-time"}
_TAKEN = (
    "a form is made of a pydantic model, a dataclass, a list of texts to choose from, or a plain type: str, int, "
    "float, bool, date, datetime, an Enum or a Literal, or list[...] of one of those two"
)


def question(marker: Marker) -> Question:
    """The question that a marker stands for."""
    match marker:
        case Elicit():
            return form(marker.message, marker.schema, marker.key)
        case ElicitURL():
            return url(marker.message, marker.url, marker.key, marker.elicitation_id)
        case Sample():
            return sample(marker)
        case ListRoots():
            return _question(marker.key, ROOTS, {}, {"roots": {}}, _read_roots)


class _Form(NamedTuple):
    """What all forms of one type have in common: the schema, how an answer is read, and the start of a fingerprint."""

    requested: dict[str, Any]
    read: Callable[[Any], Any]
    tidy: Callable[[Any], tuple[str, Any]]
    quick: Callable[[Any], Any]
    seed: Any


def form(message: str, schema: Any, key: str | None) -> Question:
    """A form. Its schema is rendered once per type, and its question once for as long as it is in use."""
    if isinstance(schema, type):
        return _known_form(message, schema, key)
    if isinstance(schema, list):
        schema = _choice(schema)
    elif not isinstance(schema, Hashable):
        raise InvalidSignature(f"{_shown(schema)}: {_TAKEN}")
    # Literals with the same members in another order are equal, and not the same form.
    return _known_form(message, schema, key, repr(schema))


@lru_cache(maxsize=512)
def _known_form(message: str, schema: Any, key: str | None, spelled: str = "") -> Question:
    kind = _form_of(schema, spelled)
    hasher = kind.seed.copy()
    hasher.update(message.encode())
    mark = hasher.hexdigest()
    params = {"mode": "form", "message": message, "requestedSchema": kind.requested}
    key = f"elicitation-{mark}" if key is None else check_key(key)
    return Question(key, ELICIT, params, FORM, mark, kind.read, kind.tidy, kind.quick)


@lru_cache(maxsize=512)
def _form_of(schema: type[Any], spelled: str) -> _Form:
    is_single = not (isinstance(schema, type) and (issubclass(schema, BaseModel) or is_dataclass(schema)))
    requested, validator = _read_type(schema, is_single)
    known = requested["properties"].keys()
    validate = validator.validate_python

    def single(content: Any) -> Any:
        return validate(content).value

    def read_answer(answer: Any) -> Any:
        if answer["action"] != "accept":
            return _refused(answer)
        try:
            data = validate(answer["content"])
        except ValidationError:
            data = read_json(validator, answer["content"])
        return AcceptedElicitation(data.value if is_single else data)

    def tidy(answer: Any) -> tuple[str, Any]:
        if _action(answer) != "accept":
            return ANSWER, {"action": answer["action"]}
        content = answer.get("content")
        if isinstance(content, dict) and not content.keys() <= known:
            content = {name: value for name, value in content.items() if name in known}
        return ACCEPTED, content

    seed = blake2b(encode([ELICIT, "form", requested], sort_keys=True), digest_size=MARK_BYTES)
    return _Form(requested, read_answer, tidy, single if is_single else validate, seed)


def raw_form(message: str, requested: Mapping[str, Any], key: str | None) -> Question:
    """A form whose JSON Schema the author wrote; the answer is the client's, checked against it."""
    check = check_for(requested)

    def read_answer(answer: Any) -> Any:
        if _action(answer) == "accept":
            check(answer.get("content"))
        return _types().ElicitResult.model_validate(answer)

    params = {"mode": "form", "message": message, "requestedSchema": dict(requested)}
    return _question(key, ELICIT, params, FORM, read_answer)


def url(message: str, address: str, key: str | None, name: str | None = None) -> Question:
    """A page to visit. Its name, which only wires with a handshake show, is no part of the question."""

    def read_answer(answer: Any) -> Any:
        return AcceptedUrlElicitation() if answer["action"] == "accept" else _refused(answer)

    params = {"mode": "url", "message": message, "url": address}
    asked = _question(key, ELICIT, params, URL, read_answer, lambda answer: (ANSWER, {"action": _action(answer)}))
    return asked if name is None else replace(asked, name=name)


def sample(marker: Sample) -> Question:
    """A request to the client's model."""
    types = _types()
    messages: Any = marker.messages
    if isinstance(messages, str):
        messages = [types.SamplingMessage(role="user", content=types.TextContent(type="text", text=messages))]
    rest = {field.name: getattr(marker, field.name) for field in fields(Sampling)}
    params = wire_dict(types.CreateMessageRequestParams(messages=messages, **rest))
    with_tools = marker.tools is not None or marker.tool_choice is not None
    model: type[BaseModel] = types.CreateMessageResultWithTools if with_tools else types.CreateMessageResult
    needs: Mapping[str, Any] = {"sampling": {"tools": {}} if with_tools else {}}
    return _question(marker.key, SAMPLE, params, needs, model.model_validate)


def returned(result: "InputRequiredResult") -> tuple[dict[str, Question], str | None]:
    """The questions and the state of a result that an author built by hand."""
    if result.input_requests is None and result.request_state is None:
        raise AuthorError("an InputRequiredResult needs input_requests, request_state, or both")
    questions = {}
    for key, request in (result.input_requests or {}).items():
        body = wire_dict(request)
        params = body.get("params", {})
        name = params.pop("elicitationId", None)
        question = _question(key, body["method"], params, _needs(body["method"], params), dict)
        questions[key] = replace(question, name=name)
    return questions, result.request_state


def pages(elicitations: Sequence[Any]) -> dict[str, Question]:
    """Pages that a user has to visit, as questions: `ElicitURL`, or the official parameters."""
    questions = [url(page.message, page.url, getattr(page, "key", None), page.elicitation_id) for page in elicitations]
    return {question.key: question for question in questions}


def is_input_required(value: Any) -> bool:
    """Whether a handler returned questions instead of a result."""
    types = sys.modules.get("mcp_types")
    return types is not None and isinstance(value, types.InputRequiredResult)


def typed_answer(method: str | None, answer: Any) -> Any:
    """An answer to a returned question as its official type; ValueError where it is none.

    Without a token nobody knows what was asked (`method` is None), and its shape has to tell.
    """
    if not isinstance(answer, dict):
        raise ValueError("an answer is an object")
    types = _types()
    if method == ELICIT or (method is None and "action" in answer):
        return types.ElicitResult.model_validate(answer)
    if method == ROOTS or (method is None and "roots" in answer):
        return types.ListRootsResult.model_validate(answer)
    has_parts = isinstance(answer.get("content"), list)
    return (types.CreateMessageResultWithTools if has_parts else types.CreateMessageResult).model_validate(answer)


def request_of(question: Question) -> dict[str, Any]:
    """The question as a member of `inputRequests`."""
    if question.method == ROOTS and not question.params:
        return {"method": ROOTS}
    return {"method": question.method, "params": question.params}


def wire_dict(model: BaseModel) -> dict[str, Any]:
    """An official model as the wire writes it."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _question(
    key: str | None,
    method: str,
    params: Mapping[str, Any],
    needs: Mapping[str, Any],
    read: Callable[[Any], Any],
    tidy: Callable[[Any], tuple[str, Any]] | None = None,
) -> Question:
    mark = fingerprint(method, params)
    if key is None:
        key = f"{method.partition('/')[0]}-{mark}"
    return Question(key, method, params, needs, mark, read, tidy or _whole)


def _needs(method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
    if method == ELICIT:
        return URL if params.get("mode") == "url" else FORM
    if method == SAMPLE:
        return {"sampling": {"tools": {}} if "tools" in params or "toolChoice" in params else {}}
    return {"roots": {}}


def _whole(answer: Any) -> tuple[str, Any]:
    if not isinstance(answer, dict):
        raise ValueError("an answer is an object")
    return ANSWER, answer


def _action(answer: Any) -> str:
    action = answer.get("action") if isinstance(answer, dict) else None
    if action not in ("accept", "decline", "cancel"):
        raise ValueError("not an answer to an elicitation")
    return cast("str", action)


def _refused(answer: Any) -> DeclinedElicitation | CancelledElicitation:
    return DeclinedElicitation() if answer["action"] == "decline" else CancelledElicitation()


def _read_roots(answer: Any) -> Any:
    return _types().ListRootsResult.model_validate(answer).roots


def _choice(texts: list[Any]) -> Any:
    """A choice of one of these."""
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InvalidSignature(f"{_shown(texts)}: a list to choose from has texts, and at least one; {_TAKEN}")
    literal: Any = Literal
    return literal[tuple(texts)]


def _shown(schema: Any) -> str:
    name = schema.__name__ if isinstance(schema, type) else repr(schema)
    return name if len(name) <= 80 else f"{name[:80]}…"


def _read_type(schema: Any, is_single: bool) -> tuple[dict[str, Any], Any]:
    """The form that a type is, and what reads its answers: a plain type is a form with one field."""
    kind = schema
    try:
        if is_single:
            kind = create_model("Answer", value=(schema, ...))
        if issubclass(kind, BaseModel):
            return _rendered(_shown(schema), kind.model_json_schema(), is_single), kind.__pydantic_validator__
        adapter = TypeAdapter(kind)
        adapter.rebuild()  # Says which name is missing, where one is.
        return _rendered(_shown(schema), adapter.json_schema(), is_single), adapter.validator
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        told = _TAKEN if is_single else error.message.partition("\n")[0]
        raise InvalidSignature(f"{_shown(schema)}: {told}") from None


def _rendered(name: str, schema: Mapping[str, Any], is_single: bool) -> dict[str, Any]:
    """A type as a form. Of its names only those of its fields are shown, so renaming a class changes no question."""
    if schema.get("type") != "object":
        raise InvalidSignature(f"{name}: a form is a flat object")
    definitions = schema.get("$defs", {})
    properties = {field: _flat(part, definitions) for field, part in schema.get("properties", {}).items()}
    for field, part in properties.items():
        part.setdefault("title", field.replace("_", " ").title())
        if not _is_primitive(part) and is_single:
            raise InvalidSignature(f"{name}: {_TAKEN}")
        if not _is_primitive(part):
            raise InvalidSignature(
                f"{name}.{field}: forms are flat and take plain values and choices; "
                "move the fields of a nested model up, or ask twice"
            )
    required = {"required": schema["required"]} if "required" in schema else {}
    return {"type": "object", "properties": properties, **required}


def _flat(part: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A property without references and without a null arm: in a form, optional means not required."""
    part = dict(part)
    if reference := part.pop("$ref", None):
        target = {**definitions[reference.rpartition("/")[2]], "title": None, "description": None}
        part = {name: value for name, value in {**target, **part}.items() if value is not None}
    choices = part.get("anyOf", ())
    arms = [arm for arm in choices if arm.get("type") != "null"]
    if len(arms) == 1 and len(choices) > 1:
        del part["anyOf"]
        part = {**_flat(arms[0], definitions), **part}
    elif arms and {arm.get("type") for arm in arms} <= {"integer", "number"}:
        del part["anyOf"]
        part = {"type": "number", **part}
    if "const" in part:
        part["enum"] = [part.pop("const")]
    if part.get("default", ...) is None:
        del part["default"]
    if part.get("format", "email") not in _FORMATS:
        del part["format"]
    if "items" in part:
        part["items"] = _flat(part["items"], definitions)
    return part


def _is_primitive(part: dict[str, Any]) -> bool:
    if part.get("type") == "array":
        items = part.get("items", {})
        return "enum" in items or "anyOf" in items
    return part.get("type") in _PRIMITIVES


@lru_cache(maxsize=1)
def _types() -> Any:
    """The official types, imported when the first question needs them: they take longer than all the rest."""
    import mcp_types

    return mcp_types
