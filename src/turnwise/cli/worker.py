"""A worker of `turnwise serve`: it reads what to do from standard input, and ends when that does, for then its parent
has.
"""

import json
import os
import signal
import socket
import sys
import threading

from .serving import ServeOptions, serve_here


def main() -> int:
    """Serve; the exit code."""
    order = json.loads(_line())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return serve_here(ServeOptions(**order["options"]), socket.socket(fileno=order["socket"]))


def _line() -> bytes:
    """The first line of standard input. Nothing is buffered: a thread that waits in a buffer hinders the exit."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(0, 65536)):
        line += part
    return line


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
