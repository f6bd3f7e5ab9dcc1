from starlette.applications import Starlette

from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.sqlite import SQLiteInboxStore


def make_app(path: str, key: str, ann: str, bob: str) -> Starlette:
    """An inbox for two people, as an ASGI application for the server of your choice."""
    store = SQLiteInboxStore(path, [key])
    inbox = Inbox(store, url="https://inbox.example.com")
    return create_app(inbox, Door({ann: "ann", bob: "bob"}, store, is_secure=True, hosts=["inbox.example.com"]))
