"""Who is let in to an HTTP endpoint, as far as headers tell: Host and Origin, Accept and Content-Type, no repetitions.

"Servers MUST validate the Origin header on all incoming connections to prevent DNS rebinding attacks."
"""

from collections.abc import Sequence
from typing import Protocol

from .._messages import Identity

Headers = list[tuple[bytes, bytes]]
Reason = tuple[int, str]

LOCAL = ("127.0.0.1", "localhost", "[::1]")
_SINGLE = (b"mcp-", b"host", b"origin", b"authorization", b"content-")


class Callers:
    """Which Host and Origin values are let in: the guard against DNS rebinding.

    Bound to localhost, only local names are, unless you say otherwise. Bound to anything else, every Host is. An Origin
    must be one of `origins`, or the Host itself where that is one of `hosts`: a page whose name was pointed at this
    server has both the same. `"*"` lets all in.
    """

    def __init__(self, bind: str, hosts: Sequence[str] | None, origins: Sequence[str] | None) -> None:
        is_local = bind in (*LOCAL, "::1")
        named = LOCAL if is_local and hosts is None else hosts or ()
        self._hosts = {name.lower() for name in named} if is_local or hosts is not None else {"*"}
        self._origins = {name.lower() for name in origins or ()}
        self._local_origins = is_local and hosts is None

    def refusal(self, host: bytes | None, origin: bytes | None) -> Reason | None:
        """The HTTP status and reason for turning a request away, or None."""
        name = (host or b"").decode("latin-1").strip().lower()
        if not self._host_is_known(name):
            return 421, "Misdirected request: this Host is not served here; name it in allowed_hosts= or --allowed-host"
        if origin is not None and not self._origin_is_known(origin.decode("latin-1").strip().lower(), name):
            return 403, "Forbidden: this Origin may not call; name it in allowed_origins= or --allowed-origin"
        return None

    def _host_is_known(self, host: str) -> bool:
        return "*" in self._hosts or host in self._hosts or _without_port(host) in self._hosts

    def _origin_is_known(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")
        if scheme not in ("http", "https"):
            return False
        return (authority == host and "*" not in self._hosts) or (
            self._local_origins and _without_port(authority) in LOCAL
        )


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


class Turnaway(Protocol):
    """A request that is turned away before it is read."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def description(self) -> str:
        """Why, for a person."""
        ...

    @property
    def headers(self) -> Headers:
        """What goes with the status, such as WWW-Authenticate."""
        ...


class Doorkeeper(Protocol):
    """Decides from the Authorization headers who is calling."""

    async def admit(self, authorization: Sequence[bytes], now: float) -> Identity | Turnaway:
        """The caller's identity, or why there is none."""
        ...


def unfit(content_type: bytes, accept: bytes) -> Reason | None:
    """ "The client MUST include an Accept header listing both application/json and text/event-stream." """
    if content_type.partition(b";")[0].strip().lower() != b"application/json":
        return 415, "Content-Type must be application/json"
    takes = {part.partition(b";")[0].strip().lower() for part in accept.split(b",")}
    if b"*/*" in takes or (
        takes & {b"application/json", b"application/*"} and takes & {b"text/event-stream", b"text/*"}
    ):
        return None
    return 406, "Accept must list application/json and text/event-stream"


def repeated(listed: Headers) -> Reason | None:
    """Why a request is turned away whose headers say the same thing twice."""
    names = [name for name, _ in listed if name.startswith(_SINGLE)]
    twice = sorted({name for name in names if names.count(name) > 1})
    return (400, f"Header sent more than once: {twice[0].decode('latin-1')}") if twice else None
