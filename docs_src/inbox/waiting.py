from turnwise import Client, HandOverFailed, InboxFailed, MCPError, Pending


async def ask(server: str, inbox: str, token: str) -> str:
    """Call, and hand the questions over; the item's id goes where another process finds it."""
    async with Client(server, inbox=inbox, inbox_token=token) as client:
        outcome = await client.begin("book", {"flight": "TW 2322"})
        assert isinstance(outcome, Pending)
        try:
            item = await client.hand_over(outcome)
        except HandOverFailed as failed:
            return str(failed.call.to_json())  # The inbox is away, or does not take it: nothing is lost.
        return item.id


async def collect(server: str, inbox: str, token: str, item: str) -> str:
    """The result, in another process, tomorrow."""
    async with Client(server, inbox=inbox, inbox_token=token) as client:
        try:
            result = await client.wait_for(item, deadline=8 * 3600)
        except MCPError as refused:
            return f"the server refused: {refused.message}"
        except InboxFailed as failed:
            return f"nothing came of it: {failed}"
        return str(result.content[0].text)
