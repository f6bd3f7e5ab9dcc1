"""Both clients, and a fleet of the work item example."""

from collections.abc import Iterator
from pathlib import Path

import mcp.client
import pytest

import turnwise
from tests.fleet.processes import EXAMPLES, KEY, AnyClient, Fleet, Instance, environment, fleet_of


@pytest.fixture(params=[turnwise.Client, mcp.client.Client], ids=["turnwise", "official"])
def client(request: pytest.FixtureRequest) -> AnyClient:
    kind: AnyClient = request.param
    return kind


@pytest.fixture(scope="module")
def work_items(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three processes of the example, with one key and one store."""
    place: Path = tmp_path_factory.mktemp("work_items")
    names = {
        "WORK_ITEM_KEY": KEY,
        "WORK_ITEM_STORE": str(place / "guards.db"),
        "WORK_ITEM_LOG": str(place / "effects.log"),
    }
    script = str(EXAMPLES / "work_item.py")
    instances = [Instance([script], environment(**names), place / f"{number}.log") for number in range(3)]
    with fleet_of(instances, place / "effects.log") as fleet:
        yield fleet
