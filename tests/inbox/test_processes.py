"""Inboxes as real processes: killed between answers and while they carry a call on, two at a time on one store."""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.inbox import offices
from tests.inbox.offices import ANN, BOB, PATIENCE, Line, Reply, accept, at_url, make_server, run
from tests.unit.joined import ENVIRONMENT
from turnwise import Client, Context, Pending, _postgres
from turnwise.cli.app import app

IN_ORDER = -signal.SIGTERM
"""How a server ends that was told to: by the signal, after it has done what was to be done."""
COMMAND = [sys.executable, "-m", "turnwise.cli"]
TOKENS = f"# who may come in\nann:{ANN}\nbob: {BOB}\n"


class Process:
    """An inbox that was started by the command."""

    def __init__(self, *options: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "inbox", "--port", "0", *options],
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self.said: list[str] = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line)
            if found := re.match(r"The inbox is at (http://\S+)/", line):
                self.line = Line(found[1], None)  # type: ignore[arg-type] # it is in another process
                return
        raise AssertionError("".join(self.said))

    def until(self, words: str) -> str:
        """The next line with these words."""
        assert self._process.stderr is not None
        late = threading.Timer(PATIENCE, self._process.kill)  # Who waits for words that never come waits for ever.
        late.start()
        try:
            for line in self._process.stderr:
                self.said.append(line)
                if words in line:
                    return line
        finally:
            late.cancel()
        raise AssertionError("".join(self.said))

    def hear(self, number: int, words: str) -> str:
        """What it says of a signal."""
        self._process.send_signal(number)
        return self.until(words)

    def end(self, number: int = signal.SIGTERM) -> int:
        """How it ended."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(PATIENCE)
        if self._process.stderr is not None and not self._process.stderr.closed:
            self.said += self._process.stderr.readlines()
            self._process.stderr.close()
        return code


@contextmanager
def started(*options: str) -> Iterator[Process]:
    process = Process(*options)
    try:
        yield process
    finally:
        process.end(signal.SIGKILL)


@pytest.fixture
def tokens(tmp_path: Path) -> str:
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    path.chmod(0o600)
    return str(path)


def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return turnwise("call", *words, **variables)


def turnwise(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        env={**ENVIRONMENT, "INBOX_TOKEN": ANN, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def answer(line: Line, item: Any, token: str = ANN, **answers: Any) -> Reply:
    body = {"round": item["round"], "answers": answers}
    return line.call("POST", f"/items/{item['id']}/answers", body, token)


async def waited(url: str, line: Line, item_id: str) -> Any:
    async with Client(url, inbox=line.url, inbox_token=ANN) as client:
        return await client.wait_for(item_id)


def test_an_inbox_is_killed_between_answers_and_another_goes_on(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with at_url(make_server()) as url:
        with started(*options) as first:
            told = ["--inbox", first.line.url, "--inbox-token-env", "INBOX_TOKEN", "--leave", "--json"]
            left = call(url, "file", "kind=bug", *told)
            assert (left.returncode, left.stderr) == (0, "")
            found = json.loads(left.stdout)
            assert found["url"] == f"{first.line.url}/items/{found['item']}"
            item = first.line.call("GET", f"/items/{found['item']}").body
            assert answer(first.line, item, title=accept(title="a leak")).status == 200
            first.line.follow(item["id"], lambda seen: "level" in seen["questions"])
            assert first.end(signal.SIGKILL) == -signal.SIGKILL
        with started(*options) as second:
            item = second.line.call("GET", f"/items/{item['id']}").body
            assert list(item["questions"]) == ["level"]
            assert answer(second.line, item, BOB, level=accept(level=5)).status == 200
            item = second.line.follow(item["id"], lambda seen: "sure" in seen["questions"])
            assert answer(second.line, item, sure=accept(value=True)).status == 200
            result = run(waited(url, second.line, item["id"]))
            assert result.content[0].text == "bug: a leak (5) True"
            assert [one["by"] for one in second.line.call("GET", f"/items/{item['id']}").body["given"]] == [
                "ann",
                "bob",
                "ann",
            ]
            assert second.end() == IN_ORDER


def test_an_inbox_is_killed_while_it_carries_a_call_on_and_another_takes_it_over(tmp_path: Path, tokens: str) -> None:
    server, reached = make_server(), tmp_path / "reached"

    @server.tool()
    async def slow(ctx: Context) -> str:
        """Take a while after the answer, the first time."""
        await ctx.elicit("Ready?", bool, key="ready")
        if not reached.exists():
            reached.touch()
            import asyncio

            await asyncio.sleep(30)
        return "there"

    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--takeover", "1"]
    with at_url(server) as url, started(*options) as first, started(*options) as second:
        item = handed(first.line, run(offices.begun(url, "slow")))
        answer(first.line, item, ready=accept(value=True))
        # Either of the two may have taken it; the one that has it is the one whose connection the server holds.
        ends = time.monotonic() + PATIENCE
        while not reached.exists():
            assert time.monotonic() < ends
            time.sleep(0.02)
        busy, other = (first, second) if has_connection(first, url) else (second, first)
        busy.end(signal.SIGKILL)
        done = other.line.follow(item["id"], lambda seen: seen["status"] == "done")
        assert done["result"]["content"][0]["text"] == "there"


def test_a_call_is_sent_again_as_soon_as_the_takeover_says_and_not_while_it_is_carried_on(
    tmp_path: Path, tokens: str
) -> None:
    """Claims are renewed for as long as a call takes; those of a process that died are over within `--takeover`."""
    server, sent = make_server(), list[float]()

    @server.tool()
    async def slow(ctx: Context) -> str:
        """Take several times as long as a claim lasts."""
        await ctx.elicit("Ready?", bool, key="ready")
        sent.append(time.monotonic())
        import asyncio

        await asyncio.sleep(4)
        return "there"

    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--takeover", "1"]
    with at_url(server) as url, started(*options) as other:
        with started(*options) as first:
            item = handed(first.line, run(offices.begun(url, "slow")))
            answer(first.line, item, ready=accept(value=True))
            other.line.follow(item["id"], lambda seen: seen["status"] == "done")
            assert len(sent) == 1, "of two processes one has carried it on"
            other.end(signal.SIGKILL)
            item = handed(first.line, run(offices.begun(url, "slow")))
            answer(first.line, item, ready=accept(value=True))
            while len(sent) < 2:
                time.sleep(0.02)
            time.sleep(2)
            first.end(signal.SIGKILL)
            killed = time.monotonic()
        with started(*options) as second:
            up = time.monotonic()
            second.line.follow(item["id"], lambda seen: seen["status"] == "done")
            assert len(sent) == 3
            assert sent[2] - max(killed + 1, up) < 2


def has_connection(process: Process, url: str) -> bool:
    """Whether a process is connected to a server at this moment."""
    port = int(url.rpartition(":")[2].partition("/")[0])
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01"
    }
    folder = Path(f"/proc/{process._process.pid}/fd")
    return any(os.readlink(file) in {f"socket:[{inode}]" for inode in inodes} for file in folder.iterdir())


def handed(line: Line, pending: Pending, **terms: Any) -> Any:
    reply = line.call("POST", "/items", {"pending": json.loads(pending.to_json()), **terms})
    assert reply.status == 201, reply.body
    return reply.body


def test_two_processes_that_are_answered_at_once_take_one_answer_each_time(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with started(*options) as first, started(*options) as second:
        check_races(first.line, second.line)


def check_races(first: Line, second: Line) -> None:
    count = 6
    items = [handed(first, offices.pending(f"race{number}")) for number in range(count)]

    def race(line: Line, token: str) -> list[Reply]:
        return [answer(line, item, token, title=accept(value=token)) for item in items]

    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(race, (first, second), (ANN, BOB)))
    for item, ann, bob in zip(items, *outcomes, strict=True):
        assert sorted((ann.status, bob.status)) == [200, 409]
        winner = "ann" if ann.status == 200 else "bob"
        assert (bob if winner == "ann" else ann).body["by"] == winner
        for line in (first, second):
            assert [one["by"] for one in line.call("GET", f"/items/{item['id']}").body["given"]] == [winner]


def test_two_inboxes_on_postgres_share_what_waits_and_what_is_done(tmp_path: Path, tokens: str, postgres: Any) -> None:
    (tmp_path / "keys").write_text(secrets.token_urlsafe(32) + "\n")
    (tmp_path / "keys").chmod(0o600)
    server, rounds = make_server(), tmp_path / "rounds"

    @server.tool()
    async def once(number: int, ctx: Context) -> str:
        """Count how often it goes on."""
        answer = await ctx.elicit("Ready?", bool, key="ready")
        with rounds.open("a") as file:
            file.write(f"{number}\n")
        return f"{number} {answer.action}"

    options = ["--store", postgres.address, "--keys-file", str(tmp_path / "keys"), "--tokens-file", tokens]
    with at_url(server) as url, started(*options) as first, started(*options) as second:
        lines = (first.line, second.line)
        check_races(*lines)
        items = [handed(lines[number % 2], run(offices.begun(url, "once", number=number))) for number in range(6)]
        for number, item in enumerate(items):
            assert answer(lines[(number + 1) % 2], item, ready=accept(value=True)).status == 200
        for number, item in enumerate(items):
            done = lines[number % 2].follow(item["id"], lambda seen: seen["status"] == "done")
            assert done["result"]["content"][0]["text"] == f"{number} accept"
        assert sorted(rounds.read_text().split()) == [str(number) for number in range(6)]
        first.end(signal.SIGKILL)
        item = handed(second.line, run(offices.begun(url, "once", number=9)))
        answer(second.line, item, ready=accept(value=True))
        second.line.follow(item["id"], lambda seen: seen["status"] == "done")


def test_a_call_from_the_command_line_waits_for_the_people_at_the_inbox(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with at_url(make_server()) as url, started(*options) as inbox, ThreadPoolExecutor(1) as threads:
        told = ("--inbox", inbox.line.url, "--inbox-token-env", "INBOX_TOKEN")
        calling = threads.submit(call, url, "file", "kind=bug", *told)
        ends = time.monotonic() + PATIENCE
        while not (found := inbox.line.call("GET", "/items").body["items"]):
            assert time.monotonic() < ends
        answer(inbox.line, {"id": found[0]["id"], "round": 0}, title={"action": "decline"})
        done = calling.result()
        assert (done.returncode, done.stdout.strip()) == (0, "nothing was filed: decline")
        assert f"/items/{found[0]['id']}" in done.stderr
        left = json.loads(call(url, "file", "kind=bug", *told, "--leave", "--json").stdout)["item"]
        answer(inbox.line, {"id": left, "round": 0}, title={"action": "decline"})
        waited = turnwise("wait", left, *told)
        assert (waited.returncode, waited.stdout.strip()) == (0, "nothing was filed: decline")
        refused = turnwise("wait", left, *told, INBOX_TOKEN="a wrong token, and long enough")
        assert (refused.returncode, "401" in refused.stderr, "--inbox-token-env" in refused.stderr) == (7, True, True)
        told = ("--inbox", f"{inbox.line.url}/api/v1", *told[2:])
        assert json.loads(call(url, "file", "kind=bug", *told, "--leave", "--json").stdout)["item"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--leave"], "belong to --inbox"),
        (["--inbox-token-env", "X"], "belong to --inbox"),
        (["--inbox", "http://127.0.0.1:9", "--inbox-token-env", "NOT_SET"], "no variable of the name"),
        (["--inbox", "ftp://inbox"], "not the URL of an inbox"),
    ],
)
def test_a_call_with_options_that_do_not_go_together_is_wrong_usage(words: list[str], told: str) -> None:
    done = refused("call", "http://127.0.0.1:9/mcp", "file", *words)
    assert (done.exit_code, told in re.sub(r"[\s│]+", " ", done.stderr)) == (2, True)


# The command itself


def test_a_key_and_a_token_are_drawn_where_none_is_given_and_said_in_a_line_each(tmp_path: Path) -> None:
    store, key = tmp_path / "inbox.db", tmp_path / "inbox.db.key"
    with started("--store", str(store)) as inbox:
        [line] = [line for line in inbox.said if "key" in line]
        assert str(key) in line
        assert (key.stat().st_mode & 0o777, store.stat().st_mode & 0o777) == (0o600, 0o600)
        drawn = key.read_text()
        assert inbox.line.call("GET", "/items", token=ANN).status == 401
        assert inbox.end() == IN_ORDER
        [login] = [line for line in inbox.said if "Sign in" in line]
        assert f"{inbox.line.url}/login with the token in {store}.token" in login
        token = (tmp_path / "inbox.db.token").read_text().strip()
        assert token not in "".join(inbox.said), "what is no terminal keeps what it is told"
    with started("--store", str(store)) as again:
        assert key.read_text() == drawn
        assert not [line for line in again.said if "key" in line]
        assert again.end() == IN_ORDER
        [login] = [line for line in again.said if "Sign in" in line]
        assert again.line.url in login
        assert (tmp_path / "inbox.db.token").read_text().strip() == token, "who waits goes on waiting"
        assert (tmp_path / "inbox.db.token").stat().st_mode & 0o777 == 0o600
    key.unlink()
    lost = refused("inbox", "--port", "0", "--store", str(store))
    assert (lost.exit_code, "is not there" in lost.stderr) == (2, True)


def refused(*words: str, **variables: str) -> Any:
    """A command that ends before it serves, in this process."""
    return CliRunner().invoke(app, [*words], env=variables)


def test_what_is_wrong_with_its_options_is_said_and_the_inbox_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres, "PAUSES", ())
    (tmp_path / "short").write_text("ann:short\n")
    (tmp_path / "none").write_text("# nobody\n")
    (tmp_path / "good").write_text(TOKENS)
    (tmp_path / "odd").write_text("ann\n")
    store = ["--store", str(tmp_path / "inbox.db")]
    nowhere = "postgresql://nobody@127.0.0.1:9/none"
    for name, content in (("odd.db.token", b"\xff\xfe"), ("bare.db.token", b""), ("bare.db.key", b"k" * 40)):
        (tmp_path / name).write_bytes(content)
    cases: list[tuple[list[str], int, str]] = [
        ([*store, "--keys-file", "a", "--keys-env", "B"], 2, "not both"),
        ([*store, "--keys-env", "NOT_SET"], 2, "not set"),
        ([*store, "--tokens-file", str(tmp_path / "short")], 2, "at least 20"),
        ([*store, "--tokens-file", str(tmp_path / "none")], 2, "no token"),
        ([*store, "--tokens-file", str(tmp_path / "odd")], 2, "line 1"),
        ([*store, "--tokens-file", str(tmp_path / "missing")], 2, "No such file"),
        (["--store", str(tmp_path / "odd.db")], 2, "odd.db.token: is no text"),
        (["--store", str(tmp_path / "bare.db")], 2, "bare.db.token: the token of 'owner'"),
        ([*store, "--hook-secret-env", "HOOKS"], 2, "whsec_"),
        ([*store, "--hook-secret-env", "NOT_SET"], 2, "not set"),
        ([*store, "--log-level", "loud"], 2, "a level is one of"),
        (["--store", nowhere], 2, "--keys-file or --keys-env"),
        (["--store", nowhere, "--keys-env", "KEYS"], 2, "--tokens-file"),
        (["--store", nowhere, "--keys-env", "KEYS", "--tokens-file", str(tmp_path / "good")], 3, "cannot be used"),
        (["--store", str(tmp_path / "no" / "folder" / "inbox.db")], 2, "a folder that is there"),
        (["--store", "mysql://somewhere/inbox"], 2, "--store is the path of a file"),
        ([*store, "--url", "inbox.example.com"], 2, "https://inbox.example.com"),
        ([*store, "--url", "https://x.example/api/inbox"], 2, "cannot be put under /api/inbox"),
        ([*store, "--url", "https://x.example/?a=b"], 2, "neither ? nor #"),
    ]
    for options, code, words in cases:
        done = refused("inbox", "--port", "0", *options, HOOKS="secret", KEYS="k" * 40)
        assert (done.exit_code, words in re.sub(r"[\s│]+", " ", done.stderr)) == (code, True), (options, done.stderr)


@pytest.mark.parametrize("missing", ["jinja2", "fastapi"])
def test_what_an_inbox_needs_is_told_before_anything_is_drawn(
    tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("turnwise.inbox", missing))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = refused("inbox", "--port", "0", "--store", str(tmp_path / "inbox.db"))
    assert (done.exit_code, "pip install 'turnwise[inbox]'" in done.stderr) == (3, True)
    assert [*tmp_path.iterdir()] == []


def test_what_a_store_in_postgresql_needs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in ("turnwise._postgres", "turnwise.inbox.postgres"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "tokens").write_text(TOKENS)
    told = ("--keys-env", "KEYS", "--tokens-file", str(tmp_path / "tokens"))
    done = refused("inbox", "--port", "0", "--store", "postgresql://nobody@127.0.0.1:9/none", *told, KEYS="k" * 40)
    assert (done.exit_code, "turnwise[postgres]" in done.stderr) == (3, True)


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ("--store", str(tmp_path / "inbox.db"), "--port", str(taken.getsockname()[1]))
        done = refused("inbox", *options)
    assert (done.exit_code, "in use" in done.stderr, "key" in done.stderr) == (3, True, False)
    assert list(tmp_path.iterdir()) == [], "nothing is drawn or made for it"


def keys_in(path: Path, *keys: str) -> str:
    path.write_text("\n".join(keys) + "\n")
    path.chmod(0o600)
    return str(path)


def test_a_store_that_no_key_opens_is_not_served(tmp_path: Path, tokens: str) -> None:
    old, new, odd = (secrets.token_urlsafe(32) for _ in range(3))
    keys = keys_in(tmp_path / "keys", old)
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--keys-file", keys]
    with started(*options) as inbox:
        handed(inbox.line, offices.pending("first"))
        assert inbox.line.call("DELETE", "/items/first").status == 200
        inbox.end()
    keys_in(tmp_path / "keys", odd)
    done = refused("inbox", "--port", "0", *options)
    assert (done.exit_code, f"1 call, sealed under other keys than those of {keys}" in done.stderr) == (3, True)
    keys_in(tmp_path / "keys", new, old)
    with started(*options) as inbox:
        assert not [line for line in inbox.said if "cannot be read" in line]
        assert inbox.line.call("GET", "/items/first").status == 200
        handed(inbox.line, offices.pending("second"))
        inbox.end()
    keys_in(tmp_path / "keys", new)
    with started(*options) as inbox:
        assert [line for line in inbox.said if "1 call of 2 in the store cannot be read" in line]
        assert inbox.line.call("GET", "/items/second").status == 200
        assert inbox.line.call("GET", "/items/first").status == 503


HASTY = """
import os, signal
from turnwise.cli import inbox, main
serve = inbox._serve
def hasty(*facts):
    os.kill(os.getpid(), signal.SIGHUP)
    return serve(*facts)
