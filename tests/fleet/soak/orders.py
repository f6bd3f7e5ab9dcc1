"""One order as the one who made it saw it: what was expected, what came, and everything about it that was wrong."""

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MARKER = re.compile(r"u\d+-order-\d+")
USER = re.compile(r"\bu\d+\b")


@dataclass
class Order:
    """A flow of one user. `leaks` and `faults` stay empty in a good one."""

    user: str
    marker: str
    began: float = 0.0
    ended: float | None = None
    thought: float = 0.0
    requests: int = 0
    rounds: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    resent: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    asked: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    failure: str | None = None
    versions: tuple[str | None, str | None] = (None, None)

    @property
    def is_complete(self) -> bool:
        return self.ended is not None and self.failure is None

    @property
    def seconds(self) -> float:
        """From the first request to the result."""
        return (self.ended or self.began) - self.began

    def answers(self, requests: Mapping[str, Any]) -> dict[str, Any]:
        """What its user says to these questions."""
        return {key: self._answer(key, request) for key, request in requests.items()}

    def _answer(self, key: str, request: Mapping[str, Any]) -> dict[str, Any]:
        match request["method"]:
            case "elicitation/create":
                return {"action": "accept", "content": {"value": f"{key} of {self.marker}"}}
            case "sampling/createMessage":
                content = {"type": "text", "text": f"{key} of {self.marker}"}
                return {"role": "assistant", "content": content, "model": f"model of {self.user}"}
            case _:
                return {"roots": [{"uri": self.folder, "name": self.marker}]}

    @property
    def folder(self) -> str:
        return f"file:///home/{self.user}/{self.marker}"

    def look_at_questions(self, requests: Mapping[str, Any], state: str | None) -> None:
        """Questions are about this order, none comes twice, and their state shows nothing."""
        self.rounds += 1
        self._look_for_others(json.dumps(requests))
        for key, request in requests.items():
            if key in self.asked:
                self.faults.append(f"{key} was asked again")
            self.asked.append(key)
            if request["method"] != "roots/list" and self.marker not in json.dumps(request):
                self.faults.append(f"{key} is not about this order")
        if state is None or self.marker in _unwrapped(state):
            self.leaks.append("the state shows whose it is" if state else "a question without a state")

    def look_at_result(self, text: str, is_error: bool) -> None:
        """The result is all of this order, and nothing of another."""
        self._look_for_others(text)
        if is_error:
            self.failure = f"tool error: {text[:120]}"
            return
        found = json.loads(text)
        self.versions = (found.pop("began", None), found.pop("ended", None))
        words = found.pop("words", "")
        if words not in (f"motto of {self.marker}", f"slogan of {self.marker}"):
            self.faults.append(f"the words are {words!r}")
        expected = {
            "marker": self.marker,
            "payer": self.user,
            "place": f"place of {self.marker}",
            "receipt": f"receipt of {self.marker}",
            "wrapped": f"{self.marker} in colour of {self.marker}",
            "folders": [self.folder],
        }
        if found != expected:
            self.faults.append(f"the result is {found}")

    def _look_for_others(self, text: str) -> None:
        others = {other for other in MARKER.findall(text) if other != self.marker}
        others |= {other for other in USER.findall(text) if other != self.user}
        if others:
            self.leaks.append(f"{self.marker} was shown {', '.join(sorted(others))}")


def _unwrapped(state: str) -> str:
    """A state as whoever carries it might read it."""
    raw = state.rpartition(".")[2]
    return state + base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4)).decode("latin-1")
