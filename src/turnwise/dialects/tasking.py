"""Tasks as each version shows them, and who may be given one.

The extension of 2026-07-28 (SEP-2663) came last and is the simplest; 2025-11-25 has tasks of its own, the approved text
of SEP-2322 changed how those ask, and the first draft wrote them its own way.
"""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from .._messages import Call
from ..errors import InvalidParams, MissingClientCapability, UnknownMethod
from .words import DRAFT_2026_02, HANDSHAKES, RELATED_TASK, SEP_2322, TASKS, VERSION

NEEDED: Mapping[str, Any] = {"extensions": {TASKS: {}}}


def moment(seconds: float) -> str:
    """A time as the wire writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def related_meta(task_id: str) -> dict[str, Any]:
    """What ties a message to a task."""
    return {RELATED_TASK: {"taskId": task_id}}


def bare(params: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a call, without what only its rounds need."""
    return {name: part for name, part in params.items() if name not in ("inputResponses", "requestState", "task")}


def new_id(version: str) -> str:
    """A name for a task that nobody guesses. Those of other versions than the extension's begin with their version."""
    name = secrets.token_hex(20)
    return name if version == VERSION else f"{version}.{name}"


class Shape:
    """Tasks in 2026-07-28: the server decides, where the client has declared that it takes them."""

    methods: frozenset[str] = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
    stops_first = False
    """Whether a cancellation is answered when the task has stopped, and refused where it is over."""
    asks_live = False
    """Whether a task's questions are requests of the server's, each of which names the task."""
    ttl_name, poll_name = "ttlMs", "pollIntervalMs"

    def takes(self, call: Call) -> bool:
        """Whether this call may be answered with a task."""
        extensions = call.capabilities.get("extensions")
        return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)

    def check(self, call: Call) -> None:
        """Turn those away who take no tasks. "Servers that simultaneously support the 2025-11-25 Tasks specification
        [...] SHOULD continue to permit `tasks/get` and `tasks/cancel` requests from such clients".
        """
        if not self.takes(call) and not _is_older(call):
            raise MissingClientCapability(NEEDED)

    def check_plain(self, call: Call, support: str | None) -> None:
        """Turn those away who want a task of a tool that is none. Here nobody can want one."""

    def members(self, task: Any, poll: float) -> dict[str, Any]:
        """The facts of a task."""
        facts: dict[str, Any] = {
            "taskId": task.id,
            "status": self.word(task.status),
            "createdAt": moment(task.created),
            "lastUpdatedAt": moment(task.updated),
            self.ttl_name: None if task.ttl is None else int(task.ttl * 1000),
            self.poll_name: max(1, int(poll * 1000)),
        }
        return facts if task.message is None else {**facts, "statusMessage": task.message}

    def word(self, status: str) -> str:
        """A status, as this version spells it."""
        return status

    def created(self, task: Any, poll: float) -> dict[str, Any]:
        """The result of a call that became a task."""
        return {"resultType": "task", **self.members(task, poll)}

    def detailed(self, seen: Any, poll: float) -> dict[str, Any]:
        """A task with what its status brings: questions, a result or an error."""
        facts = self.members(seen.task, poll)
        if seen.task.status == "input_required":
            return {**facts, "inputRequests": dict(seen.requests)}
        if seen.result is not None:
            return {**facts, "result": {"resultType": "complete", **seen.result}}
        return facts if seen.error is None else {**facts, "error": seen.error}

    def check_answers(self, call: Call) -> None:
        """Answers are an object, even an empty one."""
        if not isinstance(call.params.get("inputResponses"), dict):
            raise InvalidParams("params.inputResponses must be an object", status=400)

    def cancelled(self, task: Any, poll: float) -> dict[str, Any]:
        """The reply to a cancellation: that it was heard."""
        return {}

    def related(self, call: Call) -> str:
        """The task that an answer is for."""
        raise UnknownMethod(call.method)


