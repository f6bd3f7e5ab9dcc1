"""`turnwise call` and `turnwise list`, as processes of their own: in a pipe, and at a terminal."""

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import turnwise
from tests.fleet.forks import Child, Forks
from turnwise.cli.app import app
from turnwise.cli.showing import legible

PYTHONPATH = str(Path(turnwise.__file__).parents[1])
ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
NUMBERS = count(1)
ORIGIN = """
from tests.fleet import forks
forks.NEEDED += ("turnwise.client", "turnwise.transports.http", "aiohttp", "mcp_types", "jsonschema", "asyncio")
forks._serve()
"""
STARTED = f"env PYTHONPATH={PYTHONPATH} {sys.executable} -m turnwise.cli stdio shop.py"
AT_A_TERMINAL = """
import os, sys
os.setsid()
terminal = os.open(sys.argv[1], os.O_RDWR)
for stream in (0, 1, 2):
    os.dup2(terminal, stream)
sys.stdin = open(0, closefd=False)
sys.argv = ["turnwise", *sys.argv[2:]]
from turnwise.cli import main
main()
"""
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[/no] [red]"
SHOP = f"""
from mcp_types import TextContent
from pydantic import BaseModel, field_validator
from turnwise import Context, MCPServer, ToolError

HOSTILE = {HOSTILE!r}
server = MCPServer("shop")
other = MCPServer("other")

@server.tool()
async def buy(article: str, ctx: Context, count: int = 1, note: str | None = None, tags: list[str] = []) -> str:
    "Buy an article."
    sure = await ctx.elicit(f"Buy {{count}} {{article}}?", bool, key="sure")
    if sure.action != "accept":
        return sure.action
    return f"{{count + 1 if sure.data else 0}} {{article!r}} {{note!r}} {{tags}}"

@server.tool()
async def pay(ctx: Context) -> str:
    "Pay on a page."
    return (await ctx.elicit_url("Pay for it", "https://pay.example.com/7", key="page")).action

@server.tool()
async def summarize(ctx: Context) -> str:
    "Have a model summarize."
    reply = await ctx.sample("Summarize it.", max_tokens=10, key="summary")
    assert isinstance(reply.content, TextContent)
    return reply.content.text

@server.tool()
async def folders(ctx: Context) -> str:
    "Where the client works."
    return " ".join(str(root.uri) for root in await ctx.roots(key="roots"))

@server.tool()
async def count_up(ctx: Context) -> str:
    "Tell of progress."
    for number in range(3):
        await ctx.report_progress(number + 1, 3, f"packing {{number + 1}} {{HOSTILE}}")
        await ctx.info(f"line {{number}} {{HOSTILE}}")
    await ctx.elicit("Go on?", bool, key="on")
    return "counted"

class Nothing(BaseModel):
    "A form without fields."

class Even(BaseModel):
    number: int

    @field_validator("number")
    def check(cls, number):
        assert number % 2 == 0
        return number

@server.tool()
async def delete(ctx: Context) -> str:
    return (await ctx.elicit("Really delete all of it?", Nothing, key="sure")).action

@server.tool()
async def tell(ctx: Context) -> str:
    text = (await ctx.elicit("What?", str, key="what")).data
    return f"{{len(text)}} {{text[:20]}}"

@server.tool()
async def even(ctx: Context) -> str:
    return str((await ctx.elicit("Which number?", Even, key="even")).data.number)

@server.tool()
async def table() -> str:
    return "caf\\u00e9\\u00a0x\\t\\u06cc\\u200c\\u06a9\\r\\nline"

@server.tool()
async def fail() -> str:
    raise ToolError("sold out" + HOSTILE)

@server.tool()
async def shout(ctx: Context) -> str:
    await ctx.elicit("Is it " + HOSTILE + "?", bool, key="hostile" + HOSTILE)
    return HOSTILE

@server.tool()
async def data() -> dict[str, str]:
    return {{"text": HOSTILE}}

@server.prompt()
async def greet(name: str) -> str:
    "Greet somebody."
    return f"Greet {{name}}."

@server.resource("shop://hours")
def hours() -> str:
    "When it is open."
    return "always"

@server.resource("shop://{{article}}/price")
def price(article: str) -> str:
    return "7"
"""

