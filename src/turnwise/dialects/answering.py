"""Questions as a client meets them, and whether an answer fits.

A question comes from a peer: it is held against the official types before anybody sees it, and its schema is compiled
once. An answer is completed with the schema's defaults and checked before it is sent.
"""

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from .._json import decode_deep, encode, is_deeper
from .._schemas import MOST_STEPS, Check, read_for_peers
from ..errors import CallbackFailed, InvalidAnswer, MalformedQuestion, UnknownInputRequest
from .asking import wire_dict
from .words import ELICIT, FORM, ROOTS, SAMPLE, URL

if TYPE_CHECKING:
    from mcp_types import InputRequest

LARGEST_SCHEMA, DEEPEST = 64 * 1024, 180
"""Bytes and levels of a form's schema."""
LARGEST_ROUND, MOST_OF_ROUND = 1024 * 1024, 100_000
"""Bytes of all schemas of a round, and the steps that it may take to read them."""
FEW = MOST_OF_ROUND // MOST_STEPS
"""So many forms cannot be too much for a round, whatever they are."""
SMALL = 4 * 1024
_NO_CONTENT = ("decline", "cancel")
_TYPES = {"string": str, "integer": int, "boolean": bool}
_TYPE_WORDS = {"type", "title", "description", "default"}
_FORM_WORDS = {"type", "properties", "required", "title", "description", "$schema"}


class Asking(NamedTuple):
    """Who asks, and in which call; the first argument of every callback.

    `url` and `host` are set where the user is sent to a page, and `warnings` say what is unusual about its address.
    Nothing is ever opened: that is for the user to agree to, and for the callback to do.
    """

    key: str
    method: str
    target: str
    arguments: Mapping[str, Any]
    round: int
    server: str | None
    url: str | None = None
    host: str | None = None
    warnings: tuple[str, ...] = ()


def check_question(key: str, request: Any) -> Any:
    """The official type of a question's parameters, None for roots; UnknownInputRequest or MalformedQuestion where a
    request cannot be put to anybody.
    """
    import mcp_types as types

    method = request.get("method") if isinstance(request, dict) else None
    if method not in (ELICIT, SAMPLE, ROOTS):
        raise UnknownInputRequest(key, method)
    params = request.get("params", {})
    if not isinstance(params, dict):
        raise MalformedQuestion(key, "its params are no object")
    if method == ROOTS:
        return None
    kind: type[BaseModel] = types.CreateMessageRequestParams
    if method == ELICIT:
        mode = params.get("mode", "form")
        if mode == "url":
            page_facts(key, params.get("url"))
        elif mode == "form":
            _form(key, params)
        else:
            raise MalformedQuestion(key, f"its mode is {mode!r}")
        kind = types.ElicitRequestURLParams if mode == "url" else types.ElicitRequestFormParams
    try:
        return kind.model_validate(params)
    except ValidationError as error:
        raise MalformedQuestion(key, _first(error)) from None


