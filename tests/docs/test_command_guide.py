"""The guides to the command and to keys: what they show is what is printed, and every option is named."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scripts import command_reference
from tests.docs.loading import ENVIRONMENT, ROOT, SAMPLES, load
from tests.ports import free_port
from tests.unit.test_cli_call import commands
from turnwise.cli.app import app
from turnwise.cli.hosts import hosts, started
from turnwise.testing import connect

GUIDES = ROOT / "docs" / "guides"
COMMANDS = command_reference.all_commands()
SERVED = "http://127.0.0.1:8000"


def sections(page: str) -> dict[str, str]:
    """The parts of a guide, by their headings."""
    parts = re.split(r"^## (.*)$", (GUIDES / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def exchanges(text: str) -> Iterator[tuple[str, str]]:
    """Each command of the console blocks, and what it prints."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


def fits(shown: str, printed: str) -> bool:
    """Whether a page shows this; `...` stands for anything, and spaces at the ends of lines for nothing."""
    pattern = ".*".join(re.escape(piece) for piece in shown.rstrip("\n").split("..."))
    return re.fullmatch(pattern, re.sub(r" +$", "", printed, flags=re.MULTILINE).strip("\n"), re.DOTALL) is not None


class Terminal:
    """Runs the lines of a page in a folder of its own: turnwise in this process, unless it is to stay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.code = 0
        self.staying: list[subprocess.Popen[str]] = []

    def here(self, text: str) -> str:
        """A text of the page, with the port that is free."""
        return text.replace(SERVED, f"http://127.0.0.1:{self.port}")

    def run(self, line: str) -> str:
        match shlex.split(self.here(line).replace("$TASK", self._task())):
            case ["echo", "$?"]:
                return str(self.code)
            case ["echo", text, ">", file]:
                Path(file).write_text(text)
                return ""
            case ["cd", folder]:
                os.chdir(folder)
                return ""
            case ["turnwise", *words, "&"]:
                return self._stay(words)
            case ["python", file, "|", "turnwise", *words]:
                pipes: dict[str, Any] = {"env": ENVIRONMENT, "stdout": subprocess.PIPE, "text": True}
                return self._turnwise(words, subprocess.run([sys.executable, file], check=True, **pipes).stdout)
            case ["turnwise", *words]:
                return self._turnwise(words, "")
        raise AssertionError(f"what is {line!r}?")

    def _turnwise(self, words: list[str], given: str) -> str:
        if "serve" in words:
            done = subprocess.run(self._command(words), env=ENVIRONMENT, capture_output=True, text=True, check=False)
            self.code = done.returncode
            return done.stderr
        result = CliRunner().invoke(app, words, input=given, env={"COLUMNS": "200"})
        self.code = result.exit_code
        return result.output

    def _stay(self, words: list[str]) -> str:
        command = [*self._command(words), "--port", str(self.port), "--no-access-log"]
        serving = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        self.staying.append(serving)
        assert serving.stderr is not None
        printed = ""
        while "is served at" not in printed:
            line = serving.stderr.readline()
            assert line, printed
            printed += line
        self._wait()
        return printed.replace(f":{self.port}", ":8000")

    def _wait(self) -> None:
        ends = time.monotonic() + 30
        while CliRunner().invoke(app, ["list", f"http://127.0.0.1:{self.port}/mcp"]).exit_code:
            assert time.monotonic() < ends
            time.sleep(0.05)

    def _command(self, words: list[str]) -> list[str]:
        return [sys.executable, "-m", "turnwise.cli", *words]

    def _task(self) -> str:
        if not Path("tasks.db").exists():
            return ""
        listed = CliRunner().invoke(app, ["tasks", "list", "shop:server", "--json"]).output
        return re.search(r'"task": "(\w+)"', listed).group(1)  # type: ignore[union-attr]


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("turnwise._sealed._provided", None)
    before = {name: sys.modules.pop(name, None) for name in ("trips", "shop")}
    opened = Terminal(tmp_path)
    yield opened
    for serving in opened.staying:
        serving.terminate()
        serving.communicate(timeout=30)
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


def replayed(page: str, terminal: Terminal) -> int:
    lines = 0
    for command, shown in exchanges((GUIDES / page).read_text(encoding="utf-8")):
        printed = terminal.run(command)
        assert fits(shown, printed), f"$ {command}\n{printed}"
        if command == "cd trips":
            for name in ("command/shop.py", "command/asked.py"):
                Path(Path(name).name).write_text(terminal.here((SAMPLES / name).read_text()))
        lines += 1
    return lines


def test_the_guide_to_the_command_shows_what_is_printed(terminal: Terminal) -> None:
    assert replayed("command.md", terminal) > 30


def test_the_guide_to_keys_shows_what_is_printed(terminal: Terminal) -> None:
    assert replayed("keys.md", terminal) > 5


@pytest.mark.parametrize(
    ("page", "file", "typed"),
    [
        ("docs/start.md", "start/booking.py", [("row", "99"), ("row", "12"), ("window [yes]", "")]),
        ("docs/guides/command.md", None, [("value", "Ada")]),
    ],
)
def test_a_call_at_a_terminal_is_shown_as_it_is(
    page: str, file: str | None, typed: list[tuple[str, str]], tmp_path: Path
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (command, shown) = re.search(r"```text\n\$ turnwise (call [^\n]*)\n(.*?)```", text, re.DOTALL).groups()  # type: ignore[union-attr]
    with commands({}, tmp_path) as here:
        if file is None:
            here.run(["new", "trips"])
        else:
            (tmp_path / "booking.py").write_text((SAMPLES / file).read_text())
        folder = tmp_path / "trips" if file is None else tmp_path
        words = shlex.split(command.replace(f"{SERVED}/mcp", "booking.py:server"))
        with here._replace(folder=folder).terminal(*words) as terminal:
            for prompt, line in typed:
                terminal.answers(prompt, line)
            assert terminal.ended().code == 0
    assert terminal.shown.split() == shown.split()  # A narrow terminal breaks lines.


def test_a_page_that_shows_something_else_is_caught() -> None:
    assert fits("good  tools: 1\n", "good  tools: 1\n")
    assert fits("in ... s", "in 3 s  \n")
    assert not fits("good  tools: 1\n", "good  tools: 2\n")
    assert not fits("good\n", "good\nbad\n")


# Options


def test_every_command_has_a_section_of_the_guide() -> None:
    assert {name.split()[1] for name in COMMANDS} <= sections("command.md").keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_guide(name: str) -> None:
    text = sections("command.md")[name.split()[1]]
    for parameter in COMMANDS[name].params:
        for flag in command_reference.flags(parameter):
            assert flag == "--help" or re.search(rf"{flag}\b", text), (
                f"{name} has {flag}, which the guide does not name"
            )


def test_every_option_in_the_guides_is_one() -> None:
    known: dict[str, set[str]] = {}
    for name, command in COMMANDS.items():
        known.setdefault(name.split()[1], set()).update(
            flag for part in command.params for flag in command_reference.flags(part)
        )
    for word, text in sections("command.md").items():
        for flag in re.findall(r"`(--[a-z-]+)", text):
            assert flag in known.get(word, set()) | {"--help"}, f"{word} has no {flag}"
    everything = set().union(*known.values())
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for command in re.findall(
            r"turnwise (?:serve|dev|call|list|doctor|worker|tasks|keys|token) [^`\n]*", page.read_text()
        ):
            for flag in re.findall(r"(?<!\S)--[a-z][a-z-]+", command):
                assert flag in everything, f"{page.name}: {command}"


def test_the_reference_of_the_command_is_up_to_date() -> None:
    assert command_reference.PAGE.read_text(encoding="utf-8") == command_reference.written(), (
        "run: python scripts/command_reference.py"
    )


# Hosts


def test_the_page_of_hosts_has_what_the_command_prints() -> None:
    page = sections("hosts.md")
    told = [
        *hosts("trips", f"{SERVED}/mcp"),
        started("trips", "/home/ada/trips/trips.py:server", "/home/ada/venv/bin/python", "/home/ada/trips"),
    ]
    for host in told:
        assert f"`{host.file}`" in page[host.name]
        assert f"```json\n{host.written()}\n```" in page[host.name]


# Samples


def test_a_server_is_given_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KEYS", f"{'a' * 32},{'b' * 32}")
    assert asyncio.run(flow(load("keys/own.py").server, lambda: None)) == "Hello Ada!"


def test_no_flow_is_lost_while_keys_are_rotated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KEYS", "a" * 32)
    server = load("keys/own.py").server
    phases = load("keys/rotating.py").rotate(server, "a" * 32, "b" * 32)
    for phase in ("add", "mint"):
        assert asyncio.run(flow(server, lambda: next(phases))) == "Hello Ada!", phase
    assert next(phases) == "drop"
    assert asyncio.run(flow(server, lambda: None)) == "Hello Ada!"


async def flow(server: Any, between: Any) -> str:
    """One call of two rounds; something happens between them."""

    async def answer(connection: Any, params: Any) -> dict[str, Any]:
        between()
        return {"action": "accept", "content": {"value": "Ada"}}

    async with connect(server, elicitation_callback=answer) as client:
        result = await client.call_tool("greet", {"city": "Ulm"})
        assert len(client.rounds) == 2
        return str(result.structured_content["result"])
