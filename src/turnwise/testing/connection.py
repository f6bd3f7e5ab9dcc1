"""A client joined to a server by a function call."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from .._driver import Attempt, Pause, Questions, drive
from .._following import TaskInHand, follow
from .._messages import Identity, Outgoing
from ..dialects.asking import wire_dict
from ..dialects.calling import advised
from ..dialects.tasking_client import EXTENSION, SHORTEST_POLL
from ..dialects.words import CAPABILITIES, CLIENT_INFO, ELICIT, PROTOCOL, ROOTS, SAMPLE, VERSION
from ..errors import MCPError, Unanswerable
from ..server import MCPServer
from .clocks import Timed
from .flows import Flow, Round
from .scripts import Script

if TYPE_CHECKING:
    import mcp_types as types

Callback = Callable[..., Awaitable[Any]]


class Connection:
    """A client of one server in the same process."""

    def __init__(
        self,
        server: MCPServer[Any],
        callbacks: Mapping[str, Callback],
        *,
        access: Identity | None,
        max_rounds: int,
        script: Script | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.rounds: list[Round] = []
        self.flow = Flow()
        """The rounds of the latest call."""
        self.script = script
        self.notifications: list[dict[str, Any]] = []
        self.capabilities: dict[str, Any] = _declared(callbacks if script is None else (ELICIT, SAMPLE, ROOTS))
        self._callbacks = callbacks
        self._max_rounds = max_rounds
        self._channel = Timed(server, access, now)
        self._ids = itertools.count(1)

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
        """One round: the raw result, or MCPError."""
        own = {PROTOCOL: VERSION, CLIENT_INFO: {"name": "turnwise.testing", "version": "0"}}
        whole = {**own, CAPABILITIES: self.capabilities, **meta}
        number = next(self._ids)
        message = {
            "jsonrpc": "2.0",
            "id": number,
            "method": method,
            "params": {**(params or {}), "_meta": whole},
        }
        outgoing = Outgoing(number, method, orjson.dumps(message), {}, safe=False)
        answer = (await self._channel.exchange(outgoing, self._notified)).message
        self.rounds.append(Round(message, answer))
        self.flow = Flow((*self.flow, self.rounds[-1]))
        if "error" in answer:
            error = MCPError(answer["error"]["code"], answer["error"]["message"], answer["error"].get("data"))
            raise advised(error, self._callbacks)
        return cast("dict[str, Any]", answer["result"])

    async def call(self, method: str, params: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
        """As many rounds as it takes: the raw complete result. Where the call becomes a task, that of the task."""
        self.flow = Flow()
        steps = drive(params, self._max_rounds)
        outcome: Any = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                return cast("dict[str, Any]", done.value)
            match step:
                case Attempt(attempt):
                    outcome = await self.request(method, attempt, **meta)
                    if outcome.get("resultType") == "task":
                        task = TaskInHand(outcome["taskId"], params["name"], params.get("arguments", {}))
                        return await follow(_Follower(self), task, self._max_rounds, None)
                case Questions(requests=requests):
                    outcome = await self._answers(requests)
                case Pause(seconds):
                    await asyncio.sleep(seconds)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **meta: Any
    ) -> "types.CallToolResult":
        """Call a tool, answering whatever it asks."""
        from mcp_types import CallToolResult

        return CallToolResult.model_validate(await self.call("tools/call", _target("name", name, arguments), **meta))

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **meta: Any
    ) -> "types.GetPromptResult":
        """Get a prompt, answering whatever it asks."""
        from mcp_types import GetPromptResult

        return GetPromptResult.model_validate(await self.call("prompts/get", _target("name", name, arguments), **meta))

    async def read_resource(self, uri: str, **meta: Any) -> "types.ReadResourceResult":
        """Read a resource, answering whatever it asks."""
        from mcp_types import ReadResourceResult

        return ReadResourceResult.model_validate(await self.call("resources/read", {"uri": uri}, **meta))

    async def list_tools(self) -> "types.ListToolsResult":
        """The first page of the tools."""
        from mcp_types import ListToolsResult

        return ListToolsResult.model_validate(await self.request("tools/list"))

    async def _answers(self, requests: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        answers = await asyncio.gather(*(self._answer(*item) for item in requests.items()))
        return dict(zip(requests, answers, strict=True))

    async def _answer(self, key: str, request: Mapping[str, Any]) -> Any:
        import mcp_types as types

        method, params = request.get("method"), request.get("params", {})
        callback = self._callbacks.get(str(method))
        if self.script is not None and (callback is None or self.script.knows(key, str(method), params)):
            return self.script.answer(key, str(method), params)
        if callback is None:
            raise Unanswerable(key, method)
        typed: Any = None
        if method == ELICIT:
            mode = types.ElicitRequestURLParams if params.get("mode") == "url" else types.ElicitRequestFormParams
            typed = mode.model_validate(params)
        elif method == SAMPLE:
            typed = types.CreateMessageRequestParams.model_validate(params)
        answer = await (callback(self) if method == ROOTS else callback(self, typed))
        return answer if isinstance(answer, Mapping) else wire_dict(answer)

    async def _notified(self, message: Any) -> None:
        self.notifications.append(message)


class _Follower(NamedTuple):
    """Who follows a task of a connection. It looks as often as it may: in a test nobody waits for what is there."""

    connection: Connection

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One request."""
        return {**await self.connection.request(method, params), "pollIntervalMs": SHORTEST_POLL}

    async def answers(self, step: Questions, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answers to questions, by the script or the callbacks."""
        return await self.connection._answers(step.requests)


def _target(member: str, name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {member: name} if arguments is None else {member: name, "arguments": dict(arguments)}


def _declared(callbacks: Iterable[str]) -> dict[str, Any]:
    names: dict[str, tuple[str, Any]] = {
        ELICIT: ("elicitation", {"form": {}, "url": {}}),
        SAMPLE: ("sampling", {"tools": {}}),
        ROOTS: ("roots", {}),
    }
    return dict(names[method] for method in callbacks)


@asynccontextmanager
async def connect(  # noqa: PLR0913 - what a test may want to say, each by its name
    server: MCPServer[Any],
    answers: Mapping[str, Any] | Script | None = None,
    *,
    elicitation_callback: Callback | None = None,
    sampling_callback: Callback | None = None,
    list_roots_callback: Callback | None = None,
    access: Identity | None = None,
    now: Callable[[], float] = time.time,
    max_rounds: int = 10,
    tasks: bool = True,
) -> AsyncIterator[Connection]:
    """A client joined to a server by a function call. It declares the capabilities that it has callbacks for, and all
    of them where it has `answers`, as a `Script` takes them. What is not there is the callbacks'.
    `now` is the time that the server is told: see `FrozenClock`. Where the server keeps tasks it takes them, unless
    `tasks=False`, and calls that become one are followed to their end.

    A callback is `async def (connection, params)`, for roots `async def (connection)`, and returns an official result
    type or a plain dict.
    """
    given = {ELICIT: elicitation_callback, SAMPLE: sampling_callback, ROOTS: list_roots_callback}
    callbacks = {method: callback for method, callback in given.items() if callback is not None}
    await server.start()
    try:
        script = Script(answers) if isinstance(answers, Mapping) else answers
        client = Connection(server, callbacks, access=access, max_rounds=max_rounds, script=script, now=now)
        if tasks and server.tasks is not None:
            client.capabilities["extensions"] = {**EXTENSION}
        yield client
    finally:
        await server.stop()
