"""A client whose questions go to an inbox: it waits, or leaves; what becomes of the call becomes of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.inbox import offices
from tests.inbox.offices import ANN, Line, accept, at_url, begun, make_server, run, serving_inbox
from tests.wires.serving import serving
from turnwise import (
    CallerError,
    Client,
    Context,
    DeadlineExceeded,
    Done,
    HandOverFailed,
    InboxFailed,
    InboxItem,
    InvalidReply,
    MCPError,
    Pending,
    SyncClient,
    TaskInHand,
    TaskOptions,
    UnknownPending,
    _inboxing,
)
from turnwise.inbox.model import Wanted


def make() -> Any:
    server = make_server(tasks=TaskOptions(poll=0.05))

    @server.prompt()
    async def greeting(ctx: Context) -> str:
        """A prompt that asks."""
        answer = await ctx.elicit("Whom?", str, key="whom")
        return f"Greet {answer.data}."  # type: ignore[union-attr]

    @server.resource("notes://today")
    async def notes(ctx: Context) -> str:
        """A resource that asks."""
        answer = await ctx.elicit("Which day?", str, key="day")
        return f"of {answer.data}"  # type: ignore[union-attr]

    @server.tool()
    async def refuse(ctx: Context) -> str:
        """Ask, and refuse."""
        await ctx.elicit("What?", str, key="what")
        raise MCPError(4099, "closed today")

    @server.tool()
    async def draft(ctx: Context) -> str:
        """Have a model write something."""
        reply = await ctx.sample("Write a line.", max_tokens=50)
        return str(reply.content.text)  # type: ignore[union-attr]

    @server.tool(task="always")
    async def build(ctx: Context) -> str:
        """A task that asks."""
        answer = await ctx.elicit("Which colour?", str, key="colour")
        return f"in {answer.data}"  # type: ignore[union-attr]

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Ask nothing."""
        return a + b

    return server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with at_url(make()) as found:
        yield found


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with serving_inbox(tmp_path_factory.mktemp("inbox") / "inbox.db") as found:
        yield found


@asynccontextmanager
async def client(url: str, line: Line, **options: Any) -> AsyncIterator[Client]:
    async with Client(url, inbox=line.url, inbox_token=ANN, **options) as opened:
        yield opened


async def answering(line: Line, **answers: Any) -> None:
    """Somebody at the inbox, who answers whatever has one of these keys."""
    left = dict(answers)
    while left:
        await asyncio.sleep(0.02)
        page = await asyncio.to_thread(line.call, "GET", "/items?status=waiting")
        for found in page.body["items"]:
            item = (await asyncio.to_thread(line.call, "GET", f"/items/{found['id']}")).body
            known = {key: left[key] for key in item["questions"] if key in left}
            if known:
                body = {"round": item["round"], "answers": known}
                await asyncio.to_thread(line.call, "POST", f"/items/{item['id']}/answers", body)
                for key in known:
                    del left[key]


def test_a_call_that_asks_is_answered_in_the_inbox_and_gives_its_result(url: str, line: Line) -> None:
    async def work() -> None:
        async with client(url, line) as opened:
            answers = answering(line, title=accept(title="a leak"), level=accept(level=2), sure=accept(value=True))
            result, _ = await asyncio.gather(opened.call_tool("file", {"kind": "bug"}), answers)
            assert result.content[0].text == "bug: a leak (2) True"  # type: ignore[union-attr]
            assert (await opened.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}

    run(work())


def test_prompts_and_resources_ask_there_too(url: str, line: Line) -> None:
    async def work() -> None:
        async with client(url, line) as opened:
            answers = answering(line, whom=accept(value="Ada"), day=accept(value="Monday"))
            prompt, resource, _ = await asyncio.gather(
                opened.get_prompt("greeting"), opened.read_resource("notes://today"), answers
            )
            assert "Greet Ada." in str(prompt)
            assert "of Monday" in str(resource)

    run(work())


def test_what_a_callback_answers_does_not_go_to_the_inbox(url: str, line: Line) -> None:
    def elicit(asking: Any, params: Any) -> dict[str, Any]:
        return {"title": accept(title="mine"), "level": accept(level=1), "sure": accept(value=False)}[asking.key]

    async def work() -> None:
        before = len((await line.inbox.page(Wanted(("waiting", "going", "done")), most=200)).lines)
        async with client(url, line, elicitation_callback=elicit) as opened:
            assert "mine" in str(await opened.call_tool("file", {"kind": "bug"}))
        assert len((await line.inbox.page(Wanted(("waiting", "going", "done")), most=200)).lines) == before

    run(work())


