"""The inbox's API from outside: over HTTP, with tokens, and with all that should not be sent."""

import asyncio
import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.inbox import offices
from tests.inbox.offices import (
    ANN,
    BOB,
    KEY,
    Line,
    accept,
    at_url,
    begun,
    make_server,
    pending,
    question,
    run,
    serving_inbox,
)
from turnwise.dialects.tasking_client import TaskStatus
from turnwise.inbox import carrying
from turnwise.inbox import door as door_module
from turnwise.inbox.api import LARGEST_BODY, create_api
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.model import UNASKED, Unreadable
from turnwise.inbox.records import KEY_IS_GONE
from turnwise.inbox.sqlite import SQLiteInboxStore


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with at_url(make_server()) as found:
        yield found


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with serving_inbox(tmp_path_factory.mktemp("inbox") / "inbox.db", url="https://inbox.example") as found:
        yield found


def handed(call: Any, **terms: Any) -> dict[str, Any]:
    return {"pending": json.loads(call.to_json()), **terms}


def fresh(name: str, **facts: Any) -> dict[str, Any]:
    """A call that nobody serves, to be handed over."""
    return handed(offices.pending(name, **facts))


def test_a_call_is_handed_over_answered_and_waited_for(line: Line, url: str) -> None:
    call = run(begun(url))
    reply = line.call("POST", "/items", handed(call, caller="night shift", authorization="Bearer s3cret"))
    assert (reply.status, reply.headers["Location"]) == (201, f"/api/v1/items/{call.id}")
    item = reply.body
    assert (item["status"], item["caller"], item["target"], item["round"]) == ("waiting", "night shift", "file", 0)
    assert item["page"] == f"https://inbox.example/items/{call.id}"
    assert list(item["questions"]) == ["title"]
    assert call.state is not None
    for shown in (reply.body, reply.headers, line.call("GET", "/items").body):
        assert call.state not in str(shown)
        assert "s3cret" not in str(shown)
    answered = line.call(
        "POST", f"/items/{call.id}/answers", {"round": 0, "answers": {"title": accept(title="a leak")}}
    )
    assert (answered.status, answered.body["given"][0]["by"]) == (200, "ann")
    item = line.follow(call.id, lambda seen: "level" in seen["questions"])
    body = {"round": item["round"], "answers": {"level": accept(level=3)}}
    assert line.call("POST", f"/items/{call.id}/answers", body, BOB).body["given"][1]["by"] == "bob"
    item = line.follow(call.id, lambda seen: "sure" in seen["questions"])
    line.call("POST", f"/items/{call.id}/answers", {"round": 2, "answers": {"sure": accept(value=True)}})
    item = line.follow(call.id, lambda seen: seen["status"] == "done")
    assert item["result"]["content"][0]["text"] == "bug: a leak (3) True"
    history = line.call("GET", "/items?status=done&status=failed&q=night+leak&caller=night+shift").body
    assert [one["id"] for one in history["items"]] == [call.id], "an earlier question had this word"
    history = line.call("GET", "/items?status=done&status=failed&q=night+flood&caller=night+shift").body
    assert (history["items"], history["total"]) == ([], 0)
    history = line.call("GET", "/items?status=done&status=failed&q=night+file&caller=night+shift").body
    assert [one["id"] for one in history["items"]] == [call.id]


def test_the_same_call_twice_is_the_same_item_and_another_under_its_id_is_a_conflict(line: Line) -> None:
    assert line.call("POST", "/items", fresh("twice")).status == 201
    again = line.call("POST", "/items", fresh("twice"))
    assert (again.status, again.body["id"]) == (200, "twice")
    other = line.call("POST", "/items", fresh("twice", state="another"))
    assert (other.status, other.headers["Content-Type"]) == (409, "application/problem+json")


