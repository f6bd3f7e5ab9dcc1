"""How the inbox's pages look: to a screen reader, in light and dark, on a phone, to who wants no motion."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.inbox.browser.conftest import Enter, Office, Shoot

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
        page.wait_for_function("!document.querySelector('[aria-busy=true]')")
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


def test_nothing_moves_for_who_wants_no_motion(office: Office, enter: Enter) -> None:
    page = enter("/", reduced_motion="reduce")
    name = "const one = document.createElement('i'); one.className = 'turning'; document.body.append(one);"
    assert page.evaluate(f"() => {{ {name} return getComputedStyle(one).animationName }}") == "none"
