import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from turnwise import Client, Context, MCPServer
from turnwise.testing import Playback, Recorder, Script, Transcript


def make_server(word: str) -> MCPServer:
    server = MCPServer("greeter")

    @server.tool()
    async def greet(ctx: Context) -> str:
        """Greet whoever is there."""
        name = await ctx.elicit("Who is there?", str, key="name")
        return f"{word} {name.data}" if name.action == "accept" else "Nobody."

    return server


async def record(path: Path) -> None:
    """A real client and a real server; a URL instead of the server would do."""
    recorder = Recorder(make_server("Hello"))
    async with Client(recorder, **Script({"name": "Ada"}).callbacks()) as client:
        await client.call_tool("greet", {})
    recorder.transcript.write(path)


async def check_server(path: Path) -> None:
    """Does a server still say the same?"""
    transcript = Transcript.read(path)
    await transcript.replay(make_server("Hello"))
    with pytest.raises(AssertionError, match="Good day Ada"):
        await transcript.replay(make_server("Good day"))


async def check_client(path: Path) -> None:
    """Does a client do the right thing, where the server says this?"""
    playback = Playback(Transcript.read(path))
    async with Client(playback, **Script({"name": "Ada"}).callbacks()) as client:
        result = await client.call_tool("greet", {})
        assert result.structured_content == {"result": "Hello Ada"}
    assert not playback.left


def test_a_transcript() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "greeting.txt"
        asyncio.run(record(path))
        asyncio.run(check_server(path))
        asyncio.run(check_client(path))
