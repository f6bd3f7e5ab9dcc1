"""Turnwise: MCP servers whose tools can ask, and clients that answer. Write inline, run stateless.

All that is public is here. The client, and the official protocol types, are imported when first used: a server does not
pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._binding import Resolve
from ._bus import Change, InMemoryBus, SubscriptionBus
from ._messages import (
    AcceptedElicitation,
    AcceptedUrlElicitation,
    CacheHint,
    CancelledElicitation,
    Channel,
    DeclinedElicitation,
    Done,
    Elicit,
    ElicitationResult,
    ElicitURL,
    Incoming,
    ListRoots,
    Outgoing,
    Sample,
)
from ._sealed import RequestStateSecurity, StateCodec
from .auth import AccessToken, AuthSettings, TokenVerifier, VerifierUnavailable
from .context import Context
from .dialects.content import AssistantMessage, Audio, Image, Message, UserMessage
from .errors import (
    AlreadyAnswered,
    AuthorError,
    AuthorizationFailed,
    BeingCarriedOn,
    CallbackFailed,
    CallerError,
    ConnectionLost,
    DeadlineExceeded,
    Declined,
    HandshakeRequired,
    InvalidAnswer,
    InvalidArguments,
    InvalidParams,
    InvalidReply,
    InvalidRequestState,
    InvalidSignature,
    MalformedQuestion,
    MCPError,
    MissingClientCapability,
    PeerError,
    RedirectRefused,
    ReplayMismatch,
    ResourceNotFound,
    RoundOver,
    StateExpired,
    StepFailed,
    ToolError,
    TooManyRounds,
    TurnwiseError,
    Unanswerable,
    UnexpectedStatus,
    UnknownInputRequest,
    UnknownPending,
    UnknownResultType,
    UnsupportedVersion,
)
from .server import MCPServer

if TYPE_CHECKING:
    from mcp_types import InputRequiredResult

    from ._caching import ResponseCache
    from ._jwt import JWTVerifier
    from ._listening import Subscription
    from ._pending import Pending, PendingStore
    from ._pending_store import SQLitePendingStore
    from .client import Client
    from .dialects.answering import Asking
    from .sync import SyncClient
    from .transports.http import HTTP
    from .transports.process import Command

__version__ = "0.1.0"

__all__ = [
    "HTTP",
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "AccessToken",
    "AlreadyAnswered",
    "Asking",
    "AssistantMessage",
    "Audio",
    "AuthSettings",
    "AuthorError",
    "AuthorizationFailed",
    "BeingCarriedOn",
    "CacheHint",
    "CallbackFailed",
    "CallerError",
    "CancelledElicitation",
    "Change",
    "Channel",
    "Client",
    "Command",
    "ConnectionLost",
    "Context",
    "DeadlineExceeded",
    "Declined",
    "DeclinedElicitation",
    "Done",
    "Elicit",
    "ElicitURL",
    "ElicitationResult",
    "HandshakeRequired",
    "Image",
    "InMemoryBus",
    "Incoming",
    "InputRequiredResult",
    "InvalidAnswer",
    "InvalidArguments",
    "InvalidParams",
    "InvalidReply",
    "InvalidRequestState",
    "InvalidSignature",
    "JWTVerifier",
    "ListRoots",
    "MCPError",
    "MCPServer",
    "MalformedQuestion",
    "Message",
    "MissingClientCapability",
    "Outgoing",
    "PeerError",
    "Pending",
    "PendingStore",
    "RedirectRefused",
    "ReplayMismatch",
    "RequestStateSecurity",
    "Resolve",
    "ResourceNotFound",
    "ResponseCache",
    "RoundOver",
    "SQLitePendingStore",
    "Sample",
    "StateCodec",
    "StateExpired",
    "StepFailed",
    "Subscription",
    "SubscriptionBus",
    "SyncClient",
    "TokenVerifier",
    "TooManyRounds",
    "ToolError",
    "TurnwiseError",
    "Unanswerable",
    "UnexpectedStatus",
    "UnknownInputRequest",
    "UnknownPending",
    "UnknownResultType",
    "UnsupportedVersion",
    "UserMessage",
    "VerifierUnavailable",
]


_LATER = {
    "Asking": "turnwise.dialects.answering",
    "Client": "turnwise.client",
    "Command": "turnwise.transports.process",
    "HTTP": "turnwise.transports.http",
    "InputRequiredResult": "mcp_types",
    "JWTVerifier": "turnwise._jwt",
    "Pending": "turnwise._pending",
    "PendingStore": "turnwise._pending",
    "ResponseCache": "turnwise._caching",
    "SQLitePendingStore": "turnwise._pending_store",
    "Subscription": "turnwise._listening",
    "SyncClient": "turnwise.sync",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
