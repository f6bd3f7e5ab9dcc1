"""Who is let in to the inbox: tokens with names, and sessions for browsers.

A program shows its token with every request. A browser shows it once, and gets a session under a name that was drawn
then, in a cookie that scripts cannot read and that no other site's requests carry. Every change asked for by a browser
also needs the session's own word (against forged requests) and, where the browser tells, our own origin.
"""

import hashlib
import hmac
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

from .._json import decode, encode
from ..errors import CallerError
from ..transports.door import Callers
from .noting import plain
from .rights import NARROW, Member, checked

COOKIE = "turnwise_inbox"
CSRF = "csrf"
"""The name of the field, and with `x-` of the header, that carries a session's word."""
SESSION_SECONDS = 12 * 3600.0
SHORTEST_TOKEN = 20
ATTEMPTS, ATTEMPT_SECONDS = 10, 60.0
"""So many wrong tokens from one address in so many seconds; ten times as many from all together."""
MOST_ADDRESSES = 10_000
LONGEST_ADDRESS = 100
MOST_STRANGERS = 100
"""So many Hosts that are not ours are logged."""
NOT_OURS = "An inbox is served under the name in its --url, and under each --allowed-host; a proxy has to pass Host on."

log = logging.getLogger("turnwise.inbox")

PAGE_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""What goes with every page."""
API_HEADERS: Mapping[str, str] = {
    **PAGE_HEADERS,
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
"""What goes with every reply of the API."""


class TooManyAttempts(CallerError):
    """Too many wrong tokens; `after` is in how many seconds to come again."""

    def __init__(self, after: float) -> None:
        self.after = math.ceil(after)
        super().__init__(f"too many wrong tokens: come again in {self.after} s")


class NotForBrowsers(CallerError):
    """The token is right, and for programs only."""


class Session(NamedTuple):
    """Somebody who has come in by a browser. `csrf` goes into every form; `id` is what the cookie holds."""

    id: str
    member: Member
    csrf: str
    until: float

    @property
    def name(self) -> str:
        """Whose it is."""
        return self.member.name


class Sessions(Protocol):
    """Where sessions are kept, under a digest of their ids: every store of an inbox is one."""

    async def keep_session(self, name: str, blob: bytes, until: float) -> None:
        """Keep one."""
        ...

    async def find_session(self, name: str, now: float) -> bytes | None:
        """What was kept, while it is good."""
        ...

    async def drop_session(self, name: str) -> None:
        """Forget it."""
        ...


class Door:
    """Lets in who has one of these tokens: names by token, or a `Member` where it is not good for everything.

    `sessions` keeps who came in by a browser: the inbox's store, so that all its processes know them. `is_secure` is
    for an inbox that is reached by https, through a proxy: cookies are sent over nothing else then. Bound to localhost,
    only local names are served unless `hosts` names others; `origins` are ours besides the Host itself.
    `caller_header` is the header in which your proxy says who it speaks for, such as `X-Real-IP`; none is believed
    unless it is named here.
    """

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        tokens: Mapping[str, str | Member],
        sessions: Sessions,
        *,
        is_secure: bool = False,
        bind: str = "127.0.0.1",
        hosts: Sequence[str] | None = None,
        origins: Sequence[str] = (),
        session_seconds: float = SESSION_SECONDS,
        caller_header: str | None = None,
    ) -> None:
        self.use_tokens(tokens)
        self._sessions = sessions
        self.is_secure = is_secure
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._callers = Callers(bind, hosts, origins)
        self._seconds = session_seconds
        self._attempts = Attempts()
        self._strangers: set[str] = set()
        self._caller_header = (caller_header or "").lower().encode("latin-1", "replace")

    def use_tokens(self, tokens: Mapping[str, str | Member]) -> None:
        """Let in who has one of these from now on, and nobody else; all or none of them are taken."""
        self._members = {_digest(token): member for token, member in check_tokens(tokens).items()}

    def member_of(self, token: str) -> Member | None:
        """Whose token this is. It takes the same time for all that are wrong."""
        shown, found = _digest(token), None
        for known, member in self._members.items():
            if hmac.compare_digest(known, shown):
                found = member
        return found

    def address(self, headers: Iterable[tuple[bytes, bytes]], peer: str | None) -> str | None:
        """Whose wrong tokens are counted together, by the headers of a request, with lower-case names, and where it
        comes from. None where nobody can tell: a proxy on this machine, or before an inbox that is reached by https,
        speaks for many, and none of them may shut out the others.
        """
        if self._caller_header:
            # A client may send this header too. What the proxy says is behind that: it adds to it, or takes its place.
            named = [value.decode("latin-1") for name, value in headers if name == self._caller_header]
            return "".join(named[-1:]).rpartition(",")[2].strip()[:LONGEST_ADDRESS] or None
        is_local = peer is None or peer == "::1" or peer.startswith("127.")
        return None if is_local or self.is_secure else peer

    def caller(self, authorization: str | None, address: str | None) -> Member | None:
        """Who shows this Authorization header; TooManyAttempts where too many wrong ones came. As at `login`, an
        address that has shown too many is not told whether the next is right.
        """
        if authorization is not None:
            self._attempts.check(address)
        scheme, _, token = (authorization or "").partition(" ")
        member = self.member_of(token.strip()) if scheme.lower() == "bearer" else None
        if member is None and authorization is not None:
            self._attempts.note(address)
        return member

    def serves(self, host: str | None) -> bool:
        """Whether this Host is ours. A page of a stranger whose name was pointed at us has another."""
        return self.refusal(host) is None

    def refusal(self, host: str | None) -> str | None:
        """Why this Host is turned away, for who sent it; None where it is ours. The log has each once."""
        if self._callers.refusal((host or "").encode("latin-1", "replace"), None) is None:
            return None
        seen = plain(host or "")
        if seen not in self._strangers and len(self._strangers) < MOST_STRANGERS:
            self._strangers.add(seen)
            log.warning("a request for the Host %r was refused: %s", seen, NOT_OURS)
        return f"The Host {seen!r} is not served here. {NOT_OURS}"

    async def login(self, token: str, address: str | None) -> Session | None:
        """A new session for who has a token; None where it is wrong, NotForBrowsers where it is for programs,
        TooManyAttempts where wrong ones came too often.
        """
        self._attempts.check(address)
        member = self.member_of(token.strip())
        if member is None:
            self._attempts.note(address)
            return None
        if not member.may_browse:
            raise NotForBrowsers(f"the token of {member.name} is for programs")
        log.info("%s signed in from %s", plain(member.name), plain(address or "this machine, or by a proxy"))
        until = time.time() + self._seconds
        session = Session(secrets.token_urlsafe(32), member, secrets.token_urlsafe(32), until)
        kept = encode([member.name, session.csrf, until, _digest(token.strip()).hex()])
        await self._sessions.keep_session(_digest(session.id).hex(), kept, until)
        return session

    async def session(self, cookie: str | None) -> Session | None:
        """Who has this cookie. A session ends with its time, with logout, and with the token it was opened by."""
        if not cookie or len(cookie) > 200:
            return None
        now = time.time()
        kept = await self._sessions.find_session(_digest(cookie).hex(), now)
        if kept is None:
            return None
        name, csrf, until, token = decode(kept)
        member = self._members.get(bytes.fromhex(token))
        if member is None or member.name != name or not member.may_browse:
            return None
        return Session(cookie, member, csrf, until)

    async def logout(self, session: Session) -> None:
        """End a session."""
        log.info("%s signed out", plain(session.name))
        await self._sessions.drop_session(_digest(session.id).hex())

    def cookie(self, base: str = "") -> str:
        """The name of the cookie of an inbox under this path. Browsers take __Host- for whole hosts alone."""
        return COOKIE if not self.is_secure else f"__Secure-{COOKIE}" if base else f"__Host-{COOKIE}"

    def set_cookie(self, session: Session, base: str = "") -> str:
        """The Set-Cookie header that begins a session."""
        return f"{self.cookie(base)}={session.id}; Max-Age={int(self._seconds)}{self._attributes(base)}"

    def clear_cookie(self, base: str = "") -> str:
        """The Set-Cookie header that ends it."""
        return f"{self.cookie(base)}=; Max-Age=0{self._attributes(base)}"

    def _attributes(self, base: str) -> str:
        path = quote(base) or "/"
        return f"; Path={path}; HttpOnly; SameSite=Strict" + ("; Secure" if self.is_secure else "")

    def is_ours(self, headers: Mapping[str, str], *, scheme: str = "http") -> bool:
        """Whether a request that changes something comes from our own pages, as far as the browser tells.

        `headers` have lower-case names. A browser sends Origin with every POST, so who sends none is no browser, and is
        held by the session's word alone.
        """
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        if origin is None:
            return True
        if origin.lower() in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        # A proxy ends TLS, so the scheme is only known to be right where it says less than the page's own.
        return parts.scheme in ("https", scheme) and bool(parts.netloc) and parts.netloc == headers.get("host", "")

    def has_word(self, session: Session, word: str | None) -> bool:
        """Whether a request has the session's own word, from its form or its header."""
        return hmac.compare_digest((word or "").encode(), session.csrf.encode())


