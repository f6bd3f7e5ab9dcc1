"""A line for each request: which flow and round it is of, over rounds and workers, and nothing that a client forged."""

import json
import os
import re
import shlex
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.commanding import PATIENCE, SHOP, Door, Served, answering, headers_of, serving, until, written
from turnwise._access import AccessLog

MORE = """
from turnwise import ToolError

@server.tool()
async def fail(how: str) -> str:
    raise ToolError("no") if how == "refused" else ZeroDivisionError("secret words")
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served"), "--workers", "2", program=SHOP + MORE) as running:
        running.ready(workers=2)
        yield running


def fields(line: str) -> dict[str, str]:
    """A line as a reader of logfmt takes it, without its time."""
    pairs = shlex.split(line)[2:]
    assert all("=" in pair for pair in pairs), line
    return dict(pair.split("=", 1) for pair in pairs)


def lines_about(served: Served, word: str, count: int = 1) -> list[dict[str, str]]:
    """The lines that have this word, once there are so many."""
    until(lambda: len([line for line in [*served.out.lines] if word in line]) >= count)
    return [fields(line) for line in served.out.lines if word in line]


def test_all_rounds_of_a_flow_have_its_id_and_their_number_whichever_worker_served_them(served: Served) -> None:
    door = served.door
    state: dict[str, Any] = {}
    first, second = served.workers()
    before = len(served.out.lines)
    for stopped, answer in ((first, "small"), (second, "blue"), (first, None)):
        os.kill(stopped, signal.SIGSTOP)
        reply = door.call("order", {"item": "a hat"}, **state)
        os.kill(stopped, signal.SIGCONT)
        state = {} if answer is None else answering(reply.result, answer)

    def orders() -> list[str]:  # Others may write late what was asked of them before.
        return [line for line in served.out.lines[before:] if "target=order" in line]

    until(lambda: len(orders()) >= 3)
    rounds = sorted((fields(line) for line in orders()), key=lambda line: line["round"])
    assert [line["round"] for line in rounds] == ["1", "2", "3"]
    assert [line["result"] for line in rounds] == ["input_required", "input_required", "complete"]
    assert len({line["flow"] for line in rounds}) == 1
    for line in rounds:
        assert (line["client"], line["method"], line["target"]) == ("127.0.0.1", "tools/call", "order")
        assert line["status"] == "200"
        assert float(line["ms"]) >= 0
    assert not [line for line in served.out.lines if "a hat" in line or "small" in line or "blue" in line]


def test_a_call_that_settles_nothing_has_no_flow(served: Served) -> None:
    served.door.call("who")
    assert "flow" not in lines_about(served, "target=who")[-1]


def test_what_failed_is_told_by_its_kind_and_not_by_its_words(served: Served) -> None:
    for how in ("refused", "broken"):
        assert served.door.call("fail", {"how": how}).result["isError"]
    results = {line["result"] for line in lines_about(served, "target=fail", 2)}
    assert results == {"tool_error", "ZeroDivisionError"}
    assert not [line for line in served.out.lines if "secret" in line]


def test_a_state_that_is_refused_is_told_with_its_reason(served: Served) -> None:
    asked = served.door.call("order", {"item": "a coat"}).result
    assert served.door.call("order", {"item": "a tie"}, **answering(asked, "small")).error
    assert served.door.call("order", {"item": "a tie"}, requestState="nonsense").error
    reasons = {line["reason"] for line in lines_about(served, "result=rejected", 2)}
    assert reasons == {"claims", "format"}


@pytest.mark.parametrize(
    "hostile",
    [
        "x status=200 principal=root",
        'x" principal="root',
        "x\tflow=forged",
        "tools/call\x85status=200",
        "\xe2\x80\xa8client=forged",
        "x" * 5000,
        "x\\",
        "=",
    ],
)
def test_what_a_client_writes_into_headers_cannot_forge_a_field_or_a_line(served: Served, hostile: str) -> None:
    before = len(served.out.lines)
    body = written("who")
    named = headers_of("who") | {"Mcp-Name": hostile, "Mcp-Method": hostile, "Host": "localhost"}
    head = "".join(f"{name}: {value}\r\n" for name, value in (named | {"Content-Length": str(len(body))}).items())
    with socket.create_connection(("127.0.0.1", served.door.port), PATIENCE) as connection:
        connection.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        assert re.match(rb"HTTP/1.1 4\d\d ", connection.recv(65536))
    until(lambda: len(served.out.lines) > before)
    [line] = served.out.lines[before:]
    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 1500
    told = fields(line)
    assert set(told) <= {"client", "method", "target", "status", "ms"}
    assert (told["client"], told["status"]) == ("127.0.0.1", "400")


def test_a_principal_with_hostile_letters_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog()
    with caplog.at_level("INFO", "turnwise.access"):
        note = log.arrived({}, None)
        log.left(note, 200, 'app\nstatus=500 client="forged\ud800')
    [record] = caplog.records
    assert record.getMessage().splitlines() == [record.getMessage()]
    assert fields(f"day time {record.getMessage()}")["status"] == "200"
    assert json.loads(record.getMessage().split("principal=")[1].split(" status=200")[0])


def test_a_client_that_hangs_up_is_noted_with_499(served: Served) -> None:
    connection = served.door.begin("wait", {"name": "left alone"})
    served.began("left alone")
    connection.close()
    line = lines_about(served, "target=wait")[-1]
    assert (line["status"], line["result"]) == ("499", "CancelledError")


def test_requests_that_reach_no_tool_have_lines_too(served: Served) -> None:
    door = Door(served.door.port)
    before = len(served.out.lines)
    assert door.get("/nowhere").status == 404
    assert door.get("/mcp").status == 405
    assert door.call("who", headers={"Host": "evil.example"}).status == 421
    until(lambda: len(served.out.lines) >= before + 3)
    assert sorted(fields(line)["status"] for line in served.out.lines[before:]) == ["404", "405", "421"]


def test_no_line_is_written_where_none_is_wanted(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-access-log") as served:
        assert served.ready().order("a hat") == "a hat, small, blue"
        served.send(signal.SIGTERM)
        served.ended()
        assert served.out.lines == []
