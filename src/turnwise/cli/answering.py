"""Who answers what a call asks: a file, or the person at the terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..dialects.answering import Asking
from ..dialects.asking import wire_dict
from ..errors import CallerError
from .forms import CANCEL, DECLINE, Form, Refused
from .lines import read_line
from .showing import as_json, legible, note

_MEDIA = ("text", "image", "audio")
NEEDS_ANSWER = 4
"""The exit code where a question has nobody to answer it."""


class NobodyAnswers(CallerError):
    """A question that is in no file, and nobody is at the terminal."""

    def __init__(self, key: str, params: Mapping[str, Any], why: str = "") -> None:
        self.question = {"key": key, **params}
        super().__init__(why or f"the question {key!r} is in no --answers, and nobody is there to ask")


class Answers:
    """Answers by key or by message, from a file; then from the terminal."""

    def __init__(self, given: Mapping[str, Any], roots: Sequence[Path], *, is_attended: bool) -> None:
        self._given = given
        self._roots = roots
        self._is_attended = is_attended
        self._answered: set[str] = set()
        self.before: Callable[[], None] = lambda: None
        """Called before the terminal is used."""

    def elicit(self, asking: Asking, params: Any) -> dict[str, Any]:
        """The answer to a form or a page."""
        asked = wire_dict(params)
        if (known := self._known(asking, asked)) is not None:
            return known if "action" in known else {"action": "accept", "content": known}
        self._take_terminal(asking, asked)
        note(f"\n{legible(params.message, lines=True)}", "bold cyan")
        if asking.key in self._answered:
            note("This was asked before: the server did not take the answer.", "red")
        self._answered.add(asking.key)
        try:
            if asking.url is not None:
                return self._visit(asking)
            if not asked["requestedSchema"].get("properties"):
                action = _one_of("Do you agree? yes, no or cancel [no]> ", _ACTIONS)
                return {"action": action, "content": {}} if action == "accept" else {"action": action}
            form = Form(asked["requestedSchema"], read_line, note)
            note(form.help, "dim")
            return {"action": "accept", "content": form.fill()}
        except Refused as refused:
            return {"action": refused.action}
        except EOFError:
            return {"action": "cancel"}

    def sample(self, asking: Asking, params: Any) -> dict[str, Any]:
        """The reply that the server wants of a model, typed by a person."""
        asked = wire_dict(params)
        known = self._known(asking, asked)
        if known is None:
            self._take_terminal(asking, asked)
            note("\nThe server wants a model to reply. You are the model.", "bold cyan")
            note(f"An empty line ends the reply, {CANCEL} gives up the call.", "dim")
            for line in said(asked):
                note(legible(line, lines=True))
            try:
                known = {"text": _paragraph()}
            except (EOFError, Refused):
                raise NobodyAnswers(
                    asking.key, asked, "nobody replies as the model, and the call is given up"
                ) from None
        if "role" in known:
            return known
        text = known.get("text", known.get("value"))
        return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "person"}

    def list_roots(self, asking: Asking) -> dict[str, Any]:
        """The folders that were named, or that the person agrees to."""
        folders = self._roots
        if not folders and self._is_attended:
            self._take_terminal(asking, {})
            here = Path.cwd()
            note("\nThe server wants to know which folders you work in.", "bold cyan")
            folders = [here] if _agrees(f"Tell it {here}? yes or no [no]> ") else []
        return {"roots": [{"uri": folder.resolve().as_uri(), "name": folder.resolve().name} for folder in folders]}

    def _known(self, asking: Asking, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        message = asked.get("message")
        for name in (asking.key, message):
            if isinstance(name, str) and name in self._given:
                found = self._given[name]
                return dict(found) if isinstance(found, Mapping) else {"value": found}
        return None

    def _take_terminal(self, asking: Asking, asked: Mapping[str, Any]) -> None:
        if not self._is_attended:
            raise NobodyAnswers(asking.key, asked)
        self.before()

    def _visit(self, asking: Asking) -> dict[str, Any]:
        note("The server wants you to visit a page. It is not opened for you:", "")
        note(f"  {legible(str(asking.url))}", "bold")
        note(f"  at the host {legible(str(asking.host))}", "")
        for warning in asking.warnings:
            note(f"  {legible(warning)}", "red")
        return {"action": _one_of("Have you been there, and agree? yes, no or cancel [no]> ", _ACTIONS)}


_AGREED = {"y": True, "yes": True, "": False, "n": False, "no": False}
_ACTIONS = {word: "accept" if agreed else "decline" for word, agreed in _AGREED.items()} | {
    DECLINE: "decline",
    "cancel": "cancel",
    CANCEL: "cancel",
}


def _one_of(prompt: str, words: Mapping[str, Any]) -> Any:
    """What one of these words stands for; others are asked about again."""
    while (word := read_line(prompt).strip().lower()) not in words:
        note(f"  {legible(prompt.partition('? ')[2].partition(' [')[0])}", "red")
    return words[word]


def _agrees(prompt: str) -> bool:
    try:
        return bool(_one_of(prompt, _AGREED))
    except EOFError:
        return False


def said(asked: Mapping[str, Any]) -> Iterator[str]:
    """What a model is told, message by message: text as it is, and of anything else what it is."""
    if system := asked.get("systemPrompt"):
        yield f"system: {system}"
    for message in asked["messages"]:
        content = message["content"]
        for part in content if isinstance(content, list) else [content]:
            kind = part.get("type")
            media = part.get("text") if kind == "text" else f"[{kind} {part.get('mimeType')}]"
            yield f"{message['role']}: {media if kind in _MEDIA else as_json(part)}"


def _paragraph() -> str:
    """Lines up to an empty one, or to the end of input; EOFError where there is nothing before that, Refused where the
    person does not want to.
    """
    lines: list[str] = []
    try:
        while line := read_line("> "):
            if line.strip().lower() in (DECLINE, CANCEL):
                raise Refused("cancel")
            lines.append(line)
    except EOFError:
        if not lines:
            raise
    return "\n".join(lines)
