"""An inbox as a client's own store: what becomes of a call that its client keeps, carries on and forgets."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.inbox.offices import KEY, NOW, accept, item, pending, question, run
from turnwise import AlreadyAnswered, UnknownPending
from turnwise.inbox.sharing import FIRST_SECONDS
from turnwise.inbox.sqlite import SQLiteInboxStore

ASKED = {"a": question("A?"), "b": question("B?")}
SAID = accept(value="x")


@pytest.fixture
def in_store(tmp_path: Path) -> Callable[[Callable[[SQLiteInboxStore], Awaitable[None]]], None]:
    def within(work: Callable[[SQLiteInboxStore], Awaitable[None]]) -> None:
        async def flow() -> None:
            store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
            try:
                await work(store)
            finally:
                await store.aclose()

        run(flow())

    return within


@pytest.mark.parametrize(
    ("facts", "round", "status"),
    [
        ({}, 0, "waiting"),
        ({"answers": {"a": SAID}}, 0, "waiting"),
        ({"answers": {"a": SAID, "b": SAID}}, 0, "going"),
        ({"state": "another"}, 1, "waiting"),
        ({"requests": {"c": question("C?")}}, 1, "waiting"),
    ],
)
@pytest.mark.parametrize(("server", "carries"), [("http://127.0.0.1:9/mcp", True), ("python server.py", False)])
def test_a_call_that_is_kept_again_moves_on_with_its_questions_or_its_state(
    in_store: Any, server: str, carries: bool, facts: dict[str, Any], round: int, status: str
) -> None:
    async def work(store: SQLiteInboxStore) -> None:
        view = store.pending("laptop")
        kept = await view.keep(pending(requests=ASKED, server=server))
        before = time.time()
        await view.keep(pending(**{"requests": ASKED, "server": server, **facts}, revision=kept.revision))
        after = await store.get("call")
        assert (after.round, after.status, after.carries) == (round, status, carries)
        if status == "going" and carries:
            assert after.due is not None
            assert before + FIRST_SECONDS <= after.due <= time.time() + FIRST_SECONDS
        else:
            assert after.due is None

    in_store(work)


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize(("options", "carries"), [({}, True), ({"carries": False}, False)])
def test_a_new_call_is_carried_on_by_the_inbox_once_it_is_answered_and_its_client_does_nothing(
    in_store: Any, is_open: bool, options: dict[str, Any], carries: bool
) -> None:
    async def work(store: SQLiteInboxStore) -> None:
        answers, before = {} if is_open else {"title": SAID}, time.time()
        await store.pending("laptop", authorization="Bearer x", **options).keep(pending(answers=answers))
        found = await store.get("call")
        assert (found.status, found.carries) == ("waiting" if is_open else "going", carries)
        assert (found.authorization, found.caller) == ("Bearer x", "laptop")
        assert (found.due is None) == (is_open or not carries)
        assert found.due is None or found.due >= before + FIRST_SECONDS

    in_store(work)


def test_the_calls_of_a_caller_are_listed_to_the_last_and_neither_tasks_nor_those_of_others(in_store: Any) -> None:
    async def work(store: SQLiteInboxStore) -> None:
        names = [f"c{number:03}" for number in range(201)]
        for number, name in enumerate(names):
            await store.add(item(name, caller="laptop", asked=NOW + number))
        await store.add(item("task", caller="laptop", task="t"))
        await store.add(item("other", caller="desktop"))
        view = store.pending("laptop")
        assert [one.id for one in await view.list()] == names

    in_store(work)


@pytest.mark.parametrize("facts", [{"task": "t"}, {"status": "done"}])
def test_a_task_and_a_call_that_is_over_are_unknown_to_who_keeps_calls(in_store: Any, facts: dict[str, Any]) -> None:
    async def work(store: SQLiteInboxStore) -> None:
        await store.add(item(**facts))
        view = store.pending("laptop")
        for one in (view.get("call"), view.claim("call", 30), view.answer("call", {"title": SAID})):
            with pytest.raises(UnknownPending):
                await one
        assert await view.forget("call") is False
        assert (await store.get("call")).status == facts.get("status", "waiting")

    in_store(work)


def test_an_answer_is_for_its_round(in_store: Any) -> None:
    async def work(store: SQLiteInboxStore) -> None:
        view = store.pending("laptop")
        await view.keep(pending(requests=ASKED, round=2))
        with pytest.raises(AlreadyAnswered):
            await view.answer("call", {"a": SAID}, round=1)
        assert (await view.answer("call", {"a": SAID}, round=2)).unanswered == ("b",)
        assert (await view.answer("call", {"b": SAID})).unanswered == ()
        assert [one.by for one in (await store.get("call")).given] == ["laptop", "laptop"]

    in_store(work)


def test_what_was_asked_long_ago_expires_and_nothing_else(in_store: Any) -> None:
    async def work(store: SQLiteInboxStore) -> None:
        view, now = store.pending("laptop"), time.time()
        for name, age in (("old", 3600.0), ("new", 0.0)):
            await view.keep(pending(name, asked=now - age))
        assert await view.expire(1800.0) == 1
        assert [(await store.get(name)).status for name in ("old", "new")] == ["expired", "waiting"]

    in_store(work)
