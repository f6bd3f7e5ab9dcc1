"""Notifications as every wire writes them."""

from collections.abc import Mapping
from typing import Any

from .._bus import Change
from .._json import encode
from .words import CHANGES, SUBSCRIPTION


def progress(token: str | int, value: float, total: float | None, message: str | None) -> bytes:
    """How far a call has come."""
    members = {"progressToken": token, "progress": value, "total": total, "message": message}
    return notification("notifications/progress", {name: part for name, part in members.items() if part is not None})


def log_message(level: str, data: Any, logger: str | None) -> bytes:
    """A log line for the client."""
    params = {"level": level, "data": data} | ({} if logger is None else {"logger": logger})
    return notification("notifications/message", params)


def changed(change: Change, subscription: str | int) -> bytes:
    """A change, on the stream of the subscription that asked for it."""
    params: dict[str, Any] = {"_meta": {SUBSCRIPTION: subscription}}
    if change.uri is not None:
        params["uri"] = change.uri
    return notification(CHANGES[change.kind], params)


def notification(method: str, params: Mapping[str, Any]) -> bytes:
    """Any notification."""
    return encode({"jsonrpc": "2.0", "method": method, "params": params}, default=str)
