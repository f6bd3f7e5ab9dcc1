"""The same legs as a server pays for them: over HTTP, in a process of its own, under load on another core.

The retries are made here, in process: the server has the same key, so it takes them.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle

import uvloop

from bench.fleet import PATIENCE, ROOT, free_port, stop
from bench.machine import cpu_seconds
from bench.replay.legs import Leg, legs_of, parse_seconds, verify
from bench.replay.turnwise_legs import server

CONNECTIONS = 16
TURNS = 6
ROW = "turnwise_served"


async def figures(port: int, pid: int, seconds: float) -> dict[str, float]:
    """CPU microseconds of the server for one leg of each kind; the kinds take turns."""
    legs = await legs_of(server.asgi(), "turnwise")
    await ready(port)
    spent, served = dict.fromkeys(legs, 0.0), dict.fromkeys(legs, 0)
    for turn in range(TURNS + 1):
        for name, leg in legs.items():
            before = cpu_seconds(pid)
            count = await loaded(port, leg, seconds)
            if turn:  # The first turn is there to warm up.
                spent[name] += cpu_seconds(pid) - before
                served[name] += count
    return {f"{name}.cpu_us": spent[name] / served[name] * 1e6 for name in legs}


async def ready(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


async def loaded(port: int, leg: Leg, seconds: float) -> int:
    """How many legs were served over all connections in this time."""
    deadline = time.perf_counter() + seconds
    turns = [leg.bodies[number:] + leg.bodies[:number] for number in range(CONNECTIONS)]
    texts = [leg.expected[number:] + leg.expected[:number] for number in range(CONNECTIONS)]
    works = (talked(port, leg, bodies, expected, deadline) for bodies, expected in zip(turns, texts, strict=True))
    return sum(await asyncio.gather(*works))


async def talked(port: int, leg: Leg, bodies: Sequence[bytes], expected: Sequence[bytes], deadline: float) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    count = 0
    requests = [(leg.caller.request(body), text) for body, text in zip(bodies, expected, strict=True)]
    for request, text in cycle(requests):
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        verify(await reader.readexactly(length), text)
        count += 1
        if time.perf_counter() > deadline:
            break
    writer.close()
    return count


def main() -> None:
    """Serve, where a port is given; otherwise start a server on this core, and load it from another."""
    if sys.argv[1] == "serve":
        server.run("http", port=int(sys.argv[2]), log_level="warning")
        return
    seconds, port = parse_seconds(), free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.replay.turnwise_served", "serve", str(port)], cwd=ROOT)
    try:
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - mine or mine)
        print(json.dumps({ROW: uvloop.run(figures(port, process.pid, seconds))}))
    finally:
        stop(process)


if __name__ == "__main__":
    main()
