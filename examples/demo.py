"""`make demo`: serve the booking example in a process of its own, call it, and show every round on the wire.

`--ask` lets you answer at the terminal instead of the script.
"""

import argparse
import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

PROTOCOL = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL,
    "io.modelcontextprotocol/clientInfo": {"name": "demo", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
SCRIPTED = {"row": 12, "window": True}
ids = count(1)


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


def post(url: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """One round: one request, one reply. Nothing but these bytes connects two rounds."""
    message = {"jsonrpc": "2.0", "id": next(ids), "method": method, "params": {**params, "_meta": META}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL,
        "Mcp-Method": method,
        "Mcp-Name": params["name"],
    }
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    show("client ->", {**message, "params": params})
    try:
        with urllib.request.urlopen(request) as response:
            reply: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        reply = json.load(error)
    show("<- server", reply)
    return reply


def show(label: str, message: dict[str, Any]) -> None:
    text = json.dumps(message, indent=2, default=str)
    lines = [line if len(line) < 110 else line[:70] + ' ... (sealed)",' for line in text.splitlines()]
    print(f"\n{label}\n" + "\n".join("    " + line for line in lines))


def answer(request: dict[str, Any], *, ask: bool) -> dict[str, Any]:
    """The user's part: an answer to one question."""
    print(f"\n   {request['params']['message']}")
    if not ask:
        print(f"   (scripted answer: {SCRIPTED})")
        return {"action": "accept", "content": SCRIPTED}
    row = input("   row, or nothing to decline: ")
    # What is not a number is sent as it is: the server finds that it does not fit, and asks again.
    content = {"row": int(row) if row.isdecimal() else row}
    return {"action": "accept", "content": content} if row else {"action": "decline"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ask", action="store_true", help="answer at the terminal")
    ask = options.parse_args().ask
    call: dict[str, Any] = {"name": "book", "arguments": {"flight": "TW 2322"}}
    with serving(Path(__file__).with_name("booking.py")) as url:
        print(f"booking.py is served at {url}")
        params = call
        for number in range(1, 11):
            print(f"\n=== round {number} ===")
            result = post(url, "tools/call", params)["result"]
            if result["resultType"] == "complete":
                print(f"\nDone in {number} rounds: {result['content'][0]['text']}")
                break
            answers = {key: answer(request, ask=ask) for key, request in result["inputRequests"].items()}
            params = {**call, "inputResponses": answers, "requestState": result["requestState"]}
    if not ask:
        print("To answer yourself: .venv/bin/python examples/demo.py --ask")


if __name__ == "__main__":
    main()
