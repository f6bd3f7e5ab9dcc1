"""Each leg in a process that has seen none of the others, with another hash seed: a flow is all in its token.

Here are the servers that are scripts: those of the transcripts, of the examples, of the conformance suite and of the
official client's flows, and the random tools of the replay machine. What counts as a fresh process is in `zygotes.py`.
The flows of tests whose servers are closures are in `test_relayed_flows.py`.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.client.stdio import StdioServerParameters

from tests.fleet.processes import EXAMPLES, KEY, META, accept
from tests.fleet.spread import exchange
from tests.fleet.zygotes import PYTHONPATH, ROOT, SEEDS, Zygotes, zygotes
from tests.interop import test_python_client as official
from tests.properties import test_replay_machine as machine
from tests.transcripts import test_transcripts as transcripts
from turnwise import StepFailed, ToolError

TAGGING = r"""
import os
from turnwise import Context, MCPServer
server = MCPServer("tags")

async def save(tags: set[str]) -> int:
    return len(tags)

@server.tool()
async def tag(tags: set[str], ctx: Context) -> str:
    count = await ctx.step(save, tags)
    sure = await ctx.elicit("Sure?", bool, key="sure")
    return f"{count} {sure.data}"
"""
EVERYTHING = {**META, "io.modelcontextprotocol/clientCapabilities": machine.EVERYTHING | {"roots": {}}}
Json = dict[str, Any]


class Legs:
    """The flows of one server, a process for each leg."""

    def __init__(self, found: Zygotes) -> None:
        self._zygotes = found
        self._turn = 0
        self.addresses = found.addresses

    def exchange(self, message: Json) -> Json:
        self._turn += 1
        with self._zygotes.connect(self._turn) as connection:
            reply: Json = json.loads(exchange(connection, json.dumps(message).encode()))
            return reply

    def send(self, method: str, params: Json) -> Json:
        """The result of one round."""
        reply = self.exchange({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": EVERYTHING, **params}})
        result: Json = reply["result"]
        return result

    def call(self, tool: str, arguments: Json, **members: Any) -> Json:
        return self.send("tools/call", {"name": tool, "arguments": arguments, **members})


Place = Callable[..., Legs]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Makes the legs of a script."""
    with ExitStack() as stack:
        yield lambda script, **more: Legs(stack.enter_context(zygotes("tests.fleet.spread", str(script), **more)))


# Transcripts and examples


@pytest.fixture(scope="module")
def scripted(place: Place) -> Legs:
    return place(transcripts.SERVER)


@pytest.mark.parametrize("transcript", transcripts.TRANSCRIPTS, ids=lambda transcript: transcript.title)
def test_transcript(transcript: transcripts.Transcript, scripted: Legs) -> None:
    transcripts.test_transcript(transcript, scripted.exchange)


def test_the_booking_example(place: Place) -> None:
    legs = place(EXAMPLES / "booking.py")
    asked = legs.call("book", {"flight": "TW 1"})
    [key] = asked["inputRequests"]
    answers = {key: {"action": "accept", "content": {"row": 12}}}
    done = legs.call("book", {"flight": "TW 1"}, inputResponses=answers, requestState=asked["requestState"])
    assert done["content"][0]["text"] == "Booked row 12 on TW 1."


def test_the_work_item_example(place: Place, tmp_path: Path) -> None:
    log = tmp_path / "effects.log"
    names = {"WORK_ITEM_KEY": KEY, "WORK_ITEM_STORE": str(tmp_path / "guards.db"), "WORK_ITEM_LOG": str(log)}
    legs = place(EXAMPLES / "work_item.py", **names)
    arguments = {"workItemId": 4522, "fields": {"System.State": "Resolved"}}
    result = legs.call("update_work_item", arguments)
    for answers in ({}, {"resolution": accept("Duplicate")}, {"duplicate_of": accept(4301)}):
        state = result["requestState"]
        result = legs.call("update_work_item", arguments, inputResponses=answers, requestState=state)
    assert result["content"][0]["text"].endswith("resolution = Duplicate, duplicate_of = 4301")
    effects = [line.split() for line in log.read_text().splitlines()]
    assert [effect for _, effect, _ in effects] == ["read", "write", "comment"]
    assert len({pid for pid, _, _ in effects}) == 2