def test_the_second_who_answers_is_told_who_was_first(line: Line) -> None:
    line.call("POST", "/items", fresh("raced"))
    body = {"round": 0, "answers": {"title": accept(value="x")}}
    assert line.call("POST", "/items/raced/answers", body, ANN).status == 200
    late = line.call("POST", "/items/raced/answers", body, BOB)
    assert (late.status, late.body["by"], late.body["title"]) == (409, "ann", "Conflict")
    assert "answered by ann" in late.body["detail"]
    assert abs(late.body["at"] - time.time()) < 60


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/json"])
@pytest.mark.parametrize("path", ["/items", "/items/known/answers"])
def test_a_body_that_is_not_sent_as_json_is_told_how_to(line: Line, path: str, kind: str | None) -> None:
    named = {"headers": {"Content-Type": kind}} if kind else {"skip_auto_headers": ["Content-Type"]}
    reply = line.call("POST", path, data=json.dumps(fresh("untold")), **named)
    assert (reply.status, "content-type: application/json" in reply.body["detail"]) == (415, True)


def test_a_call_is_taken_as_text_too(line: Line) -> None:
    text = offices.pending("as-text").to_json()
    assert line.call("POST", "/items", {"pending": text}).status == 201
    assert line.call("POST", "/items", {"pending": json.loads(text)}).status == 200
    assert "not a call" in line.call("POST", "/items", {"pending": "text"}).body["detail"]


def test_an_item_that_cannot_be_found_or_read_is_told_in_the_inboxs_own_words(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    with serving_inbox(path) as line:
        line.call("POST", "/items", fresh("sealed"))
        assert line.call("GET", "/items/nope").body["detail"] == "there is no item with the id nope"

    async def other() -> str:
        store = SQLiteInboxStore(path, ["another key than that of the inbox, long enough"])
        try:
            await store.get("sealed")
        except Unreadable as error:
            return str(error)
        finally:
            await store.aclose()
        raise AssertionError("it was read")

    assert run(other()).endswith(KEY_IS_GONE)


def test_answers_that_do_not_fit_are_told_by_key_and_none_is_kept(line: Line) -> None:
    requests = {key: offices.question(value={"type": "integer", "minimum": 1}) for key in ("a", "b", "c")}
    line.call("POST", "/items", fresh("misfits", requests=requests))
    answers = {"a": accept(value=0), "b": {"action": "accept", "content": {}}, "c": accept(value=1), "d": accept()}
    wrong = line.call("POST", "/items/misfits/answers", {"round": 0, "answers": answers})
    assert (wrong.status, sorted(wrong.body["errors"])) == (422, ["a", "b", "d"])
    assert line.call("GET", "/items/misfits").body["given"] == []
    some = line.call("POST", "/items/misfits/answers", {"round": 0, "answers": {"c": accept(value=1)}})
    assert (some.status, sorted(some.body["questions"]), some.body["status"]) == (200, ["a", "b"], "waiting")


WRONG: dict[str, Any] = {
    "who": {"type": "string", "minLength": 3},
    "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
    "days": {"type": "array", "items": {"anyOf": [{"const": "mo", "title": "Monday"}, {"const": "tu"}]}},
    "colour": {"type": "string", "enum": ["red", "blue"]},
    "age": {"type": "integer", "default": 3},
}


def test_all_that_is_wrong_with_an_answer_is_told_with_what_there_is_to_choose_from(line: Line) -> None:
    line.call("POST", "/items", fresh("amiss", requests={"all": question(**WRONG)}))
    content = {"who": "x" * 2, "size": "m", "days": ["we"], "colour": "green"}
    reply = line.call("POST", "/items/amiss/answers", {"round": 0, "answers": {"all": accept(**content)}})
    assert reply.status == 422
    for told in (
        "who: 'xx' is too short",
        "size: 'm' is not one of ['s', 'l']",
        "days.0: 'we' is not one of ['mo', 'tu']",
        "colour: 'green' is not one of ['red', 'blue']",
    ):
        assert told in reply.body["errors"]["all"]
    long = line.call("POST", "/items/amiss/answers", {"round": 0, "answers": {"all": accept(size="m" * 100_000)}})
    assert len(long.body["errors"]["all"]) < 1000


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({}, "Pending.to_json"),
        ({"id": "x"}, "Pending.to_json"),
        ("[]", "Pending.to_json"),
        ({"turnwise": 1, "id": "x"}, "it has no server, method, params, requests, began, asked"),
        ({"turnwise": 2}, "another version"),
    ],
)
def test_a_hand_over_that_is_none_is_told_what_is_expected(line: Line, call: Any, words: str) -> None:
    reply = line.call("POST", "/items", {"pending": call})
    assert reply.status == 422
    assert words in reply.body["detail"]
    assert "Error(" not in reply.body["detail"]


