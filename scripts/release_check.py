"""Builds what would be released, installs it into clean environments, and says what it brings along.

    python scripts/release_check.py                # build, install, compare with the known figures of the official SDK
    python scripts/release_check.py --measure      # the same, with the official SDK installed and measured beside it

The exit code is 1 where something is not as it should be. Nothing is left behind, and nothing is uploaded.
"""

import argparse
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
OFFICIAL = "mcp==2.3.0"
OWN = {"pip", "setuptools", "wheel"}
MEGABYTE = 2**20
TRIAL = """
import asyncio
from turnwise import Client, Context, MCPServer, __version__

server = MCPServer("trial")

@server.tool()
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Well?", bool)).action

async def main():
    async with Client(server, elicitation_callback=lambda asking, params: {"action": "decline"}) as client:
        return (await client.call_tool("ask", {})).structured_content["result"]

print(__version__, asyncio.run(main()))
"""
# Names of distributions, and bytes of their files without caches, of what is installed in an environment.
LOOK = """
import importlib.metadata as metadata, json
print(json.dumps({
    found.name.lower().replace("_", "-"): sum(
        file.size or 0 for file in found.files or () if not str(file).endswith(".pyc")
    )
    for found in metadata.distributions()
}))
"""
ENTRIES = """
from importlib.metadata import entry_points
print(*(group for group in ("console_scripts", "pytest11") if entry_points(group=group, name="turnwise")))
"""
LOOK_OWN = """
import importlib.metadata as metadata
files = [str(file) for file in metadata.files("turnwise") if file.suffix != ".pyc"]
print(sorted(file for file in files if file.startswith("turnwise/")))
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What installing a package brings."""

    name: str
    dependencies: int
    size: float

    def __str__(self) -> str:
        return f"{self.name}: {self.dependencies} dependencies, {self.size:.1f} MB"


KNOWN = Figures(OFFICIAL, 27, 28.9)
"""As --measure found it on Linux (x86-64), with Python 3.11; with itself it is 28 packages."""


class Refused(Exception):
    """Something that must not be released; the message says what."""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command says; Refused where it fails."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def python_in(folder: Path) -> Path:
    """The interpreter of a clean environment."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def built(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it."""
    python = python_in(folder / "building")
    run(python, "-m", "pip", "install", "--quiet", "build")
    run(python, "-m", "build", "--outdir", folder / "dist", ROOT)
    (sdist,), (wheel,) = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return sdist, wheel


def check_tag(folder: Path) -> None:
    """What is built of a tag has its version."""
    clone = folder / "tagged"
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, clone)
    run("git", "-c", "user.name=x", "-c", "user.email=x@example", "tag", "v98.7.6", cwd=clone)
    run(folder / "building/bin/python", "-m", "build", "--wheel", "--outdir", folder / "tag", clone)
    (wheel,) = (folder / "tag").glob("*.whl")
    if wheel.name != "turnwise-98.7.6-py3-none-any.whl":
        raise Refused(f"what is built of v98.7.6 is {wheel.name}")


def version() -> str:
    """What the source says it is."""
    found = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/turnwise/_version.py").read_text())
    if found is None:
        raise Refused("src/turnwise/_version.py has no version")
    return found[1]


def check_contents(sdist: Path, wheel: Path) -> None:
    """All modules are in both, and the wheel has its marks and nothing else."""
    modules = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src/turnwise").rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    with tarfile.open(sdist) as tar:
        packed = {name.partition("/")[2].removeprefix("src/") for name in tar.getnames()}
    for what, found in (("wheel", names), ("sdist", packed)):
        if missing := {*modules, "turnwise/py.typed"} - found:
            raise Refused(f"the {what} lacks {', '.join(sorted(missing))}")
    if strange := {name for name in names if not re.match(r"turnwise(/|-[^/]+\.dist-info/)", name)}:
        raise Refused(f"the wheel has {', '.join(sorted(strange))}")
    for path in (sdist, wheel):
        if f"-{version()}" not in path.name:
            raise Refused(f"{path.name} is not of version {version()}")


def figures(python: Path, name: str) -> Figures:
    """What is there beside pip."""
    sizes: dict[str, int] = json.loads(run(python, "-c", LOOK))
    sizes = {one: size for one, size in sizes.items() if one not in OWN}
    return Figures(name, len(sizes) - 1, sum(sizes.values()) / MEGABYTE)


def installed(folder: Path, what: str | Path, name: str) -> tuple[Path, Figures]:
    """A package in a clean environment."""
    python = python_in(folder)
    run(python, "-m", "pip", "install", "--quiet", str(what))
    return python, figures(python, name)


def check_installed(python: Path) -> None:
    """It can be imported and used, and has its command and its fixtures."""
    said = run(python, "-c", TRIAL, cwd=python.parent).strip()
    if said != f"{version()} decline":
        raise Refused(f"a call in a clean environment says {said!r}")
    if (found := run(python, "-c", ENTRIES, cwd=python.parent).strip()) != "console_scripts pytest11":
        raise Refused(f"there are entry points for {found or 'nothing'} only")


def compared(ours: Figures, theirs: Figures) -> list[str]:
    """In what ours is not below theirs."""
    wrong = []
    if ours.dependencies >= theirs.dependencies:
        wrong.append(f"{ours.dependencies} dependencies are not below {theirs.dependencies}")
    if ours.size >= theirs.size:
        wrong.append(f"{ours.size:.1f} MB are not below {theirs.size:.1f} MB")
    return wrong


def check(folder: Path) -> Figures:
    """Build, look, install and use; Refused where something is wrong."""
    sdist, wheel = built(folder)
    check_contents(sdist, wheel)
    for path in (sdist, wheel):
        print(f"{path.name}: {path.stat().st_size / 1024:.0f} kB")
    python, ours = installed(folder / "wheel", wheel, "turnwise")
    check_installed(python)
    again = python_in(folder / "sdist")
    run(again, "-m", "pip", "install", "--quiet", "--no-deps", sdist)
    if run(again, "-c", LOOK_OWN, cwd=folder) != run(python, "-c", LOOK_OWN, cwd=folder):
        raise Refused("the sdist installs other files than the wheel")
    check_tag(folder)
    return ours


def main() -> int:
    """The exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--measure", action="store_true", help="install and measure the official SDK too")
    measure = options.parse_args().measure
    with tempfile.TemporaryDirectory(prefix="turnwise-release-") as name:
        folder = Path(name)
        try:
            ours = check(folder)
            theirs = installed(folder / "official", OFFICIAL, OFFICIAL)[1] if measure else KNOWN
        except Refused as error:
            print(error, file=sys.stderr)
            return 1
    print(ours)
    print(theirs)
    wrong = compared(ours, theirs)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
