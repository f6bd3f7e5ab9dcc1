from turnwise import Client, Pending
from turnwise.inbox.sqlite import SQLiteInboxStore


async def book(server: str, path: str, key: str) -> str | None:
    """Keep the call where the inbox on this machine shows it. Whoever answers first, here or there, is heard."""
    store = SQLiteInboxStore(path, [key])
    try:
        async with Client(server, pending_store=store.pending("booking")) as client:
            outcome = await client.begin("book", {"flight": "TW 2322"})
            return outcome.id if isinstance(outcome, Pending) else None
    finally:
        await store.aclose()
