"""The samples of the inbox's guide."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from tests.docs.loading import load
from tests.fleet.processes import until
from tests.inbox.offices import ANN, KEY, SECRET, accept, at_url, pending, question, run, serving_inbox
from turnwise.inbox.hooks import Signer
from turnwise.inbox.model import Hook


def test_a_program_waits_for_the_inbox_or_leaves_its_call_there(tmp_path: Path) -> None:
    sample = load("inbox/asking.py")
    with at_url(load("start/booking.py").server) as server, serving_inbox(tmp_path / "inbox.db") as line:
        with ThreadPoolExecutor(1) as elsewhere:
            booking = elsewhere.submit(run, sample.book(server, line.url, ANN))
            until(lambda: bool(line.call("GET", "/items").body["items"]))
            [item] = line.call("GET", "/items").body["items"]
            [key] = line.call("GET", f"/items/{item['id']}").body["questions"]
            answers = {"round": 0, "answers": {key: accept(row=12)}}
            assert line.call("POST", f"/items/{item['id']}/answers", answers).status == 200
        assert booking.result().structured_content == {"result": "Booked row 12 on TW 2322."}
        left = run(sample.leave(server, line.url, ANN))
        assert left.url == f"{line.url}/items/{left.id}"
        assert line.call("GET", f"/items/{left.id}").body["status"] == "waiting"


def test_an_inbox_is_an_application(tmp_path: Path) -> None:
    app = load("inbox/serving.py").make_app(
        str(tmp_path / "inbox.db"), "a key that is long enough for this", ANN, ANN[::-1]
    )

    async def visit() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="https://inbox.example.com") as client:
            return await client.post("/login", data={"token": ANN})

    reply = run(visit())
    assert reply.status_code == 303
    assert reply.headers["set-cookie"].startswith("__Host-turnwise_inbox=")


def test_an_inbox_is_mounted_in_an_application(tmp_path: Path) -> None:
    app = load("inbox/mounting.py").make_app(str(tmp_path / "inbox.db"), "a key that is long enough for this", ANN)

    async def visit() -> httpx2.Response:
        transport = httpx2.ASGITransport(app=app)
        base = "https://app.example.com"
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url=base) as client,
        ):
            return await client.post("/inbox/login", data={"token": ANN})

    reply = run(visit())
    assert (reply.status_code, reply.headers["location"]) == (303, "/inbox/")
    assert "; Path=/inbox;" in reply.headers["set-cookie"]


def test_a_hook_is_known_by_its_signature() -> None:
    sample = load("inbox/hook.py")
    hook = Hook("msg_1", "https://example.com/", '{"type":"item.asked"}', 0.0, 0.0)
    headers = Signer([SECRET]).headers(hook, time.time())
    assert sample.is_from_the_inbox(headers, hook.body.encode(), SECRET)
    assert not sample.is_from_the_inbox(headers, b"{}", SECRET)
    assert not sample.is_from_the_inbox({}, hook.body.encode(), SECRET)
    late = Signer([SECRET]).headers(hook, time.time() - 1000)
    assert not sample.is_from_the_inbox(late, hook.body.encode(), SECRET)


def test_a_bot_answers_what_it_may_and_leaves_the_rest(tmp_path: Path) -> None:
    sample = load("inbox/answering.py")
    yes = {"type": "boolean"}
    others = {
        "another-field": question("Do you agree to pay?", value=yes),
        "two-fields": question("Do you agree?", agree=yes, pay=yes),
        "a-text": question("Do you agree?", agree={"type": "string"}),
        "a-page": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Agree", "url": "https://x.y/"},
        },
        "a-model": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
    }
    with serving_inbox(tmp_path / "inbox.db") as line:
        calls = [pending(name, requests={"q": asked}) for name, asked in others.items()]
        calls.append(pending("mixed", requests={"q": question(agree=yes), "r": question(agree=yes, more=yes)}))
        calls.append(pending("a-stranger", requests={"q": question(agree=yes)}, server="http://127.0.0.1:99/mcp"))
        calls.append(pending("yes", requests={"q": question("Do you agree?", agree=yes)}))
        for call in calls:
            assert line.call("POST", "/items", {"pending": json.loads(call.to_json())}).status == 201
        assert run(sample.approve(line.url, ANN, "http://127.0.0.1:9/mcp")) == ["yes"]
        assert line.call("GET", "/items?status=waiting").body["total"] == len(calls) - 1


def test_a_result_is_collected_by_another_process(tmp_path: Path) -> None:
    sample = load("inbox/waiting.py")
    with at_url(load("start/booking.py").server) as server, serving_inbox(tmp_path / "inbox.db") as line:
        item_id = run(sample.ask(server, line.url, ANN))
        [key] = line.call("GET", f"/items/{item_id}").body["questions"]
        line.call("POST", f"/items/{item_id}/answers", {"round": 0, "answers": {key: accept(row=12)}})
        assert run(sample.collect(server, line.url, ANN, item_id)) == "Booked row 12 on TW 2322."
        item_id = run(sample.ask(server, line.url, ANN))
        line.call("DELETE", f"/items/{item_id}")
        assert "withdrawn by ann" in run(sample.collect(server, line.url, ANN, item_id))
        assert json.loads(run(sample.ask(server, server, ANN)))["server"] == server


def test_a_client_on_the_same_machine_shares_its_calls_with_the_inbox(tmp_path: Path) -> None:
    path = tmp_path / "inbox.db"
    with at_url(load("start/booking.py").server) as server, serving_inbox(path) as line:
        item_id = run(load("inbox/sharing.py").book(server, str(path), KEY))
        item = line.call("GET", f"/items/{item_id}").body
        assert (item["caller"], item["status"]) == ("booking", "waiting")
        [key] = item["questions"]
        line.call("POST", f"/items/{item_id}/answers", {"round": 0, "answers": {key: accept(row=12)}})
        done = line.follow(item_id, lambda seen: seen["status"] == "done")
        assert done["result"]["structuredContent"] == {"result": "Booked row 12 on TW 2322."}
