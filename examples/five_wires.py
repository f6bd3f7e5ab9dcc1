"""`python examples/five_wires.py`: one tool, called over five wires. What differs is how its question travels."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from mcp_types import ElicitRequestParams

from turnwise import Asking, Client, Context, MCPServer

Wire = Literal["2026-07-28", "DRAFT-2026-v1", "DRAFT-2026-02-03", "DRAFT-SEP-1858", "2025-11-25"]
WIRES: dict[Wire, str] = {
    "2026-07-28": "in the reply, and the call comes again",
    "DRAFT-2026-v1": "the same, after a handshake",
    "DRAFT-2026-02-03": "the same, in other words",
    "DRAFT-SEP-1858": "on a stream, whose event id holds the state",
    "2025-11-25": "as a request of its own, while the call waits",
}
server = MCPServer("travel", dialects=["DRAFT-2026-v1", "DRAFT-2026-02-03", "DRAFT-SEP-1858"])


@server.tool()
async def book(city: str, ctx: Context) -> str:
    """Book a room. The function does not know on which wire it asks."""
    nights = await ctx.elicit(f"How many nights in {city}?", int, key="nights")
    return f"{nights.data} nights in {city}" if nights.action == "accept" else "Nothing was booked"


def three(asking: Asking, params: ElicitRequestParams) -> dict[str, object]:
    return {"action": "accept", "content": {"value": 3}}


@contextmanager
def served() -> Iterator[str]:
    """The server in a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, __file__, str(port)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert any("Uvicorn running" in line for line in process.stderr)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.communicate()


async def main(url: str) -> None:
    for wire, way in WIRES.items():
        async with Client(url, elicitation_callback=three, mode=wire) as client:
            result = await client.call_tool("book", {"city": "Ulm"})
            print(f"{client.protocol_version:17} {(result.structured_content or {})['result']}: asked {way}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("http", port=int(sys.argv[1]))
    else:
        with served() as url:
            asyncio.run(main(url))
