"""The client for scripts: the same calls without `await`, over memory, HTTP and standard streams."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from tests.unit.joined import (
    DISCOVERED,
    ENVIRONMENT,
    PATIENCE,
    PYTHONPATH,
    Json,
    Peer,
    accept,
    asking,
    form,
    run,
    serving,
)
from tests.unit.joined import text as said
from turnwise import (
    AlreadyAnswered,
    Asking,
    CallbackFailed,
    Command,
    ConnectionLost,
    DeadlineExceeded,
    Done,
    HandshakeRequired,
    MCPError,
    Pending,
    SQLitePendingStore,
    SyncClient,
)
from turnwise.errors import CallerError

SILENT: Any = {"mode": "2026-07-28"}

SERVER = """
import asyncio, sys
from typing import Annotated
from turnwise import Context, Elicit, MCPServer, RequestStateSecurity, Resolve

server = MCPServer(
    "airline", instructions="Book.", page_size=2, request_state_security=RequestStateSecurity(keys=[b"k" * 32])
)

def ask_town() -> Elicit[str]:
    return Elicit("Which town?", str, key="town")

@server.tool()
async def book(flight: str, ctx: Context) -> str:
    await ctx.report_progress(1, 2, "asking")
    seat = await ctx.elicit("Which seat?", str, key="seat")
    meal = await ctx.elicit("Which meal?", str, key="meal")
    await ctx.info("booked")
    return f"{flight}: {seat.data}, {meal.data}"

@server.tool()
async def think(ctx: Context) -> str:
    result = await ctx.sample("What is 1 + 1?")
    folders = await ctx.roots()
    return f"{result.content.text} in {folders[0].uri}"

@server.tool()
async def hang() -> str:
    await asyncio.Event().wait()

@server.prompt()
async def postcard(to: str, town: Annotated[str, Resolve(ask_town)]) -> str:
    return f"To {to} from {town}"

@server.prompt()
async def letter(to: str) -> str:
    return to

@server.prompt()
async def telegram(to: str) -> str:
    return to

@server.resource("airline://map/{scale}")
async def map_of(scale: str, town: Annotated[str, Resolve(ask_town)]) -> str:
    return f"{town} 1:{scale}"

for number in range(3):
    server.resource(f"airline://plane/{number}", name=f"plane{number}")(lambda: "plane")

@server.completion()
async def complete(ref, argument, context):
    return [argument.value + "!"]

if __name__ == "__main__":
    server.run(sys.argv[1], **({"port": 0} if sys.argv[1] == "http" else {}))
