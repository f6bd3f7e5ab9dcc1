"""The examples: each of them does what its first line says, and can be read in one go."""

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import turnwise
from tests.ports import free_port
from tests.wires.serving import serving as in_thread
from turnwise import Client
from turnwise.testing import connect

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE = 60.0
ENV = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}


def load(name: str) -> ModuleType:
    """An example, fresh."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: str) -> str:
    """What an example says when it is run."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    options: dict[str, Any] = {"env": ENV, "capture_output": True, "text": True, "timeout": PATIENCE}
    done = subprocess.run(command, check=False, **options)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    with in_thread(app, log_level="error", lifespan="auto", timeout_graceful_shutdown=1) as port:
        yield f"http://127.0.0.1:{port}"


def accepting(**values: Any) -> Any:
    """Somebody who answers by message."""

    async def answer(_: Any, params: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"value": values[params.message.split()[0].lower()]}}

    return answer


def test_a_payment_is_charged_once_though_an_old_token_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = tmp_path / "bank"
    for name, value in {"KEY": "k" * 32, "STORE": str(tmp_path / "flows.db"), "BANK": str(bank)}.items():
        monkeypatch.setenv(f"PAYMENT_{name}", value)
    card = {"card": {"action": "accept", "content": {"value": "4242"}}}

    async def pay() -> set[str]:
        call: dict[str, Any] = {"name": "pay", "arguments": {"cents": 1200}}
        async with connect(load("payment").server) as one, connect(load("payment").server) as other:
            one.capabilities = other.capabilities = {"elicitation": {}}
            asked = await one.request("tools/call", call)
            retry = {**call, "requestState": asked["requestState"], "inputResponses": card}
            texts = set()
            for instance in (one, other, one):
                more = await instance.request("tools/call", retry)
                mail = {"mail": {"action": "decline"}}
                end = {**call, "requestState": more["requestState"], "inputResponses": mail}
                texts.add((await instance.request("tools/call", end))["content"][0]["text"])
            return texts

    (text,) = asyncio.run(pay())
    assert re.fullmatch(r"Paid 12\.00, receipt R-[0-9a-f]{6}\.", text)
    assert bank.read_text() == "4242 1200\n"


def test_a_login_happens_on_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN_PORT", str(free_port()))
    module = load("login")
    visits: list[str] = []

    async def visit(_: Any, params: Any) -> dict[str, Any]:
        visits.append(params.url)
        if len(visits) > 1:  # The first time, the user has not been there and says so nevertheless.
            form = urllib.parse.urlencode({"user": "Ada"}).encode()
            page = await asyncio.to_thread(lambda: urllib.request.urlopen(params.url).read())
            assert b"<form" in page
            await asyncio.to_thread(lambda: urllib.request.urlopen(params.url, form).read())
        return {"action": "accept"}

    async def call() -> Any:
        async with connect(module.server, elicitation_callback=visit) as client:
            return (await client.call_tool("inbox")).structured_content

    assert asyncio.run(call()) == {"result": "Ada has 2 new messages."}
    assert len(visits) == 2
    assert len(set(visits)) == 1


def test_an_agent_uses_its_tools_as_the_model_wishes() -> None:
    seen: list[int] = []

    async def model(_: Any, params: Any) -> dict[str, Any]:
        seen.append(len(params.messages))
        wish = {"type": "tool_use", "id": "a", "name": "look_up", "input": {"mountain": "Ben Nevis"}}
        if len(params.messages) == 1:
            return {"role": "assistant", "model": "m", "stopReason": "toolUse", "content": [wish]}
        found = params.messages[-1].content[0].content[0].text
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": f"It has {found}."}}

    async def call() -> Any:
        async with connect(load("agent").server, sampling_callback=model) as client:
            result = await client.call_tool("research", {"question": "How high is Ben Nevis?"})
            assert len(client.rounds) == 3
            return result.structured_content

    assert asyncio.run(call()) == {"result": "It has 1345 m."}
    assert seen == [1, 3]


def test_a_report_is_written_as_a_task() -> None:
    said = run("report").splitlines()
    assert said[-4:] == ["Onwards", *(f"{chapter} in 2026: a good year." for chapter in ("Sales", "People", "Outlook"))]
    assert "input_required: chapter 3 of 3" in said


def test_one_tool_is_called_over_five_wires() -> None:
    lines = run("five_wires").splitlines()
    assert [line.split()[0] for line in lines] == [*load("five_wires").WIRES]
    assert all("3 nights in Ulm" in line for line in lines)


@pytest.mark.parametrize("name", ["in_starlette", "in_fastapi"])
def test_tools_are_mounted_in_an_application_with_other_routes(name: str) -> None:
    async def call(url: str) -> Any:
        async with Client(f"{url}/tools/mcp", elicitation_callback=accepting(how=3)) as client:
            return (await client.call_tool("order", {"article": "tea"})).structured_content

    with serving(load(name).app) as url:
        assert asyncio.run(call(url)) == {"result": "3 of tea ordered."}
        page = urllib.request.urlopen(url).read().decode()
        assert page in ("3 tea", '{"tea":3}')


def test_a_graph_goes_on_in_another_process(tmp_path: Path) -> None:
    file = tmp_path / "trip.json"
    with serving(load("booking").server.asgi()) as url:
        asked = run("durable_graph", str(file), "start", f"{url}/mcp", "TW 2322")
        assert asked.endswith("? Which seat on TW 2322?\n")
        assert json.loads(file.read_text())["next"] == "book"
        done = run("durable_graph", str(file), "answer", "row:=12")
    assert done == "a seat on TW 2322 is wanted; then: Booked row 12 on TW 2322.\n"
    assert json.loads(file.read_text())["next"] is None


def test_the_list_of_examples_names_them_all_and_each_is_short() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"({path.name})" in listed, path.name
        assert path.name == "demo.py" or len(path.read_text().splitlines()) < 80, path.name
    for name in re.findall(r"\((\w+\.py)\)", listed):
        assert (EXAMPLES / name).is_file()
    for command in re.findall(r"`([^`]*examples/[^`]*)`", listed):
        for path in re.findall(r"examples/\w+\.py", command):
            assert (ROOT / path).is_file()
