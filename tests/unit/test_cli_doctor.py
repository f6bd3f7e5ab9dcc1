"""`turnwise doctor`: what is good and what is bad about how a server is served."""

import asyncio
import itertools
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from email.utils import formatdate
from typing import Any

import pytest

from tests.unit.test_cli_call import Commands, Told, commands
from tests.wires.serving import serving
from turnwise import MCPServer
from turnwise._sealed import KeyRing

SHOP = """
from turnwise import MCPServer, RequestStateSecurity, TaskOptions

server = MCPServer("shop")
keyed = MCPServer("keyed", request_state_security=RequestStateSecurity(keys=["k" * 32]))
forgetful = MCPServer("forgetful", tasks=TaskOptions())
empty = MCPServer("empty")
risky = MCPServer("risky")

@risky.tool(effects=True)
def pay() -> str:
    return "Paid"

for one in (server, keyed, forgetful):
    @one.tool()
    def greet() -> str:
        return "Hello"
"""
OLD, NEW = "o" * 32, "n" * 32
FILES = {"shop.py": SHOP, "ring": "k" * 32, "open": "k" * 32, "short": "k", "twice": f"{'k' * 32}\n" * 2}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    folder = tmp_path_factory.mktemp("doctor")
    with commands(FILES, folder) as begun:
        for name in ("ring", "twice", "short"):
            (folder / name).chmod(0o600)
        (folder / "open").chmod(0o644)
        yield begun


def findings(told: Told) -> dict[str, str]:
    """What was looked at, and how it was found to be."""
    found = {}
    for line in told.out.splitlines():
        how, what = line[:5].strip(), line[6:]
        found[what.partition(":")[0]] = f"{how}: {what.partition(': ')[2]}"
    return found


def test_the_settings_of_a_server_are_looked_at(here: Commands) -> None:
    keyed, drawn, workers, ring, tasks, empty, nowhere, *risky = here.run(
        ["doctor", "shop:keyed"],
        ["doctor", "shop:server"],
        ["doctor", "shop:server", "--workers", "2"],
        ["doctor", "shop:server", "--workers", "2", "--keys-file", "ring"],
        ["doctor", "shop:forgetful", "--workers", "2", "--keys-file", "ring"],
        ["doctor", "shop:empty", "--keys-file", "ring"],
        ["doctor", "shop:nothing"],
        ["doctor", "shop:risky", "--workers", "2", "--keys-file", "ring"],
        ["doctor", "shop:risky", "--keys-file", "ring"],
        ["doctor", "shop:risky", "--workers", "2"],
        ["doctor", "shop:risky"],
    )
    told = (keyed, drawn, workers, ring, tasks, empty, nowhere, *risky)
    assert [one.code for one in told] == [0, 0, 1, 0, 1, 0, 2, 0, 0, 1, 0]
    *refused, alone = [findings(one).get("store") for one in risky]
    assert refused == ["look: pay has effects, and there is none: a step with once=True would be refused"] * 3
    assert alone is None, "one process that draws its key has a store of its own"
    assert (nowhere.out, "shop has no server 'nothing'" in nowhere.err) == ("", True)
    assert findings(keyed) == {"tools": "good: 1"}
    assert findings(drawn)["keys"].startswith("look: the server has none of its own")
    assert findings(workers)["keys"].startswith("bad: the server has none of its own")
    assert findings(ring)["keys"] == "good: 1 in ring, the first mints"
    assert findings(tasks)["tasks"] == "bad: they are kept in memory, and end with the process"
    assert findings(empty)["tools"] == "look: 0"


def test_keys_are_looked_at(here: Commands) -> None:
    seen, short, twice, unset, alone, nothing = here.run(
        ["doctor", "shop:server", "--keys-file", "open"],
        ["doctor", "shop:server", "--keys-file", "short"],
        ["doctor", "shop:server", "--keys-file", "twice"],
        ["doctor", "shop:server", "--keys-env", "NO_KEYS"],
        ["doctor", "--keys-file", "ring"],
        ["doctor"],
    )
    assert [told.code for told in (seen, short, twice, unset, alone, nothing)] == [1, 1, 0, 1, 0, 2]
    assert findings(alone) == {"keys": "good: 1 in ring, the first mints"}
    assert "give a TARGET, or --keys-file or --keys-env" in nothing.err
    assert findings(seen)["keys"] == "bad: open can be read by others: chmod 600 open"
    assert findings(short)["keys"].startswith("bad: short: a key has at least 32 bytes")
    assert findings(twice)["keys"] == "look: one is in twice twice"
    assert findings(unset)["keys"] == "bad: the variable NO_KEYS is not set"


