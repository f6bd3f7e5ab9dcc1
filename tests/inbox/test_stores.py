"""What every store of an inbox has to do, over each of them: SQLite in a file, PostgreSQL.

A store is told what time it is, so nothing here waits for a clock. Those who race are processes too: this file is also
the program that they run.
"""

import asyncio
import base64
import itertools
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.inbox.offices import KEY, NOW, accept, at_url, item, make_server, pending, question, run
from tests.unit.joined import ENVIRONMENT
from turnwise import AlreadyAnswered, BeingCarriedOn, CallerError, Client, Done, InvalidAnswer, Pending, UnknownPending
from turnwise.inbox import paging
from turnwise.inbox.model import Hook, InboxStore, Item, TooLate, Unreadable, Wanted
from turnwise.inbox.postgres import PostgresInboxStore
from turnwise.inbox.records import UNREADABLE
from turnwise.inbox.sharing import FIRST_SECONDS
from turnwise.inbox.sqlite import SQLiteInboxStore

T = TypeVar("T")
Store = SQLiteInboxStore | PostgresInboxStore

NUMBERS = itertools.count(1)
OTHER_KEY = "another key of the inbox, long enough too"
HISTORY = ("done", "failed", "expired")


class Place:
    """Where the stores of one test keep their things; no two tests share one."""

    def __init__(self, kind: str, address: str, prefix: str) -> None:
        self.kind, self.address, self.prefix = kind, address, prefix

    def open(self, *keys: str) -> Store:
        return open_store(self.kind, self.address, self.prefix, *keys)

    def run(self, work: Callable[[Store], Awaitable[T]], *keys: str) -> T:
        async def patiently() -> T:
            store = self.open(*keys)
            try:
                return await work(store)
            finally:
                await store.aclose()

        return run(patiently())


def open_store(kind: str, address: str, prefix: str, *keys: str) -> Store:
    if kind == "file":
        return SQLiteInboxStore(address, keys or [KEY])
    return PostgresInboxStore(address, keys or [KEY], prefix=prefix, pool_size=4)


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        return Place("postgres", server.address, f"i{next(NUMBERS)}_")
    return Place("file", str(request.getfixturevalue("tmp_path") / "inbox.db"), "")


def whole(**facts: Any) -> Item:
    """An item with something in every member."""
    usual: dict[str, Any] = {
        "authorization": "Bearer word",
        "hook": "https://example.com/",
        "note": "a note",
        "until": NOW + 100,
        "due": NOW + 100,
        "round": 3,
        "tries": 2,
        "handed": "digest",
        "carries": True,
    }
    return item(**{**usual, **facts})


async def lines(store: InboxStore, *words: str, **facts: Any) -> list[str]:
    return [line.id for line in (await store.page(Wanted(words=words, **facts))).lines]


# To keep and to see


def test_an_item_is_seen_as_it_was_kept(place: Place) -> None:
    async def work(store: Store) -> None:
        kept = await store.add(whole())
        assert kept == replace(whole(), revision=1)
        assert await store.get("call") == kept
        answered = await store.answer("call", {"title": accept(value="x")}, round=3, by="ann", now=NOW + 1)
        assert await store.get("call") == answered
        assert (answered.revision, answered.given[0].by, answered.status) == (2, "ann", "going")
        done = await store.put(answered.ended("done", NOW + 2, result={"big": 2**70, "text": "a\0b"}))
        assert await store.get("call") == done
        assert (done.revision, done.authorization, done.due) == (3, None, None)

    place.run(work)


def test_what_is_not_there_is_unknown(place: Place) -> None:
    async def work(store: Store) -> None:
        for name in ("", "nothing", "a\0b", "'; DROP TABLE inbox_items; --"):
            with pytest.raises(UnknownPending):
                await store.get(name)
            with pytest.raises(UnknownPending):
                await store.put(item(name))
            with pytest.raises(UnknownPending):
                await store.answer(name, {"title": accept(value="x")}, round=0, by="ann", now=NOW)
            assert await store.claim(NOW, 30, item_id=name) is None

    place.run(work)


def test_an_id_is_taken_once(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item(caller="ann"))
        with pytest.raises(AlreadyAnswered):
            await store.add(item(caller="bob"))
        assert (await store.get("call")).caller == "ann"

    place.run(work)


