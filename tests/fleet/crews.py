"""Errands at work: servers behind a balancer, a crew of workers some of whom die, and the people who have errands.

What happened is told by what everybody noted on the way; `Record` reads it.
"""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiohttp

from tests.fleet.balancer import Balancer
from tests.fleet.forks import Child, Forks
from tests.fleet.processes import KEY, META, PATIENCE, accept
from tests.ports import free_port

T = TypeVar("T")
ERRANDS = Path(__file__).with_name("errands.py")
WORKER = ["worker", f"{ERRANDS}:server", "--workers", "8"]
TASKS = "io.modelcontextprotocol/tasks"
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "extensions": {TASKS: {}}}
OWNER, STRANGER = "ann", "bob"
AT_ONCE = 16
NUMBERS = count(1)


class Place(NamedTuple):
    """A store and a dispatcher, and the directory in which a test keeps its things."""

    kind: str
    path: Path
    forks: Forks
    postgres: Any

    def environment(self, lease: float, grace: float) -> dict[str, str]:
        (self.path / "fates").mkdir(exist_ok=True)
        names = {"PLACE": str(self.path), "STORE": self.kind, "KEY": KEY, "LEASE": str(lease), "GRACE": str(grace)}
        if self.postgres is not None:
            names |= {"ADDRESS": self.postgres.address, "PREFIX": f"f{next(NUMBERS)}_"}
        return names


