"""What somebody typed: it outlives a reload, a way back and a new session, and is shown to who was not the first."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.inbox.browser.conftest import Enter, Office, Shoot
from tests.inbox.browser.serving import ANN, BOB
from tests.inbox.browser.test_pages import fill_every_kind, result, send

BACK = "What you typed here before is back."
STORED = "Object.entries(sessionStorage).filter(([name]) => name.startsWith('turnwise draft ')).map(([, text]) => text)"


def sign_in(page: Page, token: str = ANN) -> None:
    page.get_by_label("Access token").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"^(?!.*login)"))


def kept(page: Page) -> list[str]:
    boxes = page.locator("[data-part^='kept-'] textarea")
    expect(boxes.first).to_be_visible()
    return [box.input_value() for box in boxes.all()]


# Drafts


def test_what_is_typed_outlives_a_way_back_and_a_reload(office: Office, enter: Enter, shoot: Shoot) -> None:
    item = office.hand_over("three_at_once")
    page = enter(f"/items/{item}")
    page.get_by_label("Your answer").nth(1).fill("half a sen")
    page.get_by_role("link", name="All questions").click()
    page.locator(f"a[href='/items/{item}']").click()
    values = page.get_by_label("Your answer")
    expect(values.nth(1)).to_have_value("half a sen")
    expect(page.get_by_text(BACK)).to_have_count(1)
    shoot(page, "typed-before")
    page.reload()
    expect(values.nth(1)).to_have_value("half a sen")
    expect(values.nth(0)).to_have_value("")
    page.get_by_role("button", name="Send answer").nth(1).click()
    expect(values).to_have_count(2)
    expect(page.get_by_text(BACK)).to_have_count(0)
    assert page.evaluate(STORED) == [], "it is sent, and is forgotten"


def test_every_kind_of_field_comes_back(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('every_kind')}", timezone_id="Asia/Tokyo")
    fill_every_kind(page)
    page.reload()
    expect(page.get_by_text(BACK)).to_be_visible()
    page.get_by_label("Moment", exact=True).fill("2026-07-31T10:00:00")
    send(page)
    content = eval(result(page))
    assert (content["name"], content["guests"], content["agreed"], content["city"]) == ("Ada", 3, True, "City 7")
    assert (content["days"], content["extras"]) == (["Mo", "We"], ["w", "b"])
    assert content["moment"] == "2026-07-31T10:00:00+05:30", "the zone that was chosen"


def test_what_came_back_is_discarded(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('every_kind')}")
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("Guests").fill("7")
    page.reload()
    expect(page.get_by_label("Guests")).to_have_value("7")
    page.get_by_role("button", name="Discard it").press("Enter")
    expect(page.get_by_label("Guests")).to_have_value("2")
    expect(page.get_by_label("Your name")).to_have_value("")
    expect(page.get_by_label("Your name")).to_be_focused()
    assert page.evaluate(STORED) == []
    page.reload()
    expect(page.get_by_label("Your name")).to_have_value("")
    expect(page.get_by_text(BACK)).to_have_count(0)


def test_what_was_typed_and_taken_away_again_is_no_draft(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('greet')}")
    page.get_by_label("Your answer").fill("To")
    page.reload()
    page.get_by_label("Your answer").fill("")
    page.reload()
    expect(page.get_by_label("Your answer")).to_have_value("")
    expect(page.get_by_text(BACK)).to_have_count(0)


def test_what_is_typed_outlives_a_session_and_not_a_sign_out(office: Office, enter: Enter) -> None:
    item = office.hand_over("greet")
    page = enter(f"/items/{item}", token="")
    sign_in(page)
    page.get_by_label("Your answer").fill("Tom")
    page.context.clear_cookies()
    page.reload()
    sign_in(page)
    expect(page.get_by_label("Your answer")).to_have_value("Tom")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    assert page.evaluate(STORED) == []
    page.goto(f"/items/{item}")
    sign_in(page)
    expect(page.get_by_label("Your answer")).to_have_value("")


def test_nobody_else_gets_what_somebody_typed(office: Office, enter: Enter) -> None:
    item = office.hand_over("greet")
    page = enter(f"/items/{item}", token="")
    sign_in(page)
    page.get_by_label("Your answer").fill("for Ann alone")
    page.context.clear_cookies()
    page.reload()
    sign_in(page, BOB)
    expect(page.get_by_label("Your answer")).to_have_value("")
    assert page.evaluate(STORED) == []


def test_a_sign_out_in_another_tab_forgets_what_is_kept_here(office: Office, enter: Enter) -> None:
    item = office.hand_over("greet")
    page = enter(f"/items/{item}", token="")
    sign_in(page)
    page.get_by_label("Your answer").fill("Tom")
    page.reload()
    assert len(page.evaluate(STORED)) == 1
    other = page.context.new_page()
    other.goto("/")
    other.get_by_role("button", name="Sign out").click()
    other.wait_for_url("**/login")
    page.wait_for_function(f"{STORED}.length === 0")
    expect(page.get_by_label("Your answer")).to_have_value("Tom")
    page.goto("/login")
    assert page.evaluate(STORED) == []


# Others were first


def test_who_was_overtaken_while_typing_has_the_text_to_copy(office: Office, enter: Enter, shoot: Shoot) -> None:
    item = office.hand_over("three_at_once")
    page, bob = enter(f"/items/{item}"), enter(f"/items/{item}", token=BOB)
    text = "a long and well considered\nanswer <b>of mine</b>"
    page.get_by_label("Your answer").first.evaluate("(one, text) => { one.focus(); }", text)
    page.keyboard.insert_text(text.replace("\n", " "))
    bob.get_by_label("Your answer").first.fill("quick")
    send(bob)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("bob was first")
    assert kept(page) == [text.replace("\n", " ")]
    expect(alert).to_be_focused()
    shoot(page, "overtaken")
    page.keyboard.press("Tab")
    expect(alert.get_by_label("Your answer")).to_be_focused()
    expect(alert.get_by_label("Your answer")).to_have_attribute("readonly", "")
    assert page.evaluate(STORED) == []
    page.locator(".question").get_by_label("Your answer").first.fill("second")
    send(page)
    expect(page.locator(".notice.good")).to_be_focused()
    assert kept(page) == [text.replace("\n", " ")], "the next answer does not take it"
    page.get_by_role("button", name="Dismiss").click()
    expect(alert).to_have_count(0)


def test_who_sends_second_has_the_text_to_copy(office: Office, enter: Enter) -> None:
    item = office.hand_over("greet")
    bob = enter(f"/items/{item}", token=BOB)
    bob.route("**/events", lambda route: route.abort())
    bob.reload()
    bob.get_by_label("Your answer").fill("from Bob")
    ann = enter(f"/items/{item}")
    ann.get_by_label("Your answer").fill("from Ann")
    send(ann)
    result(ann)
    send(bob)
    expect(bob.get_by_role("alert")).to_contain_text("ann answered this before")
    expect(bob.get_by_role("alert")).to_be_focused()
    assert kept(bob) == ["from Bob"]


def test_all_that_was_typed_is_shown_where_a_call_is_ended(office: Office, enter: Enter) -> None:
    item = office.hand_over("three_at_once")
    page, bob = enter(f"/items/{item}"), enter(f"/items/{item}", token=BOB)
    for number, text in enumerate(("one", "two")):
        page.get_by_label("Your answer").nth(number).fill(text)
    bob.get_by_text("End this call").click()
    send(bob, "End the call without an answer")
    expect(page.get_by_role("alert")).to_contain_text("This question is no longer asked")
    assert kept(page) == ["one", "two"]
    expect(page.get_by_role("alert")).to_have_count(1)


def test_who_comes_back_to_an_answered_question_has_the_text_to_copy(office: Office, enter: Enter) -> None:
    item = office.hand_over("every_kind")
    page, bob = enter(f"/items/{item}"), enter(f"/items/{item}", token=BOB)
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("green").check()
    page.get_by_label("City").select_option("City 7")
    page.goto("/")
    send(bob, "Decline")
    result(bob)
    page.goto(f"/items/{item}")
    expect(page.get_by_role("alert")).to_contain_text("bob was first")
    expect(page.get_by_role("alert")).to_be_focused()
    assert kept(page) == ["Ada", "green", "City 7"]
    page.reload()
    expect(page.get_by_role("heading", name="Declined")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("size", [{"width": 320, "height": 640}, {"width": 1200, "height": 800}])
def test_what_is_kept_fits_the_page(office: Office, enter: Enter, shoot: Shoot, size: dict[str, int]) -> None:
    item = office.hand_over("every_kind")
    page = enter(f"/items/{item}", viewport=size, color_scheme="dark")
    fill_every_kind(page)
    page.get_by_label("Why").fill("word " * 80 + "\n" + "x" * 60)
    page.reload()
    shoot(page, f"typed-before-{size['width']}-dark")
    bob = enter(f"/items/{item}", token=BOB)
    send(bob, "Decline")
    expect(page.get_by_role("alert")).to_contain_text("bob was first")
    assert len(kept(page)) > 10
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    shoot(page, f"overtaken-{size['width']}-dark")
