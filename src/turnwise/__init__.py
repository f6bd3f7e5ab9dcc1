"""Turnwise: MCP servers whose tools can ask. Write inline, run stateless.

All that is public is here. The official protocol types are passed through from `mcp_types` when first used, because
importing them takes longer than everything else.
"""

from typing import TYPE_CHECKING, Any

from ._binding import Resolve
from ._bus import Change, InMemoryBus, SubscriptionBus
from ._messages import (
    AcceptedElicitation,
    AcceptedUrlElicitation,
    CacheHint,
    CancelledElicitation,
    DeclinedElicitation,
    Elicit,
    ElicitationResult,
    ElicitURL,
    ListRoots,
    Sample,
)
from ._sealed import RequestStateSecurity, StateCodec
from .auth import AccessToken, AuthSettings, TokenVerifier, VerifierUnavailable
from .context import Context
from .dialects.content import AssistantMessage, Audio, Image, Message, UserMessage
from .errors import (
    AuthorError,
    Declined,
    InvalidArguments,
    InvalidParams,
    InvalidRequestState,
    InvalidSignature,
    MCPError,
    MissingClientCapability,
    PeerError,
    ReplayMismatch,
    ResourceNotFound,
    RoundOver,
    StepFailed,
    ToolError,
    TooManyRounds,
    TurnwiseError,
    Unanswerable,
    UnknownResultType,
)
from .server import MCPServer

if TYPE_CHECKING:
    from mcp_types import InputRequiredResult

    from ._jwt import JWTVerifier

__version__ = "0.1.0"

__all__ = [
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "AccessToken",
    "AssistantMessage",
    "Audio",
    "AuthSettings",
    "AuthorError",
    "CacheHint",
    "CancelledElicitation",
    "Change",
    "Context",
    "Declined",
    "DeclinedElicitation",
    "Elicit",
    "ElicitURL",
    "ElicitationResult",
    "Image",
    "InMemoryBus",
    "InputRequiredResult",
    "InvalidArguments",
    "InvalidParams",
    "InvalidRequestState",
    "InvalidSignature",
    "JWTVerifier",
    "ListRoots",
    "MCPError",
    "MCPServer",
    "Message",
    "MissingClientCapability",
    "PeerError",
    "ReplayMismatch",
    "RequestStateSecurity",
    "Resolve",
    "ResourceNotFound",
    "RoundOver",
    "Sample",
    "StateCodec",
    "StepFailed",
    "SubscriptionBus",
    "TokenVerifier",
    "TooManyRounds",
    "ToolError",
    "TurnwiseError",
    "Unanswerable",
    "UnknownResultType",
    "UserMessage",
    "VerifierUnavailable",
]


def __getattr__(name: str) -> Any:
    if name == "JWTVerifier":
        from ._jwt import JWTVerifier

        return JWTVerifier
    if name == "InputRequiredResult":
        from mcp_types import InputRequiredResult

        return InputRequiredResult
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
