"""Calls that Turnwise's client puts down at a question and others pick up, with the museums of both official SDKs."""

from dataclasses import replace

import pytest
from mcp_types import ElicitRequest

from tests.interop.visiting import (
    PAPERS,
    PYTHON,
    TYPESCRIPT,
    Museum,
    Visitor,
    answer_with,
    finished,
    roots,
    text_of,
    through_json,
)
from turnwise import Client, MCPError
from turnwise.client import Begun

pytestmark = pytest.mark.parametrize("museum", [*PYTHON, *TYPESCRIPT], indirect=True, scope="session")

QUIZ = ["Who painted it?", "In which year?", "In which town?"]
THREE = {"action": "accept", "content": {"visitors": 3}}


def test_a_call_begun_by_one_client_is_finished_by_another(museum: Museum) -> None:
    async def flow(_: Client, visitor: Visitor) -> None:
        async with museum.desk() as client:
            outcome: Begun = await client.begin("quiz")
        async with museum.desk() as other:
            for number, answer in enumerate(["Ada", "1632", "Oslo"]):
                pending = through_json(outcome)
                [(key, question)] = pending.questions.items()
                assert isinstance(question, ElicitRequest)
                assert (key, question.params.message) == (f"question-{number}", QUIZ[number])
                outcome = await other.resume(pending, {key: answer_with({"answer": answer})})
        assert text_of(finished(outcome)) == "Ada, 1632, Oslo"

    assert museum.converse(flow).asked == []


def test_every_kind_of_question_waits_and_each_is_answered_in_its_own_time(museum: Museum) -> None:
    async def flow(_: Client, visitor: Visitor) -> None:
        tag = {"role": "assistant", "content": {"type": "text", "text": "no. 7"}, "model": "model-2"}
        async with museum.desk() as client:
            pending = through_json(await client.begin("cloakroom", {"bags": 3}))
            assert set(pending.unanswered) == {"label", "a tag, ", "Ämter/1"}
            pending = through_json(pending.answered({"label": {"action": "accept", "content": {"label": "Ada"}}}))
            pending = through_json(await client.resume(pending, {"Ämter/1": roots()}))
            assert pending.unanswered == ("a tag, ",)
            labelled = await client.resume(pending, {"a tag, ": tag})
            assert text_of(finished(labelled)) == f'3 bags: {{"label":"Ada"}}; no. 7; {PAPERS}'

            prompt = through_json(await client.begin_prompt("guide", {"room": "hall"}))
            guided = await client.resume(prompt, {"party": THREE})
            assert text_of(finished(guided)) == 'Guide {"visitors":3} through the hall, please'

            resource = through_json(await client.begin_resource("museum://room/hall"))
            seen = await client.resume(resource, {"party": THREE, "roots": roots()})
            assert text_of(finished(seen)) == f'hall: {{"visitors":3}}; {PAPERS}'

            page = through_json(await client.begin("membership"))
            joined = await client.resume(page, {"page": answer_with("accept")})
            assert text_of(finished(joined)) == "flow 1: accept"

    assert museum.converse(flow).asked == []


def test_a_call_waits_only_for_what_no_callback_answers(museum: Museum) -> None:
    async def flow(_: Client, visitor: Visitor) -> None:
        async with museum.another(elicitation_callback=None) as client:
            pending = through_json(await client.begin("cloakroom", {"bags": 3}))
            assert (set(pending.questions), pending.unanswered) == ({"label", "a tag, ", "Ämter/1"}, ("label",))
            outcome = await client.resume(pending, {"label": answer_with("decline")})
            assert text_of(finished(outcome)) == f"3 bags: decline; <A tag>; {PAPERS}"

            done = finished(await client.begin("price", {"adults": 1}))
            assert done.structured_content == {"total": 12, "currency": "EUR"}
            assert text_of(finished(await client.begin("queue"))) == "Your turn"

    assert {asking.key for asking in museum.converse(flow).asked} == {"a tag, ", "Ämter/1"}


def test_a_call_whose_state_is_no_longer_taken_begins_anew_with_the_answers_that_were_given(museum: Museum) -> None:
    async def flow(_: Client, visitor: Visitor) -> None:
        async with museum.desk() as client:
            pending = through_json(await client.begin("quiz"))
            pending = through_json(await client.resume(pending, {"question-0": answer_with({"answer": "Ada"})}))
            expired = replace(pending, state="v1.expired.state")
            pending = through_json(await client.resume(expired, {"question-1": answer_with({"answer": "1632"})}))
            assert pending.unanswered == ("question-2",)
            outcome = await client.resume(pending, {"question-2": answer_with({"answer": "Oslo"})})
            assert text_of(finished(outcome)) == "Ada, 1632, Oslo"

    museum.converse(flow)


def test_a_state_that_the_server_did_not_mint_is_refused(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        with pytest.raises(MCPError, match="requestState") as refused:
            await client.request("tools/call", {"name": "quiz", "arguments": {}, "requestState": "v1.forged.state"})
        assert refused.value.code == -32602

    museum.converse(flow)
