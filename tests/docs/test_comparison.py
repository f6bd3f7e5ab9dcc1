"""What the comparison says, found by running each library: the same small tools, asked in the same way."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import mcp
import mcp.server.mcpserver as sdk
import pytest
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel

import turnwise
from tests.docs.loading import ROOT
from tests.interop.conftest import fastmcp_command
from turnwise.testing import connect

__all__ = ["fastmcp_command"]

FORM = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}
QUESTION = ElicitRequest(params=ElicitRequestFormParams(message="How many?", requested_schema=FORM))


class Number(BaseModel):
    value: int


def tools(library: Any, **options: Any) -> SimpleNamespace:
    """A server of a library with one tool for each form of asking, and how often they came to their end."""
    server, ran = library.MCPServer("facts"), list[str]()

    def ask() -> Any:
        return library.Elicit(message="How many?", schema=Number)

    async def inline(ctx: Any) -> str:
        return str((await ctx.elicit("How many?", Number)).data.value)

    async def returned(ctx: Any) -> Any:
        answer = (ctx.input_responses or {}).get("n")
        if answer is None:
            return InputRequiredResult(input_requests={"n": QUESTION}, request_state="asked")
        ran.append("returned")
        return str(answer.content["value"])

    async def declared(n: Any) -> str:
        ran.append("declared")
        return str(n.value)

    inline.__annotations__["ctx"] = returned.__annotations__["ctx"] = library.Context
    returned.__annotations__["return"] = str | InputRequiredResult
    declared.__annotations__["n"] = Annotated[Number, library.Resolve(ask)]
    for tool in (inline, returned, declared):
        server.tool(structured_output=False, **options)(tool)
    return SimpleNamespace(server=server, ran=ran, ask=ask)


def outcome(library: Any, tool: str, mode: Any = "auto", *given: Any) -> str:
    """The text that a client of the same library gets, or `error: ...`; its user gives these answers."""
    left = list(given or [3])

    async def answer(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": left.pop(0)})

    async def run() -> str:
        client: Any = mcp.Client if library is sdk else turnwise.Client
        async with client(tools(library).server, elicitation_callback=answer, mode=mode) as opened:
            try:
                result = await opened.call_tool(tool)
            except (mcp.MCPError, turnwise.TurnwiseError) as error:
                return f"error: {error}"
            return f"{'error: ' if result.is_error else ''}{result.content[0].text}"

    return asyncio.run(run())


@pytest.fixture(scope="module")
def fastmcp(fastmcp_command: list[str]) -> dict[str, Any]:
    """What FastMCP does with such tools."""
    program = [fastmcp_command[0], "-W", "ignore", str(Path(__file__).with_name("fastmcp_facts.py"))]
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Asking


def test_turnwise_asks_in_three_forms_on_both_wires() -> None:
    for tool in ("inline", "returned", "declared"):
        for mode in ("2026-07-28", "2025-11-25"):
            assert outcome(turnwise, tool, mode) == "3"


def test_the_sdk_asks_inline_on_older_wires_only() -> None:
    assert "no back-channel" in outcome(sdk, "inline")
    assert outcome(sdk, "inline", "legacy") == "3"


def test_the_sdk_asks_by_returning_on_the_newest_wire_only() -> None:
    assert outcome(sdk, "returned") == "3"
    assert outcome(sdk, "returned", "legacy").startswith("error: ")


def test_the_sdk_asks_for_declared_parameters_on_both_wires() -> None:
    assert outcome(sdk, "declared") == outcome(sdk, "declared", "legacy") == "3"


def test_the_sdk_does_not_mix_forms() -> None:
    made = tools(sdk)

    async def mixed(n: Any) -> Any:
        return InputRequiredResult(request_state="x")

    mixed.__annotations__["n"] = Annotated[Number, sdk.Resolve(made.ask)]
    mixed.__annotations__["return"] = str | InputRequiredResult
    with pytest.raises(Exception, match="one input_required channel"):
        made.server.tool()(mixed)


def test_the_sdk_lets_templates_ask_and_no_other_resources() -> None:
    async def static(ctx: Any) -> str:
        return "x"

    static.__annotations__["ctx"] = sdk.Context
    with pytest.raises(ValueError, match="static resources"):
        sdk.MCPServer("facts").resource("facts://static")(static)


def test_fastmcp_asks_inline_on_older_wires_and_by_returning_on_the_newest(fastmcp: dict[str, Any]) -> None:
    assert fastmcp["protocol"] == "2026-07-28"
    assert fastmcp["inline"].startswith("error: ")
    assert fastmcp["inline on 2025-11-25"] == "3"
    assert fastmcp["returned"] == "3"
    assert fastmcp["returned on 2025-11-25"].startswith("error: ")


# Answers


def test_turnwise_asks_again_where_an_answer_does_not_fit() -> None:
    async def run() -> tuple[int, str]:
        given = ["three", 3]

        async def answer(connection: Any, params: Any) -> dict[str, Any]:
            return {"action": "accept", "content": {"value": given.pop(0)}}

        async with connect(tools(turnwise).server, elicitation_callback=answer) as client:
            result = await client.call_tool("declared")
            return len(client.rounds), result.content[0].text  # type: ignore[union-attr]

    assert asyncio.run(run()) == (3, "3")


def test_the_sdk_fails_where_an_answer_does_not_fit() -> None:
    assert "does not match the requested schema" in outcome(sdk, "declared", "auto", "three")


def test_fastmcp_hands_an_answer_that_does_not_fit_to_the_tool(fastmcp: dict[str, Any]) -> None:
    assert fastmcp["a wrong answer"] == "'three'"


# Tokens, steps, capabilities


def test_turnwise_gives_one_reply_for_a_token_where_it_is_told_to() -> None:
    made = tools(turnwise, single_use=True)

    async def run() -> list[Any]:
        async def answer(connection: Any, params: Any) -> dict[str, Any]:
            return {"action": "accept", "content": {"value": 3}}

        async with connect(made.server, elicitation_callback=answer) as client:
            await client.call_tool("declared")
            params = client.rounds[-1].request["params"]
            again = await client.request("tools/call", {key: params[key] for key in params if key != "_meta"})
            return [made.ran, again["content"][0]["text"]]

    assert asyncio.run(run()) == [["declared"], "3"]


def test_the_sdk_runs_a_tool_again_for_a_token_that_was_used() -> None:
    made = tools(sdk)

    async def run() -> None:
        async with mcp.Client(made.server, elicitation_callback=never) as client:
            first: Any = await client.session.call_tool("declared", {}, allow_input_required=True)
            given: Any = {key: ElicitResult(action="accept", content={"value": 3}) for key in first.input_requests}
            for _ in range(2):
                await client.session.call_tool(
                    "declared", {}, allow_input_required=True, request_state=first.request_state, input_responses=given
                )

    asyncio.run(run())
    assert made.ran == ["declared", "declared"]


async def never(context: Any, params: Any) -> ElicitResult:
    raise AssertionError("nobody is asked here")


def test_fastmcp_runs_a_tool_again_for_a_token_that_was_used(fastmcp: dict[str, Any]) -> None:
    assert fastmcp["runs of one token"] == 2


def test_only_turnwise_has_steps(fastmcp: dict[str, Any]) -> None:
    assert hasattr(turnwise.Context, "step")
    assert not hasattr(sdk.Context, "step")
    assert not fastmcp["has steps"]


def test_turnwise_asks_nothing_that_a_client_did_not_declare() -> None:
    async def run() -> list[int]:
        said = list[int]()
        async with connect(tools(turnwise).server) as client:
            for tool in ("inline", "returned", "declared"):
                with pytest.raises(turnwise.MCPError) as raised:
                    await client.call_tool(tool)
                said.append(raised.value.code)
        return said

    assert asyncio.run(run()) == [-32021] * 3


def test_the_sdk_asks_by_returning_what_a_client_did_not_declare() -> None:
    async def run() -> Any:
        async with mcp.Client(tools(sdk).server) as client:
            with pytest.raises(mcp.MCPError, match="did not declare"):
                await client.session.call_tool("declared", {}, allow_input_required=True)
            return await client.session.call_tool("returned", {}, allow_input_required=True)

    assert isinstance(asyncio.run(run()), InputRequiredResult)


def test_fastmcp_asks_by_returning_what_a_client_did_not_declare(fastmcp: dict[str, Any]) -> None:
    assert fastmcp["asked without the capability"] == "InputRequiredResult"


# The page


def test_every_test_in_the_comparison_is_there() -> None:
    page = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
    here = Path(__file__).read_text(encoding="utf-8")
    elsewhere = re.findall(r"\]\(\.\./(tests/\S+\.py)\) `(test_\w+)`", page)
    for path, name in elsewhere:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
    named = set(re.findall(r"`(test_\w+)`", page)) - {name for _, name in elsewhere}
    mine = set(re.findall(r"^def (test_\w+)\(", here, re.MULTILINE))
    assert mine - {"test_every_test_in_the_comparison_is_there"} == named
