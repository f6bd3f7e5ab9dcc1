"""Calls that wait in a file: who may answer, who carries on, and what several processes see of it."""

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.joined import ENVIRONMENT, PATIENCE, Json, Peer, Tap, accept, asking, form, run, text
from turnwise import (
    AlreadyAnswered,
    Client,
    ConnectionLost,
    Context,
    Done,
    Elicit,
    InvalidAnswer,
    MCPError,
    MCPServer,
    Pending,
    PendingStore,
    SQLitePendingStore,
    UnknownPending,
)
from turnwise.errors import CallerError

SILENT: Any = {"mode": "2026-07-28"}
AN_HOUR = 3600.0
X = accept(value="x")


class Clock:
    """The store's clock, which stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("turnwise._pending_store.time", SimpleNamespace(time=clock.time))
    return clock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.db"


@asynccontextmanager
async def opened(*paths: str | Path) -> AsyncIterator[Any]:
    """A store for each path, closed afterwards; the store itself where there is one."""
    stores = [SQLitePendingStore(path) for path in paths]
    try:
        yield stores if len(stores) > 1 else stores[0]
    finally:
        for store in stores:
            await store.aclose()


def made(name: str = "one", **members: Any) -> Pending:
    base: Json = {"id": name, "server": None, "method": "tools/call", "params": {"name": "it"}}
    asked = {"requests": {"a": form("A?"), "b": form("B?")}, "state": "s", "began": 1.0, "asked": 2.0}
    return Pending(**{**base, **asked, **members})


def airline() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("airline")

    @server.tool()
    async def book(flight: str, ctx: Context) -> str:
        seat = await ctx.elicit("Which seat?", str, key="seat")
        meal = await ctx.elicit("Which meal?", str, key="meal")
        return f"{flight}: {', '.join(answer.data for answer in (seat, meal) if answer.action == 'accept')}"

    @server.tool()
    async def both(ctx: Context) -> str:
        answers = await ctx.ask_all(a=Elicit("A?", str), b=Elicit("B?", str))
        return f"{answers['a'].data}{answers['b'].data}"

    return server


# Keeping


def test_what_is_kept_is_there_until_it_is_forgotten(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            kept = await store.keep(made())
            assert kept == replace(made(), revision=1)
            assert await store.get("one") == kept
            assert await store.list() == [kept]
            assert await store.forget("one") is True
            assert await store.forget("one") is False
            assert await store.list() == []
            with pytest.raises(UnknownPending):
                await store.get("one")

    run(visit())


def test_a_store_is_a_pending_store(path: Path) -> None:
    store: PendingStore = SQLitePendingStore(path)
    assert not path.exists(), "nothing is opened before it is used"
    assert store is not None


def test_calls_are_listed_in_the_order_in_which_they_were_asked(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            for name, asked in (("late", 30.0), ("early", 10.0), ("middle", 20.0)):
                await store.keep(made(name, asked=asked))
            await store.answer("early", {"a": X})
            assert [call.id for call in await store.list()] == ["early", "middle", "late"]

    run(visit())


def test_what_becomes_of_a_call_is_kept_under_the_same_id(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            kept = await store.keep(made())
            later = await store.keep(replace(kept, round=1, state="s2"))
            assert (later.revision, (await store.get("one")).state) == (2, "s2")
            assert len(await store.list()) == 1

    run(visit())


def test_a_change_that_was_made_from_an_older_revision_is_refused(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            kept = await store.keep(made())
            newer = await store.answer("one", {"a": X})
            for stale in (kept, made(), replace(newer, revision=7)):
                with pytest.raises(AlreadyAnswered):
                    await store.keep(stale)
            assert await store.get("one") == newer
            await store.forget("one")
            with pytest.raises(UnknownPending):
                await store.keep(newer)
            assert await store.list() == []

    run(visit())


def test_old_calls_expire(path: Path, clock: Clock) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            await store.keep(made("old", asked=clock.now - 101))
            await store.keep(made("young", asked=clock.now - 99))
            assert await store.expire(100) == 1
            assert await store.expire(100) == 0
            assert [call.id for call in await store.list()] == ["young"]

    run(visit())


@pytest.mark.parametrize("use", ["get", "claim", "answer"])
def test_a_call_that_is_not_there_is_unknown(path: Path, use: str) -> None:
    more: Json = {"get": (), "claim": (AN_HOUR,), "answer": ({"a": X},)}

    async def visit() -> None:
        async with opened(path) as store:
            with pytest.raises(UnknownPending) as raised:
                await getattr(store, use)("nobody", *more[use])
            assert raised.value.pending_id == "nobody"
            assert isinstance(raised.value, LookupError)

    run(visit())


# Answering


def test_answers_may_come_one_after_the_other(path: Path) -> None:
    async def visit() -> None:
        async with opened(path, path) as (store, other):
            await store.keep(made())
            assert (await store.answer("one", {"b": X})).unanswered == ("a",)
            assert (await other.answer("one", {"a": X})).unanswered == ()
            assert (await store.get("one")).answers == {"a": X, "b": X}

    run(visit())


def test_a_question_is_answered_once(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            await store.keep(made())
            await store.answer("one", {"a": X})
            with pytest.raises(AlreadyAnswered, match="a has an answer"):
                await store.answer("one", {"a": accept(value="y"), "b": X})
            assert (await store.get("one")).answers == {"a": X}

    run(visit())


@pytest.mark.parametrize("answers", [{"c": X}, {"a": accept(value=5)}, {"a": X, "b": None}])
def test_an_answer_that_does_not_fit_is_not_kept(path: Path, answers: Any) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            kept = await store.keep(made())
            with pytest.raises(InvalidAnswer):
                await store.answer("one", answers)
            assert await store.get("one") == kept

    run(visit())


def test_of_many_who_answer_at_the_same_time_one_wins(path: Path) -> None:
    async def visit() -> None:
        async with opened(*[path] * 5) as stores:
            await stores[0].keep(made())
            attempts = [store.answer("one", {"a": accept(value=str(n))}) for n, store in enumerate(stores * 3)]
            outcomes = await asyncio.gather(*attempts, return_exceptions=True)
            won = [outcome for outcome in outcomes if isinstance(outcome, Pending)]
            assert len(won) == 1
            assert sum(isinstance(outcome, AlreadyAnswered) for outcome in outcomes) == len(attempts) - 1
            assert await stores[0].get("one") == won[0]

    run(visit())


# Carrying on


def test_a_call_is_carried_on_by_one_at_a_time(path: Path) -> None:
    async def visit() -> None:
        async with opened(path, path) as (store, other):
            await store.keep(made())
            claimed = await store.claim("one", AN_HOUR)
            for holder in (store, other):
                with pytest.raises(AlreadyAnswered, match="carrying it on"):
                    await holder.claim("one", AN_HOUR)
                with pytest.raises(AlreadyAnswered, match="carrying it on"):
                    await holder.answer("one", {"a": X})
            assert (await other.get("one")).revision == claimed.revision
            await store.keep(replace(claimed, round=1))
            assert (await other.claim("one", AN_HOUR)).round == 1

    run(visit())


def test_the_claim_of_a_process_that_died_runs_out(path: Path, clock: Clock) -> None:
    async def visit() -> None:
        async with opened(path, path) as (dead, other):
            await dead.keep(made())
            claimed = await dead.claim("one", 10)
            clock.now += 9.9
            with pytest.raises(AlreadyAnswered):
                await other.claim("one", 10)
            clock.now += 0.2
            taken = await other.claim("one", 10)
            assert taken.revision == claimed.revision + 1
            with pytest.raises(AlreadyAnswered):
                await dead.keep(claimed)

    run(visit())


def test_of_many_who_claim_at_the_same_time_one_wins(path: Path) -> None:
    async def visit() -> None:
        async with opened(*[path] * 5) as stores:
            await stores[0].keep(made())
            outcomes = await asyncio.gather(*(s.claim("one", AN_HOUR) for s in stores), return_exceptions=True)
            assert sorted(type(outcome).__name__ for outcome in outcomes) == ["BeingCarriedOn"] * 4 + ["Pending"]

    run(visit())


# The file


def test_only_its_owner_may_read_the_file(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            await store.keep(made())
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
            assert modes["calls.db"] == 0o600
            assert set(modes.values()) == {0o600}

    run(visit())


def test_a_store_that_was_closed_is_opened_by_its_next_use(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store:
            await store.keep(made())
            await store.aclose()
            assert [call.id for call in await store.list()] == ["one"]
            await store.aclose()
            await store.aclose()

    run(visit())
    assert not path.with_name("calls.db-wal").exists()


def test_a_store_outlives_its_loop(path: Path) -> None:
    store = SQLitePendingStore(str(path))
    run(store.keep(made()))
    assert [call.id for call in run(store.list())] == ["one"]
    run(store.aclose())


@pytest.mark.parametrize("kind", ["no database", "a directory", "no such directory", "another table", "no call in it"])
def test_a_file_that_cannot_be_used_is_the_callers_mistake(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "calls.db"
    match kind:
        case "no database":
            path.write_bytes(b"These are my notes, and no database at all. " * 100)
        case "a directory":
            path.mkdir()
        case "no such directory":
            path = tmp_path / "nowhere" / "calls.db"
        case "another table":
            with sqlite3.connect(path) as database:
                database.execute("CREATE TABLE pending (asked TEXT)")
            database.close()
        case "no call in it":
            run(opened_and_kept(path))
            with sqlite3.connect(path) as database:
                database.execute("UPDATE pending SET body = '{}'")
            database.close()

    async def visit() -> None:
        async with opened(path) as store:
            with pytest.raises(CallerError):
                await store.get("one")

    run(visit())
    if kind == "no database":
        assert path.read_bytes().startswith(b"These are my notes")


async def opened_and_kept(path: Path) -> None:
    async with opened(path) as store:
        await store.keep(made())


RACER = """
import asyncio, json, sys
from turnwise import AlreadyAnswered, SQLitePendingStore