PAGED = """
from turnwise import MCPServer

server = MCPServer("paged", page_size=1)
for number in range(3):
    server.add_tool(lambda number=number: str(number), f"tool_{number}", structured_output=False)
"""
SLOW = """
import asyncio
from turnwise import MCPServer

server = MCPServer("slow")

@server.tool()
async def sleep() -> str:
    await asyncio.Event().wait()
    return "awake"
"""
LOUD = """
from turnwise import MCPServer

server = MCPServer("loud")
print("loaded")

@server.tool()
async def shout(count: list[int] = [], names: list[str] | None = None, more: dict[str, int] = {}) -> str:
    print("called")
    return f"{count} {names} {more}"
"""
ASKING = """
from turnwise import Context, MCPServer

server = MCPServer("asking")

@server.prompt()
async def letter(to: str, ctx: Context) -> str:
    tone = await ctx.elicit("Which tone?", str, key="tone")
    return f"Write a {tone.data} letter to {to}."

@server.resource("note://{year}/{name}")
async def note(year: str, name: str, ctx: Context) -> str:
    page = await ctx.elicit("Which page?", int, key="page")
    return f"{name} {year}\\n{page.data}"

@server.resource("bytes://all")
async def all_bytes() -> bytes:
    return b"\\x00"
"""
FILES = {
    "shop.py": SHOP,
    "asking.py": ASKING,
    "paged.py": PAGED,
    "loud.py": LOUD,
    "slow.py": SLOW,
    "true.py": PAGED,
    "broken.py": "\n1 +",
    "raising.py": "\n1 / 0",
    "unfit.py": "import turnwise\nturnwise.MCPServer('s').add_tool(lambda ctx: 7, 'seven')",
}


# Commands


class Told(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


class Terminal:
    """A command at a terminal of its own, and the person who sits there."""

    def __init__(self, begun: Child, ours: int, theirs: int) -> None:
        self._child = begun
        self._ours = ours
        self._theirs: int | None = theirs
        self._unread = ""
        self.shown = ""

    def until(self, words: str) -> str:
        """What is shown up to and with these words, since they were last waited for."""
        while words not in self._unread:
            assert self._read(), f"{words!r} does not come: {self.shown}"
        seen, words, self._unread = self._unread.partition(words)
        return seen + words

    def types(self, line: str, end: str = "\n") -> None:
        os.write(self._ours, (line + end).encode())

    def answers(self, prompt: str, line: str) -> str:
        """Wait for a prompt, and type; what was shown before."""
        seen = self.until(f"{prompt}> ")
        self.types(line)
        return seen

    def ended(self) -> Told:
        while self._read():
            pass
        return Told(self._child.wait(), self._unread, "")

    def close(self) -> None:
        for descriptor in (self._ours, self._theirs):
            if descriptor is not None:
                os.close(descriptor)

    def _read(self) -> bool:
        assert select.select([self._ours], [], [], PATIENCE)[0], self.shown
        try:
            part = os.read(self._ours, 65536).decode(errors="surrogateescape").replace("\r\n", "\n")
        except OSError:  # Nobody has the terminal any more.
            return False
        if self._theirs is not None:
            os.close(self._theirs)
            self._theirs = None
        self._unread += part
        self.shown += part
        return bool(part)


class Commands(NamedTuple):
    """The command in a folder, begun as often as one likes."""

    folder: Path
    forks: Forks
    env: dict[str, str]

    def begin(self, *arguments: str) -> tuple[Child, Path, Path]:
        out, err = (self.folder / f".{next(NUMBERS)}.{stream}" for stream in ("out", "err"))
        return self.forks.begin(arguments, self.env, err, cwd=self.folder, out=out), out, err

    def run(self, *commands: Sequence[str]) -> list[Told]:
        """Several, side by side, with nobody there."""
        begun = [self.begin(*command) for command in commands]
        codes = [child.wait() for child, _, _ in begun]
        return [Told(code, out.read_text(), err.read_text()) for code, (_, out, err) in zip(codes, begun, strict=True)]

    @contextmanager
    def terminal(self, *arguments: str, kind: str = "dumb") -> Iterator[Terminal]:
        script = self.folder / ".terminal.py"
        script.write_text(AT_A_TERMINAL)
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (50, 200))
        env = {**self.env, "TERM": kind}
        begun = self.forks.begin(
            [str(script), os.ttyname(theirs), *arguments], env, self.folder / ".terminal.err", cwd=self.folder
        )
        terminal = Terminal(begun, ours, theirs)
        try:
            yield terminal
        finally:
            begun.signal(signal.SIGKILL)
            terminal.close()

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[str]:
        """`turnwise serve` on a port of its own."""
        child, _, err = self.begin("serve", *arguments, "--port", "0")
        try:
            yield waited_for(child, err, r"is served at (\S+)")
        finally:
            child.signal(signal.SIGTERM)
            child.wait()


