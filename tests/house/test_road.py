"""The road of one request: from POST bytes to the tool in few modules and few frames, and one step of each kind."""

import asyncio
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import BaseModel
from uvicorn.server import ServerState

import turnwise
from turnwise import AcceptedElicitation, Context, MCPServer, _json
from turnwise._binding import Binding
from turnwise.transports.uvicorn import Stages
from turnwise.transports.uvicorn import make_server as make_http_server

SOURCE = str(Path(turnwise.__file__).parent)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
MODULES, FRAMES = 8, 8


class Name(BaseModel):
    name: str


class Walk:
    """What of ours was entered on the way to the tool, and how deep the stack was there."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.calls: list[str] = []
        self.frames = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        sys.setprofile(self._entered)
        try:
            yield
        finally:
            sys.setprofile(None)

    def arrive(self) -> None:
        sys.setprofile(None)
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None:
            self.frames += frame.f_code.co_filename.startswith(SOURCE)
            frame = frame.f_back

    def _entered(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            self.modules.add(frame.f_code.co_filename)
            self.calls.append(frame.f_code.co_name)


def make_server(walk: Walk, tools: int = 1) -> MCPServer:
    server = MCPServer("road")

    @server.tool()
    async def add(a: int, b: int) -> int:
        walk.arrive()
        return a + b

    @server.tool()
    async def greet(city: str, ctx: Context) -> str:
        if ctx.call.state is not None:
            walk.arrive()
        answer = await ctx.elicit("Your name?", Name, key="who")
        return f"Hello {answer.data.name}" if isinstance(answer, AcceptedElicitation) else "no"

    for number in range(tools - 1):
        server.add_tool(lambda: "x", f"other_{number}")
    return server


async def post(app: Any, name: str, walk: Callable[[], Any] | None = None, **params: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": META, **params}}
    body = orjson.dumps(message)
    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
        (b"content-length", str(len(body)).encode()),
        (b"mcp-protocol-version", b"2026-07-28"),
        (b"mcp-method", b"tools/call"),
        (b"mcp-name", name.encode()),
    ]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "root_path": "", "headers": headers}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Any) -> None:
        sent.append(event)

    await app(scope, receive, send)
    assert sent[0]["status"] == 200
    result: dict[str, Any] = orjson.loads(sent[1]["body"])["result"]
    return result


def test_a_plain_call_reaches_its_tool_in_few_modules_and_frames() -> None:
    walk = Walk()
    app = make_server(walk).asgi()

    async def run() -> None:
        await post(app, "add", arguments={"a": 1, "b": 2})
        walk.__init__()  # type: ignore[misc] # the second call is the usual one: everything is built
        with walk.watching():
            result = await post(app, "add", arguments={"a": 1, "b": 2})
        assert result["structuredContent"] == {"result": 3}

    asyncio.run(run())
    assert len(walk.modules) <= MODULES, sorted(walk.modules)
    assert walk.frames <= FRAMES


def test_a_retry_with_a_token_reaches_its_tool_in_few_modules_and_frames() -> None:
    walk = Walk()
    app = make_server(walk).asgi()
    answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}

    async def run() -> None:
        asked = await post(app, "greet", arguments={"city": "Rome"})
        state = asked["requestState"]
        with walk.watching():
            done = await post(app, "greet", arguments={"city": "Rome"}, requestState=state, inputResponses=answers)
        assert done["content"][0]["text"] == "Hello Ada"

    asyncio.run(run())
    assert len(walk.modules) <= MODULES, sorted(walk.modules)
    assert walk.frames <= FRAMES


class Wire(asyncio.Transport):
    """The other end of a connection, as a protocol sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.get_running_loop().create_future()

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.set_result(bytes(data))


async def served(app: Any, name: str, walk: Callable[[], Any], **params: Any) -> dict[str, Any]:
    """One request from its bytes on, as `server.run("http")` serves it."""
    config = make_http_server(app, "127.0.0.1", 0, "warning", Stages(lambda: None)).config
    config.load()
    make_protocol: Any = config.http_protocol_class
    protocol = make_protocol(config=config, server_state=ServerState(), app_state={})
    wire = Wire()
    protocol.connection_made(wire)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "_meta": META, **params}}
    body = orjson.dumps(message)
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with walk():
        protocol.data_received(head.encode() + body)
        written = await wire.written
    await asyncio.gather(*protocol.tasks)
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    protocol.connection_lost(None)
    result: dict[str, Any] = orjson.loads(written.partition(b"\r\n\r\n")[2])["result"]
    return result


def test_the_road_over_the_servers_own_lane_is_no_longer() -> None:
    walk = Walk()
    app = make_server(walk).asgi()
    answers = {"who": {"action": "accept", "content": {"name": "Ada"}}}

    async def run() -> None:
        asked = await served(app, "greet", nullcontext, arguments={"city": "Rome"})
        state = asked["requestState"]
        done = await served(
            app, "greet", walk.watching, arguments={"city": "Rome"}, requestState=state, inputResponses=answers
        )
        assert done["content"][0]["text"] == "Hello Ada"

    asyncio.run(run())
    assert len(walk.modules) <= MODULES, sorted(walk.modules)
    assert walk.frames <= FRAMES


def test_a_call_is_decoded_validated_and_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"decode": 0, "encode": 0, "validate": 0}

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return original(*args, **kwargs)

        return count

    originals: dict[str, Callable[..., Any]] = {
        name: getattr(_json, name) for name in ("decode", "encode", "encode_slowly")
    }
    app = make_server(Walk()).asgi()
    for module in [module for name, module in sys.modules.items() if name.startswith("turnwise")]:
        for name, original in originals.items():
            if getattr(module, name, None) is original:
                monkeypatch.setattr(module, name, counted(name.partition("_")[0], original))
    monkeypatch.setattr(Binding, "validate", counted("validate", Binding.validate))
    asyncio.run(post(app, "add", arguments={"a": 1, "b": 2}))
    assert counts == {"decode": 1, "encode": 1, "validate": 1}


def test_a_call_costs_the_same_with_one_tool_and_with_three_hundred() -> None:
    """Counted in function calls, which do not depend on how busy the machine is."""

    def cost(tools: int) -> int:
        counted = 0
        costs: list[int] = []  # Now and then a call also winds the watchman's timer: the least is what each one costs.

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        app = make_server(Walk(), tools).asgi()

        async def run() -> None:
            nonlocal counted
            await post(app, "add", arguments={"a": 1, "b": 2})
            for _ in range(10):
                counted = 0
                arguments = await prepared()
                sys.setprofile(count)
                await app(*arguments)
                sys.setprofile(None)
                costs.append(counted)

        async def prepared() -> tuple[Any, Any, Any]:
            body = orjson.dumps(
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "tools/call",
                    "params": {"name": "greet", "arguments": {"city": "x"}, "_meta": META},
                }
            )
            headers = [
                (b"host", b"localhost"),
                (b"content-type", b"application/json"),
                (b"mcp-protocol-version", b"2026-07-28"),
                (b"mcp-method", b"tools/call"),
                (b"mcp-name", b"greet"),
            ]

            async def receive() -> Any:
                return {"type": "http.request", "body": body}

            async def send(event: Any) -> None:
                pass

            return {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}, receive, send

        asyncio.run(run())
        return min(costs)

    assert cost(1) == cost(300)
