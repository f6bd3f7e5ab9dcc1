"""What befalls a fleet while people use it: instances die, keys are changed, and a new version is rolled out."""

import asyncio
import os
import random
import re
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.soak.instances import Instance

DOWN_SECONDS = 0.3
SKEW = 1.0
"""Beyond the time of a token, because it is written in whole seconds."""
LAST = 0.5
"""Seconds before the old key goes in which the last people come: they have the change in the middle of their order."""
PATIENCE = 30.0


class KeysFile:
    """The file that all instances read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys = [secrets.token_urlsafe(32)]
        self.write(self.keys)

    def write(self, keys: Sequence[str]) -> None:
        """Replace it at once: nobody reads half a file."""
        self.keys = list(keys)
        fresh = self.path.with_suffix(".new")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.write(file, "\n".join(keys).encode() + b"\n")
        os.close(file)
        os.replace(fresh, self.path)


@dataclass
class Weather:
    """Does one thing at a time to a fleet. `events` are what was done, and when."""

    instances: Sequence[Instance]
    keys: KeysFile | None
    ttl: float
    began: float = field(default_factory=time.monotonic)
    events: list[tuple[float, str]] = field(default_factory=list)
    dice: random.Random = field(default_factory=lambda: random.Random(2322))
    late: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def count(self, what: str) -> int:
        return sum(event == what for _, event in self.events)

    def when(self, what: str) -> float | None:
        """When this was done last."""
        times = [moment for moment, event in self.events if event == what]
        return times[-1] if times else None

    async def storm(self, pause: float, pairs: float) -> None:
        """Kill one at a time, or two with this chance, again and again, until cancelled."""
        while True:
            await asyncio.sleep(pause * self.dice.uniform(0.5, 1.5))
            numbers = self.dice.sample(range(len(self.instances)), 2 if self.dice.random() < pairs else 1)
            await self.kill(*numbers)

    async def kill(self, *numbers: int) -> None:
        async with self._turn:
            for number in numbers:
                self.instances[number].kill()
                self._note("kill")
            await asyncio.sleep(DOWN_SECONDS)
            for number in numbers:
                self.instances[number].start()
            for number in numbers:
                await self.instances[number].ready()
                self._note("restart")

    async def upgrade(self, program: str, pause: float) -> None:
        """Restart one after the other with other code."""
        for instance in self.instances:
            async with self._turn:
                await instance.stop()
                instance.program = program
                instance.start()
                await instance.ready()
                self._note("upgrade")
            await asyncio.sleep(pause)

    async def rotate(self, pause: float, *, wait: bool = True) -> None:
        """Change the key in three phases. The old one goes when no token under it can be alive; or, without `wait`,
        too early.
        """
        assert self.keys is not None
        [old], new = self.keys.keys, secrets.token_urlsafe(32)
        await self._phase("key added", [old, new])
        await asyncio.sleep(pause)
        await self._phase("key moved", [new, old])
        await asyncio.sleep(self.ttl + SKEW if wait else 0)
        await self._phase("key dropped", [new], is_last=wait)

    async def _phase(self, name: str, keys: Sequence[str], *, is_last: bool = False) -> None:
        """Write the keys, and have every instance read them before the next phase may begin."""
        assert self.keys is not None
        async with self._turn:
            if is_last:
                self.late.set()
                await asyncio.sleep(LAST)
            self.keys.write(keys)
            before = [_readings(instance) for instance in self.instances]
            for instance in self.instances:
                instance.signal(signal.SIGHUP)
                await asyncio.sleep(self.dice.uniform(0, 0.2))
            ends = time.monotonic() + PATIENCE
            while any(_readings(instance) == known for instance, known in zip(self.instances, before, strict=True)):
                assert time.monotonic() < ends, f"{name}: an instance did not read its keys"
                await asyncio.sleep(0.02)
            self._note(name)

    def _note(self, what: str) -> None:
        self.events.append((round(time.monotonic() - self.began, 3), what))


def _readings(instance: Instance) -> int:
    """How often it said that it has read its keys."""
    return len(re.findall(r"\d+ keys? from ", instance.said()))
