"""Two versions of a server behind one balancer, in the middle of a flow.

"In the new version of the tool implementation, it still uses the github_login input request, but it replaces the
google_login input request with a new microsoft_login input request." Nobody is asked twice for the same thing.
"""

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
)

OLD, NEW = 0, 1
jobs = (f"job-{number}" for number in itertools.count(1))

BOTH = r"""
import os, sys
from turnwise import Context, Elicit, MCPServer, RequestStateSecurity

server = MCPServer("logins", request_state_security=RequestStateSecurity(keys=[os.environ["KEY"]]))

def note(effect, job):
    with open(os.environ["EFFECTS"], "a") as log:
        log.write(f"{os.getpid()} {effect} {job}\n")

async def reserve(job: str) -> str:
    note("reserve", job)
    return f"place of {job}"
"""

OLD_TOOLS = r"""
@server.tool(version="1")
async def connect_together(job: str, ctx: Context) -> str:
    found = await ctx.ask_all(github_login=Elicit("GitHub?", str), google_login=Elicit("Google?", str))
    return f"1: {found['github_login'].data} {found['google_login'].data}"

@server.tool(version="1")
async def connect_in_turn(job: str, ctx: Context) -> str:
    place = await ctx.step(reserve, job)
    github = await ctx.elicit("GitHub?", str, key="github_login")
    google = await ctx.elicit("Google?", str, key="google_login")
    return f"1: {github.data} {google.data} at {place}"

@server.tool(version="1")
async def reworded(job: str, ctx: Context) -> str:
    answer = await ctx.elicit("Deploy?", str, key="deploy")
    await ctx.elicit("When?", str, key="when")
    return f"1: {answer.data}"

@server.tool(version="1")
async def ship(job: str, ctx: Context) -> str:
    size = await ctx.elicit("Size?", str, key="size")
    color = await ctx.elicit("Color?", str, key="color")
    return f"1: {size.data} {color.data}"

@server.tool(version="1")
async def pack(job: str, ctx: Context) -> str:
    things = [(await ctx.elicit(f"Thing {n}?", str, key="thing")).data for n in (1, 2)]
    return f"1: {things}"
"""

NEW_TOOLS = r"""
@server.tool(version="2")
async def connect_together(job: str, ctx: Context) -> str:
    found = await ctx.ask_all(github_login=Elicit("GitHub?", str), microsoft_login=Elicit("Microsoft?", str))
    return f"{ctx.flow_version} -> 2: {found['github_login'].data} {found['microsoft_login'].data}"

@server.tool(version="2")
async def connect_in_turn(job: str, ctx: Context) -> str:
    place = await ctx.step(reserve, job)
    github = await ctx.elicit("GitHub?", str, key="github_login")
    microsoft = await ctx.elicit("Microsoft?", str, key="microsoft_login")
    return f"{ctx.flow_version} -> 2: {github.data} {microsoft.data} at {place}"

@server.tool(version="2")
async def reworded(job: str, ctx: Context) -> str:
    answer = await ctx.elicit("Deploy to production?", str, key="deploy")
    await ctx.elicit("When?", str, key="when")
    return f"2: {answer.data}"

@server.tool(version="2")
async def ship(job: str, ctx: Context) -> str:
    size = await ctx.elicit("Size?", str, key="size")
    gift = await ctx.elicit("A gift?", str, key="gift") if ctx.patched("gifts") else None
    color = await ctx.elicit("Color?", str, key="color")
    return f"2: {size.data} {gift.data if gift else 'no gift'} {color.data}"

@server.tool(version="2")
async def pack(job: str, ctx: Context) -> str:
    first = await ctx.elicit("Thing 1?", str, key="thing")
    wrapped = ctx.patched("wrapping")
    second = await ctx.elicit("Thing 2?", str, key="thing")
    return f"2: {[first.data, second.data]}{' wrapped' if wrapped else ''}"
"""

RUN = r"""
server.run("http", port=int(sys.argv[1]))
"""

