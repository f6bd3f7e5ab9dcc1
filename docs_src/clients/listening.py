import asyncio
from collections.abc import Awaitable, Callable

from turnwise import Client, ConnectionLost


async def follow(url: str, uri: str, show: Callable[[str], Awaitable[None]]) -> None:
    """Show a resource, and show it again whenever it changes, until the server ends the subscription."""
    async with Client(url) as client:
        while True:
            try:
                async with client.listen(resource_subscriptions=[uri]) as subscription:
                    await show(str(await client.read_resource(uri)))  # It may have changed while nobody listened.
                    async for change in subscription:
                        await show(str(await client.read_resource(change.uri or uri)))
                    return
            except ConnectionLost:
                await asyncio.sleep(1)
