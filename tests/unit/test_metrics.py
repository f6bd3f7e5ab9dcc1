"""Figures for Prometheus: read over several workers as Prometheus reads them, and by themselves in one process."""

import asyncio
import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.commanding import META, PATIENCE, SHOP, Door, Served, answering, refused, serving, until
from tests.ports import free_port
from turnwise import Context, MCPServer
from turnwise.errors.peers import Kind
from turnwise.metrics import PrometheusMetrics
from turnwise.testing import connect

MORE = """
import turnwise.metrics
from turnwise import SQLiteTaskStore, TaskOptions

turnwise.metrics.TASK_SECONDS = 0.05

async def work(part: str) -> str:
    return part

@server.tool()
async def compute(ctx: Context) -> str:
    return "".join([await ctx.step(work, part) for part in "abcde"])

@server.tool()
async def fail() -> str:
    raise ZeroDivisionError

@server.tool(task="always")
async def report(ctx: Context) -> str:
    return (await ctx.elicit("Which year?", str, key="year")).data

@server.resource("notes://{number}")
def note(number: str) -> str:
    return number
"""
PROGRAM = SHOP.replace(
    "lifespan=lifespan)",
    "lifespan=lifespan, shed_when=lambda load: (PLACE / 'busy').exists(), "
    "tasks=TaskOptions(store=SQLiteTaskStore(str(PLACE / 'tasks.db'))))",
).replace("import Context,", "import Context, SQLiteTaskStore, TaskOptions,")
TASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}
OWN = """
from turnwise import MCPServer
from turnwise.metrics import PrometheusMetrics
server = MCPServer("shop", telemetry=PrometheusMetrics())
"""