def test_lines_and_items_of_calls_and_tasks_count_rounds_from_0(tmp_path: Path) -> None:
    with serving_inbox(tmp_path / "inbox.db") as line:
        line.call("POST", "/items", fresh("one"))
        about = {"id": "t", "tool": "report", "server": "http://127.0.0.1:9/mcp"}
        task = line.call("POST", "/items", {"task": about}).body
        assert task["round"] == 0
        rows = line.call("GET", "/items").body["items"]
        assert [(row["is_task"], row["round"]) for row in rows] == [(False, 0), (True, 0)]
        too_early = line.call("POST", f"/items/{task['id']}/answers", {"round": 0, "answers": {"q": accept()}})
        assert (too_early.status, "has not come to round 0" in too_early.body["detail"]) == (422, True)


def test_the_first_round_of_a_task_is_0_too() -> None:
    asked = {"q": question()}
    seen = TaskStatus("t", "input_required", None, 1.0, asked, None, None)
    first = carrying._noticed(offices.item(round=UNASKED, task="t", requests={}), seen, asked, 1.0)
    assert (first.round, first.status) == (0, "waiting")


def test_tokens_are_looked_at_in_the_thread_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
    door, threads = Door({ANN: "ann"}, store), []
    look = door.caller

    def caller(*given: Any) -> Any:
        threads.append(threading.get_ident())
        return look(*given)

    monkeypatch.setattr(door, "caller", caller)

    async def work() -> None:
        transport = httpx2.ASGITransport(app=create_api(Inbox(store), door))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            for token, status in ((ANN, 200), ("wrong", 401)):
                reply = await client.get("/items", headers={"Authorization": f"Bearer {token}"})
                assert reply.status_code == status

    run(work())
    assert threads == [threading.get_ident()] * 2


def test_who_loses_a_token_while_waiting_is_told_nothing(tmp_path: Path) -> None:
    store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
    inbox, door = Inbox(store), Door({ANN: "ann", BOB: "bob"}, store)
    app = create_api(inbox, door)

    async def work() -> None:
        item = await inbox.hand_over(pending(), caller="agent")
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            query = f"/items/call?wait=10&revision={item.revision}"
            waiting = asyncio.create_task(client.get(query, headers={"Authorization": f"Bearer {ANN}"}))
            while not inbox._changes._by_id:  # noqa: ASYNC110 - it is somebody else's
                await asyncio.sleep(0)
            door.use_tokens({BOB: "bob"})
            await inbox.answer("call", {"title": accept(value="a secret")}, round=0, by="bob")
            reply = await waiting
        assert reply.status_code == 401
        assert "a secret" not in reply.text
        await store.aclose()

    run(work())


def test_withdrawn_is_withdrawn(line: Line) -> None:
    line.call("POST", "/items", fresh("gone"))
    reply = line.call("DELETE", "/items/gone", token=BOB)
    assert (reply.status, reply.body["status"], reply.body["error"]) == (200, "failed", "withdrawn by bob")
    assert reply.body["withdrawn_by"] == "bob"
    assert line.call("DELETE", "/items/gone").status == 409
    late = line.call("POST", "/items/gone/answers", {"round": 0, "answers": {"title": accept(value="x")}})
    assert (late.status, late.body.get("by")) == (409, None)


def test_a_long_poll_ends_with_a_change_or_with_its_time(line: Line) -> None:
    revision = line.call("POST", "/items", fresh("polled")).body["revision"]
    began = time.monotonic()
    assert line.call("GET", f"/items/polled?wait=0.2&revision={revision}").body["revision"] == revision
    assert 0.2 <= time.monotonic() - began < 5
    assert line.call("GET", f"/items/polled?wait=30&revision={revision + 5}").body["revision"] == revision
    timer = threading.Timer(0.2, lambda: line.call("DELETE", "/items/polled"))
    timer.start()
    assert line.call("GET", f"/items/polled?wait=30&revision={revision}").body["status"] == "failed"
    timer.join()
    assert line.call("GET", f"/items/polled?wait=30&revision={revision + 1}").body["status"] == "failed"


