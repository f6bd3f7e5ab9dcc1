"""The client's half of SEP-2322 as approved: questions in the result, answers in the parameters of a retry.

So far that is the wire of 2026-07-28. What differs is around it: a handshake says once what each request of the later
version repeats, and no headers mirror the body.
"""

from .handshake_client import HandshakeCaller


class Caller(HandshakeCaller):
    """One client, speaking the approved text."""
