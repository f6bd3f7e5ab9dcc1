"""A task from its client's side: looked at as often as its server likes, answered, stopped, brought to its end.

The room knows no transport. A task is known by its id alone, so whoever has that goes on with it, in whatever process.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol, cast

from ._driver import Questions
from ._json import decode
from .dialects import calling
from .dialects import tasking_client as wire
from .dialects.tasking_client import TaskStatus
from .dialects.unfit import answer_in_hand, unfit_of, whole_answer
from .errors import (
    CallerError,
    ConnectionLost,
    DeadlineExceeded,
    InvalidReply,
    MCPError,
    PeerError,
    TaskCancelled,
    TooManyRounds,
)

if TYPE_CHECKING:
    import mcp_types as types

OnStatus = Callable[[TaskStatus], Awaitable[None] | None]
CANCEL_SECONDS = 5.0
LOST_LOOKS, LOST_SECONDS = 5, 1.0
"""So often, and at least so far apart, a server that is away is looked for again: its tasks outlive it."""

log = logging.getLogger("turnwise.client")


class Talks(Protocol):
    """Who exchanges requests with the server, and has questions answered."""

    def ask(self, method: str, params: Mapping[str, Any]) -> Awaitable[dict[str, Any]]:
        """One request."""
        ...

    def answers(self, step: Questions, method: str, params: Mapping[str, Any]) -> Awaitable[dict[str, Any]]:
        """Answers to questions, by the callbacks."""
        ...


@dataclass(frozen=True, slots=True)
class TaskInHand:
    """A call that has become a task of its server. It is plain JSON, and `client.follow_task` brings it to its end, in
    this process or in another.
    """

    id: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    server: str | None = None

    def to_json(self) -> str:
        """The task as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> "TaskInHand":
        """A task out of what `to_json` made; CallerError where it is something else."""
        try:
            facts = decode(text)
        except ValueError as error:
            raise CallerError(f"this is no task in hand: {error}") from None
        if not isinstance(facts, dict) or not {"id", "tool"} <= set(facts) <= {one.name for one in fields(cls)}:
            raise CallerError("this is no task in hand: it has id and tool, arguments and server, and nothing else")
        task = cls(**facts)
        texts = isinstance(task.id, str) and isinstance(task.tool, str) and isinstance(task.server, str | None)
        if not texts or not task.id or not isinstance(task.arguments, dict):
            raise CallerError("this is no task in hand: it has no id, or something in it is of another kind")
        return task


class TaskCalls:
    """What a client can do with a task, by its id."""

    @property
    def _open(self) -> Any:
        raise NotImplementedError

    async def follow_task(
        self, task: TaskInHand | str, *, on_status: OnStatus | None = None, deadline: float | None = None
    ) -> "types.CallToolResult":
        """Bring a task to its end, answering whatever it asks: its result. `on_status` is told how it is getting on.

        Who is cancelled while waiting stops the task; `deadline` ends the waiting alone.
        """
        conversation = self._open
        in_hand = TaskInHand(task, "") if isinstance(task, str) else task
        _check_server(in_hand.server, conversation.manners.server)
        rounds = conversation.manners.max_rounds
        if deadline is None:
            result = await follow(conversation, in_hand, rounds, on_status)
        else:
            try:
                async with asyncio.timeout(deadline):
                    result = await _followed(conversation, in_hand, rounds, on_status, None)
            except TimeoutError:
                raise DeadlineExceeded(f"task {in_hand.id} was not finished within {deadline} s; it goes on") from None
        if in_hand.tool:
            conversation.caller.check_result(in_hand.tool, result)
        return cast("types.CallToolResult", calling.typed("tools/call", result))

    async def get_task(self, task_id: str) -> TaskStatus:
        """A task as it is now: its status, its open questions, its result."""
        return await _looked_at(self._open, task_id)

    async def update_task(self, task_id: str, answers: Mapping[str, Any]) -> None:
        """Answer questions of a task, all or some. They are checked against what is asked before they are sent."""
        seen = await self.get_task(task_id)
        unfit_of(seen.requests, are_shown=True)
        checked = {
            key: answer_in_hand(key, seen.requests[key], whole_answer(key, seen.requests[key], answer))
            for key, answer in answers.items()
            if key in seen.requests
        }
        if unknown := answers.keys() - checked.keys():
            asked = ", ".join(seen.requests) or f"nothing, it is {seen.status}"
            raise CallerError(f"the task does not ask {', '.join(sorted(unknown))}; it asks {asked}")
        await self._open.ask("tasks/update", wire.answered(task_id, checked))

    async def cancel_task(self, task_id: str) -> None:
        """Ask the server to stop a task. It may come to another end before."""
        await self._open.ask("tasks/cancel", wire.named(task_id))


