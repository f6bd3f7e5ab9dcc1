from mcp_types import CallToolResult

from turnwise import Client, InboxItem, Pending


async def book(server: str, inbox: str, token: str) -> CallToolResult:
    """Call, and wait until somebody has answered in the inbox."""
    async with Client(server, inbox=inbox, inbox_token=token) as client:
        return await client.call_tool("book", {"flight": "TW 2322"})


async def leave(server: str, inbox: str, token: str) -> InboxItem | None:
    """Call, leave the questions in the inbox, and go home. Another process may `wait_for` the item."""
    async with Client(server, inbox=inbox, inbox_token=token) as client:
        outcome = await client.begin("book", {"flight": "TW 2322"})
        return await client.hand_over(outcome) if isinstance(outcome, Pending) else None
