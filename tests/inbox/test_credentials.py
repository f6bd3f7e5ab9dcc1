"""Credentials that expire before the answer: nothing is lost, and the call goes on with others."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.inbox.offices import ANN, PATIENCE, Line, accept, asks, is_over, make_server, opened, run, serving_inbox
from tests.inbox.offices import until as until_it
from tests.inbox.test_processes import answer, handed, refused, started, tokens, turnwise
from tests.wires.serving import serving
from turnwise import CallerError, Client, Context, Pending, TaskInHand, TaskOptions, UnknownPending
from turnwise.inbox.model import Item, TooLate, Wanted
from turnwise.inbox.places import LONGEST_AUTHORIZATION, Credentials, read_credentials

__all__ = ["tokens"]

OLD, NEW, OURS = "Bearer the-old-s3cret", "Bearer the-new-s3cret", "Bearer the-s3cret-of-the-inbox"


class Gate:
    """A server that takes these credentials, and no others."""

    def __init__(self, *good: str, status: int = 401) -> None:
        self.good = set(good)
        self._status = status
        server = make_server(tasks=TaskOptions(poll=0.05))

        @server.tool(task="always")
        async def build(ctx: Context) -> str:
            """Build something."""
            answer = await ctx.elicit("Which colour?", str, key="colour")
            return f"built {answer.action}"

        self._app = server.asgi()
        self.shown: list[str | None] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            shown = dict(scope["headers"]).get(b"authorization", b"").decode() or None
            self.shown.append(shown)
            if shown not in self.good:
                await send({"type": "http.response.start", "status": self._status, "headers": []})
                await send({"type": "http.response.body", "body": f"no: {shown}".encode()})
                return
        await self._app(scope, receive, send)


@contextmanager
def gated(gate: Gate) -> Iterator[str]:
    with serving(gate, lifespan="on", log_level="critical") as port:
        yield f"http://127.0.0.1:{port}/mcp"


async def begun(url: str, tool: str = "file", way: str = OLD) -> Pending | TaskInHand:
    async with Client(url, headers={"Authorization": way}) as client:
        call = await client.begin(tool, {"kind": "bug"} if tool == "file" else {})
    assert isinstance(call, Pending | TaskInHand)
    return call


def is_held(seen: Item) -> bool:
    return seen.status == "held"


@pytest.mark.parametrize("status", [401, 403])
def test_a_call_whose_credentials_are_refused_is_held_with_its_answers_and_goes_on_with_others(
    tmp_path: Path, status: int
) -> None:
    async def work(url: str, gate: Gate) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            item = await inbox.hand_over(await begun(url), caller="agent", authorization=OLD)
            gate.good = {NEW}
            await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
            item = await until_it(inbox, item.id, is_held)
            assert f"does not take the credentials of this call (HTTP {status})" in str(item.note)
            assert "s3cret" not in str(item.note) + repr(item)
            assert [one.by for one in item.given] == ["ann"]
            assert [line.status for line in (await inbox.page(Wanted())).lines] == ["held"]
            tries = len(gate.shown)
            await asyncio.sleep(0.3)
            assert len(gate.shown) == tries, "it is not tried again by itself"
            assert (await inbox.retry(item.id)).status == "going"
            item = await until_it(inbox, item.id, is_held)
            with pytest.raises(CallerError):
                await inbox.authorize(item.id, "Bearer a\r\nX: y")
            with pytest.raises(TooLate, match="meanwhile"):
                await inbox.authorize(item.id, NEW, revision=item.revision - 1)
            await inbox.authorize(item.id, NEW, revision=item.revision)
            item = await until_it(inbox, item.id, asks("level"))
            assert item.note is None
            with pytest.raises(TooLate, match="not held"):
                await inbox.retry(item.id)
            await inbox.withdraw(item.id, by="ann")
            with pytest.raises(TooLate, match="over"):
                await inbox.authorize(item.id, NEW)
            with pytest.raises(UnknownPending):
                await inbox.retry("nothing")

    gate = Gate(OLD, status=status)
    with gated(gate) as url:
        run(work(url, gate))


def test_a_call_that_waits_may_be_given_others_before_they_are_needed(tmp_path: Path) -> None:
    async def work(url: str, gate: Gate) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            item = await inbox.hand_over(await begun(url), caller="agent", authorization=OLD)
            gate.good = {NEW}
            assert (await inbox.authorize(item.id, NEW)).status == "waiting"
            await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
            await until_it(inbox, item.id, asks("level"))

    gate = Gate(OLD)
    with gated(gate) as url:
        run(work(url, gate))


def test_a_task_whose_credentials_are_refused_is_held_and_asks_again_with_others(tmp_path: Path) -> None:
    async def work(url: str, gate: Gate) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            item = await inbox.hand_over(await begun(url, "build"), caller="agent", authorization=OLD)
            item = await until_it(inbox, item.id, asks("colour"))
            gate.good = {NEW}
            await inbox.answer(item.id, {"colour": accept(value="red")}, round=item.round, by="ann")
            await until_it(inbox, item.id, is_held)
            await inbox.authorize(item.id, NEW)
            item = await until_it(inbox, item.id, is_over)
            assert item.result is not None
            assert item.result["content"][0]["text"] == "built accept"

    gate = Gate(OLD)
    with gated(gate) as url:
        run(work(url, gate))


def test_what_is_held_expires_at_its_time(tmp_path: Path) -> None:
    async def work(url: str, gate: Gate) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            item = await inbox.hand_over(await begun(url), caller="agent", authorization=OLD, seconds=1.5)
            gate.good = set()
            await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
            await until_it(inbox, item.id, is_held)
            assert (await until_it(inbox, item.id, is_over)).status == "expired"

    gate = Gate(OLD)
    with gated(gate) as url:
        run(work(url, gate))


def test_the_inboxs_own_credentials_are_for_calls_that_have_none_or_whose_own_are_refused(tmp_path: Path) -> None:
    async def work(url: str, gate: Gate) -> None:
        place = url.removesuffix("/mcp")
        async with opened(tmp_path / "inbox.db", credentials={place: OURS}) as inbox:
            for own in (None, OLD, NEW):
                item = await inbox.hand_over(await begun(url, way=NEW), caller="agent", authorization=own)
                gate.shown.clear()
                await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
                item = await until_it(inbox, item.id, asks("level"))
                assert list(dict.fromkeys(gate.shown)) == {None: [OURS], OLD: [OLD, OURS], NEW: [NEW]}[own]
                assert item.authorization == (NEW if own == NEW else None)

    gate = Gate(NEW, OURS)
    with gated(gate) as url:
        run(work(url, gate))


def test_what_is_held_goes_on_when_the_inbox_is_given_credentials_or_starts_with_them(tmp_path: Path) -> None:
    async def work(url: str, gate: Gate) -> None:
        path = tmp_path / "inbox.db"
        async with opened(path) as inbox:
            items = [await inbox.hand_over(await begun(url), caller="agent") for _ in range(2)]
            for item in items:
                await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
                seen = await until_it(inbox, item.id, is_held)
                assert "wants credentials, and this call has none" in str(seen.note)
            gate.good.add(OURS)
            with pytest.raises(ValueError, match="one line"):
                await inbox.use_credentials({url: "a\nb"})
            await inbox.use_credentials({url: OURS})
            for item in items:
                await until_it(inbox, item.id, asks("level"))
            gate.good = {NEW}
            await inbox.answer(item.id, {"level": accept(level=3)}, round=1, by="ann")
            await until_it(inbox, item.id, is_held)
        async with opened(path, credentials={url: NEW}) as inbox:
            await until_it(inbox, item.id, asks("sure"))

    gate = Gate(OLD)
    with gated(gate) as url:
        run(work(url, gate))


def test_credentials_belong_to_a_place_and_what_is_under_it() -> None:
    text = f"# ours\nhttps://a.example {OURS}\n\n  https://a.example/mcp/  Basic  eA==\nhttp://b.example\t{NEW}\n"
    found = Credentials(read_credentials(text))
    for server, way in (
        ("https://a.example/other", OURS),
        ("https://a.example", OURS),
        ("https://a.example/mcp/x", "Basic  eA=="),
        ("https://a.example.evil/mcp", None),
        ("https://a.example@evil/mcp", None),
        ("http://a.example/mcp", None),
        ("http://b.example/mcp", NEW),
    ):
        assert found.of(server) == way
    longest = f"Bearer {'x' * (LONGEST_AUTHORIZATION - 7)}"
    assert read_credentials(f"https://a.example {longest}") == {"https://a.example": longest}
    bad_lines = ("https://a.example", "a.example Bearer x", "ftp://a.example Bearer x", "https:// Bearer x")
    bad_values = (
        f"https://a {OLD}\nhttps://a {NEW}",
        f"https://a {longest}x",
        "https://a Bearer é",
        "https://a Bearer \x7f",
    )
    for bad in (*bad_lines, *(f"https://a {value}" for value in bad_values)):
        with pytest.raises(ValueError, match="line ") as told:
            read_credentials(bad)
        assert "Bearer" not in str(told.value)


def test_the_api_takes_other_credentials_tries_again_and_shows_none(tmp_path: Path) -> None:
    gate = Gate(OLD)
    with gated(gate) as url, serving_inbox(tmp_path / "inbox.db") as line:
        item = handed(line, run(begun(url)), authorization=OLD)  # type: ignore[arg-type]
        path = f"/items/{item['id']}"
        assert line.call("POST", f"{path}/retry").status == 409
        gate.good = {NEW}
        answer(line, item, title=accept(title="a leak"))
        seen = line.follow(item["id"], lambda seen: seen["status"] == "held")
        assert seen["given"]
        assert line.call("POST", f"{path}/retry").body["status"] == "going"
        seen = line.follow(item["id"], lambda seen: seen["status"] == "held")
        for body in ({}, {"authorization": ""}, {"authorization": "a\nb"}, {"authorization": 3}):
            assert line.call("PUT", f"{path}/authorization", body).status == 422
        assert line.call("PUT", f"{path}/authorization", {"authorization": NEW, "revision": 0}).status == 409
        body = {"authorization": NEW, "revision": seen["revision"]}
        reply = line.call("PUT", f"{path}/authorization", body)
        assert reply.status == 200
        last = line.follow(item["id"], lambda seen: "level" in seen["questions"])
        assert "s3cret" not in str((seen, reply, last))
        assert line.call("PUT", "/items/nothing/authorization", body).status == 404


def test_a_client_that_waits_gives_its_own_credentials_when_the_call_is_held(tmp_path: Path) -> None:
    """Another process tomorrow has new ones; a function is asked for them whenever they are refused."""

    async def wait(url: str, line: Line, item_id: str, way: Any) -> Any:
        options: Any = {"inbox": line.url, "inbox_token": ANN, "inbox_authorization": way}
        async with Client(url, headers={"Authorization": NEW}, **options) as client:
            return await client.wait_for(item_id, deadline=PATIENCE)

    gate = Gate(OLD)
    with gated(gate) as url, serving_inbox(tmp_path / "inbox.db") as line:
        calls: list[str] = []

        async def renewed() -> str:
            calls.append([OLD, NEW][min(len(calls), 1)])
            return calls[-1]

        for way in (NEW, renewed):
            gate.good = {OLD}
            item = handed(line, run(begun(url)), authorization=OLD)  # type: ignore[arg-type]
            gate.good = {NEW}
            answer(line, item, title={"action": "decline"})
            line.follow(item["id"], lambda seen: seen["status"] == "held")
            assert run(wait(url, line, item["id"], way)).content[0].text == "nothing was filed: decline"
        assert calls == [OLD, NEW]
        gate.good = {OLD}
        item = handed(line, run(begun(url)), authorization=OLD)  # type: ignore[arg-type]
        gate.good = {NEW}
        answer(line, item, title={"action": "decline"})
        told = ("--inbox", line.url, "--inbox-token-env", "INBOX_TOKEN", "--inbox-authorization-env", "WAY")
        waited = turnwise("wait", item["id"], *told, WAY=NEW)
        assert (waited.returncode, waited.stdout.strip()) == (0, "nothing was filed: decline")
        with pytest.raises(ValueError, match="plain text"):
            run(wait(url, line, "x", 3))


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_a_file_of_credentials_is_read_again_and_what_was_held_goes_on(tmp_path: Path, tokens: str) -> None:
    gate, file = Gate(OLD), tmp_path / "credentials"
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--credentials-file", str(file)]
    with gated(gate) as url:
        file.write_text(f"{url} {OLD} \n")
        file.chmod(0o644)
        with started(*options) as inbox:
            assert [line for line in inbox.said if "can be read by others" in line and str(file) in line]
            item = handed(inbox.line, run(begun(url)))  # type: ignore[arg-type]
            answer(inbox.line, item, title=accept(title="a leak"))
            item = inbox.line.follow(item["id"], lambda seen: "level" in seen["questions"])
            gate.good = {NEW}
            answer(inbox.line, item, level=accept(level=3))
            inbox.line.follow(item["id"], lambda seen: seen["status"] == "held")
            inbox.until(f"call {item['id']} (file at {url}) is held: The server does not take the credentials")
            file.write_text("nonsense s3cret\n")
            inbox.hear(signal.SIGHUP, "the credentials stay as they are: ")
            file.write_text(f"{url} {NEW}\n")
            inbox.hear(signal.SIGHUP, "credentials for 1 server from")
            assert [line for line in inbox.said if "WARNING" in line and f"{file} can be read by others" in line]
            inbox.line.follow(item["id"], lambda seen: "sure" in seen["questions"])
            inbox.end()
            assert "s3cret" not in "".join(inbox.said)
    file.write_text("nonsense\n")
    done = refused("inbox", "--port", "0", *options)
    assert (done.exit_code, "line 1" in done.stderr) == (2, True)
