"""Questions that are not what they claim to be: people see them as they came, and refuse them, and the call goes on."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.inbox import offices
from tests.inbox.offices import ANN, Line, accept, run, serving_inbox
from tests.wires.serving import serving
from turnwise import (
    Client,
    Done,
    InboxFailed,
    InvalidAnswer,
    InvalidReply,
    MalformedQuestion,
    Pending,
    SQLitePendingStore,
)
from turnwise._json import encode
from turnwise._schemas import read_for_peers
from turnwise.dialects import answering
from turnwise.dialects.answering import DEEPEST, LARGEST_ROUND, check_round
from turnwise.dialects.unfit import LONGEST_RAW, kept, unfit_of
from turnwise.inbox.forms import form_of
from turnwise.inbox.model import ENDS
from turnwise.inbox.questions import asked
from turnwise.inbox.sqlite import SQLiteInboxStore

DECLINE = {"action": "decline"}


def form(schema: Any, message: Any = "Fill it in, please") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def page(url: Any) -> dict[str, Any]:
    params = {"mode": "url", "message": "Look there, please", "url": url, "elicitationId": "e1"}
    return {"method": "elicitation/create", "params": params}


def nested(levels: int) -> Any:
    text = '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)
    return json.loads(text) if levels < 900 else text


def deep(levels: int) -> dict[str, Any]:
    return form({"type": "object", "properties": {"needle": nested(levels)}})


LARGE = {"type": "object", "properties": {f"field{n}": {"type": "string", "title": "x" * 100} for n in range(1500)}}
UNFIT: dict[str, dict[str, Any]] = {
    "a schema of 20,000 parts": form({"type": "object", "anyOf": [{}] * 20_000}),
    "a schema of 200 kB": form(LARGE),
    "a schema of 500 levels": deep(500),
    "a script": page("javascript:alert(1)"),
    "a file": page("file:///etc/passwd"),
    "no address": page({"javascript": ["alert(1)"]}),
    "a schema that is a list": form([{"type": "object"}]),
    "a schema of an array": form({"type": "array"}),
    "no schema": {"method": "elicitation/create", "params": {"message": "What?"}},
    "a mode that nobody knows": {"method": "elicitation/create", "params": {"mode": "hologram", "message": "Look"}},
    "no message": form({"type": "object", "properties": {}}, None),
    "a message that is none": form({"type": "object", "properties": {}}, {"deep": nested(100)}),
}


class Hostile:
    """A server of one tool, which asks whatever it is given, in the first round or in the second."""

    def __init__(self) -> None:
        self.question: Any = None
        self.raw = b""
        self.is_task = False
        self.answers: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            part = await receive()
            body += part["body"]
            if not part.get("more_body"):
                break
        message = json.loads(body)
        result = self.result(message["method"], message["params"])
        raw = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        raw = raw.replace(b'"%b"', self.raw) if self.raw else raw
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": raw})

    def result(self, method: str, params: Any) -> Any:
        if method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        if method == "tools/list":
            return {"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]}
        if method.startswith("tasks/"):
            return self.task(method, params)
        answers = params.get("inputResponses")
        if self.is_task:
            return {"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 10}
        if answers is None and params["arguments"].get("politely"):
            return {"resultType": "input_required", "inputRequests": {"first": offices.question()}, "requestState": "s"}
        if answers is None or "first" in answers:
            return {"resultType": "input_required", "inputRequests": {"odd": self.question}, "requestState": "t"}
        self.answers.append(answers)
        return {"content": [{"type": "text", "text": f"it was told: {answers['odd']['action']}"}]}

    def task(self, method: str, params: Any) -> Any:
        common = {"taskId": "t1", "pollIntervalMs": 10}
        if method == "tasks/update":
            self.answers.append(params["inputResponses"])
            return {}
        if self.answers:
            text = f"it was told: {self.answers[-1]['odd']['action']}"
            return {**common, "status": "completed", "result": {"content": [{"type": "text", "text": text}]}}
        return {**common, "status": "input_required", "inputRequests": {"odd": self.question}}


@contextmanager
def at(server: Hostile) -> Iterator[str]:
    with serving(server) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with serving_inbox(tmp_path / "inbox.db") as found:
        yield found


def hostile(question: Any) -> Hostile:
    server = Hostile()
    server.question = question
    return server


async def call(line: Line, method: str, path: str, body: Any = None) -> Any:
    return await asyncio.to_thread(line.call, method, path, body)


async def asking(line: Line, key: str = "odd") -> Any:
    """The item that asks this, as soon as it does."""
    while True:
        for found in (await call(line, "GET", "/items?status=waiting")).body["items"]:
            item = (await call(line, "GET", f"/items/{found['id']}")).body
            if key in item["questions"]:
                return item
        await asyncio.sleep(0.02)


async def check_refusal(line: Line, item: Any) -> None:
    """It is shown as it came, can be refused and nothing else, and a refusal carries the call on."""
    assert set(item["unfit"]) == {"odd"}
    assert item["unfit"]["odd"]
    assert len(json.dumps(item["questions"])) < 3 * LONGEST_RAW
    kind = asked(await line.inbox.get(item["id"]))[0]
    assert (kind.can_accept, kind.can_decline, bool(kind.why)) == (False, True, True)
    path = f"/items/{item['id']}/answers"
    for content in ({}, {"value": "x"}):
        body = {"round": item["round"], "answers": {"odd": accept(**content)}}
        refused = await call(line, "POST", path, body)
        assert (refused.status, "declined or cancelled" in refused.body["errors"]["odd"]) == (422, True)
    assert (await call(line, "POST", path, {"round": item["round"], "answers": {"odd": DECLINE}})).status == 200


@pytest.mark.parametrize("politely", [False, True], ids=["at once", "in the second round"])
@pytest.mark.parametrize("name", list(UNFIT))
def test_a_question_that_is_not_what_it_claims_to_be_is_shown_and_can_be_refused(
    name: str, politely: bool, line: Line
) -> None:
    server = hostile(UNFIT[name])

    async def work(url: str) -> None:
        async with Client(url, inbox=line.url, inbox_token=ANN) as client:
            calling = asyncio.ensure_future(client.call_tool("ask", {"politely": politely}))
            if politely:
                first = await asking(line, "first")
                body = {"round": 0, "answers": {"first": accept(value="x")}}
                await call(line, "POST", f"/items/{first['id']}/answers", body)
            await check_refusal(line, await asking(line))
            assert "it was told: decline" in str(await calling)

    with at(server) as url:
        run(work(url))
    assert server.answers == [{"odd": DECLINE}]


@pytest.mark.parametrize("name", list(UNFIT))
def test_a_task_may_ask_so_too(name: str, line: Line) -> None:
    server = hostile(UNFIT[name])
    server.is_task = True

    async def work(url: str) -> None:
        async with Client(url, inbox=line.url, inbox_token=ANN) as client:
            calling = asyncio.ensure_future(client.call_tool("ask"))
            await check_refusal(line, await asking(line))
            assert "it was told: decline" in str(await calling)

    with at(server) as url:
        run(work(url))


def test_what_is_shown_of_it_is_what_the_server_sent(line: Line) -> None:
    def shown(question: Any) -> Any:
        return asked(offices.item(requests=kept({"q": question})))[0]

    assert shown(UNFIT["a schema of 200 kB"]).raw.startswith('{"type":"object","properties":{"field0":')
    assert len(shown(UNFIT["a schema of 200 kB"]).raw) == LONGEST_RAW
    assert "needle" in shown(UNFIT["a schema of 500 levels"]).raw
    assert '"array"' in shown(UNFIT["a schema of an array"]).raw
    assert "hologram" in shown(UNFIT["a mode that nobody knows"]).raw
    assert shown(page("javascript:" + "x" * 100_000)).address.before.startswith("javascript:xxx")
    for question in UNFIT.values():
        once = kept({"q": question})
        assert kept(once) == once
        assert len(json.dumps(once)) < 3 * LONGEST_RAW
    assert kept({"q": offices.question()}) == {"q": offices.question()}


HUGE: list[tuple[Any, bytes, str]] = [
    (form({"type": "object", "description": "x" * 5_000_000}), b"", "bytes"),
    (offices.question("x" * 5_000_000), b"", "bytes"),
    ("%b", b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "depth"),
    (form("%b"), b"[" * 10_000 + b"]" * 10_000, "depth"),
    (form("%b"), b"[" * 1_010 + b"]" * 1_010, "deep"),
    (form({"type": "object", "properties": {}}, {"deep": nested(300)}), b"", "recursion"),
    (form("%b"), b'"' + b"x" * 10_000_000 + b'"', "bytes"),
    ({"method": "sampling/createMessage", "params": {"messages": "hello"}}, b"", "messages"),
    ({"method": "tools/call"}, b"", "tools/call"),
    ({"method": "elicitation/create", "params": "%b"}, b"3", "no object"),
]


@pytest.mark.parametrize(("question", "raw", "words"), HUGE)
def test_what_cannot_be_kept_or_cannot_even_be_refused_fails_with_a_reason_and_the_inbox_goes_on(
    question: Any, raw: bytes, words: str, line: Line
) -> None:
    server = hostile(question)
    server.raw = raw

    async def work(url: str) -> None:
        async with Client(url) as client:
            pending = await client.begin("ask", {"politely": True})
        assert isinstance(pending, Pending)
        item = (await call(line, "POST", "/items", {"pending": json.loads(pending.to_json())})).body
        body = {"round": 0, "answers": {"first": accept(value="x")}}
        await call(line, "POST", f"/items/{item['id']}/answers", body)
        failed = await asyncio.to_thread(line.follow, item["id"], lambda seen: seen["status"] in ENDS)
        assert (failed["status"], words in failed["error"], failed["given"][0]["by"]) == ("failed", True, "ann"), failed

    with at(server) as url:
        run(work(url))
    assert line.call("GET", "/items").status == 200


@pytest.mark.parametrize(("levels", "status"), [(170, "done"), (190, "failed"), (196, "failed"), (400, "failed")])
def test_a_result_of_any_depth_can_be_read_or_is_said_to_be_too_deep(levels: int, status: str, line: Line) -> None:
    class Deep(Hostile):
        def result(self, method: str, params: Any) -> Any:
            found = super().result(method, params)
            return {**found, "structuredContent": nested(levels)} if "content" in found else found

    server = Deep()
    server.question = offices.question()

    async def work(url: str) -> None:
        async with Client(url) as client:
            pending = await client.begin("ask", {})
        assert isinstance(pending, Pending)
        async with Client(url, inbox=line.url, inbox_token=ANN) as client:
            item = await client.hand_over(pending)
            answers = {"round": 0, "answers": {"odd": accept(value="x")}}
            await call(line, "POST", f"/items/{item.id}/answers", answers)
            with nullcontext() if status == "done" else pytest.raises(InboxFailed):
                assert (await client.wait_for(item)).structured_content
        assert (await call(line, "GET", f"/items/{item.id}")).body["status"] == status

    with at(server) as url:
        run(work(url))


def test_a_round_has_room_for_so_much() -> None:
    many = {f"q{number}": offices.question("x" * 60_000) for number in range(16)}
    assert kept(many) == many
    with pytest.raises(MalformedQuestion, match=f"at most {LARGEST_ROUND}"):
        kept({**many, "more": offices.question("x" * 100_000)})
    model = {"role": "user", "content": {"type": "text", "text": "x"}}
    sample = {"method": "sampling/createMessage", "params": {"messages": [model], "maxTokens": 3}}
    assert kept({"q": sample}) == {"q": sample}
    sample["params"]["metadata"] = nested(DEEPEST)  # type: ignore[index]
    assert kept({"q": sample}) == {"q": sample}
    sample["params"]["metadata"] = nested(250)  # type: ignore[index]
    with pytest.raises(MalformedQuestion, match="levels deep"):
        kept({"q": sample})


def test_of_what_can_only_be_refused_what_is_small_is_kept_as_it_came_and_only_a_schema_as_text() -> None:
    schema, small = {"type": "object", "properties": {}}, {"a": [1]}
    longest = "x" * (LONGEST_RAW - 4)  # As JSON, in a list, with as many characters as a text may have.
    params = {
        "mode": "smoke",
        "message": "x",
        "requestedSchema": schema,
        "a": small,
        "b": [longest],
        "c": [longest + "x"],
    }
    told = kept({"q": {"method": "elicitation/create", "params": params}})["q"]["params"]
    assert told == {**params, "c": None}
    for large in ([longest + "x"], nested(DEEPEST + 1)):
        params = {"mode": "form", "message": "x", "requestedSchema": large}
        told = kept({"q": {"method": "elicitation/create", "params": params}})["q"]["params"]
        assert told["requestedSchema"] == encode(large).decode()[:LONGEST_RAW]


def test_a_round_may_be_as_large_as_the_limit() -> None:
    empty = len(encode(offices.question("")))
    rest = LARGEST_ROUND - 17 * (empty + 60_000)
    many = {f"q{number}": offices.question("x" * 60_000) for number in range(17)}
    assert kept({**many, "last": offices.question("x" * (rest - empty))})
    with pytest.raises(MalformedQuestion, match=f"it has {rest + 1} bytes, and all questions of a round"):
        kept({**many, "last": offices.question("x" * (rest - empty + 1))})


@pytest.mark.parametrize("levels", [250, 400, 890])
def test_what_is_deep_elsewhere_than_in_a_schema_is_not_taken_by_any_client(levels: int) -> None:
    """It could be put down, and never be read again."""
    schema: Any = {"type": "object", "properties": {}}
    model = {"role": "user", "content": {"type": "text", "text": "x"}}
    sample = {"messages": [model], "maxTokens": 3, "metadata": nested(levels)}
    questions: list[Any] = [
        {"method": "elicitation/create", "params": {**form(schema)["params"], "_meta": nested(levels)}},
        {**form(schema), "other": nested(levels)},
        {"method": "sampling/createMessage", "params": sample},
    ]

    async def work(url: str, is_raw: bool) -> None:
        async with Client(url, raw_questions=is_raw) as client:
            with pytest.raises(InvalidReply, match="not JSON"):
                await client.begin("ask", {})

    for question in questions:
        with at(hostile(question)) as url:
            run(work(url, False))
            run(work(url, True))


def test_what_a_callback_answers_may_be_as_large_as_it_likes(line: Line) -> None:
    class Sampling(Hostile):
        def result(self, method: str, params: Any) -> Any:
            if params.get("inputResponses"):
                return {"content": [params["inputResponses"]["odd"]["content"]]}
            return super().result(method, params)

    server = Sampling()
    message = {"role": "user", "content": {"type": "image", "data": "A" * 1_200_000, "mimeType": "image/png"}}
    server.question = {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 3}}

    async def sample(asking: Any, params: Any) -> Any:
        return {"role": "assistant", "content": {"type": "text", "text": "a cat"}, "model": "m"}

    async def work(url: str) -> None:
        async with Client(url, inbox=line.url, inbox_token=ANN, sampling_callback=sample) as client:
            assert "a cat" in str(await client.call_tool("ask", {}))

    with at(server) as url:
        run(work(url))


def test_what_has_a_callback_is_answered_there_and_the_rest_goes_to_the_inbox(line: Line) -> None:
    server = hostile(UNFIT["a script"])
    heard: list[str] = []

    async def elicit(asking: Any, params: Any) -> Any:
        heard.append(asking.key)
        return accept(value="x")

    async def work(url: str) -> None:
        async with Client(url, inbox=line.url, inbox_token=ANN, elicitation_callback=elicit) as client:
            calling = asyncio.ensure_future(client.call_tool("ask", {"politely": True}))
            await check_refusal(line, await asking(line))
            assert "it was told: decline" in str(await calling)
        async with Client(url, elicitation_callback=elicit) as client:
            with pytest.raises(MalformedQuestion):
                await client.call_tool("ask", {})
            with pytest.raises(MalformedQuestion):
                await client.begin("ask", {})

    with at(server) as url:
        run(work(url))
    assert heard == ["first"]


def test_a_client_that_says_so_puts_them_down_for_whoever_shows_them(tmp_path: Path) -> None:
    server = hostile(UNFIT["a schema of 200 kB"])

    async def work(url: str) -> None:
        inbox = SQLiteInboxStore(tmp_path / "inbox.db", [offices.KEY])
        stores: list[Any] = [{}, {"pending_store": SQLitePendingStore(tmp_path / "calls.db")}]
        stores += [{"pending_store": inbox.pending("agent")}]
        for number, options in enumerate(stores):
            said: Any = options if number == 2 else {**options, "raw_questions": True}
            async with Client(url, **said) as client:
                pending = await client.begin("ask", {})
                assert isinstance(pending, Pending)
                with pytest.raises(MalformedQuestion):
                    _ = pending.questions
                with pytest.raises(InvalidAnswer, match="declined or cancelled"):
                    await client.resume(pending, {"odd": accept(field1="x")})
                again = Pending.from_json(pending.to_json(), raw_questions=True)
                assert again == pending
                outcome = await client.resume(pending if options else again, {"odd": {"action": "cancel"}})
                assert isinstance(outcome, Done)
        await inbox.aclose()

    with at(server) as url:
        run(work(url))


def test_the_schemas_of_a_round_are_read_once_and_not_more_than_it_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Any] = []

    def counted(schema: Any) -> Any:
        read.append(schema)
        return read_for_peers(schema)

    def asked_of(parts: int, questions: int) -> dict[str, Any]:
        parted = {"type": "object", "anyOf": [{}] * parts}
        return {f"q{n}": form({**parted, "title": f"once and no more {parts} {n}"}) for n in range(questions)}

    monkeypatch.setattr(answering, "read_for_peers", counted)
    large = asked_of(600, 100)
    for look in (kept, check_round, partial(unfit_of, are_shown=False), partial(unfit_of, are_shown=True)):
        with pytest.raises(MalformedQuestion, match="the schemas of a round have at most"):
            look(large)
    assert 0 < len(read) < 10
    read.clear()
    many = asked_of(1, 1000)
    assert kept(many) == many
    for request in many.values():
        form_of(request["params"]["requestedSchema"])
    assert len(read) == 1000
