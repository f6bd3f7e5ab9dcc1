"""The wires that open with `initialize` over real processes: sockets that break, proxies that lose patience, standard
streams, and a shutdown in good order.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

import pytest

from tests.ports import free_port
from tests.unit.handshaken import (
    META,
    NEWEST,
    Json,
    accept,
    answering,
    calling,
    cancelling,
    notification,
    opening,
    request,
    text,
)

PATIENCE = 10.0
IDLE = 1.5
"""Seconds of silence after which the proxies of these tests close a connection."""
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")

SERVER = r"""
import asyncio, sys
from turnwise import AccessToken, AuthSettings, Change, Context, MCPServer

class Verifier:
    async def verify_token(self, token):
        here = {"issuer": "https://login.example.com", "resource": "http://127.0.0.1/mcp"}
        return None if token == "none" else AccessToken(token, "app", ["read"], subject=token, **here)

options = {}
if "guarded" in sys.argv:
    settings = AuthSettings(issuer_url="https://login.example.com", resource_server_url="http://127.0.0.1/mcp")
    options = {"token_verifier": Verifier(), "auth": settings}
server = MCPServer("process", **options)
gate = asyncio.Event()

def note(text):
    print(text, file=sys.stderr, flush=True)

@server.tool()
async def ask(ctx: Context, times: int = 1) -> str:
    answers = []
    for number in range(times):
        answer = await ctx.elicit(f"Question {number}?", str)
        answers.append(getattr(answer, "data", answer.action))
    return ",".join(answers)

@server.tool()
async def work(ctx: Context, aloud: bool = True) -> str:
    if aloud:
        await ctx.report_progress(1)
    note("working")
    try:
        await gate.wait()
    except asyncio.CancelledError:
        note("cancelled")
        raise
    note("worked")
    return "worked"

@server.tool()
async def open_gate(ctx: Context) -> str:
    gate.set()
    gate.clear()
    return "open"

@server.tool()
async def touch(ctx: Context, uri: str) -> str:
    await ctx.notify_resource_updated(uri)
    await ctx.notify_tools_changed()
    return "touched"

@server.resource("memo://today")
async def today() -> str:
    return "rain"

if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    keepalive = {} if sys.argv[1] == "http" else {"keepalive": float(sys.argv[1])}
    server.run("http", port=0, **keepalive)
"""


class Process:
    """A server, and what it says on standard error."""

    def __init__(self, *arguments: str) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-c", SERVER, *arguments]
        self.popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.lines: Queue[bytes] = Queue()
        self.log: list[str] = []
        self._news: Queue[str] = Queue()
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_log)]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.put(line)

    def _read_log(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.log.append(line.decode().rstrip())
            self._news.put(self.log[-1])

    def until_logged(self, pattern: str) -> str:
        while not (found := re.search(pattern, self._news.get(timeout=PATIENCE))):
            pass
        return found[found.lastindex or 0]

    def write(self, *messages: Any) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self.popen.stdin.flush()

    def hang_up(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def read(self) -> Json:
        message: Json = json.loads(self.lines.get(timeout=PATIENCE))
        return message

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait()
        for reader in self._readers:
            reader.join(PATIENCE)
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@contextmanager
def running(*arguments: str) -> Iterator[Process]:
    process = Process(*arguments)
    try:
        yield process
        assert not [line for line in process.log if "Traceback" in line], process.log
    finally:
        process.close()


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[Process, int]]:
    """A server over HTTP, and its port."""
    with running(*arguments) as process:
        yield process, int(process.until_logged(r"running on http://127\.0\.0\.1:(\d+)"))


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Process, int]]:
    with serving("http") as started:
        yield started


class Event(NamedTuple):
    """A server-sent event; one without an id and a message is a comment."""

    id: str | None
    message: Any


class Stream:
    """A response that is a stream, and its connection."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        assert (response.status, response.headers["content-type"]) == (200, "text/event-stream")
        self._connection = connection
        self._response = response
        self.last = ""

    def next(self) -> Event | None:
        """The next event or comment; None at the end."""
        lines = []
        while (line := self._response.readline()) not in (b"\r\n", b""):
            lines.append(line.decode().rstrip("\r\n"))
        if not line:
            return None
        fields = dict(field.split(": ", 1) for field in lines if not field.startswith(":"))
        self.last = fields.get("id", self.last)
        return Event(fields.get("id"), json.loads(fields["data"]) if fields.get("data") else None)

    def message(self) -> Json:
        """The next message."""
        while (event := self.next()) is None or event.message is None:
            assert event is not None, "the stream has ended"
        message: Json = event.message
        return message

    def close(self) -> None:
        """Hang up, at once."""
        self._response.close()
        self._connection.close()


