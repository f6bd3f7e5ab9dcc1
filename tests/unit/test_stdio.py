"""Standard streams, over a real process: one message a line, nothing else on the channel, and a clean end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import Queue
from typing import Any, NamedTuple

import pytest

PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META: dict[str, Any] = {PROTOCOL: "2026-07-28", CAPABILITIES: {"elicitation": {}}}
PATIENCE = 10.0

SERVER = r"""
import asyncio, os, subprocess, sys
import turnwise.transports.stdio as streams
from contextlib import asynccontextmanager, suppress
from turnwise import AcceptedElicitation, Context, MCPServer

@asynccontextmanager
async def lifespan(server):
    print("started", file=sys.stderr)
    yield
    print("stopped", file=sys.stderr)

server = MCPServer("stdio", lifespan=lifespan)
gate = asyncio.Event()
fates = []

@server.tool()
async def echo(text: str) -> str:
    return text

@server.tool()
def noise() -> str:
    print("printed")
    sys.stdout.write("unfinished")
    sys.stdout.flush()
    sys.__stdout__.write("dunder\n")
    sys.__stdout__.flush()
    os.write(1, b"written\n")
    subprocess.run(["sh", "-c", "echo from a child; echo child error >&2"], check=True)
    return "quiet"

@server.tool()
def child_reads() -> str:
    return subprocess.run(["cat"], stdout=subprocess.PIPE, check=True, timeout=1).stdout.decode()

@server.tool()
async def wait(ctx: Context) -> str:
    await ctx.report_progress(1)
    await gate.wait()
    return "waited"

@server.tool()
async def open_gate() -> str:
    gate.set()
    return "open"

@server.tool()
async def hang(ctx: Context, stubborn: bool = False) -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        fates.append("cancelled")
        if not stubborn:
            raise
        await ctx.report_progress(1)
    return "too late"

@server.tool()
async def fate() -> str:
    return ",".join(fates)

@server.tool()
def read_from(fd: int) -> str:
    return os.read(fd, 100).decode()

@server.tool()
async def fail() -> str:
    raise RuntimeError("secret")

@server.tool()
async def big(size: int) -> str:
    return "x" * size

@server.tool()
async def touch(ctx: Context) -> str:
    await ctx.notify_tools_changed()
    await ctx.notify_prompts_changed()
    return "touched"

@server.tool()
async def where(ctx: Context) -> str:
    chosen = await ctx.elicit("Which city?", str, key="city")
    return chosen.data if isinstance(chosen, AcceptedElicitation) else "nowhere"

if "hasty" in sys.argv:
    streams.GRACE = 0.05
