"""A flow of three questions whose client is killed after each of them: real processes, a real server, a real file."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.joined import ENVIRONMENT, PATIENCE, run, serving
from turnwise import AlreadyAnswered, Pending, SQLitePendingStore

SERVER = """
import asyncio, os, sys
from turnwise import Context, MCPServer

server = MCPServer("airline")
folder = sys.argv[1]

def note(name, text):
    with open(os.path.join(folder, name), "a") as file:
        print(text, file=file)

def charge(flight):
    note("charges", flight)
    return "receipt"

@server.tool()
async def book(flight: str, ctx: Context) -> str:
    chosen = []
    note("rounds", ctx.request_id)
    for key in ("seat", "meal", "pillow"):
        answer = await ctx.elicit(f"Which {key}?", str, key=key)
        chosen.append(answer.data if answer.action == "accept" else "-")
        note("answered", key)
    await ctx.step(charge, flight, name="charge")
    if os.path.exists(os.path.join(folder, "hold")):
        note("held", "yes")
        await asyncio.Event().wait()
    return f"{flight}: {', '.join(chosen)}"

server.run("http", port=0)
"""

CLIENT = """
import asyncio, json, os, signal, sys
import turnwise.client
from turnwise import AlreadyAnswered, Client, Pending, SQLitePendingStore

async def main(url, path, pending_id, key, value, claim):
    options = {}
    if claim:
        turnwise.client.CLAIM_MARGIN = 0.0
        turnwise.client.CLAIM_SECONDS = options["read_timeout_seconds"] = float(claim)
    store = SQLitePendingStore(path)
    async with Client(url, pending_store=store, mode="2026-07-28", **options) as client:
        if not pending_id:
            outcome = await client.begin("book", {"flight": "TW1"})
        else:
            answers = {key: {"action": "accept", "content": {"value": value}}} if key else None
            try:
                outcome = await client.resume(pending_id, answers)
            except AlreadyAnswered:
                print(json.dumps(["taken"]), flush=True)
                return
        if isinstance(outcome, Pending):
            asked = {key: question.params.message for key, question in outcome.questions.items()}
            print(json.dumps(["asked", outcome.id, asked]), flush=True)
            signal.pause()
        print(json.dumps(["done", outcome.result.structured_content]), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@contextmanager
def client(
    url: str, path: Path, pending_id: str = "", key: str = "", value: str = "", claim: str = ""
) -> Iterator[Any]:
    """A process that takes one step of the call. However it ends: it is killed, without a chance to tidy up."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, url, str(path), pending_id, key, value, claim],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        assert process.stdout is not None
        process.stdout.close()


def step(*args: Any, **options: Any) -> Any:
    """What one process says before it is killed."""
    with client(*args, **options) as process:
        return json.loads(process.stdout.readline())


def noted(folder: Path, name: str) -> list[str]:
    file = folder / name
    return file.read_text().split() if file.exists() else []


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with serving(SERVER, str(tmp_path)) as url:
        yield url


def test_a_flow_survives_the_death_of_its_client_after_every_question(url: str, tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    asked = []
    outcome = step(url, path)
    for value in ("7A", "rice", "yes"):
        kind, pending_id, questions = outcome
        assert kind == "asked"
        asked += questions.values()
        (key,) = questions
        outcome = step(url, path, pending_id, key, value)
    assert outcome == ["done", {"result": "TW1: 7A, rice, yes"}]
    assert asked == ["Which seat?", "Which meal?", "Which pillow?"]
    # Four rounds: none was repeated, so nothing was asked twice, and the charge was made once.
    assert len(noted(tmp_path, "rounds")) == 4
    assert noted(tmp_path, "answered") == ["seat", "seat", "meal", "seat", "meal", "pillow"]
    assert noted(tmp_path, "charges") == ["TW1"]
    assert run(waiting(path)) == []


def test_a_flow_whose_client_dies_while_it_carries_on_is_taken_over_when_its_claim_runs_out(
    url: str, tmp_path: Path
) -> None:
    path, began = tmp_path / "calls.db", time.monotonic()
    _, pending_id, _ = step(url, path)
    for key in ("seat", "meal"):
        step(url, path, pending_id, key, "x")
    hold = tmp_path / "hold"
    hold.touch()
    with client(url, path, pending_id, "pillow", "x", claim="1.2") as process:
        until(lambda: noted(tmp_path, "held") == ["yes"])
        process.send_signal(signal.SIGKILL)
        with pytest.raises(AlreadyAnswered):
            run(taken(path, pending_id))
    hold.unlink()
    while (outcome := step(url, path, pending_id)) == ["taken"]:
        assert time.monotonic() < began + PATIENCE
    assert outcome == ["done", {"result": "TW1: x, x, x"}]
    # Three rounds that asked, the one that died, and the one that took over: no question went out again.
    assert len(noted(tmp_path, "rounds")) == 5
    assert run(waiting(path)) == []


async def waiting(path: Path) -> list[Pending]:
    store = SQLitePendingStore(path)
    try:
        return await store.list()
    finally:
        await store.aclose()


async def taken(path: Path, pending_id: str) -> Pending:
    store = SQLitePendingStore(path)
    try:
        return await store.claim(pending_id, 60)
    finally:
        await store.aclose()


def until(happened: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < limit
        time.sleep(0.01)
