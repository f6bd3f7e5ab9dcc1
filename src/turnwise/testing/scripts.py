"""Answers that are known beforehand, by key, by message or by method."""

from collections.abc import Mapping
from typing import Any

from ..dialects.answering import Asking
from ..dialects.asking import wire_dict
from ..dialects.words import ELICIT, ROOTS, SAMPLE


class InTurn:
    """Several answers to one question, for a tool that asks it again; the last one stays."""

    def __init__(self, *answers: Any) -> None:
        if not answers:
            raise ValueError("InTurn has at least one answer")
        self.answers = answers


class Script:
    """What a user says. For a form: its value, the dict of its fields, or `{"action": "decline"}`; for a page
    `{"action": "accept"}`; for a model its text, or the whole answer; for folders the whole answer.

    Answers are by key or by message; a model and folders, which have no message, are by key or by method
    (`sampling/createMessage`, `roots/list`). Before 2026-07-28 there were no keys.

    `asked` has the keys of all questions, in order. `callbacks()` are for `Client(target, **script.callbacks())`.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self._answers = {
            name: given.answers if isinstance(given, InTurn) else (given,) for name, given in answers.items()
        }
        self._given = dict.fromkeys(answers, 0)
        self.asked: list[str] = []

    def knows(self, key: str, method: str, params: Mapping[str, Any]) -> bool:
        """Whether there is an answer to this."""
        return key in self._answers or params.get("message", method) in self._answers

    def answer(self, key: str, method: str, params: Mapping[str, Any]) -> Any:
        """The whole answer; LookupError where there is none."""
        self.asked.append(key)
        message = str(params.get("message", method))
        name = key if key in self._answers else message
        if name not in self._answers:
            raise LookupError(f"answers has nothing for the question {key!r} ({message!r})")
        several, number = self._answers[name], self._given[name]
        self._given[name] = number + 1
        return whole_answer(method, several[min(number, len(several) - 1)])

    @property
    def unused(self) -> list[str]:
        """The answers that nobody asked for, and those of several that were not come to."""
        return sorted(name for name, several in self._answers.items() if self._given[name] < len(several))

    def callbacks(self) -> dict[str, Any]:
        """The same as callbacks of a client."""
        return {
            "elicitation_callback": self._elicited,
            "sampling_callback": self._sampled,
            "list_roots_callback": lambda asking: self.answer(asking.key, ROOTS, {}),
        }

    def _elicited(self, asking: Asking, params: Any) -> Any:
        return self.answer(asking.key, ELICIT, {"message": params.message})

    def _sampled(self, asking: Asking, params: Any) -> Any:
        return self.answer(asking.key, SAMPLE, {})


def whole_answer(method: str, given: Any) -> Any:
    """An answer as a client sends it, from as much as a script says."""
    plain = wire_dict(given) if hasattr(given, "model_dump") else given
    if method == SAMPLE and isinstance(plain, str):
        return {"role": "assistant", "model": "script", "content": {"type": "text", "text": plain}}
    if method != ELICIT or (isinstance(plain, Mapping) and "action" in plain):
        return plain
    return {"action": "accept", "content": plain if isinstance(plain, Mapping) else {"value": plain}}
