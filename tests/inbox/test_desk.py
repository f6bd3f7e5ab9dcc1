"""The inbox at work: calls of real servers are handed over, answered, and carried on."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.inbox import offices
from tests.inbox.offices import KEY, accept, asks, at_url, begun, is_over, make_server, opened, run, until
from tests.wires.serving import serving
from turnwise import (
    AlreadyAnswered,
    CallerError,
    Client,
    Context,
    InvalidAnswer,
    TaskInHand,
    TaskOptions,
    UnknownPending,
)
from turnwise.inbox import carrying, working
from turnwise.inbox.desk import Inbox
from turnwise.inbox.model import TooLate, Wanted
from turnwise.inbox.sqlite import SQLiteInboxStore


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with at_url(make_server()) as found:
        yield found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "inbox.db"


def test_a_call_of_three_rounds_is_answered_in_the_inbox_and_comes_to_its_result(url: str, path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(await begun(url), caller="agent")
            assert (item.status, item.headline, item.server, item.target) == (
                "waiting",
                "What is it about?",
                url,
                "file",
            )
            item = await inbox.answer(item.id, {"title": accept(title="a leak")}, round=item.round, by="ann")
            assert item.status == "going"
            item = await until(inbox, item.id, asks("level"))
            assert item.headline == "How bad is 'a leak'?"
            await inbox.answer(item.id, {"level": accept(level=4)}, round=item.round, by="bob")
            item = await until(inbox, item.id, asks("sure"))
            await inbox.answer(item.id, {"sure": accept(value=True)}, round=item.round, by="ann")
            item = await until(inbox, item.id, is_over)
            assert item.status == "done"
            assert item.result is not None
            assert item.result["content"][0]["text"] == "bug: a leak (4) True"
            assert [(one.key, one.by, one.round) for one in item.given] == [
                ("title", "ann", 0),
                ("level", "bob", 1),
                ("sure", "ann", 2),
            ]
            assert item.pending.state is None

    run(work())


def test_a_decline_goes_on_too(url: str, path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(await begun(url), caller="agent")
            await inbox.answer(item.id, {"title": {"action": "decline"}}, round=0, by="ann")
            item = await until(inbox, item.id, is_over)
            assert item.result is not None
            assert item.result["content"][0]["text"] == "nothing was filed: decline"

    run(work())


def test_of_two_who_answer_the_first_wins_and_the_second_is_told_who_it_was(url: str, path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(await begun(url), caller="agent")
            answers = [
                inbox.answer(item.id, {"title": accept(title=f"by {name}")}, round=0, by=name)
                for name in ("ann", "bob")
            ]
            outcomes = await asyncio.gather(*answers, return_exceptions=True)
            [late] = [one for one in outcomes if isinstance(one, TooLate)]
            [won] = [one for one in outcomes if not isinstance(one, BaseException)]
            assert late.by == won.given[0].by
            item = await until(inbox, item.id, asks("level"))
            with pytest.raises(TooLate) as told:
                await inbox.answer(item.id, {"title": accept(title="again")}, round=0, by="eve")
            assert told.value.by == late.by
            assert len((await inbox.get(item.id)).given) == 1

    run(work())


def test_an_answer_that_does_not_fit_changes_nothing(url: str, path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(await begun(url), caller="agent")
            for answers in (
                {"title": accept(title="x")},
                {"title": accept()},
                {"title": accept(title=3)},
                {"title": {"action": "perhaps"}},
                {"title": "yes"},
                {"other": accept(title="fine")},
            ):
                with pytest.raises(InvalidAnswer):
                    await inbox.answer(item.id, answers, round=0, by="ann")
            with pytest.raises(CallerError):
                await inbox.answer(item.id, {}, round=0, by="ann")
            with pytest.raises(CallerError):
                await inbox.answer(item.id, {"title": accept(title="fine")}, round=1, by="ann")
            assert await inbox.get(item.id) == item
            with pytest.raises(UnknownPending):
                await inbox.answer("nothing", {"title": accept(title="fine")}, round=0, by="ann")

    run(work())


def test_the_same_call_handed_over_twice_is_one_item_and_another_under_its_id_is_refused(url: str, path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            call = await begun(url)
            first = await inbox.hand_over(call, caller="agent")
            await inbox.answer(first.id, {"title": accept(title="a leak")}, round=0, by="ann")
            again = await inbox.hand_over(call, caller="agent")
            assert (again.id, len(again.given)) == (first.id, 1)
            with pytest.raises(AlreadyAnswered):
                await inbox.hand_over(replace(call, state="another"), caller="agent")

    run(work())


def test_what_cannot_be_taken_is_refused_in_words(path: Path) -> None:
    call = offices.pending()
    cases: list[tuple[Any, dict[str, Any]]] = [
        (replace(call, server=None), {}),
        (replace(call, server="python server.py"), {}),
        (replace(call, server="file:///etc/passwd"), {}),
        (replace(call, server="http://user:word@host/mcp"), {}),
        (replace(call, server="http://host:99999/mcp"), {}),
        (replace(call, server="http://elsewhere/mcp"), {}),
        (replace(call, id="../../etc"), {}),
        (replace(call, id=""), {}),
        (replace(call, round=10**6), {}),
        (call, {"caller": ""}),
        (call, {"caller": "a\nb"}),
        (call, {"caller": "a" * 1000}),
        (call, {"authorization": "Bearer a\r\nX: y"}),
        (call, {"authorization": "a" * 100_000}),
        (call, {"seconds": 0}),
        (call, {"seconds": -1}),
        (call, {"seconds": 1e300}),
        (call, {"seconds": float("nan")}),
        (call, {"hook": "http://example.com/"}),
        (call, {"hook": "ftp://localhost/"}),
        (call, {"hook": "https://user@example.com/"}),
        (call, {"hook": "https://"}),
        (call, {"hook": "https://example.com/ x"}),
        (call, {"hook": "https://example.com:0/"}),
        (TaskInHand("t", "tool"), {}),
    ]

    async def work() -> None:
        async with opened(path, servers=["http://127.0.0.1:9"]) as inbox:
            for one, options in cases:
                with pytest.raises(CallerError):
                    await inbox.hand_over(one, **{"caller": "agent", **options})
            assert (await inbox.page(Wanted())).total == 0
            deaf = Inbox(inbox.store)
            with pytest.raises(CallerError, match="no secret"):
                await deaf.hand_over(call, caller="agent", hook="https://example.com/")

    run(work())


def test_times_that_a_caller_says_are_held_within_reason(path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            for number, moment in enumerate((0, 1e300, 10**400)):
                item = await inbox.hand_over(offices.pending(f"c{number}", asked=moment, began=moment), caller="agent")
                assert time.time() - 366 * 24 * 3600 < item.pending.asked <= time.time()

    run(work())


def test_a_call_that_fails_ends_with_the_servers_words(url: str, path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(await begun(url, "fail"), caller="agent")
            await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
            item = await until(inbox, item.id, is_over)
            assert (item.status, item.result is None or item.result["isError"]) == ("failed", True)
            assert [line.id for line in (await inbox.page(Wanted(("failed",)))).lines] == [item.id]
            assert "not for clients" not in str(item.error) + str(item.result)

    run(work())


def test_a_state_that_the_server_does_not_take_begins_the_call_anew_where_that_was_wished_and_old_answers_are_used(
    url: str, path: Path
) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            call = replace(await begun(url), state="s1.forged")
            item = await inbox.hand_over(call, caller="agent", restart_expired=True)
            await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
            item = await until(inbox, item.id, asks("level"))
            assert item.round == 1

    run(work())


def test_a_server_that_is_away_is_asked_again_and_the_item_says_so(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "FIRST_PAUSE", 0.05)

    async def work() -> None:
        async with opened(path) as inbox:
            with at_url(make_server()) as leaving:
                call = await begun(leaving)
            item = await inbox.hand_over(call, caller="agent")
            await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
            item = await until(inbox, item.id, lambda seen: seen.tries > 1)
            assert item.status == "going"
            note = str(item.note)
            assert re.fullmatch(
                r"The server cannot be reached: .*\. Tried \d+ times, and again at [\d:]{8} UTC\.", note
            )
            assert note.count("reached") == 1
            port = int(leaving.rpartition(":")[2].partition("/")[0])
            with at_url(make_server(), port):
                item = await until(inbox, item.id, asks("level"))
                assert item.note is None

    run(work())


def test_no_more_calls_of_one_server_go_on_at_once_than_it_is_said(path: Path) -> None:
    server, running, most, are_two = make_server(), 0, 0, asyncio.Event()

    @server.tool()
    async def slow(ctx: Context) -> None:
        nonlocal running, most
        await ctx.elicit("Ready?", bool, key="ready")
        running += 1
        most = max(most, running)
        if running == 2:
            await asyncio.sleep(0.2)  # For a third, if one comes.
            are_two.set()
        await are_two.wait()
        running -= 1

    async def work(url: str) -> None:
        async with opened(path, work={"per_server": 2}) as inbox:
            items = [await inbox.hand_over(await begun(url, "slow"), caller="agent") for _ in range(4)]
            for item in items:
                await inbox.answer(item.id, {"ready": accept(value=True)}, round=0, by="ann")
            for item in items:
                assert (await until(inbox, item.id, is_over)).status == "done"

    with at_url(server) as url:
        run(work(url))
    assert most == 2


def test_a_call_that_breaks_the_inbox_fails_alone(
    url: str, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    known = carrying.carried_on

    async def broken(clients: Any, item: Any) -> Any:
        if item.caller == "stranger":
            raise ValueError("nobody thought of this")
        return await known(clients, item)

    monkeypatch.setattr(working, "carried_on", broken)

    async def work() -> None:
        async with opened(path) as inbox:
            bad = await inbox.hand_over(await begun(url), caller="stranger")
            good = await inbox.hand_over(await begun(url), caller="agent")
            for item in (bad, good):
                await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
            assert (await until(inbox, bad.id, is_over)).error == working.BROKEN
            await until(inbox, good.id, asks("level"))

    run(work())
    assert "nobody thought of this" in caplog.text


def test_a_hostile_server_harms_no_others(url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says is no reply, no question, or too large: its calls fail with words, and others go on."""
    monkeypatch.setattr(carrying, "LARGEST_REPLY", 100_000)
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    question = b'{"q": {"method": "elicitation/create", "params": 3}}'
    asked = b'{"jsonrpc": "2.0", "id": %d, "result": {"resultType": "input_required", "inputRequests": ' + question
    replies = [b"", b"null", b"<html>", b"\xff", deep, b" " * 200_000, asked + b"}}", b'{"jsonrpc": "2.0", "id": %d}']

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        message = json.loads((await receive())["body"])
        if message["method"] == "server/discover":
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        else:
            body = replies[int(scope["path"].rpartition("/")[2])].replace(b"%d", str(message["id"]).encode())
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def work(port: int) -> None:
        async with opened(path) as inbox:
            for number in range(len(replies)):
                call = offices.pending(f"h{number}", server=f"http://127.0.0.1:{port}/{number}")
                await inbox.hand_over(call, caller="agent")
                await inbox.answer(f"h{number}", {"title": accept(value="x")}, round=0, by="ann")
            good = await inbox.hand_over(await begun(url), caller="agent")
            await inbox.answer(good.id, {"title": accept(title="a leak")}, round=0, by="ann")
            await until(inbox, good.id, asks("level"))
            for number in range(len(replies)):
                item = await until(inbox, f"h{number}", is_over)
                assert (item.status, bool(item.error), item.error == working.BROKEN) == ("failed", True, False), item

    with serving(serve) as port:
        run(work(port))


