import asyncio
import sys
from typing import Any

from mcp import Client
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

ANSWERS: dict[str, Any] = {"From which account?": {"account": "savings"}, "Transfer 7 from savings?": {"sure": True}}


async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="accept", content=ANSWERS[params.message])


async def main(url: str) -> None:
    async with Client(url, elicitation_callback=answer) as client:
        result = await client.call_tool("transfer", {"amount": 7})
        print(*(part.text for part in result.content if part.type == "text"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
