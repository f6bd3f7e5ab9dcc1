"""A client of a server with a handshake, over standard streams: one channel for calls, questions and all else."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.joined import run, text
from tests.unit.older import NEWEST
from turnwise import Change, Client, Command, ConnectionLost, DeadlineExceeded, PeerError, _negotiating

SERVER = """
import json, os, sys

def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()

def say(*messages):
    whole = [{"jsonrpc": "2.0", **message} for message in messages]
    sys.stdout.write(json.dumps(whole[0] if len(whole) == 1 else whole) + chr(10))
    sys.stdout.flush()

def reply(request, **content):
    done = {"content": [{"type": "text", "text": json.dumps(content)}], "structuredContent": content}
    say({"id": request["id"], "result": done})

def ask(method, number="q", **params):
    say({"id": number, "method": method, "params": params})
    while True:
        message = read()
        if message.get("id") == number and "method" not in message:
            return message

def note(name):
    with open(name, "a") as file:
        print(os.getpid(), file=file)
    with open(name) as file:
        return len(file.read().split())

def shake_hands(request, version="2025-11-25", **capabilities):
    info = {"name": "older", "version": "1"}
    say({"id": request["id"], "result": {
        "protocolVersion": version, "capabilities": capabilities, "serverInfo": info}})
    assert read()["method"] == "notifications/initialized"