async def main(path, name):
    store = SQLitePendingStore(path)
    await store.list()
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        await store.answer("one", {"a": {"action": "accept", "content": {"value": name}}})
        claimed = await store.claim("one", 3600)
        print(json.dumps(["won", claimed.answers["a"]["content"]["value"]]), flush=True)
    except AlreadyAnswered as error:
        print(json.dumps([type(error).__name__, error.pending_id]), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_of_several_processes_that_answer_the_same_call_one_wins(path: Path) -> None:
    run(opened_and_kept(path))
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        for number in range(3)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    outcomes = []
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        out, _ = racer.communicate(timeout=PATIENCE)
        assert racer.returncode == 0
        outcomes.append(json.loads(out))
    won = [name for outcome, name in outcomes if outcome == "won"]
    assert len(won) == 1
    assert sorted("won" if outcome == "won" else "lost" for outcome, _ in outcomes) == ["lost", "lost", "won"]
    assert {outcome for outcome, _ in outcomes} <= {"won", "AlreadyAnswered", "BeingCarriedOn"}

    async def visit() -> None:
        async with opened(path) as store:
            assert (await store.get("one")).answers == {"a": accept(value=won[0])}

    run(visit())


# A client with a store


def test_a_client_keeps_what_waits_and_forgets_what_is_done(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store, Client(airline(), pending_store=store) as client:
            begun = await client.begin("book", {"flight": "TW 1"})
            assert isinstance(begun, Pending)
            assert await store.list() == [begun]
            second = await client.resume(begun.id, {"seat": accept(value="7A")})
            assert isinstance(second, Pending)
            assert await store.list() == [second]
            assert (second.id, second.unanswered) == (begun.id, ("meal",))
            done = await client.resume(second, {"meal": accept(value="rice")})
            assert isinstance(done, Done)
            assert text(done.result) == "TW 1: 7A, rice"
            assert await store.list() == []
            with pytest.raises(UnknownPending):
                await client.resume(begun.id, {"seat": accept(value="7A")})

    run(visit())


def test_a_call_that_asks_nothing_is_not_kept(path: Path) -> None:
    async def visit() -> None:
        peer = Peer(lambda method, params: {"content": []})
        async with opened(path) as store, Client(peer, pending_store=store, **SILENT) as client:
            assert isinstance(await client.begin("it"), Done)
            assert await store.list() == []

    run(visit())


def test_half_an_answer_is_kept_for_whoever_has_the_other_half(path: Path) -> None:
    tap = Tap(airline())

    async def visit() -> None:
        async with (
            opened(path, path) as (mine, yours),
            Client(tap, pending_store=mine, **SILENT) as me,
            Client(tap, pending_store=yours, **SILENT) as you,
        ):
            begun = await me.begin("both")
            assert isinstance(begun, Pending)
            half = await you.resume(begun.id, {"b": accept(value="B")})
            assert isinstance(half, Pending)
            assert half.unanswered == ("a",)
            with pytest.raises(AlreadyAnswered):
                await me.resume(begun, {"b": accept(value="too late")})
            assert len(tap.requests) == 1
            done = await me.resume(begun.id, {"a": accept(value="A")})
            assert isinstance(done, Done)
            assert text(done.result) == "AB"

    run(visit())


def test_answers_that_were_added_to_a_call_in_hand_count_with_a_store_as_without(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store, Client(airline(), pending_store=store) as client:
            begun = await client.begin("both")
            assert isinstance(begun, Pending)
            done = await client.resume(begun.answered({"a": accept(value="A"), "b": accept(value="B")}))
            assert isinstance(done, Done)

    run(visit())


def test_an_answer_to_a_question_of_an_earlier_round_is_not_taken_for_one_of_a_later(path: Path) -> None:
    """A server may use a key again. Of two who hold the same call, the slower one answers what is no longer asked."""

    def answer(method: str, params: Json) -> Json:
        return asking({"sure": form(f"Delete {params.get('requestState', 'A')}?")}, "B")

    async def visit() -> None:
        peer = Peer(answer)
        async with opened(path) as store, Client(peer, pending_store=store, **SILENT) as client:
            begun = await client.begin("it")
            assert isinstance(begun, Pending)
            later = await client.resume(begun, {"sure": accept(value="yes")})
            assert isinstance(later, Pending)
            assert later.requests != begun.requests
            with pytest.raises(AlreadyAnswered):
                await client.resume(begun, {"sure": accept(value="yes")})
            assert len(peer.requests) == 2

    run(visit())


@pytest.mark.parametrize(
    "fault",
    [ConnectionLost("gone", sent=True), MCPError(-32000, "busy"), KeyboardInterrupt(), asyncio.CancelledError()],
)
def test_where_the_server_fails_the_answers_are_kept_and_anybody_may_go_on(path: Path, fault: BaseException) -> None:
    faults = [fault]

    async def answer(method: str, params: Json) -> Json:
        if "inputResponses" not in params:
            return asking({"q": form()}, "s")
        if faults:
            raise faults.pop()
        return {"content": []}

    async def visit() -> None:
        async with opened(path) as store, Client(Peer(answer), pending_store=store, **SILENT) as client:
            begun = await client.begin("it")
            assert isinstance(begun, Pending)
            with pytest.raises(type(fault)):
                await client.resume(begun, {"q": X})
            waiting = await store.get(begun.id)
            assert (waiting.answers, waiting.unanswered) == ({"q": X}, ())
            assert isinstance(await client.resume(begun.id), Done)
            assert await store.list() == []

    run(visit())


def answered_at_once(method: str, params: Json) -> Json:
    return {"content": []} if "inputResponses" in params else asking({"q": form()}, "s")


@pytest.mark.parametrize("fault", [CallerError("the disk is full"), RuntimeError("the disk is full")])
def test_a_result_that_came_is_not_lost_where_the_store_cannot_forget_its_call(
    path: Path, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    class Full(SQLitePendingStore):
        async def forget(self, pending_id: str) -> bool:
            raise fault

    async def visit() -> None:
        store = Full(path)
        async with Client(Peer(answered_at_once), pending_store=store, **SILENT) as client:
            begun = await client.begin("it")
            assert isinstance(begun, Pending)
            assert isinstance(await client.resume(begun, {"q": X}), Done)
        assert f"call {begun.id}: it is done, and still there to be resumed" in caplog.text
        await store.aclose()

    run(visit())


def test_a_call_that_is_cancelled_ends_so_though_the_store_has_it_no_longer(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def visit() -> None:
        under_way = asyncio.Event()

        async def answer(method: str, params: Json) -> Json:
            if "inputResponses" in params:
                under_way.set()
                await asyncio.Event().wait()
            return asking({"q": form()}, "s")

        async with opened(path) as store, Client(Peer(answer), pending_store=store, **SILENT) as client:
            begun = await client.begin("it")
            assert isinstance(begun, Pending)
            resumed = asyncio.create_task(client.resume(begun, {"q": X}))
            await under_way.wait()
            await store.forget(begun.id)
            resumed.cancel()
            await asyncio.wait([resumed])
            assert resumed.cancelled()

    run(visit())
    assert "its claim is not given back" in caplog.text


def test_a_call_that_is_cancelled_while_it_is_claimed_is_given_back(path: Path) -> None:
    class Slow(SQLitePendingStore):
        async def claim(self, pending_id: str, seconds: float) -> Pending:
            claimed = await super().claim(pending_id, seconds)
            under_way.set()
            await asyncio.sleep(0.05)
            return claimed

    under_way = asyncio.Event()

    async def visit() -> None:
        store = Slow(path)
        async with Client(Peer(answered_at_once), pending_store=store, **SILENT) as client:
            begun = await client.begin("it")
            assert isinstance(begun, Pending)
            resumed = asyncio.create_task(client.resume(begun, {"q": X}))
            await under_way.wait()
            resumed.cancel()
            await asyncio.wait([resumed])
            assert resumed.cancelled()
            assert isinstance(await client.resume(begun.id), Done)
        await store.aclose()

    run(visit())


def test_while_one_client_carries_a_call_on_another_is_told(path: Path) -> None:
    async def visit() -> None:
        under_way, release = asyncio.Event(), asyncio.Event()

        async def answer(method: str, params: Json) -> Json:
            if "inputResponses" not in params:
                return asking({"q": form()}, "s")
            under_way.set()
            await release.wait()
            return {"content": []}

        peer = Peer(answer)
        async with opened(path) as store, Client(peer, pending_store=store, **SILENT) as client:
            begun = await client.begin("it")
            assert isinstance(begun, Pending)
            first = asyncio.create_task(client.resume(begun, {"q": X}))
            await under_way.wait()
            for answers in ({"q": X}, None):
                with pytest.raises(AlreadyAnswered):
                    await client.resume(begun.id, answers)
            release.set()
            assert isinstance(await first, Done)
            assert len(peer.requests) == 2

    run(visit())


def test_a_call_is_not_taken_from_a_client_that_lives_however_long_it_carries_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwise.client.CLAIM_MARGIN", 0.0, raising=False)
    monkeypatch.setattr("turnwise.client.CLAIM_SECONDS", 0.3, raising=False)
    thought: Json = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
    rounds = {None: asking({"q": form()}, "1"), "1": asking({"thought": thought}, "2"), "2": {"content": []}}

    async def visit() -> None:
        thinking, release = asyncio.Event(), asyncio.Event()

        async def think(*_: Any) -> Json:
            thinking.set()
            await release.wait()
            return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}}

        peer = Peer(lambda method, params: rounds[params.get("requestState")])
        options: Any = {"sampling_callback": think, "read_timeout_seconds": 0.3, **SILENT}
        async with opened(path) as store, Client(peer, pending_store=store, **options) as client:
            begun = await client.begin("it")
            assert isinstance(begun, Pending)
            first = asyncio.create_task(client.resume(begun, {"q": X}))
            await thinking.wait()
            await asyncio.sleep(0.5)  # Longer than one request may take: this is what is tested.
            with pytest.raises(AlreadyAnswered):
                await client.resume(begun.id, deadline=1)
            release.set()
            assert isinstance(await first, Done)
            assert len(peer.requests) == 3

    run(visit())


def test_a_client_of_another_server_changes_nothing(path: Path) -> None:
    async def visit() -> None:
        async with opened(path) as store, Client("http://127.0.0.1:9/mcp", pending_store=store, **SILENT) as client:
            kept = await store.keep(made(server="https://other.example.com/mcp"))
            with pytest.raises(CallerError, match=r"other\.example\.com"):
                await client.resume("one", {"a": X, "b": X})
            assert await store.get("one") == kept

    run(visit())


def test_a_call_that_cannot_be_read_hides_none_of_the_others(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with opened(path) as store:
            await store.keep(made("one"))
            await store.keep(made("two"))
            with sqlite3.connect(path) as database:
                database.execute("UPDATE pending SET body = ? WHERE id = 'one'", ('{"a":' * 300 + "1" + "}" * 300,))
            database.close()
            assert [pending.id for pending in await store.list()] == ["two"]
            with pytest.raises(CallerError):
                await store.get("one")

    run(work())
    assert "call one cannot be read, and is passed over" in caplog.text
