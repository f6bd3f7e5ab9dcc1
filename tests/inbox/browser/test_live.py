"""Pages that change by themselves: what others do, an inbox that goes away and comes back, a session that ends.

Whatever happens, what somebody typed stays, and so does the place where they are.
"""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

from tests.inbox.browser.conftest import Enter, Office, Shoot
from tests.inbox.browser.serving import ANN, BOB
from tests.inbox.browser.test_pages import result, send

FOCUS = "() => [document.activeElement.tagName, document.activeElement.closest('[data-part]')?.dataset.part]"
AWAY = "The inbox cannot be reached"


@pytest.fixture(autouse=True)
def _healed(office: Office) -> Iterator[None]:
    yield
    office.inbox.start()
    office.inbox.await_listener()


def answer(page: Page, value: str) -> None:
    page.get_by_label("Your answer").first.fill(value)
    send(page)
    result(page)


def focus(page: Page, item: str) -> None:
    page.locator(f"a[href='/items/{item}']").focus()


# What others do


def test_a_list_grows_and_shrinks_around_who_reads_it(office: Office, enter: Enter) -> None:
    first, second, third = (office.hand_over("greet", {"who": f"number {number}"}) for number in range(3))
    page = enter()
    expect(page.locator(".line")).to_have_count(3)
    assert page.title() == "(3) Waiting – Turnwise inbox"
    focus(page, second)
    page.evaluate("window.seen = document.activeElement")
    office.hand_over("greet", {"who": "number 3"})
    expect(page.locator(".line")).to_have_count(4)
    expect(page).to_have_title("(4) Waiting – Turnwise inbox")
    answer(enter(f"/items/{first}", token=BOB), "x")
    expect(page.locator(".line")).to_have_count(3)
    assert page.evaluate("window.seen === document.activeElement"), "the same link has the focus, and was not made anew"
    expect(page.locator("#told")).to_have_text("3 calls open")
    answer(enter(f"/items/{second}", token=BOB), "x")
    expect(page.locator(".line")).to_have_count(2)
    assert page.evaluate(FOCUS) == ["A", third], "where the focus was is gone: the next one has it"


def test_a_line_that_changes_keeps_the_focus(office: Office, enter: Enter) -> None:
    item = office.hand_over("three_at_once")
    page, bob = enter(), enter(f"/items/{item}", token=BOB)
    focus(page, item)
    bob.get_by_label("Your answer").first.fill("x")
    send(bob)
    expect(page.locator(f"[data-part='{item}']")).to_contain_text("2 questions")
    assert page.evaluate(FOCUS) == ["A", item]


def test_what_is_typed_stays_as_it_is_while_others_answer(office: Office, enter: Enter) -> None:
    item = office.hand_over("three_at_once")
    page, bob = enter(f"/items/{item}"), enter(f"/items/{item}", token=BOB)
    second = page.get_by_label("Your answer").nth(1)
    second.type("half a sen")
    second.evaluate("one => { window.seen = one; one.setSelectionRange(2, 4); }")
    for left in (2, 1):
        place = 0 if left == 2 else 1
        bob.get_by_label("Your answer").nth(place).fill("bob's")
        bob.get_by_role("button", name="Send answer").nth(place).click()
        expect(page.get_by_label("Your answer")).to_have_count(left)
        assert page.evaluate("[window.seen === document.activeElement, seen.selectionStart, seen.selectionEnd]") == [
            True,
            2,
            4,
        ]
    expect(page).to_have_title(re.compile("^A question: Three at once"))
    expect(page.get_by_label("Your answer")).to_have_value("half a sen")
    send(page)
    assert result(page) == "bob's half a sen bob's"


# An inbox that goes away


def test_a_list_says_that_it_is_old_and_catches_up(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter()
    page.evaluate("window.stays = true")
    page.get_by_label("Filter what waits").fill("elephant")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    office.inbox.kill()
    away = page.get_by_role("status").filter(has_text=AWAY)
    expect(away).to_be_visible()
    shoot(page, "away")
    office.inbox.start()
    office.inbox.await_listener()
    office.hand_over("greet", {"who": "the elephant"})
    expect(page.get_by_text("What is the elephant called?")).to_be_visible()
    expect(away).to_have_count(0)
    expect(page.get_by_label("Filter what waits")).to_have_value("elephant")
    assert page.evaluate("window.stays")


def test_what_is_typed_outlives_the_inbox(office: Office, enter: Enter) -> None:
    item = office.hand_over("greet")
    page = enter(f"/items/{item}")
    page.evaluate("window.stays = true")
    page.get_by_label("Your answer").fill("Tom")
    office.inbox.kill()
    send(page)
    expect(page.get_by_role("alert")).to_contain_text(AWAY)
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_label("Your answer")).to_have_value("Tom")
    office.inbox.start()
    office.inbox.await_listener()
    expect(page.locator("[data-away]")).to_be_empty()
    expect(page.get_by_label("Your answer")).to_have_value("Tom")
    send(page)
    assert result(page) == "Hello Tom"
    assert page.evaluate("window.stays")