number = note("started")
request = read()
"""
FORM = 'message="?", requestedSchema={"type": "object", "properties": {"city": {"type": "string"}}}'


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_negotiating, "_OLDER", type(_negotiating._OLDER)())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def older(code: str, folder: Path) -> Command:
    return Command([sys.executable, "-c", SERVER + code], cwd=folder)


async def ulm(*_: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"city": "Ulm"}}


async def said(command: Command, **options: Any) -> Any:
    async with Client(command, **{"mode": NEWEST, **options}) as client:
        return (await client.call_tool("it")).structured_content


def test_a_question_is_answered_on_the_same_line(folder: Path) -> None:
    code = f"shake_hands(request)\nrequest = read()\nreply(request, told=ask('elicitation/create', {FORM}))"
    told = run(said(older(code, folder), elicitation_callback=ulm))["told"]
    assert told == {"jsonrpc": "2.0", "id": "q", "result": {"action": "accept", "content": {"city": "Ulm"}}}


def test_a_question_outside_of_any_request_is_refused_and_a_ping_is_not(folder: Path) -> None:
    code = (
        f"shake_hands(request)\nrefused = ask('elicitation/create', {FORM})\npong = ask('ping', 'p')\n"
        "note('asked')\nreply(read(), refused=refused, pong=pong)"
    )

    async def visit() -> Any:
        async with Client(older(code, folder), mode=NEWEST, elicitation_callback=ulm) as client:
            while not (folder / "asked").exists():  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.01)
            return (await client.call_tool("it")).structured_content

    told = run(visit())
    assert told["refused"]["error"]["code"] == -32602
    assert "SEP-2260" in told["refused"]["error"]["message"]
    assert told["pong"]["result"] == {}


def test_several_messages_in_one_line_are_read_one_by_one(folder: Path) -> None:
    code = (
        "shake_hands(request, '2025-03-26')\nrequest = read()\ntoken = request['params']['_meta']['progressToken']\n"
        "news = {'method': 'notifications/progress', 'params': {'progressToken': token, 'progress': 1}}\n"
        "say(news, {'id': 99, 'result': {}}, {'id': request['id'], 'result': {'content': []}})"
    )
    heard: list[Any] = []

    async def visit() -> None:
        async with Client(older(code, folder), mode="2025-03-26") as client:
            await client.call_tool("it", progress_callback=lambda *news: heard.append(news))

    run(visit())
    assert heard == [(1.0, None, None)]


def test_a_call_that_is_cancelled_is_said_to_be(folder: Path) -> None:
    code = "shake_hands(request)\nrequest = read()\nword = read()\nreply(read(), word=word, id=request['id'])"

    async def visit() -> Any:
        async with Client(older(code, folder), mode=NEWEST) as client:
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("it", read_timeout_seconds=0.2)
            return (await client.call_tool("it")).structured_content

    told = run(visit())
    assert told["word"]["method"] == "notifications/cancelled"
    assert told["word"]["params"]["requestId"] == told["id"]


def test_a_child_that_was_started_again_is_greeted_again(folder: Path) -> None:
    code = "shake_hands(request)\nrequest = read()\nif number == 1: sys.exit()\nreply(request, number=number)"

    async def visit() -> Any:
        async with Client(older(code, folder), mode=NEWEST) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("it")
            return (await client.call_tool("it")).structured_content

    assert run(visit()) == {"number": 2}


@pytest.mark.parametrize(
    "failing",
    [
        pytest.param("say({'id': request['id'], 'error': {'code': -32603, 'message': 'starting'}})", id="refused"),
        pytest.param("say({'id': request['id'], 'result': {}})", id="not understood"),
    ],
)
def test_a_child_whose_handshake_failed_is_greeted_by_the_next_call(folder: Path, failing: str) -> None:
    code = (
        "if number == 2:\n    " + failing + "\n    request = read()\n"
        "shake_hands(request)\nrequest = read()\nif number == 1: sys.exit()\nreply(request, number=number)"
    )

    async def visit() -> Any:
        async with Client(older(code, folder), mode=NEWEST) as client:
            for expected in (ConnectionLost, PeerError):
                with pytest.raises(expected):
                    await client.call_tool("it")
            return (await client.call_tool("it")).structured_content

    assert run(visit()) == {"number": 2}


def test_a_read_is_sent_again_to_the_next_child(folder: Path) -> None:
    code = (
        "shake_hands(request)\nrequest = read()\nif number == 1: sys.exit()\n"
        "say({'id': request['id'], 'result': {'tools': []}})"
    )

    async def visit() -> Any:
        async with Client(older(code, folder), mode=NEWEST) as client:
            return (await client.list_tools()).tools

    assert run(visit()) == []


def test_changes_come_on_the_same_line(folder: Path) -> None:
    code = (
        "shake_hands(request, resources={'subscribe': True}, tools={'listChanged': True})\n"
        "request = read()\nassert request['method'] == 'resources/subscribe'\n"
        "say({'id': request['id'], 'result': {}})\n"
        "say({'method': 'notifications/resources/updated', 'params': {'uri': 'memo://other'}})\n"
        "say({'method': 'notifications/prompts/list_changed'})\n"
        "say({'method': 'notifications/resources/updated', 'params': request['params']})\n"
        "say({'method': 'notifications/tools/list_changed'})\n"
        "request = read()\nassert request['method'] == 'resources/unsubscribe'\n"
        "say({'id': request['id'], 'result': {}})\n"
        "reply(read(), end=True)"
    )

    async def visit() -> list[Change]:
        async with Client(older(code, folder), mode=NEWEST) as client:
            wishes: Any = {"tools_list_changed": True, "prompts_list_changed": True}
            async with client.listen(**wishes, resource_subscriptions=["memo://a"]) as subscription:
                assert subscription.honored == {"toolsListChanged": True, "resourceSubscriptions": ["memo://a"]}
                heard = [await anext(subscription), await anext(subscription)]
            assert text(await client.call_tool("it")) == '{"end": true}'
            return heard

    assert run(visit()) == [Change("resource", "memo://a"), Change("tools")]


# Finding out


def test_a_server_that_knows_no_discovery_is_shaken_hands_with(folder: Path) -> None:
    code = (
        "say({'id': request['id'], 'error': {'code': -32601, 'message': 'Method not found'}})\n"
        "shake_hands(read())\nreply(read(), number=number)"
    )
    assert run(said(older(code, folder), mode="auto")) == {"number": 1}


def test_a_child_that_ends_at_the_probe_is_started_again(folder: Path) -> None:
    code = "if request['method'] != 'initialize': sys.exit(1)\nshake_hands(request)\nreply(read(), number=number)"
    assert run(said(older(code, folder), mode="auto")) == {"number": 2}


def test_a_child_that_says_nothing_is_greeted_after_a_while_and_what_it_says_late_is_ignored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_negotiating, "PROBE_SECONDS", 0.5)
    code = (
        "opening = read()\nassert opening['method'] == 'initialize'\n"
        "say({'id': request['id'], 'result': {'supportedVersions': ['2026-07-28'], 'capabilities': {}}})\n"
        "shake_hands(opening)\n"
        "say({'id': request['id'], 'error': {'code': -32601, 'message': 'late'}})\nreply(read(), number=number)"
    )

    async def visit() -> Any:
        async with Client(older(code, folder)) as client:
            assert client.protocol_version == NEWEST
            return (await client.call_tool("it")).structured_content

    assert run(visit()) == {"number": 1}


def test_what_a_command_was_is_remembered_and_forgotten_when_it_changes(folder: Path) -> None:
    code = (
        "if request['method'] != 'initialize': note('probed'); sys.exit(1)\nshake_hands(request)\n"
        "reply(read(), number=number)"
    )
    command = older(code, folder)

    async def visit() -> list[int]:
        return [(await said(command, mode="auto"))["number"] for _ in range(3)]

    assert run(visit()) == [2, 3, 4]
    assert len((folder / "probed").read_text().split()) == 1
    assert len(_negotiating._OLDER) == 1


@pytest.mark.parametrize("is_list", [False, True])
def test_what_a_command_is_given_to_keep_secret_is_not_logged(
    folder: Path, caplog: pytest.LogCaptureFixture, is_list: bool
) -> None:
    discovered = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}
    code = (
        f"import os\nos.chdir({str(folder)!r})\n{SERVER}\nwhile True:\n"
        "    is_new = os.path.exists('new')\n"
        "    if request['method'] == 'initialize' and not is_new: shake_hands(request)\n"
        "    elif request['method'] == 'server/discover' and is_new:\n"
        f"        say({{'id': request['id'], 'result': {discovered}}})\n"
        "    else: say({'id': request['id'], 'error': {'code': -32601, 'message': 'Method not found'}})\n"
        "    request = read()"
    )
    args = [sys.executable, "-c", code, "--token=s3cret"]
    command = args if is_list else Command(args, env={"TOKEN": "s3cret"}, cwd=folder)

    async def version() -> str:
        async with Client(command) as client:
            return client.protocol_version

    caplog.set_level("DEBUG")
    assert run(version()) == NEWEST
    (folder / "new").touch()
    assert run(version()) == "2026-07-28"
    assert f"{sys.executable} is no longer what it was" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_command_is_shown_without_its_environment() -> None:
    assert "s3cret" not in repr(Command(["serve"], env={"TOKEN": "s3cret"}))


def test_what_comes_right_after_a_reply_belongs_to_no_request(folder: Path) -> None:
    code = (
        "shake_hands(request, '2025-03-26')\nrequest = read()\n"
        "say({'id': request['id'], 'result': {'content': []}}, {'id': 'q', 'method': 'roots/list'})\n"
        "first, second = read(), read()\n"
        "refused, request = (first, second) if 'error' in first else (second, first)\nreply(request, refused=refused)"
    )

    async def visit() -> Any:
        async with Client(older(code, folder), mode=NEWEST, list_roots_callback=lambda _: {"roots": []}) as client:
            await client.call_tool("it")
            return (await client.call_tool("it")).structured_content

    assert run(visit())["refused"]["error"]["code"] == -32602
