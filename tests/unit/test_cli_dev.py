"""`turnwise dev`: a server is served while it is being written, and who is asked meanwhile does not notice."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import turnwise
from tests.fleet.forks import Child
from tests.ports import free_port
from tests.unit.test_cli_call import Commands, commands, waited_for
from turnwise import Client, Command, Done, Pending

SHOP = """
from turnwise import Context, MCPServer

server = MCPServer("shop")

@server.tool()
async def greet(ctx: Context) -> str:
    name = await ctx.elicit("Who are you?", str, key="name")
    return f"WORD {name.data}" if name.action == "accept" else "Nobody."
"""
SLOW = """
import asyncio, pathlib
from contextlib import asynccontextmanager
from turnwise import MCPServer

@asynccontextmanager
async def lifespan(server):
    yield
    pathlib.Path("LEAVING").touch()
    await asyncio.sleep(1)

server = MCPServer("slow", lifespan=lifespan)
"""
BROKEN = SHOP.replace("async def greet(", "async def greet((")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with commands({}, tmp_path_factory.mktemp("dev")) as begun:
        yield begun


class Desk:
    """Somebody who writes a server, and looks at what `turnwise dev` says."""

    def __init__(self, file: Path, child: Child, log: Path) -> None:
        self._file = file
        self._child = child
        self._log = log
        self._seen = 0

    def writes(self, text: str) -> None:
        self._file.write_text(text)

    def sees(self, words: str) -> None:
        """Something new."""
        waited_for(self._child, self._log, rf"(?s).{{{self._seen}}}.*?({words})")
        self._seen = len(self._log.read_text())


def test_a_question_survives_a_reload_and_a_broken_file_is_mended(here: Commands) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    file = here.folder / "shop.py"
    file.write_text(BROKEN)
    child, _, err = here.begin("dev", "shop:server", "--port", str(port))
    desk = Desk(file, child, err)

    async def asked() -> Pending:
        async with Client(url) as client:
            pending = await client.begin("greet", {})
            assert isinstance(pending, Pending)
            return pending

    async def answered(pending: Pending) -> str:
        async with Client(url) as client:
            done = await client.resume(pending, {"name": {"action": "accept", "content": {"value": "Ada"}}})
            assert isinstance(done, Done)
            return str(done.result.content[0].text)

    try:
        desk.sees("shop:server cannot be imported")
        desk.writes(SHOP.replace("WORD", "Hello"))
        desk.sees(f"shop is served at {url}")
        pending = asyncio.run(asked())
        desk.writes(SHOP.replace("WORD", "Good day"))
        desk.sees("shop.py has changed")
        desk.sees(f"shop is served at {url}")
        assert asyncio.run(answered(pending)) == "Good day Ada"
        desk.writes(BROKEN)
        desk.sees("it is started anew when a file changes")
        (listed,) = here.run(["list", url])
        assert listed.code != 0
        assert "503" in listed.err
        assert "shop cannot be imported: SyntaxError" in listed.err
        desk.writes(SHOP.replace("WORD", "Well met"))
        desk.sees(f"shop is served at {url}")
        assert asyncio.run(answered(pending)) == "Well met Ada"
    finally:
        child.signal(signal.SIGINT)
    assert child.wait() == 0
    told = err.read_text()
    assert "SyntaxError" in told
    assert f"Try it: turnwise list {url}" in told
    assert json.dumps({"url": url}) in told.replace("\n", "").replace("  ", "").replace("{ ", "{")


EXITS = "\nimport sys\nsys.exit('DATABASE_URL is not set')\n"
EXITED = "cannot be imported: it called sys.exit('DATABASE_URL is not set') ("


def test_a_server_that_exits_while_it_is_imported_is_waited_for_until_its_file_changes(here: Commands) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    file = here.folder / "exits.py"
    file.write_text(SHOP + EXITS)
    child, _, err = here.begin("dev", "exits:server", "--port", str(port))
    desk = Desk(file, child, err)
    try:
        for exits, code in ((EXITS, "DATABASE_URL is not set"), ("\nraise SystemExit(3)\n", "sys.exit(3)")):
            desk.writes(SHOP + exits)
            desk.sees(f"{re.escape(code)}.*it is started anew when a file changes")
            (listed,) = here.run(["list", url])
            assert (listed.code != 0, "503" in listed.err, code in listed.err) == (True, True, True)
            desk.writes(SHOP)
            desk.sees(f"shop is served at {url}")
    finally:
        child.signal(signal.SIGINT)
    assert child.wait() == 0
    assert f"exits {EXITED}" in err.read_text()


UNFIT = """
from contextlib import asynccontextmanager
from turnwise import MCPServer

@asynccontextmanager
async def lifespan(server):
    raise RuntimeError("no database")
    yield

