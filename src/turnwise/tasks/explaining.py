"""What an operator wants to know of a task: what it waits for, and since when."""

from collections.abc import Mapping
from typing import Any

from .model import Task, is_over


def explained(task: Task, requests: Mapping[str, Any], now: float, result: Any = None) -> str:
    """In one sentence. A result is looked at for whether the tool says that it failed."""
    age = _span(now - task.updated)
    if task.status == "completed":  # Its message is how far it once was.
        is_failure = isinstance(result, Mapping) and result.get("isError")
        return f"completed {age} ago" + (f"; the tool says that it failed{_text(result)}" if is_failure else "")
    if is_over(task.status):
        return f"{task.status} {age} ago" + (f": {task.message}" if task.message else "")
    if task.status == "input_required":
        asked = ", ".join(f"{key!r} ({_words(requests.get(key, {}))})" for key in task.waits)
        return f"waits since {age} for an answer to {asked}"
    if task.leased_until > now:
        return f"is being played by {task.owner}, which has the leg for another {_span(task.leased_until - now)}"
    if task.wake_at > now:
        return f"sleeps for another {_span(task.wake_at - now)}"
    if task.owner is not None:
        return f"its worker {task.owner} fell silent {_span(now - task.leased_until)} ago; it is due for another one"
    return f"is due since {_span(now - task.wake_at)}: no worker that serves {task.tool!r} has taken it"


def _words(request: Mapping[str, Any]) -> str:
    params = request.get("params")
    message = params.get("message") if isinstance(params, dict) else None
    return str(message or request.get("method") or "sealed")


def _text(result: Mapping[str, Any]) -> str:
    parts = result.get("content")
    texts = [part["text"] for part in parts or () if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    return f": {texts[0]}" if texts else ""


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"
