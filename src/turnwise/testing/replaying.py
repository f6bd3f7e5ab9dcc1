"""Whether a tool bears to be run again: `await check_replay(tool, answers)`."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from .._replaying import Answer, Check, ReplayReport, first_call
from ..server import MCPServer
from ..tasks.options import TaskOptions
from ..tasks.sqlite import SQLiteTaskStore
from .scripts import Script


async def check_replay(
    tool: MCPServer[Any] | Callable[..., Any],
    answers: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> ReplayReport:
    """Run a tool through every round, each one twice, and report what a replay would do otherwise.

    `tool` is a function, or a server with the `name` of a tool. `answers` are as a `Script` takes them. Steps run
    once; effects outside of them are looked for: clocks, chance, files that are written, sockets, processes.
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
    script = Script(answers)

    async def answer(key: str, method: str, params: Mapping[str, Any]) -> Any:
        return script.answer(key, method, params)

    return answer