server = MCPServer("shop", lifespan=lifespan)
"""


def test_who_calls_a_server_whose_life_cannot_begin_is_told_so_until_its_file_changes(here: Commands) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}/mcp"
    file = here.folder / "unfit.py"
    file.write_text(UNFIT)
    child, _, err = here.begin("dev", "unfit:server", "--port", str(port))
    desk = Desk(file, child, err)
    try:
        desk.sees("no database.*it is started anew when a file changes")
        (listed,) = here.run(["list", url])
        assert listed.code == 3
        assert "503 Service Unavailable: shop cannot begin to serve: its log says why" in listed.err
        desk.writes(SHOP)
        desk.sees(f"shop is served at {url}")
    finally:
        child.signal(signal.SIGINT)
    assert child.wait() == 0


def test_all_commands_say_that_a_server_exits_while_it_is_imported(here: Commands) -> None:
    (here.folder / "ends.py").write_text(SHOP + EXITS)
    for told in here.run(
        ["stdio", "ends.py"],
        ["worker", "ends:server"],
        ["tasks", "list", "ends:server"],
        ["call", "ends.py", "greet"],
        ["list", "ends:server"],
        ["doctor", "ends:server"],
    ):
        assert told.code != 0
        assert (told.out, EXITED in told.err, "Traceback" in told.err) == ("", True, False), told


def test_what_a_host_is_told_to_start_starts_in_any_folder(here: Commands, tmp_path: Path) -> None:
    (here.folder / "named.py").write_text("import words\n" + SHOP.replace("WORD", "{words.HELLO}"))
    (here.folder / "words.py").write_text("HELLO = 'Hello'\n")
    for server in ("named:server", "named.py:server"):
        child, _, err = here.begin("dev", server, "--port", str(free_port()))
        try:
            waited_for(child, err, "(Try it)")
        finally:
            child.signal(signal.SIGINT)
            child.wait()
        block = err.read_text().partition("claude_desktop_config.json:")[2].partition("Try it")[0]
        told = json.loads(block)["mcpServers"]["shop"]

        async def run(told: Any = told) -> Any:
            words = [told["command"], *told["args"]]
            env = {**told["env"], "PYTHONPATH": f"{told['env']['PYTHONPATH']}{os.pathsep}{here.env['PYTHONPATH']}"}
            async with Client(Command(words, env=env, cwd=str(tmp_path))) as client:
                return [tool.name for tool in (await client.list_tools()).tools]

        assert asyncio.run(run()) == ["greet"]


def test_a_port_that_somebody_has_is_said_before_anything_else(here: Commands) -> None:
    (here.folder / "free.py").write_text(SHOP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (told,) = here.run(["dev", "free:server", "--port", str(port := taken.getsockname()[1])])
    assert told.code == 3
    assert told.err == f"127.0.0.1:{port} cannot be listened on: Address already in use; --port takes another one\n"


def test_an_interrupt_while_workers_are_replaced_ends_all(here: Commands) -> None:
    file, leaving = here.folder / "slow.py", here.folder / "leaving"
    file.write_text(SLOW.replace("LEAVING", str(leaving)))
    child, _, err = here.begin("dev", "slow:server", "--port", str(free_port()))
    try:
        waited_for(child, err, "(slow is served at)")
        file.write_text(file.read_text() + "# Another line.\n")
        while not leaving.exists():
            assert child.poll() is None
            time.sleep(0.01)
    finally:
        child.signal(signal.SIGINT)
    assert child.wait() == 0


def test_a_question_over_standard_streams_survives_with_keys_that_are_given(here: Commands) -> None:
    (here.folder / "streamed.py").write_text(SHOP)
    (here.folder / "ring").write_text("k" * 32)
    words = [sys.executable, "-m", "turnwise.cli", "stdio", "streamed.py:server", "--keys-file", "ring"]

    async def run() -> Any:
        async with Client(Command(words, env=here.env, cwd=str(here.folder))) as client:
            pending = await client.begin("greet", {})
            assert isinstance(pending, Pending)
        async with Client(Command(words, env=here.env, cwd=str(here.folder))) as client:
            return await client.resume(pending, {"name": {"action": "decline"}})

    assert isinstance(asyncio.run(run()), Done)
    missing, both = here.run(
        ["stdio", "streamed.py", "--keys-file", "none"],
        ["dev", "streamed.py", "--keys-file", "ring", "--keys-env", "RING"],
    )
    assert (missing.code, both.code) == (2, 2)
    assert missing.err.startswith("none: No such file or directory.")


def test_the_only_server_of_a_file_or_a_module_need_not_be_named(here: Commands) -> None:
    only = SHOP.replace("server = ", "mcp = app = ").replace("@server", "@mcp")
    (here.folder / "only.py").write_text(only + "server = 'no server'\n")
    (here.folder / "several.py").write_text(only + "other = MCPServer('other')\n")
    *found, named, several = here.run(
        ["list", "only.py"],
        ["list", "only"],
        ["doctor", "only"],
        ["call", "only.py", "greet", "--trace"],
        ["list", "only.py:server"],
        ["list", "several.py"],
    )
    assert [told.code for told in found] == [0, 0, 0, 4]
    assert (named.code, named.err) == (2, "only.py has no server 'server': it has mcp, app\n")
    assert (several.code, several.err) == (2, "several.py has no server 'server': it has mcp, app, other\n")
    with here.serving("only"):
        pass
    child, _, err = here.begin("dev", "only.py", "--port", str(free_port()))
    try:
        waited_for(child, err, "(shop is served at)")
    finally:
        child.signal(signal.SIGINT)
    assert child.wait() == 0


def test_which_release_it_is_is_said(here: Commands) -> None:
    assert here.run(["--version"]) == [(0, f"turnwise {turnwise.__version__}\n", "")]


def test_what_cannot_be_served_is_said(here: Commands) -> None:
    (here.folder / "plain.py").write_text("number = 7\n")
    nowhere, plain, port = here.run(
        ["dev", "nothing:server"], ["dev", "plain.py"], ["dev", "plain:server", "--port", "0"]
    )
    assert (nowhere.code, plain.code, port.code) == (2, 2, 2)
    assert nowhere.err.startswith("no module 'nothing'")
    assert "it has no MCPServer" in plain.err