class Client:
    """A client with a session; each exchange has a connection of its own."""

    def __init__(self, port: int, token: str | None = None, version: str = NEWEST) -> None:
        self.port = port
        self.headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        self._open: list[http.client.HTTPConnection] = []
        self._responses: list[http.client.HTTPResponse] = []
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        response = self.send("POST", opening(version))
        assert response.status == 200, response.read()
        self.headers["Mcp-Session-Id"] = response.headers["mcp-session-id"]
        self.headers["MCP-Protocol-Version"] = json.loads(response.read())["result"]["protocolVersion"]
        assert self.status(notification("notifications/initialized")) == 202

    def send(self, verb: str, message: Any = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE * 2)
        self._open.append(connection)
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(verb, "/mcp", None if message is None else json.dumps(message), {**self.headers, **more})
        self._responses.append(connection.getresponse())
        return self._responses[-1]

    def status(self, message: Any) -> int:
        response = self.send("POST", message)
        response.read()
        return response.status

    def stream(self, verb: str, message: Any = None, **headers: str) -> Stream:
        response = self.send(verb, message, **headers)
        return Stream(self._open[-1], response)

    def call(self, tool: str, **arguments: Any) -> Json:
        reply: Json = json.loads(self.send("POST", calling(tool, arguments, id="now")).read())
        return reply

    def close(self) -> None:
        for response in self._responses:
            response.close()
        for connection in self._open:
            connection.close()


@contextmanager
def talking(port: int, token: str | None = None, version: str = NEWEST) -> Iterator[Client]:
    client = Client(port, token, version)
    try:
        yield client
    finally:
        client.close()


# HTTP


def test_a_question_is_asked_on_the_stream_of_its_call_and_answered_by_another_post(
    served: tuple[Process, int],
) -> None:
    with talking(served[1]) as client:
        stream = client.stream("POST", calling("ask", {"times": 2}))
        for number in range(2):
            question = stream.message()
            assert question["params"]["message"] == f"Question {number}?"
            assert client.status(answering(question, accept(value=f"answer {number}"))) == 202
        assert text(stream.message()) == "answer 0,answer 1"
        assert stream.next() is None


def test_the_stream_of_get_is_open_before_anything_is_said(served: tuple[Process, int]) -> None:
    with talking(served[1]) as client:
        began = time.monotonic()
        stream = client.stream("GET")
        assert time.monotonic() - began < 5
        assert client.status(request("resources/subscribe", {"uri": "memo://today"})) == 200
        client.call("touch", uri="memo://today")
        assert stream.message() == notification("notifications/resources/updated", {"uri": "memo://today"})
        assert stream.message() == notification("notifications/tools/list_changed", {})
        response = client.send("DELETE")
        assert (response.status, response.read()) == (204, b"")
        assert stream.next() is None
        assert client.send("GET").status == 404


def test_a_client_whose_socket_breaks_has_not_cancelled_and_goes_on_where_it_was(served: tuple[Process, int]) -> None:
    with talking(served[1]) as client:
        stream = client.stream("POST", calling("ask", {"times": 2}))
        question, last = stream.message(), stream.last
        stream.close()
        assert client.status(answering(question, accept(value="one"))) == 202
        stream = client.stream("GET", last_event_id=last)
        question = stream.message()
        stream.close()
        again = client.stream("GET", last_event_id=last)
        assert again.message() == question
        assert client.status(answering(question, accept(value="two"))) == 202
        assert text(again.message()) == "one,two"
        assert again.next() is None


@pytest.mark.parametrize("aloud", [False, True])
def test_a_call_goes_on_when_its_client_hangs_up(served: tuple[Process, int], aloud: bool) -> None:
    process, port = served
    with talking(port) as client:
        raw = socket.create_connection(("127.0.0.1", port), PATIENCE)
        sent = json.dumps(calling("work", {"aloud": aloud}, progressToken=1)).encode()
        lines = {**client.headers, "Host": f"127.0.0.1:{port}", "Content-Length": str(len(sent))}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        raw.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + sent)
        process.until_logged("^working$")
        heard = b""
        while aloud and b"notifications/progress" not in heard:
            heard += raw.recv(65536)
        raw.close()
        while client.call("open_gate") and "worked" not in process.log[-1]:
            pass
        assert "cancelled" not in process.log
        if aloud:
            last = re.search(rb"id: (\S+)", heard)
            assert last is not None
            rest = client.stream("GET", last_event_id=last[1].decode())
            while "result" not in (message := rest.message()):
                assert message["method"] == "notifications/progress"
            assert text(message) == "worked"
        process.log.clear()