class Figures:
    """What Prometheus would read."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    def read(self) -> dict[tuple[str, frozenset[str]], float]:
        with urllib.request.urlopen(self._url, timeout=PATIENCE) as response:
            families = list(text_string_to_metric_families(response.read().decode()))
        return {
            (sample.name, frozenset(sample.labels.values())): sample.value
            for family in families
            for sample in family.samples
        }

    def get(self, name: str, *labels: str) -> float:
        return self.read().get((f"turnwise_{name}", frozenset(labels)), 0.0)

    def becomes(self, value: float, name: str, *labels: str) -> None:
        """A worker may write its figures a moment after its reply."""
        until(lambda: self.get(name, *labels) == value)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Door, Figures]]:
    place, port = tmp_path_factory.mktemp("counted"), free_port()
    with serving(place, "--workers", "2", "--metrics-port", str(port), program=PROGRAM + MORE) as served:
        yield served, served.ready(workers=2), Figures(port)


def test_calls_rounds_and_questions_are_counted_over_all_workers(fleet: tuple[Served, Door, Figures]) -> None:
    served, door, figures = fleet
    workers = served.workers()
    for stopped in workers:  # One flow with each of them.
        os.kill(stopped, signal.SIGSTOP)
        assert door.order("a hat") == "a hat, small, blue"
        os.kill(stopped, signal.SIGCONT)
    figures.becomes(4, "calls_total", "tools/call", "order", "input_required")
    figures.becomes(2, "calls_total", "tools/call", "order", "complete")
    assert figures.get("flow_rounds_count", "tools/call", "order") == 2
    assert figures.get("flow_rounds_sum", "tools/call", "order") == 6
    assert figures.get("flow_rounds_bucket", "tools/call", "order", "3.0") == 2
    assert figures.get("flow_rounds_bucket", "tools/call", "order", "2.0") == 0
    assert figures.get("questions_total", "elicitation/create") == 4
    assert figures.get("token_bytes_count") == 4


def test_how_long_rounds_take_is_counted(fleet: tuple[Served, Door, Figures]) -> None:
    _, door, figures = fleet
    before = figures.get("call_seconds_count", "tools/call", "who")
    for _ in range(5):
        door.call("who")
    figures.becomes(before + 5, "call_seconds_count", "tools/call", "who")
    assert figures.get("call_seconds_bucket", "tools/call", "who", "+Inf") == before + 5
    assert figures.get("call_seconds_sum", "tools/call", "who") > 0


def test_reasons_to_refuse_a_state_are_figures_before_the_first_is(fleet: tuple[Served, Door, Figures]) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/fleet.md").read_text().partition("| `reason` | means |")[2]
    told = {name for row in guide.partition("\n\n")[0].splitlines() for name in re.findall("`([a-z]+)`", row[:24])}
    found = [labels for name, labels in fleet[2].read() if name == "turnwise_rejected_states_total"]
    assert sorted(map(set, found), key=min) == [{kind} for kind in sorted(told)]
    assert told == set(get_args(Kind))


def test_states_that_are_refused_are_counted_by_reason(fleet: tuple[Served, Door, Figures]) -> None:
    _, door, figures = fleet
    asked = door.call("order", {"item": "a coat"}).result
    state = asked["requestState"]
    changed = state[:-8] + ("A" * 8 if state[-8:] != "A" * 8 else "B" * 8)
    door.call("order", {"item": "a tie"}, **answering(asked, "small"))
    door.call("order", {"item": "a coat"}, requestState=changed)
    door.call("order", {"item": "a coat"}, requestState="nonsense")
    for reason in ("claims", "changed", "format"):
        figures.becomes(1, "rejected_states_total", reason)


def test_calls_that_are_handed_on_are_counted(fleet: tuple[Served, Door, Figures]) -> None:
    served, door, figures = fleet
    (served.place / "busy").touch()
    moved = door.call("compute").result
    (served.place / "busy").unlink()
    assert moved["resultType"] == "input_required"
    assert door.call("compute", requestState=moved["requestState"]).text == "abcde"
    figures.becomes(1, "sheds_total")
    figures.becomes(1, "calls_total", "tools/call", "compute", "input_required")


def test_failures_are_counted_as_such(fleet: tuple[Served, Door, Figures]) -> None:
    _, door, figures = fleet
    door.call("fail")
    figures.becomes(1, "calls_total", "tools/call", "fail", "failed")


def test_tasks_are_counted_by_status(fleet: tuple[Served, Door, Figures]) -> None:
    _, door, figures = fleet
    meta = {**META, "io.modelcontextprotocol/clientCapabilities": TASKS}
    for _ in range(2):
        assert door.call("report", _meta=meta).status == 200
    figures.becomes(2, "tasks", "input_required")
    assert figures.get("tasks", "completed") == 0
    until(lambda: figures.get("task_oldest_seconds", "input_required") > 0)


def test_responses_and_requests_under_way_are_counted(fleet: tuple[Served, Door, Figures]) -> None:
    served, door, figures = fleet
    figures.becomes(0, "http_requests_in_flight")
    before = figures.get("http_responses_total", "499")
    connections = [door.begin("wait", {"name": f"counted {number}"}) for number in range(3)]
    figures.becomes(3, "http_requests_in_flight")
    for connection in connections:
        connection.close()
    figures.becomes(0, "http_requests_in_flight")
    assert figures.get("http_responses_total", "499") == before + 3
    assert door.get("/nowhere").status == 404
    figures.becomes(1, "http_responses_total", "404")
    served.began("counted 0")


def test_what_clients_make_up_does_not_become_a_label(fleet: tuple[Served, Door, Figures]) -> None:
    _, door, figures = fleet
    door.call("made-up-tool")
    door.call("order", {"item": "a"}, headers={"Mcp-Method": "made/up"})
    assert not [labels for _, labels in figures.read() if any("made" in label for label in labels)]


def test_requests_of_a_worker_that_was_killed_are_no_longer_under_way(fleet: tuple[Served, Door, Figures]) -> None:
    served, door, figures = fleet
    figures.becomes(0, "http_requests_in_flight")
    answered = figures.get("calls_total", "tools/call", "who", "complete")
    with door.begin("wait", {"name": "with the killed"}):
        figures.becomes(1, "http_requests_in_flight")
        os.kill(served.began("with the killed"), signal.SIGKILL)
        figures.becomes(0, "http_requests_in_flight")
    assert figures.get("calls_total", "tools/call", "who", "complete") >= answered
    served.ready(workers=2)


def test_one_process_serves_its_figures_too(tmp_path: Path) -> None:
    port = free_port()
    with serving(tmp_path, "--metrics-port", str(port)) as served:
        assert served.ready().order("a hat") == "a hat, small, blue"
        Figures(port).becomes(1, "flow_rounds_bucket", "tools/call", "order", "3.0")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_that_counts_for_itself_is_not_counted_twice(tmp_path: Path, workers: str) -> None:
    arguments = ["--port", "0", "--metrics-port", str(free_port()), "--workers", workers]
    code, said = refused(tmp_path, "shop", *arguments, program=OWN)
    assert code == 3
    assert "shop counts for itself already" in said
    assert "Traceback" not in said


def test_a_server_of_ones_own_counts_into_a_registry_of_ones_own() -> None:
    registry = CollectorRegistry()
    server: MCPServer[Any] = MCPServer("shop", telemetry=PrometheusMetrics(registry))

    @server.tool()
    async def order(ctx: Context) -> str:
        return str((await ctx.elicit("Which size?", str)).action)

    async def elicit(connection: Any, params: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"value": "small"}}

    async def run() -> None:
        async with connect(server, elicitation_callback=elicit) as client:
            await client.call_tool("order", {})

    asyncio.run(run())
    labels = {"method": "tools/call", "target": "order"}
    assert registry.get_sample_value("turnwise_flow_rounds_sum", labels) == 2
    assert registry.get_sample_value("turnwise_calls_total", labels | {"result": "complete"}) == 1
