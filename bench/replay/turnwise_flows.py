"""Flows that are begun in one Turnwise server and never come back: by how much they make its process larger."""

import asyncio
import gc
import json
import os

from bench.machine import resident_mb
from bench.replay.legs import LENGTHS, question, verify
from bench.replay.posting import Caller
from bench.replay.turnwise_legs import server

WARM_UP, FLOWS = 1_000, 100_000
TOPIC = "@topic"


async def begin(caller: Caller, flows: range) -> None:
    """Get to the first question of each flow, and forget its token."""
    before, after = caller.written({"topic": TOPIC}).split(TOPIC.encode())
    for number in flows:
        topic = f"topic {number}"
        verify(await caller.post(b"%b%b%b" % (before, topic.encode(), after)), question(topic, 1).encode())


async def figures() -> dict[str, float]:
    caller = Caller(server.asgi(), f"turnwise_{LENGTHS[-1]}")
    await begin(caller, range(WARM_UP))
    before = _resident_mb()
    await begin(caller, range(WARM_UP, WARM_UP + FLOWS))
    after = _resident_mb()
    return {"rss_before_mb": before, "rss_after_mb": after, "rss_growth_mb": after - before}


def _resident_mb() -> float:
    gc.collect()
    return resident_mb(os.getpid())


if __name__ == "__main__":
    print(json.dumps({"turnwise_waiting": asyncio.run(figures())}))
