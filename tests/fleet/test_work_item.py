"""The work item example on three processes, which are killed and started again in the middle of a flow.

A call takes four rounds: one that only gets its token, so that no effect comes before it, one that asks for the
resolution, one that asks for the original, and one that writes.
"""

import itertools
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import mcp.client
import pytest
from mcp import MCPError
from mcp_types import CallToolResult, InputRequiredResult

from tests.fleet.balancer import Passage
from tests.fleet.processes import AnyClient, Fleet, Person, accept, call, in_time, post, text_of
from turnwise import Client, ConnectionLost, Done, Pending
from turnwise.client import Begun

TOOL = "update_work_item"
ROUNDS = 4
RESOLUTION, ORIGINAL = "requires a resolution", "which work item is the original"
numbers = itertools.count(4522)


def resolved(number: int) -> dict[str, Any]:
    return {"workItemId": number, "fields": {"System.State": "Resolved"}}


def updated(number: int) -> str:
    return f"Bug #{number} updated: System.State = Resolved, resolution = Duplicate, duplicate_of = 4301"


@pytest.fixture
def person() -> Person:
    return Person({RESOLUTION: "Duplicate", ORIGINAL: 4301})


@pytest.fixture
def fleet(work_items: Fleet) -> Fleet:
    work_items.heal()
    work_items.balancer.begin()
    return work_items


# Rounds on whoever is there


def test_each_round_is_served_by_another_process(fleet: Fleet, client: AnyClient, person: Person) -> None:
    number = next(numbers)
    result = in_time(call(client, fleet.url, person, TOOL, resolved(number)))
    assert text_of(result) == updated(number)
    assert len(person.asked) == 2
    assert fleet.effects(number) == ["read", "write", "comment"]
    first, *others = fleet.balancer.route
    assert others == [(first + step) % 3 for step in (1, 2, 3)]


@pytest.mark.parametrize("position", range(2, ROUNDS + 1))
def test_a_process_that_is_killed_between_two_rounds_is_not_missed(
    fleet: Fleet, client: AnyClient, person: Person, position: int
) -> None:
    """Who served the last round is killed, and who is next in turn has only just been started."""
    killed: list[int] = []

    def kill(passage: Passage) -> None:
        if passage.number == position:
            last = fleet.balancer.calls[-2].instance
            heir = fleet.instances[(last + 1) % 3]
            killed.extend((fleet.instances[last].pid, heir.pid))
            fleet.instances[last].kill()
            heir.kill()
            heir.start()
            heir.await_listener()

    fleet.balancer.before = kill
    number = next(numbers)
    result = in_time(call(client, fleet.url, person, TOOL, resolved(number)))
    assert text_of(result) == updated(number)
    assert person.asked == [
        f"Resolving Bug #{number} requires a resolution. How was it resolved?",
        f"Since Bug #{number} is a duplicate, which work item is the original?",
    ]
    assert fleet.effects(number) == ["read", "write", "comment"]
    assert len(fleet.balancer.calls) == ROUNDS
    assert fleet.who(number)[-1] not in killed


def test_the_rounds_are_those_of_the_proposal(fleet: Fleet) -> None:
    number = next(numbers)
    ports = [instance.port for instance in fleet.instances]
    opened = post(ports[0], TOOL, resolved(number))
    assert (opened["resultType"], opened["inputRequests"]) == ("input_required", {})
    assert fleet.effects(number) == []
    first = post(ports[1], TOOL, resolved(number), requestState=opened["requestState"])
    assert list(first["inputRequests"]) == ["resolution"]
    asked = first["inputRequests"]["resolution"]
    assert asked["method"] == "elicitation/create"
    schema = asked["params"]["requestedSchema"]
    assert schema["properties"]["value"]["enum"] == ["Fixed", "Won't Fix", "Duplicate", "By Design"]
    answers = {"resolution": accept("Duplicate")}
    second = post(ports[2], TOOL, resolved(number), inputResponses=answers, requestState=first["requestState"])
    assert list(second["inputRequests"]) == ["duplicate_of"]
    answers = {"duplicate_of": accept(4301)}
    last = post(ports[0], TOOL, resolved(number), inputResponses=answers, requestState=second["requestState"])
    assert (last["resultType"], last["content"][0]["text"]) == ("complete", updated(number))


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"System.State": "Active"}, {}),
        ({"System.State": "Resolved", "resolution": "Fixed"}, {}),
        ({"System.State": "Resolved"}, {RESOLUTION: "Won't Fix", "not be fixed": "no time"}),
        ({"resolution": "Duplicate"}, {ORIGINAL: 7}),
    ],
)
def test_the_rules_decide_what_is_asked(fleet: Fleet, fields: dict[str, str], answers: dict[str, Any]) -> None:
    number = next(numbers)
    person = Person(answers)
    result = in_time(call(Client, fleet.url, person, TOOL, {"workItemId": number, "fields": fields}))
    assert len(person.asked) == len(answers)
    assert all(str(value) in text_of(result) for value in (*fields.values(), *answers.values()))
    assert fleet.effects(number) == ["read", "write", "comment"]


# Replies that are lost