def test_a_page_catches_up_with_what_happened_while_the_inbox_was_away(office: Office, enter: Enter) -> None:
    item = office.hand_over("three_at_once")
    page = enter(f"/items/{item}")
    page.get_by_label("Your answer").nth(2).fill("mine")
    page.context.set_offline(True)
    expect(page.locator("[data-away]")).to_contain_text(AWAY)
    bob = enter(f"/items/{item}", token=BOB)
    bob.get_by_label("Your answer").first.fill("x")
    send(bob)
    expect(bob.get_by_label("Your answer")).to_have_count(2)
    page.context.set_offline(False)
    expect(page.get_by_label("Your answer")).to_have_count(2)
    expect(page.get_by_label("Your answer").nth(1)).to_have_value("mine")
    expect(page.locator("[data-away]")).to_be_empty()


def test_a_reply_that_was_on_its_way_does_not_say_that_the_inbox_is_back(office: Office, enter: Enter) -> None:
    page = enter()
    late: list[tuple[Route, APIResponse]] = []
    page.route(re.compile(r"/$"), lambda route: late.append((route, route.fetch())))
    with page.expect_request(lambda request: "x-part" in request.headers):
        item = office.hand_over("greet")
    while not late:
        page.wait_for_timeout(50)
    page.context.set_offline(True)
    expect(page.locator("[data-away]")).to_contain_text(AWAY)
    route, reply = late.pop(0)
    route.fulfill(response=reply)
    expect(page.locator(f"[data-part='{item}']")).to_be_visible()
    expect(page.locator("[data-away]")).to_contain_text(AWAY)
    page.unroute_all()
    page.context.set_offline(False)
    expect(page.locator("[data-away]")).to_be_empty()


def test_a_stream_that_fell_silent_is_opened_anew(office: Office, enter: Enter) -> None:
    page = enter(token=ANN)
    page.clock.install()
    page.route("**/events", lambda route: None)  # Neither refused nor answered, as behind a line that was cut.
    page.reload()
    with page.expect_request("**/events"):
        page.clock.fast_forward(60_000)


def refused(page: Page, status: int) -> None:
    page.route("**/answers", lambda route: route.fulfill(status=status, body="no"))


def test_what_goes_wrong_at_the_inbox_does_not_take_what_was_typed(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('greet')}")
    page.evaluate("window.stays = true")
    page.get_by_label("Your answer").fill("Tom")
    for status in (500, 413, 404):
        refused(page, status)
        send(page)
        expect(page.get_by_role("alert")).to_contain_text("was not sent")
        expect(page.get_by_label("Your answer")).to_have_value("Tom")
        page.unroute("**/answers")
    send(page)
    assert result(page) == "Hello Tom"
    assert page.evaluate("window.stays")


# A session that ends


def test_who_is_signed_out_while_typing_signs_in_elsewhere_and_goes_on(
    office: Office, enter: Enter, shoot: Shoot
) -> None:
    page = enter(f"/items/{office.hand_over('greet')}", token="")
    sign_in(page)
    page.evaluate("window.stays = true")
    page.get_by_label("Your answer").fill("Tom")
    other = page.context.new_page()
    other.goto("/")
    other.get_by_role("button", name="Sign out").click()
    other.wait_for_url("**/login")
    send(page)
    expect(page.get_by_role("alert")).to_contain_text("You are signed out")
    shoot(page, "signed-out")
    expect(page.get_by_label("Your answer")).to_have_value("Tom")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Sign in in another tab").first.click()
    sign_in(opened.value)
    opened.value.close()
    send(page)  # The word of the session is another one now.
    assert result(page) == "Hello Tom"
    assert page.evaluate("window.stays")


def test_who_is_signed_out_and_typed_nothing_is_led_to_the_door(office: Office, enter: Enter) -> None:
    page = enter("/", token="")
    sign_in(page)
    other = page.context.new_page()
    other.goto("/")
    other.get_by_role("button", name="Sign out").click()
    other.wait_for_url("**/login")
    office.hand_over("greet")
    page.wait_for_url("**/login**")


def sign_in(page: Page) -> None:
    page.get_by_label("Access token").fill(ANN)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"^(?!.*login)"))
