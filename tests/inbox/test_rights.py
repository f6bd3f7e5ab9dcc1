"""What a token is good for: that of a caller for its own calls, that of a reader for looking, others for everything."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from tests.inbox import offices
from tests.inbox.offices import ANN, BOB, KEY, Line, accept, run, serving_inbox
from turnwise import Client, HandOverFailed
from turnwise.cli.app import app as command
from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door, NotForBrowsers
from turnwise.inbox.rights import Member
from turnwise.inbox.sqlite import SQLiteInboxStore

BUILD = "the-token-of-the-nightly-build"
AGENT = "a-token-of-an-agent-for-itself"
BOSS = "the-token-of-who-only-looks-on"
TOKENS: dict[str, str | Member] = {
    ANN: "ann",
    BUILD: Member("build", "caller"),
    AGENT: Member("agent", "caller"),
    BOSS: Member("boss", "reader"),
}


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with serving_inbox(tmp_path_factory.mktemp("inbox") / "inbox.db", tokens=TOKENS) as found:
        yield found


def call(name: str, **terms: Any) -> dict[str, Any]:
    return {"pending": json.loads(offices.pending(name).to_json()), **terms}


ANSWER = {"round": 0, "answers": {"title": accept(value="x")}}
CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/restart", None),
    ("PUT", "/authorization", {"authorization": "Bearer other"}),
    ("POST", "/retry", None),
    ("DELETE", "", None),
]


# Callers


def test_a_caller_hands_over_under_its_own_name_and_sees_that_alone(line: Line) -> None:
    handed = line.call("POST", "/items", call("mine"), BUILD)
    assert (handed.status, handed.body["caller"]) == (201, "build")
    assert line.call("POST", "/items", call("mine"), BUILD).status == 200
    assert line.call("POST", "/items", call("named", caller="build"), BUILD).status == 201
    assert line.call("POST", "/items", call("theirs"), AGENT).status == 201
    assert line.call("POST", "/items", call("anns", caller="night shift")).status == 201

    def seen(token: str, query: str = "") -> list[str]:
        page = line.call("GET", f"/items{query}", token=token).body
        assert page["total"] == len(page["items"])
        return sorted(one["id"] for one in page["items"])

    assert seen(BUILD) == seen(BUILD, "?caller=build") == ["mine", "named"]
    assert seen(AGENT) == ["theirs"]
    assert set(seen(ANN)) >= {"mine", "named", "theirs", "anns"}
    assert set(seen(BOSS)) >= {"mine", "named", "theirs", "anns"}
    assert line.call("GET", "/items/mine", token=BUILD).status == 200


def test_a_caller_names_no_other(line: Line) -> None:
    for reply in (
        line.call("POST", "/items", call("posed", caller="agent"), BUILD),
        line.call("GET", "/items?caller=agent", token=BUILD),
    ):
        assert (reply.status, reply.body["detail"]) == (403, "This token is build's, and for no other caller.")
    assert line.call("GET", "/items/posed").status == 404


def test_what_is_anothers_is_not_there_for_a_caller(line: Line) -> None:
    line.call("POST", "/items", call("foreign"), AGENT)
    unknown = line.call("GET", "/items/nowhere", token=BUILD).body["detail"]
    for method, path, body in [("GET", "", None), ("GET", "?wait=5&revision=1", None), *CHANGES]:
        reply = line.call(method, f"/items/foreign{path}", body, BUILD)
        assert (reply.status, reply.body["detail"]) == (404, unknown.replace("nowhere", "foreign"))
    again = line.call("POST", "/items", call("foreign"), BUILD)
    assert again.status == 404, "nor is what somebody else has handed over, for who has the same call"
    assert line.call("GET", "/items/foreign").body["status"] == "waiting"


def test_a_caller_answers_nothing_and_may_end_its_own(line: Line) -> None:
    line.call("POST", "/items", call("asked"), BUILD)
    refused = line.call("POST", "/items/asked/answers", ANSWER, BUILD)
    assert (refused.status, refused.body["detail"]) == (403, "This token is not for answering.")
    assert line.call("POST", "/items/asked/restart", token=BUILD).status == 409, "it may be, and cannot be now"
    assert line.call("DELETE", "/items/asked", token=BUILD).body["error"] == "withdrawn by build"


def test_who_waits_for_a_call_that_becomes_anothers_is_told_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
        inbox, door = Inbox(store), Door(TOKENS, store)
        item = await inbox.hand_over(offices.pending(), caller="build")
        transport = httpx2.ASGITransport(app=create_app(inbox, door))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            query = f"/api/v1/items/call?wait=10&revision={item.revision}"
            waiting = asyncio.create_task(client.get(query, headers={"Authorization": f"Bearer {BUILD}"}))
            while not inbox._changes._by_id:  # noqa: ASYNC110 - it is somebody else's
                await asyncio.sleep(0)
            door.use_tokens({ANN: "ann", BUILD: Member("another", "caller")})
            await inbox.answer("call", {"title": accept(value="a secret")}, round=0, by="ann")
            reply = await waiting
        assert (reply.status_code, "a secret" in reply.text) == (404, False)
        await store.aclose()

    run(work())


def test_a_client_with_a_callers_token_hands_over_and_waits(line: Line) -> None:
    with offices.at_url(offices.make_server()) as server:

        async def work() -> None:
            options: Any = {"inbox": line.url, "inbox_token": BUILD}
            async with Client(server, **options) as client:
                outcome: Any = await client.begin("file", {"kind": "bug"})
                with pytest.raises(HandOverFailed, match="This token is build's, and for no other caller"):
                    await client.hand_over(outcome, caller="somebody else")
                item = await client.hand_over(outcome)
                waiting = asyncio.create_task(client.wait_for(item.id))
                answers = {"round": 0, "answers": {"title": {"action": "decline"}}}
                assert (await asyncio.to_thread(line.call, "POST", f"/items/{item.id}/answers", answers)).status == 200
                result: Any = await waiting
                assert result.content[0].text == "nothing was filed: decline"

        asyncio.run(work())


# Readers


def test_a_reader_sees_all_and_changes_nothing(line: Line) -> None:
    line.call("POST", "/items", call("watched"))
    before = line.call("GET", "/items/watched", token=BOSS).body
    for method, path, body in [("POST", "/answers", ANSWER), *CHANGES]:
        assert line.call(method, f"/items/watched{path}", body, BOSS).status == 403
    assert line.call("POST", "/items", call("brought"), BOSS).status == 403
    assert line.call("GET", "/items/watched", token=BOSS).body == before


def test_a_readers_page_has_nothing_to_send_and_takes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
        inbox, door = Inbox(store), Door(TOKENS, store)
        await inbox.hand_over(offices.pending(), caller="build")
        transport = httpx2.ASGITransport(app=create_app(inbox, door, patience=0))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            ours = {"origin": "http://127.0.0.1"}
            assert (await client.post("/login", data={"token": BOSS}, headers=ours)).status_code == 303
            page = (await client.get("/items/call")).text
            assert "you may look, and not answer" in page
            assert '<fieldset class="looking" disabled>' in page
            assert "<button" not in page.partition("<main")[2]
            word = re.search(r'name="csrf" value="([^"]+)"', page)
            assert word
            for path in ("answers", "withdrawal", "restart", "retry"):
                typed = {"csrf": word[1], "send": "accept 0-x", "asked": "0-x"}
                reply = await client.post(f"/items/call/{path}", data=typed, headers=ours)
                assert (reply.status_code, "you may look" in reply.text) == (403, True)
            assert (await inbox.get("call")).status == "waiting"
            door.use_tokens({BOSS: "boss"})
            assert "<button" in (await client.get("/items/call")).text.partition("<main")[2]
            door.use_tokens({BOSS: Member("boss", "caller")})
            assert (await client.get("/items/call")).status_code == 303, (
                "nor is the session of who became a caller good"
            )
        await store.aclose()

    run(work())


def test_a_reader_may_sign_out(tmp_path: Path) -> None:
    async def work() -> None:
        store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
        transport = httpx2.ASGITransport(app=create_app(Inbox(store), Door(TOKENS, store)))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            ours = {"origin": "http://127.0.0.1"}
            await client.post("/login", data={"token": BOSS}, headers=ours)
            word = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/")).text)
            assert word
            assert (await client.post("/logout", data={"csrf": word[1]}, headers=ours)).headers["location"] == "/login"
            assert (await client.get("/")).status_code == 303
        await store.aclose()

    run(work())


def test_a_callers_token_opens_no_page(tmp_path: Path) -> None:
    async def work() -> None:
        store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
        door = Door(TOKENS, store)
        for _ in range(20):
            with pytest.raises(NotForBrowsers):
                await door.login(BUILD, "1")
        assert await door.login(ANN, "1") is not None, "it was not a wrong one"
        transport = httpx2.ASGITransport(app=create_app(Inbox(store), door))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            reply = await client.post("/login", data={"token": BUILD}, headers={"origin": "http://127.0.0.1"})
        assert (reply.status_code, "This token is for programs" in reply.text) == (403, True)
        assert "set-cookie" not in reply.headers
        await store.aclose()

    run(work())


# Where it is said


@pytest.mark.parametrize("role", ["", "admin", "Caller"])
def test_a_role_that_there_is_not_is_refused(role: Any, tmp_path: Path) -> None:
    store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
    with pytest.raises(ValueError, match="a role is one of everything, caller, reader"):
        Door({BOB: Member("bob", role)}, store)
    asyncio.run(store.aclose())


def test_the_command_reads_roles_and_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors: list[Door] = []

    def serve(desk: Any, door: Door, *rest: Any) -> int:
        doors.append(door)
        return 0

    monkeypatch.setattr("turnwise.cli.inbox._serve", serve)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann:{ANN}\nbuild:{BUILD} caller\nboss:{BOSS} reader\n")
    words = ["inbox", "--port", "0", "--store", str(tmp_path / "inbox.db"), "--tokens-file", str(tokens)]
    assert CliRunner().invoke(command, words).exit_code == 0
    assert [doors[0].member_of(token) for token in (ANN, BUILD, BOSS)] == [
        Member("ann"),
        Member("build", "caller"),
        Member("boss", "reader"),
    ]
    tokens.write_text(f"ann:{ANN} editor\n")
    refused = CliRunner().invoke(command, words)
    assert refused.exit_code != 0
    assert "line 1: behind a token is nothing, or caller or reader" in refused.output
