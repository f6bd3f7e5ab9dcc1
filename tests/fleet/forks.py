"""Commands in processes of their own, there in milliseconds: children of one that has imported all that they need.

`python -m tests.fleet.forks` is that one. It reads what to begin, a line each, and has served and played nothing.
"""

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.fleet.zygotes import PATIENCE, PYTHONPATH, ROOT

NEEDED = ("turnwise.cli.app", "turnwise.tasks.pgqueuer", "turnwise.transports.uvicorn", "uvloop")


class Child:
    """A process that was begun elsewhere."""

    def __init__(self, forks: "Forks", pid: int) -> None:
        self._forks = forks
        self.pid = pid

    def poll(self) -> int | None:
        """Its exit code, minus the signal where one ended it; None while it lives."""
        return self._forks.ended().get(self.pid)

    def signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self) -> int:
        ends = time.monotonic() + PATIENCE
        while (code := self.poll()) is None:
            assert time.monotonic() < ends, f"process {self.pid} does not end"
            time.sleep(0.01)
        return code


class Forks:
    """Where they come from."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def begin(
        self, arguments: Sequence[str], env: Mapping[str, str], log: Path, *, cwd: Path = ROOT, out: Path | None = None
    ) -> Child:
        """Run `turnwise` with these arguments, or a script where the first ends with .py. Its standard output goes into
        the log too, unless there is another place for it.
        """
        streams = {"out": str(out or log), "err": str(log)}
        return Child(self, self._asked({"arguments": [*arguments], "env": {**env}, "cwd": str(cwd), **streams}))

    def ended(self) -> dict[int, int]:
        """Exit codes of those who are no more."""
        return {int(pid): code for pid, code in self._asked({}).items()}

    def _asked(self, question: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def forks() -> Iterator[Forks]:
    """Nobody who comes from here outlives this."""
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    command = [sys.executable, "-m", "tests.fleet.forks"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=env, text=True, **pipes) as process:
        try:
            yield Forks(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def _live(arguments: list[str], env: dict[str, str], cwd: str, out: str, err: str) -> None:
    """What a child does."""
    os.environ.update(env)
    os.chdir(cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644), stream)
    if arguments[0].endswith(".py"):
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")
    else:
        from turnwise.cli import main

        sys.argv = ["turnwise", *arguments]
        main()


def _buried(codes: dict[int, int]) -> dict[int, int]:
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            codes[found[0]] = os.waitstatus_to_exitcode(found[1])
    return codes


def _serve() -> None:
    for module in NEEDED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    codes: dict[int, int] = {}
    for line in sys.stdin:
        question = json.loads(line)
        if question and (pid := os.fork()) == 0:
            return _live(**question)
        if question:
            children.add(pid)
        sys.stdout.write(json.dumps(pid if question else _buried(codes)) + "\n")
        sys.stdout.flush()
    for pid in children - _buried(codes).keys():
        os.kill(pid, signal.SIGKILL)
    return None


if __name__ == "__main__":
    _serve()