def test_a_server_that_is_served_well_is_good(here: Commands) -> None:
    with here.serving("shop:keyed", "--instance-header") as url:
        (told,) = here.run(["doctor", url])
    found = findings(told)
    assert told.code == 0
    assert found["reached"].startswith("good: 2026-07-28, keyed ")
    assert found["clock"] == "good: within 0 s of this one"
    assert re.fullmatch(r"good: 1 answered 12 times: \S+:\d+", found["instances"])
    assert found["streams"].startswith("good: the first event came after ")


def test_instances_that_cannot_open_what_others_seal_are_bad(here: Commands) -> None:
    for name, text in (("old", OLD), ("both", f"{OLD}\n{NEW}"), ("moved", f"{NEW}\n{OLD}"), ("new", NEW)):
        (here.folder / name).write_text(text)
        (here.folder / name).chmod(0o600)
    ids = [KeyRing([key]).ids[0] for key in (OLD, NEW)]
    cases = {
        ("old", "old"): (0, f"good: the same wherever somebody answered; {ids[0]} mints"),
        ("both", "moved"): (0, "look: not the same everywhere, as while they are changed; each opens what others seal"),
        ("old", "new"): (1, "bad: "),
        ("old", "moved"): (1, "bad: "),
        ("old", None): (1, "bad: "),
        (None, None): (1, "bad: "),
    }
    for names, (code, words) in cases.items():
        with ExitStack() as stack:
            options = [["--keys-file", name] if name else [] for name in names]
            urls = [stack.enter_context(here.serving("shop:server", "--instance-header", *one)) for one in options]
            (told,) = here.run(["doctor", stack.enter_context(balanced(urls))])
        assert findings(told)["instances"].startswith("good: 2 answered"), told.out
        assert (told.code, findings(told)["keys"].startswith(words)) == (code, True), (names, told.out)
        if names == ("old", "new"):
            assert re.search(r"mints with \w{8}, which \S+:\d+ does not have, and refuses", told.out)


@contextmanager
def balanced(urls: list[str]) -> Iterator[str]:
    """A balancer that gives each connection to the next instance."""
    ports, turns = [int(url.rpartition(":")[2].partition("/")[0]) for url in urls], itertools.count()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", ports[next(turns) % len(ports)])
        with suppress(ConnectionError):
            await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))

    async def serve() -> None:
        async with await asyncio.start_server(join, sock=listening):
            while not over.is_set():  # noqa: ASYNC110 - it is said by another thread
                await asyncio.sleep(0.01)

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            over.set()
            thread.join()


