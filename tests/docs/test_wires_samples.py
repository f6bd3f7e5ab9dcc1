"""The page on wires: one tool, asked over each of them."""

import asyncio
from typing import Any

import pytest

from tests.docs.loading import load
from turnwise import Client

VERSIONS = ["2026-07-28", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "DRAFT-2026-v1", "DRAFT-2026-02-03"]


async def answer(asking: Any, params: Any) -> Any:
    from mcp_types import ElicitResult

    return ElicitResult(action="accept", content={"value": 3})


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_function_asks_over_every_wire(version: str) -> None:
    async def run() -> str:
        async with Client(load("wires/server.py").server, mode=version, elicitation_callback=answer) as client:  # type: ignore[arg-type]
            result = await client.call_tool("book", {"city": "Lyon"})
            return str(result.content[0].text)  # type: ignore[union-attr]

    assert asyncio.run(run()) == f"3 nights in Lyon, asked over {version}."


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
def test_a_page_has_to_be_visited_first(version: str) -> None:
    sample = load("wires/visiting.py")
    shown: list[str] = []

    async def visit(asking: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        shown.append(asking.url)
        sample.signed_in.add("ada")
        return ElicitResult(action="accept")

    async def run() -> str:
        async with Client(sample.server, mode=version, elicitation_callback=visit) as client:  # type: ignore[arg-type]
            result = await client.call_tool("send", {"user": "ada"})
            return str(result.content[0].text)  # type: ignore[union-attr]

    assert asyncio.run(run()) == "Sent."
    assert shown == ["https://mail.example/login?u=ada"]
