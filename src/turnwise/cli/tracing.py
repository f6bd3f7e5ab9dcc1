"""A call, exchange by exchange: what went out, what came back, from which instance, and how large its state was."""

import asyncio
import time
from typing import Any

from .._messages import Incoming, Outgoing
from ..client import Client
from ..dialects.telling import asked, came
from ..dialects.words import INSTANCE
from .showing import legible, note


def trace(client: Client) -> None:
    """Have a client's exchanges shown from now on."""
    channel: Any = client._channel
    exchange = channel.exchange
    if hasattr(channel, "shows_headers"):
        channel.shows_headers = True

    async def traced(request: Outgoing, notified: Any) -> Incoming:
        began = time.perf_counter()
        _say(f"-> {request.method}", asked(request.body))
        try:
            reply: Incoming = await exchange(request, notified)
        except BaseException as error:
            is_over = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
            _say("<- nothing", "given up" if is_over else f"{type(error).__name__}: {error}")
            raise
        where = (reply.headers or {}).get(INSTANCE)
        _say(f"<- {came(reply.message)}", f"{(time.perf_counter() - began) * 1000:.1f} ms", where)
        return reply

    channel.exchange = traced


def _say(what: str, *more: str | None) -> None:
    note(legible(f"{what}  {'  '.join(part for part in more if part)}"), "dim")