def test_a_step_from_an_old_revision_is_refused(place: Place) -> None:
    async def work(store: Store) -> None:
        first = await store.add(item())
        second = await store.put(replace(first, note="one"))
        with pytest.raises(AlreadyAnswered):
            await store.put(replace(first, note="two"))
        assert await store.get("call") == second

    place.run(work)


def test_any_text_is_kept_and_found(place: Place) -> None:
    texts = ["a\0b", "'; DROP TABLE inbox_items; --", "%s $1 {0} ?", "clé", "🗝️", "\U0010ffff", "k" * 1000]

    async def work(store: Store) -> None:
        for number, text in enumerate(texts):
            params = {"name": text, "arguments": {text: text}}
            call = pending(f"c{number}", server=text, params=params, requests={text: question(text, **{text: {}})})
            await store.add(item(f"c{number}", pending=call, caller=text, note=text))
        for number, text in enumerate(texts):
            found = await store.get(f"c{number}")
            assert (found.caller, found.server, found.target, found.note) == (text, text, text, text)
            assert await lines(store, caller=text) == [f"c{number}"]
            assert f"c{number}" in await lines(store, text[:50])

    place.run(work)


def test_what_is_secret_is_not_in_the_clear_at_rest(place: Place) -> None:
    secrets = ("s3cret-state", "s3cret-answer", "s3cret-token", "s3cret-question", "s3cret-argument", "s3cret-result")

    async def work(store: Store) -> None:
        params = {"name": "file", "arguments": {"kind": secrets[4]}}
        call = pending(state=secrets[0], params=params, requests={"title": question(secrets[3])})
        hook = Hook("msg_1", f"https://example.com/{secrets[2]}", "{}", NOW, NOW)
        await store.add(item(pending=call, authorization=f"Bearer {secrets[2]}", hook=hook.url), [hook])
        answered = await store.answer("call", {"title": accept(value=secrets[1])}, round=0, by="ann", now=NOW)
        await store.put(replace(answered, result={"text": secrets[5]}))
        text = await at_rest(place)
        assert "agent" in text
        for secret in secrets:
            assert secret not in text

    place.run(work)


async def at_rest(place: Place) -> str:
    """All that is kept, as a thief would find it."""
    if place.kind == "file":
        files = [Path(place.address), Path(place.address + "-wal")]
        assert all(file.stat().st_mode & 0o077 == 0 for file in files if file.exists())
        return b"".join(file.read_bytes() for file in files if file.exists()).decode("latin-1")
    import asyncpg

    connection = await asyncpg.connect(place.address)
    try:
        tables = [f"{place.prefix}{name}" for name in ("items", "hooks", "sessions")]
        rows = [row for table in tables for row in await connection.fetch(f"SELECT * FROM {table}")]
        return "".join(
            value.decode("latin-1") if isinstance(value, bytes) else str(value)
            for row in rows
            for value in row.values()
        )
    finally:
        await connection.close()


def test_without_its_key_an_item_is_listed_and_not_read_and_comes_back_with_the_key(place: Place) -> None:
    async def keep(store: Store) -> None:
        await store.add(item(due=NOW, status="going"), [Hook("msg_1", "https://example.com/", "{}", NOW, NOW)])

    async def look(store: Store) -> None:
        [line] = (await store.page(Wanted())).lines
        assert line.headline == UNREADABLE
        with pytest.raises(Unreadable):
            await store.get("call")
        with pytest.raises(Unreadable):
            await store.answer("call", {"title": accept(value="x")}, round=0, by="ann", now=NOW)
        with pytest.raises(Unreadable):
            await store.claim(NOW, 30)
        assert await store.claim(NOW, 30) is None, "it is not taken up again at once"
        assert await store.claim_hook(NOW, 30) is None

    async def find(store: Store) -> None:
        assert (await store.get("call")).id == "call"
        claimed = await store.claim(NOW + 10_000, 30)
        assert claimed is not None
        hook = await store.claim_hook(NOW + 10_000, 30)
        assert hook is not None

    async def change(store: Store) -> None:
        assert await store.sealed_elsewhere([KEY]) == (0, 1, 0)
        assert await store.sealed_elsewhere([OTHER_KEY]) == (1, 1, 1)
        assert await store.sealed_elsewhere([OTHER_KEY, KEY]) == (0, 1, 0)
        store.use_keys([OTHER_KEY])
        with pytest.raises(Unreadable):
            await store.get("call")
        store.use_keys([OTHER_KEY, KEY])
        await store.put(await store.get("call"))
        assert await store.sealed_elsewhere([OTHER_KEY]) == (0, 1, 0)

    place.run(keep)
    place.run(look, OTHER_KEY)
    place.run(find, OTHER_KEY, KEY)
    place.run(change, KEY)


