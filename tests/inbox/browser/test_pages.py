"""The inbox's pages in a real browser: every kind of question, people at a keyboard, on a phone, and two at once."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.inbox.browser.conftest import Enter, Office, Shoot
from tests.inbox.browser.serving import ANN, BOB


def send(page: Page, name: str = "Send answer") -> None:
    page.get_by_role("button", name=name).first.click()


def result(page: Page) -> str:
    expect(page.get_by_role("heading", name=re.compile("^(Done|Declined|Cancelled)$"))).to_be_visible()
    return page.locator("[data-part=result] .said").inner_text()


# Answers


def test_signing_in_leads_to_the_page_that_was_wanted(office: Office, enter: Enter, shoot: Shoot) -> None:
    item = office.hand_over("greet")
    page = enter(f"/items/{item}", token="")
    shoot(page, "sign-in")
    page.get_by_label("Access token").fill("something else that is long enough")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_focused()
    page.get_by_label("Access token").fill(ANN)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/items/{item}")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    page.goto("/history")
    assert "/login" in page.url


def test_lists_and_questions_change_by_themselves(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter()
    page.evaluate("window.stays = true")
    expect(page.get_by_text("Nothing waits for you").or_(page.locator(".line").first)).to_be_visible()
    office.hand_over("greet", {"who": "the dog"})
    page.get_by_text("What is the dog called?").wait_for()
    shoot(page, "list")
    assert page.evaluate("window.stays")
    page.get_by_label("Filter what waits").type("dog called")
    expect(page.locator(".count")).to_have_text("1 call found")
    assert "q=dog%20called" in page.url
    page.get_by_text("What is the dog called?").click()
    page.evaluate("window.stays = true")
    page.get_by_label("Your answer").fill("Tom")
    shoot(page, "question")
    send(page)
    assert result(page) == "Hello Tom"
    expect(page.get_by_role("heading", name="Done")).to_be_focused()
    expect(page.locator("#told")).to_have_text("Done.")
    assert page.evaluate("window.stays")
    shoot(page, "done")
    page.get_by_role("link", name="History", exact=True).first.click()
    expect(page.get_by_text("What is the dog called?").first).to_be_visible()


def fill_every_kind(page: Page) -> None:
    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("Mail").fill("ada@example.com")
    page.get_by_label("Site").fill("https://example.com/")
    page.get_by_label("Day", exact=True).fill("2026-12-31")
    page.get_by_label("Moment", exact=True).fill("2026-12-31T10:00")
    page.get_by_label("Time zone of Moment").select_option("+05:30")
    page.get_by_label("Code").fill("ABC-1")
    page.get_by_label("Guests").fill("3")
    page.get_by_label("Share").fill("0.25")
    page.get_by_role("group", name="Agreed").get_by_label("Yes").check()
    page.get_by_label("green").check()
    page.get_by_label("Second").check()
    page.get_by_label("City").select_option("City 7")
    page.get_by_label("Mo", exact=True).check()
    page.get_by_label("We", exact=True).check()
    page.get_by_label("Window").check()


def test_an_offset_that_nobody_chose_follows_its_date_after_a_refused_send(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('every_kind')}", timezone_id="Europe/Berlin")
    zone, moment = page.get_by_label("Time zone of Moment"), page.get_by_label("Moment", exact=True)
    for chosen, summer in ((False, "+02:00"), (True, "+05:30")):
        moment.fill("2026-12-31T10:00")
        if chosen:
            zone.select_option("+05:30")
        send(page)
        expect(page.get_by_role("alert")).to_be_focused()
        moment.fill("2026-07-01T18:15")
        expect(zone).to_have_value(summer)


def test_words_about_mistakes_go_with_them(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('greet')}")
    send(page)
    expect(page.get_by_role("alert")).to_contain_text("One thing is not right yet")
    page.get_by_label("Your answer").fill("Tom")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_every_kind_of_field_is_filled_in(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter(f"/items/{office.hand_over('every_kind')}", timezone_id="Asia/Tokyo")
    expect(page.get_by_label("Time zone of Moment")).to_have_value("+09:00")
    fill_every_kind(page)
    shoot(page, "every-kind")
    send(page)
    assert eval(result(page)) == {
        "name": "Ada",
        "mail": "ada@example.com",
        "site": "https://example.com/",
        "day": "2026-12-31",
        "moment": "2026-12-31T10:00:00+05:30",
        "code": "ABC-1",
        "why": "Because\nit is so",
        "guests": 3,
        "share": 0.25,
        "agreed": True,
        "news": True,
        "colour": "green",
        "size": "l",
        "old": "b",
        "city": "City 7",
        "days": ["Mo", "We"],
        "extras": ["w", "b"],
    }


FILL = """() => {
  const values = {"Your name": "Ada", "Day": "2026-12-31", "Moment": "2026-12-31T10:00", "City": "7"};
  for (const label of document.querySelectorAll(".field > label")) {
    const value = values[label.querySelector("span").textContent];
    if (value) label.control.value = value;
  }
  for (const choice of document.querySelectorAll(".choice")) {
    if (["Yes", "green", "Mo", "We"].includes(choice.textContent.trim())) choice.click();
  }
}"""


def test_mistakes_are_said_at_once_and_in_a_summary(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter(f"/items/{office.hand_over('every_kind')}")
    mail = page.get_by_label("Mail")
    mail.fill("nobody")
    mail.blur()
    expect(mail).to_have_accessible_description(re.compile("This must be an email address"))
    mail.fill("ada@example.com")
    expect(mail).not_to_have_attribute("aria-invalid", "true")
    send(page)
    summary = page.get_by_role("alert")
    expect(summary).to_be_focused()
    expect(summary).to_contain_text("7 things are not right yet")
    shoot(page, "mistakes")
    summary.get_by_role("link", name="Agreed is needed").press("Enter")
    expect(page.get_by_role("group", name="Agreed").get_by_label("Yes")).to_be_focused()
    page.evaluate(FILL)
    page.get_by_label("Guests").fill("9")
    page.get_by_label("Tu").check()
    page.get_by_label("Code").fill("abc")
    send(page)  # A browser does not run a stranger's pattern: the inbox does, and says all of it.
    expect(summary).to_contain_text("3 things are not right yet")
    expect(summary).to_contain_text("Guests must be a whole number, 1 to 8.")
    expect(summary).to_contain_text("Days is not as wanted: choose 1 to 2.")
    expect(summary).to_contain_text("Code must be text, at most 8 characters, of the form ^[A-Z]{3}-[0-9]+$.")
    expect(summary).to_be_focused()
    expect(page.get_by_label("Your name")).to_have_value("Ada")
    page.get_by_label("Guests").fill("8")
    page.get_by_label("Tu").uncheck()
    page.get_by_label("Code").fill("ABC-1")
    send(page)
    assert "'Ada'" in result(page)


def test_what_the_inbox_alone_checks_is_said_as_often_as_it_is_sent(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('hostile')}")
    page.locator("input[type=radio]").nth(1).check()
    slow = page.get_by_label("slow")
    slow.fill("b")
    for _ in range(3):
        with page.expect_response("**/answers") as reply:
            send(page)
        assert reply.value.status == 422
        expect(page.get_by_role("alert")).to_be_focused()
        expect(page.get_by_role("alert")).to_contain_text("slow must be text, of the form ^(a+)+$.")
        expect(slow).to_have_attribute("aria-invalid", "true")
        expect(slow).to_have_accessible_description(re.compile(r"This must be text, of the form"))
        expect(page.locator(".field.wrong")).to_have_count(1)
        expect(slow).to_have_value("b")
    slow.fill("a")
    send(page)
    assert result(page) == "'accept'"


@pytest.mark.parametrize("action", ["Decline", "Cancel"])
def test_a_question_is_refused(office: Office, enter: Enter, action: str) -> None:
    page = enter(f"/items/{office.hand_over('greet')}")
    send(page, action)
    assert result(page) == f"not told: {action.lower()}"


def test_several_questions_are_on_one_page_and_keep_what_is_typed(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter(f"/items/{office.hand_over('three_at_once')}")
    values = page.get_by_label("Your answer")
    expect(values).to_have_count(3)
    expect(page.locator(".nth")).to_have_text(["1 of 3", "2 of 3", "3 of 3"])
    values.nth(0).fill("one")
    values.nth(1).fill("two")
    values.nth(1).press("Enter")
    expect(values).to_have_count(2)
    expect(values.nth(0)).to_have_value("one")
    expect(page.locator(".nth")).to_have_text(["1 of 2", "2 of 2"])
    shoot(page, "several")
    send(page, "Decline")
    expect(page.get_by_role("alert")).to_contain_text("Decline? What you typed here is not sent then.")
    expect(values).to_have_count(2)
    send(page, "Decline: press again")
    expect(values).to_have_count(1)
    expect(page.locator(".nth")).to_have_count(0)
    values.fill("three")
    values.press("Enter")
    assert result(page) == "decline two three"


@pytest.mark.parametrize(("sent", "following"), [(0, 0), (1, 1), (2, 0)])
def test_who_sends_one_of_several_is_told_where_they_go_on(
    office: Office, enter: Enter, shoot: Shoot, sent: int, following: int
) -> None:
    page = enter(f"/items/{office.hand_over('three_at_once')}", viewport={"width": 320, "height": 640})
    values = page.get_by_label("Your answer")
    values.nth(sent).fill("said")
    page.get_by_role("button", name="Send answer").nth(sent).click()
    notice = page.locator(".notice.good")
    expect(notice).to_be_focused()
    expect(notice).to_contain_text("Sent")
    expect(notice).to_have_role("status")
    expect(notice).to_be_in_viewport(ratio=0.9)  # Browsers scroll by whole pixels.
    shoot(page, f"sent-{sent}")
    page.keyboard.press("Tab")
    expect(values.nth(following)).to_be_focused()
    page.evaluate("look()")  # What happens elsewhere does not take it away.
    page.keyboard.type("more")
    expect(notice).to_be_visible()
    page.keyboard.press("Enter")
    expect(values).to_have_count(1)
    expect(notice).to_have_count(1)
    values.fill("all")
    values.press("Enter")
    result(page)
    expect(notice).to_have_count(0)


def test_what_others_finish_takes_the_word_that_more_is_open(office: Office, enter: Enter) -> None:
    item = office.hand_over("three_at_once")
    page, bob = enter(f"/items/{item}"), enter(f"/items/{item}", token=BOB)
    page.get_by_label("Your answer").first.fill("one")
    send(page)
    expect(page.locator(".notice.good")).to_be_visible()
    expect(bob.get_by_label("Your answer")).to_have_count(2)
    for left in (1, 0):
        bob.get_by_label("Your answer").nth(0).fill("other")
        send(bob)
        expect(bob.get_by_label("Your answer")).to_have_count(left)
    result(page)
    expect(page.locator(".notice.good")).to_have_count(0)


def test_a_refusal_is_one_press_unless_something_typed_would_be_lost(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('three_at_once')}")
    values, alert = page.get_by_label("Your answer"), page.get_by_role("alert")
    page.get_by_role("button", name="Decline").nth(1).click()
    expect(values).to_have_count(2)
    expect(page.locator(".notice.good")).to_contain_text("Declined")
    values.nth(1).fill("typed")
    page.get_by_role("button", name="Cancel").first.click()
    expect(alert).to_contain_text("what you typed into the other questions is not sent then")
    expect(page.get_by_role("button", name="Cancel: press again")).to_be_focused()
    values.nth(0).focus()  # Another thought.
    expect(alert).to_have_count(0)
    page.get_by_role("button", name="Cancel").first.click()
    page.get_by_role("button", name="Cancel: press again").click()
    expect(values).to_have_count(1)
    expect(values).to_have_value("typed")
    values.press("Enter")
    assert result(page) == "cancel decline typed"


def test_an_emptied_default_is_told_with_the_other_mistakes(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('every_kind')}")
    expect(page.locator("label", has_text="Guests")).to_have_text("Guests default: 2")
    expect(page.locator("label", has_text="Code")).to_have_text("Code optional")
    expect(page.locator("legend", has_text="Size")).to_have_text("Size default: Large")
    page.get_by_label("Guests").fill("")
    send(page)
    summary = page.get_by_role("alert")
    expect(summary).to_contain_text("9 things are not right yet")
    expect(summary).to_contain_text("Guests cannot be left empty: its default would be sent in place of nothing.")
    fill_every_kind(page)
    page.get_by_label("Why").fill("")
    send(page)
    assert "'why': ''" in result(page)


BREAKS = """(selector) => {
  const walker = document.createTreeWalker(document.querySelector(selector), NodeFilter.SHOW_TEXT);
  const found = [];
  let last = null;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (let at = 0; at < node.length; at++) {
      const range = new Range();
      range.setStart(node, at);
      range.setEnd(node, at + 1);
      const top = range.getBoundingClientRect().top;
      if (last && top > last.top + 4) found.push(last.letter);
      last = { top, letter: node.data[at] };
    }
  }
  return found;
}"""


def test_an_address_breaks_behind_its_slashes(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('greet')}")
    page.set_viewport_size({"width": 1280, "height": 800})
    for width in range(160, 260, 4):  # Narrower than that, the host alone has no room.
        page.evaluate("(width) => { document.querySelector('.facts dd').style.width = `${width}px`; }", width)
        assert set(page.evaluate(BREAKS, ".facts dd")) <= {"/"}, width


def test_a_page_is_visited_after_its_host_was_named(office: Office, enter: Enter, shoot: Shoot) -> None:
    target = f"{office.url.replace('127.0.0.1', 'localhost')}/login"
    page = enter(f"/items/{office.hand_over('visit', {'url': target})}")
    link = page.get_by_role("link", name=f"Open localhost:{office.inbox.port} in a new tab")
    expect(link).to_be_visible()
    expect(link).to_contain_text(target)
    expect(link.locator(".host")).to_have_text("localhost")
    shoot(page, "visit")
    with page.context.expect_page() as opened:
        link.click()
    assert opened.value.url == target
    assert opened.value.evaluate("[window.opener, document.referrer]") == [None, ""]
    opened.value.close()
    send(page, f"I agree to visit localhost:{office.inbox.port}")
    assert result(page) == "accept"


def test_a_page_that_is_not_safe_can_only_be_refused(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('visit', {'url': 'http://pay.example/x'})}")
    expect(page.locator(".address")).to_have_text("http://pay.example/x")
    assert page.locator("a[href^='http://pay']").count() == 0
    assert page.get_by_role("button", name="I agree").count() == 0
    send(page, "Decline")
    assert result(page) == "decline"


def test_a_request_to_a_model_is_reviewed_and_answered(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter(f"/items/{office.hand_over('complete', {'text': 'Name a colour'})}")
    expect(page.get_by_text("Be brief")).to_be_visible()
    send(page, "Send reply")
    expect(page.get_by_role("alert")).to_contain_text("Reply is needed")
    page.get_by_role("textbox", name="Reply").fill("Blue")
    page.get_by_label("Model").fill("ann herself")
    shoot(page, "model")
    page.get_by_role("textbox", name="Reply").press("Control+Enter")
    assert result(page) == "ann herself as assistant: Blue"


def test_a_draft_is_reviewed(office: Office, enter: Enter, shoot: Shoot) -> None:
    draft = {"role": "assistant", "content": {"type": "text", "text": "Blue"}, "model": "m1", "stopReason": "endTurn"}
    page = enter(f"/items/{office.hand_over('complete', {'text': 'Name a colour'}, drafts={'model': draft})}")
    expect(page.get_by_role("heading", name="A reply to review")).to_be_visible()
    reply = page.get_by_role("textbox", name="Reply")
    expect(reply).to_have_value("Blue")
    expect(page.get_by_label("Stop reason")).to_have_value("endTurn")
    shoot(page, "review")
    reply.fill("Navy blue")
    send(page, "Send reply")
    assert result(page) == "m1 as assistant: Navy blue"
    expect(page.locator(".earlier .values")).to_have_text(re.compile(r"Reply\s*Navy blue\s*Model\s*m1\s*Stop reason"))


def test_folders_are_named_and_a_call_is_ended(office: Office, enter: Enter) -> None:
    page = enter(f"/items/{office.hand_over('folders')}")
    page.get_by_role("textbox", name="Folders").fill("home/ann")
    send(page, "Send folders")
    expect(page.get_by_role("alert")).to_contain_text("must be whole paths or file:// addresses")
    page.get_by_role("textbox", name="Folders").fill("file:///home/ann | My home")
    send(page, "Send folders")
    assert result(page) == "file:///home/ann My home"
    page = enter(f"/items/{office.hand_over('folders')}")
    page.get_by_text("End this call").click()
    send(page, "End the call without an answer")
    expect(page.get_by_role("heading", name="Withdrawn")).to_be_visible()
    expect(page.get_by_text("withdrawn by ann")).to_be_visible()


def test_a_task_is_followed_and_its_question_appears(
    office: Office, enter: Enter, shoot: Shoot, tmp_path: Path
) -> None:
    page = enter(f"/items/{office.hand_over('report', {'gate': str(tmp_path / 'gate')})}")
    expect(page.get_by_role("heading", name="The task is under way.")).to_be_visible()
    expect(page.locator("[data-part=note]")).to_contain_text("gathering <script>")
    shoot(page, "task")
    (tmp_path / "gate").touch()
    page.get_by_label("Your answer").fill("2026")
    send(page)
    assert result(page) == "2026: all is well"


# People


def test_all_is_done_with_a_keyboard_alone(office: Office, enter: Enter) -> None:
    office.hand_over("every_kind")
    page = enter()

    def tab_to(name: str, role: str = "") -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            found = page.evaluate("[document.activeElement.innerText, document.activeElement.labels?.[0]?.innerText]")
            if any(name in (text or "") for text in found):
                outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert outline != "none", name
                return
        raise AssertionError(f"the keyboard does not get to {name}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "To the content"
    page.keyboard.press("Enter")
    tab_to("All of it, please")
    page.keyboard.press("Enter")
    page.wait_for_url("**/items/*")
    tab_to("Your name")
    page.keyboard.type("Ada")
    tab_to("Mail")
    page.keyboard.type("ada@example.com")
    tab_to("Day")
    page.keyboard.type("12312026")
    tab_to("Moment")
    page.keyboard.type("12312026")
    page.keyboard.press("Tab")
    page.keyboard.type("1000AM")
    tab_to("Yes")
    page.keyboard.press("Space")
    tab_to("red")
    page.keyboard.press("ArrowDown")
    tab_to("City")
    page.keyboard.type("City 7")
    tab_to("Mo")
    page.keyboard.press("Space")
    tab_to("Send answer")
    page.keyboard.press("Enter")
    content = eval(result(page))
    assert (content["name"], content["agreed"], content["city"], content["days"]) == ("Ada", True, "City 7", ["Mo"])
    assert content["day"] == "2026-12-31"
    assert content["moment"].startswith("2026-12-31T10:00:00")


def test_of_two_people_the_first_wins_and_the_other_is_told_while_typing(
    office: Office, enter: Enter, shoot: Shoot
) -> None:
    item = office.hand_over("greet")
    ann, bob = enter(f"/items/{item}"), enter(f"/items/{item}", token=BOB)
    bob.get_by_label("Your answer").fill("from Bob")
    ann.get_by_label("Your answer").fill("from Ann")
    send(ann)
    expect(bob.get_by_role("alert")).to_contain_text("ann was first")
    expect(bob.get_by_role("alert")).to_be_focused()
    assert result(bob) == "Hello from Ann"
    expect(bob.locator("[data-part=earlier]")).to_contain_text("ann, just now")
    shoot(bob, "second")


def test_who_sends_second_is_told_who_was_first(office: Office, enter: Enter, shoot: Shoot) -> None:
    item = office.hand_over("three_at_once")
    bob = enter(token=BOB)
    bob.route("**/events", lambda route: route.abort())
    bob.goto(f"/items/{item}")
    bob.locator(".question").get_by_label("Your answer").nth(0).fill("late")
    bob.locator(".question").get_by_label("Your answer").nth(1).fill("still here")
    ann = enter(f"/items/{item}")
    ann.get_by_label("Your answer").nth(0).fill("early")
    send(ann)
    expect(ann.get_by_label("Your answer")).to_have_count(2)
    send(bob)
    expect(bob.get_by_role("alert")).to_contain_text("ann answered this before")
    expect(bob.get_by_role("alert")).to_be_focused()
    expect(bob.locator(".question").get_by_label("Your answer")).to_have_count(2)
    expect(bob.locator(".question").get_by_label("Your answer").nth(0)).to_have_value("still here")
    shoot(bob, "too-late")
    bob.evaluate("look()")  # What comes next does not take the word away before it is read.
    expect(bob.locator("#told")).to_have_text(re.compile("2 questions"))
    expect(bob.get_by_role("alert")).to_contain_text("ann answered this before")


def test_the_word_about_who_was_first_names_them_and_stays_until_it_is_dismissed(office: Office, enter: Enter) -> None:
    item = office.hand_over("three_at_once")
    ann, bob = enter(f"/items/{item}"), enter(f"/items/{item}", token=BOB)
    bob.locator(".question").get_by_label("Your answer").nth(0).fill("late")
    ann.get_by_label("Your answer").nth(0).fill("early")
    send(ann)
    alert = bob.get_by_role("alert")
    expect(alert).to_contain_text("ann was first")
    bob.get_by_role("button", name="Dismiss").click()
    expect(alert).to_have_count(0)
    expect(bob.get_by_role("heading", name="The second?")).to_be_focused()
    bob.locator(".question").get_by_label("Your answer").nth(0).fill("late again")
    elsewhere = enter(f"/items/{item}", token=BOB)
    elsewhere.get_by_label("Your answer").nth(0).fill("mine")
    send(elsewhere)
    expect(alert).to_contain_text("You answered this elsewhere")
    bob.locator(".question").get_by_label("Your answer").fill("last")
    send(bob)
    assert result(bob) == "early mine last"
    expect(alert).to_contain_text("You answered this elsewhere")
    expect(alert.get_by_label("Your answer")).to_have_value("late again")
    bob.get_by_role("button", name="Dismiss").click()
    expect(alert).to_have_count(0)


def test_a_question_that_is_withdrawn_while_somebody_types_says_so(office: Office, enter: Enter) -> None:
    item = office.hand_over("greet")
    bob = enter(f"/items/{item}", token=BOB)
    bob.get_by_label("Your answer").fill("in the middle of")
    ann = enter(f"/items/{item}")
    ann.get_by_text("End this call").click()
    send(ann, "End the call without an answer")
    expect(bob.get_by_role("alert")).to_contain_text("This question is no longer asked")
    expect(bob.get_by_text("withdrawn by ann")).to_be_visible()


def test_it_works_without_a_script(office: Office, enter: Enter) -> None:
    item = office.hand_over("three_at_once")
    page = enter(java_script_enabled=False)
    page.locator(f"a[href='/items/{item}']").click()
    for number, value in enumerate(("one", "two", "three"), 1):
        page.get_by_label("Your answer").first.fill(value)
        send(page)
        if number < 3:
            expect(page.get_by_label("Your answer")).to_have_count(3 - number)
    assert result(page) == "one two three"
    page.goto(f"/items/{office.hand_over('hostile')}")
    page.locator("input[type=radio]").nth(1).check()
    page.get_by_label("slow").fill("b")
    send(page)
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_role("alert")).to_contain_text("One thing is not right yet")
    expect(page.locator("input[type=radio]").nth(1)).to_be_checked()
    page.get_by_label("slow").fill("a")
    send(page)
    assert result(page) == "'accept'"


def test_without_a_script_no_answer_takes_what_is_typed_into_the_others(
    office: Office, enter: Enter, shoot: Shoot
) -> None:
    page = enter(f"/items/{office.hand_over('three_at_once')}", java_script_enabled=False)
    values = page.get_by_label("Your answer")
    for number, value in enumerate(("one", "two", "three")):
        values.nth(number).fill(value)
    values.nth(1).press("Enter")  # With several questions it does not say which.
    expect(values).to_have_count(3)
    expect(values.nth(1)).to_have_value("two")
    page.get_by_role("button", name="Send answer").nth(1).click()
    expect(page.get_by_role("status").filter(has_text="Sent")).to_be_focused()
    expect(values).to_have_count(2)
    expect(values.nth(0)).to_have_value("one")
    expect(values.nth(1)).to_have_value("three")
    shoot(page, "without-a-script")
    page.get_by_role("button", name="Decline").nth(1).click()
    expect(values).to_have_count(1)
    expect(values).to_have_value("one")
    values.press("Enter")
    assert result(page) == "one two decline"


def test_a_link_in_a_chat_leads_to_the_page_although_the_cookie_is_strict(office: Office, enter: Enter) -> None:
    item = office.hand_over("greet")
    page = enter()
    page.route("http://chat.example/", lambda route: route.fulfill(body=f"<a href='{office.url}/items/{item}'>go</a>"))
    page.goto("http://chat.example/")
    page.get_by_text("go").click()
    expect(page.get_by_label("Your answer")).to_be_visible()


def test_no_other_page_can_put_the_inbox_into_a_frame(office: Office, enter: Enter) -> None:
    page = enter()
    frame = f"<iframe src='{office.url}/'></iframe>"
    page.route("http://other.example/", lambda route: route.fulfill(body=frame, content_type="text/html"))
    page.goto("http://other.example/")
    assert not page.frames[1].get_by_role("heading").count()


PLANTED = """() => {
  const script = document.createElement("script");
  script.textContent = "window.planted = true";
  const image = document.createElement("img");
  image.src = "https://evil.example/x.png";
  const button = document.createElement("button");
  button.setAttribute("onclick", "window.planted = true");
  const style = document.createElement("style");
  style.textContent = "body { display: none }";
  document.body.append(script, image, button, style);
  button.click();
  return [window.planted === undefined, getComputedStyle(document.body).display];
}"""


def test_even_a_tag_that_got_into_a_page_would_do_nothing(enter: Enter, wrongs: list[str]) -> None:
    page = enter()
    asked: list[str] = []
    page.on("requestfinished", lambda request: asked.append(request.url))
    assert page.evaluate(PLANTED) == [True, "block"]
    page.wait_for_timeout(100)
    assert not [url for url in asked if "evil" in url]
    assert len(wrongs) >= 4
    wrongs.clear()


# Strangers


def test_a_hostile_servers_words_stay_words(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter()
    said: list[str] = []
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("console", lambda message: said.append(message.text) if "Security" in message.text else None)
    page.goto(f"/items/{office.hand_over('hostile', {'size': 1_000_000})}")
    shoot(page, "hostile")
    assert page.title() == "A question: Hostile – Turnwise inbox"
    assert page.locator("#broken, main img, main script").count() == 0
    assert page.get_by_role("button", name="Sign in").count() == 0
    assert page.get_by_role("button", name="Send answer").count() == 1
    actions = page.locator("form").evaluate_all("forms => forms.map(form => form.getAttribute('action'))")
    assert all(action.startswith(("/items/", "/logout")) for action in actions)
    expect(page.locator(".question .q-title")).to_contain_text("Pay U+202E00.01$ otU+202C nowU+0007U+200B")
    page.get_by_text(re.compile("Show 48,5.* more of 1,000,1.* characters")).click()
    expect(page.get_by_text(re.compile("950,1.* more characters are not shown"))).to_be_visible()
    page.get_by_label("slow").fill("a" * 40 + "!")
    page.locator("input[type=radio]").nth(1).check()
    send(page)
    expect(page.get_by_role("alert")).to_contain_text("slow must be text, of the form ^(a+)+$")
    page.get_by_label("slow").fill("aaa")
    page.evaluate("look()")  # Somebody changed something; what is typed stays.
    expect(page.get_by_label("slow")).to_have_value("aaa")
    send(page)
    assert result(page) == "'accept'"
    assert said == []
    assert page.title() == "Done: Hostile – Turnwise inbox"


def test_schemas_without_a_bottom_are_shown_raw(office: Office, enter: Enter, shoot: Shoot) -> None:
    page = enter(f"/items/{office.hand_over('deep', {'depth': 60, 'then': 120})}")
    expect(page.get_by_text("This question cannot be answered here")).to_be_visible()
    assert page.get_by_role("button", name="Send answer").count() == 0
    shoot(page, "raw")
    send(page, "Decline")
    expect(page.get_by_text("deeper than 180 levels")).to_be_visible()
    assert page.get_by_role("button", name="Send answer").count() == 0
    expect(page.get_by_role("button", name="Decline")).to_be_visible()
