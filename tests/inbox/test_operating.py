"""What somebody who looks after an inbox sees: lines with time and level, probes, figures, and no secrets anywhere."""

import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.inbox.offices import ANN, PATIENCE, SECRET, accept, at_url, begun, make_server, run
from tests.inbox.test_processes import COMMAND, Process, answer, handed, started, tokens
from tests.ports import free_port
from tests.unit.joined import ENVIRONMENT
from turnwise import RequestStateSecurity

__all__ = ["tokens"]

STAMPED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING|ERROR) turnwise\.")
ODD = "a wrong token, which is long enough"


def get(url: str, **headers: str) -> tuple[int, str]:
    """A status and a text."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def sign_in(url: str, token: str) -> int:
    body = f"token={token.replace(' ', '+')}".encode()
    asking = urllib.request.Request(f"{url}/login", body)
    opener = urllib.request.build_opener(_Stay)
    try:
        with opener.open(asking, timeout=PATIENCE) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def lines_of(process: Process) -> list[str]:
    """What it said, once it has ended."""
    process.end()
    return process.said


def only(lines: list[str], words: str) -> str:
    [line] = [line for line in lines if words in line]
    assert STAMPED.match(line), line
    return line


def test_the_log_says_who_came_who_was_refused_and_what_became_of_calls(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with at_url(make_server()) as url, started(*options) as inbox:
        assert sign_in(inbox.line.url, ODD) == 403
        assert sign_in(inbox.line.url, ANN) == 303
        assert inbox.line.call("GET", "/items", token=ODD).status == 401
        item = handed(inbox.line, run(begun(url)), caller="nightly")
        answer(inbox.line, item, title=accept(title="a secret leak"))
        item = inbox.line.follow(item["id"], lambda seen: "level" in seen["questions"])
        assert inbox.line.call("DELETE", f"/items/{item['id']}").status == 200
        failed = handed(inbox.line, run(begun(url, "fail")))
        answer(inbox.line, failed, title=accept(title="a secret leak"))
        inbox.line.follow(failed["id"], lambda seen: seen["status"] == "failed")
        lines = lines_of(inbox)
    assert "from 127.0.0.1 with 403: a wrong token" in only(lines, "refused POST /login")
    assert "from 127.0.0.1 with 401: no token, or a wrong one" in only(lines, "refused GET /api/v1/items")
    only(lines, "ann signed in")
    named = f"call {item['id']} (file at {url})"
    assert only(lines, f"{named} was handed over by ann").strip().endswith(" for nightly")
    only(lines, f"{named} was answered by ann (title: accept)")
    only(lines, f"{named} asks again: round 1")
    assert re.search(r"is failed after \d+ s: withdrawn by ann", only(lines, f"{named} is failed"))
    only(lines, f"call {failed['id']} (fail at {url}) is failed after")
    for secret in (ANN, ODD, "a secret leak", "What is it about"):
        assert secret not in "".join(lines)


def test_the_log_says_which_call_was_begun_anew_and_which_waits_for_its_server(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    security = RequestStateSecurity(keys=["another key of the server that asks"])
    port = free_port()
    with started(*options) as inbox:
        with at_url(make_server(), port) as url:
            item = handed(inbox.line, run(begun(url)), restart_expired=True)
        answer(inbox.line, item, title=accept(title="a leak"))
        inbox.until("waits for its server, and is tried again in")
        with at_url(make_server(request_state_security=security), port):
            inbox.line.follow(item["id"], lambda seen: "level" in seen["questions"])
        lines = lines_of(inbox)
    assert f"call {item['id']} (file at {url}) is begun anew, as its caller wished" in only(lines, "is begun anew")


def test_the_log_says_which_hooks_fail_and_when_they_are_tried_again(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--hook-secret-env", "HOOKS"]
    hook = f"http://127.0.0.1:{free_port()}/in/secret?key=secret"
    ENVIRONMENT["HOOKS"] = SECRET
    try:
        with at_url(make_server()) as url, started(*options) as inbox:
            handed(inbox.line, run(begun(url)), hook=hook)
            line = inbox.until("was not taken by")
    finally:
        del ENVIRONMENT["HOOKS"]
    assert STAMPED.match(line)
    assert re.search(
        r"hook msg_\w+ was not taken by http://127.0.0.1:\d+ \(tried once\), and is tried again in \d+ s", line
    )
    assert "secret" not in line


def test_a_host_that_is_not_served_is_named_and_logged_once(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--url", "https://inbox.example.com"]
    with started_at(*options) as (process, url):
        for path in ("/login", "/api/v1/items", "/login"):
            status, text = get(f"{url}{path}", Host="inbox.example.com.evil:99")
            assert status == 421
            for words in ("inbox.example.com.evil:99", "--allowed-host", "--url"):
                assert words in text
        assert get(f"{url}/login", Host="inbox.example.com")[0] == 200
        lines = lines_of(process)
    assert "inbox.example.com.evil:99" in only(lines, "a request for the Host")


class started_at:
    """An inbox whose address is its port: it is reached by another URL."""

    def __init__(self, *options: str) -> None:
        self._port = free_port()
        self._process = _Placed(self._port, *options)

    def __enter__(self) -> tuple[Process, str]:
        return self._process, f"http://127.0.0.1:{self._port}"

    def __exit__(self, *_: object) -> None:
        self._process.end(9)


class _Placed(Process):
    def __init__(self, port: int, *options: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "inbox", "--port", str(port), *options],
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self.said = []
        self.until("The inbox is at")


def test_probes_need_no_token_and_readiness_is_the_stores(tmp_path: Path, tokens: str) -> None:
    path = tmp_path / "inbox.db"
    with started("--store", str(path), "--tokens-file", tokens) as inbox:
        for probe in ("/healthz", "/readyz"):
            assert get(f"{inbox.line.url}{probe}", Host="10.0.0.7:8420") == (200, "ok\n")
        database = sqlite3.connect(path)
        database.execute("ALTER TABLE inbox_hooks RENAME TO gone")
        database.commit()
        assert get(f"{inbox.line.url}/readyz") == (503, "the store does not answer\n")
        assert get(f"{inbox.line.url}/healthz")[0] == 200
        database.execute("ALTER TABLE gone RENAME TO inbox_hooks")
        database.commit()
        database.close()
        assert eventually(lambda: get(f"{inbox.line.url}/readyz")[0] == 200)


def eventually(condition: Callable[[], bool]) -> bool:
    ends = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < ends:
        time.sleep(0.05)
    return condition()


def test_figures_tell_what_waits_what_was_answered_and_what_ended(tmp_path: Path, tokens: str) -> None:
    port = free_port()
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with at_url(make_server()) as url, started(*options) as first:
        handed(first.line, run(begun(url)))
        first.end()
    with at_url(make_server()) as url, started(*options, "--metrics-port", str(port)) as inbox:
        ended = handed(inbox.line, run(begun(url)))
        answer(inbox.line, ended, title={"action": "decline"})
        inbox.line.follow(ended["id"], lambda seen: seen["status"] == "done")
        text = get(f"http://127.0.0.1:{port}/metrics")[1]
    for figure in (
        'turnwise_inbox_items{status="waiting"} 1.0',
        'turnwise_inbox_items{status="going"} 0.0',
        "turnwise_inbox_taken_total 1.0",
        'turnwise_inbox_answers_total{action="decline"} 1.0',
        'turnwise_inbox_ended_total{status="done"} 1.0',
    ):
        assert figure in text, text
    assert re.search(r"turnwise_inbox_oldest_waiting_seconds \d", text)


def test_a_port_for_figures_that_is_taken_is_told(tmp_path: Path, tokens: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["inbox", "--port", "0", "--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
        done = subprocess.run(
            [*COMMAND, *words, "--metrics-port", port],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, f"--metrics-port {port}" in done.stderr) == (3, True)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
def test_the_token_is_printed_where_a_person_looks(tmp_path: Path) -> None:
    import pty

    main, side = pty.openpty()
    command = [*COMMAND, "inbox", "--port", "0", "--store", str(tmp_path / "inbox.db")]
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=side, stdout=subprocess.DEVNULL)
    os.close(side)
    try:
        seen = b""
        while b"with the token" not in seen or not seen.rstrip(b" ").endswith(b"\n"):
            seen += os.read(main, 4096)
        assert (tmp_path / "inbox.db.token").read_text().strip() in re.sub(r"\s+", "", seen.decode())
    finally:
        process.kill()
        process.wait()
        os.close(main)
