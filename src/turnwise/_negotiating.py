"""Which version a client and its server speak: found by asking, and remembered for the next client.

"Try modern; a recognised modern error means stay; anything else means `initialize`." A process that has met an older
server goes straight to the handshake next time, and forgets it where that turns out to be wrong.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, cast

from ._conversation import Conversation
from ._live import LiveConversation
from ._messages import Channel, Lasting
from ._standing import Introduction, Session
from .dialects.callers import NEWEST, can_wait, needs_http
from .dialects.calling import check_versions
from .dialects.v2026_07_28_client import is_older, speaks_older
from .dialects.words import VERSION
from .errors import (
    ConnectionLost,
    DeadlineExceeded,
    HandshakeRequired,
    InvalidReply,
    MCPError,
    PeerError,
    UnexpectedStatus,
    UnsupportedVersion,
)
from .transports.http import HTTP
from .transports.process import Process

PROBE_SECONDS = 60.0
"""How long a server may take to say who it is: it may only be starting, and an older one may never answer."""
MOST_REMEMBERED = 256

_OLDER: "OrderedDict[str, None]" = OrderedDict()
"""The servers that wanted a handshake when they were last met."""

log = logging.getLogger("turnwise.client")


class Opened(NamedTuple):
    """How a client and its server have come together; `discovered` is None where the server was not asked."""

    conversation: Conversation
    discovered: dict[str, Any] | None


class Negotiation(NamedTuple):
    """What a client has to know to come together with its server. `name` is what the server is remembered by, and
    `discover` asks it who it is.
    """

    plain: Conversation
    info: Mapping[str, Any]
    log_level: str | None
    name: str | None
    discover: Callable[[float | None], Awaitable[dict[str, Any]]]

    async def opened(self, mode: str) -> Opened:
        """The conversation, in the version that was told or the best that both sides have."""
        if mode == VERSION:
            return Opened(self.plain, None)
        if mode != "auto":
            return await self._session(mode, self.plain.manners.request_seconds)
        if self.name is not None and self.name in _OLDER:
            try:
                return await self._session(NEWEST, self.plain.manners.request_seconds)
            except PeerError as error:
                if isinstance(error, ConnectionLost | DeadlineExceeded) and not isinstance(self.plain.channel, Process):
                    raise
                shown = self.plain.channel.program if isinstance(self.plain.channel, Process) else self.name
                log.info("%s is no longer what it was: %s", shown, error)
                _OLDER.pop(self.name, None)  # Several clients may notice at once.
        return await self._found()

    async def _found(self) -> Opened:
        """The newest version, unless the server gives a sign that it is older."""
        is_process = isinstance(self.plain.channel, Process)
        limit = self.plain.manners.request_seconds
        if is_process:
            limit = PROBE_SECONDS if limit is None else min(limit, PROBE_SECONDS)
        try:
            return Opened(self.plain, await (self._probed(limit) if is_process else self.discover(limit)))
        except (MCPError, UnexpectedStatus) as error:
            if not is_older(error):
                raise
            sign: PeerError = error
        except HandshakeRequired as error:
            sign = error
        except UnsupportedVersion as error:
            if not speaks_older(error.supported):
                raise
            sign = error
        except (ConnectionLost, DeadlineExceeded) as error:
            if not is_process:
                raise
            sign = error  # An older server may end at what it does not know, or say nothing.
        return await self._fallen_back(sign, limit)

    async def _probed(self, seconds: float | None) -> dict[str, Any]:
        """Ask once: who does not answer is not asked again in words that it does not know."""
        result = await self.plain.ask_once("server/discover", {}, seconds)
        check_versions(result)
        return result

    async def _fallen_back(self, sign: PeerError, seconds: float | None) -> Opened:
        if not hasattr(self.plain.channel, "tell"):
            raise HandshakeRequired(f"the server does not speak {VERSION}: {sign}") from sign
        try:
            opened = await self._session(NEWEST, seconds)
        except (MCPError, UnexpectedStatus, InvalidReply) as error:
            if isinstance(error, UnexpectedStatus) and not is_older(error) and not error.is_told:
                raise
            if isinstance(sign, UnsupportedVersion):
                raise sign from error
            raise HandshakeRequired(f"the server does not speak {VERSION} ({sign}), nor older: {error}") from error
        if self.name is not None:
            _OLDER[self.name] = None
            if len(_OLDER) > MOST_REMEMBERED:
                _OLDER.popitem(last=False)
        return opened

    async def _session(self, version: str, seconds: float | None) -> Opened:
        plain, manners = self.plain, self.plain.manners
        channel = _lasting(plain.channel, version)
        declared = manners.in_hand if can_wait(version) else manners.capabilities
        session = Session(channel, Introduction(self.info, declared, self.log_level, seconds), plain.caller)
        conversation = LiveConversation(session, session.caller, manners, plain.on_change, session)
        channel.unasked = conversation.unasked
        await session.begin(version)
        conversation.caller, session.greet = session.caller, conversation.greet
        hears = bool(manners.callbacks or manners.logging_callback) and not can_wait(session.caller.version)
        conversation.attends = hears and isinstance(channel, HTTP)
        if conversation.attends:
            await conversation.attend()
        return Opened(conversation, session.discovered)


def _lasting(channel: Channel, version: str) -> Lasting:
    if needs_http(version) and not isinstance(channel, HTTP):
        raise ValueError(f"{version} is a way of HTTP; this server is spoken to by other means")
    if not hasattr(channel, "tell"):
        raise ValueError(f"{version} needs a channel with ready, tell, watch and leave")
    return cast("Lasting", channel)
