from mcp_types import PromptReference

from turnwise import Client


async def look_around(url: str) -> None:
    async with Client(url) as client:
        print(client.server_info, client.instructions, client.server_capabilities.tools is not None)

        async for tool in client.iter_tools():
            print(tool.name, tool.description)

        page = await client.list_prompts()
        while page.next_cursor is not None:
            page = await client.list_prompts(cursor=page.next_cursor)

        resource = await client.read_resource("letters://signature")
        prompt = await client.get_prompt("letter", {"recipient": "Bob"})
        print(resource.contents, prompt.messages)

        found = await client.complete(PromptReference(name="letter"), {"name": "recipient", "value": "B"})
        print(found.completion.values)
