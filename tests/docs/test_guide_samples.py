"""The guide to prompts and resources."""

import asyncio
from typing import Any

import pytest

from tests.docs.loading import load
from turnwise import Client, MCPError


def visited(name: str, work: Any, *answers: Any) -> Any:
    """What a client of a sample comes back with, whose user gives these answers."""
    left = list(answers)

    async def answer(asking: Any, params: Any) -> dict[str, Any]:
        given = left.pop(0)
        return {"action": "decline"} if given is None else {"action": "accept", "content": {"value": given}}

    async def run() -> Any:
        async with Client(load(name).server, elicitation_callback=answer) as client:
            return await work(client)

    found = asyncio.run(run())
    assert not left
    return found


def prompted(name: str, arguments: dict[str, str], *answers: Any) -> list[tuple[str, str]]:
    async def work(client: Client) -> Any:
        return await client.get_prompt(name, arguments)

    messages = visited("prompts/letters.py", work, *answers).messages
    return [(message.role, message.content.text) for message in messages]


def read(uri: str, *answers: Any) -> Any:
    async def work(client: Client) -> Any:
        return await client.read_resource(uri)

    return visited("prompts/archive.py", work, *answers).contents[0]


def test_a_prompt_is_filled_in() -> None:
    assert prompted("note", {"recipient": "Ann"}) == [("user", "Write to Ann: we meet in 1 days.")]
    assert prompted("note", {"recipient": "Ann", "days": "3"}) == [("user", "Write to Ann: we meet in 3 days.")]
    assert [role for role, _ in prompted("polite", {"text": "Go away"})] == ["user", "assistant", "user"]


def test_a_prompt_asks() -> None:
    asked = prompted("letter", {"recipient": "Ann"}, "very well")
    assert asked == [("user", "Write a letter to Ann, whom I know like this: very well.")]
    assert prompted("letter", {"recipient": "Ann"}, None) == [("user", "Write a letter to Ann.")]


def test_prompts_say_what_they_take() -> None:
    async def work(client: Client) -> Any:
        return await client.list_prompts()

    note, polite, letter = visited("prompts/letters.py", work).prompts
    assert note.title == "A short note"
    assert [(part.name, part.required) for part in note.arguments] == [("recipient", True), ("days", False)]
    assert note.arguments[1].description == "Days until the meeting"
    assert [part.name for part in polite.arguments] == ["text"]
    assert [part.name for part in letter.arguments] == ["recipient"]


def test_resources_are_text_bytes_or_json() -> None:
    assert read("archive://1912/letters").text == "To Ann\nTo Bob"
    assert [int(word) for word in read("archive://years").text.strip("[]").split(",")] == [1912, 1913]
    assert read("archive://stamp").blob == "iVBORw0KGgo="
    with pytest.raises(MCPError) as raised:
        read("archive://1700/letters")
    assert "archive://1700/letters" in str(raised.value.data or raised.value.message)


def test_a_resource_asks() -> None:
    assert read("archive://1912/private", "sesame").text == "To Ann"
    assert read("archive://1912/private", "open").text == "These are private."


def test_an_argument_is_completed() -> None:
    async def work(client: Client) -> Any:
        from mcp_types import PromptReference

        return await client.complete(PromptReference(name="letter"), {"name": "recipient", "value": "An"})

    assert visited("prompts/completing.py", work).completion.values == ["Ann", "Anton"]


def test_a_client_reads_and_writes() -> None:
    sample = load("prompts/reading.py")

    async def answer(asking: Any, params: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"value": "sesame" if asking.key == "word" else "a little"}}

    templates, contents = asyncio.run(sample.read(load("prompts/archive.py").server, answer))
    assert templates == 2
    assert contents[0].text == "To Ann"
    [content] = asyncio.run(sample.write(load("prompts/letters.py").server, answer))
    assert content.text == "Write a letter to Ann, whom I know like this: a little."
