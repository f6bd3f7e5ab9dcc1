"""`turnwise worker` and `turnwise tasks`, as processes of their own."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import turnwise
from tests.fleet.forks import Forks, forks
from turnwise.cli.loading import load
from turnwise.tasks.model import Claim, Limits, NewTask
from turnwise.testing import Connection, connect

COMMAND = [sys.executable, "-c", "from turnwise.cli import main; main()"]
PYTHONPATH = str(Path(turnwise.__file__).parents[1])
PATIENCE = 30.0
NUMBERS = count(1)
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
KEYED = """request_state_security=RequestStateSecurity(keys=[os.environ["SHOP_KEY"]]), """
SHOP = """
import os
from turnwise import Context, MCPServer, RequestStateSecurity, SQLiteTaskStore, TaskOptions

options = TaskOptions(store=SQLiteTaskStore(os.environ["SHOP_TASKS"]), workers=0, lease=1.0)
server = MCPServer("[shop]", request_state_security=RequestStateSecurity(keys=[os.environ["SHOP_KEY"]]), tasks=options)
rekeyed = MCPServer("shop", request_state_security=RequestStateSecurity(keys=["another key" * 3]), tasks=options)
plain = MCPServer("plain")
forgetful = MCPServer("forgetful", tasks=TaskOptions())
lost = MCPServer("lost", tasks=SQLiteTaskStore("/dev/null/tasks.db"))
number = 7

async def pack(item: str) -> str:
    return f"{item} in a box"

@server.tool(task="always")
async def order(item: str, ctx: Context) -> str:
    packed = await ctx.step(pack, item)
    await ctx.report("packed")
    name = await ctx.elicit(f"Who gets {item}?", str, key="name")
    return f"{packed} for {name.data}"
"""
# The same shop, keyed by who serves it.
SERVED = "\n".join(line for line in SHOP.replace(KEYED, "").splitlines() if not line.startswith("forgetful"))


# A shop, and commands about it


class Shop(NamedTuple):
    folder: Path
    env: dict[str, str]
    forks: Forks

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        """The command as a shell would run it."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*COMMAND, *arguments], cwd=self.folder, env={**os.environ, **self.env}, **pipes)

    def run(self, *commands: Sequence[str]) -> list[tuple[int, str, str]]:
        """The same for several, side by side: the exit code, and what was said on both streams."""
        numbers = [next(NUMBERS) for _ in commands]
        paths = [(self.folder / f"{number}.out", self.folder / f"{number}.err") for number in numbers]
        children = [
            self.forks.begin(command, self.env, err, cwd=self.folder, out=out)
            for command, (out, err) in zip(commands, paths, strict=True)
        ]
        codes = [child.wait() for child in children]
        return [(code, out.read_text(), err.read_text()) for code, (out, err) in zip(codes, paths, strict=True)]

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Any, Connection]]:
        """The shop's server in this process, which plays no tasks, and a client of it."""
        server = load(f"{self.folder}/shop.py:server")
        assert server.tasks is not None
        async with connect(server) as client:
            client.capabilities = CAPABILITIES
            yield server.tasks.store, client
        await server.tasks.store.aclose()


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def origin() -> Iterator[Forks]:
    with forks() as begun:
        yield begun


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: Forks) -> Shop:
    (tmp_path / "shop.py").write_text(SHOP)
    names = {"SHOP_TASKS": str(tmp_path / "tasks.db"), "SHOP_KEY": "k" * 32}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    return Shop(tmp_path, {**names, "PYTHONPATH": PYTHONPATH}, origin)


async def begin(client: Connection, item: str) -> str:
    result = await client.request("tools/call", {"name": "order", "arguments": {"item": item}})
    return str(result["taskId"])


async def until(client: Connection, task_id: str, status: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            seen = await client.request("tasks/get", {"taskId": task_id})
            if seen["status"] == status:
                return seen
            await asyncio.sleep(0.02)


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work(), 2 * PATIENCE)

    asyncio.run(bounded())


# The worker


