"""The client's loop as a pure generator: what it wants done, step by step, whatever a server answers."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from turnwise import MCPError, StateExpired, TooManyRounds, UnknownResultType
from turnwise._driver import Attempt, Drive, Given, Held, Pause, Questions, drive

PARAMS = {"name": "book", "arguments": {"flight": "TW 1"}}
DONE = {"resultType": "complete", "content": []}
STALE = MCPError(-32602, "Invalid or expired requestState")
SEAT = {"method": "elicitation/create", "params": {"message": "Which seat?"}}
MEAL = {"method": "elicitation/create", "params": {"message": "Which meal?"}}
MANY = 10

Json = dict[str, Any]
Step = Attempt | Questions | Pause


class Played(NamedTuple):
    """What a loop wanted, and what came of it."""

    steps: list[Step]
    result: Any

    @property
    def attempts(self) -> list[Json]:
        return [step.params for step in self.steps if isinstance(step, Attempt)]

    @property
    def questions(self) -> list[Questions]:
        return [step for step in self.steps if isinstance(step, Questions)]

    @property
    def pauses(self) -> list[float]:
        return [step.seconds for step in self.steps if isinstance(step, Pause)]

    @property
    def asked(self) -> list[str]:
        """The keys that somebody had to answer."""
        return [key for step in self.questions for key in step.requests if key not in step.known]


def answers(step: Questions) -> Json:
    return {**{key: f"{key} in round {step.round}" for key in step.requests}, **step.known}


def play(loop: Drive, *replies: Json | MCPError, answer: Callable[[Questions], Json] = answers) -> Played:
    """Drive a loop with what the server replies to its attempts, one after the other."""
    waiting, steps, outcome = list(replies), list[Step](), None
    while True:
        try:
            step = loop.throw(outcome) if isinstance(outcome, MCPError) else loop.send(outcome)
        except StopIteration as done:
            assert not waiting, "the loop ended before all replies were read"
            return Played(steps, done.value)
        except (MCPError, TooManyRounds, UnknownResultType) as error:
            return Played(steps, error)
        steps.append(step)
        match step:
            case Attempt():
                outcome = waiting.pop(0)
            case Questions():
                outcome = answer(step)
            case Pause():
                outcome = None


def ask(state: str | None = "s", **requests: Any) -> Json:
    token = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": requests, **token}


def test_a_complete_result_ends_the_call_in_one_attempt() -> None:
    played = play(drive(PARAMS, MANY), DONE)
    assert played == ([Attempt(PARAMS)], DONE)


def test_a_result_that_names_no_type_is_complete() -> None:
    assert play(drive(PARAMS, MANY), {"content": []}).result == {"content": []}


def test_a_retry_is_the_whole_request_again_with_the_answers_and_the_state() -> None:
    played = play(drive(PARAMS, MANY), ask("s1", seat=SEAT), DONE)
    assert played.attempts == [
        PARAMS,
        {**PARAMS, "inputResponses": {"seat": "seat in round 0"}, "requestState": "s1"},
    ]
    assert played.result is DONE


@pytest.mark.parametrize("state", ["", " ", "\x00\u2028\ud7ff", "a" * 100_000, '{"a": 1}'])
def test_the_state_is_echoed_as_it_came(state: str) -> None:
    played = play(drive(PARAMS, MANY), ask(state, seat=SEAT), DONE)
    assert played.attempts[1]["requestState"] == state


def test_without_a_state_none_is_sent() -> None:
    played = play(drive(PARAMS, MANY), ask(None, seat=SEAT), DONE)
    assert "requestState" not in played.attempts[1]
    assert "inputResponses" in played.attempts[1]


def test_answers_and_state_of_an_earlier_round_are_not_sent_again() -> None:
    played = play(drive(PARAMS, MANY), ask("s1", seat=SEAT), ask(None, meal=MEAL), ask("s3"), DONE)
    assert played.attempts[2] == {**PARAMS, "inputResponses": {"meal": "meal in round 1"}}
    assert played.attempts[3] == {**PARAMS, "requestState": "s3"}


def test_a_question_says_in_which_round_it_comes_and_what_was_answered_before() -> None:
    played = play(drive(PARAMS, MANY), ask("s1", seat=SEAT), ask("s2"), ask("s3", meal=MEAL), DONE)
    assert played.questions == [
        Questions({"seat": SEAT}, {}, "s1", 0, ()),
        Questions({"meal": MEAL}, {}, "s3", 2, (Given("seat", SEAT, "seat in round 0"),)),
    ]


def test_a_server_that_asks_nothing_is_called_again_after_longer_and_longer_pauses() -> None:
    played = play(drive(PARAMS, MANY), *(ask(f"s{number}") for number in range(5)), DONE)
    assert played.pauses == [0.05, 0.1, 0.2, 0.25, 0.25]
    assert [attempt.get("requestState") for attempt in played.attempts] == [None, "s0", "s1", "s2", "s3", "s4"]


def test_a_result_without_any_questions_member_is_a_pause_too() -> None:
    played = play(drive(PARAMS, MANY), {"resultType": "input_required", "requestState": "s"}, DONE)
    assert played.pauses == [0.05]


def test_a_question_makes_the_pauses_short_again() -> None:
    played = play(drive(PARAMS, MANY), ask(), ask(), ask(seat=SEAT), ask(), DONE)
    assert played.pauses == [0.05, 0.1, 0.05]


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_server_may_ask_so_many_times_and_nobody_is_bothered_for_an_answer_that_is_not_sent(most: int) -> None:
    played = play(drive(PARAMS, most), *(ask(seat=SEAT) for _ in range(most + 1)))
    assert isinstance(played.result, TooManyRounds)
    assert played.result.rounds == most
    assert len(played.attempts) == most + 1
    assert len(played.questions) == most


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_call_that_is_complete_in_the_last_round_is_complete(most: int) -> None:
    assert play(drive(PARAMS, most), *(ask(seat=SEAT) for _ in range(most)), DONE).result is DONE


def test_pauses_are_rounds_too() -> None:
    played = play(drive(PARAMS, 2), ask(), ask(), ask())
    assert isinstance(played.result, TooManyRounds)
    assert played.pauses == [0.05, 0.1]


@pytest.mark.parametrize("kind", ["task", "", "Complete", 5, None, ["complete"]])
def test_a_result_of_another_kind_is_the_peers_mistake(kind: Any) -> None:
    played = play(drive(PARAMS, MANY), {"resultType": kind})
    assert isinstance(played.result, UnknownResultType)
    assert played.result.kind == kind


def test_an_error_ends_the_call() -> None:
    error = MCPError(-32603, "no")
    assert play(drive(PARAMS, MANY), error).result is error


def test_what_was_passed_in_is_not_changed() -> None:
    params = {"name": "book", "arguments": {"flight": "TW 1"}}
    given = [Given("meal", MEAL, "rice")]
    held = Held({"seat": SEAT}, "s", 1, given)
    played = play(drive(params, MANY, held=held, restart=True), STALE, ask(meal=MEAL), ask(seat=SEAT), DONE)
    assert played.result is DONE
    assert params == {"name": "book", "arguments": {"flight": "TW 1"}}
    assert given == [Given("meal", MEAL, "rice")]
    assert len({id(attempt) for attempt in played.attempts}) == len(played.attempts)


# A call that was put down


def test_a_call_that_was_put_down_goes_on_at_its_questions() -> None:
    given = (Given("seat", SEAT, "7A"),)
    played = play(drive(PARAMS, MANY, held=Held({"meal": MEAL}, "s2", 1, given)), DONE)
    assert played.steps == [
        Questions({"meal": MEAL}, {}, "s2", 1, given),
        Attempt({**PARAMS, "inputResponses": {"meal": "meal in round 1"}, "requestState": "s2"}),
    ]


def test_a_call_that_was_put_down_without_a_state_goes_on_without_one() -> None:
    played = play(drive(PARAMS, MANY, held=Held({"meal": MEAL}, None, 0, ())), DONE)
    assert played.attempts == [{**PARAMS, "inputResponses": {"meal": "meal in round 0"}}]


def test_where_a_call_goes_on_the_earlier_answers_stay_known() -> None:
    given = (Given("seat", SEAT, "7A"),)
    played = play(drive(PARAMS, MANY, held=Held({"meal": MEAL}, "s", 1, given)), ask("s3", seat=SEAT), DONE)
    assert played.questions[1].given == (*given, Given("meal", MEAL, "meal in round 1"))
    assert played.questions[1].known == {}


def test_the_rounds_before_a_call_was_put_down_count() -> None:
    held = Held({"seat": SEAT}, "s", 2, ())
    played = play(drive(PARAMS, 3, held=held), ask(seat=SEAT))
    assert isinstance(played.result, TooManyRounds)
    assert len(played.questions) == 1


# A state that is no longer taken


def test_a_refused_state_begins_the_call_anew_and_nobody_is_asked_twice() -> None:
    loop = drive(PARAMS, MANY, restart=True)
    played = play(
        loop, ask("s1", seat=SEAT), ask("s2", meal=MEAL), STALE, ask("t1", seat=SEAT), ask("t2", meal=MEAL), DONE
    )
    assert played.asked == ["seat", "meal"]
    assert played.attempts[3:] == [
        PARAMS,
        {**PARAMS, "inputResponses": {"seat": "seat in round 0"}, "requestState": "t1"},
        {**PARAMS, "inputResponses": {"meal": "meal in round 1"}, "requestState": "t2"},
    ]
    assert played.result is DONE


def test_a_call_that_was_put_down_begins_anew_as_well() -> None:
    held = Held({"meal": MEAL}, "s2", 1, (Given("seat", SEAT, "7A"),))
    played = play(drive(PARAMS, MANY, held=held, restart=True), STALE, ask("t1", seat=SEAT, meal=MEAL), DONE)
    assert played.asked == ["meal"]
    assert played.questions[1].known == {"seat": "7A", "meal": "meal in round 1"}


def test_what_was_answered_before_the_restart_is_not_told_as_given_until_it_is_used() -> None:
    loop = drive(PARAMS, MANY, restart=True)
    played = play(loop, ask("s1", seat=SEAT), STALE, ask("t1", meal=MEAL), ask("t2", seat=SEAT), DONE)
    assert played.questions[1].given == ()
    assert [given.key for given in played.questions[2].given] == ["meal"]


@pytest.mark.parametrize(
    ("key", "request_"),
    [
        pytest.param("seat", {**SEAT, "params": {"message": "Which seat, please?"}}, id="another wording"),
        pytest.param("seat", {**SEAT, "params": {"message": "Which seat?", "default": 1}}, id="another member"),
        pytest.param("chair", SEAT, id="another key"),
        pytest.param("seat", {**SEAT, "method": "roots/list"}, id="another method"),
    ],
)
def test_an_answer_is_used_again_only_for_the_same_question_under_the_same_key(key: str, request_: Json) -> None:
    loop = drive(PARAMS, MANY, restart=True)
    played = play(loop, ask("s1", seat=SEAT), STALE, ask("t1", **{key: request_}), DONE)
    assert played.asked == ["seat", key]


def test_an_answer_is_used_again_once() -> None:
    loop = drive(PARAMS, MANY, restart=True)
    played = play(loop, ask("s1", seat=SEAT), STALE, ask("t1", seat=SEAT), ask("t2", seat=SEAT), DONE)
    assert [step.known for step in played.questions] == [{}, {"seat": "seat in round 0"}, {}]


def test_a_question_that_was_asked_twice_gets_its_answers_in_their_order() -> None:
    def answer(step: Questions) -> Mapping[str, Any]:
        return dict(step.known) or {"seat": f"answer {step.round}"}

    loop = drive(PARAMS, MANY, restart=True)
    rounds = [ask(seat=SEAT), ask(seat=SEAT)]
    played = play(loop, *rounds, STALE, *rounds, DONE, answer=lambda step: dict(answer(step)))
    sent = [attempt["inputResponses"]["seat"] for attempt in played.attempts if "inputResponses" in attempt]
    assert sent == ["answer 0", "answer 1", "answer 0", "answer 1"]


def test_answers_go_out_in_other_company_than_they_came_in() -> None:
    loop = drive(PARAMS, MANY, restart=True)
    played = play(loop, ask(seat=SEAT, meal=MEAL), STALE, ask(meal=MEAL), ask(seat=SEAT), DONE)
    assert played.asked == ["seat", "meal"]
    assert [step.known for step in played.questions[1:]] == [{"meal": "meal in round 0"}, {"seat": "seat in round 0"}]


def test_a_call_begins_anew_once() -> None:
    loop = drive(PARAMS, MANY, restart=True)
    played = play(loop, ask("s1", seat=SEAT), STALE, ask("t1", seat=SEAT), STALE)
    assert isinstance(played.result, StateExpired)
    assert len(played.attempts) == 4


def test_a_call_does_not_begin_anew_unless_it_may() -> None:
    refused = play(drive(PARAMS, MANY), ask("s1", seat=SEAT), STALE).result
    assert isinstance(refused, StateExpired)
    assert (refused.code, refused.message) == (STALE.code, STALE.message)


def test_a_first_attempt_that_is_refused_is_not_repeated() -> None:
    assert play(drive(PARAMS, MANY, restart=True), STALE).attempts == [PARAMS]


def test_a_retry_without_a_state_that_is_refused_is_not_repeated() -> None:
    played = play(drive(PARAMS, MANY, restart=True), ask(None, seat=SEAT), STALE)
    assert played.result is STALE
    assert len(played.attempts) == 2


@pytest.mark.parametrize(
    "refusal",
    [
        MCPError(-32602, "Invalid or expired requestState"),
        MCPError(-32602, "Request state has expired"),
        MCPError(-32602, "no", {"reason": "invalid_request_state"}),
    ],
)
def test_a_server_may_say_in_several_ways_that_a_state_is_no_longer_taken(refusal: MCPError) -> None:
    assert play(drive(PARAMS, MANY, restart=True), ask("s1"), refusal, DONE).result is DONE


@pytest.mark.parametrize(
    "error",
    [
        MCPError(-32603, "Invalid or expired requestState"),
        MCPError(-32600, "no", {"reason": "invalid_request_state"}),
        MCPError(-32602, "Invalid arguments: flight is missing"),
        MCPError(-32602, "no", {"reason": "too_old"}),
        MCPError(-32602, "no", ["invalid_request_state"]),
        MCPError(-32021, "no"),
        MCPError(0, ""),
    ],
)
def test_another_refusal_begins_nothing_anew(error: MCPError) -> None:
    played = play(drive(PARAMS, MANY, restart=True), ask("s1", seat=SEAT), error)
    assert played.result is error
    assert len(played.attempts) == 2


def test_a_refused_state_after_a_pause_begins_the_call_anew() -> None:
    played = play(drive(PARAMS, MANY, restart=True), ask("s1"), STALE, DONE)
    assert played.attempts == [PARAMS, {**PARAMS, "requestState": "s1"}, PARAMS]


@pytest.mark.parametrize("count", [1, 3])
def test_a_call_that_begins_anew_has_all_its_rounds_again(count: int) -> None:
    """Nobody is asked more often by it, and a long flow could not be finished otherwise."""
    questions = [ask(f"s{number}", **{f"q{number}": SEAT}) for number in range(count)]
    played = play(drive(PARAMS, count, restart=True), *questions, STALE, *questions, DONE)
    assert played.result is DONE
    assert len(played.asked) == count
