"""Who answers: always the same way, and remembers what was asked."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Person:
    """Everything said bears the person's name and number, so that nothing of it can be taken for another's."""

    name: str = "Ada"
    number: int = 36
    action: str = "accept"
    asked: list[str] = field(default_factory=list)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        params = request.get("params", {})
        self.asked.append(params["message"] if "message" in params else request["method"])
        if request["method"] == "roots/list":
            return {"roots": [{"uri": f"file:///{self.name}/{self.number}"}]}
        if request["method"] == "sampling/createMessage":
            content = {"type": "text", "text": f"{self.name}: {params['messages'][0]['content']['text']}"}
            return {"role": "assistant", "content": content, "model": "m", "stopReason": "endTurn"}
        assert request["method"] == "elicitation/create", request
        if self.action != "accept" or params.get("mode") == "url":
            return {"action": self.action}
        return {"action": "accept", "content": self._content(params)}

    def _content(self, params: dict[str, Any]) -> dict[str, Any]:
        by_name = {"name": self.name, "age": self.number}
        by_type = {"string": f"soup for {self.name}", "integer": self.number}
        fields = params["requestedSchema"]["properties"].items()
        return {name: by_name.get(name, by_type[schema["type"]]) for name, schema in fields}