def test_a_server_that_stays_away_for_too_long_has_failed(path: Path) -> None:
    async def work() -> None:
        async with opened(path, work={"patience": 0.0}) as inbox:
            item = await inbox.hand_over(offices.pending(), caller="agent")
            await inbox.answer(item.id, {"title": accept(value="a leak")}, round=0, by="ann")
            item = await until(inbox, item.id, is_over)
            assert item.status == "failed"
            assert "away" in str(item.error)

    run(work())


def test_a_call_expires_at_its_time_and_takes_no_answer_after_it(path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(offices.pending(), caller="agent", seconds=0.3)
            item = await until(inbox, item.id, is_over)
            assert item.status == "expired"
            with pytest.raises(TooLate, match="expired"):
                await inbox.answer(item.id, {"title": accept(value="late")}, round=0, by="ann")

    run(work())


def test_a_call_that_is_withdrawn_is_over(path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(offices.pending(), caller="agent")
            item = await inbox.withdraw(item.id, by="ann")
            assert (item.status, item.error) == ("failed", "withdrawn by ann")
            with pytest.raises(TooLate):
                await inbox.withdraw(item.id, by="bob")
            with pytest.raises(TooLate):
                await inbox.answer(item.id, {"title": accept(value="late")}, round=0, by="bob")

    run(work())


def test_what_ended_long_ago_is_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "PURGE_SECONDS", 0.05)

    async def work() -> None:
        async with opened(path, work={"retention": 0.1}) as inbox:
            kept = await inbox.hand_over(offices.pending("kept"), caller="agent")
            gone = await inbox.hand_over(offices.pending("gone"), caller="agent")
            await inbox.withdraw(gone.id, by="ann")
            for _ in range(200):
                await asyncio.sleep(0.02)
                try:
                    await inbox.get(gone.id)
                except UnknownPending:
                    break
            else:
                pytest.fail("it is still there")
            assert await inbox.get(kept.id) == kept

    run(work())


def test_what_another_process_does_is_heard_of(path: Path) -> None:
    async def work() -> None:
        async with opened(path) as here, opened(path) as there:
            item = await here.hand_over(offices.pending(), caller="agent")
            hearing = asyncio.ensure_future(anext(aiter(here.changes())))
            waiting = asyncio.ensure_future(until(here, item.id, lambda seen: bool(seen.given)))
            await asyncio.sleep(0.05)
            await there.answer(item.id, {"title": accept(value="x")}, round=0, by="ann")
            assert item.id in await hearing
            assert (await waiting).given[0].by == "ann"

    run(work())


def test_what_happens_before_an_inbox_first_looks_is_not_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        looked = asyncio.Event()
        store = SQLiteInboxStore(path, [KEY])
        changes = store.changes

        async def late(mark: int | None) -> Any:
            await looked.wait()
            return await changes(mark)

        monkeypatch.setattr(store, "changes", late)
        here = Inbox(store)
        async with opened(path) as there, here.run():
            item = await there.hand_over(offices.pending(), caller="agent")
            waiting = asyncio.ensure_future(until(here, item.id, lambda seen: bool(seen.given)))
            while not here._changes._by_id:  # noqa: ASYNC110 - it is somebody else's
                await asyncio.sleep(0)
            await there.answer(item.id, {"title": accept(value="x")}, round=0, by="ann")
            looked.set()
            assert (await waiting).given[0].by == "ann"
        await store.aclose()

    run(work())


def test_who_waits_is_let_go_when_the_inbox_ends(path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(offices.pending(), caller="agent")

            async def follow() -> AsyncIterator[Any]:
                async for seen in inbox.follow(item.id):
                    yield seen

            following = asyncio.ensure_future(_all(follow()))
            polling = asyncio.ensure_future(inbox.changed_from(item.id, item.revision, 60))
            await asyncio.sleep(0.05)
        assert len(await following) == 1
        assert (await polling).revision == item.revision

    run(work())


def test_who_has_something_to_read_when_the_inbox_ends_reads_it_and_is_let_go(path: Path) -> None:
    async def work() -> None:
        async with opened(path) as inbox:
            reading = asyncio.ensure_future(_all(inbox.changes()))
            await asyncio.sleep(0)
            item = await inbox.hand_over(offices.pending(), caller="agent")
            inbox.let_go()
            async with asyncio.timeout(10):
                assert await reading == [{item.id}]

    run(work())


async def _all(found: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in found]


def test_a_task_is_followed_and_its_questions_answered(path: Path) -> None:
    server = make_server(tasks=TaskOptions(poll=0.05))

    @server.tool(task="always")
    async def build(name: str, ctx: Context) -> str:
        """Build something."""
        answer = await ctx.elicit("Which colour?", str, key="colour")
        other = await ctx.elicit("And how many?", int, key="count")
        return f"{name}: {answer.data} {other.data}"  # type: ignore[union-attr]

    async def work(url: str) -> None:
        async with opened(path) as inbox:
            async with Client(url) as client:
                task = await client.begin("build", {"name": "boat"})
            assert isinstance(task, TaskInHand)
            item = await inbox.hand_over(task, caller="agent")
            assert await inbox.hand_over(task, caller="agent") == item
            item = await until(inbox, item.id, asks("colour"))
            assert item.headline == "Which colour?"
            await inbox.answer(item.id, {"colour": accept(value="red")}, round=item.round, by="ann")
            item = await until(inbox, item.id, asks("count"))
            await inbox.answer(item.id, {"count": accept(value=3)}, round=item.round, by="bob")
            item = await until(inbox, item.id, is_over)
            assert item.result is not None
            assert item.result["content"][0]["text"] == "boat: red 3"
            assert [one.by for one in item.given] == ["ann", "bob"]

    with at_url(server) as url:
        run(work(url))


def test_a_task_that_is_withdrawn_is_stopped_at_its_server(path: Path) -> None:
    server = make_server(tasks=TaskOptions(poll=0.05))

    @server.tool(task="always")
    async def sleep(ctx: Context) -> str:
        """Take a while."""
        await ctx.sleep(60)
        return "awake"

    async def work(url: str) -> None:
        async with opened(path) as inbox, Client(url) as client:
            task = await client.begin("sleep")
            assert isinstance(task, TaskInHand)
            item = await inbox.hand_over(task, caller="agent")
            item = await inbox.withdraw(item.id, by="ann")
            assert (item.status, item.cancelled, item.task) == ("failed", True, task.id)
            assert item.error == "withdrawn by ann; its server was asked to stop the task"
            for _ in range(200):
                if (seen := await client.get_task(task.id)).is_over:
                    break
                await asyncio.sleep(0.02)
            assert seen.status == "cancelled"

    with at_url(server) as url:
        run(work(url))


def test_a_task_is_withdrawn_also_where_its_server_cannot_be_asked(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carrying, "CANCEL_SECONDS", 0.5)

    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(3)

    async def work(port: int) -> None:
        async with opened(path) as inbox:
            for number in (9, port):
                task = TaskInHand("t1", "build", {}, f"http://127.0.0.1:{number}/mcp")
                item = await inbox.hand_over(task, caller="agent")
                item = await inbox.withdraw(item.id, by="ann")
                assert (item.status, item.cancelled) == ("failed", False)
                assert "could not be asked to stop the task" in str(item.error)

    with serving(silent, log_level="critical") as port:
        run(work(port))
    assert caplog.text.count("could not be asked to stop the task") == 2


def test_a_call_that_is_withdrawn_while_it_becomes_a_task_is_stopped_too(path: Path) -> None:
    server, ran = make_server(tasks=TaskOptions(poll=0.05)), list[str]()

    @server.tool()
    async def build(ctx: Context) -> str:
        """Ask, take a moment, and go on as a task."""
        await ctx.elicit("Ready?", bool, key="ready")
        ran.append("asked")
        await asyncio.sleep(0.5)
        await ctx.become_task()
        await ctx.sleep(1.0)
        ran.append("built")
        return "built"

    async def work(url: str) -> None:
        async with opened(path) as inbox:
            item = await inbox.hand_over(await begun(url, "build"), caller="agent")
            await inbox.answer(item.id, {"ready": accept(value=True)}, round=0, by="ann")
            for _ in range(200):
                if ran:
                    break
                await asyncio.sleep(0.02)
            await inbox.withdraw(item.id, by="ann")
            await asyncio.sleep(3.0)
            assert "built" not in ran

    with at_url(server) as url:
        run(work(url))