server.run("stdio", max_message=100_000)
"""


def request(method: str, params: dict[str, Any] | None = None, *, id: Any = 1, **meta: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": META | meta}}


def calling(tool: str, id: Any = 1, arguments: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return request("tools/call", {"name": tool, "arguments": arguments or {}}, id=id, **meta)


def cancelling(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}}


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


def text(reply: dict[str, Any]) -> str:
    return "".join(part["text"] for part in reply["result"]["content"])


class Outcome(NamedTuple):
    """What a process wrote until it ended by itself."""

    lines: list[bytes]
    stderr: str
    code: int

    @property
    def messages(self) -> list[Any]:
        return [json.loads(part) for part in self.lines]

    @property
    def replies(self) -> dict[Any, Any]:
        replies = [message for message in self.messages if "id" in message]
        assert len({reply["id"] for reply in replies}) == len(replies), replies
        return {reply["id"]: reply for reply in replies}


def run(written: bytes, script: str = SERVER) -> Outcome:
    """Write all of it, close standard input, and wait for the end."""
    ended = subprocess.run(
        [sys.executable, "-c", script], input=written, capture_output=True, timeout=PATIENCE, check=False
    )
    assert not ended.stdout or ended.stdout.endswith(b"\n")
    return Outcome(ended.stdout.splitlines(), ended.stderr.decode(), ended.returncode)


class Process:
    """A server that is talked to while it runs."""

    def __init__(self, *arguments: str, pass_fds: Sequence[int]) -> None:
        pipe = subprocess.PIPE
        self.popen = subprocess.Popen(
            [sys.executable, "-c", SERVER, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=pass_fds
        )
        self._lines: Queue[bytes] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for part in self.popen.stdout:
            self._lines.put(part)

    def write(self, *messages: Any) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(b"".join(part if isinstance(part, bytes) else line(part) for part in messages))
        self.popen.stdin.flush()

    def read(self) -> Any:
        return json.loads(self._lines.get(timeout=PATIENCE))

    def hang_up(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def end(self) -> list[Any]:
        """Close standard input; what was still written, once the process has ended well."""
        self.hang_up()
        assert self.popen.wait(PATIENCE) == 0
        self._reader.join(PATIENCE)
        rest = []
        while not self._lines.empty():
            rest.append(json.loads(self._lines.get()))
        return rest


@contextmanager
def running(*arguments: str, pass_fds: Sequence[int] = ()) -> Iterator[Process]:
    process = Process(*arguments, pass_fds=pass_fds)
    try:
        yield process
    finally:
        process.popen.kill()
        process.popen.wait()
        for stream in (process.popen.stdin, process.popen.stdout, process.popen.stderr):
            if stream is not None:
                stream.close()


def test_requests_are_answered_a_line_each_and_the_process_ends_with_its_input() -> None:
    tricky = "a\nb\r\nc\u2028d\x85e\x00"
    outcome = run(line(calling("echo", 1, {"text": tricky})) + line(request("tools/list", id="two")))
    assert outcome.code == 0
    assert len(outcome.lines) == 2
    assert text(outcome.replies[1]) == tricky
    assert "tools" in outcome.replies["two"]["result"]
    assert outcome.stderr.split() == ["started", "stopped"]


def test_without_any_input_the_process_ends_well_and_says_nothing() -> None:
    outcome = run(b"")
    assert (outcome.code, outcome.lines) == (0, [])


def test_only_the_protocol_reaches_standard_output() -> None:
    outcome = run(line(calling("noise")) + line(calling("fail", 2)))
    assert outcome.code == 0
    assert sorted(outcome.replies) == [1, 2]
    assert len(outcome.lines) == 2
    for stray in ("printed", "unfinished", "dunder", "written", "from a child", "child error"):
        assert stray in outcome.stderr
    assert "secret" in outcome.stderr
    assert b"secret" not in b"".join(outcome.lines)


def test_a_child_process_does_not_read_the_protocols_input() -> None:
    with running() as process:
        process.write(calling("child_reads"), calling("echo", 2, {"text": "mine"}))
        replies = {reply["id"]: reply for reply in (process.read(), process.read())}
        assert text(replies[2]) == "mine"
        assert text(replies[1]) == ""


def test_what_is_under_way_when_the_input_ends_is_finished() -> None:
    source, sink = os.pipe()
    with running(pass_fds=[source]) as process:
        process.write(listening("s"))
        process.read()
        process.write(calling("read_from", 1, {"fd": source}))
        process.hang_up()
        while process.read().get("id") != "s":
            pass
        os.write(sink, b"finished")
        assert text(process.read()) == "finished"
        assert process.popen.wait(PATIENCE) == 0
    os.close(source)
    os.close(sink)


def test_a_tool_that_blocks_its_thread_does_not_hold_up_the_end_for_ever() -> None:
    source, sink = os.pipe()
    with running("hasty", pass_fds=[source]) as process:
        process.write(calling("read_from", 1, {"fd": source}), calling("echo", 2, {"text": "a"}))
        assert process.read()["id"] == 2
        process.hang_up()
        process.popen.wait(3)
    os.close(source)
    os.close(sink)


def test_a_last_line_without_an_end_is_served() -> None:
    assert list(run(line(calling("echo", 1)) + json.dumps(calling("echo", 2)).encode()).replies) == [1, 2]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b" \t\n"])
def test_blank_lines_and_other_line_ends_do_not_matter(ending: bytes) -> None:
    written = b"\n\r\n  \n" + json.dumps(calling("echo", 1, {"text": "a"})).encode() + ending + b"\n\n"
    outcome = run(written + b"\t" + json.dumps(calling("echo", 2, {"text": "b"})).encode() + ending)
    assert [text(outcome.replies[id]) for id in (1, 2)] == ["a", "b"]
    assert len(outcome.lines) == 2


def test_every_malformed_line_gets_an_error_and_the_next_is_served() -> None:
    malformed = [
        b"{",
        b"garbage",
        b"\xff\xfe\x00",
        b"\x00",
        b"[]",
        b"null",
        b"1",
        b'"x"',
        b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}',
        rb'{"jsonrpc":"2.0","id":"\ud800","method":"tools/list"}',
        rb'{"jsonrpc":"2.0","id":"a","method":"\udfff"}',
        b'{"jsonrpc":"2.0","id":1e999,"method":"x"}',
        b"[" * 50_000,
        json.dumps([calling("echo")]).encode(),
        b"\xef\xbb\xbf" + json.dumps(calling("echo")).encode(),
    ]
    outcome = run(b"\n".join(malformed) + b"\n" + line(calling("echo", "last", {"text": "fine"})))
    assert outcome.code == 0
    assert len(outcome.lines) == len(malformed) + 1
    errors = [message["error"]["code"] for message in outcome.messages if "error" in message]
    assert len(errors) == len(malformed)
    assert set(errors) <= {-32700, -32600}
    assert text(outcome.replies["last"]) == "fine"
    assert "Traceback" not in outcome.stderr


def test_notifications_are_never_answered() -> None:
    notes = [cancelling(5), {"jsonrpc": "2.0", "method": "notifications/x"}, {"jsonrpc": "2.0", "method": "tools/list"}]
    assert run(b"".join(line(note) for note in notes)).lines == []


def test_a_line_that_is_too_long_gets_an_error_and_the_next_is_served() -> None:
    def sized(size: int, id: int) -> bytes:
        empty = json.dumps(calling("echo", id, {"text": ""})).encode()
        return json.dumps(calling("echo", id, {"text": "x" * (size - len(empty))})).encode()

    written = [sized(100_000, 1), sized(100_001, 2), sized(300_000, 3), b"y" * 1_000_000, sized(200, 4)]
    outcome = run(b"\n".join(written) + b"\n")
    assert outcome.code == 0
    assert sorted(outcome.replies) == [1, 4]
    errors = [message for message in outcome.messages if "error" in message]
    assert [error["error"]["code"] for error in errors] == [-32600] * 3


def test_an_endless_last_line_is_refused_too() -> None:
    outcome = run(line(calling("echo", 1)) + b"z" * 500_000)
    assert outcome.code == 0
    assert [message["error"]["code"] for message in outcome.messages if "error" in message] == [-32600]


def test_a_slow_call_does_not_keep_a_quick_one_waiting() -> None:
    with running() as process:
        process.write(calling("wait", "slow", progressToken="p"))
        assert process.read()["params"]["progressToken"] == "p"
        process.write(calling("echo", "quick", {"text": "quick"}))
        assert process.read()["id"] == "quick"
        process.write(calling("open_gate", "open"))
        assert {process.read()["id"], process.read()["id"]} == {"open", "slow"}
        assert process.end() == []


def test_a_cancelled_request_stops_and_is_never_answered() -> None:
    with running() as process:
        process.write(calling("hang", 1), cancelling(1), calling("fate", 2))
        reply = process.read()
        assert (reply["id"], text(reply)) == (2, "cancelled")
        process.write(calling("echo", 1, {"text": "the id is free again"}))
        assert process.read()["id"] == 1
        assert process.end() == []


def test_a_tool_that_will_not_be_cancelled_is_not_answered_either() -> None:
    with running() as process:
        process.write(calling("hang", 1, {"stubborn": True}, progressToken=1), cancelling(1), calling("fate", 2))
        assert [message["id"] for message in (process.read(), *process.end())] == [2]


GUARDED = r"""
from turnwise import AuthSettings, MCPServer

