from starlette.applications import Starlette

from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.rights import Member
from turnwise.inbox.sqlite import SQLiteInboxStore


def make_app(path: str, key: str, ann: str, build: str) -> Starlette:
    """An inbox for a person and a program, as an ASGI application for the server of your choice."""
    store = SQLiteInboxStore(path, [key])
    inbox = Inbox(store, url="https://inbox.example.com")
    tokens = {ann: Member("ann"), build: Member("nightly build", "caller")}
    return create_app(inbox, Door(tokens, store, is_secure=True, hosts=["inbox.example.com"]))
