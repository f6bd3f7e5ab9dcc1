"""The methods of tasks, for whoever has one: to look at it, to answer it, to stop it."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ._catalogue import Catalogue
from ._json import decode
from ._messages import Ask, Call, Done, Outcome, Question
from ._sealed import RequestStateSecurity
from .dialects import tasking
from .dialects.asking import request_of
from .dialects.replying import error_reply, judged
from .dialects.v2026_07_28 import verdict
from .errors import InvalidParams, InvalidRequestState, MCPError, UnknownMethod
from .tasks.model import Task, is_over
from .tasks.options import TaskOptions
from .tasks.runtime import Seen, Tasks
from .tasks.sqlite import SQLiteTaskStore

log = logging.getLogger("turnwise.tasks")

FIRST_LOOK, LONGEST_LOOK = 0.02, 0.5
STOP_SECONDS = 10.0
"""For how long a client waits for a task to stop, in versions in which it is told when that has happened."""


def install(catalogue: Catalogue, options: TaskOptions, security: RequestStateSecurity) -> Tasks:
    """Have a server keep tasks, and answer for them."""
    store = options.store
    if store is None:
        store = SQLiteTaskStore()
        if not security.is_process_local:
            log.warning("tasks are kept in memory, for this process alone: MCPServer(tasks=SQLiteTaskStore(path))")
    tasks = Tasks(options, store, security.codec, catalogue, _judge, request_of)
    tasks.tools = catalogue.tools
    methods = Methods(catalogue, tasks)
    catalogue.handlers |= {
        "tasks/get": methods.get,
        "tasks/update": methods.update,
        "tasks/cancel": methods.cancel,
        "tasks/result": methods.result,
        "tasks/list": methods.list,
        "tasks/input_response": methods.input_response,
    }
    return tasks


def _judge(call: Call, error: Exception) -> dict[str, Any]:
    end = judged({"method": call.method, "params": call.params}, error, verdict)
    if isinstance(end, dict):
        return {"result": end}
    # As a reply has it, which can always be written: a leg whose end cannot be recorded is played again and again.
    return {"error": decode(error_reply(None, *end).body or b"")["error"]}


class Methods:
    """What clients may do with tasks. Which methods a version has, and how it words a task, its shape says."""

    def __init__(self, catalogue: Catalogue, tasks: Tasks) -> None:
        self._catalogue = catalogue
        self._tasks = tasks

    async def get(self, call: Call) -> Outcome:
        """A task as it is now."""
        shape = self._shape(call)
        return Done(shape.detailed(await self._seen(call, call.target), self._tasks.options.poll))

    async def update(self, call: Call) -> Outcome:
        """Answers to a task's questions. Those that are not asked for are passed over."""
        self._shape(call).check_answers(call)
        await self._answered(call, call.target, call.answers)
        return Done({})

    async def input_response(self, call: Call) -> Outcome:
        """The same, in the words of the drafts."""
        task_id = self._shape(call).related(call)
        await self._answered(call, task_id, call.answers)
        return Done({"_meta": tasking.related_meta(task_id)})

    async def cancel(self, call: Call) -> Outcome:
        """Stop a task, if it can be stopped."""
        shape = self._shape(call)
        before = await self._tasks.peek(call.target, self._catalogue.principal(call), call.post.now)
        if before is None:
            raise _unknown()
        if shape.stops_first and is_over(before.status):
            raise self._too_late(shape, await self._seen(call, call.target))
        task = await self._tasks.cancel(call.target, self._catalogue.principal(call), call.post.now)
        if task is None:
            raise _unknown()
        if shape.stops_first and not is_over(task.status):
            task = await self._stopped(call, shape)
        return Done(shape.cancelled(task, self._tasks.options.poll))

    async def _stopped(self, call: Call, shape: tasking.Shape) -> Task:
        """ "Receivers MUST transition the task to cancelled status before sending the response"."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                async for seen in self._looks(call):
                    if seen.task.status == "cancelled":
                        return seen.task
                    if is_over(seen.task.status):
                        raise self._too_late(shape, seen)
        except TimeoutError:
            pass
        raise MCPError(-32603, "The task was told to stop, and goes on for now")

    def _too_late(self, shape: tasking.Shape, seen: Seen) -> InvalidParams:
        status = shape.detailed(seen, self._tasks.options.poll)["status"]
        return InvalidParams(f"Cannot cancel task: already in terminal status '{status}'")

    async def result(self, call: Call) -> Outcome:
        """What a task comes to, waited for; or its questions, where it asks."""
        shape = self._shape(call)
        if call.answers:
            await self._answered(call, call.target, call.answers)
        async for seen in self._looks(call):
            if is_over(seen.task.status):
                return Done(_final(seen))
            if seen.requests:
                return Ask(_questions(seen, is_live=shape.asks_live), None)
        raise _unknown()

    async def list(self, call: Call) -> Outcome:
        """The caller's tasks. "Receivers that cannot identify requestors SHOULD NOT" tell of anybody's."""
        shape, who = self._shape(call), self._catalogue.principal(call)
        if who is None and call.post.headers is not None:
            raise UnknownMethod(call.method)
        cursor = call.params.get("cursor")
        if cursor is not None and (
            not isinstance(cursor, str) or await self._tasks.peek(cursor, who, call.post.now) is None
        ):
            raise InvalidParams("Invalid cursor")
        size = self._catalogue.page_size or 100
        tasks = await self._tasks.own(who, cursor or "", size + 1, call.post.now)
        shown = [shape.detailed(self._glimpsed(task), self._tasks.options.poll) for task in tasks[:size]]
        return Done({"tasks": shown} | ({"nextCursor": tasks[size - 1].id} if len(tasks) > size else {}))

    def _glimpsed(self, task: Task) -> Seen:
        """A task in a list, which is not withheld for one that cannot be opened here."""
        try:
            return self._tasks.seen(task)
        except InvalidRequestState as error:
            log.error("task %s cannot be opened: %s", task.id, error)
            return Seen(task, {}, None, None)

    async def _looks(self, call: Call) -> AsyncIterator[Seen]:
        """A task, looked at again and again while its client waits."""
        begun, pause = time.monotonic(), FIRST_LOOK
        while True:
            now = call.post.now + time.monotonic() - begun
            seen = await self._tasks.get(call.target, self._catalogue.principal(call), now)
            if seen is None:
                raise _unknown()
            yield seen
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_LOOK)

    def _shape(self, call: Call) -> tasking.Shape:
        shape = tasking.SHAPES.get(call.version)
        if shape is None or call.method not in shape.methods:
            raise UnknownMethod(call.method)
        shape.check(call)
        return shape

    async def _seen(self, call: Call, task_id: str) -> Seen:
        try:
            seen = await self._tasks.get(task_id, self._catalogue.principal(call), call.post.now)
        except InvalidRequestState as error:
            log.error("task %s cannot be opened: %s", task_id, error)
            raise MCPError(-32603, "This server cannot open the task: it was sealed under another key") from None
        if seen is None:
            raise _unknown()
        return seen

    async def _answered(self, call: Call, task_id: str, answers: Mapping[str, Any]) -> None:
        await self._seen(call, task_id)
        if not await self._tasks.update(task_id, self._catalogue.principal(call), answers, call.post.now):
            raise _unknown()


def _unknown() -> InvalidParams:
    return InvalidParams("Unknown task: there is none with this id, or it is over its time")


def _final(seen: Seen) -> dict[str, Any]:
    if seen.error is not None:
        raise MCPError(seen.error["code"], seen.error["message"], seen.error.get("data"))
    if seen.result is None:
        raise MCPError(-32603, "The task was cancelled")
    meta = {**seen.result.get("_meta", {}), **tasking.related_meta(seen.task.id)}
    return {**seen.result, "_meta": meta}


def _questions(seen: Seen, *, is_live: bool) -> dict[str, Question]:
    """A task's open questions, to be asked once more by whoever waits for its result."""
    meta = {"_meta": tasking.related_meta(seen.task.id)} if is_live else {}
    return {
        key: Question(key, request["method"], {**request.get("params", {}), **meta}, {}, "", _unread, _unread, None)
        for key, request in seen.requests.items()
    }


def _unread(answer: Any) -> Any:
    raise AssertionError("answers to a task are read by its next leg")
