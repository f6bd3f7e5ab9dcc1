"""An answer that comes after the server has forgotten: nothing is done twice unless somebody says so."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.inbox import offices
from tests.inbox.offices import ANN, Line, accept, asks, at_url, begun, is_over, make_server, opened, run, serving_inbox
from tests.inbox.offices import until as until_it
from tests.wires.serving import serving
from turnwise import Client, Context, InboxFailed, Pending, RequestStateSecurity, SyncClient
from turnwise.inbox.model import Item, TooLate
from turnwise.inbox.sqlite import SQLiteInboxStore

TTL = 1.0
Charges = list[str]


def make(charges: Charges, **security: Any) -> Any:
    """A shop whose tool asks, charges, and asks again; its states live for a moment."""
    keys = RequestStateSecurity(keys=["the key of the server that charges, long"], **{"ttl": TTL, **security})
    server = make_server(request_state_security=keys)

    @server.tool()
    async def buy(what: str, ctx: Context) -> str:
        """Buy something."""
        await ctx.elicit("Which card?", str, key="card")

        async def charge() -> str:
            charges.append(what)
            return "charged"

        await ctx.step(charge)
        sure = await ctx.elicit("Gift wrapping?", bool, key="gift")
        return f"{what}: {sure.action}"

    return server


@pytest.fixture
def charges() -> Charges:
    return []


@pytest.fixture
def url(charges: Charges) -> Iterator[str]:
    with at_url(make(charges)) as found:
        yield found


@asynccontextmanager
async def late(url: str, path: Path, **terms: Any) -> AsyncIterator[tuple[Any, Item]]:
    """A call whose second answer came too late."""
    async with opened(path) as inbox:
        item = await inbox.hand_over(await begun(url, "buy", what="hat"), caller="agent", **terms)
        await inbox.answer(item.id, {"card": accept(value="visa")}, round=0, by="ann")
        item = await until_it(inbox, item.id, asks("gift"))
        await asyncio.sleep(TTL + 1.2)
        await inbox.answer(item.id, {"gift": accept(value=True)}, round=1, by="bob")
        yield inbox, item


def test_a_late_answer_does_nothing_twice_and_the_item_says_so(url: str, charges: Charges, tmp_path: Path) -> None:
    async def work() -> None:
        async with late(url, tmp_path / "inbox.db", authorization="Bearer s3cret") as (inbox, late_one):
            item = await until_it(inbox, late_one.id, is_over)
            assert (item.status, item.may_restart, item.restarted) == ("expired", True, None)
            assert "no longer takes the state" in str(item.error)
            assert [(one.key, one.by) for one in item.given] == [("card", "ann"), ("gift", "bob")]
            assert charges == ["hat"]
            assert item.pending.state is None

    run(work())


def test_somebody_begins_it_anew_and_what_was_answered_is_used_again(
    url: str, charges: Charges, tmp_path: Path
) -> None:
    async def work() -> None:
        async with late(url, tmp_path / "inbox.db") as (inbox, late_one):
            await until_it(inbox, late_one.id, is_over)
            again = await inbox.restart(late_one.id, by="ann")
            assert (again.status, again.restarted_by) == ("going", "ann")
            with pytest.raises(TooLate):
                await inbox.restart(late_one.id, by="bob")
            item = await until_it(inbox, late_one.id, is_over)
            assert item.result is not None, item
            assert item.result["content"][0]["text"] == "hat: accept"
            assert charges == ["hat", "hat"]
            assert (item.restarted_by, item.may_restart) == ("ann", False)
            with pytest.raises(TooLate):
                await inbox.restart(item.id, by="bob")

    run(work())


def test_where_the_caller_said_so_it_is_begun_anew_by_itself_and_says_so(
    url: str, charges: Charges, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with late(url, tmp_path / "inbox.db", restart_expired=True) as (inbox, late_one):
            item = await until_it(inbox, late_one.id, is_over)
            assert (item.status, item.restarted_by) == ("done", None)
            assert item.restarted is not None
            assert charges == ["hat", "hat"]

    run(work())
    assert "is begun anew" in caplog.text


async def forgetful(scope: Any, receive: Any, send: Any) -> None:
    """A server that asks, and takes none of its own states."""
    message = json.loads((await receive())["body"])
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "server/discover":
        body["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    elif "requestState" in message["params"]:
        body["error"] = {"code": -32602, "message": "Invalid or expired requestState"}
    else:
        asked = {"title": offices.question()}
        body["result"] = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


def test_a_server_that_takes_none_of_its_states_is_not_asked_for_ever(tmp_path: Path) -> None:
    async def work(port: int) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            call = offices.pending(server=f"http://127.0.0.1:{port}/mcp")
            item = await inbox.hand_over(call, caller="agent", restart_expired=True)
            await inbox.answer(item.id, {"title": accept(value="x")}, round=0, by="ann")
            item = await until_it(inbox, item.id, is_over)
            assert (item.status, item.may_restart) == ("expired", True)
            assert item.restarted is not None

    with serving(forgetful) as port:
        run(work(port))


def test_a_call_that_is_not_late_or_whose_time_is_over_is_not_begun_anew(
    url: str, charges: Charges, tmp_path: Path
) -> None:
    async def work() -> None:
        async with late(url, tmp_path / "inbox.db", seconds=4.0) as (inbox, late_one):
            await until_it(inbox, late_one.id, is_over)
            await asyncio.sleep(2.0)
            with pytest.raises(TooLate, match="its time is over"):
                await inbox.restart(late_one.id, by="ann")
            other = await inbox.hand_over(await begun(url), caller="agent")
            with pytest.raises(TooLate, match="cannot be begun anew"):
                await inbox.restart(other.id, by="ann")
        assert charges == ["hat"]

    run(work())


def test_what_a_client_says_of_beginning_anew_goes_with_the_call(url: str, tmp_path: Path) -> None:
    async def work(line: Line) -> list[bool]:
        said = []
        for option, term in (
            ({}, None),
            ({"restart_expired": False}, None),
            ({"restart_expired": True}, None),
            ({"restart_expired": True}, False),
            ({}, True),
        ):
            options: Any = {"inbox": line.url, "inbox_token": ANN, **option}
            async with Client(url, **options) as client:
                call = await client.begin("file", {"kind": "a"})
                assert isinstance(call, Pending)
                item = await client.hand_over(call, restart_expired=term)
                said.append((await line.inbox.get(item.id)).restart_expired)
        return said

    with serving_inbox(tmp_path / "inbox.db") as line:
        assert run(work(line)) == [False, False, True, False, True]
        with SyncClient(url, inbox=line.url, inbox_token=ANN) as client:
            call = client.begin("file", {"kind": "a"})
            assert isinstance(call, Pending)
            item = client.hand_over(call, restart_expired=True)
            assert run(line.inbox.get(item.id)).restart_expired


def _asks(key: str, seen: Any) -> bool:
    return key in seen["questions"]


def test_a_call_is_begun_anew_by_the_api_and_its_client_hears_both_ends(
    url: str, charges: Charges, tmp_path: Path
) -> None:
    with serving_inbox(tmp_path / "inbox.db") as line:
        item = line.call("POST", "/items", {"pending": run(begun(url, "buy", what="hat")).to_json()}).body
        assert (item["may_restart"], item["restarted"], item["restarted_by"]) == (False, None, None)
        for key, value in (("card", "visa"), ("gift", True)):
            seen = line.follow(item["id"], partial(_asks, key))
            if key == "gift":
                run(asyncio.sleep(TTL + 1.2))
            body = {"round": seen["round"], "answers": {key: accept(value=value)}}
            assert line.call("POST", f"/items/{item['id']}/answers", body).status == 200

        async def wait() -> Any:
            async with Client(url, inbox=line.url, inbox_token=ANN) as client:
                return await client.wait_for(item["id"])

        with pytest.raises(InboxFailed, match="no longer takes the state") as failed:
            run(wait())
        assert failed.value.status == "expired"
        seen = line.call("GET", f"/items/{item['id']}").body
        assert (seen["may_restart"], [one["key"] for one in seen["given"]]) == (True, ["card", "gift"])
        assert charges == ["hat"]
        again = line.call("POST", f"/items/{item['id']}/restart")
        assert (again.status, again.body["status"], again.body["restarted_by"]) == (200, "going", "ann")
        assert line.call("POST", f"/items/{item['id']}/restart").status == 409
        assert run(wait()).content[0].text == "hat: accept"
        assert line.call("POST", "/items/nothing/restart").status == 404


def test_a_client_on_the_same_store_says_whether_its_calls_are_begun_anew(url: str, tmp_path: Path) -> None:
    async def work() -> list[bool]:
        store = SQLiteInboxStore(tmp_path / "inbox.db", ["a key of the inbox for tests, long enough"])
        said = []
        for options in ({}, {"restart_expired": True}):
            async with Client(url, pending_store=store.pending("here", **options)) as client:
                call = await client.begin("file", {"kind": "bug"})
                said.append((await store.get(call.id)).restart_expired)  # type: ignore[union-attr]
        await store.aclose()
        return said

    assert run(work()) == [False, True]
