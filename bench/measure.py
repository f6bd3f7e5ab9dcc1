"""One repeat of the servers: started, loads put on them in turns, figures by name; and what a turn in quiet is.

A turn during which the machine was disturbed says little about the row and is taken again. Disturbance is
what other processes used of the two cores, or how much slower a fixed piece of work ran just before and after;
what the row achieved is never a reason.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from bench.fleet import Server, Spec, start
from bench.load import LOADS, Load, Measured, run_load
from bench.machine import Yardstick, busy_seconds, cpu_seconds, resident_mb
from bench.report import QUIET, Rows, medians

WARM_UP = 0.3
TURNS = 4
"""Turns that a server gets under each load of a repeat."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where and how long to measure, and how often to try while the machine is disturbed."""

    generator_core: int
    server_core: int
    seconds: float
    attempts: int
    yardstick: Yardstick

    @property
    def cores(self) -> tuple[int, int]:
        return self.generator_core, self.server_core

    def start(self, spec: Spec) -> Server:
        return start(spec, self.server_core)


def repeat_once(bench: Bench, specs: Sequence[Spec]) -> Rows:
    """Start the servers one after the other, then let each load go round them."""
    with ExitStack() as running:
        servers: list[Server] = []
        for spec in specs:
            servers.append(bench.start(spec))
            running.callback(servers[-1].stop)
        rows = {server.spec.name: _first_figures(server) for server in servers}
        for server in servers:
            _warm_up(server)
        for load in LOADS:
            for name, figures in _go_round(bench, servers, load).items():
                rows[name] |= figures
        for server in servers:
            rows[server.spec.name]["rss_loaded_mb"] = resident_mb(server.process.pid)
        return rows


def _first_figures(server: Server) -> dict[str, float]:
    return {"cold_start_ms": server.cold_start * 1e3, "rss_idle_mb": resident_mb(server.process.pid)}


def _warm_up(server: Server) -> None:
    for load in _loads_of(server.spec)[:2]:
        run_load(server.port, load, WARM_UP)


def _loads_of(spec: Spec) -> tuple[Load, ...]:
    return tuple(load for load in LOADS if not spec.loads or load.name in spec.loads)


def _go_round(bench: Bench, servers: Sequence[Server], load: Load) -> Rows:
    """Put a load on the servers in short turns, so that all share the machine's moods; give the medians."""
    taking = [server for server in servers if load in _loads_of(server.spec)]
    return medians([{server.spec.name: _turn(bench, server, load) for server in taking} for _ in range(TURNS)])


def _turn(bench: Bench, server: Server, load: Load) -> dict[str, float]:
    figures = in_quiet(
        bench, lambda: pressed(bench, server, lambda: run_load(server.port, load, bench.seconds / TURNS))
    )
    return {f"{load.name}.{name}": value for name, value in figures.items()}


def in_quiet(bench: Bench, take: Callable[[], dict[str, float]]) -> dict[str, float]:
    """A turn in quiet, or the quietest of several; it says by `others_share` what else the cores did."""
    taken: list[dict[str, float]] = []
    while len(taken) < bench.attempts:
        before = bench.yardstick.slowness()
        figures = take()
        disturbance = max(figures.pop("others_share"), before, bench.yardstick.slowness())
        taken.append({**figures, "disturbance": disturbance})
        if disturbance <= QUIET:
            break
    return min(taken, key=lambda figures: figures["disturbance"])


def pressed(bench: Bench, server: Server, press: Callable[[], Measured]) -> dict[str, float]:
    """Put one load on one server once; `others_share` is in cores, what neither server nor generator used."""
    pids = (server.process.pid, os.getpid())
    busy, (served, generated) = busy_seconds(bench.cores), map(cpu_seconds, pids)
    measured = press()
    wall = measured.talks / measured.per_second
    served, generated = cpu_seconds(pids[0]) - served, cpu_seconds(pids[1]) - generated
    others = busy_seconds(bench.cores) - busy - served - generated
    return {
        **asdict(measured),
        "cpu_us": served / measured.talks * 1e6,
        "server_share": served / wall,
        "others_share": max(0.0, others / wall),
    }
