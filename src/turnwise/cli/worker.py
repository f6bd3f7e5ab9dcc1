"""A worker of `turnwise serve`: it reads what to do from standard input, and ends when that does, for then its parent
has.
"""

import faulthandler
import json
import os
import signal
import socket
import sys
import threading
import time

from .serving import STRAGGLERS, ServeOptions, serve_here


def main() -> int:
    """Serve; the exit code."""
    order = json.loads(_line())
    options = ServeOptions(**order["options"])
    patience = options.drain + options.grace + STRAGGLERS
    threading.Thread(target=_end_with_parent, args=(patience,), daemon=True).start()
    if hasattr(signal, "SIGQUIT"):  # Where each thread stands, printed without any help of Python's.
        faulthandler.register(signal.SIGQUIT)
    return serve_here(options, socket.socket(fileno=order["socket"]), pulse=order["pulse"])


def _line() -> bytes:
    """The first line of standard input. Nothing is buffered: a thread that waits in a buffer hinders the exit."""
    line = b""
    while not line.endswith(b"\n") and (part := os.read(0, 65536)):
        line += part
    return line


def _end_with_parent(patience: float) -> None:
    """End in good order when the parent has; and at once where that takes too long, for nobody else will see to it."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(patience)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