class Crew:
    """Workers, each a process of its own. Whoever is killed is replaced, and `killed` remembers him."""

    def __init__(self, forks: Forks, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        self.killed: set[int] = set()
        self.workers: list[Child] = []
        self._forks = forks
        self._env = env

    def hire(self, number: int) -> None:
        self.workers += [self._forks.begin(WORKER, self._env, self.log) for _ in range(number)]

    async def ready(self) -> None:
        """Have all of them at work."""
        await eventually(lambda: self.log.read_text().count("Playing the tasks of errands") >= len(self.workers))

    async def replace(self) -> None:
        """Hire one for each who was killed, for ever."""
        while True:
            ended = self._forks.ended()
            for worker in [worker for worker in self.workers if worker.pid in ended]:
                assert ended[worker.pid] == -signal.SIGKILL, self.log.read_text()
                self.workers.remove(worker)
                self.killed.add(worker.pid)
                self.hire(1)
            await asyncio.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        for worker in self.workers:
            worker.signal(number)

    def dismiss(self) -> list[int]:
        """Ask all of them to leave: their exit codes."""
        self.signal(signal.SIGTERM)
        return [worker.wait() for worker in self.workers]


class Reply(NamedTuple):
    """All that a caller gets."""

    status: int
    headers: dict[str, str]
    message: dict[str, Any]

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.message, self.message
        result: dict[str, Any] = self.message["result"]
        return result


class Counter:
    """Where people ask for errands: any of the servers."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def ask(self, who: str, method: str, about: str, /, **params: Any) -> Reply:
        meta = {**META, "io.modelcontextprotocol/clientCapabilities": CAPABILITIES}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {who}",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            "Mcp-Name": about,
        }
        async with self._session.post(self._url, json=body, headers=headers) as response:
            told = {name: value for name, value in response.headers.items() if name.lower() != "date"}
            return Reply(response.status, told, await response.json())

    async def begin(self, number: int) -> str:
        reply = await self.ask(OWNER, "tools/call", "errand", name="errand", arguments={"number": number})
        assert "taskId" in reply.result, reply.result
        return str(reply.result["taskId"])

    async def get(self, task_id: str, who: str = OWNER) -> Reply:
        return await self.ask(who, "tasks/get", task_id, taskId=task_id)

    async def answer(self, task_id: str, who: str = OWNER, **answers: str) -> Reply:
        given = {key: accept(value) for key, value in answers.items()}
        return await self.ask(who, "tasks/update", task_id, taskId=task_id, inputResponses=given)

    async def tell(self, task_id: str, **answers: str) -> None:
        """Answer one's own task."""
        assert (await self.answer(task_id, **answers)).result["resultType"] == "complete"

    async def cancel(self, task_id: str, who: str = OWNER) -> Reply:
        return await self.ask(who, "tasks/cancel", task_id, taskId=task_id)

    async def until(self, task_id: str, status: str) -> dict[str, Any]:
        """The task, once it has this status."""
        while (seen := (await self.get(task_id)).result)["status"] != status:
            assert seen["status"] in ("working", "input_required"), seen
            await asyncio.sleep(seen["pollIntervalMs"] / 1000)
        return seen


class Errands(NamedTuple):
    """All of it, at one place."""

    place: Place
    crew: Crew
    counter: Counter

    def destine(self, *fates: str) -> None:
        for fate in fates:
            (self.place.path / "fates" / fate).touch()

    def spare(self) -> list[str]:
        """Take those fates back that nobody has met."""
        fates = sorted((self.place.path / "fates").iterdir())
        for fate in fates:
            fate.unlink()
        return [fate.name for fate in fates]

    def hold(self, what: str) -> Path:
        """Have a step not end before this is taken away."""
        (path := self.place.path / f"hold {what}").touch()
        return path

    @property
    def record(self) -> "Record":
        return Record(self.place.path / "effects.log")

    async def noted(self, *facts: Any) -> int:
        """Who noted this, once somebody did."""

        def found() -> list[int]:
            return [pid for pid, *noted in self.record.lines if noted[: len(facts)] == list(facts)]

        await eventually(lambda: bool(found()))
        return found()[-1]


@asynccontextmanager
async def errands(
    place: Place, *, workers: int, lease: float, grace: float = 0.5, servers: int = 2
) -> AsyncIterator[Errands]:
    """Servers behind a balancer, and a crew."""
    env, log, ports = place.environment(lease, grace), place.path / "servers.log", [free_port() for _ in range(servers)]
    fronts = [place.forks.begin([str(ERRANDS), str(port)], env, log) for port in ports]
    crew = Crew(place.forks, env, place.path / "crew.log")
    crew.hire(workers)
    await eventually(lambda: all(map(is_open, ports)))
    connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
    try:
        with Balancer(ports).running() as balancer:
            async with aiohttp.ClientSession(connector=connector) as session:
                yield Errands(place, crew, Counter(balancer.url, session))
        assert log.read_text() == "", log.read_text()
    finally:
        for process in (*fronts, *crew.workers):
            process.signal(signal.SIGKILL)


@asynccontextmanager
async def replacing(crew: Crew) -> AsyncIterator[None]:
    """Have those replaced meanwhile who are killed."""
    task = asyncio.create_task(crew.replace())
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class Run(NamedTuple):
    """A step that somebody began: where on the record, and what came of it, None where nobody noted that."""

    pid: int
    place: int
    key: str
    receipt: str | None


class Record:
    """What everybody noted, in the order in which they did. Steps are known by their name and their errand."""

    def __init__(self, path: Path) -> None:
        text = path.read_text() if path.exists() else ""
        self.lines: list[list[Any]] = [json.loads(line) for line in text.splitlines()]
        self.runs: dict[tuple[str, int], list[Run]] = {}
        self.kept: dict[tuple[str, int], list[tuple[int, int]]] = {}
        """By whom it was noted that the step is on the ledger, and where."""
        for place, (pid, what, *facts) in enumerate(self.lines):
            if what == "began":
                self.runs.setdefault((facts[0], facts[1]), []).append(Run(pid, place, facts[2], None))
            elif what == "did":
                runs = self.runs[facts[0], facts[1]]
                last = max(number for number, run in enumerate(runs) if run.pid == pid)
                runs[last] = runs[last]._replace(receipt=facts[3])
            elif what == "kept":
                self.kept.setdefault((facts[0], facts[1]), []).append((pid, place))

    def who_met(self, fate: str) -> set[int]:
        return {pid for pid, what, *_ in self.lines if what == fate}


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


async def each(work: Callable[[T], Awaitable[Any]], over: Iterable[T]) -> list[Any]:
    """The same for many, as many at a time as there are connections."""
    return list(await asyncio.gather(*(work(one) for one in over)))
