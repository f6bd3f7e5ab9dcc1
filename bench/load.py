"""The load generator: keep-alive connections that each hold one conversation after the other.

It runs on uvloop with bare protocols, checks every reply, and says how much of its own core it used, so that
a row in which the generator was the limit can be told from one in which the server was.
Run by itself (`python -m bench.load PORT`) it prints one line per load.
"""

import argparse
import asyncio
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import uvloop

from bench.wire import Phrasebook, Talk, WrongReply, reply_body

BUSY = 0.9
"""Above this share of its core the generator, not the server, may be what was measured."""
GRACE = 10.0


class LoadFailed(Exception):
    """At least one conversation went wrong; figures from such a run mean nothing."""


@dataclass(frozen=True, slots=True)
class Load:
    """How to press on a server: which conversation, over how many connections."""

    name: str
    flow: bool
    connections: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What one load on one server gave. Latencies are in microseconds, per conversation."""

    talks: int
    per_second: float
    p50_us: float
    p99_us: float
    generator_share: float

    @property
    def generator_bound(self) -> bool:
        return self.generator_share > BUSY


LOADS = (
    Load("calls", flow=False, connections=16),
    Load("flows", flow=True, connections=16),
    Load("calls_1", flow=False, connections=1),
    Load("flows_1", flow=True, connections=1),
)


class Tally:
    """What the connections of one load have in common: the supply of talks, the deadline, the findings."""

    def __init__(self, talks: Iterator[Talk], connections: int) -> None:
        self.talks = talks
        self.deadline = 0
        self.latencies: list[int] = []
        self.errors: list[str] = []
        self.done = asyncio.get_running_loop().create_future()
        self._open = connections

    def fail(self, reason: str) -> None:
        self.errors.append(reason)

    def close(self) -> None:
        self._open -= 1
        if not self._open and not self.done.done():
            self.done.set_result(None)


class Connection(asyncio.Protocol):
    """One keep-alive connection: starts a talk, feeds it replies, starts the next until the deadline."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._transport: asyncio.Transport
        self._pending = b""
        self._talk: Talk
        self._began = 0
        self._finished = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def begin(self) -> None:
        self._began = time.perf_counter_ns()
        if self._began >= self._tally.deadline:
            self._finish()
            return
        self._talk = next(self._tally.talks)
        self._transport.write(next(self._talk))

    def data_received(self, data: bytes) -> None:
        if self._pending:
            data = self._pending + data
        try:
            body = reply_body(data)
            if body is None:
                self._pending = data
                return
            self._pending = b""
            self._transport.write(self._talk.send(body))
        except StopIteration:
            self._tally.latencies.append(time.perf_counter_ns() - self._began)
            self.begin()
        except WrongReply as wrong:
            self._tally.fail(str(wrong))
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._finished:
            self._tally.fail(f"connection lost: {exc}")
            self._finish()

    def _finish(self) -> None:
        self._finished = True
        self._transport.close()
        self._tally.close()


async def press(port: int, talks: Iterator[Talk], connections: int, seconds: float) -> Measured:
    """Keep a server busy for some seconds and report what it did."""
    tally = Tally(talks, connections)
    opened = [await _connect(port, tally) for _ in range(connections)]
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    tally.deadline = wall + int(seconds * 1e9)
    for connection in opened:
        connection.begin()
    async with asyncio.timeout(seconds + GRACE):
        await tally.done
    cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    if tally.errors:
        raise LoadFailed(f"{len(tally.errors)} failed, the first: {tally.errors[0]}")
    return _summary(sorted(tally.latencies), cpu, wall)


async def _connect(port: int, tally: Tally) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(lambda: Connection(tally), "127.0.0.1", port)
    return connection


def _summary(latencies: list[int], cpu: int, wall: int) -> Measured:
    talks = len(latencies)
    if not talks:
        raise LoadFailed("no conversation was finished in time")
    return Measured(
        talks=talks,
        per_second=talks / wall * 1e9,
        p50_us=latencies[talks // 2] / 1e3,
        p99_us=latencies[talks * 99 // 100] / 1e3,
        generator_share=cpu / wall,
    )


def run_load(port: int, load: Load, seconds: float) -> Measured:
    """Calls or flows, as the load has it."""
    book = Phrasebook(port)
    return run_talks(port, book.flows() if load.flow else book.plain_calls(), load.connections, seconds)


def run_talks(port: int, talks: Iterator[Talk], connections: int, seconds: float) -> Measured:
    """`press`, from synchronous code, on a fresh uvloop and without the collector getting in between."""
    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(press(port, talks, connections, seconds))
    finally:
        gc.enable()


def main() -> None:
    parser = argparse.ArgumentParser(description="Press on a local server that has the benchmark tools.")
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    for load in LOADS:
        measured = run_load(options.port, load, options.seconds)
        flag = "  GENERATOR-BOUND" if measured.generator_bound else ""
        print(
            f"{load.name:8} {measured.per_second:9.0f}/s   p50 {measured.p50_us:7.0f} us   "
            f"p99 {measured.p99_us:7.0f} us   generator {measured.generator_share:4.2f}{flag}"
        )


if __name__ == "__main__":
    main()
