"""`turnwise call examples/login.py inbox`: the user signs in on a page; the tool never sees a password.

The provider is a page on this machine. A real one would be told who signs in by a cookie of its own, and would let
nobody sign in for the flow of another.
"""

import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from turnwise import Context, MCPServer

PORT = int(os.environ.get("LOGIN_PORT", "8765"))
PAGE = b"<form method=post><input name=user placeholder='Your name'><button>Sign in</button></form>"
signed_in: dict[str, str] = {}  # Stands for the provider's table: who signed in for which flow.


class Provider(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.reply(PAGE)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        flow = parse_qs(urlsplit(self.path).query)["flow"][0]
        signed_in[flow] = form["user"][0]
        self.reply(b"You are signed in. Go back, and say that you have been here.")

    def reply(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@asynccontextmanager
async def provider(server: Any) -> AsyncIterator[None]:
    """The page is there while the server is."""
    with ThreadingHTTPServer(("127.0.0.1", PORT), Provider) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        yield
        web.shutdown()


server = MCPServer("mail", lifespan=provider)


@server.tool()
async def inbox(ctx: Context) -> str:
    """What is in the inbox of whoever signs in."""
    flow = str(ctx.uuid())  # The same in every round of this call, so the address is too.
    while flow not in signed_in:
        page = f"http://127.0.0.1:{PORT}/login?flow={flow}"
        answer = await ctx.elicit_url("Sign in to read your mail", page)
        if answer.action != "accept":
            return "Nobody has signed in."
    return f"{signed_in[flow]} has 2 new messages."


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
