"""Many tabs of one browser: one stream for all of them, none while no tab can be seen, and nothing is missed."""

from playwright.sync_api import BrowserContext, Page, Request, expect

from tests.inbox.browser.conftest import Enter, Office
from tests.inbox.browser.test_pages import result, send

TABS = 12
"""Twice as many as the connections that a browser keeps to a host."""
HIDING = """Object.defineProperty(document, "hidden", { get: () => Boolean(window.isAway) });
Object.defineProperty(document, "visibilityState", { get: () => window.isAway ? "hidden" : "visible" });"""
TURN = "(isAway) => { window.isAway = isAway; document.dispatchEvent(new Event('visibilitychange')); }"
LEADS = "events !== null"


class Streams:
    """The streams of events that a browser has open."""

    def __init__(self, context: BrowserContext) -> None:
        self.open: set[Request] = set()
        self.opened = 0
        context.on("request", self._note)
        for ending in ("requestfailed", "requestfinished"):
            context.on(ending, self._forget)

    def _note(self, request: Request) -> None:
        if request.url.endswith("/events"):
            self.open.add(request)
            self.opened += 1

    def _forget(self, request: Request) -> None:
        self.open.discard(request)


def tabs(first: Page, paths: list[str]) -> list[Page]:
    pages = [first]
    for path in paths:
        pages.append(first.context.new_page())
        pages[-1].goto(path)
    return pages


def leaders(pages: list[Page]) -> list[Page]:
    return [page for page in pages if page.evaluate(LEADS)]


def led(pages: list[Page]) -> Page:
    """The tab that has the stream, as soon as one has it."""
    while not (found := leaders(pages)):
        pages[0].wait_for_timeout(50)
    assert len(found) == 1
    return found[0]


def test_a_dozen_tabs_load_change_and_send_with_one_stream(office: Office, enter: Enter) -> None:
    items = [office.hand_over("three_at_once"), office.hand_over("greet", {"who": "the dozen"})]
    first = enter("/")
    streams = Streams(first.context)
    first.reload()
    pages = tabs(first, [f"/items/{items[number % 2]}" for number in range(TABS - 2)] + ["/history"])
    assert len(pages) == TABS
    for page in pages[1::2]:
        expect(page.locator(".question, h1").first).to_be_visible()
    led(pages)
    three, greet, history = pages[1:-1:2], pages[2:-1:2], pages[-1]
    three[-1].get_by_label("Your answer").first.fill("x")
    send(three[-1])
    for page in three:
        expect(page.get_by_label("Your answer")).to_have_count(2)
    greet[-1].get_by_label("Your answer").fill("Tom")
    send(greet[-1])
    for page in greet:
        assert result(page) == "Hello Tom"
    expect(history.get_by_text("What is the dozen called?").first).to_be_visible()
    expect(first.locator(".line")).to_have_count(1)
    assert len(streams.open) == 1


def test_another_tab_takes_over_where_the_one_with_the_stream_is_closed(office: Office, enter: Enter) -> None:
    pages = tabs(enter("/"), ["/", "/"])
    for left in (2, 1):
        leader = led(pages)
        pages.remove(leader)
        leader.close()
        led(pages)
        item = office.hand_over("greet")
        for page in pages:
            expect(page.locator(f"[data-part='{item}']")).to_be_visible()
        assert len(pages) == left


def test_the_stream_goes_to_who_can_be_seen_and_nobody_has_it_where_none_is(office: Office, enter: Enter) -> None:
    first = enter("/")
    first.context.add_init_script(HIDING)
    streams = Streams(first.context)
    first.reload()
    one, other = tabs(first, ["/"])
    leader = led([one, other])
    follower = other if leader is one else one
    leader.evaluate(TURN, True)
    assert led([one, other]) is follower
    item = office.hand_over("greet", {"who": "number one"})
    for page in (leader, follower):
        expect(page.locator(f"[data-part='{item}']")).to_be_visible()
    follower.evaluate(TURN, True)
    while streams.open:
        one.wait_for_timeout(50)
    missed = office.hand_over("greet", {"who": "number two"})
    opened = streams.opened
    leader.evaluate(TURN, False)
    expect(leader.locator(f"[data-part='{missed}']")).to_be_visible()
    assert led([one, other]) is leader
    assert streams.opened == opened + 1


def test_tabs_that_nobody_sees_look_once_a_minute(office: Office, enter: Enter) -> None:
    page = enter("/")
    page.add_init_script(HIDING + "window.isAway = true;")
    page.clock.install()
    with page.expect_response(lambda reply: "x-part" in reply.request.headers):  # What happened since it was drawn.
        page.reload()
    item = office.hand_over("greet")
    expect(page.locator(f"[data-part='{item}']")).to_have_count(0)
    page.clock.fast_forward(61_000)
    expect(page.locator(f"[data-part='{item}']")).to_be_visible()
    expect(page).to_have_title(f"({page.locator('.line').count()}) Waiting – Turnwise inbox")


def test_a_tab_takes_the_stream_from_one_that_has_fallen_silent(office: Office, enter: Enter) -> None:
    frozen = enter("/")
    led([frozen])
    frozen.evaluate("hush(); air.close();")  # It keeps the lock, as a tab does that is stopped in a debugger.
    page = frozen.context.new_page()
    page.clock.install()
    page.goto("/")
    page.clock.fast_forward(60_000)
    led([page])
    item = office.hand_over("greet")
    expect(page.locator(f"[data-part='{item}']")).to_be_visible()


def test_without_locks_a_tab_has_a_stream_while_it_can_be_seen(office: Office, enter: Enter) -> None:
    """As over plain http, at another address than this machine's."""
    page = enter("/")
    page.add_init_script(HIDING + "Object.defineProperty(navigator, 'locks', { value: undefined });")
    streams = Streams(page.context)
    page.reload()
    led([page])
    page.evaluate(TURN, True)
    while streams.open:
        page.wait_for_timeout(50)
    item = office.hand_over("greet")
    page.evaluate(TURN, False)
    expect(page.locator(f"[data-part='{item}']")).to_be_visible()
    led([page])


def test_who_is_signed_out_in_one_tab_is_so_in_all(office: Office, enter: Enter) -> None:
    first = enter("/login", token="")
    first.get_by_label("Access token").fill("ann-has-this-token-to-herself")
    first.keyboard.press("Enter")
    first.wait_for_url(lambda url: "login" not in url)
    pages = tabs(first, ["/", "/history"])
    led(pages)
    pages[1].get_by_role("button", name="Sign out").click()
    pages[1].wait_for_url("**/login")
    office.hand_over("greet")
    for page in (pages[0], pages[2]):
        page.wait_for_url("**/login**")
