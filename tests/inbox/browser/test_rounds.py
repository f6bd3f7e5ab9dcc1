"""Several answers at once, one press for yes or no, and what comes next, in a real browser."""

import re
import time

import pytest
from playwright.sync_api import expect

from tests.inbox.browser.conftest import Enter, Office
from tests.inbox.browser.test_pages import result, send
from turnwise import Pending


@pytest.mark.parametrize("has_script", [True, False])
def test_a_round_is_answered_with_one_press(office: Office, enter: Enter, has_script: bool) -> None:
    page = enter(f"/items/{office.hand_over('three_at_once')}", java_script_enabled=has_script)
    for number, value in enumerate(("one", "two", "three")):
        page.get_by_label("Your answer").nth(number).fill(value)
    send(page, "Send all 3 answers")
    assert result(page) == "one two three"
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("has_script", [True, False])
def test_what_is_not_right_in_a_round_says_so_and_the_rest_is_sent(
    office: Office, enter: Enter, has_script: bool
) -> None:
    page = enter(f"/items/{office.hand_over('three_at_once')}", java_script_enabled=has_script)
    values = page.get_by_label("Your answer")
    values.nth(1).fill("two")
    send(page, "Send all 3 answers")
    expect(values).to_have_count(2)
    expect(page.get_by_role("status").filter(has_text="Sent")).to_be_focused()
    expect(page.get_by_role("alert")).to_have_text([re.compile("Your answer is needed")] * 2)
    values.nth(0).fill("one")
    values.nth(1).fill("three")
    send(page, "Send all 2 answers")
    assert result(page) == "one two three"
    expect(page.get_by_role("alert")).to_have_count(0)


def test_what_cannot_be_read_is_not_left_out_of_a_round(office: Office, enter: Enter) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "title": "Number"}}}
    params = {"mode": "form", "message": "How many?", "requestedSchema": schema}
    asking = {"method": "elicitation/create", "params": params}
    call = Pending(
        id="unread",
        server=office.asker,
        method="tools/call",
        params={"name": "count", "arguments": {}},
        requests={"a": asking, "b": asking},
        began=time.time(),
        asked=time.time(),
    )
    page = enter(f"/items/{office.lay_in(call)}")
    page.get_by_label("Number").nth(1).focus()
    page.keyboard.type("1e")
    send(page, "Send all 2 answers")
    expect(page.get_by_role("alert")).to_contain_text("Number must be a number.")
    expect(page.locator(".question")).to_have_count(2)
    page.get_by_label("Number").nth(1).fill("7")
    with page.expect_response("**/answers") as reply:
        send(page, "Send all 2 answers")
    assert reply.value.status == 200


@pytest.mark.parametrize(("word", "value"), [("Yes", True), ("No", False)])
def test_yes_and_no_are_one_press_and_lead_on(office: Office, enter: Enter, word: str, value: bool) -> None:
    page = enter(f"/items/{office.hand_over('approve', {'what': 'search'})}")
    other = office.hand_over("approve", {"what": "another"})
    page.get_by_role("button", name=word, exact=True).click()
    assert result(page) == f"search: {value}"
    page.get_by_role("link", name=re.compile(r"Next question \(\d+ waiting\)")).click()
    page.wait_for_url(re.compile("/items/"))
    expect(page.locator(".question")).to_be_visible()
    page.goto(f"/items/{other}")
    page.get_by_role("button", name=word, exact=True).click()
    result(page)
