"""Who is let in to the inbox: tokens with names, and sessions for browsers.

A program shows its token with every request. A browser shows it once, and gets a session under a name that was drawn
then, in a cookie that scripts cannot read and that no other site's requests carry. Every change asked for by a browser
also needs the session's own word (against forged requests) and, where the browser tells, our own origin.
"""

import hashlib
import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from .._json import decode, encode
from ..errors import CallerError
from ..transports.door import Callers

COOKIE = "turnwise_inbox"
CSRF = "csrf"
"""The name of the field, and with `x-` of the header, that carries a session's word."""
SESSION_SECONDS = 12 * 3600.0
SHORTEST_TOKEN = 20
ATTEMPTS, ATTEMPT_SECONDS = 10, 60.0
"""So many wrong tokens from one address in so many seconds; ten times as many from all together."""
MOST_ADDRESSES = 10_000

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


class Session(NamedTuple):
    """Somebody who has come in by a browser. `csrf` goes into every form; `id` is what the cookie holds."""

    id: str
    name: str
    csrf: str
    until: float


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
    """Lets in who has one of these tokens: names by token.

    `sessions` keeps who came in by a browser: the inbox's store, so that all its processes know them. `is_secure` is
    for an inbox that is reached by https, through a proxy: cookies are sent over nothing else then. Bound to localhost,
    only local names are served unless `hosts` names others; `origins` are ours besides the Host itself.
    """

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        tokens: Mapping[str, str],
        sessions: Sessions,
        *,
        is_secure: bool = False,
        bind: str = "127.0.0.1",
        hosts: Sequence[str] | None = None,
        origins: Sequence[str] = (),
        session_seconds: float = SESSION_SECONDS,
    ) -> None:
        if not tokens:
            raise ValueError("a door needs at least one token")
        for token, name in tokens.items():
            if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
                raise ValueError(
                    f"the token of {name!r} has to be at least {SHORTEST_TOKEN} plain characters: "
                    "make one with secrets.token_urlsafe(32)"
                )
            if not name.isprintable() or not 0 < len(name) <= 100:
                raise ValueError(f"not a name: {name!r}")
        self._names = {_digest(token): name for token, name in tokens.items()}
        self._sessions = sessions
        self.is_secure = is_secure
        self.cookie = f"__Host-{COOKIE}" if is_secure else COOKIE
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._callers = Callers(bind, hosts, origins)
        self._seconds = session_seconds
        self._attempts = Attempts()

    def name_of(self, token: str) -> str | None:
        """Whose token this is. It takes the same time for all that are wrong."""
        shown, found = _digest(token), None
        for known, name in self._names.items():
            if hmac.compare_digest(known, shown):
                found = name
        return found

    def caller(self, authorization: str | None, address: str) -> str | None:
        """Who shows this Authorization header; TooManyAttempts where too many wrong ones came."""
        scheme, _, token = (authorization or "").partition(" ")
        name = self.name_of(token.strip()) if scheme.lower() == "bearer" else None
        if name is None and authorization is not None:
            self._attempts.check(address)
            self._attempts.note(address)
        return name

    def serves(self, host: str | None) -> bool:
        """Whether this Host is ours. A page of a stranger whose name was pointed at us has another."""
        return self._callers.refusal((host or "").encode("latin-1", "replace"), None) is None

    async def login(self, token: str, address: str) -> Session | None:
        """A new session for who has a token; None where it is wrong, TooManyAttempts where that came too often."""
        self._attempts.check(address)
        name = self.name_of(token.strip())
        if name is None:
            self._attempts.note(address)
            return None
        until = time.time() + self._seconds
        session = Session(secrets.token_urlsafe(32), name, secrets.token_urlsafe(32), until)
        kept = encode([name, session.csrf, until, _digest(token.strip()).hex()])
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
        if self._names.get(bytes.fromhex(token)) != name:
            return None
        return Session(cookie, name, csrf, until)

    async def logout(self, session: Session) -> None:
        """End a session."""
        await self._sessions.drop_session(_digest(session.id).hex())

    def set_cookie(self, session: Session) -> str:
        """The Set-Cookie header that begins a session."""
        return f"{self.cookie}={session.id}; Max-Age={int(self._seconds)}{self._attributes}"

    @property
    def clear_cookie(self) -> str:
        """The Set-Cookie header that ends it."""
        return f"{self.cookie}=; Max-Age=0{self._attributes}"

    @property
    def _attributes(self) -> str:
        return "; Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if self.is_secure else "")

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
    """Counts wrong tokens, by address and in all, over the last minute."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, list[float]] = OrderedDict()
        self._all: list[float] = []

    def check(self, address: str) -> None:
        """TooManyAttempts where one more from this address is too many."""
        _check(self._by_address.get(address, []), ATTEMPTS)

    def note(self, address: str) -> None:
        """Another wrong one; TooManyAttempts where too many came from anywhere."""
        _check(self._all, 10 * ATTEMPTS)
        now = time.monotonic()
        self._by_address.setdefault(address, []).append(now)
        self._by_address.move_to_end(address)
        while len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)
        self._all.append(now)


def _check(times: list[float], most: int) -> None:
    now = time.monotonic()
    times[:] = [at for at in times if now - at < ATTEMPT_SECONDS]
    if len(times) >= most:
        raise TooManyAttempts(times[0] + ATTEMPT_SECONDS - now)


def read_tokens(text: str) -> dict[str, str]:
    """Names by token, out of lines `name:token`; empty lines and those that begin with # are skipped. ValueError where
    a line is something else.
    """
    tokens: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        name, colon, token = words.partition(":")
        if not colon or not name.strip() or not token.strip():
            raise ValueError(f"line {number} is not name:token")
        if token.strip() in tokens:
            raise ValueError(f"line {number} has a token that another name has too")
        tokens[token.strip()] = name.strip()
    return tokens


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()