@pytest.mark.parametrize(
    ("name", "options", "end"), [("shop.py:server", [], signal.SIGTERM), ("shop", ["--workers", "1"], signal.SIGINT)]
)
def test_a_worker_plays_the_tasks_of_a_server_until_it_is_told_to_leave(
    shop: Shop, name: str, options: list[str], end: signal.Signals
) -> None:
    async def work() -> None:
        worker = shop.begin("worker", name, "--verbose", *options)
        async with shop.opened() as (_, client):
            task_id = await begin(client, "tea")
            assert (await until(client, task_id, "input_required"))["statusMessage"] == "packed"
            answers = {"name": {"action": "accept", "content": {"value": "Ann"}}}
            await client.request("tasks/update", {"taskId": task_id, "inputResponses": answers})
            done = await until(client, task_id, "completed")
            assert done["result"]["content"][0]["text"] == "tea in a box for Ann"
        worker.send_signal(end)
        code, out, err = await asyncio.to_thread(ended, worker)
        assert (code, out) == (0, "")
        assert f"Playing the tasks of [shop] as {os.uname().nodename}:{worker.pid}:" in err
        assert f"task {task_id}: 'order' completed" in err

    run(work)


SLOW = """
import asyncio, sys
from contextlib import asynccontextmanager

@asynccontextmanager
async def lifespan(server):
    try:
        print("here", flush=True)
        await asyncio.sleep(BEFORE)
        yield
        print("here", flush=True)
        await asyncio.sleep(60)
    finally:
        print("gone", flush=True)

"""


@contextmanager
def slow_worker(shop: Shop, before: int) -> Iterator["subprocess.Popen[str]"]:
    """A worker whose lifespan takes so many seconds to begin, and a minute to end."""
    living = SHOP.replace('MCPServer("[shop]", ', 'MCPServer("[shop]", lifespan=lifespan, ')
    (shop.folder / "slow.py").write_text(SLOW.replace("BEFORE", str(before)) + living)
    with shop.begin("worker", "slow.py:server") as worker:
        try:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "here\n"
            yield worker
        finally:
            worker.kill()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_cannot_begin_is_told_to_leave_and_does(shop: Shop, end: signal.Signals) -> None:
    with slow_worker(shop, 60) as worker:
        worker.send_signal(end)
        assert ended(worker) == (0, "gone\n", "")


def test_a_worker_that_takes_its_time_to_leave_does_so_at_once_when_told_again(shop: Shop) -> None:
    with slow_worker(shop, 0) as worker:
        assert worker.stdout is not None
        assert worker.stderr is not None
        assert "Playing the tasks" in worker.stderr.readline()
        worker.send_signal(signal.SIGTERM)
        assert worker.stdout.readline() == "here\n"
        worker.send_signal(signal.SIGTERM)
        assert ended(worker)[0] == -signal.SIGTERM


# Looking after tasks

HOSTILE = "[/no] \x1b[2Jmilk"


class States(NamedTuple):
    """A task in every state, by its id."""

    asking: str
    hostile: str
    sleeping: str = "sleeping"
    due: str = "due"
    silent: str = "silent"
    played: str = "played"
    over: str = "over"


async def settle(shop: Shop) -> States:
    """Make them; all but two with a worker that there never was."""
    now, day = time.time(), 86_400.0
    async with shop.opened() as (store, client):

        async def claimed(name: str, lease: float = day) -> Claim:
            await store.create(NewTask(name, "", "order", b"", b"", now - 90, day if name == "played" else None))
            claim: Claim | None = await store.claim("Tom", lease, now - 60, Limits(("order",), {}), name)
            assert claim is not None
            return claim

        states = States(await begin(client, "tea"), await begin(client, HOSTILE))
        worker = shop.forks.begin(["worker", "shop"], shop.env, shop.folder / "worker.err", cwd=shop.folder)
        for task_id in (states.asking, states.hostile):
            await until(client, task_id, "input_required")
        worker.signal(signal.SIGKILL)
        await store.finish(await claimed(states.over), "failed", None, HOSTILE, now - 7200)
        await store.postpone(await claimed(states.sleeping), b"", now + day, now)
        await claimed(states.silent, lease=1.0)
        await claimed(states.played)
        await store.create(NewTask(states.due, "", "order", b"", b"", now - 90, 30.0))
    return states


SENTENCES = {
    "asking": r"waits since \d+\.\d s for an answer to 'name' \(Who gets tea\?\)",
    "hostile": r"waits since \d+\.\d s for an answer to 'name' \(Who gets \[/no\] .*\[2Jmilk\?\)",
    "sleeping": r"sleeps for another (1\.0 d|24\.0 h)",
    "due": r"is due since \d\.\d min: no worker that serves 'order' has taken it",
    "silent": r"its worker Tom fell silent \d+\.\d (s|min) ago; it is due for another one",
    "played": r"is being played by Tom, which has the leg for another 24\.0 h",
    "over": r"failed 2\.0 h ago: \[/no\] .*\[2Jmilk",
}


