"""SIGHUP, at which what is in files is read again. Until a process can heed it, it is held back: it would end the
process, and one that is passed over leaves it with keys that the others no longer have.
"""

import signal

SIGNAL = getattr(signal, "SIGHUP", None)
"""None where there is no such signal."""


def hold_back() -> None:
    """Have it wait."""
    if SIGNAL is not None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {SIGNAL})


def let_through() -> None:
    """Have it come, also one that has waited. There is a handler by now."""
    if SIGNAL is not None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {SIGNAL})
