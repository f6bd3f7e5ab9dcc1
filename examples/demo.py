"""`make demo`: serve the booking example in a process of its own, call it, and show every round on the wire.

`--ask` lets you answer at the terminal instead of the script.
"""

import argparse
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mcp_types import ElicitRequestParams

from turnwise import HTTP, Asking, Incoming, Outgoing, SyncClient

SCRIPTED = {"row": 12, "window": True}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(script: Path) -> Iterator[str]:
    """The example on a port of its own, ended with the block."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(script), str(port)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "Uvicorn running" in line:
                break
        else:
            raise SystemExit("the server did not start")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.communicate()


class Shown(HTTP):
    """HTTP that shows what goes over it: one request, one reply. Nothing but these bytes connects two rounds."""

    rounds = 0

    async def exchange(self, request: Outgoing, notified: Callable[[Any], Awaitable[None]]) -> Incoming:
        self.rounds += 1
        print(f"\n=== round {self.rounds} ===")
        message = json.loads(request.body)
        del message["params"]["_meta"]  # The same in every round: version, capabilities, who is calling.
        show("client ->", message)
        incoming = await super().exchange(request, notified)
        show("<- server", incoming.message)
        return incoming


def show(label: str, message: dict[str, Any]) -> None:
    text = json.dumps(message, indent=2, default=str)
    lines = [line if len(line) < 110 else line[:70] + ' ... (sealed)",' for line in text.splitlines()]
    print(f"\n{label}\n" + "\n".join("    " + line for line in lines))


def scripted(asking: Asking, params: ElicitRequestParams) -> dict[str, Any]:
    """The user's part, played."""
    print(f"\n   {params.message}\n   (scripted answer: {SCRIPTED})")
    return {"action": "accept", "content": SCRIPTED}


def typed(asking: Asking, params: ElicitRequestParams) -> dict[str, Any]:
    """The user's part, at the terminal."""
    print(f"\n   {params.message}")
    row = input("   row, or nothing to decline: ")
    while row and not row.isdecimal():
        row = input("   a whole number, please: ")
    return {"action": "accept", "content": {"row": int(row)}} if row else {"action": "decline"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ask", action="store_true", help="answer at the terminal")
    ask = options.parse_args().ask
    with serving(Path(__file__).with_name("booking.py")) as url:
        print(f"booking.py is served at {url}")
        wire = Shown(url)
        with SyncClient(wire, elicitation_callback=typed if ask else scripted, mode="2026-07-28") as client:
            result = client.call_tool("book", {"flight": "TW 2322"})
        print(f"\nDone in {wire.rounds} rounds: {(result.structured_content or {})['result']}")
    if not ask:
        print("To answer yourself: .venv/bin/python examples/demo.py --ask")


if __name__ == "__main__":
    main()
