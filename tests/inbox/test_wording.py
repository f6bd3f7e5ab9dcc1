"""What the pages say of calls in words of our own: headings, titles and gists, whatever strangers call things."""

import json
import re
import time
from collections.abc import Callable
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.inbox.offices import KEY, item
from turnwise.inbox.gists import MOST_ARGUMENTS, NAME, VALUE, Outcome, gist
from turnwise.inbox.model import Page
from turnwise.inbox.records import Records, Seen
from turnwise.inbox.rendering import line, shown
from turnwise.inbox.wording import heading, item_title, list_title, named


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("update_work_item", "Update work item"),
        ("createIssue", "Create issue"),
        ("export-PDFReport", "Export PDF report"),
        ("github.create_issue", "Github create issue"),
        ("book", "Book"),
        ("file2", "File2"),
        ("v2_list", "V2 list"),
        ("__init__", "Tool that asks"),
        ("Your session is over. Sign in again", "Tool that asks"),
        ("evil\u202ename", "Tool that asks"),
        ("x" * 81, "Tool that asks"),
        ("", "Tool that asks"),
        ("<b>", "Tool that asks"),
    ],
)
def test_a_plain_name_is_read_as_words_and_no_other_becomes_a_heading(name: str, words: str) -> None:
    assert heading("tools/call", name) == words


def test_a_resource_is_not_named_by_its_address() -> None:
    assert heading("resources/read", "report") == "Resource that asks"
    assert heading("prompts/get", "release_notes") == "Release notes"


def test_a_name_that_is_not_plain_is_shown_as_it_is_where_it_is_marked_as_one() -> None:
    assert named("update_work_item") == "Update work item"
    assert named("file:///report") == "file:///report"


def test_a_gist_names_the_first_arguments_in_a_line() -> None:
    arguments: dict[str, Any] = {"id": 4522, "fields": {"state": "Done", "tags": ["a", "b"]}, "sure": True, "why": None}
    assert gist(arguments) == (
        ("id", "4522"),
        ("fields", "{state: Done, tags: [a, b]}"),
        ("sure", "yes"),
        ("why", "nothing"),
    )
    many = gist({f"n{number}": 1 for number in range(20)})
    assert len(many) == MOST_ARGUMENTS + 1
    assert many[-1] == ("", "and 14 more")
    assert gist({"deep": [[[[["x"]]]]]}) == (("deep", "[[[…]]]"),)
    assert gist({}) == ()


def test_a_gist_turns_no_direction_and_breaks_no_line() -> None:
    [(name, text)] = gist({"to\u202e\nwhom": "pay \u202e00.01$ ot\u202c\u2066 now\r\n\x00\u2028!"})
    assert shown(name) == f"to{hidden('202E')} whom"
    assert shown(text) == f"pay {hidden('202E')}00.01$ ot{hidden('202C')}{hidden('2066')} now {hidden('0000')} !"


def hidden(number: str) -> str:
    return f'<i class="hidden">U+{number}</i>'


def test_what_cannot_be_seen_is_a_number_where_there_is_no_room_for_a_box_too() -> None:
    assert line("pay \u202e00.01$\n now\x07") == "pay [U+202E]00.01$ now[U+0007]"
    assert line("می\u200cخواهم\u00a0👩\u200d💻") == "می\u200cخواهم 👩\u200d💻"
    assert line("x" * 50, 10) == "x" * 10 + "…"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), JSON))
def test_a_gist_is_short_and_harmless_whatever_it_is_of(arguments: dict[str, Any]) -> None:
    found = gist(arguments)
    assert len(found) <= MOST_ARGUMENTS + 1
    for name, text in found:
        assert len(name) <= NAME + 1
        assert len(text) <= VALUE + 1
        for letter in re.sub("<[^>]*>", "", shown(name) + shown(text)):
            assert (
                letter == " "
                or letter.isprintable()
                or category(letter) == "Zs"
                or letter in "\u200c\u200d\u200e\u200f"
            )


def test_the_gist_of_a_huge_argument_costs_nothing() -> None:
    huge = {
        "text": "x \u202e" * 1_000_000,
        "list": list(range(500_000)),
        "map": {str(n): "y" * 100 for n in range(5000)},
    }
    assert seconds(lambda: gist(huge)) < seconds(lambda: json.dumps(huge)) / 10


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def test_titles_say_first_what_there_is_to_know() -> None:
    asking = item()
    assert item_title(asking, 1, faults=0, is_late=False) == "A question: File"
    assert item_title(asking, 2, faults=0, is_late=False) == "2 questions: File"
    assert item_title(asking, 1, faults=3, is_late=False) == "Not right yet: File"
    assert item_title(asking, 1, faults=0, is_late=True) == "Too late: File"
    ends = {"going": "Under way", "done": "Done", "failed": "Failed", "expired": "Expired"}
    for status, word in ends.items():
        assert item_title(item(status=status), 0, faults=0, is_late=False) == f"{word}: File"
    assert list_title(Page([], None, 1200), "waiting", "") == "(1,200) Waiting"
    assert list_title(Page([], None, 0), "waiting", "") == "Waiting"
    assert list_title(Page([], None, 0), "waiting", "x") == "Nothing found: Waiting"
    assert list_title(Page([], None, 7), "waiting", "x") == "7 calls found: Waiting"
    assert list_title(Page([], None, 7), "history", "") == "History"


def test_a_row_that_was_kept_before_there_were_gists_is_listed_without_one() -> None:
    records = Records([KEY])
    row = records.row(item())
    fresh = {name: getattr(row, name) for name in Seen._fields}
    assert records.line(Seen(**fresh)).gist == (("kind", "bug"),)
    old = {**fresh, "headline": records._vault.seal("call", "headline", "What?\nWho?")}
    assert records.line(Seen(**old))[5:] == ("What?", *records.line(Seen(**fresh))[6:-2], (), Outcome())
    plain = {**fresh, "headline": records._vault.seal("call", "headline", ["What?", 3, [["kind", "bug"]]])}
    assert records.line(Seen(**plain))[-3:] == (3, (("kind", "bug"),), Outcome())
