"""Hooks: signed, tried again, and told nothing that is secret."""

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.inbox import offices
from tests.inbox.offices import NOW, SECRET, accept, asks, at_url, begun, is_over, make_server, opened, run, until
from tests.inbox.test_processes import TOKENS, handed, refused, started
from tests.unit.joined import ENVIRONMENT
from tests.wires.serving import serving
from turnwise import CallerError
from turnwise.inbox import hooks
from turnwise.inbox.desk import Inbox
from turnwise.inbox.hooks import Listeners, Signer, Teller, check_url, postponed, told
from turnwise.inbox.model import Hook
from turnwise.inbox.sqlite import SQLiteInboxStore

OTHER = "whsec_" + base64.b64encode(b"another secret of twenty four bytes").decode()


class Ear:
    """Somebody who is told. `statuses` are what it answers, the last for ever."""

    def __init__(self, *statuses: int) -> None:
        self._statuses = list(statuses) or [200]
        self.heard: list[tuple[dict[str, str], bytes]] = []
        self.is_heard = threading.Semaphore(0)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.heard.append(({name.decode(): value.decode() for name, value in scope["headers"]}, body))
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        headers = [(b"location", b"http://127.0.0.1:9/elsewhere")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * 1000})
        self.is_heard.release()

    async def times(self, count: int) -> None:
        for _ in range(count):
            assert await asyncio.to_thread(self.is_heard.acquire, timeout=10)


@contextmanager
def listening(ear: Ear) -> Iterator[str]:
    with serving(ear) as port:
        yield f"http://127.0.0.1:{port}/hook?key=s3cret"


async def settled(inbox: Inbox) -> None:
    """Until there is nothing left to tell."""
    while await inbox.store.next_due(0.0) is not None:  # noqa: ASYNC110 - what ends it is in the store
        await asyncio.sleep(0.02)


