"""The user of the benchmark: knows who is visiting each city. The clients that have callbacks share it."""

from typing import Any

from mcp_types import CallToolResult, ElicitResult, TextContent

from bench.clients.driving import VISITORS


async def answer(context: Any, params: Any) -> ElicitResult:
    """The callback, as both libraries call it."""
    return ElicitResult(action="accept", content={"name": VISITORS[params.message]})


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    if not isinstance(content, TextContent):
        raise TypeError(f"not a text: {content!r}")
    return content.text
