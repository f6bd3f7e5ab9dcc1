"""Test a server without a network: `async with connect(server) as client: await client.call_tool(...)`.

The bytes are those of the wire, the rounds are driven as a real client drives them, and every one of them is on record
in `client.rounds`.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from ._driver import Attempt, Pause, Questions, drive
from ._messages import Identity, Outgoing
from ._replaying import Answer, Check, Finding, ReplayReport, first_call
from .dialects.asking import wire_dict
from .dialects.words import CAPABILITIES, CLIENT_INFO, ELICIT, LOG_LEVEL, PROTOCOL, ROOTS, SAMPLE, VERSION
from .errors import MCPError, Unanswerable
from .server import MCPServer
from .tasks.options import TaskOptions
from .tasks.sqlite import SQLiteTaskStore
from .transports.memory import Memory

if TYPE_CHECKING:
    import mcp_types as types

Callback = Callable[..., Awaitable[Any]]


class Round(NamedTuple):
    """One request and its reply, as they went over the wire."""

    request: dict[str, Any]
    reply: dict[str, Any]


class Connection:
    """A client of one server in the same process."""

    def __init__(
        self, server: MCPServer[Any], callbacks: Mapping[str, Callback], *, access: Identity | None, max_rounds: int
    ) -> None:
        self.rounds: list[Round] = []
        self.notifications: list[dict[str, Any]] = []
        self.capabilities: dict[str, Any] = _declared(callbacks)
        self._callbacks = callbacks
        self._max_rounds = max_rounds
        self._memory = Memory(server, access)
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
        answer = (await self._memory.exchange(outgoing, self._notified)).message
        self.rounds.append(Round(message, answer))
        if "error" in answer:
            raise MCPError(answer["error"]["code"], answer["error"]["message"], answer["error"].get("data"))
        return cast("dict[str, Any]", answer["result"])

    async def call(self, method: str, params: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
        """As many rounds as it takes: the raw complete result."""
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
                case Questions(requests=requests):
                    answers = await asyncio.gather(*(self._answer(*item) for item in requests.items()))
                    outcome = dict(zip(requests, answers, strict=True))
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

    async def _answer(self, key: str, request: Mapping[str, Any]) -> Any:
        import mcp_types as types

        method, params = request.get("method"), request.get("params", {})
        callback = self._callbacks.get(str(method))
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


def _target(member: str, name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {member: name} if arguments is None else {member: name, "arguments": dict(arguments)}


def _declared(callbacks: Mapping[str, Callback]) -> dict[str, Any]:
    names: dict[str, tuple[str, Any]] = {
        ELICIT: ("elicitation", {"form": {}, "url": {}}),
        SAMPLE: ("sampling", {"tools": {}}),
        ROOTS: ("roots", {}),
    }
    return dict(names[method] for method in callbacks)


@asynccontextmanager
async def connect(
    server: MCPServer[Any],
    *,
    elicitation_callback: Callback | None = None,
    sampling_callback: Callback | None = None,
    list_roots_callback: Callback | None = None,
    access: Identity | None = None,
    max_rounds: int = 10,
) -> AsyncIterator[Connection]:
    """A client joined to a server by a function call. It declares the capabilities that it has callbacks for.

    A callback is `async def (connection, params)`, for roots `async def (connection)`, and returns an official result
    type or a plain dict.
    """
    given = {ELICIT: elicitation_callback, SAMPLE: sampling_callback, ROOTS: list_roots_callback}
    callbacks = {method: callback for method, callback in given.items() if callback is not None}
    await server.start()
    try:
        yield Connection(server, callbacks, access=access, max_rounds=max_rounds)
    finally:
        await server.stop()


async def check_replay(
    tool: MCPServer[Any] | Callable[..., Any],
    answers: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> ReplayReport:
    """Run a tool through every round, each one twice, and report what a replay would do otherwise.

    `tool` is a function, or a server with the `name` of a tool. `answers` are by key or by message: for a form its
    content (or `{"action": "decline"}`), otherwise the whole answer. Steps run once; effects outside of them are looked
    for: clocks, chance, files that are written, sockets, processes.
    """
    if isinstance(tool, MCPServer):
        server = tool
    else:
        server = MCPServer("check_replay", tasks=TaskOptions(store=SQLiteTaskStore(), workers=0))
        server.add_tool(tool, name)
    found = server._catalogue.tools
    name = name or (next(iter(found)) if len(found) == 1 else None)
    if name not in found:
        raise ValueError(f"which tool? name= is one of {', '.join(found)}")
    await server.start()
    try:
        call = first_call(name, arguments or {}, time.time())
        return await Check(server._catalogue, server, found[name]).run(call, _scripted(answers or {}), time.time)
    finally:
        await server.stop()


def _scripted(answers: Mapping[str, Any]) -> Answer:
    async def answer(key: str, method: str, params: Mapping[str, Any]) -> Any:
        message = str(params.get("message"))
        if key not in answers and message not in answers:
            raise LookupError(f"answers has nothing for the question {key!r} ({message!r})")
        given = answers[key] if key in answers else answers[message]
        plain = wire_dict(given) if hasattr(given, "model_dump") else given
        if method != ELICIT or (isinstance(plain, Mapping) and "action" in plain):
            return plain
        return {"action": "accept", "content": plain if isinstance(plain, Mapping) else {"value": plain}}

    return answer


__all__ = ["LOG_LEVEL", "Connection", "Finding", "ReplayReport", "Round", "check_replay", "connect"]
