"""Every state that a page can be in, to axe, to a keyboard, on a phone, in the dark, and enlarged."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.inbox.browser.conftest import Enter, Office, Shoot
from tests.inbox.browser.serving import ANN, BOB
from tests.inbox.browser.test_pages import fill_every_kind, result, send

SIZES = {"wide": {"width": 1280, "height": 800}, "phone": {"width": 320, "height": 640}}
ZOOMED = {"width": 640, "height": 400}
"""What is left of 1280 by 800 at 200 %."""

Look = Callable[[Page, str], None]


@pytest.fixture
def look(axe: str, shoot: Shoot) -> Iterator[Look]:
    """Look at a page in every way, and say at the end what was wrong with all of them."""
    wrong: dict[str, list[str]] = {}

    def look(page: Page, name: str) -> None:
        assert page.title().endswith(" – Turnwise inbox"), name
        found = []
        for size, viewport in SIZES.items():
            page.set_viewport_size({"width": viewport["width"], "height": viewport["height"]})
            for colours in ("light", "dark"):
                page.emulate_media(color_scheme=colours)
                found += [f"{size} {colours} {one}" for one in findings(page, axe)]
                shoot(page, f"state-{name.replace(' ', '-')}-{size}-{colours}")
            found += overflowing(page, size)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": ZOOMED["width"], "height": ZOOMED["height"]})
        found += overflowing(page, "zoomed")
        page.set_viewport_size({"width": 1280, "height": 800})
        found += enlarged(page)
        if found:
            wrong[name] = found

    yield look
    assert wrong == {}


def findings(page: Page, axe: str) -> list[str]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{rule['id']} {node['html'][:200]}" for rule in found for node in rule["nodes"]]


def overflowing(page: Page, name: str) -> list[str]:
    """Whether anything has to be scrolled to sideways, or sticks out of its box."""
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    return [f"{name}: scrolls sideways"] * bool(wide)


SPACED = "* { line-height: 1.5 !important; letter-spacing: .12em !important; word-spacing: .16em !important; }"


def enlarged(page: Page) -> list[str]:
    """With letters of twice the size, and with those spaced as WCAG 1.4.12 has it."""
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    found = overflowing(page, "letters of twice the size")
    page.evaluate("document.documentElement.style.fontSize = ''")
    page.evaluate("(rule) => document.styleSheets[0].insertRule(rule)", SPACED)
    found += overflowing(page, "spaced")
    page.evaluate("document.styleSheets[0].deleteRule(0)")
    return found


def test_no_state_of_a_page_has_anything_that_axe_finds(
    office: Office, enter: Enter, look: Look, tmp_path: Path
) -> None:
    """In one test, because it begins with an inbox in which nothing is."""
    page = enter(token="")
    look(page, "login")
    page.get_by_label("Access token").fill("wrong, and long enough to be one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_focused()
    assert page.title().startswith("Not signed in: ")
    look(page, "login error")
    page = enter()
    expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    look(page, "empty list")
    page.goto("/history")
    look(page, "empty history")
    page.goto("/items/none")
    look(page, "not there")
    every = office.hand_over("every_kind")
    page.goto(f"/items/{every}")
    look(page, "every field")
    send(page)
    expect(page.get_by_role("alert")).to_be_focused()
    assert page.title() == "Not right yet: Every kind – Turnwise inbox"
    look(page, "mistakes")
    fill_every_kind(page)
    page.get_by_label("Code").fill("abc")
    send(page)
    expect(page.get_by_role("alert")).to_contain_text("One thing is not right yet")
    look(page, "mistakes that the inbox found")
    page.get_by_label("Code").fill("ABC-1")
    send(page)
    result(page)
    assert page.title() == "Done: Every kind – Turnwise inbox"
    look(page, "done")
    page.goto("/history")
    look(page, "history")


def test_nor_has_any_in_which_others_are_at_work(office: Office, enter: Enter, look: Look, tmp_path: Path) -> None:
    task = office.hand_over("report", {"gate": str(tmp_path / "gate")})
    page = enter(f"/items/{task}")
    expect(page).to_have_title(re.compile("^Under way: Report"))
    look(page, "under way")
    item = office.hand_over("three_at_once")
    bob = enter(f"/items/{item}", token=BOB)
    bob.get_by_label("Your answer").first.fill("late")
    page.goto(f"/items/{item}")
    page.get_by_label("Your answer").first.fill("early")
    send(page)
    expect(bob.get_by_role("alert")).to_contain_text("ann was first")
    look(bob, "overtaken")
    page.get_by_text("End this call").click()
    look(page, "about to end")
    send(page, "End the call without an answer")
    expect(page).to_have_title(re.compile("^Withdrawn: Three at once"))
    look(page, "failed")
    office.hand_over("hostile", {"size": 3000})
    office.hand_over("visit", {"url": "https://pay.example@bücher.example/x"})
    page.goto("/")
    look(page, "full list")
    page.goto(f"/items/{office.hand_over('visit', {'url': 'https://pay.example@bücher.example/x/y?z=1'})}")
    look(page, "a page to visit")
    draft = {"role": "assistant", "content": {"type": "text", "text": "Blue"}, "model": "m1", "stopReason": "endTurn"}
    page.goto(f"/items/{office.hand_over('complete', {'text': 'Name one'}, drafts={'model': draft})}")
    look(page, "a draft")
    page.goto(f"/items/{office.hand_over('three_at_once')}")
    page.get_by_label("Your answer").nth(1).fill("one")
    page.get_by_role("button", name="Send answer").nth(1).click()
    expect(page.locator(".notice.good")).to_be_focused()
    look(page, "sent")
    page.get_by_label("Your answer").first.fill("typed")
    send(page, "Decline")
    expect(page.get_by_role("alert")).to_be_visible()
    look(page, "about to refuse")
    plain = enter(f"/items/{office.hand_over('three_at_once')}")
    plain.evaluate("say(SIGNED_OUT)")
    look(plain, "signed out")
    plain.evaluate("say(AWAY)")
    look(plain, "away")


RING = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  const isSeen = box.bottom > 0 && box.top < innerHeight && box.width > 0;
  return [one.outerHTML.slice(0, 100), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, isSeen];
}"""


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_wherever_the_keyboard_goes_it_is_seen(office: Office, enter: Enter, colours: str) -> None:
    item = office.hand_over("every_kind")
    for path in ("/", f"/items/{item}"):
        page = enter(path, color_scheme=colours, reduced_motion="reduce")
        places = set()
        for _ in range(70):
            page.keyboard.press("Tab")
            place, has_ring, is_seen = page.evaluate(RING)
            if place.startswith("<body"):
                break
            places.add(place)
            assert has_ring, place
            assert is_seen, place
        assert len(places) > (4 if path == "/" else 25)


