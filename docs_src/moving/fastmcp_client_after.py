import asyncio
import sys
from typing import Any

from mcp_types import ElicitRequestParams

from turnwise import Asking, Client


async def answer(asking: Asking, params: ElicitRequestParams) -> dict[str, Any]:
    return {"action": "accept", "content": {"nights": 3}}


async def main(url: str) -> None:
    async with Client(url, elicitation_callback=answer) as client:
        result = await client.call_tool("book", {"city": "Lyon"})
        print(*(part.text for part in result.content if part.type == "text"))
        result = await client.call_tool("distance", {"a": 3, "b": 7})
        print(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
