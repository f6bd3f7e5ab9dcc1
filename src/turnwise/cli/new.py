"""`turnwise new`: a project that asks a question, and passes its own test."""

import keyword
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from .._version import __version__
from .showing import fail, note

SERVER = '''"""{title}: an MCP server whose tools can ask."""

from turnwise import AcceptedElicitation, Context, MCPServer

server = MCPServer("{name}")


@server.tool()
async def greet(city: str, ctx: Context) -> str:
    """Greet somebody who is visiting a city."""
    visitor = await ctx.elicit(f"Who is visiting {{city}}?", str, key="visitor")
    if not isinstance(visitor, AcceptedElicitation):
        return "Nobody to greet."
    return f"Hello {{visitor.data}}, welcome to {{city}}!"
'''

TEST = '''"""The tool is called as a client calls it, and its question is answered."""

import asyncio

from {module} import server
from turnwise import Client


async def ada(asking, params):
    return {{"action": "accept", "content": {{"value": "Ada"}}}}


async def nobody(asking, params):
    return {{"action": "decline"}}


def greeting(answer) -> str:
    async def run() -> str:
        async with Client(server, elicitation_callback=answer) as client:
            result = await client.call_tool("greet", {{"city": "Ulm"}})
            return result.content[0].text

    return asyncio.run(run())


def test_a_visitor_is_greeted() -> None:
    assert greeting(ada) == "Hello Ada, welcome to Ulm!"


def test_nobody_is_not() -> None:
    assert greeting(nobody) == "Nobody to greet."
'''

PROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "{project}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["turnwise[cli]>={version}"]

[dependency-groups]
test = ["pytest>=8"]

[tool.setuptools]
py-modules = ["{module}"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

README = """# {title}

    pip install -e . pytest
    python -m pytest
    turnwise dev {module}:server

In another terminal, answer its question:

    turnwise call http://127.0.0.1:8000/mcp greet city=Ulm

On three machines, with one key for all of them:

    turnwise keys new --file keys
    turnwise serve {module}:server --host 0.0.0.0 --keys-file keys
"""

IGNORED = "__pycache__/\n.venv/\nbuild/\n*.egg-info/\nkeys\n"


_TAKEN = {"turnwise", "pytest", "test", *sys.stdlib_module_names, *keyword.kwlist}


def _plain(name: str) -> str:
    return name.replace("-", "_").lower()


def _module(name: str) -> str:
    """What the server's module is called: nothing that Python or the project has a use for."""
    module = _plain(name)
    return f"{module}_server" if module in _TAKEN else module


def new(name: Annotated[str, typer.Argument(help="The project, and the folder to make.", metavar="NAME")]) -> None:
    """Make a project with a tool that asks, and a test of it."""
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", name):
        rule = "letters, digits, - and _, begins with a letter and ends with a letter or a digit"
        fail(f"a project's name has {rule}; not {name!r}", 2)
    folder = Path(name)
    if folder.exists():
        fail(f"{name} is there already")
    module = _module(name)
    words = {
        "name": name,
        "module": module,
        "project": name if module == _plain(name) else module,
        "title": name.replace("-", " ").replace("_", " ").capitalize(),
        "version": __version__.partition("+")[0],
    }
    folder.mkdir(parents=True)
    files = {
        f"{module}.py": SERVER.format(**words),
        f"test_{module}.py": TEST.format(**words),
        "pyproject.toml": PROJECT.format(**words),
        "README.md": README.format(**words),
        ".gitignore": IGNORED,
    }
    for file, text in files.items():
        (folder / file).write_text(text)
    note(f"{name}/ has {', '.join(files)}", "bold")
    note(f"cd {name}\npip install pytest\npython -m pytest\nturnwise dev {module}:server")