def is_signed(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """As the specification of Standard Webhooks says it, by hand."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    mark = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{mark}" in headers["webhook-signature"].split(" ")


def test_questions_and_the_end_are_told_with_a_signed_body_that_holds_no_secret(tmp_path: Path) -> None:
    async def work(url: str, hook: str, ear: Ear) -> None:
        async with opened(tmp_path / "inbox.db", url="https://inbox.example/") as inbox:
            call = await begun(url)
            facts: dict[str, Any] = {"caller": "agent", "hook": hook, "authorization": "Bearer s3cret"}
            item = await inbox.hand_over(call, **facts)
            await ear.times(1)
            await inbox.answer(item.id, {"title": accept(title="s3cret title")}, round=0, by="ann")
            item = await until(inbox, item.id, asks("level"))
            await ear.times(1)
            await inbox.withdraw(item.id, by="ann")
            await ear.times(1)
            assert call.state is not None
            bodies = [json.loads(body) for _, body in ear.heard]
            told_of = [(body["type"], body["data"]["round"]) for body in bodies]
            assert told_of == [("item.asked", 0), ("item.asked", 1), ("item.ended", 1)]
            assert bodies[1]["data"] == {
                "id": item.id,
                "status": "waiting",
                "round": 1,
                "questions": ["level"],
                "server": url,
                "target": "file",
                "caller": "agent",
                "task": False,
                "page": f"https://inbox.example/items/{item.id}",
            }
            for headers, body in ear.heard:
                assert is_signed(headers, body, SECRET)
                assert not is_signed(headers, body + b" ", SECRET)
                assert not is_signed(headers, body, OTHER)
                assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
                assert headers["content-type"] == "application/json"
                assert b"s3cret" not in body
                assert call.state.encode() not in body
            assert len({headers["webhook-id"] for headers, _ in ear.heard}) == 3

    ear = Ear()
    with at_url(make_server()) as url, listening(ear) as hook:
        run(work(url, hook, ear))


@pytest.mark.parametrize("status", [500, 404, 307])
def test_what_is_not_taken_is_told_again_under_the_same_id_and_redirects_are_not_followed(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "PAUSES", (0.01, 0.01, 0.01))

    async def work(hook: str, ear: Ear) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            await inbox.hand_over(offices.pending(), caller="agent", hook=hook)
            await ear.times(3)
            assert len({(headers["webhook-id"], body) for headers, body in ear.heard}) == 1
            await settled(inbox)
            assert len(ear.heard) == 3

    ear = Ear(status, status, 200)
    with listening(ear) as hook:
        run(work(hook, ear))


def test_what_is_never_taken_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "PAUSES", (0.01,))

    async def work(hook: str, ear: Ear) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            await inbox.hand_over(offices.pending(), caller="agent", hook=hook)
            await ear.times(2)
            await settled(inbox)
            assert len(ear.heard) == 2

    ear = Ear(500)
    with listening(ear) as hook:
        run(work(hook, ear))


def test_what_could_not_be_told_is_told_by_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "PAUSES", (0.01,) * 100)

    async def first(hook: str) -> None:
        async with opened(tmp_path / "inbox.db", work={"claim_seconds": 0.3}) as inbox:
            await inbox.hand_over(offices.pending(), caller="agent", hook=hook)

    async def second(ear: Ear) -> None:
        async with opened(tmp_path / "inbox.db"):
            await ear.times(1)

    ear = Ear()
    with listening(ear) as hook:
        port = int(hook.rpartition(":")[2].partition("/")[0])
    run(first(hook))
    assert ear.heard == []
    with serving(ear, port=port):
        run(second(ear))


def test_an_expired_call_is_told_of(tmp_path: Path) -> None:
    async def work(hook: str, ear: Ear) -> None:
        async with opened(tmp_path / "inbox.db") as inbox:
            item = await inbox.hand_over(offices.pending(), caller="agent", hook=hook, seconds=0.2)
            await until(inbox, item.id, is_over)
            await ear.times(2)
            assert [json.loads(body)["data"]["status"] for _, body in ear.heard] == ["waiting", "expired"]

    ear = Ear()
    with listening(ear) as hook:
        run(work(hook, ear))


def test_one_who_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "SECONDS", 0.2)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        teller = Teller(Signer([SECRET]))
        began = time.monotonic()
        assert await teller.tell(Hook("msg_1", f"http://127.0.0.1:{port}/", "{}", NOW, NOW), NOW) is not None
        assert time.monotonic() - began < 5
        assert await teller.tell(Hook("msg_1", "http://127.0.0.1:9/", "{}", NOW, NOW), NOW) is not None
        await teller.aclose()
        server.close()
        await asyncio.sleep(0.05)

    run(work())


def test_nothing_is_told_unsigned() -> None:
    hook = Hook("msg_1", "http://127.0.0.1:9/", "{}", NOW, NOW)
    assert "no secret" in str(run(Teller(Signer([])).tell(hook, NOW)))


def test_while_secrets_change_both_sign() -> None:
    hook = Hook("msg_1", "https://example.com/", '{"a": "é"}', NOW, NOW)
    headers = Signer([OTHER, SECRET]).headers(hook, NOW)
    assert headers["webhook-signature"].count("v1,") == 2
    assert is_signed(headers, hook.body.encode(), SECRET)
    assert is_signed(headers, hook.body.encode(), OTHER)


def test_a_signature_is_that_of_the_specification() -> None:
    """The example of the specification's own libraries."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", '{"test": 2432232314}'
    hook = Hook("msg_p5jXN8AQM9LWM0D4loKWxJek", "https://example.com/", body, NOW, NOW)
    headers = Signer([secret]).headers(hook, 1614265330)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        "secret",
        "whsec_c2hvcnQ=",
        "whsec_*",
        SECRET.removeprefix("whsec_"),
        SECRET.replace("c2Vj", "_2Vj-c2Vj_"),  # base64 as URLs have it would be another secret.
        "whsec_" + "é" * 40,
        "whsec_" + base64.b64encode(bytes(hooks.SHORTEST_SECRET - 1)).decode(),
    ],
)
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="whsec_"):
        Signer([secret])


def test_a_hook_is_https_or_local() -> None:
    local = ("http://localhost/x", "http://127.0.0.1:8000/", "http://[::1]/")
    for url in ("https://example.com/", "https://example.com:8443/a?b=c", *local):
        assert check_url(url) == url
    longest = "https://example.com/".ljust(hooks.LONGEST_URL, "x")
    assert check_url(longest) == longest


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "http://example.com/",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com/",
        "http://10.0.0.1/",
        "http://0.0.0.0/",
        "ftp://localhost/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https:///path",
        "https://user:word@example.com/",
        "https://example.com/#part",
        "https://example.com/\nX: y",
        "https://example.com/\nx",
        "https://example.com/\x7f",
        "https://exa mple.com/",
        "https://example.com\\@evil.example/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://[::1",
        "https://é.example/",
        "https://example.com/".ljust(hooks.LONGEST_URL + 1, "x"),
    ],
)
def test_any_other_hook_is_refused(url: str) -> None:
    with pytest.raises(CallerError):
        check_url(url)


