"""A call, exchange by exchange: what went out, what came back, from which instance, and how large its state was."""

import time
from typing import Any

from .._messages import Incoming, Outgoing
from ..client import Client
from .showing import legible, note

INSTANCE = "X-Instance"
"""The header by which `turnwise serve --instance-header` says who answered."""


def trace(client: Client) -> None:
    """Have a client's exchanges shown from now on."""
    channel: Any = client._channel
    exchange = channel.exchange
    if hasattr(channel, "shows_headers"):
        channel.shows_headers = True

    async def traced(request: Outgoing, notified: Any) -> Incoming:
        began = time.perf_counter()
        _say(f"-> {request.method}", _asked(request))
        try:
            reply: Incoming = await exchange(request, notified)
        except BaseException as error:
            _say("<- nothing", f"{type(error).__name__}: {error}")
            raise
        where = (reply.headers or {}).get(INSTANCE)
        _say(f"<- {_outcome(reply.message)}", f"{(time.perf_counter() - began) * 1000:.1f} ms", where)
        return reply

    channel.exchange = traced


def _say(what: str, *more: str | None) -> None:
    note(legible(f"{what}  {'  '.join(part for part in more if part)}"), "dim")


def _asked(request: Outgoing) -> str:
    import orjson

    params = orjson.loads(request.body).get("params", {})
    name = params.get("name") or params.get("uri") or ""
    answers = params.get("inputResponses")
    state = params.get("requestState")
    return "  ".join(
        part
        for part in (
            str(name),
            f"answers {', '.join(answers)}" if answers else "",
            f"state {len(state)} bytes" if isinstance(state, str) else "",
        )
        if part
    )


def _outcome(message: Any) -> str:
    if "error" in message:
        return f"error {message['error'].get('code')}: {message['error'].get('message')}"
    result = message.get("result", {})
    kind = result.get("resultType", "complete")
    state = result.get("requestState")
    asks = ", ".join(result.get("inputRequests") or ())
    return "  ".join(
        part
        for part in (
            str(kind),
            f"asks {asks}" if asks else "",
            f"state {len(state)} bytes" if isinstance(state, str) else "",
        )
        if part
    )
