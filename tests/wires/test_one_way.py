"""What a server of 2026-07-28 sends, whatever it is asked to do: replies and notifications, and no request of its own.

Everything is read off the wire: standard output of a real process, and the streams of a real port.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest

Json = dict[str, Any]
Ask = Callable[[Json], list[Json]]

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
    },
    "io.modelcontextprotocol/logLevel": "debug",
}
ANSWERS = {
    "elicitation/create": {"action": "accept", "content": {"value": "Ada"}},
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "A poem"}, "model": "m"},
    "roots/list": {"roots": [{"uri": "file:///home"}]},
}
SCRIPT = [sys.executable, str(Path(__file__).with_name("talkative.py"))]
PATIENCE = 20.0


def request(method: str, id: int, **params: Any) -> Json:
    meta = META | {"progressToken": f"token {id}"}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}}


def listening(id: int) -> Json:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://1"]}
    return request("subscriptions/listen", id, notifications=wanted)


class Streams:
    """A process that is talked to over its standard streams: all that it writes is kept."""

    def __init__(self, popen: "subprocess.Popen[bytes]") -> None:
        self._popen = popen
        self.seen: list[Json] = []

    def read(self) -> Json:
        assert self._popen.stdout is not None
        self.seen.append(json.loads(self._popen.stdout.readline()))
        return self.seen[-1]

    def write(self, message: Json) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(message).encode() + b"\n")
        self._popen.stdin.flush()

    def ask(self, message: Json) -> list[Json]:
        self.write(message)
        found = [self.read()]
        while found[-1].get("id") != message["id"]:
            found.append(self.read())
        return found


@contextmanager
def streams() -> Iterator[Streams]:
    pipe = subprocess.PIPE
    with subprocess.Popen([*SCRIPT, "stdio"], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as popen:
        talk = Streams(popen)
        try:
            yield talk
        finally:
            rest, _ = popen.communicate(timeout=PATIENCE)
            talk.seen += [json.loads(line) for line in rest.splitlines()]


@contextmanager
def port() -> Iterator[tuple[int, int]]:
    """A process that serves HTTP, and its port."""
    with subprocess.Popen(SCRIPT, stderr=subprocess.PIPE) as popen:
        assert popen.stderr is not None
        try:
            for line in popen.stderr:
                if found := re.search(rb"running on http://[^:]+:(\d+)", line):
                    yield popen.pid, int(found[1])
                    break
        finally:
            popen.terminate()
            popen.communicate(timeout=PATIENCE)


def post(url: str, message: Json, seen: list[Json], heard: Callable[[Json], bool] = lambda message: False) -> None:
    """Post a message, and keep all that comes on its stream, until its end or until `heard`."""
    params = message["params"]
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": message["method"],
        **({"mcp-name": params["name"]} if "name" in params else {}),
    }
    with httpx2.stream("POST", url, json=message, headers=headers, timeout=PATIENCE) as response:
        if response.headers["content-type"].startswith("application/json"):
            seen.append(json.loads(response.read()))
            return
        for line in response.iter_lines():
            if line.startswith("data: "):
                seen.append(json.loads(line.removeprefix("data: ")))
                if heard(seen[-1]):
                    return


def played(ask: Ask) -> Json:
    """The tool that does everything, to its end."""
    more: Json = {}
    for number in range(1, 10):
        reply = ask(request("tools/call", number, name="everything", arguments={}, **more))[-1]
        result: Json = reply["result"]
        if result["resultType"] == "complete":
            return result
        answers = {key: ANSWERS[asked["method"]] for key, asked in result["inputRequests"].items()}
        for key, asked in result["inputRequests"].items():
            if asked.get("params", {}).get("mode") == "url":
                answers[key] = {"action": "accept"}
        more = {"inputResponses": answers, "requestState": result["requestState"]}
    raise AssertionError("the tool does not end")


def check(seen: list[Json]) -> None:
    """No message is a request; and each that is none is what it says."""
    methods = [message["method"] for message in seen if "method" in message]
    assert {"notifications/progress", "notifications/message", "notifications/tools/list_changed"} <= set(methods)
    for message in seen:
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert "id" not in message, f"a request of the server's own: {message}"
            assert message["method"].startswith("notifications/")
        else:
            assert ("result" in message) != ("error" in message)
            assert "id" in message
    # "Servers MUST NOT send `notifications/cancelled` for any other purpose" than to end a subscription.
    cancelled = [m["params"]["requestId"] for m in seen if m.get("method") == "notifications/cancelled"]
    assert set(cancelled) <= {77}


def test_standard_output_has_replies_and_notifications_only() -> None:
    with streams() as talk:
        talk.write(listening(77))
        assert talk.read()["method"] == "notifications/subscriptions/acknowledged"
        assert "done, Ada" in str(played(talk.ask))
        # One is cancelled by the client, and one fails; neither makes the server ask or cancel anything.
        talk.write(request("tools/call", 50, name="everything", arguments={}))
        talk.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 50}})
        assert talk.ask(request("tools/call", 51, name="fail", arguments={"code": 7}))[-1]["error"]["code"] == 7
    check(talk.seen)
    assert [m["params"]["requestId"] for m in talk.seen if m.get("method") == "notifications/cancelled"] == [77]


def test_streams_have_replies_and_notifications_only() -> None:
    seen: list[Json] = []
    changes: list[Json] = []
    is_listening = Event()

    def heard(message: Json) -> bool:
        is_listening.set()
        return bool(message["method"] == "notifications/resources/updated")

    with ThreadPoolExecutor() as pool, port() as (_, number):
        url = f"http://127.0.0.1:{number}/mcp"
        listener = pool.submit(post, url, listening(77), changes, heard)

        def ask(message: Json) -> list[Json]:
            post(url, message, seen)
            return seen

        assert is_listening.wait(PATIENCE)
        assert "done, Ada" in str(played(ask))
        listener.result(PATIENCE)
    assert [message["method"] for message in changes][-1] == "notifications/resources/updated"
    check(seen + changes)


@pytest.mark.parametrize("code", [-32099, -32050, -32023, -32022, -32021, -32020, -32042, -32002])
def test_codes_that_the_specification_keeps_to_itself_are_not_an_authors_to_send(code: int) -> None:
    with streams() as talk:
        error = talk.ask(request("tools/call", 1, name="fail", arguments={"code": code}))[-1]["error"]
    assert (error["code"], error["message"]) == (-32603, "as the author wished")


def test_other_codes_are_sent_as_they_are() -> None:
    with streams() as talk:
        for id, code in enumerate((1, -1, -31999, -32100, 4050, -32603, -32602), 1):
            error = talk.ask(request("tools/call", id, name="fail", arguments={"code": code}))[-1]["error"]
            assert error["code"] == code


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux, which tells where a process listens")
def test_a_server_that_is_told_nothing_listens_to_its_own_machine_alone() -> None:
    with port() as (pid, number):
        sockets = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
        bound = []
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                address, _, listens_at = fields[1].partition(":")
                if fields[3] == "0A" and int(listens_at, 16) == number and f"socket:[{fields[9]}]" in sockets:
                    bound.append(address)
    assert bound == ["0100007F"], "127.0.0.1, as the kernel writes it"