class Attempts:
    """Counts wrong tokens over the last minute: by address, where there is one, and in all. Too many from an address
    shut that address out; too many in all only shut out wrong tokens.
    """

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, list[float]] = OrderedDict()
        self._all: list[float] = []

    def check(self, address: str | None) -> None:
        """TooManyAttempts where one more from this address is too many."""
        if address is not None:
            _check(self._by_address.get(address, []), ATTEMPTS)

    def note(self, address: str | None) -> None:
        """Another wrong one; TooManyAttempts where too many came from anywhere."""
        _check(self._all, 10 * ATTEMPTS)
        now = time.monotonic()
        self._all.append(now)
        if address is None:
            return
        self._by_address.setdefault(address, []).append(now)
        self._by_address.move_to_end(address)
        while len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)


def _check(times: list[float], most: int) -> None:
    now = time.monotonic()
    times[:] = [at for at in times if now - at < ATTEMPT_SECONDS]
    if len(times) >= most:
        raise TooManyAttempts(times[0] + ATTEMPT_SECONDS - now)


def check_tokens(tokens: Mapping[str, str | Member]) -> dict[str, Member]:
    """Whose tokens these are; ValueError where one, or a name, is not good."""
    if not tokens:
        raise ValueError("a door needs at least one token")
    members = {token: checked(Member(one) if isinstance(one, str) else one) for token, one in tokens.items()}
    for token, member in members.items():
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise ValueError(
                f"the token of {member.name!r} has to be at least {SHORTEST_TOKEN} plain characters: "
                "make one with secrets.token_urlsafe(32)"
            )
    return members


def read_tokens(text: str) -> dict[str, Member]:
    """Members by token, out of lines `name:token`, with `caller` or `reader` behind it where the token is not good for
    everything; empty lines and those that begin with # are skipped. ValueError where a line is something else.
    """
    tokens: dict[str, Member] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        name, _, rest = words.partition(":")
        if not name.strip() or not rest.strip():
            raise ValueError(f"line {number} is not name:token")
        token, *roles = rest.split()
        if roles not in ([], *([role] for role in NARROW)):
            raise ValueError(f"line {number}: behind a token is nothing, or {' or '.join(NARROW)}")
        if token in tokens:
            raise ValueError(f"line {number} has a token that another name has too")
        tokens[token] = Member(name.strip(), *roles)  # type: ignore[arg-type] # looked at above
    return tokens


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
