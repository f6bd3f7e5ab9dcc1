"""How a benchmark server is put on a port: one process, no access log, warnings only."""

import argparse
from typing import Any, Literal

import uvicorn

KEY = b"a benchmark key of 32 bytes, only"
"""The same sealing secret for every server; it protects nothing but benchmark traffic."""


def arguments() -> argparse.ArgumentParser:
    """The command line that all servers share: the port, and what a server adds to it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    return parser


def serve(app: Any, port: int, *, fast: bool, lifespan: Literal["auto", "on", "off"] = "auto") -> None:
    """Serve an ASGI app on the loopback interface until the process is ended."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop" if fast else "asyncio",
        http="httptools" if fast else "h11",
        ws="none",
        lifespan=lifespan,
        access_log=False,
        log_level="warning",
    )
