"""Word of questions and of ends, to whoever wants it: HTTP requests with a signed body, tried again until taken.

They are signed as Standard Webhooks are: `webhook-id` stays the same however often one is tried, `webhook-timestamp` is
when it was sent, and `webhook-signature` is `v1,` and the HMAC-SHA256, in base64, of id, timestamp and body with points
between them. A body has neither answers nor states nor results: who wants those asks the API. The words of questions
are in it only where the inbox's operator wants that.
"""

import base64
import hashlib
import hmac
import logging
import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from .._json import encode
from ..errors import CallerError
from .model import PLACE, Hook, Item

if TYPE_CHECKING:
    import aiohttp

PREFIX = "whsec_"
SHORTEST_SECRET = 24
PAUSES = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0, 72000.0)
"""Seconds before each new try; after the last, about two days on, it is given up."""
SECONDS = 15.0
LONGEST_URL = 2000
MOST_WORDS = 2000
"""Characters of a question that a hook may be told."""
Event = Literal["item.asked", "item.held", "item.ended"]

log = logging.getLogger("turnwise.inbox")


class Signer:
    """Signs under these secrets, `whsec_` and base64: under all of them, so that one can be replaced by another."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = [_secret(secret) for secret in secrets]

    def __bool__(self) -> bool:
        return bool(self._secrets)

    def headers(self, hook: Hook, now: float) -> dict[str, str]:
        """What is sent beside the body."""
        stamp = str(int(now))
        signed = f"{hook.id}.{stamp}.{hook.body}".encode()
        marks = [base64.b64encode(hmac.digest(secret, signed, "sha256")).decode() for secret in self._secrets]
        return {
            "content-type": "application/json",
            "user-agent": "turnwise-inbox",
            "webhook-id": hook.id,
            "webhook-timestamp": stamp,
            "webhook-signature": " ".join(f"v1,{mark}" for mark in marks),
        }


def _secret(text: str) -> bytes:
    try:
        secret = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except ValueError:
        secret = b""
    if not text.startswith(PREFIX) or len(secret) < SHORTEST_SECRET:
        raise ValueError(
            f"a secret for hooks is {PREFIX} and at least {SHORTEST_SECRET} bytes in base64: "
            f"'{PREFIX}' + base64.b64encode(secrets.token_bytes(32)).decode()"
        )
    return secret


def check_url(url: str) -> str:
    """A URL that may be told: https, or http on this machine; CallerError where it is another."""
    try:
        parts = urlsplit(url)
        host, has_port = parts.hostname, parts.port != 0
    except ValueError:
        raise CallerError("the hook is no URL") from None
    if not host or not has_port or len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise CallerError("the hook is no URL")
    if parts.username is not None or parts.fragment or "\\" in url:
        raise CallerError("a hook's URL has no user name and no fragment")
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_local(host)):
        raise CallerError("a hook is https, or http on localhost")
    return url


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Listeners(NamedTuple):
    """Who is told of every item, besides whom its caller named. With `words`, the questions' texts are told too."""

    urls: Sequence[str] = ()
    words: bool = False


def told(item: Item, event: Event, now: float, page: str | None, everybody: Listeners | None = None) -> list[Hook]:
    """What is to be told of an item, to whom its caller named and to those who hear of all."""
    everybody = everybody or Listeners()
    if item.hook is None and not everybody.urls:
        return []
    data = {
        "id": item.id,
        "status": item.status,
        "round": item.round,
        "questions": list(item.pending.unanswered),
        "server": item.server,
        "target": item.target,
        "caller": item.caller,
        "task": item.task is not None,
        **({} if page is None else {"page": page}),
    }
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    bodies = {} if item.hook is None else {item.hook: data}
    bodies |= dict.fromkeys(everybody.urls, {**data, "words": _words(item)} if everybody.words else data)
    return [
        Hook(_name(url), url, encode({"type": event, "timestamp": stamp, "data": body}).decode(), now, now)
        for url, body in bodies.items()
    ]


def _name(url: str) -> str:
    """An id, which begins alike for all that go to one host: the URL itself is sealed in a store."""
    place = hashlib.blake2b(urlsplit(url).netloc.encode(), digest_size=16).hexdigest()
    return f"{f'msg_{place}'[:PLACE]}{uuid.uuid4().hex}"


def _words(item: Item) -> dict[str, str]:
    """What the open questions say, as their server wrote it."""
    pending = item.pending
    asked = {key: pending.requests[key] for key in pending.unanswered}
    texts = {key: request.get("params", {}).get("message") for key, request in asked.items()}
    return {key: text[:MOST_WORDS] if isinstance(text, str) else "" for key, text in texts.items()}


def postponed(hook: Hook, now: float) -> Hook | None:
    """The same, to be tried again later; None where it was tried often enough."""
    if hook.tries >= len(PAUSES):
        return None
    pause = PAUSES[hook.tries] * random.uniform(0.8, 1.2)
    return hook._replace(due=now + pause, tries=hook.tries + 1)


class Teller:
    """Sends what is to be told. Redirects are not followed, and what comes back is not read."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._session: aiohttp.ClientSession | None = None

    async def tell(self, hook: Hook, now: float) -> str | None:
        """None where it was taken, and otherwise why it was not."""
        import aiohttp

        if not self._signer:
            return "there is no secret to sign it with any more"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=SECONDS),
                trust_env=False,
            )
        headers = self._signer.headers(hook, now)
        try:
            async with self._session.post(
                hook.url, data=hook.body.encode(), headers=headers, allow_redirects=False
            ) as response:
                return None if 200 <= response.status < 300 else f"HTTP {response.status}"
        except (aiohttp.ClientError, OSError, ValueError) as error:  # A timeout is an OSError.
            return str(error) or type(error).__name__

    async def aclose(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