def test_what_is_open_is_sealed_under_the_first_key_a_part_at_a_time_and_what_has_ended_stays(place: Place) -> None:
    async def keep(store: Store) -> None:
        for number in range(5):
            await store.add(item(f"c{number}"), [Hook(f"h{number}", "https://hook.example/", "{}", NOW, NOW)])
        await store.put((await store.get("c4")).ended("done", NOW))

    async def reseal(store: Store) -> None:
        before = [await store.get(f"c{number}") for number in range(5)]
        claimed = await store.claim(NOW, 60.0, item_id="c1")
        assert claimed is not None
        mark, _ = await store.changes(None)
        assert await store.sealed_elsewhere([OTHER_KEY]) == (5, 5, 4)
        assert await store.reseal(most=3) == "c2"
        assert await store.sealed_elsewhere([OTHER_KEY]) == (2, 5, 1)
        assert await store.reseal("c2", most=3) == "c3"
        assert await store.reseal("c3", most=3) is None
        assert await store.sealed_elsewhere([OTHER_KEY]) == (1, 5, 0)
        assert await store.sealed_elsewhere() == (0, 5, 0)
        assert [await store.get(f"c{number}") for number in range(5)] == before
        assert await store.changes(mark) == (mark, []), "nothing has changed that anybody sees"
        await store.renew(claimed, NOW + 100)

    async def look(store: Store) -> None:
        for number in range(4):
            assert (await store.get(f"c{number}")).pending.state == "a secret state"
            assert await store.claim_hook(NOW, 60.0) is not None
        assert await store.claim_hook(NOW, 60.0) is not None
        with pytest.raises(Unreadable):
            await store.get("c4")
        assert await store.reseal() is None, "there is no older key"

    place.run(keep)
    place.run(reseal, OTHER_KEY, KEY)
    place.run(look, OTHER_KEY)


def test_a_record_that_was_moved_to_another_item_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"

    async def work() -> None:
        store = SQLiteInboxStore(path, [KEY])
        await store.add(item("one", authorization="Bearer of one"))
        await store.add(item("two"))
        await store.aclose()
        with sqlite3.connect(path) as thief:
            thief.execute("UPDATE inbox_items SET body = (SELECT body FROM inbox_items WHERE id = 'one')")
        thief.close()
        with pytest.raises(Unreadable):
            await store.get("two")
        await store.aclose()

    run(work())


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"

    async def work() -> None:
        store = SQLiteInboxStore(path, [KEY])
        await store.add(item())
        await store.aclose()
        with sqlite3.connect(path) as later:
            later.execute("UPDATE inbox_schema SET version = 99")
        later.close()
        with pytest.raises(CallerError, match="later version"):
            await store.get("call")

    run(work())


# To answer


def test_some_questions_may_be_answered_before_others(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item(requests={"a": question(), "b": question()}))
        first = await store.answer("call", {"b": accept(value="x")}, round=0, by="ann", now=NOW + 1)
        assert (first.status, first.pending.unanswered, first.due) == ("waiting", ("a",), None)
        with pytest.raises(TooLate) as late:
            await store.answer("call", {"b": accept(value="y"), "a": accept(value="y")}, round=0, by="bob", now=NOW + 2)
        assert (late.value.by, late.value.at) == ("ann", NOW + 1)
        last = await store.answer("call", {"a": accept(value="z")}, round=0, by="bob", now=NOW + 3, delay=2)
        assert (last.status, last.due) == ("going", NOW + 5)

    place.run(work)


