"""`turnwise doctor`: what is good and what is bad about how a server is served."""

import asyncio
import itertools
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
    for line in told.err.splitlines():
        how, what = line[:5].strip(), line[6:]
        found[what.partition(":")[0]] = f"{how}: {what.partition(': ')[2]}"
    return found


def test_the_settings_of_a_server_are_looked_at(here: Commands) -> None:
    keyed, drawn, workers, ring, tasks, empty, nowhere, risky = here.run(
        ["doctor", "shop:keyed"],
        ["doctor", "shop:server"],
        ["doctor", "shop:server", "--workers", "2"],
        ["doctor", "shop:server", "--workers", "2", "--keys-file", "ring"],
        ["doctor", "shop:forgetful", "--workers", "2", "--keys-file", "ring"],
        ["doctor", "shop:empty", "--keys-file", "ring"],
        ["doctor", "shop:nothing"],
        ["doctor", "shop:risky", "--workers", "2", "--keys-file", "ring"],
    )
    told = (keyed, drawn, workers, ring, tasks, empty, nowhere, risky)
    assert [one.code for one in told] == [0, 0, 1, 0, 1, 0, 2, 0]
    assert findings(risky)["store"].startswith("look: pay has effects, and there is none")
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
        assert findings(told)["instances"].startswith("good: 2 answered"), told.err
        assert (told.code, findings(told)["keys"].startswith(words)) == (code, True), (names, told.err)
        if names == ("old", "new"):
            assert re.search(r"mints with \w{8}, which \S+:\d+ does not have, and refuses", told.err)


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
    assert gone.err.startswith("bad   the server cannot be reached")
    assert elsewhere.err.startswith("bad ")