def waited_for(child: Child, log: Path, pattern: str) -> str:
    """What a running command writes into its log, sooner or later."""
    while not (found := re.search(pattern, log.read_text() if log.exists() else "")):
        assert child.poll() is None, log.read_text()
        time.sleep(0.02)
    return found[1]


@contextmanager
def commands(files: dict[str, str], folder: Path) -> Iterator[Commands]:
    for name, text in files.items():
        (folder / name).write_text(text)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([PYTHONPATH, str(ROOT)])}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", ORIGIN], cwd=ROOT, env=env, text=True, **pipes) as process:
        try:
            yield Commands(folder, Forks(process), {"PYTHONPATH": PYTHONPATH})
        finally:
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with commands(FILES, tmp_path_factory.mktemp("shop")) as begun:
        yield begun


@pytest.fixture(scope="module")
def url(shop: Commands) -> Iterator[str]:
    with shop.serving("shop:server", "--workers", "2", "--instance-header") as found:
        yield found


def answers(shop: Commands, given: Any) -> list[str]:
    path = shop.folder / f"answers{next(NUMBERS)}.json"
    path.write_text(json.dumps(given))
    return ["--answers", str(path)]


# In a pipe


def test_a_tool_is_called_wherever_its_server_is(shop: Commands, url: str) -> None:
    sure = answers(shop, {"sure": True})
    words = ["buy", "article=a hat", "count=2", "note=12", 'tags:=["a", "b"]', *sure]
    for told in shop.run(*(["call", target, *words] for target in (url, "shop.py", "shop:server", "shop", STARTED))):
        assert told == (0, "3 'a hat' '12' ['a', 'b']\n", "")


def test_arguments_are_taken_as_the_schema_says(shop: Commands) -> None:
    sure = answers(shop, {"Buy 1 7?": {"value": True}, "Buy 1 true?": {"action": "decline"}})
    text, declined, wrong, not_json, not_argument = shop.run(
        ["call", "shop.py", "buy", "article=7", "note=null", *sure],
        ["call", "shop.py", "buy", "article=true", *sure],
        ["call", "shop.py", "buy", "article=7", "count=many", *sure],
        ["call", "shop.py", "buy", "article:=7 hats", *sure],
        ["call", "shop.py", "buy", "article", *sure],
    )
    assert text == (0, "2 '7' 'null' []\n", "")
    assert declined == (0, "decline\n", "")
    assert wrong.code == 1
    assert "count" in wrong.out + wrong.err
    assert (not_json.code, not_argument.code) == (2, 2)
    assert "article: not JSON: '7 hats'" in not_json.err
    assert "an argument is name=value, not 'article'" in not_argument.err


def test_results_are_json_for_scripts_and_errors_are_exit_codes(shop: Commands) -> None:
    done, failed, missing = shop.run(
        ["call", "shop.py", "data", "--json"], ["call", "shop.py", "fail"], ["call", "shop.py", "sell"]
    )
    assert json.loads(done.out)["structuredContent"] == {"text": HOSTILE}
    assert (failed.code, failed.err) == (1, "")
    assert failed.out.startswith("sold out")
    assert missing.code == 1
    assert missing.err.startswith("there is no tool 'sell'; there are: buy, count_up, data, delete, even, fail,")


def test_a_list_that_is_no_json_is_told_how_to_be_written(shop: Commands) -> None:
    given = {
        "count=1,2": "count is a list, as JSON: 'count:=[1, 2]'",
        "count=1": "count is a list, as JSON: 'count:=[1]'",
        "names=a, 7": 'names is a list, as JSON: \'names:=["a", "7"]\'',
        "more=7": "more is an object, as JSON: more:='{...}'",
    }
    for words, told in zip(given.values(), shop.run(*(["call", "loud", "shout", word] for word in given)), strict=True):
        assert (told.code, told.out) == (2, "")
        assert words in told.err
    (right,) = shop.run(["call", "loud", "shout", "count=[1, 2]", 'names:=["a"]', 'more={"a": 1}'])
    assert right.out == "[1, 2] ['a'] {'a': 1}\n"