def test_pages_follow_each_other(line: Line) -> None:
    for number in range(7):
        call = fresh(f"page{number}")
        line.call("POST", "/items", {**call, "caller": "pager"})
    found: list[str] = []
    query = "/items?caller=pager&limit=3"
    page = line.call("GET", query).body
    assert page["total"] == 7
    while True:
        found += [one["id"] for one in page["items"]]
        if page["after"] is None:
            break
        page = line.call("GET", f"{query}&after={page['after']}").body
    assert sorted(found) == [f"page{number}" for number in range(7)]


# Who is let in


@pytest.mark.parametrize("token", [None, "", "wrong", ANN + "x", ANN[:-1], "é"])
def test_without_a_token_nothing_is_told(line: Line, token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "ATTEMPTS", 1000)
    for method, path in (
        ("GET", "/items"),
        ("POST", "/items"),
        ("GET", "/items/twice"),
        ("DELETE", "/items/twice"),
        ("POST", "/items/twice/answers"),
    ):
        reply = line.call(method, path, None if method != "POST" else {}, token)
        assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert reply.headers["Content-Type"] == "application/problem+json"


def test_other_schemes_and_cookies_do_not_let_in(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "ATTEMPTS", 1000)
    for headers in ({"Authorization": f"Basic {ANN}"}, {"Authorization": ANN}, {"Cookie": f"turnwise_inbox={ANN}"}):
        assert line.call("GET", "/items", token=None, headers=headers).status == 401
    assert line.call("GET", "/items", token=None, headers={"Authorization": f"bearer  {ANN} "}).status == 200


def test_too_many_wrong_tokens_are_told_to_wait_and_the_right_one_still_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "ATTEMPTS", 1)  # From this machine they are counted together: ten times as many.
    with serving_inbox(tmp_path / "inbox.db") as line:
        statuses = [line.call("GET", "/items", token="a wrong one").status for _ in range(12)]
        assert statuses == [401] * 10 + [429] * 2
        assert int(line.call("GET", "/items", token="a wrong one").headers["Retry-After"]) > 0
        assert line.call("GET", "/items").status == 200


def test_another_host_is_not_served(line: Line) -> None:
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80"):
        assert line.call("GET", "/items", headers={"Host": host}).status == 421
    assert line.call("GET", "/items", headers={"Host": "localhost:1234"}).status == 200


def test_every_reply_has_the_headers_that_keep_browsers_from_harm(line: Line) -> None:
    for path, token in (("/items", ANN), ("/items", None), ("/nothing", ANN), ("/openapi.json", None)):
        headers = {name.lower(): value for name, value in line.call("GET", path, token=token).headers.items()}
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


# What should not be sent


@pytest.mark.parametrize("deep", [100, 175, 185, 190, 195, 196, 197, 198, 500])
def test_an_answer_of_any_depth_is_refused_or_kept_so_that_it_can_be_read_again(line: Line, deep: int) -> None:
    part = {"type": "object", "properties": {"value": {}}}
    asked = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": part}}
    call = fresh(f"deep{deep}", requests={"accept": asked, "decline": asked})
    assert line.call("POST", "/items", call).status == 201
    nested = '{"a":' * deep + "1" + "}" * deep
    for key, answer in (("accept", '"content":{"value":%s}'), ("decline", '"_meta":%s')):
        body = f'{{"round":0,"answers":{{"{key}":{{"action":"{key}",{answer % nested}}}}}}}'
        reply = line.call("POST", f"/items/deep{deep}/answers", body.encode())
        assert reply.status == (200 if deep < 180 else 422 if deep < 197 else reply.status)
        assert reply.status in (200, 400, 422)
        assert line.call("GET", f"/items/deep{deep}").status == 200