def test_a_whole_day_without_a_mouse(office: Office, enter: Enter) -> None:
    """Sign in, find a call, make a mistake, mend it, answer, go back, sign out."""
    item = office.hand_over("greet", {"who": "the walrus"})
    page = enter("/", token="")
    keys = page.keyboard

    def to(name: str) -> None:
        for _ in range(40):
            keys.press("Tab")
            words = page.evaluate("[document.activeElement.innerText, document.activeElement.labels?.[0]?.innerText]")
            if any(name in (text or "") for text in words):
                return
        raise AssertionError(f"the keyboard does not get to {name}")

    keys.type(ANN)  # The field has the focus already.
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Waiting for an answer")).to_be_visible()
    to("Filter what waits")
    keys.type("walrus")
    expect(page.locator(".line")).to_have_count(1)
    to("What is the walrus called?")
    keys.press("Enter")
    page.wait_for_url(f"**/items/{item}")
    to("Send answer")
    keys.press("Enter")
    expect(page.get_by_role("alert")).to_be_focused()
    to("Your answer is needed")
    keys.press("Enter")
    expect(page.get_by_label("Your answer")).to_be_focused()
    expect(page.get_by_label("Your answer")).to_have_accessible_description(re.compile("This is needed"))
    keys.type("Paul")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Done")).to_be_focused()
    assert result(page) == "Hello Paul"
    page.reload()
    to("Sign out")
    keys.press("Enter")
    page.wait_for_url("**/login")


def test_the_keyboard_is_soon_at_the_question_and_then_at_what_came_of_it(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('three_at_once')}")
    values = page.get_by_label("Your answer")
    assert page.evaluate("document.activeElement === document.body"), "what was called is read before the form"
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the question")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".q-head").first).to_be_focused()
    page.keyboard.press("Tab")
    expect(values.nth(0)).to_be_focused()
    page.keyboard.type("one")
    page.keyboard.press("Enter")
    expect(page.locator(".notice.good")).to_be_focused()
    page.keyboard.press("Tab")
    expect(values.nth(0)).to_be_focused()
    for word in ("two", "three"):
        values.nth(0).fill(word)
        page.keyboard.press("Enter")
        expect(page.locator(f".earlier :text('{word}')")).to_be_visible()
    expect(page.get_by_role("heading", name="Done")).to_be_focused()
    assert page.get_by_role("link", name="To the question").count() == 0
    plain = enter(f"/items/{office.hand_over('greet')}", java_script_enabled=False)
    for key in ("Tab", "Tab", "Enter", "Tab"):
        plain.keyboard.press(key)
    expect(plain.get_by_label("Your answer")).to_be_focused()
