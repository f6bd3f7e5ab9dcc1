"""What the tests of the inbox share: a server that asks, calls of it, and an inbox over a store of their own."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import aiohttp
from pydantic import BaseModel, Field

from tests.wires.serving import serving
from turnwise import AcceptedElicitation, Client, Context, MCPServer, Pending, RequestStateSecurity
from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.model import Item
from turnwise.inbox.sqlite import SQLiteInboxStore
from turnwise.inbox.working import WorkOptions

T = TypeVar("T")

PATIENCE = 20.0
KEY = "a key of the inbox for tests, long enough"
SECRET = "whsec_" + "c2VjcmV0IG9mIHRoZSBob29rcyBvZiB0aGlzIHRlc3Q="
NOW = 1_700_000_000.0
ANN, BOB = "ann-has-this-token-and-nobody-else", "bob-has-this-token-and-nobody-else"


def run(work: Coroutine[Any, Any, T]) -> T:
    """A whole test in a loop of its own, which does not wait for ever."""

    async def patiently() -> T:
        return await asyncio.wait_for(work, PATIENCE)

    return asyncio.run(patiently())


class Title(BaseModel):
    title: str = Field(min_length=3, max_length=80)


class Level(BaseModel):
    level: int = Field(ge=1, le=5)


def make_server(**options: Any) -> MCPServer[Any]:
    """A tool of three rounds, one that asks twice at once, and one that asks nothing."""
    options.setdefault("request_state_security", RequestStateSecurity(keys=["the key of the server that asks, long"]))
    server = MCPServer[Any]("work items", **options)

    @server.tool()
    async def file(kind: str, ctx: Context) -> str:
        """File a work item."""
        title = await ctx.elicit("What is it about?", Title, key="title")
        if not isinstance(title, AcceptedElicitation):
            return f"nothing was filed: {title.action}"
        level = await ctx.elicit(f"How bad is {title.data.title!r}?", Level, key="level")
        sure = await ctx.elicit("File it?", bool, key="sure")
        assert isinstance(level, AcceptedElicitation)
        assert isinstance(sure, AcceptedElicitation)
        return f"{kind}: {title.data.title} ({level.data.level}) {sure.data}"

    @server.tool()
    async def fail(ctx: Context) -> str:
        """Ask, and then do not go on."""
        await ctx.elicit("What?", Title, key="title")
        raise RuntimeError("this text is not for clients")

    return server


@contextmanager
def at_url(server: MCPServer[Any], port: int = 0) -> Iterator[str]:
    """A server in a thread of this process."""
    with serving(server.asgi(), port=port, lifespan="on", log_level="critical") as found:
        yield f"http://127.0.0.1:{found}/mcp"


async def begun(url: str, tool: str = "file", **arguments: Any) -> Pending:
    """A call at its first questions."""
    async with Client(url) as client:
        pending = await client.begin(tool, arguments or ({"kind": "bug"} if tool == "file" else {}))
    assert isinstance(pending, Pending)
    return pending


def question(message: str = "What?", **properties: Any) -> dict[str, Any]:
    """A form."""
    fields = properties or {"value": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def pending(name: str = "call", **facts: Any) -> Pending:
    """A call that nobody serves."""
    usual: dict[str, Any] = {
        "id": name,
        "server": "http://127.0.0.1:9/mcp",
        "method": "tools/call",
        "params": {"name": "file", "arguments": {"kind": "bug"}},
        "requests": {"title": question()},
        "state": "a secret state",
        "began": NOW,
        "asked": NOW,
    }
    return Pending(**{**usual, **facts})


def item(name: str = "call", **facts: Any) -> Item:
    """The same in an inbox."""
    put_down = {key: facts.pop(key) for key in list(facts) if key in Pending.__slots__ and key not in Item.__slots__}
    call = facts.pop("pending", None) or pending(name, **put_down)
    usual: dict[str, Any] = {"status": "waiting", "caller": "agent", "came": NOW, "changed": NOW, "pending": call}
    return Item(id=name, **{**usual, **facts})


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[Inbox]:
    """An inbox at work, over a file."""
    store = SQLiteInboxStore(path, [KEY])
    work = WorkOptions(**{"claim_seconds": 5.0, **options.pop("work", {})})
    inbox = Inbox(store, hook_secrets=[SECRET], work=work, **options)
    try:
        async with inbox.run():
            yield inbox
    finally:
        await store.aclose()


async def until(inbox: Inbox, item_id: str, is_so: Callable[[Item], bool]) -> Item:
    """An item as soon as it is as it should be."""
    async for seen in inbox.follow(item_id):
        if is_so(seen):
            return seen
    raise AssertionError(f"it did not come to that: {await inbox.get(item_id)}")


def asks(key: str) -> Callable[[Item], bool]:
    return lambda seen: seen.status == "waiting" and key in seen.pending.unanswered


def is_over(seen: Item) -> bool:
    return seen.is_over


class Line(NamedTuple):
    """A way to the API of an inbox that is served."""

    url: str
    inbox: Inbox

    def call(self, method: str, path: str, body: Any = None, token: str | None = ANN, **options: Any) -> "Reply":
        """One request, from outside."""

        async def work() -> Reply:
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            headers |= options.pop("headers", {})
            if body is not None and "data" not in options:
                options["data"] = body if isinstance(body, bytes) else json.dumps(body)
                headers.setdefault("Content-Type", "application/json")
            async with (
                aiohttp.ClientSession() as session,
                session.request(method, f"{self.url}/api/v1{path}", headers=headers, **options) as response,
            ):
                text = await response.read()
                return Reply(response.status, json.loads(text) if text else None, dict(response.headers))

        return run(work())

    def follow(self, item_id: str, is_so: Callable[[Any], bool]) -> Any:
        """An item, by long polls, as soon as it is as it should be."""
        revision, ends = 0, time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            seen = self.call("GET", f"/items/{item_id}?wait=10&revision={revision}").body
            if is_so(seen):
                return seen
            revision = seen["revision"]
        raise AssertionError(f"it did not come to that: {seen}")


class Reply(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


@contextmanager
def serving_inbox(path: Path, **options: Any) -> Iterator[Line]:
    """An inbox with its pages and its API, in a thread of this process."""
    store = SQLiteInboxStore(path, [KEY])
    work, port = WorkOptions(**{"claim_seconds": 5.0, **options.pop("work", {})}), options.pop("port", 0)
    door = Door(options.pop("tokens", {ANN: "ann", BOB: "bob"}), store)
    inbox = Inbox(store, hook_secrets=[SECRET], work=work, **options)
    app = create_app(inbox, door)
    with serving(app, lifespan="on", log_level="critical", timeout_graceful_shutdown=1, port=port) as found:
        yield Line(f"http://127.0.0.1:{found}", inbox)
