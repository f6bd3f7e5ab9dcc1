"""How the inbox's pages look: to a screen reader, in light and dark, on a phone, to who wants no motion."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.inbox.browser.conftest import Enter, Office, Shoot
from tests.inbox.browser.serving import BOSS

WIDE = {"width": 1200, "height": 800}
PHONE = {"width": 320, "height": 640}
PAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "greet": ("greet", {"who": "the cat"}),
    "every kind": ("every_kind", {}),
    "hostile": ("hostile", {"size": 1000}),
    "page": ("visit", {"url": "https://pay.example@bücher.example/x"}),
    "model": ("complete", {"text": "Name a colour"}),
    "folders": ("folders", {}),
    "three": ("three_at_once", {}),
    "raw": ("deep", {"depth": 20, "then": 1}),
}


SHOT = ("list", "every kind", "page", "model")


@pytest.fixture(scope="module")
def places(office: Office) -> dict[str, str]:
    """Every kind of page."""
    items = {name: f"/items/{office.hand_over(tool, arguments)}" for name, (tool, arguments) in PAGES.items()}
    return {"list": "/", "history": "/history", "nothing found": "/?q=zzz", "not there": "/items/none", **items}


def test_axe_finds_nothing_serious_in_light_or_dark(
    places: dict[str, str], enter: Enter, shoot: Shoot, axe: str
) -> None:
    page = enter(viewport=WIDE)
    findings = {"login": findings_of(enter("/login", token=""), axe)}
    for name, place in places.items():
        if name in ("greet", "hostile"):  # Of the same parts as others.
            continue
        page.goto(place)
        for button in page.get_by_role("button", name=re.compile("^Send")).all()[:1]:
            button.click()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        findings[name] = findings_of(page, axe)
        if name in SHOT:
            page.emulate_media(color_scheme="dark")
            shoot(page, f"{name.replace(' ', '-')}-dark")
            page.emulate_media(color_scheme="light")
    assert {name: found for name, found in findings.items() if found} == {}


def findings_of(page: Page, axe: str) -> list[str]:
    """What axe finds: all in light, and colours once more in dark."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    page.emulate_media(color_scheme="dark")
    found += page.evaluate("axe.run(document, {runOnly: ['color-contrast'], resultTypes: ['violations']})")[
        "violations"
    ]
    page.emulate_media(color_scheme="light")
    return [
        f"{rule['id']}: {rule['help']} {node['html'][:200]}"
        for rule in found
        if rule["impact"] in ("moderate", "serious", "critical")
        for node in rule["nodes"]
    ]


def test_who_only_looks_sees_all_and_has_nothing_to_press(office: Office, enter: Enter, shoot: Shoot, axe: str) -> None:
    page = enter(token=BOSS, viewport=WIDE)
    for name in ("every kind", "model", "folders", "raw", "page"):
        page.goto(f"/items/{office.hand_over(*PAGES[name])}")
        expect(page.get_by_text("you may look, and not answer")).to_be_visible()
        expect(page.locator("main").get_by_role("button")).to_have_count(0)
        expect(page.locator("main a[target=_blank]")).to_have_count(0)
        for control in page.locator("main").locator("input:not([type=hidden]), select, textarea").all():
            expect(control).to_be_disabled()
        assert findings_of(page, axe) == []
    expect(page.locator(".address")).to_contain_text("bücher.example")
    item = office.hand_over("three_at_once")
    page.goto(f"/items/{item}")
    shoot(page, "looking-on")
    expect(page.locator(".question")).to_have_count(3)
    ann = enter(f"/items/{item}")
    ann.get_by_label("Your answer").first.fill("x")
    ann.get_by_role("button", name="Send answer").first.click()
    expect(page.locator(".question")).to_have_count(2)
    expect(page.locator("[data-part=earlier]")).to_contain_text("ann")


CONTROLS = "button, input:not([type=hidden]), select, textarea, summary, nav a, a.button, a.line"
SMALL = f"""[...document.querySelectorAll('{CONTROLS}')]
  .map((one) => one.matches('[type=radio], [type=checkbox]') ? one.closest('label') : one)
  .filter((one) => one.offsetParent)
  .filter((one) => Math.min(one.getBoundingClientRect().height, one.getBoundingClientRect().width) < 43.9)
  .map((one) => one.outerHTML.slice(0, 120))"""


def test_every_page_fits_a_phone_and_a_thumb(places: dict[str, str], enter: Enter, shoot: Shoot) -> None:
    page = enter(viewport=PHONE, has_touch=True, is_mobile=True)
    for name, place in places.items():
        page.goto(place)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
        assert page.evaluate(SMALL) == [], name
        if name in SHOT:
            shoot(page, f"{name.replace(' ', '-')}-phone")


TOPS = "places => places.map((place) => document.querySelector(place).getBoundingClientRect())"


def test_what_is_decided_is_read_before_the_form(office: Office, enter: Enter, shoot: Shoot) -> None:
    """In the order of the page for who listens, one below the other on a phone, side by side where there is room."""
    page = enter(f"/items/{office.hand_over('greet', {'who': 'the cat'})}", viewport=PHONE)
    expect(page.get_by_role("heading", level=1)).to_have_text("Greet")
    expect(page.locator(".facts code")).to_have_text("greet")
    headings = page.get_by_role("heading").all_inner_texts()
    assert headings == ["Greet", "Called with", "Question", "What is the cat called?", "The call"]
    head, given, asked = page.evaluate(TOPS, ["h1", "[data-part=arguments]", ".question"])
    assert head["bottom"] < given["top"] < given["bottom"] < asked["top"] < PHONE["height"]
    shoot(page, "order-phone")
    page.set_viewport_size({"width": WIDE["width"], "height": WIDE["height"]})
    head, given, asked = page.evaluate(TOPS, ["h1", "[data-part=arguments]", ".question"])
    assert asked["right"] < given["left"]
    assert asked["top"] == given["top"]
    page.goto("/?q=cat")  # Other calls may be in the list as well, and older.
    gist = page.locator(".line-gist").first
    expect(gist).to_contain_text("who the cat")
    assert gist.evaluate("one => one.getBoundingClientRect().height") < 30


def test_nothing_moves_for_who_wants_no_motion(office: Office, enter: Enter) -> None:
    page = enter("/", reduced_motion="reduce")
    name = "const one = document.createElement('i'); one.className = 'turning'; document.body.append(one);"
    assert page.evaluate(f"() => {{ {name} return getComputedStyle(one).animationName }}") == "none"
