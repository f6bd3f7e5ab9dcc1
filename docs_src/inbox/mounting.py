from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.sqlite import SQLiteInboxStore


def make_app(path: str, key: str, ann: str) -> FastAPI:
    """An application of yours, with an inbox under /inbox."""
    store = SQLiteInboxStore(path, [key])
    inbox = Inbox(store, url="https://app.example.com/inbox")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with inbox.run():  # The lifespan of a mounted application is not run.
            yield
        await store.aclose()

    app = FastAPI(lifespan=lifespan)
    door = Door({ann: "ann"}, store, is_secure=True, hosts=["app.example.com"])
    app.mount("/inbox", create_app(inbox, door))
    return app
