"""The lane past ASGI, without a socket: which heads it keeps, and how it leaves a connection."""

import asyncio
import json

import pytest

from tests.properties.connecting import Connection, Service, run
from turnwise import Context, MCPServer
from turnwise.transports.lane import LONGEST_HEAD, MOST_HEADS, Heads

LENGTH = {b"content-length": b"2"}


def test_a_head_is_kept_up_to_the_limit_of_its_length() -> None:
    heads = Heads()
    heads.add(b"x" * LONGEST_HEAD, LENGTH)
    heads.add(b"x" * (LONGEST_HEAD + 1), LENGTH)
    assert heads.get(b"x" * LONGEST_HEAD) == (LENGTH, 2)
    assert heads.get(b"x" * (LONGEST_HEAD + 1)) is None


@pytest.mark.parametrize("name", [b"authorization", b"cookie"])
def test_a_head_with_credentials_is_not_kept(name: bytes) -> None:
    heads = Heads()
    heads.add(b"head", {**LENGTH, name: b"secret"})
    assert heads.get(b"head") is None


def test_of_many_heads_the_oldest_is_forgotten() -> None:
    heads = Heads()
    for number in range(MOST_HEADS + 1):
        heads.add(b"%d" % number, LENGTH)
    kept = [number for number in range(MOST_HEADS + 1) if heads.get(b"%d" % number)]
    assert kept == list(range(1, MOST_HEADS + 1))


async def ended(tool: str, *, given_up: bool) -> Connection:
    """A connection after a call of this tool, which came to its end or was given up, as at the end of a drain."""
    server, go = MCPServer("lane"), asyncio.Event()

    @server.tool()
    async def quiet() -> str:
        await go.wait()
        return "done"

    @server.tool()
    async def told(ctx: Context) -> str:
        await ctx.report_progress(1)
        await go.wait()
        return "done"

    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 1,
    }
    params = {"name": tool, "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    fields = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
        "Content-Length": str(len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    await server.start()
    connection = Service(server.asgi()).connect()
    connection.transport.feed(f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
    await connection.idle()
    (task,) = connection.tasks
    task.cancel() if given_up else go.set()
    await asyncio.wait([task])
    await connection.idle()
    return connection


@pytest.mark.parametrize("tool", ["quiet", "told"])
def test_a_call_that_is_given_up_takes_its_connection_with_it(tool: str) -> None:
    connection = run(lambda: ended(tool, given_up=True))
    assert connection.transport.is_lost
    assert b"done" not in connection.transport.written


@pytest.mark.parametrize("tool", ["quiet", "told"])
def test_a_call_that_is_answered_leaves_its_connection_open(tool: str) -> None:
    async def flow() -> None:
        connection = await ended(tool, given_up=False)
        assert b"done" in connection.transport.written
        assert not connection.transport.is_closing()
        await connection.hang_up()

    run(flow)