inbox._serve = hasty
main()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_what_is_to_be_read_again_while_the_inbox_starts_is_read_once_it_serves(
    tmp_path: Path, tokens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.COMMAND", [sys.executable, "-c", HASTY])
    with started("--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens) as inbox:
        assert [line for line in inbox.said if "2 tokens from" in line] or inbox.until("2 tokens from")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_keys_and_tokens_are_read_again_and_bad_ones_are_not_taken(tmp_path: Path, tokens: str) -> None:
    old, new, odd = (secrets.token_urlsafe(32) for _ in range(3))
    keys = keys_in(tmp_path / "keys", old)
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--keys-file", keys]
    with started(*options) as inbox:
        handed(inbox.line, offices.pending("first"))
        for text in ("short", "", odd):
            keys_in(tmp_path / "keys", text)
            inbox.hear(signal.SIGHUP, "the keys stay as they are: ")
            assert inbox.line.call("GET", "/items/first").status == 200
            inbox.until("2 tokens from")
        keys_in(tmp_path / "keys", new, old)
        for text in ("ann:short\n", "# nobody\n", f"ann:{ANN}\nann\n"):
            Path(tokens).write_text(text)
            inbox.hear(signal.SIGHUP, "the tokens stay as they are: ")
            assert inbox.line.call("GET", "/items", token=BOB).status == 200
        Path(tokens).write_text(f"ann:{ANN}\ncyd:{ANN[::-1]}\n")
        inbox.hear(signal.SIGHUP, "2 tokens from")
        assert inbox.line.call("GET", "/items", token=BOB).status == 401
        assert inbox.line.call("GET", "/items", token=ANN[::-1]).status == 200
        handed(inbox.line, offices.pending("second"))
        assert inbox.line.call("GET", "/items/first").status == 200
        inbox.end()
    keys_in(tmp_path / "keys", new)
    with started(*options) as inbox:
        assert inbox.line.call("GET", "/items/second").status == 200, "it was sealed under the new key"
        assert inbox.line.call("GET", "/items/first").status == 200, "it was sealed anew, because it is open"


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_a_key_is_dropped_once_nothing_that_is_open_needs_it_and_not_before(tmp_path: Path, tokens: str) -> None:
    old, new = (secrets.token_urlsafe(32) for _ in range(2))
    keys = keys_in(tmp_path / "keys", old)
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--keys-file", keys]
    with started(*options) as inbox:
        for name in ("ended", "first", "second"):
            handed(inbox.line, offices.pending(name))
        assert inbox.line.call("DELETE", "/items/ended").status == 200
        keys_in(tmp_path / "keys", new)
        assert "opens 2 open calls" in inbox.hear(signal.SIGHUP, "the keys stay as they are: ")
        keys_in(tmp_path / "keys", new, old)
        inbox.hear(signal.SIGHUP, "2 keys from")
        keys_in(tmp_path / "keys", new)
        ends = time.monotonic() + PATIENCE
        inbox.until("tokens from")
        while inbox.hear(signal.SIGHUP, "tokens from") and not [line for line in inbox.said if "1 key from" in line]:
            assert time.monotonic() < ends
            time.sleep(0.05)
        for name, status in (("first", 200), ("second", 200), ("ended", 503)):
            assert inbox.line.call("GET", f"/items/{name}").status == status
        inbox.end()
        assert [line for line in inbox.said if "1 call of 3 in the store cannot be read" in line]


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal")
def test_what_was_drawn_is_read_again_too(tmp_path: Path) -> None:
    with started("--store", str(tmp_path / "inbox.db")) as inbox:
        (tmp_path / "inbox.db.token").write_text(f"{ANN}\n")
        inbox.hear(signal.SIGHUP, "1 token from")
        assert inbox.line.call("GET", "/items", token=ANN).status == 200


def test_who_waits_is_let_go_when_the_inbox_is_told_to_end(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with started(*options) as inbox, ThreadPoolExecutor(1) as threads:
        item = handed(inbox.line, offices.pending())
        waiting = threads.submit(inbox.line.call, "GET", f"/items/{item['id']}?wait=15&revision={item['revision']}")
        time.sleep(0.3)
        began = time.monotonic()
        assert inbox.end() == IN_ORDER
        assert time.monotonic() - began < 5
        assert waiting.result().body["revision"] == item["revision"]
