from typing import Any

from turnwise import Client


async def read(target: Any, answer: Any) -> list[Any]:
    async with Client(target, elicitation_callback=answer) as client:
        listed = await client.list_resource_templates()
        found = await client.read_resource("archive://1912/private")
        return [len(listed.resource_templates), found.contents]


async def write(target: Any, answer: Any) -> list[Any]:
    async with Client(target, elicitation_callback=answer) as client:
        filled = await client.get_prompt("letter", {"recipient": "Ann"})
        return [message.content for message in filled.messages]
