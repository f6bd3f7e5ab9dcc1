"""Servers that a client starts: real child processes, good ones and bad ones, and that none of them is left behind."""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.joined import PYTHONPATH, Json, accept, run, text
from turnwise import (
    Asking,
    Change,
    Client,
    Command,
    ConnectionLost,
    DeadlineExceeded,
    InvalidReply,
    MCPError,
)
from turnwise.transports import process

SILENT: Any = {"mode": "2026-07-28"}
SOON = 3.0
"""Seconds in which what should happen at once has happened, on a machine that is busy."""

GOOD = """
import asyncio, os, sys
from turnwise import Context, MCPServer

server = MCPServer("good")
meeting = asyncio.Barrier(5)
fates = []

@server.tool()
async def travel(ctx: Context) -> str:
    city = await ctx.elicit("Which city?", str, key="city")
    day = await ctx.elicit("Which day?", str, key="day")
    return f"{city.data}, {day.data}"

@server.tool()
async def meet(name: str, ctx: Context) -> str:
    await ctx.report_progress(1, 2, name)
    await meeting.wait()
    await ctx.report_progress(2, 2, name)
    await ctx.warning(name)
    return name

@server.tool()
async def hang(ctx: Context) -> str:
    try:
        await ctx.report_progress(1)
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        fates.append("cancelled")
        raise

@server.tool()
async def fate() -> list[str]:
    return fates

@server.tool()
async def change(ctx: Context) -> str:
    await ctx.notify_tools_changed()
    return "changed"

@server.tool()
async def grumble() -> str:
    print("on standard error", file=sys.stderr, flush=True)
    print("printed by mistake", flush=True)
    return "done"

@server.tool()
async def end_subscriptions() -> str:
    server.close_subscriptions()
    return "ended"

server.run("stdio")
"""

BAD = """
import json, os, signal, subprocess, sys, time

def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else sys.exit()

def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + chr(10))
    sys.stdout.flush()

def reply(request, **content):
    say({"id": request["id"], "result": {"content": [], "structuredContent": content}})

def start(name):
    with open(name, "a") as file:
        print(os.getpid(), file=file)
    with open(name) as file:
        return len(file.read().split())

number = start("started")
"""
ECHO = "while True: reply(read(), number=number, pid=os.getpid())\n"
GRANDCHILD = "grandchild = subprocess.Popen(['sh', '-c', 'echo $$ >> grandchildren; exec sleep 60'])\n"
KNOWN = "while not os.path.exists('grandchildren'): time.sleep(0.01)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that does not end by itself is forced after a moment."""
    monkeypatch.setattr(process, "GRACE", 0.2)


def good() -> Command:
    return Command([sys.executable, "-c", GOOD], env={"PYTHONPATH": PYTHONPATH})


def bad(code: str, folder: Path) -> Command:
    return Command([sys.executable, "-c", BAD + code], cwd=folder)


def pids(folder: Path, name: str = "started") -> list[int]:
    file = folder / name
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not happened():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)


@asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


async def content(client: Client, **options: Any) -> Json:
    result = await client.call_tool("it", **options)
    assert result.structured_content is not None
    return dict(result.structured_content)


# Good servers


def test_a_flow_of_several_rounds_runs_over_standard_streams() -> None:
    async def answer(asking: Asking, params: Any) -> Json:
        assert asking.server is not None
        assert asking.server.startswith(sys.executable)
        return accept(value=asking.key)

    async def visit() -> None:
        async with Client(good(), elicitation_callback=answer) as client:
            assert client.server_info is not None
            assert client.server_info.name == "good"
            assert text(await client.call_tool("travel")) == "city, day"

    run(visit())