def test_who_answers_a_round_that_has_passed_is_told_that_and_of_no_other_question(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item(requests={"menu": question(), "guests": question()}))
        answers = {"guests": accept(value="x")}
        await store.answer("call", answers, round=0, by="bob", now=NOW + 1)
        given = await store.answer("call", {"menu": accept(value="x")}, round=0, by="ann", now=NOW + 2)
        await store.put(replace(given, status="waiting", round=1, pending=pending(requests={"guests": question()})))
        with pytest.raises(
            TooLate, match="round 0 has passed, and it is in round 1; 'guests' was answered by bob"
        ) as late:
            await store.answer("call", answers, round=0, by="cid", now=NOW + 3)
        assert (late.value.by, late.value.at) == ("bob", NOW + 1)
        with pytest.raises(TooLate, match=r"round 0 has passed, and it is in round 1$") as late:
            await store.answer("call", {"wine": accept(value="x")}, round=0, by="cid", now=NOW + 3)
        assert (late.value.by, late.value.at) == (None, None)

    place.run(work)


def test_an_answer_that_does_not_fit_is_not_kept(place: Place) -> None:
    async def work(store: Store) -> None:
        kept = await store.add(item(requests={"a": question(), "b": question()}))
        with pytest.raises(InvalidAnswer):
            await store.answer("call", {"a": accept(value="x"), "b": accept(value=1)}, round=0, by="ann", now=NOW)
        assert await store.get("call") == kept

    place.run(work)


def test_of_many_who_answer_at_once_one_wins(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item())
        answers = [
            store.answer("call", {"title": accept(value=str(number))}, round=0, by=f"p{number}", now=NOW)
            for number in range(20)
        ]
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        [won] = [one for one in outcomes if isinstance(one, Item)]
        assert all(isinstance(one, TooLate) and one.by == won.given[0].by for one in outcomes if one is not won)

    place.run(work)