def test_a_model_is_stood_in_for_by_a_person(url: str, line: Line) -> None:
    async def work() -> None:
        async with client(url, line) as opened:
            calling = asyncio.ensure_future(opened.call_tool("draft"))
            found: Any = None
            while found is None:
                await asyncio.sleep(0.02)
                page = line.inbox.page(Wanted(("waiting",), ["draft"]))
                found = next(iter((await page).lines), None)
            item = await line.inbox.get(found.id)
            [(key, request)] = item.pending.requests.items()
            assert request["method"] == "sampling/createMessage"
            reply = {"role": "assistant", "content": {"type": "text", "text": "a line"}, "model": "a person"}
            body = {"round": item.round, "answers": {key: reply}}
            assert (await asyncio.to_thread(line.call, "POST", f"/items/{item.id}/answers", body)).status == 200
            assert "a line" in str(await calling)

    run(work())


DRAFT = {"role": "assistant", "content": {"type": "text", "text": "a draft"}, "model": "m1", "stopReason": "endTurn"}


def test_what_a_model_drafts_is_reviewed_by_a_person(url: str, line: Line) -> None:
    drafted: list[Any] = []

    async def sample(asking: Any, params: Any) -> dict[str, Any]:
        drafted.append((asking.target, asking.round, params.max_tokens))
        return DRAFT

    async def work() -> None:
        async with client(url, line, sampling_callback=sample, review_samples=True) as opened:
            begun = await opened.begin("draft")
            assert isinstance(begun, Pending)
            assert drafted == [], "it is drafted for the hand-over"
            handed = await opened.hand_over(begun)
            view = (await asyncio.to_thread(line.call, "GET", f"/items/{handed.id}")).body
            [key] = view["questions"]
            assert view["drafts"] == {key: DRAFT}
            changed = {**DRAFT, "content": {"type": "text", "text": "a better one"}}
            body = {"round": view["round"], "answers": {key: changed}}
            assert (await asyncio.to_thread(line.call, "POST", f"/items/{handed.id}/answers", body)).status == 200
            assert "a better one" in str(await opened.wait_for(handed))
            view = (await asyncio.to_thread(line.call, "GET", f"/items/{handed.id}")).body
            assert view["drafts"] == {}
            assert (await line.inbox.get(handed.id)).drafts == {}
        assert drafted == [("draft", 1, 50)]

    run(work())


def test_a_draft_is_not_sent_where_nobody_can_review_it(line: Line) -> None:
    def sample(asking: Any, params: Any) -> Any:
        raise AssertionError("nobody reviews this")

    async def work() -> None:
        for mode in ("2025-11-25", "2025-06-18"):
            options: Any = {"mode": mode, "inbox": line.url, "inbox_token": ANN}
            async with Client(make(), sampling_callback=sample, review_samples=True, **options) as opened:
                assert (await opened.call_tool("draft")).is_error

    run(work())


@pytest.mark.parametrize("options", [{}, {"inbox": "http://127.0.0.1:9"}, {"sampling_callback": lambda *_: None}])
def test_a_review_needs_who_drafts_and_who_reviews(options: Any) -> None:
    with pytest.raises(ValueError, match="review_samples= needs"):
        Client("http://127.0.0.1:9/mcp", review_samples=True, **options)


def test_a_call_is_left_there_and_waited_for_in_another_process(url: str, line: Line) -> None:
    async def leave() -> InboxItem:
        async with client(url, line) as opened:
            pending = await opened.begin("file", {"kind": "bug"})
            assert isinstance(pending, Pending)
            item = await opened.hand_over(pending)
            assert item == await opened.hand_over(pending)
            assert item.url == f"{line.url}/items/{item.id}"
            return item

    async def wait(item: InboxItem) -> None:
        async with client(url, line) as opened:
            answers = answering(line, title=accept(title="a leak"), level=accept(level=2), sure=accept(value=True))
            result, same, _ = await asyncio.gather(opened.wait_for(item), opened.wait_for(item.id), answers)
            assert result == same
            assert result.content[0].text == "bug: a leak (2) True"

    run(wait(run(leave())))


def test_what_goes_with_a_call_is_handed_over(url: str, line: Line) -> None:
    async def work() -> None:
        async with client(url, line) as opened:
            pending = await opened.begin("file", {"kind": "bug"})
            assert isinstance(pending, Pending)
            terms: dict[str, Any] = {"caller": "night shift", "hook": "https://example.com/told", "seconds": 60.0}
            item = await line.inbox.get((await opened.hand_over(pending, **terms)).id)
            assert (item.caller, item.hook) == ("night shift", "https://example.com/told")
            assert item.until == pytest.approx(item.came + 60)
            with pytest.raises(HandOverFailed, match="hook"):
                await opened.hand_over(replace(pending, id="other"), hook="http://example.com/")

    run(work())


