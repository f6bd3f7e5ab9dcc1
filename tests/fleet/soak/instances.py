"""Instances as processes of their own, which are killed, started again, upgraded and told to read their keys anew."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import turnwise

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
PYTHONPATH = os.pathsep.join([str(Path(turnwise.__file__).parents[1]), str(ROOT)])
PATIENCE = 60.0
COMMAND = "from turnwise.cli import main; main()"

Command = Callable[[str, int], Sequence[str]]


def serving(keys_files: Mapping[int, Path], *, access_log: bool = True) -> Command:
    """`turnwise serve`, with the keys file that is meant for the port."""

    def command(program: str, port: int) -> Sequence[str]:
        options = ["--port", str(port), "--keys-file", str(keys_files[port]), "--grace", "20"]
        options += [] if access_log else ["--no-access-log"]
        return ["-c", COMMAND, "serve", f"{HERE / program}.py:server", *options]

    return command


def as_module(*arguments: str) -> Command:
    """A module that is told its port."""

    def command(program: str, port: int) -> Sequence[str]:
        return ["-m", f"tests.fleet.soak.{program}", str(port), *arguments]

    return command


@dataclass
class Instance:
    """One server on a port that it keeps. What it wrote is in the directory `place`."""

    number: int
    port: int
    program: str
    command: Command
    env: Mapping[str, str]
    place: Path
    process: "subprocess.Popen[bytes] | None" = None
    killed: set[int] = field(default_factory=set)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Begin a process; it listens some time later."""
        with self._file("out").open("ab") as out, self._file("err").open("ab") as err:
            self.process = subprocess.Popen(
                [sys.executable, *self.command(self.program, self.port)],
                env={**os.environ, **self.env, "PYTHONPATH": PYTHONPATH},
                cwd=self.place,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    async def ready(self) -> None:
        """Wait until it listens."""
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            assert self.process is not None
            assert self.process.poll() is None, f"instance {self.number} ended: {self.said()[-2000:]}"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.03)
                continue
            writer.close()
            return
        raise AssertionError(f"instance {self.number} does not listen: {self.said()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL: nothing is finished and nothing said."""
        if self.process is not None and self.process.poll() is None:
            self.killed.add(self.pid)
            self.process.kill()
            self.process.wait()

    async def stop(self) -> None:
        """SIGTERM: what is under way is finished."""
        self.signal(signal.SIGTERM)
        assert self.process is not None
        ends = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < ends, f"instance {self.number} does not end"
            await asyncio.sleep(0.03)
        # A server that leaves in good order says so by its code; uvicorn may raise the signal once more.
        assert self.process.returncode in (0, -signal.SIGTERM), self.said()[-2000:]

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        assert self.process.poll() is None, f"instance {self.number} ended: {self.said()[-2000:]}"
        self.process.send_signal(number)

    def cpu_seconds(self) -> float | None:
        """What it has used in this life; None where the system does not say."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def said(self) -> str:
        """What it wrote to standard error, in all its lives."""
        return self._read("err")

    def accesses(self) -> list[str]:
        """The lines of its access log, in all its lives."""
        return self._read("out").splitlines()

    def _read(self, kind: str) -> str:
        return self._file(kind).read_text(errors="replace") if self._file(kind).exists() else ""

    def _file(self, kind: str) -> Path:
        return self.place / f"instance-{self.number}.{kind}"


@contextmanager
def instances_of(
    program: str, command: Command, env: Mapping[str, str], place: Path, ports: Sequence[int]
) -> Iterator[list[Instance]]:
    """One instance for each port. They end here, whatever happened."""
    place.mkdir(exist_ok=True)
    instances = [Instance(number, port, program, command, env, place) for number, port in enumerate(ports)]
    try:
        for instance in instances:
            instance.start()
        yield instances
    finally:
        for instance in instances:
            if instance.process is not None and instance.process.poll() is None:
                instance.process.kill()
                instance.process.wait()
