"""What strangers can make long is done in threads, in parts, or once: everybody else is served meanwhile."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.inbox import offices
from tests.inbox.offices import KEY, NOW, item, opened, question, run, serving_inbox
from turnwise import _conversation
from turnwise._driver import Questions
from turnwise._schemas import MOST_STEPS
from turnwise.client import Client
from turnwise.dialects import answering, unfit
from turnwise.dialects.unfit import flaw_of, kept, unhurried
from turnwise.inbox import desk, records, rendering, sqlite, views
from turnwise.inbox.model import Wanted
from turnwise.inbox.rendering import blocks, shown
from turnwise.inbox.sqlite import SQLiteInboxStore


def wide(parts: int) -> dict[str, Any]:
    """A question whose schema has so many parts."""
    asked = question("Which?")
    asked["params"]["requestedSchema"]["allOf"] = [{}] * parts
    return asked


def noting(monkeypatch: pytest.MonkeyPatch, place: Any, name: str) -> list[str]:
    """The names of the threads in which a function is called."""
    threads: list[str] = []
    work: Callable[..., Any] = getattr(place, name)

    def noted(*args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return work(*args, **options)

    monkeypatch.setattr(place, name, noted)
    return threads


def test_what_is_handed_over_is_checked_and_shown_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_inbox(tmp_path / "inbox.db") as line:
        compiled, looked = noting(monkeypatch, answering, "compiled_form"), noting(monkeypatch, desk, "kept")
        drawn = noting(monkeypatch, views.EarlierView, "of")
        body = {"pending": offices.pending(requests={"a": wide(20), "b": question("And?")}).to_json()}
        assert line.call("POST", "/items", body).status == 201
        answers = {"round": 0, "answers": {"a": {"action": "decline"}}}
        assert line.call("POST", "/items/call/answers", answers).status == 200
        assert line.call("GET", "/items/call").body["given"][0]["key"] == "a"
    assert looked
    assert drawn
    assert not [name for name in (*compiled, *looked, *drawn) if not name.startswith("turnwise-")]


def test_a_page_is_drawn_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiohttp

    async def work(url: str) -> int:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            async with session.post(f"{url}/login", data={"token": offices.ANN}) as entered:
                assert entered.status == 200
            async with session.get(f"{url}/items/call") as page:
                return page.status

    with serving_inbox(tmp_path / "inbox.db") as line:
        assert line.call("POST", "/items", {"pending": offices.pending().to_json()}).status == 201
        drawn = noting(monkeypatch, rendering, "folded")
        monkeypatch.setitem(rendering.templates().filters, "folded", rendering.folded)
        assert run(work(line.url)) == 200
    assert drawn
    assert not [name for name in drawn if not name.startswith("turnwise-")]


def test_questions_of_many_parts_are_looked_at_in_a_thread_and_few_are_not() -> None:
    def where(requests: Any) -> tuple[bool, int]:
        return threading.current_thread() is threading.main_thread(), len(requests)

    async def work() -> None:
        assert await unhurried(where, {"a": wide(unfit.MOST_AT_ONCE)}) == (False, 1)
        assert await unhurried(where, {"a": wide(5), "b": question()}) == (True, 2)

    run(work())


def test_a_client_looks_at_many_parts_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = noting(monkeypatch, _conversation, "unfit_of")
    threads_kept = noting(monkeypatch, _conversation, "kept")

    async def work() -> None:
        async with Client("http://127.0.0.1:9/mcp", raw_questions=True, mode="2026-07-28") as client:
            conversation: Any = client._conversation
            step = Questions({"a": wide(unfit.MOST_AT_ONCE)}, {}, None, 0, ())
            put_down = await conversation._partly(step, offices.pending())
        assert list(put_down.requests) == ["a"]

    run(work())
    assert threading.main_thread().name not in (*threads, *threads_kept)
    assert len(threads) == len(threads_kept) == 1


def test_a_schema_of_very_many_parts_can_only_be_refused() -> None:
    flaw = flaw_of("a", wide(MOST_STEPS))
    assert flaw is not None
    assert "steps" in flaw
    assert flaw_of("a", question()) is None
    assert list(kept({"a": wide(MOST_STEPS)})) == ["a"]


def test_what_a_store_kept_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
        put = await store.add(item(requests={"a": wide(20)}))
        compiled = noting(monkeypatch, answering, "compiled_form")
        assert replace(await store.get("call"), revision=put.revision) == put
        assert compiled == []
        await store.aclose()

    run(work())


def test_what_ended_long_ago_is_forgotten_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "PURGE_MOST", 2)

    async def work() -> None:
        async with opened(tmp_path / "inbox.db", work={"retention": 1e12}) as inbox:
            for number in range(5):
                await inbox.store.add(item(f"c{number}").ended("done", NOW + number))
            database: Any = inbox.store._database  # type: ignore[attr-defined]
            runs = noting(monkeypatch, database, "_committed")
            assert await inbox.store.purge(NOW + 100, 0) == 5
            assert len(runs) >= 3
            assert not (await inbox.page(Wanted(("done",)))).lines

    run(work())


def test_headlines_that_are_kept_open_take_so_much_room_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_KEPT", 10_000)
    found = records.Records([KEY])
    sizes = []
    for number in range(100):
        row = found.row(item(f"c{number}", requests={"a": question("x" * 300)}))
        found.line(records.Seen(*(getattr(row, name) for name in records.Seen._fields)))
        sizes.append(len(found._headlines))
    assert 1 < max(sizes) < 20


def test_letters_that_cannot_be_seen_and_very_many_texts_are_shown_as_before() -> None:
    assert shown("a\u202eb<é\r\n") == 'a<i class="hidden">U+202E</i>b&lt;é\n'
    texts, others = blocks({"content": [{"type": "text", "text": str(number)} for number in range(1000)]})
    assert (len(texts), others) == (rendering.MOST_TEXTS + 1, [])
    assert texts[0] == "0"
    assert texts[-1].split("\n")[-1] == "999"
