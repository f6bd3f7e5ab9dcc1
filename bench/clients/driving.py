"""How a client of the benchmark is driven: one process that takes orders and does flows.

An order is a line of JSON on standard input, what it gave is a line of JSON on standard output. For each order the
client is entered anew, does some flows that do not count, then flows until the time is over; each greeting is
verified. Nothing here knows a client.
"""

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from itertools import count

import uvloop

Greet = Callable[[str], Awaitable[str]]
"""One flow: a city to be greeted from; the greeting, after the question was answered."""
Connect = Callable[[str], AbstractAsyncContextManager[Greet]]
"""Enters a client of the server at a URL; a client in memory brings its server and gets no URL."""

CITIES = [f"City{number}" for number in range(64)]
VISITORS = {f"Who is visiting {city}?": f"Visitor of {city}" for city in CITIES}
GREETINGS = {city: f"Hello Visitor of {city} from {city}" for city in CITIES}
CONNECTING = 16
"""Flows that do not count, so that connections are open before those that do."""


class WrongGreeting(Exception):
    """A client finished a flow, but with another text than the question and its answer lead to."""


@dataclass(frozen=True, slots=True)
class Order:
    """How many flows at a time, and for how long."""

    concurrency: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """What an order gave: flows, their rate, their latencies, and the CPU time of this process for each."""

    flows: int
    per_second: float
    p50_us: float
    p99_us: float
    cpu_us: float
    client_share: float


def drive(connect: Connect) -> None:
    """Be the process of one row: carry out orders until there are no more."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="", help="where the server is, for clients that need one")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop instead of asyncio's own loop")
    options = parser.parse_args()
    loop_factory = uvloop.new_event_loop if options.uvloop else None
    print("ready", flush=True)
    for line in sys.stdin:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            done = runner.run(_carry_out(connect(options.url), Order(**json.loads(line))))
        print(json.dumps(asdict(done)), flush=True)


async def _carry_out(client: AbstractAsyncContextManager[Greet], order: Order) -> Done:
    async with client as greet:
        await _together(greet, order.concurrency, iter(range(CONNECTING)))
        gc.collect()
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        latencies = await _together(greet, order.concurrency, _until(wall + int(order.seconds * 1e9)))
        cpu, wall = time.process_time_ns() - cpu, time.perf_counter_ns() - wall
    latencies.sort()
    flows = len(latencies)
    return Done(
        flows=flows,
        per_second=flows / wall * 1e9,
        p50_us=latencies[flows // 2] / 1e3,
        p99_us=latencies[flows * 99 // 100] / 1e3,
        cpu_us=cpu / flows / 1e3,
        client_share=cpu / wall,
    )


def _until(deadline: int) -> Iterator[int]:
    """Numbers, one at least, until the time is over."""
    for number in count():
        yield number
        if time.perf_counter_ns() >= deadline:
            return


async def _together(greet: Greet, concurrency: int, numbers: Iterator[int]) -> list[int]:
    """Do flows, so many at a time, while there are numbers; give their latencies in nanoseconds."""
    latencies: list[int] = []
    if concurrency == 1:
        await _one_by_one(greet, numbers, latencies)
        return latencies
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(_one_by_one(greet, numbers, latencies))
    return latencies


async def _one_by_one(greet: Greet, numbers: Iterator[int], latencies: list[int]) -> None:
    for number in numbers:
        city = CITIES[number % len(CITIES)]
        began = time.perf_counter_ns()
        greeting = await greet(city)
        latencies.append(time.perf_counter_ns() - began)
        if greeting != GREETINGS[city]:
            raise WrongGreeting(f"expected {GREETINGS[city]!r}, got {greeting!r}")