def test_a_task_is_handed_over_too(url: str, line: Line) -> None:
    async def work() -> None:
        async with client(url, line) as opened:
            task = await opened.begin("build")
            assert isinstance(task, TaskInHand)
            item = await opened.hand_over(task)
            result, _ = await asyncio.gather(opened.wait_for(item), answering(line, colour=accept(value="red")))
            assert "in red" in str(result)
            result, _ = await asyncio.gather(opened.call_tool("build"), answering(line, colour=accept(value="blue")))
            assert "in blue" in str(result)

    run(work())


def test_without_an_event_loop_it_is_the_same(url: str, line: Line) -> None:
    with SyncClient(url, inbox=line.url, inbox_token=ANN) as opened:
        pending = opened.begin("file", {"kind": "bug"})
        assert isinstance(pending, Pending)
        item = opened.hand_over(pending, caller="script")
        assert line.call("GET", f"/items/{item.id}").body["caller"] == "script"
        body = {"round": 0, "answers": {"title": {"action": "cancel"}}}
        line.call("POST", f"/items/{item.id}/answers", body)
        assert "nothing was filed: cancel" in str(opened.wait_for(item))


def test_what_became_of_an_item_is_raised(url: str, line: Line) -> None:
    async def work() -> None:
        async with client(url, line) as opened:
            with pytest.raises(MCPError) as refused:
                await asyncio.gather(opened.call_tool("refuse"), answering(line, what=accept(value="x")))
            assert (refused.value.code, refused.value.message) == (4099, "closed today")
            pending = await opened.begin("file", {"kind": "bug"})
            assert isinstance(pending, Pending)
            item = await opened.hand_over(pending)
            await asyncio.to_thread(line.call, "DELETE", f"/items/{item.id}")
            with pytest.raises(InboxFailed, match="withdrawn by ann") as failed:
                await opened.wait_for(item)
            assert (failed.value.item_id, failed.value.status) == (item.id, "failed")
            with pytest.raises(UnknownPending):
                await opened.wait_for("nothing")
            for wrong in ("", "../items", "a/b", "é", "a?b"):
                with pytest.raises(CallerError):
                    await opened.wait_for(wrong)

    run(work())


def test_who_waits_no_longer_leaves_the_call_where_it_is(url: str, line: Line) -> None:
    async def work() -> None:
        async with client(url, line) as opened:
            with pytest.raises(DeadlineExceeded, match=r"within 0.5 s; it stays in the inbox, at http\S+") as left:
                await opened.call_tool("file", {"kind": "patience"}, deadline=0.5)
            item = left.value.item
            assert item.url in str(left.value)
            assert (await line.inbox.get(item.id)).status == "waiting"
            pending = await opened.begin("file", {"kind": "patience"})
            assert isinstance(pending, Pending)
            item = await opened.hand_over(pending)
            with pytest.raises(DeadlineExceeded, match="stays in the inbox") as late:
                await opened.wait_for(item, deadline=0.1)
            assert late.value.item == item
            assert (await line.inbox.get(item.id)).status == "waiting"

    run(work())


def test_credentials_are_given_to_the_inbox_only_where_that_is_said(url: str, line: Line) -> None:
    async def work() -> None:
        headers = {"Authorization": "Bearer of the client"}
        for options, given in (({}, None), ({"inbox_authorization": "Bearer for the inbox"}, "Bearer for the inbox")):
            async with client(url, line, headers=headers, **options) as opened:
                pending = await opened.begin("file", {"kind": "bug"})
                assert isinstance(pending, Pending)
                item = await opened.hand_over(pending)
                assert (await line.inbox.get(item.id)).authorization == given

    run(work())


def test_an_inbox_that_does_not_take_a_call_gives_it_back(
    url: str, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_inboxing, "PAUSES", (0.01,))

    async def work() -> None:
        for inbox, token, words in (
            (line.url, "a wrong token, long enough", "HTTP 401: .*not know the token.*inbox_token=.*--inbox-token-env"),
            (line.url, None, "HTTP 401: .*none was given.*inbox_token=.*--inbox-token-env"),
            (line.url + "/elsewhere", ANN, "HTTP 404"),
            (url, ANN, "does not take it"),
            ("http://127.0.0.1:9", ANN, "cannot be reached"),
        ):
            async with Client(url, inbox=inbox, inbox_token=token) as opened:
                with pytest.raises(HandOverFailed, match=words) as failed:
                    await opened.call_tool("file", {"kind": "bug"})
                assert isinstance(failed.value.call, Pending)
            async with Client(url) as other:
                assert isinstance(await other.resume(failed.value.call, {"title": {"action": "decline"}}), Done)

    run(work())