ANSWERS = {
    "GitHub": "ada@github",
    "Google": "ada@google",
    "Microsoft": "ada@microsoft",
    "Deploy": "yes",
    "When": "now",
    "Size": "L",
    "gift": "yes",
    "Color": "red",
}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The old version and the new one."""
    place = tmp_path_factory.mktemp("versions")
    env = environment(KEY=KEY, EFFECTS=str(place / "effects.log"))
    sources = (BOTH + OLD_TOOLS + RUN, BOTH + NEW_TOOLS + RUN)
    instances = [Instance(["-c", source], env, place / f"{number}.log") for number, source in enumerate(sources)]
    with fleet_of(instances, place / "effects.log") as fleet:
        yield fleet


@pytest.fixture
def fleet(versions: Fleet) -> Fleet:
    versions.heal()
    versions.balancer.begin()
    return versions


@pytest.fixture
def person() -> Person:
    return Person(ANSWERS)


def follow(fleet: Fleet, route: Sequence[int]) -> None:
    """Let the calls take this route."""

    def turn(passage: Passage) -> None:
        fleet.balancer.turn = route[passage.number - 1]

    fleet.balancer.before = turn


# The proposal's example


def test_a_flow_of_the_old_version_is_finished_by_the_new_one(fleet: Fleet, client: AnyClient, person: Person) -> None:
    follow(fleet, [OLD, NEW, NEW])
    result = in_time(call(client, fleet.url, person, "connect_together", {"job": next(jobs)}))
    assert text_of(result) == "1 -> 2: ada@github ada@microsoft"
    assert sorted(person.asked) == ["GitHub?", "Google?", "Microsoft?"]
    asked = [list(passage.result.get("inputRequests", {})) for passage in fleet.balancer.calls]
    assert asked == [["github_login", "google_login"], ["microsoft_login"], []]


def test_a_flow_may_go_back_to_the_old_version_and_forth_again(fleet: Fleet, client: AnyClient, person: Person) -> None:
    follow(fleet, [NEW, OLD, NEW])
    result = in_time(call(client, fleet.url, person, "connect_together", {"job": next(jobs)}))
    assert text_of(result) == "2 -> 2: ada@github ada@microsoft"
    assert sorted(person.asked) == ["GitHub?", "Google?", "Microsoft?"]
    asked = [list(passage.result.get("inputRequests", {})) for passage in fleet.balancer.calls]
    assert asked == [["github_login", "microsoft_login"], ["google_login"], []]


@pytest.mark.parametrize(
    ("route", "asked", "said"),
    [
        ([OLD, OLD, OLD], "GitHub Google", "1: ada@github ada@google"),
        ([OLD, NEW, NEW], "GitHub Microsoft", "1 -> 2: ada@github ada@microsoft"),
        ([NEW, OLD, OLD], "GitHub Google", "1: ada@github ada@google"),
        ([OLD, OLD, NEW, NEW], "GitHub Google Microsoft", "1 -> 2: ada@github ada@microsoft"),
        ([OLD, NEW, OLD, NEW], "GitHub Microsoft Google", "1 -> 2: ada@github ada@microsoft"),
        ([NEW, OLD, NEW, OLD], "GitHub Google Microsoft", "1: ada@github ada@google"),
        ([NEW, NEW, OLD, OLD], "GitHub Microsoft Google", "1: ada@github ada@google"),
    ],
)
def test_nobody_is_asked_twice_on_any_route_through_both_versions(
    fleet: Fleet, client: AnyClient, person: Person, route: list[int], asked: str, said: str
) -> None:
    """Asked one by one, after a step that both versions have."""
    follow(fleet, route)
    job = next(jobs)
    result = in_time(call(client, fleet.url, person, "connect_in_turn", {"job": job}))
    assert text_of(result) == f"{said} at place of {job}"
    assert person.asked == [f"{name}?" for name in asked.split()]
    assert fleet.balancer.route == route
    assert fleet.effects(job) == ["reserve"]


def test_the_old_instance_may_be_taken_away_in_the_middle(fleet: Fleet, client: AnyClient, person: Person) -> None:
    def upgrade(passage: Passage) -> None:
        fleet.balancer.turn = OLD
        if passage.number == 2:
            fleet.instances[OLD].kill()

    fleet.balancer.before = upgrade
    job = next(jobs)
    result = in_time(call(client, fleet.url, person, "connect_in_turn", {"job": job}))
    assert text_of(result) == f"1 -> 2: ada@github ada@microsoft at place of {job}"
    assert person.asked == ["GitHub?", "Microsoft?"]
    assert fleet.effects(job) == ["reserve"]


def test_an_answer_is_not_given_to_a_question_that_was_reworded(fleet: Fleet, client: AnyClient) -> None:
    person = Person({"Deploy?": "for tests", "production": "not there", "When": "now"})
    follow(fleet, [OLD, NEW, NEW, NEW])
    result = in_time(call(client, fleet.url, person, "reworded", {"job": next(jobs)}))
    assert text_of(result) == "2: not there"
    assert person.asked == ["Deploy?", "Deploy to production?", "When?"]


def test_each_wording_of_a_question_is_asked_once_though_the_versions_take_turns(
    fleet: Fleet, client: AnyClient
) -> None:
    person = Person({"Deploy?": "for tests", "production": "not there", "When": "now"})
    follow(fleet, [OLD, NEW] * 10)
    result = in_time(call(client, fleet.url, person, "reworded", {"job": next(jobs)}))
    assert text_of(result) == "2: not there"
    assert sorted(person.asked) == ["Deploy to production?", "Deploy?", "When?"]


# Changes that a flow has behind it


@pytest.mark.parametrize(
    ("route", "asked", "said"),
    [
        ([NEW, NEW, NEW, NEW], "Size? A gift? Color?", "2: L yes red"),
        # Begun before the change, but not beyond its place: the new code is as good as the old.
        ([OLD, NEW, NEW, NEW], "Size? A gift? Color?", "2: L yes red"),
        # Beyond it: the flow stays as it was.
        ([OLD, OLD, NEW], "Size? Color?", "2: L no gift red"),
        # Begun after the change, with a round on the old version: the flow stays as it was begun.
        ([NEW, NEW, OLD, NEW], "Size? A gift? Color?", "2: L yes red"),
    ],
)
def test_a_flow_that_has_a_change_behind_it_goes_on_without_it(
    fleet: Fleet, client: AnyClient, person: Person, route: list[int], asked: str, said: str
) -> None:
    follow(fleet, route)
    result = in_time(call(client, fleet.url, person, "ship", {"job": next(jobs)}))
    assert text_of(result) == said
    assert " ".join(person.asked) == asked
    assert fleet.balancer.route == route


def test_a_change_between_two_uses_of_one_key_is_behind_a_flow_that_was_asked_for_the_second(fleet: Fleet) -> None:
    job = {"job": next(jobs)}
    old, new = (instance.port for instance in fleet.instances)
    first = post(old, "pack", job)
    answers = {"thing": accept("book")}
    second = post(old, "pack", job, inputResponses=answers, requestState=first["requestState"])
    assert list(second["inputRequests"]) == ["thing#2"]
    answers = {"thing#2": accept("pen")}
    done = post(new, "pack", job, inputResponses=answers, requestState=second["requestState"])
    assert done["content"][0]["text"] == "2: ['book', 'pen']"


# The same code somewhere else

TOOLS = r'''
from enum import Enum
from typing import Annotated
from pydantic import BaseModel
from turnwise import Context, Elicit, Resolve

class Region(Enum):
    """Where."""
    NORTH = "north"
    SOUTH = "south"

class Trip(BaseModel):
    """A trip."""
    city: str
    region: Region = Region.NORTH

def ask_budget(job: str) -> Elicit[int]:
    return Elicit(f"Budget of {job}?", int)

class Desk:
    async def reserve(self, job: str, trip: Trip) -> str:
        note("reserve", job)
        return f"{trip.city}, {trip.region.value}"

desk = Desk()

async def plan(job: str, budget: Annotated[int, Resolve(ask_budget)], ctx: Context) -> str:
    """Four questions without a key, and a step that is a method."""
    trip = await ctx.elicit("Which trip?", Trip)
    place = await ctx.step(desk.reserve, job, trip.data)
    guests = [(await ctx.elicit("Another guest?", str)).data for _ in range(2)]
    return f"{place} for {budget}: {guests}"
'''


def layouts(place: Path) -> list[tuple[list[str], Path]]:
    """One program in three places: a script; a package, run as a module; the same under another name, in two files."""
    script = place / "script" / "trips.py"
    module = place / "module" / "company" / "travel" / "server.py"
    renamed = place / "renamed" / "bureau"
    for directory in (script.parent, module.parent, renamed / "parts"):
        directory.mkdir(parents=True)
    whole = BOTH + TOOLS + "server.add_tool(plan)\n" + RUN
    script.write_text(whole)
    (module.parent / "__init__.py").touch()
    module.write_text("def main():\n" + textwrap.indent(whole, "    ") + "\nmain()\n")
    (renamed / "parts" / "journeys.py").write_text(BOTH + TOOLS)
    (renamed / "__init__.py").touch()
    (renamed / "__main__.py").write_text(
        "import sys\nfrom bureau.parts.journeys import plan, server\nserver.add_tool(plan)\n" + RUN
    )
    return [
        ([str(script)], place),
        (["-m", "company.travel.server"], place / "module"),
        (["-m", "bureau"], place / "renamed"),
    ]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    place = tmp_path_factory.mktemp("places")
    env = environment(KEY=KEY, EFFECTS=str(place / "effects.log"))
    instances = [
        Instance(command, env, place / f"{number}.log", cwd=cwd) for number, (command, cwd) in enumerate(layouts(place))
    ]
    with fleet_of(instances, place / "effects.log") as fleet:
        yield fleet


@pytest.mark.parametrize("begin", [0, 1, 2], ids=["script", "module", "package"])
def test_a_program_that_was_moved_or_renamed_goes_on_with_the_flow(places: Fleet, begin: int) -> None:
    job = next(jobs)
    ports = itertools.cycle(instance.port for instance in (*places.instances[begin:], *places.instances[:begin]))
    answers: dict[str, Any] = {
        f"Budget of {job}?": {"value": 100},
        "Which trip?": {"city": "Rome", "region": "south"},
        "Another guest?": {"value": "Bob"},
    }
    asked: list[str] = []
    result = post(next(ports), "plan", {"job": job})
    while result["resultType"] == "input_required":
        given = {}
        for key, request in result["inputRequests"].items():
            asked.append(request["params"]["message"])
            given[key] = {"action": "accept", "content": answers[asked[-1]]}
            assert key.startswith("elicitation-")
        result = post(next(ports), "plan", {"job": job}, inputResponses=given, requestState=result["requestState"])
    assert result["content"][0]["text"] == "Rome, south for 100: ['Bob', 'Bob']"
    assert asked == [f"Budget of {job}?", "Which trip?", "Another guest?", "Another guest?"]
    assert places.effects(job) == ["reserve"]