class Nobody:
    async def verify_token(self, token):
        return None

settings = AuthSettings(issuer_url="https://example.com", resource_server_url="https://example.com/mcp")
server = MCPServer("guarded", token_verifier=Nobody(), auth=settings)

@server.tool()
async def echo(text: str) -> str:
    return text

server.run("stdio")
"""


def test_authorization_is_for_http_alone() -> None:
    """ "Implementations using an STDIO transport SHOULD NOT follow this specification" of authorization."""
    told = run(line(calling("echo", arguments={"text": "hello"})), GUARDED)
    assert text(told.replies[1]) == "hello"


def test_why_a_client_cancels_is_logged() -> None:
    script = "import logging; logging.basicConfig(level=logging.INFO)\n" + SERVER
    told = run(line(calling("hang", 5)) + line(cancelling(5)), script)
    assert told.messages == []
    assert "request 5 was cancelled by the client: 'enough'" in told.stderr


def test_only_the_very_id_is_cancelled_and_odd_cancellations_are_ignored() -> None:
    with running() as process:
        process.write(calling("wait", 1, progressToken=1))
        process.read()
        odd = [None, True, 1.0, "1", [1], {"id": 1}, 2, "", 10**30]
        process.write(*(cancelling(id) for id in odd))
        process.write({"jsonrpc": "2.0", "method": "notifications/cancelled"})
        process.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]})
        process.write(calling("open_gate", 2))
        replies = {reply["id"]: reply for reply in (process.read(), process.read())}
        assert text(replies[1]) == "waited"


def test_a_second_request_under_an_id_that_is_still_under_way_is_refused() -> None:
    with running() as process:
        process.write(calling("wait", 1, progressToken=1))
        process.read()
        process.write(calling("echo", 1, {"text": "again"}))
        refused = process.read()
        assert (refused["id"], refused["error"]["code"]) == (1, -32600)
        process.write(calling("echo", "1", {"text": "another id"}))
        assert process.read()["id"] == "1"
        process.write(calling("open_gate", 2))
        assert {process.read()["id"], process.read()["id"]} == {1, 2}
        process.write(calling("echo", 1, {"text": "free again"}))
        assert text(process.read()) == "free again"


def test_many_lines_at_once_are_all_answered() -> None:
    outcome = run(b"".join(line(calling("echo", id, {"text": f"t{id}"})) for id in range(1000)))
    assert outcome.code == 0
    assert {id: text(reply) for id, reply in outcome.replies.items()} == {id: f"t{id}" for id in range(1000)}


def test_big_replies_stay_whole_though_they_are_written_side_by_side() -> None:
    outcome = run(b"".join(line(calling("big", id, {"size": 1_000_000 + id})) for id in range(5)))
    assert {id: len(text(reply)) for id, reply in outcome.replies.items()} == {id: 1_000_000 + id for id in range(5)}


def test_a_question_and_its_answer_are_two_requests() -> None:
    with running() as process:
        process.write(calling("where", 1))
        asked = process.read()["result"]
        assert asked["resultType"] == "input_required"
        retry = calling("where", 2)
        answers = {"city": {"action": "accept", "content": {"value": "Ulm"}}}
        retry["params"] |= {"requestState": asked["requestState"], "inputResponses": answers}
        process.write(retry)
        assert text(process.read()) == "Ulm"


def listening(id: Any, **wanted: Any) -> dict[str, Any]:
    return request("subscriptions/listen", {"notifications": wanted}, id=id)


def test_subscriptions_share_the_channel_under_their_ids_until_they_are_cancelled() -> None:
    with running() as process:
        process.write(listening(1, toolsListChanged=True))
        assert process.read()["params"]["_meta"][SUBSCRIPTION] == 1
        process.write(listening("b", promptsListChanged=True))
        assert process.read()["params"]["_meta"][SUBSCRIPTION] == "b"
        process.write(calling("touch", 2))
        heard = [process.read() for _ in range(3)]
        told = {note["params"]["_meta"][SUBSCRIPTION]: note["method"] for note in heard if "method" in note}
        assert told == {1: "notifications/tools/list_changed", "b": "notifications/prompts/list_changed"}
        process.write(cancelling(1), cancelling("b"), calling("touch", 3))
        assert process.read()["id"] == 3
        assert process.end() == []


@pytest.mark.parametrize("at_once", [False, True])
def test_a_subscription_that_the_server_ends_gets_its_result_and_is_told_to_be_cancelled(at_once: bool) -> None:
    with running() as process:
        process.write(listening(7, toolsListChanged=True))
        messages = [] if at_once else [process.read()]
        messages += process.end()
    assert messages[0]["method"] == "notifications/subscriptions/acknowledged"
    (closed,) = [message for message in messages if "id" in message]
    assert (closed["id"], closed["result"]["_meta"][SUBSCRIPTION]) == (7, 7)
    # "A server MUST send `notifications/cancelled` referencing a `subscriptions/listen` request ID when it tears down
    # that subscription stream."
    cancelled = [message for message in messages if message.get("method") == "notifications/cancelled"]
    assert [message["params"]["requestId"] for message in cancelled] == [7]


@pytest.mark.parametrize("leave", ["eof", "interrupt"])
def test_a_client_that_does_not_read_does_not_keep_the_process_from_ending(leave: str) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER, "hasty"], stdin=pipe, stdout=pipe, stderr=pipe) as popen:
        assert popen.stdin is not None
        assert popen.stdout is not None
        popen.stdin.write(line(calling("big", 1, {"size": 1_000_000})))
        popen.stdin.flush()
        assert popen.stdout.read(1) == b"{"  # The pipe is full now, or soon.
        time.sleep(0.2)
        if leave == "interrupt":
            popen.send_signal(signal.SIGINT)
        else:
            popen.stdin.close()
        try:
            assert popen.wait(PATIENCE) == 0
        finally:
            popen.kill()


def test_ctrl_c_ends_it_without_a_traceback() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, stderr=pipe) as popen:
        assert popen.stdin is not None
        assert popen.stdout is not None
        try:
            popen.stdin.write(line(calling("echo", 1, {"text": "here"})))
            popen.stdin.flush()
            assert b"here" in popen.stdout.readline()
            popen.send_signal(signal.SIGINT)
            assert popen.communicate(timeout=PATIENCE)[1] == b"started\nstopped\n"
            assert popen.returncode == 0
        finally:
            popen.kill()


def test_a_client_that_no_longer_reads_does_not_keep_the_process_from_ending_well() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=pipe, stdout=pipe, stderr=pipe) as popen:
        assert popen.stdout is not None
        popen.stdout.close()
        popen.stdout = None
        written = b"".join(line(calling("big", id, {"size": 100_000})) for id in range(5))
        _, stderr = popen.communicate(written, PATIENCE)
    assert popen.returncode == 0
    assert b"Traceback" not in stderr
