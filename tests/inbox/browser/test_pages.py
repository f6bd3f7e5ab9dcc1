"""The pages in a real browser."""

from playwright.sync_api import expect

from tests.inbox.browser.conftest import Enter, Office, Shoot


def test_a_question_is_answered_and_the_result_comes_by_itself(office: Office, enter: Enter, shoot: Shoot) -> None:
    item = office.hand_over("greet", {"who": "the cat"})
    page = enter()
    shoot(page, "list")
    page.get_by_text("What is the cat called?").click()
    page.get_by_label("Value").fill("Tom")
    shoot(page, "question")
    page.get_by_role("button", name="Send answer").click()
    expect(page.get_by_role("heading", name="Done")).to_be_visible()
    expect(page.get_by_text("Hello Tom")).to_be_visible()
    shoot(page, "done")
    assert item in page.url