async def with_turnwise(fleet: Fleet, number: int) -> CallToolResult:
    """A call in hand: where the line broke, what was last in hand is sent again."""
    answers = {"resolution": accept("Duplicate"), "duplicate_of": accept(4301)}
    outcome: Begun | None = None
    async with Client(fleet.url) as client:
        while not isinstance(outcome, Done):
            try:
                if outcome is None:
                    outcome = await client.begin(TOOL, resolved(number))
                else:
                    assert isinstance(outcome, Pending)
                    outcome = await client.resume(outcome, {key: answers[key] for key in outcome.requests})
            except ConnectionLost:
                continue
    result: CallToolResult = outcome.result
    return result


async def with_the_official_client(fleet: Fleet, number: int) -> CallToolResult:
    """The loop driven by hand: a broken line ends this client, and another one sends the same round again."""
    person = Person({RESOLUTION: "Duplicate", ORIGINAL: 4301})
    answers: Any = None
    state: str | None = None
    result: Any = None
    while not isinstance(result, CallToolResult):
        try:
            async with mcp.client.Client(fleet.url, elicitation_callback=person.elicit) as client:
                result = await client.session.call_tool(
                    TOOL, resolved(number), input_responses=answers, request_state=state, allow_input_required=True
                )
        except* (httpx2.TransportError, MCPError):
            result = None
        if isinstance(result, InputRequiredResult):
            state = result.request_state
            requests = (result.input_requests or {}).items()
            answers = {key: await person.elicit(None, request.params) for key, request in requests}
    return result


@pytest.mark.parametrize("drive", [with_turnwise, with_the_official_client])
@pytest.mark.parametrize("lost", range(1, ROUNDS + 1))
def test_a_reply_that_is_lost_is_asked_for_again_and_no_effect_is_doubled(
    fleet: Fleet, drive: Callable[[Fleet, int], Awaitable[CallToolResult]], lost: int
) -> None:
    fleet.balancer.lost = {lost}
    number = next(numbers)

    async def work() -> CallToolResult:
        return await drive(fleet, number)

    assert text_of(in_time(work())) == updated(number)
    effects = fleet.effects(number)
    assert [effect for effect in effects if effect != "read"] == ["write", "comment"]
    # A reading that is not on record anywhere but in the lost reply is done again: it is no effect.
    assert effects.count("read") <= 2
    assert len(fleet.balancer.calls) > ROUNDS


def test_the_process_that_wrote_may_die_with_its_reply(fleet: Fleet) -> None:
    def die(passage: Passage) -> None:
        if passage.number == ROUNDS:
            fleet.instances[passage.instance].kill()

    fleet.balancer.after, fleet.balancer.lost = die, {ROUNDS}
    number = next(numbers)
    assert text_of(in_time(with_turnwise(fleet, number))) == updated(number)
    assert fleet.effects(number) == ["read", "write", "comment"]


def test_a_lost_first_reply_of_a_call_that_asks_nothing_doubles_nothing(fleet: Fleet) -> None:
    """No token was there yet, so the second request begins another flow; the first had done nothing."""
    fleet.balancer.lost = {1, 3}
    number = next(numbers)

    async def work() -> CallToolResult:
        async with Client(fleet.url) as client:
            state: str | None = None
            while True:
                params: dict[str, Any] = {"name": TOOL, "arguments": {"workItemId": number, "fields": {"a": "b"}}}
                try:
                    result = await client.request("tools/call", params | ({"requestState": state} if state else {}))
                except ConnectionLost:
                    continue
                if result["resultType"] == "complete":
                    return CallToolResult.model_validate(result)
                state = result["requestState"]

    assert text_of(in_time(work())) == f"Bug #{number} updated: a = b"
    assert fleet.effects(number).count("write") == fleet.effects(number).count("comment") == 1
    assert fleet.balancer.calls[0].is_state_only
    assert fleet.balancer.calls[1].is_state_only


def test_a_round_that_is_sent_to_everybody_at_once_is_carried_out_by_one(fleet: Fleet) -> None:
    number = next(numbers)
    arguments = {"workItemId": number, "fields": {"resolution": "Fixed"}}
    state = post(fleet.instances[0].port, TOOL, arguments)["requestState"]
    ports = [instance.port for instance in fleet.instances] * 3
    with ThreadPoolExecutor(len(ports)) as pool:
        results = list(pool.map(lambda port: post(port, TOOL, arguments, requestState=state), ports))
    assert {result["content"][0]["text"] for result in results} == {f"Bug #{number} updated: resolution = Fixed"}
    assert fleet.effects(number).count("write") == fleet.effects(number).count("comment") == 1


def test_an_old_token_with_another_answer_does_not_write_again(fleet: Fleet) -> None:
    """The flow was finished as fixed. Its question, answered otherwise now, brings back no effect."""
    number = next(numbers)
    ports = [instance.port for instance in fleet.instances]
    state = post(ports[0], TOOL, resolved(number))["requestState"]
    state = post(ports[1], TOOL, resolved(number), requestState=state)["requestState"]
    answers = {"resolution": accept("Fixed")}
    done = post(ports[2], TOOL, resolved(number), inputResponses=answers, requestState=state)
    assert "resolution = Fixed" in done["content"][0]["text"]
    fleet.expected.add("ReplayMismatch")
    answers = {"resolution": accept("By Design")}
    again = post(ports[0], TOOL, resolved(number), inputResponses=answers, requestState=state)
    assert again["isError"]
    assert "By Design" not in again["content"][0]["text"]
    assert fleet.effects(number).count("write") == fleet.effects(number).count("comment") == 1
