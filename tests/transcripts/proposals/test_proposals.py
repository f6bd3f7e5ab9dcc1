"""The proposals' own examples, message for message, over every transport on which their wire exists."""

import http.client
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.transcripts.proposals import server
from tests.transcripts.proposals.playing import PATIENCE, Pipe, Play, Transcript, Web, read
from tests.wires.clients import CAPABILITIES
from tests.wires.serving import serving

HERE = Path(__file__).parent

CASES = [
    pytest.param(transport, transcript, id=f"{path.stem}: {transcript.title} ({transport})")
    for path in sorted(HERE.glob("*.txt"))
    for transports, transcripts in [read(path)]
    for transport in transports
    for transcript in transcripts
]


@pytest.fixture(scope="module")
def clock() -> list[float]:
    """Seconds by which the servers' clock is ahead."""
    return [0.0]


@pytest.fixture(scope="module")
def port(clock: list[float]) -> Iterator[int]:
    """All instances at one port, each under a path of its own."""
    apps = {name: server.make_server(name).asgi(path=f"/{name}/mcp") for name in server.INSTANCES}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps[scope["path"].split("/")[1]](scope, receive, send)

    class Clock:
        def time(self) -> float:
            return time.time() + clock[0]

    with pytest.MonkeyPatch.context() as patch, serving(app) as number:
        for module in ("asgi", "exchange"):
            patch.setattr(f"turnwise.transports.{module}.time", Clock())
        yield number


@pytest.fixture(scope="module")
def pipes() -> Iterator[dict[str, Pipe]]:
    found: dict[str, Pipe] = {}
    yield found
    for pipe in found.values():
        pipe.close()


@pytest.mark.parametrize(("transport", "transcript"), CASES)
def test_transcript(
    transport: str, transcript: Transcript, port: int, pipes: dict[str, Pipe], clock: list[float]
) -> None:
    play = Play(transport, transcript.wire, port, pipes, clock, transcript.declared)
    try:
        play.run(transcript.lines)
    finally:
        play.close()


def test_a_line_that_is_not_to_the_letter_is_seen(port: int, clock: list[float]) -> None:
    sent = '> {"jsonrpc": "2.0", "id": 1, "method": "ping"}'
    wrong = (
        [sent, '< {"jsonrpc": "2.0", "id": 1, "result": {"more": "*"}}'],
        [sent, '< {"jsonrpc": "2.0", "id": "1", "result": {}}'],
        [sent, '< {"jsonrpc": "2.0", "id": 1}'],
        [sent, "< 202"],
        [sent],
    )
    for lines in wrong:
        play = Play("http", "DRAFT-2026-v1", port, {}, clock)
        try:
            with pytest.raises(AssertionError):
                play.run(lines)
        finally:
            play.close()


# The approved text's table


def asked_about(method: str) -> dict[str, Any]:
    """Parameters with which a request is in order."""
    reference = {"type": "ref/prompt", "name": "briefing"}
    known: dict[str, dict[str, Any]] = {
        "completion/complete": {"ref": reference, "argument": {"name": "topic", "value": "R"}},
        "logging/setLevel": {"level": "info"},
        "resources/subscribe": {"uri": "status://shop"},
        "resources/unsubscribe": {"uri": "status://shop"},
        "initialize": {"protocolVersion": "DRAFT-2026-v1", "capabilities": CAPABILITIES, "clientInfo": {"name": "c"}},
    }
    return known.get(method, {"taskId": "t"} if method.startswith("tasks/") else {})


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("method", ["initialize", *server.NEVER_ASKING])
def test_what_must_not_be_answered_with_a_question_is_not_though_its_author_asks(
    method: str, transport: str, port: int, pipes: dict[str, Pipe], clock: list[float]
) -> None:
    """ "Servers MUST NOT send InputRequiredResult responses on any other Client Requests." """
    params = {**asked_about(method), "inputResponses": {}}
    for instance in ("main", "curious"):
        play = Play(transport, "DRAFT-2026-v1", port, pipes, clock)
        try:
            connection = play.to(instance)
            connection.send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, {})
            event = connection.next().event
        finally:
            play.close()
        assert event is not None
        assert event.data["id"] == 1
        if instance == "curious" and method != "initialize":
            assert event.data["error"] == {"code": -32603, "message": "Internal error"}
        elif "result" in event.data:
            assert event.data["result"].get("resultType", "complete") == "complete"
            assert not event.data["result"].keys() & {"inputRequests", "requestState"}
        else:
            unserved = ("tasks/", "logging/", "resources/subscribe", "resources/unsubscribe")
            assert method.startswith(unserved)
            assert event.data["error"]["code"] == -32601


# A stream that belongs to no request


def test_no_question_is_asked_on_the_standalone_stream(port: int) -> None:
    """Questions "MUST NOT be sent on standalone streams"."""
    web = Web(port, "main", "2025-11-25")
    play = Play("http", "2025-11-25", port, {}, [0.0])
    play.shake_hands(web)
    headers = {"Accept": "text/event-stream", **web.names({})}
    aside = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    over = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        aside.request("GET", "/main/mcp", headers=headers)
        stream = aside.getresponse()
        assert (stream.status, stream.headers.get_content_type()) == (200, "text/event-stream")
        arguments = {"name": "analyze_data", "arguments": {"data": "1"}}
        web.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments}, {})
        asked = web.next().event
        assert asked is not None
        assert asked.data["method"] == "sampling/createMessage"
        answer = {"role": "assistant", "content": {"type": "text", "text": "One"}, "model": "m"}
        web.send({"jsonrpc": "2.0", "id": asked.data["id"], "result": answer}, {})
        assert web.next() == (202, None)
        done = web.next().event
        assert done is not None
        assert done.data["result"]["content"][0]["text"] == "One"
        over.request("DELETE", "/main/mcp", headers=headers)
        assert over.getresponse().status == 204
        assert b"data:" not in stream.read()
    finally:
        for connection in (web, aside, over):
            connection.close()
