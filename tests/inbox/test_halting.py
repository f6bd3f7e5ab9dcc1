"""What an item has, and has not any more, when it halts and when it goes on."""

from typing import Any

import pytest

from tests.inbox.offices import NOW, accept, item, pending, question
from turnwise._driver import Given
from turnwise.inbox.halting import LAPSED, held, is_worth_restarting, lapsed, restarted, tried_again
from turnwise.inbox.model import Earlier, Item

ASKED = {"card": question("Which card?"), "gift": question("Gift wrapping?")}
OLD, OLDER = (Given(key, question(key), accept(value=key)) for key in ("old", "older"))
CARD = accept(value="visa")


def halfway(answers: Any = None, **facts: Any) -> Item:
    """A call that has come some way: asked twice, answered once, tried in vain."""
    said = answers or {"card": CARD}
    call = pending(requests=ASKED, answers=said, given=(OLD,), reusable=(OLDER,), round=3)
    terms = {"authorization": "Bearer x", "note": "Tried.", "tries": 2, "until": NOW + 9, "due": NOW + 1}
    return item(pending=call, **{**terms, **facts})


def test_an_item_that_lapsed_keeps_what_is_needed_to_begin_it_anew() -> None:
    after = lapsed(halfway(), NOW + 5)
    assert (after.status, after.error, after.may_restart, after.changed) == ("expired", LAPSED, True, NOW + 5)
    assert (after.authorization, after.due, after.pending.state) == ("Bearer x", None, None)
    assert after.pending.reusable == (OLD, Given("card", ASKED["card"], CARD), OLDER)


@pytest.mark.parametrize(("by", "words"), [("ann", "Begun anew by ann, because"), (None, "Begun anew, because")])
def test_an_item_that_is_begun_anew_is_as_new(by: str | None, words: str) -> None:
    after = restarted(lapsed(halfway(), NOW + 5), by, NOW + 6)
    assert (after.status, after.error, after.may_restart, after.tries) == ("going", None, False, 0)
    assert (after.restarted, after.restarted_by, after.changed, after.due) == (NOW + 6, by, NOW + 6, NOW + 6)
    assert (after.pending.round, after.authorization) == (0, "Bearer x")
    assert str(after.note).startswith(words)


@pytest.mark.parametrize(
    ("wanted", "restarted_at", "answered_at", "is_worth_it"),
    [
        (False, None, None, False),
        (False, NOW, NOW + 1, False),
        (True, None, None, True),
        (True, NOW, None, False),
        (True, NOW, NOW, False),
        (True, NOW, NOW + 1, True),
    ],
)
def test_an_item_is_begun_anew_by_itself_where_somebody_answered_since_the_last_time(
    wanted: bool, restarted_at: float | None, answered_at: float | None, is_worth_it: bool
) -> None:
    card: Any = {"key": "card", "request": ASKED["card"], "answer": CARD, "by": "ann", "round": 0}
    given = () if answered_at is None else (Earlier(at=answered_at, **card),)
    one = halfway(restart_expired=wanted, restarted=restarted_at, given=given)
    assert is_worth_restarting(one) is is_worth_it


@pytest.mark.parametrize(
    ("has_shown", "words"), [(True, "does not take the credentials"), (False, "this call has none")]
)
def test_an_item_that_is_held_says_why_and_keeps_its_time(has_shown: bool, words: str) -> None:
    after = held(halfway(), 401, has_shown, NOW + 5)
    assert (after.status, after.tries, after.changed, after.due) == ("held", 0, NOW + 5, NOW + 9)
    assert words in str(after.note)
    assert "HTTP 401" in str(after.note)
    assert after.pending.answers == {"card": CARD}


@pytest.mark.parametrize(("answers", "status"), [({"card": CARD}, "waiting"), (dict.fromkeys(ASKED, CARD), "going")])
def test_an_item_that_was_held_is_tried_again_at_once(answers: Any, status: str) -> None:
    after = tried_again(held(halfway(answers=answers), 401, True, NOW + 5), NOW + 6)
    assert (after.status, after.note, after.tries, after.changed, after.due) == (status, None, 0, NOW + 6, NOW + 6)
