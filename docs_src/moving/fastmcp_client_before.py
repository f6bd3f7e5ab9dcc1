# mypy: ignore-errors


# region client
import asyncio
import sys

from fastmcp import Client


async def answer(message, response_type, params, context):
    return response_type(nights=3)


async def main(url: str) -> None:
    async with Client(url, elicitation_handler=answer) as client:
        result = await client.call_tool("book", {"city": "Lyon"})
        print(*(part.text for part in result.content if part.type == "text"))
        result = await client.call_tool("distance", {"a": 3, "b": 7})
        print(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))


# endregion
