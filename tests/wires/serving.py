"""A server in a thread of this process, on a port of its own."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[int]:
    """The port at which an application is served; `options` are uvicorn's."""
    usual: dict[str, Any] = {"port": 0, "log_level": "warning", "lifespan": "off", "ws": "none"}
    server = uvicorn.Server(uvicorn.Config(app, **usual | options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    ends = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < ends, "the server did not start"
        time.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
