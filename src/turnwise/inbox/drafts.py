"""Drafts: what a model would say to a request to it, which a person reviews before the server gets it."""

from collections.abc import Mapping
from typing import Any

from .._json import is_deeper
from ..dialects.unfit import answer_in_hand
from ..dialects.words import SAMPLE
from ..errors import InvalidAnswer
from .model import DEEPEST, Item


def check_drafts(item: Item, drafts: Mapping[str, Any]) -> None:
    """InvalidAnswer where a draft is none, or is for something else than a request to a model."""
    for key, draft in drafts.items():
        if key not in item.pending.unanswered or item.pending.requests[key]["method"] != SAMPLE:
            raise InvalidAnswer(key, "there is no request to a model under this key, and nothing else has a draft")
        if is_deeper(draft, DEEPEST):
            raise InvalidAnswer(key, f"its draft is more than {DEEPEST} levels deep")
        answer_in_hand(key, item.pending.requests[key], draft)


def reply_text(reply: Mapping[str, Any]) -> str | None:
    """What a model, or a person in its place, says, where that is one text and nothing else."""
    content = reply.get("content")
    part = content[0] if isinstance(content, list) and len(content) == 1 else content
    if not isinstance(part, Mapping) or part.keys() != {"type", "text"} or part["type"] != "text":
        return None
    return str(part["text"])