class Behind:
    """An application behind a proxy that holds streams back, on a machine whose clock is an hour late."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        held = []

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"date", formatdate(1e9, usegmt=True).encode())]
                held.append(any(value.startswith(b"text/event-stream") for _, value in message["headers"]))
            if message["type"] not in ("http.response.start", "http.response.body") or not held[0]:
                await send(message)

        await self._app(scope, receive, sent)


@contextmanager
def behind() -> Iterator[str]:
    server = MCPServer("shop")
    server.add_tool(lambda: "Hello", "greet")
    options: dict[str, Any] = {"date_header": False, "log_level": "error", "timeout_graceful_shutdown": 0}
    with serving(Behind(server.asgi()), lifespan="auto", **options) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def test_a_late_clock_a_proxy_that_buffers_and_a_server_that_is_not_there_are_bad(here: Commands) -> None:
    with behind() as url:
        late, gone, elsewhere = here.run(
            ["doctor", url], ["doctor", "http://127.0.0.1:9/mcp"], ["doctor", url.replace("/mcp", "/elsewhere")]
        )
    assert (late.code, gone.code, elsewhere.code) == (1, 1, 1)
    found = findings(late)
    assert re.fullmatch(r"bad: within \d+ s of this one: states expire too early or too late .*", found["clock"])
    assert found["instances"].startswith("look: nobody says who answers")
    assert found["streams"] == "bad: the first event does not come through: does a proxy buffer responses?"
    assert gone.out.startswith("bad   reached: the server cannot be reached")
    assert elsewhere.out == "bad   reached: the server answers 404 Not Found: The MCP endpoint is /mcp\n"


def test_findings_are_the_result_and_programs_can_read_them(here: Commands) -> None:
    shown, told = here.run(["doctor", "shop:server"], ["doctor", "shop:server", "--json"])
    assert (shown.code, shown.err, told.code, told.err) == (0, "", 0, "")
    found = [json.loads(line) for line in told.out.splitlines()]
    assert [(one["how"], one["about"]) for one in found] == [("look", "keys"), ("good", "tools")]
    assert shown.out.splitlines() == [f"{one['how']:5} {one['about']}: {one['what']}" for one in found]


def test_fewer_instances_than_there_should_be_are_bad(here: Commands) -> None:
    with ExitStack() as stack:
        ring = ["--keys-file", "ring", "--instance-header"]
        urls = [stack.enter_context(here.serving("shop:server", *ring)) for _ in range(2)]
        unnamed = stack.enter_context(here.serving("shop:keyed"))
        url = stack.enter_context(balanced(urls))
        few, all_there, more, nobody, nowhere = here.run(
            ["doctor", url, "--instances", "3"],
            ["doctor", url, "--instances", "2"],
            ["doctor", url, "--instances", "1"],
            ["doctor", unnamed, "--instances", "1"],
            ["doctor", "shop:server", "--instances", "1"],
        )
    assert [told.code for told in (few, all_there, more, nobody, nowhere)] == [1, 0, 0, 1, 2]
    assert findings(few)["instances"].startswith("bad: 2 answered 36 times, and there should be 3: ")
    assert findings(all_there)["instances"].startswith("good: 2 answered 12 times: ")
    assert findings(more)["instances"].startswith("look: 2 answered 12 times, and there should be 1: ")
    assert findings(nobody)["instances"].startswith("bad: nobody says who answers")


def test_a_server_that_accepts_and_never_answers_is_not_waited_for(here: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        (told,) = here.run(["doctor", f"http://127.0.0.1:{mute.getsockname()[1]}/mcp", "--timeout", "0.5"])
    assert told == (1, "bad   reached: the server does not answer within 0.5 s\n", "")


class Elsewhere:
    """A proxy whose server is not there, and a door that wants to know who comes."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status = 502 if scope["path"] == "/mcp" else 401
        page = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": status, "headers": page})
        await send({"type": "http.response.body", "body": b"<html>\r\n<head><title>No</title></head></html>"})


def test_what_cannot_be_visited_is_said_in_the_words_of_call(here: Commands) -> None:
    with serving(Elsewhere()) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        gone, called, asked = here.run(["doctor", url], ["call", url, "greet"], ["doctor", url.replace("mcp", "door")])
    assert (gone.code, asked.code) == (1, 1)
    assert gone.out == f"bad   reached: {called.err}"
    assert "502 Bad Gateway" in gone.out
    assert "--header 'Authorization: Bearer ...'" in asked.out


def test_who_calls_can_be_said(here: Commands) -> None:
    async def let_in(scope: Any, receive: Any, send: Any) -> None:
        known = scope["type"] != "http" or (b"authorization", b"Bearer ann") in scope["headers"]
        await (app if known else Elsewhere())(scope, receive, send)

    server = MCPServer("shop")
    app = server.asgi()
    with serving(let_in, lifespan="auto", log_level="error", timeout_graceful_shutdown=0) as port:
        (told,) = here.run(["doctor", f"http://127.0.0.1:{port}/mcp", "--header", "Authorization: Bearer ann"])
    assert told.code == 0
    assert findings(told)["streams"].startswith("good")


def test_a_command_is_nothing_that_doctor_takes(here: Commands) -> None:
    for told in here.run(["doctor", "turnwise stdio shop.py"], ["doctor", "127.0.0.1:8000/mcp"]):
        assert told.code == 2
        assert told.err.startswith("doctor takes a URL with http:// or https://, module:attribute or file.py, not '")
