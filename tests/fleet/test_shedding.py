"""Load shedding: an instance with too much to do hands its calls over in the middle, and nothing is done again.

"This can be accomplished by sending an incomplete request that contains request state but does not contain any input
requests." Clients take two such replies in one call, and ten rounds in all.
"""

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from tests.fleet.balancer import Passage
from tests.fleet.processes import (
    KEY,
    AnyClient,
    Fleet,
    Instance,
    Person,
    accept,
    call,
    environment,
    fleet_of,
    in_time,
    post,
    text_of,
    until,
)

A, B = 0, 1
MOST = 2
jobs = (f"job-{number}" for number in itertools.count(1))

SERVER = r"""
import asyncio, os, sys
from pathlib import Path
from turnwise import Context, MCPServer, Overload, RequestStateSecurity

PLACE = Path(os.environ["PLACE"])
flag = PLACE / f"busy {os.environ['NUMBER']}"
policy = Overload(in_flight=int(os.environ["MOST"]), lag=None)
server = MCPServer(
    "works",
    request_state_security=RequestStateSecurity(keys=[os.environ["KEY"]]),
    shed_when=lambda load: flag.exists() or policy(load),
)

def note(effect: str, job: str) -> None:
    with open(PLACE / "effects.log", "a") as log:
        log.write(f"{os.getpid()} {effect} {job}\n")

async def work(part: str, job: str) -> str:
    note(part, job)
    return part

async def meet(part: str, job: str) -> str:
    # Not over before the other part has begun too.
    note(part, job)
    while (PLACE / "effects.log").read_text().count(f" {job}\n") < 2:
        await asyncio.sleep(0.01)
    return part

@server.tool()
async def compute(job: str, ctx: Context) -> str:
    return "".join([await ctx.step(work, part, job) for part in "abcde"])

@server.tool(effects=True)
async def compute_carefully(job: str, ctx: Context) -> str:
    return "".join([await ctx.step(work, part, job) for part in "abcde"])

@server.tool()
async def compute_together(job: str, ctx: Context) -> str:
    first = await asyncio.gather(ctx.step(meet, "a", job), ctx.step(meet, "b", job))
    async with asyncio.TaskGroup() as tasks:
        second = [tasks.create_task(ctx.step(work, part, job)) for part in "cd"]
    return "".join([*first, *(task.result() for task in second)])

@server.tool()
async def converse(job: str, ctx: Context) -> str:
    before = await ctx.step(work, "a", job)
    answer = await ctx.elicit("Go on?", str, key="go_on")
    return f"{before} {answer.data}"

@server.tool()
async def ask_only(job: str, ctx: Context) -> str:
    return (await ctx.elicit("Go on?", str, key="go_on")).data

@server.tool()
async def interview(job: str, questions: int, ctx: Context) -> str:
    answers = [(await ctx.elicit(f"Question {n}?", str, key=f"q{n}")).data for n in range(questions)]
    return "".join([await ctx.step(work, part, job) for part in "abc"]) + "".join(answers)

@server.tool()
async def add_up(job: str, numbers: int, ctx: Context) -> int:
    begin, total = ctx.checkpointed or (0, 0)
    for number in range(begin, numbers):
        note(f"{number}", job)
        total += number
        await ctx.checkpoint((number + 1, total))
    return total

@server.tool()
async def hold(job: str) -> str:
    note("hold", job)
    while not (PLACE / "release").exists():
        await asyncio.sleep(0.02)
    return "held"

server.run("http", port=int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    place = tmp_path_factory.mktemp("works")
    instances = [
        Instance(
            ["-c", SERVER],
            environment(KEY=KEY, PLACE=str(place), NUMBER=str(number), MOST=str(MOST)),
            place / f"{number}.log",
        )
        for number in (A, B)
    ]
    with fleet_of(instances, place / "effects.log") as fleet:
        yield fleet


@pytest.fixture
def fleet(works: Fleet) -> Fleet:
    """Two instances; the first call goes to A."""

    def begin(passage: Passage) -> None:
        if passage.number == 1:
            works.balancer.turn = A

    works.heal()
    works.balancer.begin()
    works.balancer.before = begin
    return works


@contextmanager
def overloaded(fleet: Fleet, *instances: int) -> Iterator[None]:
    flags = [fleet.effects_log.with_name(f"busy {instance}") for instance in instances]
    for flag in flags:
        flag.touch()
    try:
        yield
    finally:
        for flag in flags:
            flag.unlink()


def sheds(fleet: Fleet) -> list[bool]:
    """For each call, whether its reply asked nothing and only wanted to be called again."""
    return [passage.is_state_only for passage in fleet.balancer.calls]


@pytest.fixture
def person() -> Person:
    return Person({"Go on": "yes", "Question": "y"})


def test_an_overloaded_instance_hands_the_call_over_and_no_step_is_done_again(
    fleet: Fleet, client: AnyClient, person: Person
) -> None:
    job = next(jobs)
    with overloaded(fleet, A):
        result = in_time(call(client, fleet.url, person, "compute", {"job": job}))
    assert text_of(result) == "abcde"
    assert (fleet.balancer.route, sheds(fleet)) == ([A, B], [True, False])
    assert b'"inputRequests":{}' in fleet.balancer.calls[0].reply
    assert fleet.effects(job) == list("abcde")
    a, b = (instance.pid for instance in fleet.instances)
    assert fleet.who(job) == [a, b, b, b, b]


def test_many_calls_in_flight_are_an_overload(fleet: Fleet, client: AnyClient, person: Person) -> None:
    """Two calls are held at A, which is as many as it takes; the third goes over to B."""
    job, held = next(jobs), next(jobs)
    release = fleet.effects_log.with_name("release")
    with ThreadPoolExecutor(MOST) as pool:
        try:
            waiting = [pool.submit(post, fleet.instances[A].port, "hold", {"job": held}) for _ in range(MOST)]
            until(lambda: len(fleet.effects(held)) == MOST)
            result = in_time(call(client, fleet.url, person, "compute", {"job": job}))
        finally:
            release.touch()
        assert [reply.result()["content"][0]["text"] for reply in waiting] == ["held"] * MOST
    release.unlink()
    assert text_of(result) == "abcde"
    assert (fleet.balancer.route, sheds(fleet)) == ([A, B], [True, False])
    assert fleet.effects(job) == list("abcde")


def test_without_overload_nothing_is_handed_over(fleet: Fleet, client: AnyClient, person: Person) -> None:
    job = next(jobs)
    assert text_of(in_time(call(client, fleet.url, person, "compute", {"job": job}))) == "abcde"
    assert sheds(fleet) == [False]


def test_a_call_is_handed_over_twice_at_most(fleet: Fleet, client: AnyClient, person: Person) -> None:
    job = next(jobs)
    with overloaded(fleet, A, B):
        result = in_time(call(client, fleet.url, person, "compute", {"job": job}))
    assert text_of(result) == "abcde"
    assert (fleet.balancer.route, sheds(fleet)) == ([A, B, A], [True, True, False])
    a, b = (instance.pid for instance in fleet.instances)
    assert fleet.effects(job) == list("abcde")
    assert fleet.who(job) == [a, b, a, a, a]


def test_the_round_that_only_gets_a_token_counts_as_one_of_the_two(
    fleet: Fleet, client: AnyClient, person: Person
) -> None:
    job = next(jobs)
    with overloaded(fleet, A, B):
        result = in_time(call(client, fleet.url, person, "compute_carefully", {"job": job}))
    assert text_of(result) == "abcde"
    assert sheds(fleet) == [True, True, False]
    assert fleet.effects(job) == list("abcde")


def test_a_call_is_not_handed_over_by_who_got_it_no_further(fleet: Fleet, client: AnyClient, person: Person) -> None:
    """A hands it over after its step, B asks, and A, still overloaded, has only to return."""
    job = next(jobs)
    with overloaded(fleet, A, B):
        result = in_time(call(client, fleet.url, person, "converse", {"job": job}))
        assert text_of(result) == "a yes"
        assert (fleet.balancer.route, sheds(fleet)) == ([A, B, A], [True, False, False])
        assert text_of(in_time(call(client, fleet.url, person, "ask_only", {"job": job}))) == "yes"
    assert sheds(fleet)[3:] == [False, False]
    assert fleet.effects(job) == ["a"]
    assert person.asked == ["Go on?", "Go on?"]


@pytest.mark.parametrize(("questions", "shed"), [(6, 1), (7, 0)])
def test_late_in_a_flow_nothing_is_handed_over(
    fleet: Fleet, client: AnyClient, person: Person, questions: int, shed: int
) -> None:
    """From the seventh round on, the rounds that clients allow are kept for questions."""
    job = next(jobs)
    with overloaded(fleet, A, B):
        result = in_time(call(client, fleet.url, person, "interview", {"job": job, "questions": questions}))
    assert text_of(result) == "abc" + "y" * questions
    assert sheds(fleet).count(True) == shed
    assert len(fleet.balancer.calls) == questions + 1 + shed
    assert fleet.effects(job) == list("abc")


def test_a_call_that_nobody_takes_over_comes_back_and_is_finished(
    fleet: Fleet, client: AnyClient, person: Person
) -> None:
    job = next(jobs)
    fleet.instances[B].kill()
    with overloaded(fleet, A):
        result = in_time(call(client, fleet.url, person, "compute", {"job": job}))
    assert text_of(result) == "abcde"
    assert (fleet.balancer.route, sheds(fleet)) == ([A, A, A], [True, True, False])
    assert fleet.effects(job) == list("abcde")


def test_the_instance_that_handed_a_call_over_may_die(fleet: Fleet, client: AnyClient, person: Person) -> None:
    job = next(jobs)
    begin = fleet.balancer.before
    assert begin is not None

    def die(passage: Passage) -> None:
        begin(passage)
        if passage.number == 2:
            fleet.instances[A].kill()

    fleet.balancer.before = die
    with overloaded(fleet, A):
        result = in_time(call(client, fleet.url, person, "compute", {"job": job}))
    assert text_of(result) == "abcde"
    assert fleet.effects(job) == list("abcde")


def test_steps_that_run_together_are_finished_before_the_call_is_handed_over(
    fleet: Fleet, client: AnyClient, person: Person
) -> None:
    job = next(jobs)
    with overloaded(fleet, A, B):
        result = in_time(call(client, fleet.url, person, "compute_together", {"job": job}))
    assert text_of(result) == "abcd"
    assert sheds(fleet).count(True) <= 2
    assert sorted(fleet.effects(job)) == list("abcd")
    assert len(set(fleet.who(job)[:2])) == 1


def test_a_checkpoint_carries_a_computation_over_without_steps(fleet: Fleet, client: AnyClient, person: Person) -> None:
    job = next(jobs)
    with overloaded(fleet, A):
        result = in_time(call(client, fleet.url, person, "add_up", {"job": job, "numbers": 6}))
    assert text_of(result) == "15"
    assert (fleet.balancer.route, sheds(fleet)) == ([A, B], [True, False])
    assert fleet.effects(job) == list("012345")
    a, b = (instance.pid for instance in fleet.instances)
    assert fleet.who(job) == [a, b, b, b, b, b]


def test_a_checkpoint_hands_over_twice_at_most_as_well(fleet: Fleet, client: AnyClient, person: Person) -> None:
    job = next(jobs)
    with overloaded(fleet, A, B):
        result = in_time(call(client, fleet.url, person, "add_up", {"job": job, "numbers": 6}))
    assert text_of(result) == "15"
    assert sheds(fleet) == [True, True, False]
    assert fleet.effects(job) == list("012345")


def test_a_state_that_was_handed_over_is_good_for_its_own_call_only(fleet: Fleet) -> None:
    job, other = next(jobs), next(jobs)
    with overloaded(fleet, A):
        state = post(fleet.instances[A].port, "compute", {"job": job})["requestState"]
    port = fleet.instances[B].port
    with pytest.raises(KeyError, match="result"):
        post(port, "compute", {"job": other}, requestState=state)
    assert fleet.effects(other) == []
    done = post(port, "compute", {"job": job}, requestState=state, inputResponses={"a": accept("x")})
    assert done["content"][0]["text"] == "abcde"
    assert fleet.effects(job) == list("abcde")
