"""The clients: which are compared, how they are measured, and the bars that Turnwise has to reach.

Over HTTP all talk to one server that costs next to nothing (`servers/canned.py`), on the other core. In memory a client
and its library's own server are one process on one core.
"""

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench import report
from bench.clients.driving import Order
from bench.clients.process import Client, start
from bench.fleet import Server, Spec
from bench.machine import busy_seconds, cpu_seconds
from bench.measure import Bench, in_quiet
from bench.part import Part
from bench.report import Bar, Ratio, Rows, medians

CANNED = Spec("canned", "canned")
TURNS = 3
"""Turns that a client gets under each load of a repeat."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many flows a client does at a time."""

    name: str
    concurrency: int


LOADS = (Load("flows_1", 1), Load("flows_16", 16))
ALONE = ("flows_1",)
WARM_UP = Order(1, 0.2)

SPECS = (
    Spec("turnwise", "turnwise_client"),
    Spec("mcp", "mcp_client"),
    Spec("httpx2", "raw_httpx2"),
    Spec("aiohttp", "raw_aiohttp"),
    Spec("turnwise_uvloop", "turnwise_client", ("--uvloop",), ALONE),
    Spec("mcp_uvloop", "mcp_client", ("--uvloop",), ALONE),
    Spec("turnwise_memory", "turnwise_memory", loads=ALONE),
    Spec("mcp_returned_memory", "mcp_returned_memory", loads=ALONE),
    Spec("mcp_declared_memory", "mcp_declared_memory", loads=ALONE),
)

RATIOS = (
    Ratio("client_flows_vs_mcp", "flows_1.per_second", "turnwise", "mcp"),
    Ratio("client_flows_vs_httpx2", "flows_1.per_second", "turnwise", "httpx2"),
    Ratio("client_flows_vs_aiohttp", "flows_1.per_second", "turnwise", "aiohttp"),
    Ratio("client_flows_16_vs_mcp", "flows_16.per_second", "turnwise", "mcp"),
    Ratio("client_flows_16_vs_httpx2", "flows_16.per_second", "turnwise", "httpx2"),
    Ratio("client_flows_16_vs_aiohttp", "flows_16.per_second", "turnwise", "aiohttp"),
    Ratio("client_cpu_per_flow_vs_mcp", "flows_1.cpu_us", "turnwise", "mcp"),
    Ratio("client_cpu_per_flow_vs_aiohttp", "flows_1.cpu_us", "turnwise", "aiohttp"),
    Ratio("client_uvloop_flows_vs_mcp", "flows_1.per_second", "turnwise_uvloop", "mcp_uvloop"),
    Ratio("memory_flows_vs_mcp_returned", "flows_1.per_second", "turnwise_memory", "mcp_returned_memory"),
    Ratio("memory_flows_vs_mcp_declared", "flows_1.per_second", "turnwise_memory", "mcp_declared_memory"),
    Ratio("memory_cpu_per_flow_vs_mcp_returned", "flows_1.cpu_us", "turnwise_memory", "mcp_returned_memory"),
)

BARS = (Bar("client_flows_vs_mcp", 2.5), Bar("memory_flows_vs_mcp_returned", 5.0))

COLUMNS = (
    ("flows/s x1", "flows_1.per_second", "{:.0f}"),
    ("us/flow", "flows_1.cpu_us", "{:.0f}"),
    ("p50", "flows_1.p50_us", "{:.0f}"),
    ("p99", "flows_1.p99_us", "{:.0f}"),
    ("flows/s x16", "flows_16.per_second", "{:.0f}"),
    ("us/flow", "flows_16.cpu_us", "{:.0f}"),
    ("p50", "flows_16.p50_us", "{:.0f}"),
    ("p99", "flows_16.p99_us", "{:.0f}"),
    ("server", "flows_16.server_share", "{:.2f}"),
)


def table(rows: Rows) -> str:
    return report.table("client", rows, COLUMNS)


def repeat_once(bench: Bench, specs: Sequence[Spec]) -> Rows:
    """Start the server and the clients, then let each load go round them in short turns."""
    with ExitStack() as running:
        server = bench.start(CANNED)
        running.callback(server.stop)
        url = f"http://127.0.0.1:{server.port}/mcp"
        clients: list[Client] = []
        for spec in specs:
            clients.append(start(spec, bench.generator_core, url))
            running.callback(clients[-1].stop)
        for client in clients:
            client.carry_out(WARM_UP)
        rows: Rows = {spec.name: {} for spec in specs}
        for load in LOADS:
            for name, figures in _go_round(bench, server, clients, load).items():
                rows[name] |= figures
        return rows


def _go_round(bench: Bench, server: Server, clients: Sequence[Client], load: Load) -> Rows:
    taking = [client for client in clients if not client.spec.loads or load.name in client.spec.loads]
    return medians([{client.spec.name: _turn(bench, server, client, load) for client in taking} for _ in range(TURNS)])


def _turn(bench: Bench, server: Server, client: Client, load: Load) -> dict[str, float]:
    order = Order(load.concurrency, bench.seconds / TURNS)
    figures = in_quiet(bench, lambda: _measure(bench, server, client, order))
    return {f"{load.name}.{name}": value for name, value in figures.items()}


def _measure(bench: Bench, server: Server, client: Client, order: Order) -> dict[str, float]:
    """Give one order once; shares are of the whole order, with the flows that do not count."""
    pids = (server.process.pid, client.process.pid, os.getpid())
    wall, busy, used = time.perf_counter(), busy_seconds(bench.cores), [cpu_seconds(pid) for pid in pids]
    done = client.carry_out(order)
    spent = [cpu_seconds(pid) - before for pid, before in zip(pids, used, strict=True)]
    busy, wall = busy_seconds(bench.cores) - busy, time.perf_counter() - wall
    return {**done, "server_share": spent[0] / wall, "others_share": max(0.0, (busy - sum(spent)) / wall)}


CLIENTS = Part(
    name="clients",
    specs=SPECS,
    repeats=5,
    seconds=0.6,
    repeat_once=repeat_once,
    table=table,
    ratios=RATIOS,
    bars=BARS,
    opposite="server",
)