def test_a_task_that_is_nested_for_ever_is_refused(line: Line) -> None:
    for text in (
        "[" * 300_000,
        '{"id": "x", "tool": "y", "arguments": ' + '{"a":' * 5000 + "1" + "}" * 5001,
        '{"id": NaN}',
    ):
        assert line.call("POST", "/items", {"task": text}).status == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b'{"pending": 1}',
        b'{"pending": {}}',
        b'{"pending": {}, "task": {}}',
        b'{"task": {}}',
        b'{"task": {"id": "", "tool": "t", "server": "http://127.0.0.1/"}}',
        b'{"task": {"id": "x", "tool": "t", "server": 3}}',
        b'{"task": {"id": "x", "tool": "t", "server": "http://127.0.0.1/", "more": 1}}',
        b'{"task": {"id": "x", "tool": "t", "arguments": []}}',
        b'{"pending": {"turnwise": 1}}',
        b"[" * 100_000,
        b'{"pending": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b'{"pending": {"a": NaN}}',
        b'{"pending": {"a": "\\ud800"}}',
    ],
)
def test_a_body_that_is_no_call_is_refused_in_words(line: Line, body: bytes) -> None:
    reply = line.call("POST", "/items", body)
    assert reply.status in (400, 422)
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert reply.body["detail"]


@pytest.mark.parametrize(
    "change",
    [
        {"turnwise": 2},
        {"id": "../up"},
        {"id": "a/b"},
        {"id": ""},
        {"id": "a" * 101},
        {"id": 3},
        {"server": None},
        {"server": "file:///etc/passwd"},
        {"server": "http://"},
        {"server": "http://a b/"},
        {"server": "http://bank.example\\@evil.example/"},
        {"server": f"http://{'a' * 64}.example/"},
        {"server": "http://..../"},
        {"server": "http://127.0.0.1:9/mcp\n"},
        {"server": f"http://127.0.0.1:9/{'a' * 2000}"},
        {"server": "https://user:word@host/"},
        {"method": "tools/list"},
        {"params": {}},
        {"params": {"name": 3}},
        {"params": {"name": "x", "arguments": []}},
        {"requests": {"q": {}}},
        {"requests": {"q": {"method": "tools/call"}}},
        {"requests": {"q": {"method": "elicitation/create", "params": []}}},
        {"requests": {"q": {"method": "sampling/createMessage", "params": {"messages": "hello"}}}},
        {"requests": []},
        {"answers": {"unasked": {"action": "accept"}}},
        {"answers": {"title": 3}},
        {"state": 3},
        {"round": -1},
        {"round": 1.5},
        {"round": 10**9},
        {"asked": "now"},
        {"asked": -1},
        {"given": [1]},
        {"more": 1},
    ],
)
def test_a_call_with_something_wrong_in_it_is_refused(line: Line, change: dict[str, Any]) -> None:
    body = fresh("wrong")
    reply = line.call("POST", "/items", {"pending": {**body["pending"], **change}})
    assert reply.status == 422, reply.body
    assert line.call("GET", "/items/wrong").status == 404


@pytest.mark.parametrize(
    "terms",
    [
        {"caller": ""},
        {"caller": "a\nb"},
        {"caller": "a" * 201},
        {"caller": 3},
        {"authorization": "a\r\nb"},
        {"authorization": ""},
        {"hook": "http://example.com/"},
        {"hook": "gopher://localhost"},
        {"seconds": 0},
        {"seconds": -3},
        {"seconds": "10"},
        {"seconds": 1e12},
        {"seconds": True},
        {"unknown": 1},
    ],
)
def test_terms_that_are_wrong_are_refused(line: Line, terms: dict[str, Any]) -> None:
    reply = line.call("POST", "/items", {**fresh("terms"), **terms})
    assert (reply.status, line.call("GET", "/items/terms").status) == (422, 404), reply.body


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"round": 0},
        {"answers": {}},
        {"round": 0, "answers": {}},
        {"round": 0, "answers": []},
        {"round": 0, "answers": {"title": "yes"}},
        {"round": 0, "answers": {"title": {"action": "accept", "content": []}}},
        {"round": 0, "answers": {"title": {"action": ["accept"]}}},
        {"round": "0", "answers": {"title": {"action": "decline"}}},
        {"round": True, "answers": {"title": {"action": "decline"}}},
        {"round": -1, "answers": {"title": {"action": "decline"}}},
        {"round": 1, "answers": {"title": {"action": "decline"}}},
        {"round": 10**30, "answers": {"title": {"action": "decline"}}},
        {"round": 0, "answers": {"title": {"action": "decline"}}, "more": 1},
        {"round": 0, "answers": {f"k{number}": {"action": "decline"} for number in range(2000)}},
    ],
)
def test_answers_that_are_none_are_refused(line: Line, body: dict[str, Any]) -> None:
    line.call("POST", "/items", fresh("answers"))
    assert line.call("POST", "/items/answers/answers", body).status == 422
    assert line.call("GET", "/items/answers").body["given"] == []


