"""A session: what a client keeps of a connection that was opened with a handshake.

It is a channel over another one. It opens the session, gives every request what belongs to it, and begins a new one
where the server has lost it. What is asked in its course is for `_live` to answer.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ._conversation import REISSUES, limited
from ._messages import Incoming, Lasting, Notified, Outgoing
from .dialects import handshake_client as handshake
from .dialects.callers import caller_of
from .dialects.handshake_client import NO_TURN, HandshakeCaller, Turn
from .dialects.v2026_07_28_client import UNKNOWN_METHOD, Caller, cancellation
from .dialects.words import SESSION
from .errors import ConnectionLost, MCPError, PeerError, UnexpectedStatus, UnsupportedVersion

LAST_WORDS = 2.0
"""Seconds for what is still to be said when a session is left."""
MOST_SESSIONS = 3
"""How often in a row a stream is opened in a session that is lost at once."""

log = logging.getLogger("turnwise.client")


class Introduction(NamedTuple):
    """What a client says when it opens a session, and how long it waits for an answer."""

    info: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    log_level: str | None
    seconds: float | None


class Session:
    """A channel on which the server knows who is speaking. `greet` is called when a new one takes its place."""

    def __init__(self, channel: Lasting, introduction: Introduction, before: Caller) -> None:
        self.discovered: dict[str, Any] = {}
        self.greet: Callable[[], Awaitable[None]] | None = None
        self.caller = HandshakeCaller(before, before.version)
        self._channel = channel
        self._introduction = introduction
        self._headers: dict[str, str] = {}
        self._number: int | None = None
        """The connection on which hands were shaken; None while they are, and where that failed."""
        self._beginning = asyncio.Lock()
        self._errands: set[asyncio.Task[None]] = set()

    async def begin(self, wanted: str) -> None:
        """Shake hands, in the version that is wanted or another one that both sides know."""
        version = await self._shake_hands(wanted)
        self.caller = caller_of(version, self.caller)

    async def _shake_hands(self, wanted: str) -> str:
        self._number, number = None, await self._channel.ready()
        try:
            result, headers = await self._initialize(wanted)
        except MCPError as error:
            other = handshake.offered(error.data)
            if other is None or other == wanted:
                raise
            result, headers = await self._initialize(other)
        version = handshake.negotiated(result, wanted)
        self._headers = handshake.session_headers(version, headers)
        self.discovered = handshake.discovered(result, version)
        await self.tell(handshake.notification("notifications/initialized"))
        await self._set_level(result["capabilities"])
        self._number = number
        return version

    async def _initialize(self, version: str) -> tuple[dict[str, Any], Mapping[str, str] | None]:
        params = handshake.opening(version, self._introduction.capabilities, self._introduction.info)
        for pause in (*REISSUES, None):
            request = self.caller.request("initialize", params, {})
            exchange = self._channel.exchange(request, self._early)
            try:
                incoming = await self._limited(exchange, "initialize was not answered")
                break
            except ConnectionLost as lost:
                if lost.sent or pause is None:
                    raise
                await asyncio.sleep(pause)
        return self.caller.read(request, incoming), incoming.headers

    async def _early(self, message: Any) -> None:
        """What a server says before it knows who is there: it may ask for signs of life."""
        if message.get("method") == "ping" and isinstance(message.get("id"), str | int):
            self.run(self.tell(handshake.response(message["id"], {})))

    async def _set_level(self, capabilities: Mapping[str, Any]) -> None:
        if self._introduction.log_level is None or "logging" not in capabilities:
            return
        try:
            await self.ask("logging/setLevel", {"level": self._introduction.log_level})
        except MCPError as error:
            log.warning("the server does not take a log level: %s", error)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One request of this session, and of no other."""
        request = self.caller.request(method, params, {})
        incoming = await self._limited(self._sent(request, self._early), f"{method} was not answered")
        return self.caller.read(request, incoming)

    async def open(self) -> None:
        """It is open from the start."""

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """The exchange in this session, or in a new one: a server that has lost this one has done nothing yet."""
        headers = self._headers
        if await self._channel.ready() != self._number:
            await self._begin_anew(headers)
            headers = self._headers
        try:
            incoming = await self._sent(request, notified)
            if SESSION not in headers or not _is_lost(incoming):
                return incoming
        except UnexpectedStatus as error:
            if error.status != 404 or SESSION not in headers:
                raise
        await self._begin_anew(headers)
        return await self._sent(request, notified)

    async def _sent(self, request: Outgoing, notified: Notified) -> Incoming:
        turn = self.caller.turn(request)
        heard = notified if turn is NO_TURN else partial(_heard, turn, notified)
        whole = request._replace(headers={**request.headers, **self._headers})
        try:
            return turn.ended(await self._channel.exchange(whole, heard))
        except asyncio.CancelledError:
            # "Disconnection SHOULD NOT be interpreted as the client cancelling its request."
            word = None if self._channel.cancels else cancellation(request, "the client no longer waits")
            if word is not None:
                self.run(self.tell(word))
            raise

    async def _begin_anew(self, headers: Mapping[str, str]) -> None:
        """A new session, unless somebody else has begun it meanwhile."""
        async with self._beginning:
            if self._headers is not headers and self._number == await self._channel.ready():
                return
            log.info("the server has lost the session: a new one is begun")
            version = await self._shake_hands(self.caller.version)
            if type(caller_of(version, self.caller)) is not type(self.caller):
                raise UnsupportedVersion(self.caller.version, [version])
            self.caller.version = version
            if self.greet is not None:
                await self.greet()

    async def tell(self, body: bytes) -> None:
        """Send what has no reply."""
        await self._limited(self._channel.tell(body, self._headers), "the server did not take a message")

    async def watch(self, notified: Notified, opened: Callable[[], None]) -> None:
        """Hear what the server says unasked, for as long as it does."""
        lost = 0
        while True:
            headers = self._headers
            try:
                await self._channel.watch(headers, notified, opened)
            except UnexpectedStatus as error:
                lost += 1
                if error.status != 404 or SESSION not in headers or lost == MOST_SESSIONS:
                    raise
                await self._begin_anew(headers)

    def run(self, errand: Coroutine[Any, Any, None]) -> None:
        """Do something on the side; what comes of it concerns nobody."""
        task = asyncio.create_task(_forgiven(errand))
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def aclose(self) -> None:
        """Say goodbye, and let go of everything."""
        try:
            async with asyncio.timeout(LAST_WORDS):
                if self._errands:
                    await asyncio.wait(self._errands)
                if SESSION in self._headers:
                    await _forgiven(self._channel.leave(self._headers))
        except TimeoutError:
            log.debug("the server does not listen to a goodbye")
        finally:
            for task in self._errands:
                task.cancel()
            await self._channel.aclose()

    async def _limited(self, work: Awaitable[Any], complaint: str) -> Any:
        seconds = self._introduction.seconds
        return await limited(work, seconds, f"{complaint} within {seconds} s")


async def _heard(turn: Turn, notified: Notified, message: Any) -> None:
    if not turn.takes(message):
        await notified(message)


async def _forgiven(errand: Awaitable[None]) -> None:
    with suppress(PeerError):
        await errand


def _is_lost(incoming: Incoming) -> bool:
    """ "When a client receives HTTP 404 [...] it MUST start a new session"; an unknown method is another matter."""
    error = incoming.message.get("error") if isinstance(incoming.message, dict) else None
    return incoming.status == 404 and not (isinstance(error, dict) and error.get("code") == UNKNOWN_METHOD)