@pytest.mark.parametrize("tool", ["ask", "work"])
def test_a_call_that_is_cancelled_says_nothing_more(served: tuple[Process, int], tool: str) -> None:
    process, port = served
    with talking(port) as client:
        stream = client.stream("POST", calling(tool, id="it", progressToken=1))
        stream.message()
        if tool == "work":
            process.until_logged("^working$")
        assert client.status(cancelling("it")) == 202
        if tool == "work":
            process.until_logged("^cancelled$")
        assert stream.next() is None
        assert client.status(answering({"id": 1}, accept(value="late"))) == 202
        assert client.status(request("ping")) == 200


def test_a_session_is_worth_nothing_in_other_hands() -> None:
    with serving("http", "guarded") as (_, port), talking(port, "alice") as alice, talking(port, "bob") as bob:
        stream = alice.stream("POST", calling("ask", id=1))
        question, last = stream.message(), stream.last
        stolen = {"Mcp-Session-Id": alice.headers["Mcp-Session-Id"]}
        for verb, message, more in (
            ("POST", request("ping"), {}),
            ("POST", answering(question, accept(value="forged")), {}),
            ("POST", cancelling(1), {}),
            ("GET", None, {}),
            ("GET", None, {"Last-Event-ID": last}),
            ("DELETE", None, {}),
        ):
            response = bob.send(verb, message, **stolen, **more)
            told = json.loads(response.read())["error"]["message"]
            unknown = bob.send(verb, message, **more, **{"Mcp-Session-Id": "x" * 32})
            assert (response.status, told) == (unknown.status, json.loads(unknown.read())["error"]["message"])
            assert response.status == 404
            assert bob.send(verb, message, **stolen, Authorization="Bearer none").status == 401
        assert alice.status(answering(question, accept(value="mine"))) == 202
        assert text(stream.message()) == "mine"


def test_a_shutdown_ends_streams_and_what_waits_for_a_person_in_good_order() -> None:
    with serving("http") as (process, port), talking(port) as client:
        listening = client.stream("GET")
        asking = client.stream("POST", calling("ask"))
        asking.message()
        process.popen.send_signal(signal.SIGTERM)
        assert "shutting down; call again" in str(asking.next())
        while listening.next() is not None:
            pass
        assert process.popen.wait(PATIENCE) in (0, -signal.SIGTERM)


# Proxies that lose patience


class Proxy:
    """A proxy that closes what was silent for a while, as many do."""

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._upstream))
                far.settimeout(IDLE)
                self._sockets += [near, far]
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass, args=(far, near), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for end in self._sockets:
            end.close()


@contextmanager
def proxied(upstream: int) -> Iterator[int]:
    proxy = Proxy(upstream)
    try:
        yield proxy.port
    finally:
        proxy.close()


CONFIGURED = """
daemon off; master_process off; pid {place}/pid; error_log stderr warn;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://127.0.0.1:{upstream}; proxy_set_header Host 127.0.0.1:{upstream}; {more} }}
  }}
}}
"""