def test_many_calls_share_one_channel_and_each_hears_of_its_own_progress() -> None:
    told: dict[str, list[Any]] = {}
    logged: list[Any] = []

    async def log(params: Any) -> None:
        logged.append(params.data)

    async def call(client: Client, name: str) -> str:
        async def progress(*news: Any) -> None:
            told.setdefault(name, []).append(news)

        return text(await client.call_tool("meet", {"name": name}, progress_callback=progress))

    async def visit() -> None:
        names = [f"caller {number}" for number in range(5)]
        async with Client(good(), logging_callback=log, log_level="info", **SILENT) as client:
            assert await asyncio.gather(*(call(client, name) for name in names)) == names
        assert told == {name: [(1.0, 2, name), (2.0, 2, name)] for name in names}
        assert sorted(logged) == names

    run(visit())


def test_a_call_that_is_cancelled_is_cancelled_in_the_server() -> None:
    async def visit() -> None:
        began = asyncio.Event()

        async def progress(*_: Any) -> None:
            began.set()

        async with Client(good(), **SILENT) as client:
            call = asyncio.create_task(client.call_tool("hang", progress_callback=progress))
            await began.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("hang", deadline=0.05)
            async with asyncio.timeout(SOON):
                while (await client.call_tool("fate")).structured_content != {"result": ["cancelled"] * 2}:
                    pass

    run(visit())


def test_a_subscription_runs_beside_the_calls_and_ends_with_its_block_or_its_server() -> None:
    async def visit() -> None:
        async with Client(good(), **SILENT) as client:
            async with (
                client.listen(tools_list_changed=True) as subscription,
                client.listen(prompts_list_changed=True) as other,
            ):
                assert subscription.honored == {"toolsListChanged": True}
                assert text(await client.call_tool("change")) == "changed"
                assert await anext(subscription) == Change("tools")
                await client.call_tool("end_subscriptions")
                assert [change async for change in subscription] == []
                assert [change async for change in other] == []
            assert text(await client.call_tool("change")) == "changed"

    run(visit())


def test_what_the_server_writes_to_standard_error_is_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    async def visit() -> None:
        async with Client(good(), **SILENT) as client:
            assert text(await client.call_tool("grumble")) == "done"

    run(visit())
    captured = capfd.readouterr()
    assert "on standard error\n" in captured.err
    assert "printed by mistake\n" in captured.err
    assert captured.out == ""


# What a child gets


def test_a_child_gets_what_it_is_given_and_the_few_variables_that_every_program_needs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for children")
    monkeypatch.setenv("PYTHONPATH", "not for children either")
    monkeypatch.setenv("HOME", "/home/of/ours")
    monkeypatch.setenv("LANG", "C.UTF-8")
    code = "while True: reply(read(), env=dict(os.environ), cwd=os.getcwd(), argv=sys.argv[1:])"
    command = Command([sys.executable, "-c", BAD + code, "a b", "*"], env={"TOKEN": "5", "LANG": "C"}, cwd=str(folder))

    async def visit() -> None:
        async with Client(command, **SILENT) as client:
            seen = await content(client)
            assert seen["cwd"] == str(folder)
            assert seen["argv"] == ["a b", "*"]
            assert seen["env"] | {"TOKEN": "5", "LANG": "C", "HOME": "/home/of/ours"} == seen["env"]
            assert seen["env"]["PATH"] == os.environ["PATH"]
            assert not {"AWS_SECRET_ACCESS_KEY", "PYTHONPATH"} & seen["env"].keys()

    run(visit())


@pytest.mark.parametrize(
    "command",
    [
        Command(["/no/such/program"]),
        Command([sys.executable, "-c", ""], cwd="/no/such/folder"),
        Command([sys.executable, "-c", "\0"]),
        Command(["/"]),
    ],
)
def test_a_server_that_cannot_be_started_is_not_there(command: Command) -> None:
    async def visit() -> None:
        with pytest.raises(ConnectionLost, match="cannot be started") as raised:
            async with Client(command):
                raise AssertionError
        assert raised.value.sent is False

    run(visit())


@pytest.mark.parametrize("args", ["python server.py", [], [5], ()])
def test_what_is_no_command_is_refused(args: Any) -> None:
    with pytest.raises(ValueError, match="command"):
        Command(args)


# Children that die


