"""A trial: three instances behind nginx, a crowd before it, weather over it, and a verdict at the end."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fleet.soak.checks import Verdict, enquiries, judge
from tests.fleet.soak.instances import Command, Instance, as_module, instances_of, serving
from tests.fleet.soak.nginx import Nginx, balanced
from tests.fleet.soak.orders import Order
from tests.fleet.soak.people import Crowd, Load, unknown_bearers
from tests.fleet.soak.sessions import SessionCrowd
from tests.fleet.soak.weather import KeysFile, Weather
from tests.ports import free_port

INSTANCES = 3
WARMING = Load(users=4, orders_each=3, first=1000)
FORGED = ("u0.forged", "nobody", "u1." + "0" * 24)


@dataclass(frozen=True)
class Climate:
    """What befalls the fleet. Seconds between kills and before other things; None for what does not happen."""

    kills: float | None = None
    pairs: float = 0.0
    """The chance that two die at once."""
    rotation: float | None = None
    upgrade: float | None = None
    upgrade_pause: float = 0.0
    ttl: float = 60.0
    patience: float = 5.0
    spell: float = 0.02
    """Half of the time that a payment takes."""
    drops_early: bool = False


@dataclass
class Trial:
    """What is tried, and what came of it. `breaks` is wrong on purpose: guard, principal, mix or keys."""

    name: str
    load: Load
    climate: Climate
    place: Path
    kind: str = "turnwise"
    instances: int = INSTANCES
    breaks: str = ""
    access_log: bool = True
    warm: bool = False
    """Whether a few orders are made before, so that what a process does for the first time is done."""
    orders: list[Order] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    began: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float | None = None
    """What the instances used, where all of them lived through it."""
    statuses: Counter[int] = field(default_factory=Counter)
    shares: Counter[str] = field(default_factory=Counter)
    asked_service: Counter[str] = field(default_factory=Counter)
    forged: int = 0
    verdict: Verdict = field(default_factory=Verdict)

    async def run(self) -> "Trial":
        """Try it, and judge. All processes have ended afterwards."""
        self.place.mkdir(parents=True)
        async with self._fleet() as (instances, nginx, keys):
            if self.kind != "sessions":
                self.forged = await unknown_bearers(nginx.url, FORGED)
            first = await Crowd(nginx.url, WARMING, asyncio.Event()).run() if self.warm else []
            self.began = time.monotonic()
            weather = Weather(instances, keys, self.climate.ttl, self.began)
            crowd = self._crowd(nginx.url, weather.late)
            used = _cpu_seconds(instances)
            await _during(self._weather(weather), crowd.run)
            self.seconds = time.monotonic() - self.began
            if weather.events == [] and used is not None:
                self.cpu_seconds = (_cpu_seconds(instances) or used) - used
            self.orders, self.events = crowd.orders, weather.events
            self.statuses, self.shares = nginx.statuses(), nginx.shares()
            self.asked_service = enquiries(self.place)
            self.verdict = judge([*first, *self.orders], instances, self.place)
        return self

    def _crowd(self, url: str, late: asyncio.Event) -> Crowd | SessionCrowd:
        return SessionCrowd(url, self.load) if self.kind == "sessions" else Crowd(url, self.load, late)

    @asynccontextmanager
    async def _fleet(self) -> AsyncIterator[tuple[list[Instance], Nginx, KeysFile | None]]:
        port, *ports = [free_port() for _ in range(self.instances + 1)]
        program, command, keys = self._program(ports)
        with ExitStack() as stack:
            env = self._environment(port)
            instances = stack.enter_context(instances_of(program, command, env, self.place, ports))
            nginx = stack.enter_context(balanced(ports, port, self.place))
            await asyncio.gather(*(instance.ready() for instance in instances))
            yield instances, nginx, keys

    def _program(self, ports: Sequence[int]) -> tuple[str, Command, KeysFile | None]:
        if self.kind == "turnwise":
            keys = KeysFile(self.place / "keys")
            files = dict.fromkeys(ports, keys.path)
            if self.breaks == "keys":
                files[ports[-1]] = KeysFile(self.place / "other-keys").path
            return "shop_1", serving(files, access_log=self.access_log), keys
        return "peer", as_module(*(["stateless"] if self.kind == "mcp" else [])), None

    def _environment(self, port: int) -> Mapping[str, str]:
        return {
            "PLACE": str(self.place),
            "URL": f"http://127.0.0.1:{port}/mcp",
            "TTL": str(self.climate.ttl),
            "PATIENCE": str(self.climate.patience),
            "SPELL": str(self.climate.spell),
            "KEY": secrets.token_urlsafe(32),
            "BREAK": self.breaks,
        }

    def _weather(self, weather: Weather) -> list[Awaitable[None]]:
        climate = self.climate
        events: list[Awaitable[None]] = []
        if climate.kills is not None:
            events.append(weather.storm(climate.kills, climate.pairs))
        if climate.rotation is not None:
            wait = not climate.drops_early
            events.append(_later(climate.rotation, weather.rotate(climate.rotation, wait=wait)))
        if climate.upgrade is not None:
            events.append(_later(climate.upgrade, weather.upgrade("shop_2", climate.upgrade_pause)))
        return events


def _cpu_seconds(instances: Sequence[Instance]) -> float | None:
    used = [seconds for instance in instances if (seconds := instance.cpu_seconds()) is not None]
    return sum(used) if used else None


async def _later(seconds: float, work: Awaitable[None]) -> None:
    await asyncio.sleep(seconds)
    await work


async def _during(weather: Sequence[Awaitable[None]], work: Callable[[], Awaitable[Any]]) -> None:
    """Do the work in this weather, which ends with it; what fails in the weather fails the work."""
    tasks = [asyncio.ensure_future(event) for event in weather]
    main = asyncio.ensure_future(work())
    try:
        waiting = {main, *tasks}
        while not main.done():
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in (main, *tasks):
            task.cancel()
        for task in (main, *tasks):
            with suppress(asyncio.CancelledError):
                await asyncio.wait([task])
