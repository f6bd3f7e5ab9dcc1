from turnwise import Client, ResponseCache

cache = ResponseCache(largest=500)


async def tools_for(url: str, token: str) -> list[str]:
    """The names of the tools, for one of many users of the same server."""
    async with Client(url, headers={"Authorization": f"Bearer {token}"}, cache=cache) as client:
        return [tool.name async for tool in client.iter_tools()]