def test_tasks_are_shown_with_what_they_wait_for(shop: Shop) -> None:
    states = asyncio.run(settle(shop))
    ids = dict(zip(States._fields, states, strict=True))
    listed, table, some, one, shown, sealed = shop.run(
        ["tasks", "list", "shop", "--json"],
        ["tasks", "list", "shop.py"],
        ["tasks", "list", "shop", "--status", "failed", "--json"],
        ["tasks", "show", "shop", states.asking, "--json"],
        ["tasks", "show", "shop", states.over],
        ["tasks", "list", "shop:rekeyed", "--json"],
    )
    assert [(code, err) for code, _, err in (listed, table, some, one, shown)] == [(0, "")] * 5
    assert sealed[2] == (
        "What is sealed was sealed under a key that shop does not have: give those of turnwise serve, with --keys-file "
        "or --keys-env.\n"
    )
    facts = {task["task"]: task for task in map(json.loads, listed[1].splitlines())}
    assert sorted(facts) == sorted(states)
    rows = {row.split()[0]: row for row in table[1].splitlines()}
    for name, sentence in SENTENCES.items():
        assert re.fullmatch(sentence, facts[ids[name]]["now"]), facts[ids[name]]
        assert re.search(rf"order +\w+ +20\S+Z +{sentence}", rows[ids[name]]), rows[ids[name]]
    assert "\x1b" not in table[1] + shown[1]
    assert "4 working, the oldest 9" in table[1]
    assert [json.loads(line)["task"] for line in some[1].splitlines()] == ["over"]
    assert {name: json.loads(one[1])[name] for name in ("tool", "status", "message", "ttl", "legs")} == {
        "tool": "order",
        "status": "input_required",
        "message": "packed",
        "ttl": 86_400.0,
        "legs": 1,
    }
    assert re.search(rf" now  {SENTENCES['over']}\n", shown[1])
    told = {task["task"]: task["now"] for task in map(json.loads, sealed[1].splitlines())}
    assert re.fullmatch(r"waits since \S+ s for an answer to 'name' \(sealed\)", told[states.asking])


def test_a_task_that_is_over_is_told_with_what_its_tool_says(shop: Shop) -> None:
    failing = '    await ctx.report("packed")\n    if item == "air":\n        raise ToolError("sold out")\n'
    text = SHOP.replace('    await ctx.report("packed")\n', failing).replace("workers=0", "workers=1")
    (shop.folder / "shop.py").write_text(text.replace("MCPServer,", "MCPServer, ToolError,", 1))
    (shop.folder / "answers").write_text('{"name": "Ann"}')
    call = ["call", "shop:server", "order", "--answers", "answers"]
    assert [told[0] for told in shop.run([*call, "item=tea"], [*call, "item=air"])] == [0, 1]
    listed, sealed = shop.run(["tasks", "list", "shop", "--json"], ["tasks", "list", "shop:rekeyed", "--json"])
    told = sorted(json.loads(line)["now"] for line in listed[1].splitlines())
    for words, pattern in zip(told, ("", "; the tool says that it failed: sold out"), strict=True):
        assert re.fullmatch(rf"completed \d+\.\d (s|min) ago{pattern}", words), told
    assert all(json.loads(line)["now"].endswith(" ago") for line in sealed[1].splitlines())


def test_what_an_author_prints_is_no_task(shop: Shop) -> None:
    (shop.folder / "loud.py").write_text("from shop import server\nprint('loaded')\n")
    listed, purged = shop.run(["tasks", "list", "loud", "--json"], ["tasks", "purge", "loud"])
    assert listed == (0, "", "loaded\n")
    assert purged == (0, "0 tasks forgotten\n", "loaded\n")


def test_keys_that_a_server_does_not_bring_are_given_as_to_serve(shop: Shop) -> None:
    (shop.folder / "ring").write_text("k" * 32)
    (shop.folder / "other").write_text("o" * 32)
    (shop.folder / "served.py").write_text(SERVED)
    states = asyncio.run(settle(shop))
    show = ["tasks", "show", "served", states.asking]
    none, other, file, variable, listed, both = shop.run(
        show,
        [*show, "--keys-file", "other"],
        [*show, "--keys-file", "ring"],
        [*show, "--json", "--keys-env", "SHOP_KEY"],
        ["tasks", "list", "served", "--keys-file", "ring"],
        [*show, "--keys-file", "ring", "--keys-env", "SHOP_KEY"],
    )
    assert none[0] == other[0] == 0
    assert none[1].endswith(" for an answer to 'name' (sealed)\n")
    assert none[2] == (
        "What is sealed needs a key, and [shop] brings none: give those of turnwise serve, with --keys-file or "
        "--keys-env.\n"
    )
    assert other[2] == "What is sealed was sealed under a key that is not in other.\n"
    for code, said, noted in (file, variable, listed):
        assert (code, noted) == (0, "")
        assert "for an answer to 'name' (Who gets tea?)" in said
    assert both[0] == 2


