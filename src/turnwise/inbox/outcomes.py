"""What has become of a call in a few words, for lists: what was answered, by whom, and what the call gave.

No schema is compiled for it: what was chosen is looked up among the choices, and cut.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from .._fields import choices_of
from ..dialects.words import ROOTS, SAMPLE
from .drafts import reply_text
from .gists import MOST_ARGUMENTS, NAME, Gist, Outcome, brief, cut
from .model import Earlier, Item

REPLY = 200
"""Characters of a result."""
_REFUSALS = {"decline": "declined", "cancel": "cancelled"}


def outcome_of(item: Item) -> Outcome:
    """What has become of an item: its last answers, and its result where there is one."""
    if item.withdrawn_by is not None:
        return Outcome("withdrawn", by=item.withdrawn_by)
    last = [one for one in item.given if one.round == item.given[-1].round]
    said = tuple(islice((pair for one in last for pair in _said(one)), MOST_ARGUMENTS))
    names = ", ".join(dict.fromkeys(one.by for one in last))
    return Outcome(state_of(item), said, cut(names, NAME * 2), _reply(item.result))


def state_of(item: Item) -> str:
    """How it is with an item: its status, or a better word where there is one."""
    if item.withdrawn_by is not None:
        return "withdrawn"
    if item.status == "going" and item.tries:
        return "unreached"
    if item.status != "done" or not item.given:
        return item.status
    actions = [one.answer.get("action") for one in item.given if one.round == item.given[-1].round]
    refusals = [_REFUSALS[action] for action in ("decline", "cancel") if action in actions]
    return refusals[0] if set(actions) <= _REFUSALS.keys() else item.status


def _said(one: Earlier) -> Iterable[tuple[str, str]]:
    action, method = one.answer.get("action"), one.request.get("method")
    if action in _REFUSALS:
        return [("", _REFUSALS[action])]
    if method == SAMPLE:
        text = reply_text(one.answer)
        return [("", "a reply that is not text" if text is None else brief(text))]
    if method == ROOTS:
        roots = one.answer.get("roots")
        return [("", brief([root.get("uri") for root in roots]) if roots else "no folders")]
    content = one.answer.get("content")
    return _values(one.request, content) if isinstance(content, Mapping) and content else [("", "agreed")]


def _values(request: Mapping[str, Any], content: Mapping[str, Any]) -> list[tuple[str, str]]:
    schema = (request.get("params") or {}).get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    parts = fields if isinstance(fields, Mapping) else {}
    shown = islice(content.items(), MOST_ARGUMENTS)
    return [(_title(name, parts.get(name), len(content)), _chosen(parts.get(name), value)) for name, value in shown]


def _title(name: str, part: Any, many: int) -> str:
    title = part.get("title") if isinstance(part, Mapping) else None
    return "" if many == 1 else cut(title if isinstance(title, str) and title.strip() else name, NAME)


def _chosen(part: Any, value: Any) -> str:
    titles = {} if not isinstance(part, Mapping) else _titles(part)
    if isinstance(value, list):
        return brief([titles.get(one, one) if isinstance(one, str) else one for one in value])
    return brief(titles.get(value, value) if isinstance(value, str) else value)


def _titles(part: Mapping[str, Any]) -> dict[str, str]:
    return {choice.value: choice.title for choice in choices_of(part) if isinstance(choice.value, str)}


def _reply(result: Mapping[str, Any] | None) -> str:
    content = None if result is None else result.get("content")
    parts: Sequence[Any] = content if isinstance(content, list) else ()
    texts = (part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str))
    return cut(next(texts, ""), REPLY)


def words_of(gist: Gist, outcome: Outcome) -> str:
    """All that a search looks at besides the questions."""
    pairs = (f"{name} {text}" for name, text in (*gist, *outcome.said))
    return "\n".join((*pairs, outcome.by, outcome.reply))