"""


def in_memory() -> Any:
    names: Json = {"__name__": "airline"}
    exec(SERVER, names)
    return names["server"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(SERVER, "http") as url:
        yield url


@pytest.fixture(params=["memory", "http", "stdio"])
def target(request: pytest.FixtureRequest) -> Any:
    match request.param:
        case "memory":
            return in_memory()
        case "http":
            return request.getfixturevalue("url")
        case _:
            return Command([sys.executable, "-c", SERVER, "stdio"], env={"PYTHONPATH": PYTHONPATH})


def named(asking: Asking, params: Any) -> Json:
    return accept(value=asking.key)


async def named_slowly(asking: Asking, params: Any) -> types.ElicitResult:
    await asyncio.sleep(0)
    return types.ElicitResult(action="accept", content={"value": asking.key})


def sampled(asking: Asking, params: Any) -> Json:
    return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "2"}}


def rooted(asking: Asking) -> Json:
    return {"roots": [{"uri": "file:///home"}]}


# Over every transport


def test_every_method_works_without_await(target: Any) -> None:
    progress: list[Any] = []
    logged: list[Any] = []
    callbacks: Any = {"sampling_callback": sampled, "list_roots_callback": rooted, "log_level": "info"}
    with SyncClient(
        target, elicitation_callback=named, logging_callback=lambda params: logged.append(params.data), **callbacks
    ) as client:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info is not None
        assert (client.server_info.name, client.instructions) == ("airline", "Book.")
        assert client.server_capabilities.tools is not None
        assert isinstance(client.discover(), types.DiscoverResult)
        result = client.call_tool("book", {"flight": "TW 1"}, progress_callback=lambda *news: progress.append(news))
        assert said(result) == "TW 1: seat, meal"
        assert progress == [(1.0, 2, "asking")]
        assert logged == ["booked"]
        assert said(client.call_tool("think")) == "2 in file:///home"
        prompt = client.get_prompt("postcard", {"to": "Ada"}, progress_callback=lambda *news: None)
        assert isinstance(prompt.messages[0].content, types.TextContent)
        assert prompt.messages[0].content.text == "To Ada from town"
        assert getattr(client.read_resource("airline://map/5").contents[0], "text", None) == "town 1:5"
        completion = client.complete({"type": "ref/prompt", "name": "letter"}, {"name": "to", "value": "A"})
        assert completion.completion.values == ["A!"]
        assert (
            client.request("tools/call", {"name": "book", "arguments": {"flight": "x"}})["resultType"]
            == "input_required"
        )
        first = client.list_tools()
        assert [tool.name for tool in first.tools] == ["book", "think"]
        assert [tool.name for tool in client.list_tools(cursor=first.next_cursor).tools] == ["hang"]
        assert len(client.list_prompts().prompts) == len(client.list_resources().resources) == 2
        assert len(client.list_resource_templates().resource_templates) == 1
        assert [tool.name for tool in client.iter_tools()] == ["book", "think", "hang"]
        assert [prompt.name for prompt in client.iter_prompts()] == ["postcard", "letter", "telegram"]
        assert [entry.name for entry in client.iter_resources()] == ["plane0", "plane1", "plane2"]
        assert [template.name for template in client.iter_resource_templates()] == ["map_of"]


def test_a_call_is_put_down_and_picked_up_without_await(target: Any, tmp_path: Path) -> None:
    with SyncClient(target, **SILENT) as client:
        call = client.begin("book", {"flight": "TW 1"})
        assert isinstance(call, Pending)
        call = client.resume(Pending.from_json(call.to_json()), {"seat": accept(value="7A")})
        assert isinstance(call, Pending)
        done = client.resume(call, {"meal": accept(value="rice")}, progress_callback=lambda *news: None)
        assert isinstance(done, Done)
        assert said(done.result) == "TW 1: 7A, rice"
        for begun in (client.begin_prompt("postcard", {"to": "Ada"}), client.begin_resource("airline://map/5")):
            assert isinstance(begun, Pending)
            assert isinstance(client.resume(begun, {"town": accept(value="Rome")}), Done)


def test_a_call_that_takes_too_long_is_given_up(target: Any) -> None:
    with SyncClient(target, **SILENT) as client:
        with pytest.raises(DeadlineExceeded):
            client.call_tool("hang", deadline=0.05)
        with pytest.raises(DeadlineExceeded):
            client.call_tool("hang", read_timeout_seconds=0.05)
        assert len(client.list_tools().tools) == 2


# Callbacks


@pytest.mark.parametrize("callback", [named, named_slowly])
def test_a_callback_may_be_a_plain_function_or_a_coroutine_function(callback: Any) -> None:
    with SyncClient(in_memory(), elicitation_callback=callback) as client:
        assert said(client.call_tool("book", {"flight": "TW 1"})) == "TW 1: seat, meal"


def test_a_callback_runs_in_the_thread_that_calls() -> None:
    threads: list[threading.Thread] = []

    def answer(asking: Asking, params: Any) -> Json:
        threads.append(threading.current_thread())
        return accept(value="x")

    with SyncClient(in_memory(), elicitation_callback=answer) as client:
        client.call_tool("book", {"flight": "TW 1"})
    assert set(threads) == {threading.current_thread()}


def test_a_callback_that_raises_fails_the_call_and_not_the_client() -> None:
    faults = [ZeroDivisionError("oh")]

    def answer(asking: Asking, params: Any) -> Json:
        if faults:
            raise faults.pop()
        return accept(value="x")

    with SyncClient(in_memory(), elicitation_callback=answer) as client:
        with pytest.raises(CallbackFailed) as raised:
            client.call_tool("book", {"flight": "TW 1"})
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert said(client.call_tool("book", {"flight": "TW 1"})) == "TW 1: x, x"


def test_a_callback_cannot_use_the_client_that_waits_for_it() -> None:
    def answer(asking: Asking, params: Any) -> Any:
        return client.call_tool("book", {"flight": "another"})

    with SyncClient(in_memory(), elicitation_callback=answer) as client, pytest.raises(CallerError, match="loop"):
        client.call_tool("book", {"flight": "TW 1"})


# Its life


def test_it_is_not_for_code_that_runs_in_a_loop() -> None:
    async def visit() -> None:
        with pytest.raises(CallerError, match="async with Client"), SyncClient(in_memory()):
            raise AssertionError

    run(visit())


def test_a_client_that_was_entered_outside_a_loop_is_not_used_inside_one() -> None:
    with SyncClient(in_memory()) as client:

        async def visit() -> None:
            with pytest.raises(CallerError, match="loop"):
                client.list_tools()

        run(visit())
        assert len(client.list_tools().tools) == 2


def test_it_is_used_inside_its_block() -> None:
    client = SyncClient(in_memory())
    for _ in range(2):
        for use in (
            client.list_tools,
            client.discover,
            lambda: client.call_tool("x"),
            lambda: next(client.iter_tools()),
        ):
            with pytest.raises(CallerError, match="with SyncClient"):
                use()
        with client:
            pass


def test_it_is_entered_once_at_a_time() -> None:
    with SyncClient(in_memory()) as client:
        with pytest.raises(CallerError, match="open already"):
            client.__enter__()
        assert len(client.list_tools().tools) == 2
    with client:
        assert len(client.list_tools().tools) == 2


def test_a_client_that_could_not_be_entered_may_be_entered_later() -> None:
    answers = [MCPError(-32601, "no"), DISCOVERED]

    async def answer(method: str, params: Json) -> Any:
        if isinstance(reply := answers.pop(0), MCPError):
            raise reply
        return reply

    peer = Peer(answer)
    client = SyncClient(peer)
    with pytest.raises(HandshakeRequired), client:
        raise AssertionError
    with client:
        assert client.server_info is None
    assert (peer.opened, peer.closed) == (2, 2)


def test_it_may_live_in_a_thread_of_its_own() -> None:
    said_there: list[str] = []

    def work() -> None:
        with SyncClient(in_memory(), elicitation_callback=named) as client:
            said_there.append(said(client.call_tool("book", {"flight": "TW 1"})))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    assert said_there == ["TW 1: seat, meal"]


def test_two_threads_do_not_use_it_at_the_same_time() -> None:
    outcomes: list[Any] = []
    thinking, told = threading.Event(), threading.Event()

    def slowly(asking: Asking, params: Any) -> Json:
        thinking.set()
        assert told.wait(PATIENCE)
        return named(asking, params)

    with SyncClient(in_memory(), elicitation_callback=slowly) as client:
        thread = threading.Thread(
            target=lambda: outcomes.append(said(client.call_tool("book", {"flight": "TW 1"}))), daemon=True
        )
        thread.start()
        assert thinking.wait(PATIENCE)
        for use in (client.list_tools, client.__exit__):
            with pytest.raises(CallerError, match="another thread is using this client"):
                use()
        told.set()
        thread.join(PATIENCE)
        assert outcomes == ["TW 1: seat, meal"]
        assert client.list_tools().tools


def test_a_list_may_be_left_in_the_middle() -> None:
    with SyncClient(in_memory()) as client:
        assert next(client.iter_tools()).name == "book"
        names = iter(client.iter_prompts())
        assert (next(names).name, next(names).name) == ("postcard", "letter")


def test_a_store_works_without_await(tmp_path: Path) -> None:
    store = SQLitePendingStore(tmp_path / "calls.db")
    peer = Peer(lambda method, params: {"content": []} if "inputResponses" in params else asking({"q": form()}, "s"))
    with SyncClient(peer, pending_store=store, **SILENT) as client:
        begun = client.begin("it")
        assert isinstance(begun, Pending)
    with SyncClient(peer, pending_store=store, **SILENT) as client:
        assert isinstance(client.resume(begun.id, {"q": accept(value="x")}), Done)
        with pytest.raises((AlreadyAnswered, LookupError)):
            client.resume(begun.id, {"q": accept(value="x")})
    run(store.aclose())


# Interrupted


SCRIPT = """
import os, sys, time
from turnwise import Command, SyncClient

