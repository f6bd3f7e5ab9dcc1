"""The id of a turn's last event: good for its own call at its own service, and not a letter of it can be changed."""

from typing import Any

import aiohttp
import pytest

from tests.wires.clients import CAPABILITIES, MULTI_TURN, Http, Wire, in_time, opened
from tests.wires.people import Person
from tests.wires.serving import serving
from turnwise import Context, MCPServer, RequestStateSecurity

KEY, OTHER_KEY = "a key that some services share with each other", "a key that nobody else has but this service"
UNKNOWN = {"code": -32602, "message": "Last-Event-ID names no turn of this server"}
FROZEN = {"code": -32602, "message": "Invalid or expired requestState"}


async def row(city: str, ctx: Context) -> str:
    answer = await ctx.elicit(f"Which row to {city}?", int, key="row")
    return f"{city}: {answer.data if answer.action == 'accept' else 'any'}"


def service(name: str, key: str) -> MCPServer:
    server = MCPServer(name, dialects=[MULTI_TURN], request_state_security=RequestStateSecurity(keys=[key]))
    server.add_tool(row, structured_output=False)
    return server


async def turn(wire: Wire) -> str:
    """A turn that waits for its answer."""
    call = wire.message("tools/call", {"name": "row", "arguments": {"city": "Rome"}})
    events = [event async for event in wire.channel.exchange(call, wire.headers)]
    assert [event.kind for event in events] == ["buffer_input", "message", "input_required"]
    return events[-1].id


async def answered(wire: Wire, last: str) -> dict[str, Any]:
    given = [{"jsonrpc": "2.0", "id": "row", "result": Person().answer(question)}]
    return await wire.one(given, {**wire.headers, "Last-Event-ID": last})


question = {
    "method": "elicitation/create",
    "params": {"message": "Which row?", "requestedSchema": {"properties": {"value": {"type": "integer"}}}},
}


def test_an_id_that_was_changed_in_any_place_is_none() -> None:
    async def run(port: int) -> None:
        async with aiohttp.ClientSession() as http:
            wire = await opened(Http(http, f"http://127.0.0.1:{port}/mcp"), MULTI_TURN)
            last = await turn(wire)
            for place in [*range(0, len(last), 29), len(last) - 1]:
                changed = last[:place] + ("A" if last[place] != "A" else "B") + last[place + 1 :]
                assert (await answered(wire, changed))["error"] == UNKNOWN
            for cut in (last[:-1], last[:40], last + "A", last.swapcase()):
                assert (await answered(wire, cut))["error"] == UNKNOWN
            assert (await answered(wire, last))["result"]["content"][0]["text"] == "Rome: 36"

    with serving(service("rows", KEY).asgi()) as port:
        in_time(run(port))


@pytest.mark.parametrize(
    ("name", "key", "error"), [("rows", OTHER_KEY, UNKNOWN), ("other rows", KEY, FROZEN)], ids=["key", "name"]
)
def test_an_id_of_another_service_is_none(name: str, key: str, error: dict[str, Any]) -> None:
    async def run(here: int, there: int) -> None:
        async with aiohttp.ClientSession() as http:
            mine, theirs = [
                await opened(Http(http, f"http://127.0.0.1:{port}/mcp"), MULTI_TURN) for port in (here, there)
            ]
            assert (await answered(mine, await turn(theirs)))["error"] == error

    with serving(service("rows", KEY).asgi()) as here, serving(service(name, key).asgi()) as there:
        in_time(run(here, there))


def test_what_was_sealed_for_something_else_is_no_turn_and_a_turn_is_no_session() -> None:
    async def run(port: int) -> None:
        async with aiohttp.ClientSession() as http:
            channel = Http(http, f"http://127.0.0.1:{port}/mcp")
            wire = await opened(channel, MULTI_TURN)
            last, session = await turn(wire), channel.session_id
            assert session is not None
            assert (await answered(wire, session))["error"] == UNKNOWN
            channel.session_id = last
            refused = await answered(wire, last)
            assert refused["error"]["code"] == -32600
            assert "Session not found" in refused["error"]["message"]

    with serving(service("rows", KEY).asgi()) as port:
        in_time(run(port))


@pytest.mark.parametrize("capabilities", ["all", 7, ["elicitation"], None])
def test_capabilities_of_the_wrong_kind_are_the_clients_mistake(capabilities: Any) -> None:
    async def run(port: int) -> dict[str, Any]:
        async with aiohttp.ClientSession() as http:
            wire = Wire(Http(http, f"http://127.0.0.1:{port}/mcp"), MULTI_TURN)
            meta = {"io.modelcontextprotocol/clientCapabilities": capabilities}
            call = {"name": "row", "arguments": {"city": "Rome"}, "_meta": meta}
            return await wire.one(wire.message("tools/call", call), wire.headers)

    with serving(service("rows", KEY).asgi()) as port:
        reply = in_time(run(port))
    assert reply["error"]["code"] == -32602
    assert "clientCapabilities must be an object" in reply["error"]["message"]


def test_a_client_that_opened_without_forms_is_not_asked_for_one() -> None:
    async def run(port: int) -> dict[str, Any]:
        async with aiohttp.ClientSession() as http:
            without = {name: part for name, part in CAPABILITIES.items() if name != "elicitation"}
            wire = await opened(Http(http, f"http://127.0.0.1:{port}/mcp"), MULTI_TURN, without)
            return await wire.call("tools/call", {"name": "row", "arguments": {"city": "Rome"}}, Person().answer)

    with serving(service("rows", KEY).asgi()) as port:
        assert "elicitation" in in_time(run(port))["error"]["message"]
