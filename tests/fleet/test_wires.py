"""The drafts on three processes behind a balancer that knows nothing, with no store: any instance serves any round.

SEP-1858 has its instances share a store; here the id of a turn's last event is the call itself, sealed. Only what does
not fit into a header needs a store.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fleet.balancer import Passage
from tests.fleet.processes import KEY, Fleet, Instance, environment, fleet_of
from tests.wires import tool
from tests.wires.clients import APPROVED, FIRST_DRAFT, KINDS, MULTI_TURN, Http, MultiTurn, Wire, in_time, opened
from tests.wires.people import Person

DRAFTS = [MULTI_TURN, APPROVED, FIRST_DRAFT]
COUNTED = {"Mcp-Method": "tools/call"}
"""The balancer keeps what bears this header; these wires have no use for it."""
ROUNDS = 5
LONGEST_ID = 6 * 1024
cities = (f"city-{number}" for number in itertools.count(1))


def instances(place: Path, **more: str) -> list[Instance]:
    env = environment(KEY=KEY, EFFECTS=str(place / "effects.log"), **more)
    return [Instance([tool.__file__], env, place / f"{number}.log") for number in range(3)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three processes that share a key and nothing else."""
    place = tmp_path_factory.mktemp("plain")
    with fleet_of(instances(place), place / "effects.log") as fleet:
        yield fleet


@pytest.fixture(scope="module")
def with_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    place = tmp_path_factory.mktemp("with_store")
    with fleet_of(instances(place, STORE=str(place / "flows.db")), place / "effects.log") as fleet:
        yield fleet


@pytest.fixture
def fleet(plain: Fleet) -> Fleet:
    plain.heal()
    plain.balancer.begin()
    return plain


def rounds(fleet: Fleet) -> list[Passage]:
    """What went through, but for the handshake."""
    return [
        passage
        for passage in fleet.balancer.calls
        if isinstance(passage.request, list) or passage.request.get("method") == "tools/call"
    ]


def call(fleet: Fleet, version: str, name: str, **arguments: Any) -> tuple[dict[str, Any], Wire]:
    async def run() -> tuple[dict[str, Any], Wire]:
        async with aiohttp.ClientSession() as http:
            wire = await opened(Http(http, fleet.url, COUNTED), version)
            reply = await wire.call("tools/call", {"name": name, "arguments": arguments}, Person().answer)
            return reply, wire

    answered: tuple[dict[str, Any], Wire] = in_time(run())
    return answered


def trip(city: str) -> dict[str, Any]:
    return {
        "booking": f"a room in {city}",
        "guest": {"name": "Ada", "age": 36},
        "motto": f"Ada: A motto for {city}",
        "folders": ["file:///Ada/36"],
        "meal": "soup for Ada",
        "row": 36,
    }


@pytest.mark.parametrize("version", DRAFTS)
def test_each_round_is_served_by_another_process(fleet: Fleet, version: str) -> None:
    city = next(cities)
    reply, wire = call(fleet, version, "inline", city=city)
    assert reply["result"]["structuredContent"] == trip(city)
    route = [passage.instance for passage in rounds(fleet)]
    assert len(route) == wire.rounds == ROUNDS
    assert route == [(route[0] + turn) % 3 for turn in range(ROUNDS)]
    assert fleet.effects(city) == ["reserve"]


@pytest.mark.parametrize("position", [2, ROUNDS])
@pytest.mark.parametrize("version", DRAFTS)
def test_a_process_that_is_killed_between_two_rounds_is_not_missed(fleet: Fleet, version: str, position: int) -> None:
    city = next(cities)
    killed: list[int] = []

    def kill(passage: Passage) -> None:
        done = rounds(fleet)[:-1]
        if len(done) == position - 1 and not killed:
            last = fleet.instances[done[-1].instance]
            killed.append(last.pid)
            last.kill()

    fleet.balancer.before = kill
    reply, _ = call(fleet, version, "inline", city=city)
    assert reply["result"]["structuredContent"] == trip(city)
    dead = rounds(fleet)[position - 2].instance
    assert len(killed) == 1
    assert dead not in [passage.instance for passage in rounds(fleet)[position - 1 :]]
    assert fleet.effects(city) == ["reserve"]


@pytest.mark.parametrize("version", DRAFTS)
def test_the_session_that_one_process_opened_is_known_to_all_of_them(fleet: Fleet, version: str) -> None:
    """The one that opened it is gone before the first call."""
    city = next(cities)

    async def run() -> dict[str, Any]:
        async with aiohttp.ClientSession() as http:
            wire = await opened(Http(http, fleet.url, COUNTED), version)
            fleet.instances[fleet.balancer.route[0]].kill()
            return await wire.call("tools/call", {"name": "declared", "arguments": {"city": city}}, Person().answer)

    assert in_time(run())["result"]["structuredContent"] == trip(city)
    assert fleet.balancer.route[0] not in [passage.instance for passage in rounds(fleet)]


def test_a_turn_that_fits_no_header_is_refused_where_there_is_no_store(fleet: Fleet) -> None:
    """The client hears that the tool failed, and the log says what to do about it."""
    fleet.expected.add("AuthorError")
    reply, wire = call(fleet, MULTI_TURN, "load", city="Rome", kilobytes=8)
    assert reply["id"] == 2
    assert reply["result"]["isError"] is True
    assert wire.rounds == 1
    log = fleet.instances[rounds(fleet)[0].instance].log.read_text()
    assert "a header takes 6144: give the server a store, MCPServer(store=...)" in log


@pytest.mark.parametrize("version", [APPROVED, FIRST_DRAFT])
def test_what_fits_no_header_fits_the_other_drafts(fleet: Fleet, version: str) -> None:
    reply, _ = call(fleet, version, "load", city="Rome", kilobytes=8)
    assert reply["result"]["structuredContent"] == {"result": 8 * 1024 + 36}


def test_a_turn_that_fits_no_header_is_put_into_a_store_that_all_instances_share(with_store: Fleet) -> None:
    with_store.balancer.begin()
    reply, wire = call(with_store, MULTI_TURN, "load", city="Rome", kilobytes=8)
    assert reply["result"]["structuredContent"] == {"result": 8 * 1024 + 36}
    first, second = (passage.instance for passage in rounds(with_store))
    assert first != second
    assert isinstance(wire, MultiTurn)
    assert 0 < len(wire.last_event) < LONGEST_ID


def test_a_turn_in_a_store_survives_its_instance(with_store: Fleet) -> None:
    with_store.balancer.begin()

    def kill(passage: Passage) -> None:
        if len(rounds(with_store)) == 2:
            with_store.instances[rounds(with_store)[0].instance].kill()

    with_store.balancer.before = kill
    reply, _ = call(with_store, MULTI_TURN, "load", city="Oslo", kilobytes=300)
    assert reply["result"]["structuredContent"] == {"result": 300 * 1024 + 36}


def test_every_draft_is_one_of_those_that_are_tested_here() -> None:
    assert set(DRAFTS) == {version for version in KINDS if not version[0].isdigit()}
