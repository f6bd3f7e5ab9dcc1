"""Tasks as a client of 2026-07-28 meets them (SEP-2663)."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from ..errors import BecameTask, InvalidReply
from .words import MOST_QUESTIONS, TASKS

EXTENSION: Mapping[str, Any] = {TASKS: {}}
STATUSES = ("working", "input_required", "completed", "failed", "cancelled")
SHORTEST_POLL, LONGEST_POLL = 10, 60_000
"""Milliseconds."""


class TaskStatus(NamedTuple):
    """A task as its server tells of it. `poll` is after how many seconds to look again; `requests` are its open
    questions by key; `result` and `error` are there when it has come to that end.
    """

    id: str
    status: str
    message: str | None
    poll: float
    requests: Mapping[str, Any]
    result: dict[str, Any] | None
    error: Mapping[str, Any] | None

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it."""
        return self.status in ("completed", "failed", "cancelled")


def takes(capabilities: Mapping[str, Any]) -> bool:
    """Whether a client declares that it takes tasks."""
    return TASKS in capabilities.get("extensions", {})


def became(method: str, result: dict[str, Any]) -> BecameTask:
    """What to make of a result that is a task; only calls of tools become one."""
    if method != "tools/call":
        raise InvalidReply(f"{method} cannot be answered with a task")
    status(result)
    return BecameTask(result)


def status(result: Mapping[str, Any]) -> TaskStatus:
    """A task out of a result; InvalidReply where it is none."""
    task_id, word, message = result.get("taskId"), result.get("status"), result.get("statusMessage")
    if not isinstance(task_id, str) or not task_id or word not in STATUSES:
        raise InvalidReply("the task has no id or no status that is known")
    poll, requests = result.get("pollIntervalMs"), result.get("inputRequests", {})
    # Bounded before it is divided: a whole number may be larger than any float.
    is_number = isinstance(poll, int | float) and not isinstance(poll, bool)
    pause = min(max(cast("float", poll), SHORTEST_POLL), LONGEST_POLL) / 1000 if is_number else 1.0
    if not isinstance(requests, dict):
        raise InvalidReply("inputRequests is no object")
    if len(requests) > MOST_QUESTIONS:
        raise InvalidReply(f"more than {MOST_QUESTIONS} questions at once")
    outcome, error = result.get("result"), result.get("error")
    if word == "completed" and not isinstance(outcome, dict):
        raise InvalidReply("the task is completed and has no result")
    if word == "failed" and not (isinstance(error, dict) and type(error.get("code")) is int):
        raise InvalidReply("the task has failed and has no error")
    text = message if isinstance(message, str) else None
    return TaskStatus(task_id, str(word), text, pause, requests, outcome if word == "completed" else None, error)


def named(task_id: str) -> dict[str, Any]:
    """The parameters that name a task."""
    return {"taskId": task_id}


def answered(task_id: str, answers: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that answer a task."""
    return {"taskId": task_id, "inputResponses": dict(answers)}
