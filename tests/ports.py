"""Ports for servers that are started later, or again: none of those that the system gives to whoever asks for any."""

import itertools
import os
import random
import socket

_FIRST, _LAST = 10_000, 32_000
_numbers = itertools.count(random.Random(os.getpid()).randrange(_LAST - _FIRST))


def free_port() -> int:
    """A port that nobody has, and that this process has not named before."""
    for _ in range(_LAST - _FIRST):
        port = _FIRST + next(_numbers) % (_LAST - _FIRST)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("there is no free port")