class Augmented(Shape):
    """Tasks in 2025-11-25: the client asks for one, and learns its result by asking again."""

    methods = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"})
    stops_first = True
    asks_live = True
    ttl_name, poll_name = "ttl", "pollInterval"

    def takes(self, call: Call) -> bool:
        """Whether the client asks for a task."""
        return isinstance(call.params.get("task"), dict)

    def check(self, call: Call) -> None:
        """A tool that is always a task is not found by who asks for none; the methods themselves are for everybody."""
        if call.method == "tools/call" and not self.takes(call):
            raise UnknownMethod(f"{call.method}: this tool is called as a task, with params.task")

    def check_plain(self, call: Call, support: str | None) -> None:
        """ "If taskSupport is not present or forbidden [...] servers SHOULD return a -32601 error"."""
        if self.takes(call):
            raise UnknownMethod(f"{call.method}: this tool is not called as a task")

    def created(self, task: Any, poll: float) -> dict[str, Any]:
        """The result of a call that became a task."""
        return {"task": self.members(task, poll)}

    def detailed(self, seen: Any, poll: float) -> dict[str, Any]:
        """A task; its questions and its result are to be had by `tasks/result`.

        "When the tool result has `isError` set to `true`, the task should reach `failed` status."
        """
        facts = self.members(seen.task, poll)
        if seen.result is None or seen.result.get("isError") is not True:
            return facts
        words = " ".join(str(part["text"]) for part in seen.result.get("content", ()) if "text" in part)
        return {**facts, "status": self.word("failed"), "statusMessage": words}

    def cancelled(self, task: Any, poll: float) -> dict[str, Any]:
        """The task, as it is then."""
        return self.members(task, poll)


class Approved(Augmented):
    """Tasks in the approved text: `tasks/result` asks, and `tasks/input_response` answers."""

    methods = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel", "tasks/input_response"})
    asks_live = False

    def check_plain(self, call: Call, support: str | None) -> None:
        """A tool may ask first and become a task at the retry, so only those are refused that never do."""
        if support == "never":
            super().check_plain(call, support)

    def related(self, call: Call) -> str:
        """The task that `_meta` names."""
        named = call.meta.get(RELATED_TASK)
        task_id = named.get("taskId") if isinstance(named, dict) else None
        if not isinstance(task_id, str):
            raise InvalidParams(f"_meta must name the task: {RELATED_TASK}")
        return task_id


class FirstDraft(Approved):
    """Tasks in the first draft, which spells two statuses with a capital."""

    def word(self, status: str) -> str:
        """A status, as the draft spells it."""
        return status.capitalize() if status in ("working", "completed") else status


def _is_older(call: Call) -> bool:
    """Whether a client of 2025-11-25's tasks, which has moved on, asks for one that it began before."""
    return (
        call.method in ("tasks/get", "tasks/cancel")
        and isinstance(call.capabilities.get("tasks"), dict)
        and call.target.startswith(f"{HANDSHAKES[-1]}.")
    )


SHAPES: Mapping[str, Shape] = {
    VERSION: Shape(),
    HANDSHAKES[-1]: Augmented(),
    SEP_2322: Approved(),
    DRAFT_2026_02: FirstDraft(),
}


def takes_tasks(call: Call) -> bool:
    """Whether this call may be answered with a task; of all methods, calls of tools may."""
    shape = SHAPES.get(call.version)
    return shape is not None and call.method == "tools/call" and shape.takes(call)


def check_takes_tasks(call: Call) -> None:
    """Turn a call away that may not be answered with a task, in the words of its version."""
    shape = SHAPES.get(call.version)
    if shape is None:
        raise MissingClientCapability(NEEDED)
    shape.check(call)


def check_plain(call: Call, support: str | None) -> None:
    """Turn a call away that wants a task of a tool which is none, in versions where a client can want one."""
    shape = SHAPES.get(call.version)
    if shape is not None:
        shape.check_plain(call, support)


def shape_of(version: str) -> Shape:
    """How a version shows tasks."""
    return SHAPES[version]


def detailed(seen: Any, poll: float) -> dict[str, Any]:
    """A task as its subscribers are told of it."""
    return SHAPES[VERSION].detailed(seen, poll)
