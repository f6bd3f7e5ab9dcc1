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
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    return serve_here(ServeOptions(**order["options"]), socket.socket(fileno=order["socket"]))


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
