"""Replies as every wire writes them: a result, an error, and what becomes of an exception."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from .._json import encode
from .._messages import Reply
from ..errors import InvalidRequestState, MalformedMessage, MCPError, ToolError, TurnwiseError
from .words import TARGETS

log = logging.getLogger("turnwise.server")

_LATER = ((b"retry-after", b"30"),)

Told = tuple[int, int, str] | tuple[int, int, str, Any]
"""HTTP status, code, text and data of an error that may be told."""
Verdict = Callable[[Exception, str], Told | None]
"""A wire's one table: what it tells of an error, whose text is given, or None where nobody may know."""
Dress = Callable[[dict[str, Any]], dict[str, Any]]
"""What a wire adds to every complete result."""


def unreadable(error: ValueError) -> MalformedMessage:
    """What to say of bytes that are no JSON."""
    return MalformedMessage(f"Parse error: {error}", parsed=False)


def result_reply(request_id: Any, result: Mapping[str, Any]) -> bytes:
    """A response."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_reply(request_id: Any, status: int, code: int, message: str, data: Any = None) -> Reply:
    """An error response; without an id where there is none to echo."""
    error: dict[str, Any] = {"code": code, "message": _clean(message)}
    if data is not None:
        error["data"] = data
    body: dict[str, Any] = {"jsonrpc": "2.0", "error": error}
    if request_id is not None:
        body["id"] = request_id
    try:
        return Reply(status, encode(body, default=str), _LATER if status == 503 else ())
    except (TypeError, ValueError, RecursionError):
        log.exception("the data of an error cannot be written as JSON")
        del error["data"]
        return Reply(status, encode(body))


def refuse(message: Any, error: Exception, verdict: Verdict, dress: Dress) -> Reply:
    """The reply that an exception becomes."""
    request_id, end = readable_id(message), judged(message, error, verdict)
    return Reply(200, result_reply(request_id, dress(end))) if isinstance(end, dict) else error_reply(request_id, *end)


def judged(message: Any, error: Exception, verdict: Verdict) -> dict[str, Any] | Told:
    """What becomes of an exception. A tool that fails has a result that says so."""
    method = message.get("method") if isinstance(message, dict) else None
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, ToolError) and method == "tools/call":
        return _tool_error(_words(error))
    told = verdict(error, _words(error) if isinstance(error, TurnwiseError) else "")
    if told is not None:
        if isinstance(error, InvalidRequestState):
            log.warning("requestState refused on %s: %s", method, error.reason)
        return told
    log.error("%s %r failed", method, _target(message), exc_info=error)
    if method == "tools/call":
        return _tool_error("The tool failed; the server's log says why.")
    return 200, -32603, "Internal error"


def readable_id(message: Any) -> str | int | None:
    """The id to echo. A response has one too, but not one of a request to us."""
    if not isinstance(message, dict) or ("method" not in message and message.keys() & {"result", "error"}):
        return None
    request_id = message.get("id")
    return request_id if type(request_id) in (str, int) else None


def _target(message: Any) -> Any:
    params = message.get("params") if isinstance(message, dict) else None
    return params.get(TARGETS.get(message.get("method"), "")) if isinstance(params, dict) else None


def _tool_error(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": _clean(text)}], "isError": True}


def _words(error: Exception) -> str:
    try:
        return str(error.message if isinstance(error, MCPError) and error.advice else error)
    except Exception:  # An author's exception may do anything in its __str__.
        return type(error).__name__


def _clean(text: str) -> str:
    """Text that can be written as UTF-8."""
    return text.encode("utf-8", "replace").decode()
