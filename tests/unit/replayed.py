"""One tool on its instances, and a client that says yes: what the tests of replay have in common."""

import asyncio
from collections.abc import Callable
from typing import Any

from turnwise import Budget, Context, FlowStore, MCPServer, RequestStateSecurity
from turnwise.testing import Connection, connect

KEY = b"k" * 32
IT = {"name": "it"}
NOW = 1_800_000_000.0
REFUSED = "Invalid or expired requestState"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}

Result = dict[str, Any]
Tool = Callable[..., Any]


def instance(fn: Tool, store: FlowStore | None = None, budget: Budget | None = None, **options: Any) -> MCPServer[Any]:
    """One of the processes that serve a tool."""
    security = RequestStateSecurity(keys=[KEY])
    shed_when = options.pop("shed_when", None)
    server: MCPServer[Any] = MCPServer(
        "parts", request_state_security=security, store=store, budget=budget, shed_when=shed_when
    )
    server.add_tool(fn, "it", **options)
    return server


def said(value: str) -> Result:
    return {"action": "accept", "content": {"value": value}}


async def send(client: Connection, last: Result | None = None, value: str = "yes") -> Result:
    """One round: the first, or one that says the same to whatever the last one asked."""
    client.capabilities = {"elicitation": {}}
    if last is None:
        return await client.request("tools/call", IT)
    answers = {key: said(value) for key in last["inputRequests"]}
    return await client.request("tools/call", {**IT, "inputResponses": answers, "requestState": last["requestState"]})


async def to_the_end(client: Connection, last: Result | None = None) -> list[Result]:
    results = [await send(client, last)]
    while results[-1]["resultType"] == "input_required":
        results.append(await send(client, results[-1]))
    return results


def rounds(fn: Tool, store: FlowStore | None = None, budget: Budget | None = None, **options: Any) -> list[Result]:
    """All rounds of one call in which the user says yes to everything."""

    async def run() -> list[Result]:
        async with connect(instance(fn, store, budget, **options)) as client:
            return await to_the_end(client)

    return asyncio.run(run())


def text(result: Result) -> str:
    assert result["resultType"] == "complete", result
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def tool_error(result: Result) -> str:
    assert result.get("isError") is True, result
    return str(result["content"][0]["text"])


async def ask(ctx: Context, times: int = 1) -> None:
    for number in range(times):
        await ctx.elicit(f"Go on after {number}?", str)
