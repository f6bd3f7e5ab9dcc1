"""Turnwise's client, unmodified, with what only a server of the official TypeScript SDK does."""

import pytest

from tests.interop.visiting import TYPESCRIPT, Museum, Visitor, answer_with, finished, text_of, through_json
from turnwise import Client, MCPError

pytestmark = pytest.mark.parametrize("museum", TYPESCRIPT, indirect=True, scope="session")

INVALID_PARAMS, CAPABILITY_MISSING = -32602, -32021
NEEDS = {
    "donate": {"elicitation": {"form": {}}},
    "membership": {"elicitation": {"url": {}}},
    "maze": {"elicitation": {"form": {}}},
    "folders": {"roots": {}},
}


def test_a_static_resource_asks(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        assert text_of(await client.read_resource("museum://diary")) == 'Diary: {"page":7.5}'
        assert text_of(await client.read_resource("museum://diary")) == "Diary: decline"

    visitor = museum.converse(flow, {"page": 7.5}, "decline")
    assert visitor.messages == ["Which page?", "Which page?"]
    assert visitor.asked[0].target == "museum://diary"


def test_a_static_resource_waits_for_its_answer(museum: Museum) -> None:
    async def flow(_: Client, visitor: Visitor) -> None:
        async with museum.desk() as client:
            pending = through_json(await client.begin_resource("museum://diary"))
            seen = await client.resume(pending, {"page": answer_with({"page": 1})})
        assert text_of(finished(seen)) == 'Diary: {"page":1}'

    museum.converse(flow)


def test_a_schema_of_zod_reaches_the_form(museum: Museum) -> None:
    museum.call("donate", {}, {"euros": 5})
    [form] = museum.visitor.forms
    assert form.requested_schema["required"] == ["euros"]
    assert form.requested_schema["properties"]["euros"]["type"] == "integer"


def test_a_state_is_refused_by_another_method_than_it_was_made_for(museum: Museum) -> None:
    """The state is signed, not sealed: whoever carries it can read it, and nobody can change it."""

    async def flow(client: Client, visitor: Visitor) -> None:
        asked = await client.request("prompts/get", {"name": "guide", "arguments": {"room": "hall"}})
        with pytest.raises(MCPError) as refused:
            await client.request("tools/call", {"name": "quiz", "arguments": {}, "requestState": asked["requestState"]})
        assert (refused.value.code, refused.value.data) == (INVALID_PARAMS, {"reason": "invalid_request_state"})

    museum.converse(flow)


def test_no_question_is_sent_to_a_client_that_cannot_answer_it(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with Client(museum.target) as silent:
            for tool, needed in NEEDS.items():
                with pytest.raises(MCPError) as refused:
                    await silent.call_tool(tool)
                assert refused.value.code == CAPABILITY_MISSING
                assert refused.value.data == {"requiredCapabilities": needed}

    museum.converse(flow)


def test_resources_are_listed_page_by_page(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        first = await client.list_resources()
        assert [str(resource.uri) for resource in first.resources] == ["museum://hours"]
        second = await client.list_resources(cursor=first.next_cursor)
        assert [str(resource.uri) for resource in second.resources] == ["museum://plan"]
        every = [resource.name async for resource in client.iter_resources()]
        assert every == ["hours", "plan", "diary"]

    museum.converse(flow)


def test_an_unknown_tool_is_an_error_of_the_protocol(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        with pytest.raises(MCPError, match="nothing_of_the_kind") as unknown:
            await client.call_tool("nothing_of_the_kind")
        assert unknown.value.code == INVALID_PARAMS

    museum.converse(flow)