def test_a_child_that_ends_at_once_cannot_be_entered(folder: Path) -> None:
    async def visit() -> None:
        with pytest.raises(ConnectionLost):
            async with Client(bad("sys.exit(3)", folder)):
                raise AssertionError

    run(visit())


def test_a_child_that_dies_in_the_middle_is_told_and_started_again_by_the_next_request(folder: Path) -> None:
    code = (
        "request = read()\nif number == 1: os.kill(os.getpid(), signal.SIGKILL)\nreply(request, number=number)\n" + ECHO
    )

    async def visit() -> None:
        async with Client(bad(code, folder), **SILENT) as client:
            with pytest.raises(ConnectionLost) as raised:
                await client.call_tool("it")
            assert raised.value.sent is True, "the call may have done its work"
            assert (await content(client))["number"] == 2
            assert (await content(client))["number"] == 2
        assert not any(is_alive(pid) for pid in pids(folder))

    run(visit())


def test_every_call_under_way_is_told_when_the_child_dies(folder: Path) -> None:
    code = "[read() for _ in range(3)]\nsys.exit()"

    async def visit() -> None:
        async with Client(bad(code, folder), **SILENT) as client:
            outcomes = await asyncio.gather(*(client.call_tool("it") for _ in range(3)), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 3

    run(visit())


def test_a_request_that_may_be_sent_twice_is_sent_to_the_new_child(folder: Path) -> None:
    listing = "request = read()\nif number == 1: sys.exit()\nsay({'id': request['id'], 'result': {'prompts': []}})\n"

    async def visit() -> None:
        async with Client(bad(listing + ECHO, folder), **SILENT) as client:
            assert (await client.list_prompts()).prompts == []
        assert len(pids(folder)) == 2

    run(visit())


def test_the_death_of_a_child_is_noticed_while_its_own_children_live(folder: Path) -> None:
    code = f"read()\nif number == 1:\n    {GRANDCHILD}    {KNOWN}    sys.exit()\nreply(read(), number=number)\n"

    async def visit() -> None:
        async with Client(bad(code, folder), **SILENT) as client, within(SOON):
            with pytest.raises(ConnectionLost):
                await client.call_tool("it", deadline=SOON + 1)
        await until(lambda: not any(is_alive(pid) for pid in pids(folder, "grandchildren")))

    run(visit())


def test_what_an_old_child_left_behind_does_not_disturb_the_calls_of_the_new_one(folder: Path) -> None:
    """The first child dies and leaves a process that holds its output; it ends while the second child works."""
    first = f"    {GRANDCHILD}    {KNOWN}    sys.exit()\n"
    second = "request = read()\nopen('working', 'w').close()\nwhile not os.path.exists('go on'): time.sleep(0.01)\n"
    code = f"if number == 1:\n    read()\n{first}{second}reply(request, number=number)\n" + ECHO

    async def visit() -> None:
        async with Client(bad(code, folder), **SILENT) as client:
            with pytest.raises((ConnectionLost, DeadlineExceeded)):
                await client.call_tool("it", deadline=0.5)
            call = asyncio.create_task(content(client))
            await until((folder / "working").exists)
            for pid in pids(folder, "grandchildren"):
                os.kill(pid, signal.SIGKILL)
                await until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]
            await asyncio.sleep(0.05)  # For the end of its output to arrive, which is not to be noticed.
            (folder / "go on").touch()
            assert (await call)["number"] == 2

    run(visit())


# Children that talk nonsense