CHILD = r'''
import json, os, sys
with open("child", "w") as file: file.write(str(os.getpid()))
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] != "tools/call" or "hang" in sys.argv: continue
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}
    result = {"resultType": "input_required", "requestState": "s", "inputRequests": {"q": question}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
'''

def answer(asking, params):
    print("asked", flush=True)
    sys.stdin.readline()  # As a prompt does.
    print("answered", flush=True)
    return {"action": "accept"}

try:
    command = Command([sys.executable, "-c", CHILD, *sys.argv[1:]])
    with SyncClient(command, elicitation_callback=answer, mode="2026-07-28") as client:
        if sys.argv[1:]:
            while not os.path.exists("child"): time.sleep(0.01)
            print("calling", flush=True)
        client.call_tool("it")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("arguments", [["hang"], []], ids=["in a call", "in a callback that blocks"])
def test_an_interrupt_ends_the_script_and_leaves_no_child_behind(tmp_path: Path, arguments: list[str]) -> None:
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=ENVIRONMENT,
    )
    assert script.stdin is not None
    assert script.stdout is not None
    try:
        assert script.stdout.readline() == ("calling\n" if arguments else "asked\n")
        time.sleep(0.1)  # A call that has begun, or a prompt that is read: neither says so.
        script.send_signal(signal.SIGINT)
        assert script.wait(3) == 0
        assert script.stdout.read() == "interrupted\n"
        child = Path(f"/proc/{(tmp_path / 'child').read_text()}/stat")
        assert not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z"
    finally:
        script.stdin.close()
        script.kill()
        script.wait()
        script.stdout.close()


def test_a_server_that_cannot_be_reached_is_told_without_a_trace() -> None:
    with pytest.raises(ConnectionLost), SyncClient(Command(["/no/such/program"])):
        raise AssertionError
    with pytest.raises(ConnectionLost), SyncClient("http://127.0.0.1:9/mcp"):
        raise AssertionError
