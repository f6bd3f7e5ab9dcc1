"""What the wires that open with `initialize` tell of an error."""

import uuid
from typing import Any

from ..errors import (
    InvalidArguments,
    InvalidParams,
    InvalidRequestState,
    MalformedMessage,
    MCPError,
    MissingClientCapability,
    ResourceNotFound,
    ToolError,
    TooManySessions,
    UnknownMethod,
    UnknownSession,
    UnsupportedVersion,
    URLElicitationRequired,
)
from .replying import Told

_TABLE: tuple[tuple[type[Exception], int, int], ...] = (
    (UnsupportedVersion, 400, -32600),
    (UnknownSession, 404, -32600),
    (TooManySessions, 503, -32000),
    (UnknownMethod, 200, -32601),
    (ResourceNotFound, 200, -32002),
    (InvalidParams, 200, -32602),
    (MissingClientCapability, 200, -32602),
    (InvalidArguments, 200, -32602),
    (ToolError, 200, -32603),
)


def verdict(error: Exception, text: str) -> Told | None:
    """The one table of these wires."""
    match error:
        case URLElicitationRequired():
            return 200, -32042, text, {"elicitations": [_page(found) for found in error.elicitations]}
        case MCPError():
            return 200, error.code, text, error.data
        case MalformedMessage():
            return error.status, -32600 if error.parsed else -32700, text
        case InvalidRequestState():
            return 200, -32602, "Invalid or expired requestState"
    for kind, status, code in _TABLE:
        if isinstance(error, kind):
            return status, code, text, error.data if isinstance(error, InvalidParams) else None
    return None


def _page(found: Any) -> dict[str, Any]:
    name = found.elicitation_id or uuid.uuid4().hex
    return {"mode": "url", "message": found.message, "url": found.url, "elicitationId": name}
