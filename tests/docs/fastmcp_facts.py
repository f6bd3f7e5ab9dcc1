# mypy: ignore-errors
"""What the comparison says of FastMCP, found by asking it: run in an environment that has it, prints JSON."""

import asyncio
import json
import sys

import fastmcp
from fastmcp import Client, Context, FastMCP
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

mcp = FastMCP("facts")
FORM = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
ran = []


@mcp.tool
async def inline(ctx: Context) -> str:
    ran.append("inline")
    answer = await ctx.elicit("How many?", int)
    return f"{answer.data}"


@mcp.tool
async def returned(ctx: Context) -> str | InputRequiredResult:
    answer = (ctx.input_responses or {}).get("n")
    if answer is None:
        asked = ElicitRequestFormParams(message="How many?", requested_schema=FORM)
        return InputRequiredResult(input_requests={"n": ElicitRequest(params=asked)}, request_state="asked")
    ran.append("returned")
    return f"{answer.content['value']!r}"


async def answer(message, response_type, params, context):
    return {"value": 3}


async def outcome(tool, mode="auto"):
    async with Client(mcp, elicitation_handler=answer, mode=mode) as client:
        try:
            result = await client.call_tool(tool, raise_on_error=False)
        except Exception as error:
            return f"error: {error}"
        return f"error: {result.content[0].text}" if result.is_error else result.content[0].text


async def main():
    facts = {
        "version": fastmcp.__version__,
        "inline": await outcome("inline"),
        "inline on 2025-11-25": await outcome("inline", "legacy"),
        "returned": await outcome("returned"),
        "returned on 2025-11-25": await outcome("returned", "legacy"),
        "has steps": hasattr(Context, "step"),
    }
    async with Client(mcp, elicitation_handler=answer) as client:
        facts["protocol"] = client.protocol_version
        first = await client.session.call_tool("returned", {}, allow_input_required=True)
        ran.clear()
        for _ in range(2):
            await client.session.call_tool(
                "returned",
                {},
                allow_input_required=True,
                request_state=first.request_state,
                input_responses={"n": {"action": "accept", "content": {"value": 3}}},
            )
        facts["runs of one token"] = len(ran)
        wrong = await client.session.call_tool(
            "returned",
            {},
            allow_input_required=True,
            request_state=first.request_state,
            input_responses={"n": {"action": "accept", "content": {"value": "three"}}},
        )
        facts["a wrong answer"] = wrong.content[0].text if hasattr(wrong, "content") else "asked again"
    async with Client(mcp) as client:
        try:
            asked = await client.session.call_tool("returned", {}, allow_input_required=True)
            facts["asked without the capability"] = type(asked).__name__
        except Exception as error:
            facts["asked without the capability"] = f"error: {error}"
    json.dump(facts, sys.stdout)


asyncio.run(main())