def test_a_call_begins_its_task_under_the_keys_that_it_is_given(shop: Shop) -> None:
    (shop.folder / "ring").write_text("k" * 32)
    (shop.folder / "served.py").write_text(SERVED.replace("workers=0", "workers=1"))
    (called,) = shop.run(["call", "served:server", "order", "item=tea", "--keys-file", "ring"])
    (listed,) = shop.run(["tasks", "list", "served", "--keys-file", "ring"])
    assert called[0] == 4
    assert "for an answer to 'name' (Who gets tea?)" in listed[1]


def test_a_worker_takes_the_keys_that_a_server_does_not_bring(shop: Shop) -> None:
    (shop.folder / "ring").write_text("k" * 32)
    (shop.folder / "served.py").write_text(SERVED)

    async def work() -> None:
        async with shop.opened() as (_, client):
            task_id = await begin(client, "tea")
            worker = shop.begin("worker", "served", "--keys-file", "ring")
            await until(client, task_id, "input_required")
        worker.send_signal(signal.SIGTERM)
        assert (await asyncio.to_thread(ended, worker))[0] == 0

    run(work)
    (alone,) = shop.run(["worker", "served"])
    assert alone == (
        1,
        "",
        "[shop] brings no keys, and tasks are played with those that they were begun with: give those of turnwise "
        "serve, with --keys-file or --keys-env\n",
    )


def test_tasks_are_stopped_and_forgotten(shop: Shop) -> None:
    states = asyncio.run(settle(shop))
    waiting, played, over = shop.run(*(["tasks", "cancel", "shop", task] for task in (states.asking, "played", "over")))
    assert waiting == (0, f"{states.asking} is cancelled\n", "")
    assert played == (0, "played is asked to stop\n", "")
    assert over == (0, "over is failed\n", "")
    assert shop.run(["tasks", "purge", "shop"]) == [(0, "1 tasks forgotten\n", "")]
    gone, stopped = shop.run(["tasks", "show", "shop", "due"], ["tasks", "show", "shop", states.asking, "--json"])
    assert gone == (1, "", "no task 'due'\n")
    assert json.loads(stopped[1])["now"].endswith("ago: The task was cancelled by request.")


def test_what_is_wrong_is_said_in_a_line_and_by_the_exit_code(shop: Shop) -> None:
    naming = "a server is named module:attribute or file.py:attribute"
    memory = "forgetful keeps its tasks in its own memory, where no other process sees them"
    refused = {
        ("tasks", "list", "nothing"): f"no module 'nothing'; {naming}",
        ("tasks", "list", "..:server"): f"'..' is no module; {naming}",
        ("worker", "nothing.py:server"): "no file 'nothing.py'",
        ("worker", "shop:number"): "shop has no server 'number': it has server, rekeyed, plain, forgetful, lost",
        ("worker", "shop:plain"): "plain keeps no tasks",
        ("worker", "shop:forgetful"): memory,
        ("tasks", "list", "shop:forgetful"): memory,
        ("tasks", "cancel", "shop", "nothing"): "no task 'nothing'",
        (
            "worker",
            "shop",
            "--keys-file",
            "none",
        ): "none: No such file or directory. This makes one: turnwise keys new --file none",
        (
            "tasks",
            "purge",
            "shop:lost",
        ): "the store /dev/null/tasks.db cannot be used: [Errno 20] Not a directory: '/dev/null/tasks.db'",
    }
    misused = {
        ("tasks", "list"): "Missing argument 'SERVER'",
        ("tasks", "list", "shop", "--status", "done"): "a status is one of working, input_required,",
        ("tasks", "forget"): "No such command 'forget'",
        ("worker", "shop", "--workers", "0"): "Invalid value for '--workers'",
    }
    told = dict(zip([*refused, *misused], shop.run(*refused, *misused), strict=True))
    for command, words in refused.items():
        assert told[command] == (1, "", f"{words}\n")
    for command, words in misused.items():
        assert told[command][:2] == (2, "")
        assert words in told[command][2]
