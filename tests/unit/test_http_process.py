"""HTTP over a real process and real sockets: bytes of any kind and pace, and a shutdown in good order."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

import pytest

VERSION = "2026-07-28"
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
}
PATIENCE = 10.0

SERVER = r"""
import asyncio, sys
from contextlib import asynccontextmanager
from turnwise import Context, MCPServer

@asynccontextmanager
async def lifespan(server):
    if "broken" in sys.argv:
        raise RuntimeError("no database")
    print("lifespan begins", file=sys.stderr, flush=True)
    yield
    print("lifespan ends", file=sys.stderr, flush=True)

server = MCPServer("http", lifespan=lifespan)

@server.tool()
async def echo(text: str) -> str:
    return text

@server.tool()
async def told(ctx: Context) -> str:
    await ctx.report_progress(1)
    return await asyncio.to_thread(sys.stdin.readline)

@server.tool()
async def progress(ctx: Context) -> str:
    await ctx.report_progress(1)
    return "done"

@server.tool()
async def hang(ctx: Context) -> str:
    await ctx.report_progress(1)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("the tool was cancelled", file=sys.stderr, flush=True)
        raise
    return "never"

server.run("http", port=0, max_body=100_000)
print("run has returned", file=sys.stderr, flush=True)
"""


class Process:
    """A server on a port of its own choosing."""

    def __init__(self, *arguments: str) -> None:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        self.popen = subprocess.Popen(
            [sys.executable, "-c", SERVER, *arguments], stdin=pipe, stdout=nothing, stderr=pipe
        )
        self.log: list[str] = []
        self._news: Queue[str] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = 0

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for part in self.popen.stderr:
            self.log.append(part.decode().rstrip())
            self._news.put(self.log[-1])

    def until_logged(self, pattern: str) -> re.Match[str]:
        while True:
            if found := re.search(pattern, self._news.get(timeout=PATIENCE)):
                return found

    def ready(self) -> "Process":
        self.port = int(self.until_logged(r"running on http://127\.0\.0\.1:(\d+)")[1])
        return self

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def tell(self, text: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{text}\n".encode())
        self.popen.stdin.flush()

    def ended(self) -> int:
        code = self.popen.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def close(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._reader.join(PATIENCE)
        for stream in (self.popen.stdin, self.popen.stderr):
            if stream is not None:
                stream.close()


@contextmanager
def running(*arguments: str) -> Iterator[Process]:
    process = Process(*arguments)
    try:
        yield process
    finally:
        process.close()


@pytest.fixture(scope="module")
def process() -> Iterator[Process]:
    with running() as started:
        yield started.ready()
        assert "Traceback" not in "\n".join(started.log)


def calling(tool: str, arguments: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments or {}, "_meta": META | meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def listening() -> dict[str, Any]:
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    return {"jsonrpc": "2.0", "id": 7, "method": "subscriptions/listen", "params": params}


def headers_of(message: dict[str, Any]) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": message["method"],
    }
    return headers | ({"Mcp-Name": message["params"]["name"]} if "name" in message["params"] else {})


def raw(message: dict[str, Any], *, changes: dict[str, str] | None = None, length: int | None = None) -> bytes:
    body = json.dumps(message).encode()
    framing = {"Host": "localhost", "Content-Length": str(len(body) if length is None else length)}
    lines = [f"{name}: {value}" for name, value in (framing | headers_of(message) | (changes or {})).items()]
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body


def reply_to(connection: socket.socket) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def echoes(process: Process, text: str = "still here") -> bool:
    with process.connect() as connection:
        connection.sendall(raw(calling("echo", {"text": text})))
        status, body = reply_to(connection)
        return (status, json.loads(body)["result"]["content"][0]["text"]) == (200, text)


class Stream:
    """The events of one response, read as they come."""

    def __init__(self, connection: socket.socket, message: dict[str, Any]) -> None:
        connection.sendall(raw(message))
        self.response = http.client.HTTPResponse(connection)
        self.response.begin()
        assert self.response.getheader("content-type") == "text/event-stream"

    def event(self) -> Any:
        while part := self.response.readline():
            if part.startswith(b"data: "):
                return json.loads(part[len(b"data: ") :])
        return None


def test_a_termination_lets_a_request_in_flight_finish() -> None:
    with running() as process, process.ready().connect() as connection:
        stream = Stream(connection, calling("told", progressToken=1))
        assert stream.event()["method"] == "notifications/progress"
        process.popen.send_signal(signal.SIGTERM)
        process.until_logged("Shutting down")
        process.tell("finished")
        assert stream.event()["result"]["content"][0]["text"] == "finished\n"
        assert stream.event() is None
        assert process.ended() in (0, -signal.SIGTERM)
        assert [entry for entry in process.log if entry.startswith("lifespan")] == ["lifespan begins", "lifespan ends"]
        assert not [entry for entry in process.log if "Traceback" in entry]


def test_ctrl_c_ends_it_without_a_traceback() -> None:
    with running() as process:
        process.ready().popen.send_signal(signal.SIGINT)
        assert process.ended() == 0
        assert process.log[-1] == "run has returned"
        assert "lifespan ends" in process.log
        assert "Traceback" not in "\n".join(process.log)


def test_a_second_ctrl_c_ends_the_wait_for_calls() -> None:
    with running() as process, process.ready().connect() as connection:
        stream = Stream(connection, calling("hang", progressToken=1))
        assert stream.event()["method"] == "notifications/progress"
        process.popen.send_signal(signal.SIGINT)
        process.until_logged("Waiting for connections to close")
        process.popen.send_signal(signal.SIGINT)
        assert process.ended() == 0
        assert process.log[-1] == "run has returned"
        stream.response.close()


def test_a_termination_ends_a_subscription_with_its_result_and_without_delay() -> None:
    with running() as process, process.ready().connect() as connection:
        stream = Stream(connection, listening())
        assert stream.event()["method"] == "notifications/subscriptions/acknowledged"
        before = time.monotonic()
        process.popen.send_signal(signal.SIGTERM)
        closed = stream.event()
        while "id" not in closed:
            closed = stream.event()
        assert (closed["id"], closed["result"]["resultType"]) == (7, "complete")
        assert stream.event() is None
        assert process.ended() in (0, -signal.SIGTERM)
        assert time.monotonic() - before < 5


def test_the_log_says_where_the_endpoint_is() -> None:
    with running() as process:
        port = process.ready().port
        assert process.until_logged(rf"http is served at http://127\.0\.0\.1:{port}/mcp$")


def test_a_server_whose_lifespan_fails_does_not_start() -> None:
    with running("broken") as process:
        assert process.ended() not in (0, None)
        assert any("no database" in entry for entry in process.log)


def test_a_client_that_closes_its_stream_has_cancelled(process: Process) -> None:
    with process.connect() as connection:
        stream = Stream(connection, calling("hang", progressToken=1))
        assert stream.event()["method"] == "notifications/progress"
        stream.response.close()
        connection.shutdown(socket.SHUT_RDWR)
    assert process.until_logged("the tool was cancelled")
    assert echoes(process)


def test_a_client_that_leaves_before_any_reply_has_cancelled(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(raw(calling("hang")))
    assert process.until_logged("the tool was cancelled")


def test_a_connection_serves_one_request_after_another(process: Process) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)
    for number in range(20):
        message = calling("echo", {"text": str(number)})
        connection.request("POST", "/mcp", json.dumps(message), headers_of(message))
        response = connection.getresponse()
        assert json.loads(response.read())["result"]["content"][0]["text"] == str(number)
        assert not response.will_close
    connection.close()


@pytest.mark.parametrize("after", ["garbage", "a stream", "a refusal"])
def test_a_connection_goes_on_after(process: Process, after: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", process.port, timeout=PATIENCE)
    message = calling("progress", progressToken=1)
    body = "garbage" if after == "garbage" else json.dumps(message)
    path = "/elsewhere" if after == "a refusal" else "/mcp"
    connection.request("POST", path, body, headers_of(message))
    assert connection.getresponse().read()
    message = calling("echo", {"text": "next"})
    connection.request("POST", "/mcp", json.dumps(message), headers_of(message))
    assert connection.getresponse().status == 200
    connection.close()


def test_requests_written_at_once_are_answered_in_order(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(b"".join(raw(calling("echo", {"text": str(number)})) for number in range(3)))
        reader = connection.makefile("rb")
        for number in range(3):
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
            length = 0
            while (header := reader.readline()) != b"\r\n":
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            assert json.loads(reader.read(length))["result"]["content"][0]["text"] == str(number)
        reader.close()


def test_requests_written_behind_a_stream_are_answered_after_it(process: Process) -> None:
    with process.connect() as connection:
        connection.sendall(raw(calling("progress", progressToken=1)) + raw(calling("echo", {"text": "behind"})))
        reader = connection.makefile("rb")
        text = b""
        while b"behind" not in text:
            text += reader.readline()
        reader.close()
    assert text.index(b'"done"') < text.index(b"content-length")
    assert text.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    ("changes", "version"),
    [({"Connection": "close"}, b"HTTP/1.1"), ({}, b"HTTP/1.0"), ({"Te": "trailers"}, b"HTTP/1.0")],
)
def test_a_connection_that_is_to_end_ends(process: Process, changes: dict[str, str], version: bytes) -> None:
    message = raw(calling("echo", {"text": "last"}), changes=changes).replace(b"HTTP/1.1", version, 1)
    with process.connect() as connection:
        connection.sendall(message)
        answered = b""
        while part := connection.recv(65536):
            answered += part
    assert answered.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" in answered
    assert b"last" in answered


def test_a_client_that_asks_first_whether_to_send_its_body_is_told_to(process: Process) -> None:
    head, _, body = raw(calling("echo", {"text": "asked"}), changes={"Expect": "100-continue"}).partition(b"\r\n\r\n")
    with process.connect() as connection:
        connection.sendall(head + b"\r\n\r\n")
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert reply_to(connection)[0] == 200


@pytest.mark.parametrize("size", [65_000, 65_536, 66_000, 99_000])
def test_a_body_of_any_allowed_size_is_served(process: Process, size: int) -> None:
    with process.connect() as connection:
        for _ in range(2):
            connection.sendall(raw(calling("echo", {"text": "x" * (size - 400)})))
            status, body = reply_to(connection)
            assert (status, len(json.loads(body)["result"]["content"][0]["text"])) == (200, size - 400)


def test_who_sends_and_does_not_read_is_served_no_further_than_the_line_holds(process: Process) -> None:
    message = raw(calling("echo", {"text": "x" * 50_000}))
    with process.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.sendall(message * 2_000)
        assert echoes(process)
    assert echoes(process)


@pytest.mark.parametrize("target", ["/mcp/", "/mcp?x=1", "/%6dcp", "http://localhost/mcp"])
def test_other_spellings_of_the_endpoint_are_served_too(process: Process, target: str) -> None:
    with process.connect() as connection:
        connection.sendall(raw(calling("echo", {"text": "spelled"})).replace(b"/mcp", target.encode(), 1))
        assert reply_to(connection)[0] == 200


def test_a_body_that_drips_in_is_served_and_holds_up_nobody(process: Process) -> None:
    message = raw(calling("echo", {"text": "drip"}))
    with process.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(message)):
            connection.sendall(message[place : place + 1])
            if place % 100 == 0:
                assert echoes(process)
        status, body = reply_to(connection)
    assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "drip")


def test_a_body_may_come_in_http_chunks(process: Process) -> None:
    body = json.dumps(calling("echo", {"text": "chunked"})).encode()
    head = raw(calling("echo", {"text": "chunked"})).partition(b"\r\n\r\n")[0]
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:1], body[1:50], body[50:]))
    with process.connect() as connection:
        connection.sendall(head + b"\r\n\r\n" + chunks + b"0\r\n\r\n")
        assert reply_to(connection)[0] == 200


def test_header_names_are_read_without_regard_to_case(process: Process) -> None:
    message = raw(calling("echo", {"text": "case"}))
    for name in (b"MCP-Protocol-Version", b"Mcp-Method", b"Mcp-Name", b"Content-Type"):
        message = message.replace(name, name.swapcase())
    with process.connect() as connection:
        connection.sendall(message)
        assert reply_to(connection)[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"garbage\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /mcp HTTP/9.9\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: \x00\x01\r\n\r\n",
        b"POST " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\n\r\n",
        b"POST /mcp HTTP/1.0\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"POST /%00%ff%2e%2e/mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request_are_refused_and_the_server_goes_on(process: Process, sent: bytes) -> None:
    answered = b""
    with process.connect() as connection:
        try:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                answered += part
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert not answered or re.match(rb"HTTP/1\.1 4\d\d ", answered), answered
    assert echoes(process)


def test_a_body_that_is_announced_and_never_comes_harms_nobody(process: Process) -> None:
    message = calling("echo", {"text": "half"})
    with process.connect() as connection:
        connection.sendall(raw(message, length=len(json.dumps(message)) + 10))
        assert echoes(process)
    assert echoes(process)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_beyond_the_limit_is_refused(process: Process, announced: bool) -> None:
    message = raw(calling("echo", {"text": "x" * 200_000}))
    if not announced:
        head, _, body = message.partition(b"\r\n\r\n")
        head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked", head)
        message = head + b"\r\n\r\n" + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    with process.connect() as connection:
        connection.sendall(message)
        assert reply_to(connection)[0] == 413
    assert echoes(process)


def test_another_host_or_origin_is_turned_away(process: Process) -> None:
    for changes, status, words in (
        ({"Host": "evil.example"}, 421, b"allowed_hosts= or --allowed-host"),
        ({"Origin": "http://evil.example"}, 403, b"allowed_origins= or --allowed-origin"),
        ({"Origin": "null"}, 403, b"--allowed-origin"),
        ({"Origin": "http://localhost:5173"}, 200, b""),
    ):
        with process.connect() as connection:
            connection.sendall(raw(calling("echo", {"text": "x"}), changes=changes))
            reply = reply_to(connection)
            assert (reply[0], words in reply[-1]) == (status, True), reply