def test_what_an_author_prints_is_no_result(shop: Commands) -> None:
    called, listed = shop.run(["call", "loud:server", "shout"], ["list", "loud.py", "--json"])
    assert called == (0, "[] None {}\n", "loaded\ncalled\n")
    assert json.loads(listed.out)["tools"][0]["name"] == "shout"
    assert listed.err == "loaded\n"


def test_a_question_that_nobody_answers_is_told_as_json(shop: Commands, url: str) -> None:
    asked, read = shop.run(["call", "shop.py", "buy", "article=hat"], ["call", url, "buy", "article=hat", "--json"])
    assert asked.out == ""
    for told, lines in ((asked, asked.err.splitlines()), (read, [*read.out.splitlines(), *read.err.splitlines()])):
        assert told.code == 4
        question, sentence = lines
        assert json.loads(question)["key"] == "sure"
        assert json.loads(question)["message"] == "Buy 1 hat?"
        assert json.loads(question)["requestedSchema"]["required"] == ["value"]
        assert sentence == "the question 'sure' is in no --answers, and nobody is there to ask"
    assert json.loads(read.out)["key"] == "sure"


def test_answers_come_from_a_pipe(shop: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
    for given, code, out in (('{"sure": true}', 0, "2 'hat' None []\n"), ("{}", 4, ""), ("[]", 2, ""), ("", 2, "")):
        told = CliRunner().invoke(
            app, ["call", str(shop.folder / "shop.py"), "buy", "article=hat", "--answers", "-"], given
        )
        assert (told.exit_code, told.stdout) == (code, out), told.output


def test_a_form_is_not_asked_where_answers_come_from_the_terminal(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "buy", "article=hat", "--answers", "-") as terminal:
        terminal.types('{"other": true}')
        terminal.types("\x04", end="")
        assert terminal.ended().code == 4
    assert "value> " not in terminal.shown


def test_every_kind_of_question_is_answered_from_a_file(shop: Commands) -> None:
    given = answers(shop, {"page": {"action": "accept"}, "summary": "It is short.", "on": True})
    whole = answers(shop, {"summary": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Ok."}}})
    page, reply, other, counted, roots, nowhere = shop.run(
        ["call", "shop.py", "pay", *given],
        ["call", "shop.py", "summarize", *given],
        ["call", "shop.py", "summarize", *whole],
        ["call", "shop.py", "count_up", *given],
        ["call", "shop.py", "folders", "--root", ".", "--root", "/tmp"],
        ["call", "shop.py", "folders"],
    )
    assert [told.code for told in (page, reply, other, counted, roots, nowhere)] == [0] * 6
    assert [told.out for told in (page, reply, other, counted)] == ["accept\n", "It is short.\n", "Ok.\n", "counted\n"]
    assert roots.out == f"{shop.folder.as_uri()} file:///tmp\n"
    assert nowhere.out == "\n"


def test_a_wrong_answers_file_or_a_wrong_answer_is_said(shop: Commands) -> None:
    (shop.folder / "none.json").write_text("{")
    unread, no_object, misfit = shop.run(
        ["call", "shop.py", "buy", "article=hat", "--answers", "none.json"],
        ["call", "shop.py", "buy", "article=hat", *answers(shop, ["yes"])],
        ["call", "shop.py", "buy", "article=hat", *answers(shop, {"sure": "perhaps"})],
    )
    assert (unread.code, no_object.code, misfit.code) == (2, 2, 1)
    assert "none.json" in unread.err
    assert "answers are an object, by key or by message" in no_object.err
    assert "'perhaps' is not of type 'boolean'" in misfit.err


def test_what_cannot_be_reached_or_does_not_exist_has_an_exit_code(shop: Commands, url: str) -> None:
    refused = {
        ("call", "http://127.0.0.1:9/mcp", "buy"): (3, "the server cannot be reached"),
        ("call", "no-such-command here", "buy"): (3, "the server cannot be started"),
        ("call", "no-such-command", "buy"): (2, "there is no command and no module 'no-such-command'; TARGET is a URL"),
        ("call", "127.0.0.1:9/mcp", "buy"): (2, "no command '127.0.0.1:9/mcp'; did you mean http://127.0.0.1:9/mcp?"),
        ("list", "localhost:9"): (2, "did you mean http://localhost:9/mcp?"),
        ("list", "mcp-7.example.com/in/it"): (2, "did you mean https://mcp-7.example.com/in/it?"),
        ("list", "ws://127.0.0.1:9/mcp"): (2, "TARGET is a URL with http:// or https://"),
        ("list", "bin/nothing"): (3, "the server cannot be started"),
        ("list", "/bin/true --nothing"): (3, "the server"),
        ("list", "true"): (3, "the server"),
        ("call", "nothing:server", "buy"): (2, "no module 'nothing'"),
        ("call", "shop.py:nothing", "buy"): (2, "shop.py has no server 'nothing': it has server, other"),
        ("list", "nothing.py"): (2, "no file 'nothing.py'"),
        ("list", url.replace("/mcp", "/nowhere")): (1, "404"),
        ("list", url, "--mode", "2024-01-01"): (2, "--mode is one of auto"),
        ("call", url, "buy", "article=hat", "--timeout", "0"): (2, "Invalid value for '--timeout'"),
        ("call",): (2, "Missing argument 'TARGET'"),
        ("call", url, "buy", "--keys-file", "ring"): (
            2,
            f"module:attribute; {url} has its own",
        ),
        ("call", "/bin/true it", "buy", "--keys-env", "RING"): (2, "keys are for a server that runs in this process"),
        ("call", "shop.py", "buy", "--keys-file", "none"): (2, "This makes one: turnwise keys new --file none"),
        ("call", "shop.py", "buy", "--keys-file", "none", "--keys-env", "RING"): (2, "not both"),
    }
    for command, told in zip(refused, shop.run(*refused), strict=True):
        code, words = refused[command]
        assert (told.code, told.out) == (code, ""), (command, told)
        assert words in told.err, (command, told)
        assert "Traceback" not in told.err, (command, told)


class Web(BaseHTTPRequestHandler):
    """A web server that knows nothing of MCP: the path is the status with which it answers."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        page = f"<html>\r\n<h1>{self.path}</h1>\r\n</html>\r\n".encode()
        self.send_response(int(self.path.strip("/")))
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *words: object) -> None:
        """Nothing."""


@pytest.fixture
def web() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Web) as serving:
        Thread(target=serving.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{serving.server_port}"
        serving.shutdown()


def test_what_a_web_server_says_is_told_in_a_sentence(shop: Commands, web: str) -> None:
    told = {
        f"http://{web}/502": (3, "the server, or a proxy before it, answers 502 Bad Gateway\n"),
        f"http://{web}/404": (1, "nothing speaks MCP at this URL: it answers 404 Not Found\n"),
        f"http://{web}/401": (
            1,
            "the server answers 401 Unauthorized; --header 'Authorization: Bearer ...' says who calls\n",
        ),
        f"http://{web}/499": (1, "the server answers 499\n"),
        f"http://{web}/200": (
            1,
            "what came back is no reply of MCP: the reply is 'text/html' with status 200, not JSON or a stream of "
            "events\n",
        ),
        f"https://{web}/200": (
            3,
            "the server cannot be reached: it does not speak TLS there; try http:// in place of https://\n",
        ),
    }
    for said, (code, words) in zip(shop.run(*(["list", url] for url in told)), told.values(), strict=True):
        assert said == (code, "", words)


def test_a_call_that_takes_too_long_is_told_in_a_sentence(shop: Commands) -> None:
    (told,) = shop.run(["call", "slow", "sleep", "--timeout", "0.2"])
    assert told == (5, "", "sleep was not finished within 0.2 s\n")


def test_a_server_that_never_answers_is_not_waited_for_for_longer_than_told(shop: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"
        for told in shop.run(*(["call", target, "buy", "--timeout", "0.3"] for target in (url, "sleep 60"))):
            assert told == (3, "", "the server has not answered within 0.3 s\n")


def test_arguments_that_are_not_there_are_told_of(shop: Commands) -> None:
    given = answers(shop, {"sure": True})
    (told,) = shop.run(["call", "shop.py", "buy", "article=hat", "cuont=3", *given])
    assert (told.code, told.out) == (0, "2 'hat' None []\n")
    assert told.err == "there is no argument cuont; there are: article, count, note, tags\n"
    (told,) = shop.run(["call", "shop.py", "buy", "article=hat", "article=cap", *given])
    assert (told.code, "article is given twice" in told.err) == (2, True)
    (told,) = shop.run(["call", "shop.py", "buy", os.fsdecode(b"article=\xe9"), *given])
    assert (told.code, "it is not UTF-8" in told.err) == (2, True)


def test_a_result_has_its_tabs_its_spaces_and_what_joins_letters(shop: Commands) -> None:
    (told,) = shop.run(["call", "shop.py", "table"])
    assert told.out == "caf\u00e9\u00a0x\t\u06cc\u200c\u06a9\nline\n"
    assert legible("one\r\ntwo\rthree\u202e", lines=True) == "one\r\ntwo\ufffdthree\ufffd"
    assert legible("one\ttwo\nthree") == "one\ufffdtwo\ufffdthree"


def test_a_server_that_cannot_be_imported_is_said_in_a_line(shop: Commands) -> None:
    words = ["call", "broken.py", "buy"], ["list", "raising:server"], ["doctor", "raising.py"], ["list", "unfit.py"]
    for told in shop.run(*words):
        assert (told.code, told.out) == (2, "")
        named = r"(broken|raising|unfit)"
        assert re.fullmatch(rf"{named}\S* cannot be imported: [^()]*(\([^()]*)?{named}\.py, line 2\)\n", told.err)


def test_prompts_and_resources_are_got_and_may_ask(shop: Commands) -> None:
    given = answers(shop, {"tone": "kind", "page": 7})
    told = shop.run(
        ["prompt", "asking.py", "letter", "to=7", *given],
        ["prompt", "asking.py", "letter", "to=Ann", "--json", *given],
        ["read", "asking.py", "note://2026/may", *given],
        ["read", "asking.py", "note://2026/may", "--json", *given],
        ["read", "asking.py", "bytes://all"],
    )
    assert [one.code for one in told] == [0] * 5, told
    assert told[0].out == "user: Write a kind letter to 7.\n"
    assert json.loads(told[1].out)["messages"][0]["content"]["text"] == "Write a kind letter to Ann."
    assert told[2].out == "may 2026\n7\n"
    assert json.loads(told[3].out)["contents"][0]["text"] == "may 2026\n7"
    assert told[4].out == "[application/octet-stream bytes://all]\n"
    unknown, nobody, away = shop.run(
        ["prompt", "asking.py", "sonnet"],
        ["read", "asking.py", "note://1/x"],
        ["read", "http://127.0.0.1:9/mcp", "x:y"],
    )
    assert (unknown.code, nobody.code, away.code) == (1, 4, 3)
    assert "Unknown prompt" in unknown.err
    assert json.loads(nobody.err.splitlines()[0])["message"] == "Which page?"
    with shop.terminal("prompt", "asking.py", "letter", "to=Ann") as terminal:
        assert "Which tone?" in terminal.answers("value", "stern")
        assert terminal.ended()[:2] == (0, "stern\nuser: Write a stern letter to Ann.\n")


def test_a_header_has_a_name_and_a_value(shop: Commands, url: str) -> None:
    wrong, right, useless = shop.run(
        ["list", url, "--header", "Nothing"],
        ["list", url, "--header", "X-Some: thing"],
        ["list", "shop.py", "--header", "X-Some: thing"],
    )
    assert (wrong.code, right.code, useless.code) == (2, 0, 2)
    assert "a header is 'Name: value', not 'Nothing'" in wrong.err


def test_all_pages_are_looked_through(shop: Commands) -> None:
    called, listed, unknown = shop.run(
        ["call", "paged.py", "tool_2"], ["list", "paged.py", "--json"], ["call", "paged.py", "tool_3"]
    )
    assert called == (0, "2\n", "")
    assert [tool["name"] for tool in json.loads(listed.out)["tools"]] == ["tool_0", "tool_1", "tool_2"]
    assert unknown.err == "there is no tool 'tool_3'; there are: tool_0, tool_1, tool_2\n"


def test_a_trace_has_exchanges_instances_and_the_size_of_states(shop: Commands, url: str) -> None:
    call = ["buy", "article=hat", *answers(shop, {"sure": True}), "--trace"]
    told, here = shop.run(["call", url, *call], ["call", "shop.py", *call])
    assert (told.code, told.out) == (0, "2 'hat' None []\n")
    lines = [line.rstrip() for line in told.err.splitlines()]
    assert lines[0] == "-> server/discover"
    assert lines[2] == "-> tools/list"
    assert lines[4] == "-> tools/call  buy"
    seconds, instance = r"\d+\.\d ms", rf"{re.escape(os.uname().nodename)}:\d+"
    asked = re.fullmatch(rf"<- input_required  asks sure  state (\d+) bytes  {seconds}  {instance}", lines[5])
    assert asked is not None, lines
    assert lines[6] == f"-> tools/call  buy  answers sure  state {asked[1]} bytes"
    assert re.fullmatch(rf"<- complete  {seconds}  {instance}", lines[7])
    assert re.search(rf"<- complete  {seconds}\n", here.err)


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
def test_an_older_version_can_be_spoken(shop: Commands, mode: str) -> None:
    call = ["call", STARTED, "buy", "article=hat", *answers(shop, {"Buy 1 hat?": True}), "--trace", "--mode", mode]
    (told,) = shop.run(call)
    assert told.out == "2 'hat' None []\n"
    assert ("-> initialize" in told.err) == (mode == "2025-11-25")


def test_a_list_names_all_that_there_is(shop: Commands, url: str) -> None:
    text, facts = shop.run(["list", "shop.py"], ["list", url, "--json"])
    lines = text.out.splitlines()
    assert lines[:2] == ["tool      buy article= [count=] [note=] [tags=]", "          Buy an article."]
    assert "prompt    greet name=" in lines
    assert "resource  shop://hours" in lines
    assert "template  shop://{article}/price" in lines
    found = json.loads(facts.out)
    assert [len(found[kind]) for kind in ("tools", "prompts", "resources", "templates")] == [12, 1, 1, 1]


def test_hostile_text_is_harmless(shop: Commands) -> None:
    given = answers(shop, {"on": True, f"hostile{HOSTILE}": True})
    calls = [["call", "shop.py", tool, *given] for tool in ("shout", "fail", "data", "count_up")]
    asked = ["call", "shop.py", "shout", "--trace"]
    for told in shop.run(*calls, asked, *([*call, "--json"] for call in calls), [*asked, "--json"]):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", told.out + told.err), told
    with shop.terminal("call", "shop.py", "shout") as terminal:
        terminal.answers("value", "yes")
        assert terminal.ended().code == 0
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", terminal.shown), terminal.shown


# At a terminal


def test_questions_are_asked_at_the_terminal(shop: Commands, url: str) -> None:
    with shop.terminal("call", url, "buy", "article=hat") as terminal:
        assert "Buy 1 hat?" in terminal.answers("value", "perhaps")
        assert "yes or no" in terminal.answers("value", "y")
        assert terminal.ended()[:2] == (0, "y\n2 'hat' None []\n")


def test_a_page_is_shown_and_not_opened(shop: Commands) -> None:
    for word, action in (("yes", "accept"), ("", "decline"), ("cancel", "cancel")):
        with shop.terminal("call", "shop.py", "pay") as terminal:
            shown = terminal.answers("Have you been there, and agree? yes, no or cancel [no]", word)
            assert "It is not opened for you:\n  https://pay.example.com/7\n  at the host pay.example.com\n" in shown
            assert terminal.ended()[:2] == (0, f"{word}\n{action}\n")


def test_a_question_without_fields_is_agreed_to_by_somebody(shop: Commands) -> None:
    for word, action in (("yes", "accept"), ("", "decline"), ("!decline", "decline"), ("cancel", "cancel")):
        with shop.terminal("call", "shop.py", "delete") as terminal:
            assert "Really delete all of it?" in terminal.answers("Do you agree? yes, no or cancel [no]", word)
            assert terminal.ended()[:2] == (0, f"{word}\n{action}\n")


def test_a_line_can_be_edited_and_be_long(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "tell", kind="xterm") as terminal:
        terminal.answers("value", "hallo\x1b[D\x1b[D\x1b[3~X")
        assert terminal.ended().out.splitlines()[-1] == "5 halXo"
    with shop.terminal("call", "shop.py", "tell") as terminal:
        terminal.answers("value", "x" * 5000)
        assert terminal.ended().out.splitlines()[-1] == f"5000 {'x' * 20}"


def test_an_answer_that_the_server_does_not_take_is_told_as_such(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "even") as terminal:
        assert "asked before" not in terminal.answers("number", "3")
        assert "This was asked before: the server did not take the answer." in terminal.answers("number", "4")
        assert terminal.ended().out.splitlines()[-1] == "4"


def test_a_page_or_a_folder_is_asked_about_until_the_answer_is_one(shop: Commands) -> None:
    for tool, prompt, words in (("pay", "cancel [no]", "  yes, no or cancel\n"), ("folders", "[no]", "  yes or no\n")):
        with shop.terminal("call", "shop.py", tool) as terminal:
            terminal.answers(prompt, "maybe")
            assert words in terminal.answers(prompt, "Yes")
            assert terminal.ended().out.splitlines()[1] in ("accept", shop.folder.as_uri())


def test_a_person_plays_the_model(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "summarize") as terminal:
        assert "\nuser: Summarize it.\n" in terminal.answers("\n", "It is")
        terminal.answers("\n", "short.")
        terminal.answers("\n", "")
        assert terminal.ended().out.endswith("\nIt is\nshort.\n")


def test_who_does_not_want_to_be_the_model_gives_the_call_up(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "summarize") as terminal:
        terminal.answers("\n", "!cancel")
        told = terminal.ended()
    assert (told.code, "nobody replies as the model, and the call is given up" in told.out) == (4, True)


def test_folders_are_told_where_the_person_agrees(shop: Commands) -> None:
    for word, said in (("yes", shop.folder.as_uri()), ("", "")):
        with shop.terminal("call", "shop.py", "folders") as terminal:
            terminal.answers(f"Tell it {shop.folder}? yes or no [no]", word)
            assert terminal.ended()[:2] == (0, f"{word}\n{said}\n")


def test_progress_is_shown_and_makes_way_for_questions(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "count_up", kind="xterm") as terminal:
        terminal.answers("value", "yes")
        told = terminal.ended()
    assert (told.code, told.out.splitlines()[-1]) == (0, "counted"), told
    assert "packing 3" in terminal.shown
    lines = [line.rpartition("\x1b[2K")[2] for line in terminal.shown.splitlines()]
    assert any(line.startswith("\x1b[2minfo: line 2") for line in lines), lines
    assert not re.search("\x1b]|\x1b\\[2J|\x9b|\u202e", terminal.shown)
    assert "[/no] [red]" in terminal.shown


def test_ctrl_c_ends_a_call_that_asks(shop: Commands) -> None:
    with shop.terminal("call", "shop.py", "buy", "article=hat") as terminal:
        terminal.until("value> ")
        time.sleep(0.3)  # Python misses a signal that comes just before it begins to wait for the line.
        terminal.types("\x03", end="")
        told = terminal.ended()
    assert told.code == 130
    assert told.out.endswith("\n")
    assert "Traceback" not in terminal.shown


@pytest.mark.parametrize(
    ("tool", "prompt", "end"),
    [
        ("buy", "value", (0, "cancel")),
        ("pay", "[no]", (0, "cancel")),
        ("summarize", "\n", (4, None)),
        ("folders", "[no]", (0, "")),
    ],
)
def test_the_end_of_input_is_no_answer(shop: Commands, tool: str, prompt: str, end: tuple[int, str | None]) -> None:
    words = ["article=hat"] if tool == "buy" else []
    with shop.terminal("call", "shop.py", tool, *words) as terminal:
        terminal.until(f"{prompt}> ")
        terminal.types("\x04", end="")
        told = terminal.ended()
    assert told.code == end[0], terminal.shown
    assert "Traceback" not in terminal.shown
    if end[1] is not None:
        assert told.out.strip().splitlines()[-1:] == ([end[1]] if end[1] else [])


# Completion


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_can_complete_the_command(shop: Commands, shell: str) -> None:
    begun = Commands(shop.folder, shop.forks, {**shop.env, "_TURNWISE_COMPLETE": f"source_{shell}"})
    (told,) = begun.run(["--help"])
    assert told.code == 0
    assert "_TURNWISE_COMPLETE=complete_" + shell in told.out
    words = {"COMP_WORDS": "turnwise ca", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "turnwise ca"}
    begun = Commands(shop.folder, shop.forks, {**shop.env, **words, "_TURNWISE_COMPLETE": f"complete_{shell}"})
    (told,) = begun.run(["--help"])
    assert told.code == 0
    assert "call" in told.out


# Help


def test_help_names_no_types_of_flags_and_lists(shop: Commands) -> None:
    commands = [[], ["call"], ["list"], ["serve"], ["tasks"], ["tasks", "list"], ["items", "list"]]
    for command, told in zip(commands, shop.run(*([*command, "--help"] for command in commands)), strict=True):
        assert told.code == 0
        options = told.out.partition("Options")[2]
        assert options, command
        assert not re.search(r"<bool>|<list|BOOLEAN", options), told.out
    whole, call = shop.run(["--help"], ["call", "--help"])
    assert "Exit codes" not in whole.out
    assert re.search(r"2024-11-05", call.out)