def test_a_step_is_known_again_by_a_set_that_it_was_given(place: Place, tmp_path: Path) -> None:
    """A process may hold the members of a set in any order."""
    script = tmp_path / "tagging.py"
    script.write_text(TAGGING)
    legs = place(script)
    tags = {"tags": ["red", "green", "blue", "grey", "black", "white"]}
    asked = legs.call("tag", tags)
    answers = {"sure": accept(True)}
    for _ in range(2):
        done = legs.call("tag", tags, inputResponses=answers, requestState=asked["requestState"])
        assert done["content"][0]["text"] == "6 True"


# The server of the conformance suite

SAID = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}}
ROOTS = {"roots": [{"uri": "file:///home/ada"}]}
ADA = {"action": "accept", "content": {"name": "Ada"}}
NAME = "What is your name?"
# A tool, the answers of each round by key, or by message where the key is not the author's, and what is said at last.
CONFORMANCE: dict[str, tuple[list[Json], str]] = {
    "test_streaming_elicitation": ([{NAME: ADA}], "Hello, Ada!"),
    "test_input_required_result_elicitation": ([{"user_name": ADA}], "Hello, Ada!"),
    "test_missing_capability": ([{"capital_question": SAID}], "The model said: "),
    "test_input_required_result_sampling": ([{"capital_question": SAID}], "The model said: "),
    "test_input_required_result_list_roots": ([{"client_roots": ROOTS}], "Roots: file:///home/ada"),
    "test_input_required_result_request_state": ([{"confirm": accept(True)}], "state-ok"),
    "test_input_required_result_tampered_state": ([{"confirm": accept(True)}], "state-ok"),
    "test_input_required_result_multiple_inputs": (
        [{"user_name": ADA, "greeting": SAID, "client_roots": ROOTS}],
        "Ada of 1 roots",
    ),
    "test_input_required_result_multi_round": (
        [{"step1": ADA}, {"step2": {"action": "accept", "content": {"color": "red"}}}],
        "Ada likes red.",
    ),
    "test_input_required_result_capabilities": ([{"user_name": ADA}], "Ada"),
    "test_input_required_result_prompt": (
        [{"user_context": {"action": "accept", "content": {"context": "spring"}}}],
        "Use this context: spring",
    ),
}


@pytest.fixture(scope="module")
def everything(place: Place) -> Legs:
    return place(ROOT / "tests/conformance/everything_server.py")


@pytest.mark.parametrize("name", CONFORMANCE)
def test_a_flow_of_the_conformance_server(everything: Legs, name: str) -> None:
    rounds, said = CONFORMANCE[name]
    method = "prompts/get" if name.endswith("_prompt") else "tools/call"
    result = everything.send(method, {"name": name})
    for answers in rounds:
        asked = {
            key: key if key in answers else ask["params"]["message"] for key, ask in result["inputRequests"].items()
        }
        members = {"inputResponses": {key: answers[known] for key, known in asked.items()}}
        if "requestState" in result:
            members["requestState"] = result["requestState"]
        result = everything.send(method, {"name": name, **members})
    told = result["messages"][0]["content"] if "messages" in result else result["content"][0]
    assert not result.get("isError")
    assert told["text"].startswith(said)


def test_every_tool_of_the_conformance_server_that_asks_is_there(everything: Legs) -> None:
    tools = [tool["name"] for tool in everything.send("tools/list", {})["tools"]]
    prompts = [prompt["name"] for prompt in everything.send("prompts/list", {})["prompts"]]
    asking = {name for name in tools + prompts if name.startswith("test_input_required_result")}
    assert asking <= CONFORMANCE.keys()


