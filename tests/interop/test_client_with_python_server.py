"""Turnwise's client, unmodified, with what only a server of the official Python SDK does."""

from typing import Any

import pytest
from mcp_types import PromptReference, ResourceTemplateReference

from tests.interop.visiting import PAPERS, PYTHON, Museum, Visitor, answer_with, finished, roots, text_of, through_json
from turnwise import Client, MCPError, Unanswerable

pytestmark = pytest.mark.parametrize("museum", PYTHON, indirect=True, scope="session")

LANGUAGE = "Which language in the hall?"
INVALID_PARAMS, CAPABILITY_MISSING = -32602, -32021


# The declared form


def test_a_declared_parameter_is_asked_for(museum: Museum) -> None:
    assert museum.call("tour", {"room": "hall"}, {"language": "nb"}) == "hall in nb"
    [form] = museum.visitor.forms
    assert form.message == LANGUAGE
    assert form.requested_schema["properties"]["language"]["enum"] == ["it", "nb", "lv"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declared_parameter_that_is_not_given_is_an_error_of_the_tool(museum: Museum, action: str) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        refused = await client.call_tool("tour", {"room": "hall"})
        assert refused.is_error

    assert museum.converse(flow, action).messages == [LANGUAGE]


def test_a_parameter_that_needs_another_is_asked_for_in_the_next_round(museum: Museum) -> None:
    assert museum.call("visit", {"room": "hall"}, {"language": "lv"}, {"floor": 2}) == "hall in lv on floor 2"
    assert museum.visitor.messages == [LANGUAGE, "Which floor, in lv?"]
    assert [asking.round for asking in museum.visitor.asked] == [1, 2]


def test_declared_parameters_of_three_kinds_are_asked_for_in_one_round(museum: Museum) -> None:
    said = museum.call("exhibit", {"room": "hall"}, {"language": "it"})
    assert said == f"hall in it; <A caption for the hall>; {PAPERS}"
    assert {asking.round for asking in museum.visitor.asked} == {1}
    [sample] = museum.visitor.samples
    assert (sample.max_tokens, sample.system_prompt, sample.temperature) == (20, "Be brief.", 0.5)


def test_a_call_with_declared_parameters_waits_and_is_finished_by_another_client(museum: Museum) -> None:
    tag = {"role": "assistant", "content": {"type": "text", "text": "Rain"}, "model": "model-2"}

    async def flow(_: Client, visitor: Visitor) -> None:
        async with museum.desk() as client:
            visit, exhibit = [await client.begin(tool, {"room": "hall"}) for tool in ("visit", "exhibit")]
        async with museum.desk() as other:
            for answer in ({"language": "it"}, {"floor": 0}):
                [key] = through_json(visit).unanswered
                visit = await other.resume(through_json(visit), {key: answer_with(answer)})
            keys = {question.method: key for key, question in through_json(exhibit).questions.items()}
            answers: dict[str, Any] = {
                keys["elicitation/create"]: answer_with({"language": "it"}),
                keys["roots/list"]: roots(),
                keys["sampling/createMessage"]: tag,
            }
            exhibit = await other.resume(through_json(exhibit), answers)
        assert text_of(finished(visit)) == "hall in it on floor 0"
        assert text_of(finished(exhibit)) == f"hall in it; Rain; {PAPERS}"

    assert museum.converse(flow).asked == []


# What the SDK leaves to its users, or does in its own way


def test_a_returned_question_that_nobody_can_answer_ends_the_call(museum: Museum) -> None:
    """The SDK sends it to a client that declared nothing; only declared parameters are held back."""

    async def flow(client: Client, visitor: Visitor) -> None:
        async with Client(museum.target) as silent:
            with pytest.raises(Unanswerable) as unanswerable:
                await silent.call_tool("quiz")
            assert (unanswerable.value.key, unanswerable.value.method) == ("question-0", "elicitation/create")
            with pytest.raises(MCPError) as refused:
                await silent.call_tool("tour", {"room": "hall"})
            assert refused.value.code == CAPABILITY_MISSING

    museum.converse(flow)


def test_a_state_is_refused_with_other_arguments_than_it_was_made_for(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        asked = await client.request("tools/call", {"name": "cloakroom", "arguments": {"bags": 1}})
        again = {"name": "cloakroom", "arguments": {"bags": 9}, "requestState": asked["requestState"]}
        with pytest.raises(MCPError) as refused:
            await client.request("tools/call", again)
        assert refused.value.code == INVALID_PARAMS

    museum.converse(flow)


def test_a_call_that_the_server_refuses_is_not_begun_anew(museum: Museum) -> None:
    """Only a state that is not taken is worth it, which the SDK tells by its data: `invalid_request_state`."""

    async def flow(client: Client, visitor: Visitor) -> None:
        before = int(text_of(await client.call_tool("times", {"method": "raffle"})))
        with pytest.raises(MCPError, match="did not win") as refused:
            await client.call_tool("raffle")
        assert refused.value.code == INVALID_PARAMS
        assert int(text_of(await client.call_tool("times", {"method": "raffle"}))) - before == 2

    museum.converse(flow, {"luck": True})


def test_tools_are_listed_page_by_page(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        names: list[str] = []
        first = page = await client.list_tools()
        while page.next_cursor is not None:
            assert len(page.tools) == 10
            names += [tool.name for tool in page.tools]
            page = await client.list_tools(cursor=page.next_cursor)
        names += [tool.name for tool in page.tools]
        assert first.next_cursor == "10"
        assert names == [tool.name async for tool in client.iter_tools()]

    museum.converse(flow)


def test_an_unknown_tool_is_an_error_of_the_tool(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        unknown = await client.call_tool("nothing_of_the_kind")
        assert (unknown.is_error, text_of(unknown)) == (True, "Unknown tool: nothing_of_the_kind")

    museum.converse(flow)


def test_a_completion_says_how_much_there_is(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        template = ResourceTemplateReference(uri="museum://room/{name}")
        found = (await client.complete(template, {"name": "name", "value": "ha"})).completion
        assert (found.values, found.total, found.has_more) == (["hall"], 7, True)
        prompt = PromptReference(name="guide")
        assert (await client.complete(prompt, {"name": "room", "value": "Ro"})).completion.total is None

    museum.converse(flow)