def needs(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a client has to have declared to be asked this."""
    if request["method"] == ELICIT:
        return URL if request.get("params", {}).get("mode") == "url" else FORM
    return {"sampling": {}} if request["method"] == SAMPLE else {"roots": {}}


def typed_question(key: str, request: Mapping[str, Any]) -> "InputRequest":
    """The question as the official request type."""
    import mcp_types as types

    check_question(key, request)
    kinds: dict[str, type[BaseModel]] = {
        ELICIT: types.ElicitRequest,
        SAMPLE: types.CreateMessageRequest,
        ROOTS: types.ListRootsRequest,
    }
    return cast("InputRequest", kinds[request["method"]].model_validate(request))


def checked_answer(key: str, request: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """The answer as it is sent; InvalidAnswer where it does not fit."""
    import mcp_types as types

    method = request["method"]
    if type(answer) is types.ElicitResult and method == ELICIT and answer.meta is None:
        return _elicited(key, request.get("params", {}), {"action": answer.action, "content": answer.content})
    if isinstance(answer, types.ErrorData):
        # "inputResponses" has no place for an error: the call cannot go on.
        raise CallbackFailed(key, method, answer.message, told=answer)
    plain = wire_dict(answer) if isinstance(answer, BaseModel) else answer
    if not isinstance(plain, Mapping):
        raise InvalidAnswer(key, f"an answer is an official result type or a dict, not {type(answer).__name__}")
    whole = dict(plain)
    if method == ELICIT:
        return _elicited(key, request.get("params", {}), whole)
    kind: type[BaseModel] = types.ListRootsResult if method == ROOTS else _sampled_kind(whole)
    try:
        kind.model_validate(whole)
    except ValidationError as error:
        raise InvalidAnswer(key, _first(error)) from None
    return whole


def _sampled_kind(answer: Mapping[str, Any]) -> type[BaseModel]:
    import mcp_types as types

    return types.CreateMessageResultWithTools if isinstance(answer.get("content"), list) else types.CreateMessageResult


def _elicited(key: str, params: Mapping[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    action = answer.get("action")
    if action in _NO_CONTENT:
        return {name: value for name, value in answer.items() if name != "content"}
    if action != "accept":
        raise InvalidAnswer(key, f"action must be 'accept', 'decline' or 'cancel', not {action!r}")
    if params.get("mode") == "url":
        return {name: value for name, value in answer.items() if name != "content"}
    content = answer.get("content")
    if not isinstance(content, dict | None):
        raise InvalidAnswer(key, "content must be an object")
    form = _form(key, params)
    whole = {**copy.deepcopy(form.defaults), **(content or {})} if form.defaults else dict(content or {})
    if len(whole) > 1:
        whole = {name: whole[name] for name in dict.fromkeys((*form.names, *whole)) if name in whole}
    if not form.is_plainly_met(whole):
        try:
            form.check(whole)
        except ValueError as error:
            raise InvalidAnswer(key, str(error), str(params.get("message", ""))) from None
    return {**answer, "content": whole}


class _Form(NamedTuple):
    """A form's schema, ready to be held against answers. `plain` are the properties of which only the type matters,
    `names` all of them in their order.
    """

    check: Check
    defaults: Mapping[str, Any]
    plain: Mapping[str, type]
    required: frozenset[str]
    names: tuple[str, ...]

    def is_plainly_met(self, content: Mapping[str, Any]) -> bool:
        """Whether content fits so obviously that the whole schema need not be asked."""
        plain = self.plain
        return self.required <= content.keys() and all(
            type(value) is plain.get(name) for name, value in content.items()
        )


def check_round(requests: Mapping[str, Any]) -> None:
    """MalformedQuestion where the forms of a round together take longer to read than anybody is kept waiting for."""
    size, steps = 0, 0.0
    for key, request in requests.items() if len(requests) > FEW else ():
        params = request.get("params") if isinstance(request, dict) else None
        schema = params.get("requestedSchema") if isinstance(params, dict) else None
        try:
            text = encode(schema) if isinstance(schema, dict) else b""
        except (ValueError, RecursionError):  # It is told of where the question is looked at.
            continue
        size += len(text)
        steps += compiled_form(text)[1] if 0 < len(text) <= LARGEST_SCHEMA and size <= LARGEST_ROUND else 0
        if size > LARGEST_ROUND or steps > MOST_OF_ROUND:
            most = f"{LARGEST_ROUND} bytes and {MOST_OF_ROUND} steps to read"
            raise MalformedQuestion(key, f"the schemas of a round have at most {most}, and here it has more")


def check_questions(requests: Mapping[str, Any]) -> dict[str, Any]:
    """What `check_question` gives for each question of a round, or raises for the first that it raises for."""
    check_round(requests)
    return {key: check_question(key, request) for key, request in requests.items()}


def read_form(schema: Mapping[str, Any]) -> "_Form":
    """A form's schema, compiled once; ValueError where it cannot be used."""
    try:
        text = encode(schema)
    except RecursionError:
        raise ValueError(f"it is more than {DEEPEST} levels deep") from None
    if len(text) > LARGEST_SCHEMA:
        raise ValueError(f"it has {len(text)} bytes, and at most {LARGEST_SCHEMA} are taken")
    found, _ = compiled_form(text)
    if isinstance(found, str):
        raise ValueError(found)
    return found


def _form(key: str, params: Mapping[str, Any]) -> _Form:
    schema = params.get("requestedSchema")
    if isinstance(schema, str):  # As a question is kept that can only be refused.
        bounds = f"{LARGEST_SCHEMA // 1024} kB or deeper than {DEEPEST} levels"
        raise MalformedQuestion(key, f"its schema is no JSON Schema, or larger than {bounds}")
    if not isinstance(schema, dict):
        raise MalformedQuestion(key, "it has no schema for its answer")
    try:
        return read_form(schema)
    except ValueError as error:
        raise MalformedQuestion(key, f"its schema cannot be used: {error}") from None


def compiled_form(text: bytes) -> "tuple[_Form | str, float]":
    """A form, or why there is none, and how many steps it took to find out. All of a round are kept."""
    return _of_small(text) if len(text) <= SMALL else _of_large(text)


def _tried(text: bytes) -> "tuple[_Form | str, float]":
    try:
        return _made(decode_deep(text))
    except ValueError as error:
        return str(error), 0


_of_small = lru_cache(maxsize=2048)(_tried)
_of_large = lru_cache(maxsize=LARGEST_ROUND // SMALL)(_tried)


def _made(schema: Any) -> "tuple[_Form | str, float]":
    if is_deeper(schema, DEEPEST):
        raise ValueError(f"it is more than {DEEPEST} levels deep")
    properties = schema.get("properties", {})
    if schema.get("type") != "object" or not isinstance(properties, dict):
        raise ValueError("a form is an object with properties")
    check, steps = read_for_peers(schema)
    if isinstance(check, str):
        return check, steps
    parts = {name: part for name, part in properties.items() if isinstance(part, dict)}
    defaults = {name: part["default"] for name, part in parts.items() if "default" in part}
    plain = (
        {}
        if schema.keys() - _FORM_WORDS
        else {
            name: _TYPES[part["type"]]
            for name, part in parts.items()
            if not part.keys() - _TYPE_WORDS and isinstance(part.get("type"), str) and part["type"] in _TYPES
        }
    )
    return _Form(check, defaults, plain, frozenset(schema.get("required", ())), tuple(properties)), steps


def page_facts(key: str, url: Any) -> tuple[str, str, tuple[str, ...]]:
    """The address of a page, its host, and what a user should be warned of."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except (ValueError, AttributeError, TypeError):
        raise MalformedQuestion(key, "its URL cannot be read") from None
    if parts.scheme not in ("https", "http") or not host:
        raise MalformedQuestion(key, f"its URL is no web address: {url!r}")
    if not url.isprintable() or " " in url or "\\" in url:
        raise MalformedQuestion(key, "its URL has characters that hide where it leads")
    warnings = []
    if parts.scheme == "http":
        warnings.append("not encrypted (http)")
    if parts.username is not None:
        warnings.append("has a user name before the host")
    if not host.isascii() or any(label.startswith("xn--") for label in host.split(".")):
        warnings.append("the host may imitate another one (it is not plain ASCII)")
    return url, host, tuple(warnings)


def _first(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])