@contextmanager
def nginx(upstream: int, place: Path, more: str = f"proxy_read_timeout {int(IDLE * 1000)}ms;") -> Iterator[int]:
    """nginx as it comes, but for its patience."""
    assert NGINX is not None
    port = free_port()
    (place / "conf").write_text(CONFIGURED.format(place=place, port=port, upstream=upstream, more=more))
    process = subprocess.Popen([NGINX, "-p", str(place), "-c", str(place / "conf")], stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        _until_open(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stderr.close()


def _until_open(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
            return
    raise AssertionError("nginx did not start")


needs_nginx = pytest.mark.skipif(NGINX is None, reason="needs nginx, which is not installed here")
proxies = pytest.mark.parametrize("kind", ["own", pytest.param("nginx", marks=needs_nginx)])


@contextmanager
def between(kind: str, upstream: int, place: Path) -> Iterator[int]:
    with proxied(upstream) if kind == "own" else nginx(upstream, place) as port:
        yield port


@pytest.fixture(scope="module")
def lively() -> Iterator[int]:
    with serving("0.3") as (_, port):
        yield port


def comments(stream: Stream, seconds: float) -> int:
    """How often the server shows that it is there, before so much time has passed."""
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        event = stream.next()
        assert event == (None, None), event
        count += 1
    return count


@proxies
def test_a_proxy_does_not_cut_the_streams_of_a_question_and_of_get_while_a_person_thinks(
    lively: int, kind: str, tmp_path: Path
) -> None:
    with between(kind, lively, tmp_path) as port, talking(port) as client:
        listening = client.stream("GET")
        stream = client.stream("POST", calling("ask"))
        question = stream.message()
        assert comments(stream, IDLE * 1.4) >= 4
        assert client.status(answering(question, accept(value="thought"))) == 202
        assert text(stream.message()) == "thought"
        assert stream.next() is None
        client.call("touch", uri="memo://other")
        assert listening.message()["method"] == "notifications/tools/list_changed"


@proxies
def test_a_stream_that_a_proxy_did_cut_is_taken_up_again(
    served: tuple[Process, int], kind: str, tmp_path: Path
) -> None:
    with between(kind, served[1], tmp_path) as port, talking(port) as client:
        stream = client.stream("POST", calling("ask"))
        question, last = stream.message(), stream.last
        with suppress(http.client.IncompleteRead, ConnectionError):
            assert stream.next() is None  # Without a word for so long: this proxy has had enough.
        stream.close()
        again = client.stream("GET", last_event_id=last)
        assert client.status(answering(question, accept(value="thought"))) == 202
        assert text(again.message()) == "thought"


@needs_nginx
@pytest.mark.skipif(os.environ.get("TURNWISE_SLOW") != "1", reason="takes 75 seconds: TURNWISE_SLOW=1")
def test_a_person_may_think_for_a_minute_behind_nginx_as_it_comes(served: tuple[Process, int], tmp_path: Path) -> None:
    with nginx(served[1], tmp_path, more="") as port, talking(port) as client:
        stream = client.stream("POST", calling("ask"))
        question, began = stream.message(), time.monotonic()
        seen = comments(stream, 65)
        print(f"{seen} comments in {time.monotonic() - began:.1f} s")
        assert seen >= 4
        assert client.status(answering(question, accept(value="thought"))) == 202
        assert text(stream.message()) == "thought"


# Standard streams


@contextmanager
def line() -> Iterator[Process]:
    with running("stdio") as process:
        process.write(opening())
        assert process.read()["result"]["protocolVersion"] == NEWEST
        process.write(notification("notifications/initialized"))
        yield process


def test_a_line_carries_questions_answers_changes_and_both_eras() -> None:
    with line() as process:
        process.write(calling("ask", id="old"))
        question = process.read()
        assert (question["method"], question["id"]) == ("elicitation/create", 1)
        params = {"name": "ask", "arguments": {}, "_meta": META}
        process.write(request("tools/call", params, "new"))
        reply = process.read()
        assert (reply["id"], reply["result"]["resultType"]) == ("new", "input_required")
        process.write(answering(question, accept(value="Ulm")))
        reply = process.read()
        assert (reply["id"], text(reply)) == ("old", "Ulm")
        assert "resultType" not in reply["result"]
        process.write(request("resources/subscribe", {"uri": "memo://today"}, 2))
        assert process.read() == {"jsonrpc": "2.0", "id": 2, "result": {}}
        process.write(calling("touch", {"uri": "memo://today"}, id=3))
        said = [process.read() for _ in range(3)]
        assert notification("notifications/resources/updated", {"uri": "memo://today"}) in said
        assert notification("notifications/tools/list_changed", {}) in said
        process.hang_up()
        assert process.popen.wait(PATIENCE) == 0
        assert process.lines.empty()


@pytest.mark.parametrize("tool", ["ask", "work"])
def test_on_a_line_a_call_that_is_cancelled_is_not_answered(tool: str) -> None:
    with line() as process:
        process.write(calling(tool, id=5, progressToken=1))
        process.read()
        if tool == "work":
            process.until_logged("^working$")
        process.write(cancelling(5))
        if tool == "work":
            process.until_logged("^cancelled$")
        process.write(answering({"id": 1}, accept(value="late")), request("ping", id=6))
        assert process.read() == {"jsonrpc": "2.0", "id": 6, "result": {}}
        process.hang_up()
        assert process.popen.wait(PATIENCE) == 0
        assert process.lines.empty()


def test_a_line_that_ends_takes_its_questions_with_it() -> None:
    with line() as process:
        process.write(calling("ask"))
        process.read()
        process.hang_up()
        assert process.popen.wait(4) == 0  # Before the end of the grace of work under way.
