import asyncio
import sys

from mcp_types import ElicitRequestParams, ElicitResult

from turnwise import Asking, Client


async def choose(asking: Asking, params: ElicitRequestParams) -> ElicitResult:
    print("The server asks:", params.message)
    return ElicitResult(action="accept", content={"row": 12})


async def main(url: str) -> None:
    async with Client(url, elicitation_callback=choose) as client:
        result = await client.call_tool("book", {"flight": "TW 2322"})
        print(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/mcp"))
