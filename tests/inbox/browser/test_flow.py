"""A flow of three rounds, answered in the page, over a fleet of three instances of which one is killed in between."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.fleet.processes import EXAMPLES, KEY, Fleet, Instance, environment, fleet_of
from tests.inbox.browser.conftest import Enter, Office, Shoot


@pytest.fixture(scope="module")
def fleet(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three processes of the work item example, with one key and one store."""
    place: Path = tmp_path_factory.mktemp("work_items")
    names = {"WORK_ITEM_KEY": KEY, "WORK_ITEM_STORE": str(place / "guards.db"), "WORK_ITEM_LOG": str(place / "log")}
    command = [str(EXAMPLES / "work_item.py")]
    instances = [Instance(command, environment(**names), place / f"{number}.log") for number in range(3)]
    with fleet_of(instances, place / "log") as fleet:
        yield fleet


def test_a_work_item_is_resolved_in_the_page_while_an_instance_dies(
    fleet: Fleet, office: Office, enter: Enter, shoot: Shoot, tmp_path: Path
) -> None:
    arguments = {"workItemId": 4522, "fields": {"System.State": "Resolved"}}
    item = office.hand_over("update_work_item", arguments, server=fleet.url)
    page = enter(f"/items/{item}", record_har_path=tmp_path / "all.har", record_har_content="embed")
    page.evaluate("window.stays = true")
    expect(page.get_by_text("Resolving Bug #4522 requires a resolution.")).to_be_visible()
    page.get_by_label("Duplicate").check()
    shoot(page, "flow-1")
    page.get_by_role("button", name="Send answer").click()

    question = page.get_by_role("group", name="Asked by").get_by_text("which work item is the original?")
    expect(question).to_be_visible()
    expect(page.get_by_role("heading", name="Since Bug #4522")).to_be_focused()
    expect(page.locator("#told")).to_contain_text("Round 2. A question: Since Bug #4522")
    shoot(page, "flow-2")
    served = fleet.balancer.calls[-1].instance
    fleet.instances[served].kill()
    page.get_by_label("Your answer").fill("4301")
    page.get_by_role("button", name="Send answer").click()

    expect(page.get_by_role("heading", name="Done")).to_be_visible()
    expect(page.locator("[data-part=result]")).to_contain_text("resolution = Duplicate, duplicate_of = 4301")
    shoot(page, "flow-3")
    assert page.evaluate("window.stays")
    assert fleet.effects(4522) == ["read", "write", "comment"]
    assert fleet.balancer.calls[-1].instance != served

    page.context.close()
    seen = (tmp_path / "all.har").read_text()
    assert "which work item is the original" in seen
    states = {call.result["requestState"] for call in fleet.balancer.calls if "requestState" in call.result}
    assert len(states) == 3
    assert not [state for state in states | office.states if state in seen]
    for name in ("requestState", "requestedSchema"):
        assert name not in seen