def test_hooks_may_be_held_to_some_places(tmp_path: Path) -> None:
    others = ("https://evil.example/", "https://chat.example/hooks-evil", "https://chat.example.evil/hooks")

    async def work() -> None:
        async with opened(tmp_path / "inbox.db", allowed_hooks=["https://chat.example/hooks"]) as inbox:
            for wrong in others:
                with pytest.raises(CallerError, match="not told here"):
                    await inbox.hand_over(offices.pending(), caller="agent", hook=wrong)

    run(work())


def test_pauses_grow_and_end() -> None:
    hook: Hook | None = Hook("msg_1", "https://example.com/", "{}", NOW, NOW)
    dues = []
    while hook is not None and (hook := postponed(hook, NOW)) is not None:
        dues.append(hook.due - NOW)
    assert len(dues) == len(hooks.PAUSES)
    assert dues[0] < 10 < dues[1] < dues[-1]
    assert 24 * 3600 < sum(dues) < 7 * 24 * 3600


def test_who_asked_for_no_hook_is_told_nothing() -> None:
    assert told(offices.item(), "item.asked", NOW, None) == []


def test_an_inbox_tells_some_of_every_question_and_end_and_of_words_only_where_that_is_wanted(tmp_path: Path) -> None:
    async def work(url: str, hook: str, ear: Ear, words: bool) -> list[Any]:
        ear.heard.clear()
        file = tmp_path / f"{words}.db"
        async with opened(file, hooks=[f"{hook}&all=1", f"{hook}&all=2"], hook_words=words) as inbox:
            item = await inbox.hand_over(await begun(url), caller="agent", hook=hook)
            await ear.times(3)
            await inbox.answer(item.id, {"title": accept(title="a leak")}, round=0, by="ann")
            await until(inbox, item.id, asks("level"))
            await ear.times(3)
            await inbox.withdraw(item.id, by="ann")
            await ear.times(3)
            both = await inbox.hand_over(await begun(url), caller="agent", hook=f"{hook}&all=2")
            await ear.times(2)
            await settled(inbox)
        assert len({headers["webhook-id"] for headers, _ in ear.heard}) == len(ear.heard) == 11
        assert all(is_signed(headers, body, SECRET) for headers, body in ear.heard)
        bodies = [json.loads(body) for _, body in ear.heard]
        assert [body["data"]["id"] for body in bodies].count(both.id) == 2
        return [body["data"].get("words") for body in bodies if body["data"]["id"] == item.id]

    ear = Ear()
    with at_url(make_server()) as url, listening(ear) as hook:
        assert run(work(url, hook, ear, words=False)) == [None] * 9
        heard = run(work(url, hook, ear, words=True))
        assert heard.count(None) == 3, "what single calls named is told no words"
        assert heard.count({"title": "What is it about?"}) == 2
        assert heard.count({"level": "How bad is 'a leak'?"}) == 4


def test_the_words_of_a_question_are_told_up_to_a_length_and_never_those_of_a_reply() -> None:
    asked = {
        "long": offices.question("x" * 9000),
        "odd": {"method": "sampling/createMessage", "params": {"message": 3}},
    }
    [hook] = told(offices.item(requests=asked), "item.asked", NOW, None, Listeners(["https://chat.example/"], True))
    assert json.loads(hook.body)["data"]["words"] == {"long": "x" * hooks.MOST_WORDS, "odd": ""}


@pytest.mark.parametrize("options", [{"hook_secrets": []}, {"hooks": ["http://chat.example/"]}, {"hooks": ["x"]}])
def test_an_inbox_that_could_not_tell_its_hooks_is_not_made(tmp_path: Path, options: dict[str, Any]) -> None:
    facts = {"hook_secrets": [SECRET], "hooks": ["https://chat.example/"], **options}
    with pytest.raises(ValueError, match="hook"):
        Inbox(SQLiteInboxStore(tmp_path / "inbox.db", [offices.KEY]), **facts)


def test_the_command_tells_a_hook_of_every_question_with_its_words(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(ENVIRONMENT, "HOOKS", SECRET)
    (tmp_path / "tokens").write_text(TOKENS)
    ear = Ear()
    with listening(ear) as hook:
        options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", str(tmp_path / "tokens"), "--hook-words"]
        with started(*options, "--hook", hook, "--hook-secret-env", "HOOKS") as inbox:
            handed(inbox.line, offices.pending())
            run(ear.times(1))
    [(headers, body)] = ear.heard
    assert is_signed(headers, body, SECRET)
    assert json.loads(body)["data"]["words"] == {"title": "What?"}
    done = refused("inbox", "--port", "0", *options, "--hook", "https://chat.example/")
    assert (done.exit_code, "without a secret" in done.stderr) == (2, True)
