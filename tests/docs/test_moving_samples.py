"""The guides to moving: what was written for another library, and the same for Turnwise, give the same to a client."""

import ast
import asyncio
import subprocess
import sys
from typing import Any

import pytest

from tests.docs.loading import ENVIRONMENT, SAMPLES, load
from tests.docs.test_client_samples import at_url
from tests.interop.conftest import fastmcp_command
from turnwise import Client, Command

__all__ = ["fastmcp_command"]

Calls = list[tuple[str, dict[str, Any], dict[str, Any]]]
BANK: Calls = [
    ("transfer", {"amount": 7}, {"account": {"account": "savings"}, "sure": {"sure": True}}),
    ("transfer", {"amount": 7}, {"account": {"account": "savings"}, "sure": {"sure": False}}),
    ("transfer", {"amount": 7}, {"account": {"account": "savings"}, "sure": None}),
    ("transfer", {"amount": 7}, {"account": None}),
]
TRIPS: Calls = [
    ("book", {"city": "Lyon"}, {"nights": {"nights": 3}}),
    ("book", {"city": "Lyon"}, {"nights": None}),
    ("book", {"city": "Atlantis"}, {}),
    ("distance", {"a": 3, "b": 7}, {}),
]


def called(program: str, sample: str, calls: Calls, prompt: tuple[str, dict[str, str]], resource: str) -> list[Any]:
    """What a client gets from a sample that is served over standard streams: texts, data, and what was asked."""

    async def run() -> list[Any]:
        found: list[Any] = []
        answers: dict[str, Any] = {}

        async def answer(asking: Any, params: Any) -> dict[str, Any]:
            content = answers[asking.key]
            found.append((asking.key, params.message, sorted(params.requested_schema["properties"])))
            return {"action": "decline"} if content is None else {"action": "accept", "content": content}

        env = {"PYTHONPATH": ENVIRONMENT["PYTHONPATH"], "PYTHONWARNINGS": "ignore"}
        command = Command([program, str(SAMPLES / sample)], env=env)
        async with Client(command, elicitation_callback=answer) as client:
            for tool, arguments, answers in calls:  # noqa: B007 - the callback reads them
                result = await client.call_tool(tool, arguments)
                found.append([result.content[0].text, result.structured_content, result.is_error])  # type: ignore[union-attr]
            filled = await client.get_prompt(*prompt)
            found += [(message.role, message.content.text) for message in filled.messages]  # type: ignore[union-attr]
            found += [part.text for part in (await client.read_resource(resource)).contents]  # type: ignore[union-attr]
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            found += [(name, tools[name].description, tools[name].input_schema["required"]) for name in sorted(tools)]
        return found

    return asyncio.run(run())


def printed(program: str, sample: str, server: Any) -> str:
    """What a sample of a client prints that visits a server."""
    with at_url(server) as url:
        command = [program, "-W", "ignore", str(SAMPLES / sample), url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_gives_the_same_when_it_has_moved_from_the_official_sdk() -> None:
    rest: Any = (BANK, ("complain", {"about": "fees"}), "bank://savings/balance")
    before = called(sys.executable, "moving/sdk_before.py", *rest)
    assert before == called(sys.executable, "moving/sdk_after.py", *rest)
    assert ["7 transferred from savings.", None, False] in before
    assert "savings has 100." in before


def test_a_client_prints_the_same_when_it_has_moved_from_the_official_sdk() -> None:
    for sample in ("moving/sdk_client_before.py", "moving/sdk_client_after.py"):
        assert printed(sys.executable, sample, load("moving/sdk_after.py").mcp) == "7 transferred from savings.\n"


@pytest.mark.parametrize("sample", ["moving/fastmcp_before.py", "moving/fastmcp_client_before.py"])
def test_what_was_written_for_fastmcp_is_python(sample: str) -> None:
    assert "fastmcp" in {
        (node.module or "").partition(".")[0]
        for node in ast.parse((SAMPLES / sample).read_text()).body
        if isinstance(node, ast.ImportFrom)
    }


def test_a_server_gives_the_same_when_it_has_moved_from_fastmcp(fastmcp_command: list[str]) -> None:
    rest: Any = (TRIPS, ("itinerary", {"city": "Lyon"}), "trips://Lyon/weather")
    before = called(fastmcp_command[0], "moving/fastmcp_before.py", *rest)
    assert before == called(sys.executable, "moving/fastmcp_after.py", *rest)
    assert ["3 nights in Lyon.", None, False] in before
    assert ["Atlantis is under water.", None, True] in before


def test_a_client_prints_the_same_when_it_has_moved_from_fastmcp(fastmcp_command: list[str]) -> None:
    server = load("moving/fastmcp_after.py").mcp
    after = printed(sys.executable, "moving/fastmcp_client_after.py", server)
    assert after == "3 nights in Lyon.\n{'result': 4}\n"
    assert printed(fastmcp_command[0], "moving/fastmcp_client_before.py", server) == after