# The flows of the official client


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def desk(place: Place, portal: BlockingPortal) -> Iterator[official.Desk]:
    legs = place(ROOT / "tests/interop/server.py")
    for _ in SEEDS:  # Until each of them is there.
        legs.send("tools/list", {})
    command = ["-m", "tests.fleet.spread", "over", "stdio", *legs.addresses]
    target = StdioServerParameters(command=sys.executable, args=command, env={"PYTHONPATH": PYTHONPATH})
    person = official.Person()
    with portal.wrap_async_context_manager(official.client_of(target, person)) as client:
        yield official.Desk(target, portal, client, person)


APART = {
    "test_a_listener_hears_of_changed_lists": "who listens and what changes meet in one process",
    "test_a_listener_hears_only_of_the_resources_it_named": "as above",
    "test_a_listener_is_told_when_the_server_stops": "as above",
    "test_a_client_of_the_handshake_is_served_as_well": "a session is kept by one process",
    "test_a_cancelled_call_is_cancelled_on_the_server": "a call is cancelled where it runs",
}
# The tests of the other module, at this module's desk.
globals().update({name: test for name, test in vars(official).items() if name[:5] == "test_" and name not in APART})


def test_the_tests_that_are_left_out_are_there() -> None:
    assert APART.keys() <= vars(official).keys()
    assert official.test_three_rounds_build_on_each_other_and_a_step_is_taken_once.__name__ in globals()


# Random tools

PROGRAMS = st.builds(
    lambda first, rest, last: (*first, *rest, last), machine.blocks(1), machine.blocks(2), machine.QUESTIONS
)
GOOD = st.lists(st.integers(0, machine.DECLINED), min_size=1, max_size=4)
CALM = settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


def test_a_random_tool_does_what_it_would_do_if_its_questions_were_answered_on_the_spot(
    place: Place, tmp_path: Path
) -> None:
    log = tmp_path / "effects"
    legs = place(Path(__file__).with_name("programs.py"), STORE=str(tmp_path / "store.db"), EFFECTS=str(log))

    @CALM
    @given(program=PROGRAMS, numbers=GOOD)
    def try_one(program: machine.Program, numbers: list[int]) -> None:
        log.write_text("")
        program = machine.named(program, iter(range(1, 1000)))
        given, result = see_through(legs, {"program": repr(program)}, numbers)
        outcome, world = straight(program, given)
        notes = [json.loads(line) for line in log.read_text().splitlines()]
        assert not [note for note in notes if note[0] == "fault"]
        done = Counter(what for kind, what, *_ in notes if kind in ("done", "guarded"))
        assert max(done.values(), default=1) == 1, "an effect, twice"
        seen = {(what, value) for kind, what, *rest in notes if kind == "seen" for value in rest}
        assert max(Counter(what for what, _ in seen).values(), default=1) == 1, "seen in two ways"
        if result.get("isError"):
            assert isinstance(outcome, StepFailed | ToolError | ExceptionGroup), outcome
        else:
            assert outcome == json.loads(result["content"][0]["text"])
            assert done == Counter(world.done + world.guarded)

    try_one()


def see_through(legs: Legs, arguments: Json, numbers: list[int]) -> tuple[dict[str, int], Json]:
    """The answers of a call by what they were given to, and its result."""
    flow = machine.Flow(0)
    turn = machine.Turn(flow, None, {}, 0, legs.call("it", arguments))
    while turn.is_open:
        assert turn.reply is not None
        requests = turn.reply["inputRequests"]
        answers = {
            key: machine.answer_to(identity, requests[key], numbers[n % len(numbers)])
            for n, (key, identity) in enumerate(turn.asked.items())
        }
        state = turn.reply["requestState"]
        reply = legs.call("it", arguments, inputResponses=answers, requestState=state)
        turn = machine.Turn(flow, turn, answers, 0, reply)
    return turn.given(), turn.reply or {}


def straight(program: machine.Program, given: dict[str, int]) -> tuple[Any, machine.Straight]:
    """What a program tells or raises when it runs straight through, and what it did."""
    world = machine.Straight(given)

    async def run() -> Any:
        try:
            return (await asyncio.wait_for(machine.perform(program, world), machine.PATIENCE))[0]
        except (StepFailed, ToolError, ExceptionGroup) as error:
            return error

    return asyncio.run(run()), world