@pytest.mark.parametrize("item_id", ["nothing", "..", "%2e%2e", "a%2Fb", "a%00b", "é", "a" * 200, "%ff"])
def test_an_id_that_is_none_finds_nothing(line: Line, item_id: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/answers")):
        body = {"round": 0, "answers": {"title": accept(value="x")}} if method == "POST" else None
        assert line.call(method, f"/items/{item_id}{path}", body).status in (404, 405, 422)


@pytest.mark.parametrize(
    "query",
    [
        "status=open",
        "limit=0",
        "limit=201",
        "limit=x",
        "after=x",
        "after=",
        "after=W10",
        "q=" + "x" * 501,
        "caller=" + "x" * 201,
    ],
)
def test_a_query_that_is_none_is_refused(line: Line, query: str) -> None:
    assert line.call("GET", f"/items?{query}").status == 422


@pytest.mark.parametrize("query", ["wait=-1", "wait=61", "wait=nan", "wait=inf", "wait=x", "revision=-1", "revision=x"])
def test_a_wait_that_is_none_is_refused(line: Line, query: str) -> None:
    line.call("POST", "/items", fresh("waited"))
    assert line.call("GET", f"/items/waited?{query}").status == 422


def test_a_body_that_is_too_large_is_not_read(line: Line) -> None:
    large = io.BytesIO(b" " * (LARGEST_BODY + 1))
    assert line.call("POST", "/items", data=large, headers={"Content-Type": "application/json"}).status == 413

    async def endless() -> Any:
        for _ in range(3):
            yield b" " * (LARGEST_BODY // 2)

    reply = line.call("POST", "/items", data=endless(), headers={"Content-Type": "application/json"})
    assert (reply.status, reply.headers["Content-Type"]) == (413, "application/problem+json")


def test_a_length_that_is_a_lie_harms_nobody(line: Line) -> None:
    host, port = line.url.removeprefix("http://").split(":")
    for length in ("-1", "abc", "99999999999999999999999"):
        with socket.create_connection((host, int(port))) as connection:
            head = f"POST /api/v1/items HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
            connection.sendall(head.encode())
            connection.settimeout(5)
            assert connection.recv(100).startswith((b"HTTP/1.1 400", b"HTTP/1.1 413"))
    assert line.call("GET", "/items").status == 200


def test_methods_and_paths_that_are_not_there_are_told_so(line: Line) -> None:
    for method, path, status in (("PUT", "/items", 405), ("PATCH", "/items/twice", 405), ("GET", "/nothing", 404)):
        reply = line.call(method, path)
        assert (reply.status, reply.headers["Content-Type"]) == (status, "application/problem+json")


def test_the_description_is_openapi_and_names_what_is_needed(line: Line) -> None:
    found = line.call("GET", "/openapi.json", token=None).body
    assert found["openapi"].startswith("3.1")
    assert found["servers"] == [{"url": "/api/v1"}]
    paths = ["", "/answers", "/authorization", "/restart", "/retry"]
    assert sorted(found["paths"]) == ["/items", *(f"/items/{{item_id}}{path}" for path in paths)]
    for operations in found["paths"].values():
        for operation in operations.values():
            assert operation["security"]
            assert set(operation["responses"]) > {"401", "429"}
            assert list(operation["responses"]["401"]["content"]) == ["application/problem+json"]
