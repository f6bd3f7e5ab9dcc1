"""Questions that are not what they claim to be, and can still be refused: for who shows them to people as they came.

A form whose schema is no JSON Schema, too large or too deep, a page that has no web address, a mode that nobody knows:
the server hears `decline` or `cancel` all the same. A request to a model, or for folders, has no such answer, and
neither has a method that is unknown; those stay errors.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from .._json import encode, is_deeper
from ..errors import InvalidAnswer, MalformedQuestion
from .answering import (
    DEEPEST,
    LARGEST_ROUND,
    check_question,
    check_questions,
    check_round,
    checked_answer,
    read_form,
)
from .words import ELICIT

DEEPEST_REPLY = 150
"""Levels of a reply, besides what is in schemas."""
LONGEST_RAW = 50_000
"""Characters of a text, or of a schema, in a question that can only be refused."""
MOST_AT_ONCE = 100
"""Parts of schemas that are checked at once: some hundredths of a second. More are checked in a thread."""
_REFUSALS = ("decline", "cancel")

T = TypeVar("T")


async def unhurried(work: Callable[..., T], requests: Mapping[str, Any], **options: Any) -> T:
    """What a look at questions gives, while others go on where it may take long."""
    look = partial(work, requests, **options)
    try:
        is_quick = encode(requests).count(b"{") <= MOST_AT_ONCE
    except (ValueError, RecursionError):
        is_quick = False
    return look() if is_quick else await asyncio.to_thread(look)


def is_deep_beside_schemas(message: Any) -> bool:
    """Whether a reply is too deep to be read, also without the schemas of its questions: those can be refused."""
    result = message.get("result") if isinstance(message, dict) else None
    if not isinstance(result, dict) or not isinstance(requests := result.get("inputRequests"), dict):
        return is_deeper(message, DEEPEST_REPLY)
    return is_deeper({**result, "inputRequests": [_without_schema(part) for part in requests.values()]}, DEEPEST_REPLY)


def _without_schema(request: Any) -> Any:
    params = request.get("params") if isinstance(request, dict) else None
    return {**request, "params": {**params, "requestedSchema": None}} if isinstance(params, dict) else request


def flaw_of(key: str, request: Any) -> str | None:
    """Why a question can only be declined or cancelled; None where it can be answered. UnknownInputRequest or
    MalformedQuestion where not even that is possible.
    """
    try:
        check_question(key, request)
    except MalformedQuestion as error:
        if not _can_be_refused(request):
            raise
        return error.reason
    return None


def unfit_of(requests: Mapping[str, Any], *, are_shown: bool) -> set[str]:
    """The questions of a round that can only be refused; where they are not shown to anybody, the first is an error."""
    if not are_shown:
        check_questions(requests)
        return set()
    check_round(requests)
    return {key for key, request in requests.items() if flaw_of(key, request) is not None}


def _can_be_refused(request: Mapping[str, Any]) -> bool:
    return request["method"] == ELICIT and isinstance(request.get("params", {}), dict)


def answer_in_hand(key: str, request: Mapping[str, Any], answer: Any) -> dict[str, Any]:
    """The answer as it is sent; InvalidAnswer where it does not fit, or where the question can only be refused."""
    flaw = flaw_of(key, request)
    action = answer.get("action") if isinstance(answer, Mapping) else getattr(answer, "action", None)
    if flaw is not None and action not in _REFUSALS:
        raise InvalidAnswer(key, f"it can only be declined or cancelled: {flaw}")
    return checked_answer(key, request, answer)


def whole_answer(key: str, request: Mapping[str, Any], given: Any) -> Any:
    """The answer that a plain value stands for: to a form, its fields by name, or the value of its only one. What has
    an action, or is no answer to a form, is left as it is. InvalidAnswer where it cannot be told what is meant.
    """
    is_form = request.get("method") == ELICIT and request.get("params", {}).get("mode", "form") == "form"
    is_whole = given is None or isinstance(given, BaseModel) or (isinstance(given, Mapping) and "action" in given)
    if not is_form or is_whole or flaw_of(key, request) is not None:
        return given
    names = read_form(request["params"]["requestedSchema"]).names
    if not isinstance(given, Mapping):
        if len(names) != 1:
            told = f"the form has {len(names)} fields, {', '.join(names)}: give them by name"
            raise InvalidAnswer(key, told if names else 'the form has no fields: {"action": "accept"} accepts it')
        return {"action": "accept", "content": {names[0]: given}}
    if not given:
        raise InvalidAnswer(key, 'it is empty: {"action": "accept"} accepts a form as it is')
    if unknown := [name for name in given if name not in names]:
        raise InvalidAnswer(key, f"the form has no field {unknown[0]!r}; it has {', '.join(names)}")
    return {"action": "accept", "content": dict(given)}


def kept(requests: Mapping[str, Any]) -> dict[str, Any]:
    """The questions of a round as they are kept for people. Of one that can only be refused, texts are cut, a schema
    that is long or deep is kept as text, and null stands for all else that is: to refuse it, only its key is needed.
    MalformedQuestion where a round has more than can be kept.
    """
    left = LARGEST_ROUND
    for key, request in requests.items():
        size = len(_text(key, request))
        left -= size
        if left < 0:
            told = f"it has {size} bytes, and all questions of a round have at most {LARGEST_ROUND}"
            raise MalformedQuestion(key, told)
    unfit, found = unfit_of(requests, are_shown=True), {}
    for key, request in requests.items():
        found[key] = _raw(key, request) if key in unfit else request
        if is_deeper(found[key], DEEPEST + 10):
            raise MalformedQuestion(key, f"it is more than {DEEPEST} levels deep")
    return found


def _raw(key: str, request: Mapping[str, Any]) -> dict[str, Any]:
    params = {name: _legible(key, name, value) for name, value in request.get("params", {}).items()}
    return {"method": ELICIT, "params": params}


def _legible(key: str, name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST_RAW]
    text = _text(key, value).decode()
    if len(text) <= LONGEST_RAW and not is_deeper(value, DEEPEST):
        return value
    # As text, another member might be what it claims to be.
    return text[:LONGEST_RAW] if name == "requestedSchema" else None


def _text(key: str, value: Any) -> bytes:
    try:
        return encode(value)
    except RecursionError:
        raise MalformedQuestion(key, "it is too deep to be read") from None
