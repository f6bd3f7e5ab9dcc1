"""The flows of the tests in `tests/unit` and `tests/docs`, with every leg in a process of its own.

`relay.py` says how. Here the files are played whose business flows are, and of a test with parameters one case; `make
legs` plays all. A test that does not hold so is named below, with the reason, and everything else must hold; one that
starts processes is not played.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fleet.relay import Handover
from tests.fleet.zygotes import ROOT, SEEDS, Zygotes, zygotes

WORKERS = 2
IS_WHOLE = os.environ.get("TURNWISE_LEGS") == "1"
BROKEN = "tests/fleet/broken_flows.py"
OFTEN = {
    "unit": ["asking", "steps", "replay_parts", "replay_limits", "replay_told"],
    "docs": ["samples", "replay_samples"],
}
SELDOM = {
    "unit": [
        *("sealed", "flow_stores", "pending", "pending_store", "wire", "asgi", "client", "client_answers"),
        *("client_caching", "sync"),
    ],
    "docs": ["client_samples"],
}
FILES = [
    f"tests/{room}/test_{name}.py"
    for room, names in OFTEN.items()
    for name in (*names, *(SELDOM[room] if IS_WHOLE else ()))
]
APART = {
    "it reads what was logged, and each process logs for itself": {
        "test_the_log_says_which_audience_or_method_was_wrong",
        "test_a_guarded_step_whose_result_cannot_be_kept_was_done_all_the_same",
        "test_a_large_token_is_warned_of_with_what_is_large_in_it",
        "test_each_round_that_asks_is_a_log_line_with_its_facts",
        "test_nothing_that_was_said_is_in_the_log_of_a_call_that_went_well",
        "test_a_question_that_disappears_is_missed_at_the_end",
        "test_a_token_is_warned_of_and_then_refused",
        "test_clients_that_leave_their_large_answers_behind_fill_the_memory_up_to_a_bound",
        "test_a_round_that_asks_is_a_record_with_facts",
    },
    "it reads spans, and each process exports its own": {
        "test_the_rounds_of_a_flow_are_spans_each_linked_to_the_one_before",
        "test_the_link_holds_from_one_instance_to_another_even_over_one_that_does_not_trace",
        "test_while_a_function_or_a_step_runs_its_span_is_the_current_one",
        "test_a_step_is_a_span_below_the_round_that_took_it_and_below_no_other",
        "test_a_round_that_raised_has_the_kind_of_its_error_and_its_flow",
        "test_a_call_that_moves_is_told_as_one",
        "test_each_round_is_a_span_that_is_linked_to_the_one_before",
    },
    "its store or table is in memory, and only the server holds it": {
        "test_what_failed_once_has_failed_in_every_history",
        "test_a_token_of_single_use_that_failed_has_failed",
        "test_the_table_decides_whether_a_voucher_is_redeemed_not_the_token",
    },
    "its tool counts rounds in memory on purpose, to break the rule of replay": {
        "test_a_question_that_changes_is_asked_until_somebody_has_had_enough",
        "test_two_questions_under_one_key_are_asked_again_when_their_order_changes",
        "test_a_step_with_other_arguments_is_refused_unless_it_may_run_again",
    },
    "its client keeps calls on the disk, and every process is that client again": {
        "test_a_client_keeps_what_waits_and_forgets_what_is_done",
        "test_half_an_answer_is_kept_for_whoever_has_the_other_half",
        "test_answers_that_were_added_to_a_call_in_hand_count_with_a_store_as_without",
        "test_of_two_people_at_a_desk_one_answers",
    },
    "it deletes the file of its effects between two flows": {
        "test_time_chance_and_effects_outside_of_steps_are_found_and_in_their_place_they_are_not",
    },
    "it looks at tasks, or at a request under way, of the process that serves": {
        "test_a_task_that_nobody_awaits_finds_its_round_over",
        "test_a_client_that_goes_away_while_the_beginning_is_written_leaves_no_riddle",
    },
    "it keeps objects of a class that only one process has": {
        "test_an_answer_is_the_same_value_in_its_own_round_and_in_every_replay",
    },
}


class Relays:
    """The tests of all files, ready to be played."""

    def __init__(self, found: Zygotes, folder: Path) -> None:
        self._zygotes = found
        self._folder = folder
        names: list[list[str]] = []
        for turn in range(len(SEEDS)):
            with found.connect(turn) as connection:
                connection.send(None)
                names.append(connection.recv())
        assert all(listed == names[0] for listed in names)
        cases: dict[str, list[str]] = defaultdict(list)
        for name in names[0]:
            cases[name.partition("[")[0]].append(name)
        self.tests = [name for found in cases.values() for name in (found if IS_WHOLE else found[:1])]

    def play(self, name: str) -> Handover:
        """One test, from the first leg to its end."""
        handover, turn = Handover([]), self.tests.index(name)
        folder = str(self._folder / str(turn))
        while not handover.is_over:
            with self._zygotes.connect(turn) as connection:
                connection.send((name, folder, handover.legs))
                try:
                    handover = connection.recv()
                except EOFError:
                    raise AssertionError(f"{name} ended without a word: {self._zygotes.said()}") from None
            turn += 1
        return handover

    def failures(self, file: str) -> dict[str, str]:
        """How the flows of a file failed, by the names of their tests without parameters."""
        names = [name for name in self.tests if name.startswith(f"{file}::")]
        with ThreadPoolExecutor(WORKERS) as pool:
            played = dict(zip(names, pool.map(self.play, names), strict=True))
        flows = {name: handover for name, handover in played.items() if handover.legs}
        assert flows
        return {bare(name): handover.failure for name, handover in flows.items() if handover.failure}


def bare(name: str) -> str:
    return name.partition("[")[0].partition("::")[2]


@pytest.fixture(scope="module")
def relays(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relays]:
    """The tests of one folder: the less a process has imported, the sooner it is forked."""
    files = [file for file in FILES if file.startswith(request.param)]
    with zygotes("tests.fleet.relay", BROKEN, *files) as found:
        yield Relays(found, tmp_path_factory.mktemp("relays"))


IN_THEIR_FOLDERS = [pytest.param(file.rpartition("/")[0], file, id=file) for file in FILES]


@pytest.mark.parametrize(("relays", "file"), IN_THEIR_FOLDERS, indirect=["relays"], scope="module")
def test_flows_hold_with_every_leg_in_a_fresh_process(relays: Relays, file: str) -> None:
    failures = relays.failures(file)
    expected = {name for names in APART.values() for name in names}
    here = {bare(name) for name in relays.tests if name.startswith(f"{file}::")}
    unexpected = [f"{name}\n{failure}" for name, failure in failures.items() if name not in expected]
    assert not unexpected, "\n".join(unexpected)
    assert failures.keys() == expected & here, "a test that is named as one apart holds by now"


def test_every_test_that_is_named_as_one_apart_is_there() -> None:
    names = [name for names in APART.values() for name in names]
    places = [ROOT / "tests" / room / f"test_{name}.py" for room in OFTEN for name in OFTEN[room] + SELDOM[room]]
    source = "".join(place.read_text() for place in places)
    assert [source.count(f"def {name}(") for name in names] == [1] * len(names)


@pytest.mark.parametrize("relays", ["tests/unit"], indirect=True)
def test_a_flow_that_needs_its_process_or_its_hash_seed_is_found(relays: Relays) -> None:
    failures = relays.failures(BROKEN)
    assert failures.keys() == {"test_a_flow_that_is_kept_in_its_process", "test_a_flow_that_goes_by_a_hash"}
    assert "forgotten" in failures["test_a_flow_that_is_kept_in_its_process"]
    assert "The tool failed" in failures["test_a_flow_that_goes_by_a_hash"]


@pytest.mark.parametrize("relays", ["tests/unit"], indirect=True)
def test_every_leg_of_a_flow_is_served_by_another_process(relays: Relays) -> None:
    [name] = [name for name in relays.tests if name.endswith("::test_a_flow_that_is_all_in_its_token")]
    handover = relays.play(name)
    assert len({leg.pid for leg in handover.legs}) == len(handover.legs) == 2
    assert len({leg.hashed for leg in handover.legs}) == 2