def test_a_call_that_the_inbox_cannot_carry_on_is_refused_and_given_back(line: Line) -> None:
    async def work() -> None:
        async with Client(make(), inbox=line.url, inbox_token=ANN) as opened:
            with pytest.raises(HandOverFailed, match="URL"):
                await opened.call_tool("file", {"kind": "bug"})

    run(work())


def test_options_that_are_wrong_are_told_at_once() -> None:
    for options in (
        {"inbox": "ftp://inbox"},
        {"inbox": "https://user:word@inbox"},
        {"inbox": ""},
        {"inbox_token": "x"},
        {"inbox_authorization": "x"},
        {"inbox": "https://inbox", "inbox_token": "a\nb"},
        {"inbox": "https://inbox", "inbox_authorization": "é"},
    ):
        with pytest.raises(ValueError, match="inbox"):
            Client("http://127.0.0.1:9/mcp", **options)  # type: ignore[arg-type]

    async def work() -> None:
        opened = Client(make_server())
        async with opened:
            with pytest.raises(CallerError, match="no inbox"):
                await opened.hand_over(offices.pending())
            with pytest.raises(CallerError, match="no inbox"):
                await opened.wait_for("item")

    run(work())


@pytest.mark.parametrize("end", ["/", "/api/v1", "/api/v1/", "/api/v1/items", "/login"])
def test_the_address_of_the_api_or_of_the_door_is_as_good(url: str, line: Line, end: str) -> None:
    async def work() -> None:
        async with Client(url, inbox=line.url + end, inbox_token=ANN) as opened:
            item = await opened.hand_over(await begun(url))
            assert item.url == f"{line.url}/items/{item.id}"

    run(work())


def test_an_inbox_that_restarts_is_waited_for_and_that_is_said_once(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        with serving_inbox(tmp_path / "inbox.db") as first:
            port = int(first.url.rpartition(":")[2])
            async with client(url, first) as opened:
                item = await opened.hand_over(await begun(url))
                waiting = asyncio.gather(*(opened.wait_for(item) for _ in range(3)))
                await asyncio.sleep(0.1)
        await asyncio.sleep(1.2)
        with serving_inbox(tmp_path / "inbox.db", port=port) as second:
            body = {"round": 0, "answers": {"title": {"action": "decline"}}}
            assert (await asyncio.to_thread(second.call, "POST", f"/items/{item.id}/answers", body)).status == 200
            assert "decline" in str(await waiting)

    run(work())
    said = [record.message for record in caplog.records if record.name == "turnwise.client"]
    assert [("is away" in line, "is back" in line) for line in said] == [(True, False), (False, True)], said


HOSTILE = [
    (200, b""),
    (200, b"null"),
    (200, b"[]"),
    (200, b"{}"),
    (200, b'{"id": 3}'),
    (200, b"\xff"),
    (302, b""),
    (500, b"<html>"),
    (201, b'{"id": "x", "page": 3}'),
]


@pytest.mark.parametrize(("status", "body"), HOSTILE)
def test_what_is_no_inbox_is_told_so(url: str, status: int, body: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"location", b"http://127.0.0.1:9/")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def work(port: int) -> None:
        async with Client(url, inbox=f"http://127.0.0.1:{port}") as opened:
            call = await begun(url)
            if status == 201:
                assert (await opened.hand_over(call)).id == "x"
                return
            with pytest.raises(HandOverFailed):
                await opened.hand_over(call)

    with serving(app) as port:
        run(work(port))


ENDED = {"status": "done", "method": "tools/call", "target": "file", "revision": 1, "result": {"content": []}}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"status": None}, InvalidReply),
        ({"status": "over"}, InvalidReply),
        ({"method": "tools/list"}, InvalidReply),
        ({"method": 3}, InvalidReply),
        ({"target": None}, InvalidReply),
        ({"revision": "1"}, InvalidReply),
        ({"revision": -1}, InvalidReply),
        ({"result": {"content": 3}}, InvalidReply),
        ({"result": None}, InboxFailed),
        ({"result": [], "error": 3, "code": "x"}, InboxFailed),
        ({"result": None, "error": "no", "code": 3}, MCPError),
        ({"status": "going"}, DeadlineExceeded),
    ],
)
def test_an_end_that_is_none_is_told_so(url: str, change: dict[str, Any], error: type[Exception]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps({"id": "x", **ENDED, **change}).encode()})

    async def work(port: int) -> None:
        async with Client(url, inbox=f"http://127.0.0.1:{port}") as opened:
            with pytest.raises(error):
                await opened.wait_for("x", deadline=0.3)

    with serving(app) as port:
        run(work(port))