def test_lines_that_are_no_messages_are_passed_over(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    nonsense = ["hello", "", "{", "[]", "5", "null", '{"id": 99, "result": {}}', '{"id": [1], "result": {}}']
    nonsense += ['{"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "what?"}}', '{"method": 5}', "\u00ff"]
    code = f"request = read()\nfor line in {nonsense!r}: print(line, flush=True)\nos.write(1, bytes([255, 10]))\n"

    async def visit() -> None:
        async with Client(bad(code + "reply(request, fine=True)\n" + ECHO, folder), **SILENT) as client:
            assert await content(client) == {"fine": True}

    with caplog.at_level(logging.WARNING):
        run(visit())
    assert "hello" in caplog.text


def test_a_line_without_end_is_the_peers_mistake_and_the_child_is_not_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LONGEST_LINE", 100_000)
    code = (
        "request = read()\nif number == 1:\n    sys.stdout.write('x' * 1_000_000)\n    sys.stdout.flush()\n    read()\n"
    )

    async def visit() -> None:
        async with Client(bad(code + "reply(request, number=number)", folder), **SILENT) as client:
            with pytest.raises(InvalidReply, match="more than 100000 bytes"):
                await client.call_tool("it")
            await until(lambda: not is_alive(pids(folder)[0]))
            assert (await content(client))["number"] == 2

    run(visit())


def test_a_large_line_within_the_limit_is_read(folder: Path) -> None:
    async def visit() -> None:
        code = "request = read()\nreply(request, x='y' * 3_000_000, n=len(request['params']['arguments']['x']))\nread()"
        async with Client(bad(code, folder), **SILENT) as client:
            result = await client.call_tool("it", {"x": "z" * 3_000_000})
            assert result.structured_content is not None
            assert len(result.structured_content["x"]) == result.structured_content["n"] == 3_000_000

    run(visit())


def test_an_error_that_says_not_whose_it_is_belongs_to_the_only_call_under_way() -> None:
    """A server that cannot read a line does not know its id. Nobody waits for the rest of his five minutes."""

    async def visit() -> None:
        async with Client(good(), **SILENT) as client, within(SOON):
            with pytest.raises(MCPError, match="too long"):
                await client.call_tool("meet", {"name": "x" * 5_000_000}, deadline=SOON)

    run(visit())


LATE = """
while True:
    request = read()
    params = request["params"]
    if request["method"] == "notifications/cancelled":
        seen.append(params["requestId"])
    elif params["name"] == "hang":
        hanging = request["id"]
        say({"method": "notifications/progress", "params": {"progressToken": hanging, "progress": 1}})
    else:
        say({"method": "notifications/progress", "params": {"progressToken": hanging, "progress": 99}})
        say({"id": hanging, "result": {"content": [], "structuredContent": {"late": True}}})
        reply(request, hanging=hanging, cancelled=seen)
"""


def test_what_comes_late_for_a_call_that_was_given_up_reaches_no_other_call(folder: Path) -> None:
    told: list[float] = []

    async def progress(done: float, *_: Any) -> None:
        told.append(done)

    async def visit() -> None:
        began = asyncio.Event()

        async def begun(*_: Any) -> None:
            began.set()

        async with Client(bad("seen = []\n" + LATE, folder), **SILENT) as client:
            given_up = asyncio.create_task(client.call_tool("hang", progress_callback=begun))
            await began.wait()
            given_up.cancel()
            with pytest.raises(asyncio.CancelledError):
                await given_up
            seen = await content(client, progress_callback=progress)
            assert seen["cancelled"] == [seen["hanging"]]

    run(visit())
    assert told == []


LOGGING = """
request = read()
assert read()["method"] == "subscriptions/listen"
acknowledged = {"notifications": {}, "_meta": {"io.modelcontextprotocol/subscriptionId": request["id"] + 1}}
say({"method": "notifications/subscriptions/acknowledged", "params": acknowledged})
assert [read()["method"], read()["method"]] == ["tools/call", "notifications/cancelled"]
say({"method": "notifications/message", "params": {"level": "info", "data": "while you listen"}})
reply(request)
"""


def test_a_log_line_is_heard_though_a_subscription_began_after_the_call(folder: Path) -> None:
    logged: list[Any] = []

    async def log(params: Any) -> None:
        logged.append(params.data)

    async def visit() -> None:
        async with Client(bad(LOGGING + ECHO, folder), logging_callback=log, log_level="info", **SILENT) as client:
            call = asyncio.create_task(client.call_tool("it"))
            await asyncio.sleep(0)
            async with client.listen(tools_list_changed=True):
                with pytest.raises(DeadlineExceeded):
                    await client.call_tool("nudge", deadline=0.05)
                await call

    run(visit())
    assert logged == ["while you listen"]


# Children that do nothing


FLOOD = """
request = read()
for number in range(COUNT):
    sys.stdout.write('{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%d}}'
        % (request["id"], number + 1) + chr(10))
reply(request, number=COUNT)
start("flooded")
"""


@pytest.mark.parametrize("members", ["", '"id":7,'])
def test_a_server_that_floods_is_not_kept_in_memory_and_its_reply_arrives(
    members: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The callback takes nothing until all was written, and the little that is then in the pipe was read."""
    count, told = process.MOST_UNREAD * 5, []

    async def visit() -> None:
        async def progress(done: float, *_: Any) -> None:
            told.append(done)
            if len(told) == 1:
                await until(lambda: bool(pids(folder, "flooded")))
                await asyncio.sleep(0.5)

        flood = FLOOD.replace("COUNT", str(count)).replace('"method"', members + '"method"')
        async with Client(bad(flood, folder), **SILENT) as client:
            assert await content(client, progress_callback=progress) == {"number": count}

    run(visit())
    assert process.MOST_UNREAD <= len(told) < process.MOST_UNREAD * 2
    assert told == sorted(told)
    assert 1 <= len([record for record in caplog.records if "passed over" in record.getMessage()]) <= 4


def test_a_reply_that_is_too_deep_ends_its_call(folder: Path) -> None:
    deep = "request = read()\nsay({'id': request['id'], 'result': json.loads('[' * 400 + ']' * 400)})\n"

    async def visit() -> None:
        async with Client(bad(deep + ECHO, folder), **SILENT) as client:
            with pytest.raises(InvalidReply, match="cannot be read"):
                await client.call_tool("it")
            assert (await content(client))["number"] == 1

    run(visit())


ASKING = """
first = read()
say({"id": "mine", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}})
say({"id": "ping", "method": "ping"})
reply(first)
second = read()
reply(second, **second)
"""


def test_a_server_of_this_version_that_asks_by_requests_gets_no_responses(folder: Path) -> None:
    """ "The client MUST NOT write responses": the next line that the server reads is the next request."""

    async def visit() -> None:
        async with Client(bad(ASKING, folder), elicitation_callback=accept, **SILENT) as client:
            await client.call_tool("first")
            seen = await content(client)
            assert (seen["method"], seen["params"]["name"]) == ("tools/call", "it")

    run(visit())


ENDING = """
request = read()
meta = {"io.modelcontextprotocol/subscriptionId": request["id"]}
say({"method": "notifications/subscriptions/acknowledged", "params": {"notifications": {}, "_meta": meta}})
say({"method": "notifications/cancelled", "params": {"requestId": request["id"], "reason": "moving", "_meta": meta}})
say({"id": request["id"], "result": {"resultType": "complete", "_meta": meta}})
"""


def test_why_a_server_ends_a_subscription_is_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def visit() -> None:
        client = Client(bad(ENDING + ECHO, folder), **SILENT)
        async with client, client.listen(tools_list_changed=True) as changes:
            assert [change async for change in changes] == []

    caplog.set_level(logging.INFO, logger="turnwise.client")
    run(visit())
    assert "the server ended a subscription: 'moving'" in caplog.text


def test_a_child_that_never_answers_is_given_up(folder: Path) -> None:
    async def visit() -> None:
        async with Client(bad("while True: read()", folder), **SILENT) as client:
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("it", deadline=0.1)
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("it", read_timeout_seconds=0.1)
        with pytest.raises(DeadlineExceeded):
            async with Client(bad("while True: read()", folder), read_timeout_seconds=0.1):
                raise AssertionError
        assert not any(is_alive(pid) for pid in pids(folder))

    run(visit())


@pytest.mark.usefixtures("quick")
def test_a_child_that_never_reads_is_given_up_too(folder: Path) -> None:
    async def visit() -> None:
        async with Client(bad("time.sleep(60)", folder), **SILENT) as client, asyncio.timeout(SOON):
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("it", {"x": "y" * 1_000_000}, deadline=0.1)

    run(visit())


# The end


def test_a_child_ends_with_its_input(folder: Path) -> None:
    async def visit() -> None:
        async with Client(bad(ECHO + "open('never', 'w')", folder), **SILENT) as client:
            pid = (await content(client))["pid"]
            assert is_alive(pid)
        assert not is_alive(pid)

    run(visit())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("stubborn", ["", "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"])
def test_a_child_that_ignores_the_end_of_its_input_is_ended_by_force(folder: Path, stubborn: str) -> None:
    async def visit() -> None:
        command = bad(f"{stubborn}reply(read())\ntime.sleep(60)", folder)
        async with within(SOON), Client(command, **SILENT) as client:
            await content(client)
        assert not any(is_alive(pid) for pid in pids(folder))

    run(visit())


def test_a_child_is_not_left_behind_where_its_end_is_not_waited_for(folder: Path) -> None:
    async def visit() -> None:
        stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nreply(read())\ntime.sleep(60)"
        client = Client(bad(stubborn, folder), **SILENT)
        await client.__aenter__()
        await content(client)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.__aexit__(), 0.1)

    run(visit())
    assert [Path(f"/proc/{pid}").exists() for pid in pids(folder)] == [False]


@pytest.mark.usefixtures("quick")
def test_a_call_that_is_cancelled_when_the_input_of_the_child_is_closed_is_cancelled(folder: Path) -> None:
    import uvloop

    async def visit() -> None:
        async with Client(bad("read()\ntime.sleep(60)", folder), **SILENT) as client:
            call = asyncio.create_task(client.call_tool("it"))
            await asyncio.sleep(0.05)
            client._channel._child.input.close()  # type: ignore[attr-defined]
            await asyncio.sleep(0.05)
            call.cancel()
            await asyncio.wait([call])
            assert call.cancelled()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(visit())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "detail", ["grandchild.stdout", "subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)"]
)
def test_what_a_child_started_and_left_behind_is_ended(folder: Path, detail: str) -> None:
    async def visit() -> None:
        command = bad(f"{GRANDCHILD}{KNOWN}{detail}\nreply(read())\nread()", folder)
        async with within(SOON), Client(command, **SILENT) as client:
            await content(client)
        assert len(pids(folder, "grandchildren")) == 1
        await until(lambda: not any(is_alive(pid) for pid in pids(folder, "grandchildren")))

    run(visit())


def test_leaving_the_block_ends_the_calls_under_way_and_starts_nothing_anew(folder: Path) -> None:
    async def visit() -> None:
        async with Client(bad("open('ready', 'w').close()\nwhile True: read()", folder), **SILENT) as client:
            await until((folder / "ready").exists)
            calls = [asyncio.create_task(client.call_tool("it")), asyncio.create_task(client.list_tools())]
            await asyncio.sleep(0.05)
        outcomes = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), SOON)
        assert [isinstance(outcome, Exception) for outcome in outcomes] == [True, True]
        assert len(pids(folder)) == 1
        assert not any(is_alive(pid) for pid in pids(folder))

    run(visit())


def test_a_client_that_was_left_may_be_entered_again(folder: Path) -> None:
    client = Client(bad(ECHO, folder), **SILENT)

    async def visit() -> None:
        for _ in range(2):
            async with client:
                assert (await content(client))["number"] == len(pids(folder))

    run(visit())
    run(visit())
    assert len(pids(folder)) == 4
    assert not any(is_alive(pid) for pid in pids(folder))


def test_two_clients_have_a_child_each(folder: Path) -> None:
    async def visit() -> None:
        command = bad(ECHO, folder)
        async with Client(command, **SILENT) as one, Client(command, **SILENT) as other:
            first, second = await content(one), await content(other)
            assert first["pid"] != second["pid"]
            assert json.dumps(first) != json.dumps(second)

    run(visit())