async def follow(
    talks: Talks, task: TaskInHand, max_rounds: int, on_status: OnStatus | None, first: float | None = None
) -> dict[str, Any]:
    """The result of a task, whatever it takes. Who stops waiting stops the task."""
    try:
        return await _followed(talks, task, max_rounds, on_status, first)
    except (asyncio.CancelledError, KeyboardInterrupt):  # The latter by a callback that asks at a terminal.
        stopping = asyncio.ensure_future(talks.ask("tasks/cancel", wire.named(task.id)))
        await asyncio.wait([stopping], timeout=CANCEL_SECONDS)
        error = stopping.exception() if stopping.done() else TimeoutError(f"no reply within {CANCEL_SECONDS:g} s")
        if isinstance(error, PeerError | TimeoutError):
            log.warning("task %s may go on: its server did not hear that it is no longer wanted: %s", task.id, error)
        elif error is not None:
            raise error from None
        raise


async def _followed(
    talks: Talks, task: TaskInHand, max_rounds: int, on_status: OnStatus | None, pause: float | None
) -> dict[str, Any]:
    params = {"name": task.tool, "arguments": dict(task.arguments)}
    known: set[str] = set()
    last: Any = None
    rounds = losses = 0
    while True:
        await asyncio.sleep(pause or 0)
        try:
            seen, losses = await _looked_at(talks, task.id), 0
        except ConnectionLost as lost:
            losses += 1
            if losses > LOST_LOOKS:
                raise
            log.warning("task %s cannot be looked at for now: %s", task.id, lost)
            pause = max(pause or 0.0, LOST_SECONDS)
            continue
        if on_status is not None and (seen.status, seen.message) != last:
            last = (seen.status, seen.message)
            told = on_status(seen)
            if told is not None:
                await told
        if seen.is_over:
            return _end(seen)
        asked = {key: request for key, request in seen.requests.items() if key not in known}
        pause = seen.poll
        if asked:
            rounds += 1
            if rounds > max_rounds:
                raise TooManyRounds(max_rounds)
            answers = await talks.answers(Questions(asked, {}, None, rounds, ()), "tools/call", params)
            await talks.ask("tasks/update", wire.answered(task.id, answers))
            known |= asked.keys()


async def _looked_at(talks: Talks, task_id: str) -> TaskStatus:
    seen = wire.status(await talks.ask("tasks/get", wire.named(task_id)))
    if seen.id != task_id:
        raise InvalidReply("the server tells of another task than it was asked for")
    return seen


def _check_server(theirs: str | None, ours: str | None) -> None:
    """A task is its server's, and no other is to learn its id. A command may be spelled otherwise elsewhere."""
    has_url = any((server or "").startswith(("http://", "https://")) for server in (theirs, ours))
    if has_url and theirs not in (None, ours):
        raise CallerError(
            f"this task belongs to {theirs}, and this is a client of {ours}; where both are the same server, follow "
            "the task by its id"
        )


def _end(seen: TaskStatus) -> dict[str, Any]:
    if seen.result is not None:
        return seen.result
    if seen.error is not None and seen.status == "failed":
        raise MCPError(seen.error["code"], str(seen.error.get("message", "")), seen.error.get("data"))
    raise TaskCancelled(seen.id)