def test_of_processes_that_answer_at_once_one_wins_each_item(place: Place) -> None:
    count = 10

    async def fill(store: Store) -> None:
        for number in range(count):
            await store.add(item(f"c{number}"))

    place.run(fill)
    command = [sys.executable, __file__, place.kind, place.address, place.prefix, str(count)]
    racers = [
        subprocess.Popen([*command, name], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        for name in ("ann", "bob")
    ]
    won = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert sorted([*won[0], *won[1]]) == sorted(f"c{number}" for number in range(count))

    async def look(store: Store) -> None:
        for name, ids in zip(("ann", "bob"), won, strict=True):
            for item_id in ids:
                assert [one.by for one in (await store.get(item_id)).given] == [name]

    place.run(look)


def race(kind: str, address: str, prefix: str, count: str, name: str) -> None:
    async def work() -> None:
        store = open_store(kind, address, prefix)
        for number in range(int(count)):
            try:
                await store.answer(f"c{number}", {"title": accept(value=name)}, round=0, by=name, now=NOW)
            except TooLate:
                continue
            print(f"c{number}")
        await store.aclose()

    asyncio.run(work())


# To list


def test_what_waits_is_listed_oldest_question_first_and_what_ended_newest_first(place: Place) -> None:
    async def work(store: Store) -> None:
        for number, asked in enumerate((5, 3, 9)):
            await store.add(item(f"w{number}", asked=NOW + asked, requests={"a": question(), "b": question()}))
        for number, changed in enumerate((1, 7, 4)):
            await store.add(item(f"d{number}", status=HISTORY[number], changed=NOW + changed))
        assert await lines(store) == ["w1", "w0", "w2"]
        assert await lines(store, statuses=HISTORY) == ["d1", "d2", "d0"]
        assert (await store.page(Wanted(statuses=("waiting", "done")))).total == 4
        assert await lines(store, statuses=("done",)) == ["d0"]
        [first, *_] = (await store.page(Wanted())).lines
        assert (first.questions, first.headline, first.caller, first.is_task) == (2, "What?", "agent", False)

    place.run(work)


def test_pages_follow_each_other_without_gap_or_repetition(place: Place) -> None:
    async def work(store: Store) -> None:
        names = [f"c{number:02}" for number in range(23)]
        for number, name in enumerate(names):
            call = pending(name, asked=NOW + number // 4, requests={"title": question("odd" if number % 2 else "even")})
            await store.add(item(name, pending=call))
        for words, wanted in (((), names), (("odd",), names[1::2])):
            found: list[str] = []
            after = None
            while True:
                page = await store.page(Wanted(words=words), after=after, most=5)
                assert (len(page.lines) <= 5, page.total) == (True, len(wanted))
                found += [line.id for line in page.lines]
                if (after := page.after) is None:
                    break
            assert found == wanted

    place.run(work)


def test_what_would_take_too_long_to_count_is_not_counted_and_found_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "CHUNK", 3)
    monkeypatch.setattr(paging, "MOST_COUNTED", 6)

    async def work(store: Store) -> None:
        for number in range(12):
            text = f"What of {'odd' if number % 2 else 'even'} {number}?"
            await store.add(item(f"c{number:02}", asked=NOW + number, requests={"q": question(text)}))
        assert (await store.page(Wanted(words=["even"]), most=2)).total is None
        assert (await store.page(Wanted(words=["even"]), most=20)).total == 6
        assert (await store.page(Wanted(words=["11"]), most=2)).total == 1
        assert (await store.page(Wanted(), most=2)).total == 12
        found: list[str] = []
        after = None
        while True:
            page = await store.page(Wanted(words=["odd"]), after=after, most=2)
            found += [line.id for line in page.lines]
            if (after := page.after) is None:
                break
        assert found == [f"c{number:02}" for number in range(1, 12, 2)]

    place.run(work)


@pytest.mark.parametrize("words", [(), ("what",)])
def test_a_page_that_is_just_full_is_the_last(place: Place, words: tuple[str, ...]) -> None:
    async def work(store: Store) -> None:
        for number in range(4):
            await store.add(item(f"c{number}"))
        page = await store.page(Wanted(words=words), most=4)
        assert (len(page.lines), page.after, page.total) == (4, None, 4)
        page = await store.page(Wanted(words=words), most=3)
        assert (len(page.lines), page.after is None, page.total) == (3, False, 4)

    place.run(work)


@pytest.mark.parametrize("words", [(), ("what",)])
def test_a_page_has_a_line_at_least_and_no_more_than_are_allowed(
    place: Place, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "MOST", 2)

    async def work(store: Store) -> None:
        for number in range(4):
            await store.add(item(f"c{number}"))
        for most, size in ((1000, 2), (0, 1), (-1, 1)):
            page = await store.page(Wanted(words=words), most=most)
            assert (len(page.lines), page.after is None, page.total) == (size, False, 4)

    place.run(work)


@pytest.mark.parametrize("words", [(), ("what",)])
@pytest.mark.parametrize("statuses", [("done",), ("done", "waiting")])
def test_where_some_have_ended_what_changed_last_comes_first_page_by_page(
    place: Place, words: tuple[str, ...], statuses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "CHUNK", 2)

    async def work(store: Store) -> None:
        for number in range(6):
            asked, changed = NOW - number * 7 % 5, NOW + number
            status = statuses[number % len(statuses)]
            await store.add(item(f"c{number}", asked=asked, changed=changed, status=status))
        await store.add(item("other", status="failed"))
        found: list[str] = []
        after = None
        while True:
            page = await store.page(Wanted(statuses, words), after=after, most=1)
            assert page.total == 6
            found += [line.id for line in page.lines]
            if (after := page.after) is None:
                break
        assert found == [f"c{number}" for number in reversed(range(6))]

    place.run(work)


def test_words_are_looked_for_in_server_target_caller_and_headline(place: Place) -> None:
    async def work(store: Store) -> None:
        facts: dict[str, Any] = {"server": "https://Alpha.example/mcp", "params": {"name": "Beta", "arguments": {}}}
        await store.add(item("one", caller="Gamma", requests={"q": question("Delta STRASSE, mit Maß?")}, **facts))
        await store.add(item("two"))
        for word in ("alpha", "BETA", "gamma", "delta", "straße", "MASS"):
            assert await lines(store, word) == ["one"]
        assert await lines(store, "alpha", "delta") == ["one"]
        assert await lines(store, "alpha", "nothing") == []
        assert await lines(store, "%") == []
        assert await lines(store, "") == ["one", "two"]

    place.run(work)


def test_every_question_of_a_call_is_looked_at_while_it_waits_while_it_goes_on_and_after(place: Place) -> None:
    async def work(store: Store) -> None:
        requests = {"a": question("How many guests?"), "b": question("Which menu?")}
        kept = await store.add(item(requests=requests))
        assert await lines(store, "menu") == await lines(store, "guests") == ["call"]
        await store.answer("call", {"b": accept(value="x")}, round=0, by="ann", now=NOW + 1)
        going = await store.answer("call", {"a": accept(value="x")}, round=0, by="ann", now=NOW + 2)
        assert (going.status, going.headline) == ("going", "How many guests?")
        assert await lines(store, "menu") == await lines(store, "guests") == ["call"]
        assert (await store.page(Wanted())).lines[0].headline == "How many guests?"
        ended = await store.put(going.ended("done", NOW + 3, result={}))
        page = await store.page(Wanted(("done",), ("menu", "guests")))
        assert ([line.id for line in page.lines], ended.texts) == (["call"], ["How many guests?", "Which menu?"])
        assert len(replace(kept, pending=pending(requests={str(n): question(str(n)) for n in range(99)})).texts) == 20

    place.run(work)


def test_a_place_that_is_none_is_refused(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item())
        assert (await store.page(Wanted(), after="WzEsImEiXQ")).lines
        for after in ("", "x", "é", "W10", "eA", "WzEsMl0", "WyJhIiwiYiJd", "A" * 10_000, "W05hTiwiYSJd", "bnVsbA"):
            with pytest.raises(CallerError):
                await store.page(Wanted(), after=after)
        for after in ("WzEs    ImEiXQ", "WzEs****ImEiXQ"):
            with pytest.raises(CallerError):
                await store.page(Wanted(), after=after)
        for moment in ("true", "1e999", "-1e999", "1" * 400, "null"):
            after = base64.urlsafe_b64encode(f'[{moment}, "a"]'.encode()).decode().rstrip("=")
            with pytest.raises(CallerError):
                await store.page(Wanted(), after=after)

    place.run(work)


# To carry on


def test_what_is_due_is_claimed_by_one_until_the_claim_is_over(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item("later", due=NOW + 5))
        await store.add(item("now", due=NOW))
        await store.add(item("never"))
        claimed = await store.claim(NOW, 30)
        assert claimed is not None
        assert claimed.id == "now"
        assert await store.claim(NOW, 30) is None
        assert await store.claim(NOW, 30, item_id="now") is None
        assert await store.next_due(NOW) == NOW + 5
        again = await store.claim(NOW + 31, 30)
        assert again is not None
        assert again.id == "now"
        with pytest.raises(AlreadyAnswered):
            await store.renew(claimed, NOW + 60)
        await store.renew(again, NOW + 100)
        await store.release(claimed, NOW)  # It is no longer its to give.
        late = await store.claim(NOW + 99, 30)
        assert late is not None
        assert late.id == "later"
        assert await store.claim(NOW + 99, 30) is None

    place.run(work)


def test_servers_that_are_left_out_are_not_claimed(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item("one", server="http://one/", due=NOW))
        await store.add(item("two", server="http://two/", due=NOW))
        assert await store.claim(NOW, 30, without=["http://one/", "http://two/"]) is None
        found = await store.claim(NOW, 30, without=["http://one/"])
        assert found is not None
        assert found.id == "two"

    place.run(work)


def test_a_claim_that_is_given_back_is_due_when_it_says_so_unless_it_was_answered_meanwhile(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item(due=NOW))
        claimed = await store.claim(NOW, 30)
        assert claimed is not None
        await store.release(claimed, NOW + 7)
        assert (await store.get("call")).due == NOW + 7
        assert await store.claim(NOW + 6, 30) is None
        claimed = await store.claim(NOW + 7, 30)
        assert claimed is not None
        await store.answer("call", {"title": accept(value="x")}, round=0, by="ann", now=NOW + 8)
        with pytest.raises(AlreadyAnswered):
            await store.put(replace(claimed, note="late"))
        await store.release(claimed, NOW + 1000)
        assert await store.claim(NOW + 8, 30) is not None

    place.run(work)


def test_what_is_named_is_not_claimed_nor_what_is_at_a_server_that_is_named(place: Place) -> None:
    async def work(store: Store) -> None:
        for number, server in enumerate(("https://a.example/mcp", "https://a.example/mcp", "https://b.example/mcp")):
            await store.add(item(f"c{number}", server=server, due=NOW + number))
        first = await store.claim(NOW + 9, 30, without=["c0", "https://b.example/mcp"])
        assert first is not None
        assert first.id == "c1"
        assert await store.claim(NOW + 9, 30, without=["c0", "https://b.example/mcp"]) is None
        assert await store.claim(NOW + 9, 30, without=["c0", "c2"]) is None

    place.run(work)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_claims_are_held_by_the_databases_clock(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes on several machines, whose clocks differ by more than a claim is long."""

    async def work(store: Store) -> None:
        began = time.time()
        clocks = {"right": began, "fast": began + 100, "slow": began - 100}

        def at(clock: str) -> float:
            monkeypatch.setattr("turnwise.inbox.postgres.time.time", lambda: clocks[clock])
            return clocks[clock]

        await store.add(item(due=began - 200), [Hook("msg_1", "https://example.com/", "{}", began, began - 200)])
        claimed = await store.claim(at("slow"), 30)
        assert claimed is not None
        assert await store.claim_hook(at("slow"), 30) is not None
        for clock in clocks:
            assert await store.claim(at(clock), 30) is None, clock
            assert await store.claim_hook(at(clock), 30) is None, clock
        await store.renew(claimed, at("fast") - 1)  # It is over, by the clock of who said so.
        assert await store.claim(at("slow"), 30) is not None

    place.run(work)


def test_to_put_an_item_ends_its_claim(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item(due=NOW))
        claimed = await store.claim(NOW, 30)
        assert claimed is not None
        await store.put(replace(claimed, due=NOW + 1))
        assert await store.claim(NOW + 1, 30) is not None

    place.run(work)


def test_changes_are_told_from_a_mark_on(place: Place) -> None:
    async def work(store: Store) -> None:
        start, ids = await store.changes(None)
        assert ids == []
        one = await store.add(item("one"))
        await store.add(item("two"))
        mark, ids = await store.changes(start)
        assert ids == ["one", "two"]
        await store.put(replace(one, note="x"))
        await store.claim(NOW, 30)
        last, ids = await store.changes(mark)
        assert ids == ["one"]
        assert await store.changes(last) == (last, [])

    place.run(work)


def test_what_ended_long_ago_is_forgotten_and_nothing_else(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.add(item("open", changed=NOW - 1000))
        for number, status in enumerate(HISTORY):
            await store.add(item(f"old{number}", status=status, changed=NOW - 101))
        await store.add(item("young", status="done", changed=NOW - 99))
        assert await store.purge(NOW, 100) == 3
        assert await lines(store) == ["open"]
        assert await lines(store, statuses=HISTORY) == ["young"]

    place.run(work)


# Hooks and sessions


def test_hooks_are_kept_with_the_step_they_tell_of_and_told_by_one(place: Place) -> None:
    async def work(store: Store) -> None:
        hook = Hook("msg_1", "https://example.com/", '{"a": 1}', NOW, NOW)
        kept = await store.add(item(), [hook])
        with pytest.raises(AlreadyAnswered):
            await store.put(replace(kept, revision=7), [hook._replace(id="msg_2")])
        assert await store.claim_hook(NOW - 1, 30) is None
        assert await store.claim_hook(NOW, 30) == hook
        assert await store.claim_hook(NOW, 30) is None, "only one: that of the step that failed was not kept"
        assert await store.claim_hook(NOW + 31, 30) == hook
        await store.postpone_hook(hook._replace(due=NOW + 90, tries=1))
        assert await store.claim_hook(NOW + 89, 30) is None
        assert await store.claim_hook(NOW + 90, 30) == hook._replace(due=NOW + 90, tries=1)
        await store.end_hook("msg_1")
        assert await store.claim_hook(NOW + 1000, 30) is None

    place.run(work)


def test_hooks_of_some_places_are_left_alone_while_those_of_others_are_told(place: Place) -> None:
    async def work(store: Store) -> None:
        there, elsewhere = "msg_aaaaaaaa", "msg_bbbbbbbb"
        hooks = [Hook(f"{start}{n}", "https://x.example/", "{}", NOW, NOW + n) for n, start in enumerate([there] * 2)]
        await store.add(item(), [*hooks, Hook(f"{elsewhere}0", "https://y.example/", "{}", NOW, NOW + 5)])
        found = await store.claim_hook(NOW + 10, 30, without=[there])
        assert found is not None
        assert found.url == "https://y.example/"
        assert await store.claim_hook(NOW + 10, 30, without=[there]) is None
        assert await store.claim_hook(NOW + 10, 30, without=[elsewhere]) == hooks[0]
        assert await store.claim_hook(NOW + 10, 30, without=[there, elsewhere]) is None
        assert await store.claim_hook(NOW + 10, 30) == hooks[1]

    place.run(work)


def test_a_session_is_found_while_it_is_good(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.keep_session("one", b"\0blob", NOW + 10)
        await store.keep_session("two", b"blob", NOW + 10)
        assert await store.find_session("one", NOW) == b"\0blob"
        assert await store.find_session("one", NOW + 10) is None
        assert await store.find_session("three", NOW) is None
        await store.drop_session("two")
        assert await store.find_session("two", NOW) is None
        await store.purge(NOW + 11, 100)
        assert await store.find_session("one", NOW) is None

    place.run(work)


# As a client's own store


def test_a_client_keeps_its_calls_where_people_answer_them(place: Place) -> None:
    async def work(store: Store, url: str) -> None:
        view = store.pending("laptop")
        async with Client(url, pending_store=view) as client:
            first = await client.begin("file", {"kind": "bug"})
            assert isinstance(first, Pending)
            assert [one.id for one in await view.list()] == [first.id]
            item = await store.get(first.id)
            assert (item.caller, item.status, item.headline) == ("laptop", "waiting", "What is it about?")
            second = await client.resume(first, {"title": accept(title="a leak")})
            assert isinstance(second, Pending)
            item = await store.get(first.id)
            assert (item.round, item.headline) == (1, "How bad is 'a leak'?")
            with pytest.raises(AlreadyAnswered):
                await client.resume(first, {"title": accept(title="again")})
            answered = await store.answer(first.id, {"level": accept(level=2)}, round=1, by="ann", now=NOW)
            assert answered.status == "going"
            third = await client.resume(first.id)
            assert isinstance(third, Pending)
            done = await client.resume(third, {"sure": accept(value=True)})
            assert isinstance(done, Done)
            assert (await store.get(first.id)).status == "done"
            with pytest.raises(UnknownPending):
                await view.get(first.id)
            assert await view.list() == []
            assert await view.forget(first.id) is False

    with at_url(make_server()) as url:
        place.run(lambda store: work(store, url))


def test_what_a_client_carries_on_nobody_else_does(place: Place) -> None:
    async def work(store: Store) -> None:
        view, other = store.pending("laptop"), store.pending("desktop")
        kept = await view.keep(pending())
        answered = await view.answer(kept.id, {"title": accept(value="x")}, round=0)
        due = (await store.get("call")).due
        assert due is not None
        assert due > FIRST_SECONDS
        claimed = await view.claim(answered.id, 30)
        with pytest.raises(BeingCarriedOn):
            await other.claim(answered.id, 30)
        await view.renew(claimed, 30)
        with pytest.raises(AlreadyAnswered):
            await other.renew(claimed, 30)
        assert await store.claim(due + 1, 30) is None
        again = await view.keep(claimed)
        assert (await store.get("call")).status == "going"
        await view.claim(again.id, 30)
        with pytest.raises(AlreadyAnswered):
            await view.keep(kept)
        assert await view.expire(0.0) == 1
        assert (await store.get("call")).status == "expired"

    place.run(work)


def test_a_call_of_a_command_is_answered_in_the_inbox_and_carried_on_by_its_client(place: Place) -> None:
    async def work(store: Store) -> None:
        await store.pending("laptop").keep(pending(server="python server.py"))
        await store.answer("call", {"title": accept(value="x")}, round=0, by="ann", now=NOW)
        assert await store.claim(NOW * 2, 30) is None
        assert (await store.pending("laptop").claim("call", 30)).unanswered == ()

    place.run(work)


if __name__ == "__main__":
    race(*sys.argv[1:])
