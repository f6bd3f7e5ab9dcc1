"""Sending: it is seen and heard at once, a reply that does not come is told, and so is one that came to nothing."""

import re

import pytest
from playwright.sync_api import Page, Request, Route, expect

from tests.inbox.browser.conftest import Enter, Office, Shoot
from tests.inbox.browser.test_pages import result, send
from turnwise.inbox.posted import LARGEST_POST


def held_back(page: Page) -> list[Route]:
    """Posts of a page that are neither answered nor refused."""
    routes: list[Route] = []

    def hold(route: Route) -> None:
        routes.append(route)

    page.route("**/answers", hold)
    return routes


def await_one(page: Page, routes: list[Route], number: int = 1) -> None:
    while len(routes) < number:
        page.wait_for_timeout(50)


def opened(enter: Enter, path: str) -> Page:
    """A page whose clock can be put forward."""
    page = enter("/")
    page.clock.install()
    page.goto(path)
    return page


def test_who_sends_is_told_at_once_beside_the_button(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter(f"/items/{office.hand_over('three_at_once')}")
    routes = held_back(page)
    page.get_by_label("Your answer").first.fill("Tom")
    send(page)
    word = page.locator(".question").first.get_by_role("status")
    expect(word).to_have_text("Sending…")
    shoot(page, "sending")
    send(page)  # Once more: nothing happens.
    await_one(page, routes)
    routes[0].continue_()
    expect(page.locator(".notice.good")).to_be_focused()
    expect(page.get_by_text("Sending…")).to_have_count(0)
    assert len(routes) == 1


def without_reply(office: Office, enter: Enter) -> tuple[Page, list[Route]]:
    """A page whose answer was sent a while ago."""
    page = opened(enter, f"/items/{office.hand_over('greet')}")
    routes = held_back(page)
    page.get_by_label("Your answer").fill("Tom")
    send(page)
    await_one(page, routes)
    page.clock.fast_forward(16_000)
    expect(page.get_by_role("alert")).to_contain_text("There is no reply yet")
    return page, routes


def test_a_reply_that_does_not_come_is_told_and_one_may_try_again(office: Office, enter: Enter, shoot: Shoot) -> None:
    page, routes = without_reply(office, enter)
    expect(page.get_by_text("Sending…")).to_have_count(0)
    shoot(page, "no-reply-yet")
    send(page)
    await_one(page, routes, 2)
    expect(page.get_by_role("alert")).to_have_count(0)
    routes[1].continue_()
    page.clock.run_for(1000)
    assert result(page) == "Hello Tom"
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_reply_that_comes_late_still_counts(office: Office, enter: Enter) -> None:
    page, routes = without_reply(office, enter)
    routes[0].continue_()
    page.clock.run_for(1000)
    assert result(page) == "Hello Tom"
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("heard", ["before", "afterwards", "never"])
def test_an_answer_that_was_taken_after_all_is_told_as_such(office: Office, enter: Enter, heard: str) -> None:
    item, has_stream = office.hand_over("three_at_once"), heard != "never"
    page = enter("/")
    if not has_stream:
        page.route("**/events", lambda route: route.abort())
    page.goto(f"/items/{item}")

    posted: list[Request] = []

    def cut(route: Route) -> None:
        posted.append(route.request)
        if heard == "before":
            page.request.fetch(route.request)
            expect(page.get_by_label("Your answer")).to_have_count(2)
        route.abort()

    page.route("**/answers", cut, times=1)
    if not has_stream:
        page.route(f"**/items/{item}", lambda route: route.abort())
    page.get_by_label("Your answer").first.fill("Tom")
    send(page)
    if heard != "before":
        expect(page.get_by_role("alert")).to_contain_text("it counts once")
        expect(page.get_by_label("Your answer").first).to_have_value("Tom")
        page.request.fetch(posted[0])
    if not has_stream:  # Nothing tells the page, until it is sent again.
        send(page)
    expect(page.get_by_label("Your answer")).to_have_count(2)
    expect(page.locator(".notice")).to_have_text(re.compile("You have answered this.*Your answer was taken."))
    expect(page.locator("[data-part^='kept-']")).to_have_count(0)


def test_words_about_an_outage_go_with_it(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter(f"/items/{office.hand_over('greet')}")
    page.get_by_label("Your answer").fill("Tom")
    office.inbox.kill()
    send(page)
    alert = page.locator(".question").get_by_role("alert")
    expect(alert).to_contain_text("The inbox cannot be reached")
    expect(alert).to_be_focused()
    shoot(page, "not-reached")
    office.inbox.start()
    office.inbox.await_listener()
    expect(alert).to_have_count(0)
    expect(page.locator("[data-away]")).to_be_empty()
    expect(page.get_by_role("button", name="Send answer")).to_be_focused()
    expect(page.locator("#told")).to_have_text("What you typed is not sent yet. You can send it now.")
    page.keyboard.press("Enter")
    assert result(page) == "Hello Tom"


def test_a_proxy_that_does_not_reach_the_inbox_is_an_outage_too(office: Office, enter: Enter) -> None:
    item = office.hand_over("greet")
    page = enter(f"/items/{item}")
    page.get_by_label("Your answer").fill("Tom")
    page.route(re.compile("/(events|answers|items/.*)$"), lambda route: route.fulfill(status=502, body="no"))
    send(page)
    alert = page.locator(".question").get_by_role("alert")
    expect(alert).to_contain_text("The inbox cannot be reached")
    expect(page.locator("[data-away]")).to_contain_text("The inbox cannot be reached")
    page.unroute_all()
    page.evaluate("look()")
    expect(page.locator("[data-away]")).to_be_empty()
    expect(alert).to_have_count(0)
    send(page)
    assert result(page) == "Hello Tom"


def test_an_answer_that_is_too_long_is_told_as_such(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('remark')}")
    assert page.evaluate("LARGEST") == LARGEST_POST
    alert = page.get_by_role("alert")
    for length in (3 * 1024 * 1024, 700 * 1024):  # And one that takes three times as much on its way.
        letter = "x" if length > 2**20 else "é"
        line = f"'{letter}'.repeat(1023) + '\\n'"
        page.get_by_label("Your answer").evaluate(f"one => {{ one.value = ({line}).repeat({length // 1024}); }}")
        send(page)
        expect(alert).to_contain_text("Your answer is too long")
        expect(alert).to_be_focused()
    page.get_by_label("Your answer").fill("Tom")
    page.route("**/answers", lambda route: route.fulfill(status=413, body="no"), times=1)
    send(page)  # A proxy may take less than the inbox.
    expect(alert).to_contain_text("Your answer is too long")
    send(page)
    assert result(page) == "said Tom"
