"""Turnwise: MCP servers whose tools can ask, and clients that answer. Write inline, run stateless.

All that is public is here. The client, and the official protocol types, are imported when first used: a server does not
pay for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._binding import Resolve
from ._budgets import Budget
from ._bus import Change, InMemoryBus, SubscriptionBus
from ._guards import Begun, FlowStore, Known, MemoryStore, Running
from ._messages import (
    AcceptedElicitation,
    AcceptedUrlElicitation,
    Ask,
    CacheHint,
    CancelledElicitation,
    Channel,
    DeclinedElicitation,
    Done,
    Elicit,
    ElicitationResult,
    ElicitURL,
    Incoming,
    Lasting,
    ListRoots,
    Outcome,
    Outgoing,
    Sample,
    Yield,
)
from ._noting import Observer, StepObserver
from ._sealed import RequestStateSecurity, StateCodec
from ._sessions import SessionLimits
from ._shedding import Load, Overload
from ._steps import step
from ._version import __version__ as __version__
from .auth import AccessToken, AuthSettings, TokenVerifier
from .context import Context
from .dialects.content import AssistantMessage, Audio, Image, Message, UserMessage
from .errors import (
    AlreadyAnswered,
    AuthorError,
    AuthorizationFailed,
    BeingCarriedOn,
    CallbackFailed,
    CallerError,
    ClientRefused,
    ConnectionLost,
    DeadlineExceeded,
    Declined,
    EffectUnknown,
    EndlessFlow,
    HandOverFailed,
    HandshakeRequired,
    InboxFailed,
    InvalidAnswer,
    InvalidArguments,
    InvalidParams,
    InvalidReply,
    InvalidRequestState,
    InvalidSignature,
    LedgerTooLarge,
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
    StoreFull,
    TaskCancelled,
    ToolError,
    TooManyRounds,
    TurnwiseError,
    Unanswerable,
    UnexpectedStatus,
    UnknownInputRequest,
    UnknownPending,
    UnknownResultType,
    UnsupportedVersion,
    URLElicitationRequired,
    VerifierUnavailable,
    VisitDeclined,
)
from .server import MCPServer
from .tasks.dispatch import Dispatcher
from .tasks.model import Claim, Limits, LostLease, NewTask, Task, TaskStore, Telling
from .tasks.options import TaskOptions
from .tasks.runtime import Tasks
from .tasks.sqlite import SQLiteTaskStore
from .transports.turnstile import RequestLimits

if TYPE_CHECKING:
    from mcp_types import Icon, InputRequiredResult

    from ._caching import ResponseCache
    from ._following import TaskInHand
    from ._inboxing import InboxItem
    from ._jwt import JWTVerifier
    from ._listening import Subscription
    from ._pending import Pending, PendingStore
    from ._pending_store import SQLitePendingStore
    from .client import Client
    from .dialects.answering import Asking
    from .dialects.tasking_client import TaskStatus
    from .metrics import PrometheusMetrics
    from .stores.postgres import PostgresStore
    from .stores.redis import RedisStore
    from .stores.sqlite import SQLiteStore
    from .sync import SyncClient
    from .tasks.pgqueuer import PgQueuerDispatcher
    from .tasks.postgres import PostgresTaskStore
    from .telemetry import OpenTelemetry
    from .transports.http import HTTP
    from .transports.process import Command

__all__ = [
    "HTTP",
    "AcceptedElicitation",
    "AcceptedUrlElicitation",
    "AccessToken",
    "AlreadyAnswered",
    "Ask",
    "Asking",
    "AssistantMessage",
    "Audio",
    "AuthSettings",
    "AuthorError",
    "AuthorizationFailed",
    "Begun",
    "BeingCarriedOn",
    "Budget",
    "CacheHint",
    "CallbackFailed",
    "CallerError",
    "CancelledElicitation",
    "Change",
    "Channel",
    "Claim",
    "Client",
    "ClientRefused",
    "Command",
    "ConnectionLost",
    "Context",
    "DeadlineExceeded",
    "Declined",
    "DeclinedElicitation",
    "Dispatcher",
    "Done",
    "EffectUnknown",
    "Elicit",
    "ElicitURL",
    "ElicitationResult",
    "EndlessFlow",
    "FlowStore",
    "HandOverFailed",
    "HandshakeRequired",
    "Icon",
    "Image",
    "InMemoryBus",
    "InboxFailed",
    "InboxItem",
    "Incoming",
    "InputRequiredResult",
    "InvalidAnswer",
    "InvalidArguments",
    "InvalidParams",
    "InvalidReply",
    "InvalidRequestState",
    "InvalidSignature",
    "JWTVerifier",
    "Known",
    "Lasting",
    "LedgerTooLarge",
    "Limits",
    "ListRoots",
    "Load",
    "LostLease",
    "MCPError",
    "MCPServer",
    "MalformedQuestion",
    "MemoryStore",
    "Message",
    "MissingClientCapability",
    "NewTask",
    "Observer",
    "OpenTelemetry",
    "Outcome",
    "Outgoing",
    "Overload",
    "PeerError",
    "Pending",
    "PendingStore",
    "PgQueuerDispatcher",
    "PostgresStore",
    "PostgresTaskStore",
    "PrometheusMetrics",
    "RedirectRefused",
    "RedisStore",
    "ReplayMismatch",
    "RequestLimits",
    "RequestStateSecurity",
    "Resolve",
    "ResourceNotFound",
    "ResponseCache",
    "RoundOver",
    "Running",
    "SQLitePendingStore",
    "SQLiteStore",
    "SQLiteTaskStore",
    "Sample",
    "SessionLimits",
    "StateCodec",
    "StateExpired",
    "StepFailed",
    "StepObserver",
    "StoreFull",
    "Subscription",
    "SubscriptionBus",
    "SyncClient",
    "Task",
    "TaskCancelled",
    "TaskInHand",
    "TaskOptions",
    "TaskStatus",
    "TaskStore",
    "Tasks",
    "Telling",
    "TokenVerifier",
    "TooManyRounds",
    "ToolError",
    "TurnwiseError",
    "URLElicitationRequired",
    "Unanswerable",
    "UnexpectedStatus",
    "UnknownInputRequest",
    "UnknownPending",
    "UnknownResultType",
    "UnsupportedVersion",
    "UserMessage",
    "VerifierUnavailable",
    "VisitDeclined",
    "Yield",
    "step",
]


_LATER = {
    "Asking": "turnwise.dialects.answering",
    "Client": "turnwise.client",
    "Command": "turnwise.transports.process",
    "HTTP": "turnwise.transports.http",
    "Icon": "mcp_types",
    "InboxItem": "turnwise._inboxing",
    "InputRequiredResult": "mcp_types",
    "JWTVerifier": "turnwise._jwt",
    "OpenTelemetry": "turnwise.telemetry",
    "Pending": "turnwise._pending",
    "PendingStore": "turnwise._pending",
    "PgQueuerDispatcher": "turnwise.tasks.pgqueuer",
    "PostgresStore": "turnwise.stores.postgres",
    "PostgresTaskStore": "turnwise.tasks.postgres",
    "PrometheusMetrics": "turnwise.metrics",
    "RedisStore": "turnwise.stores.redis",
    "ResponseCache": "turnwise._caching",
    "SQLiteStore": "turnwise.stores.sqlite",
    "SQLitePendingStore": "turnwise._pending_store",
    "Subscription": "turnwise._listening",
    "SyncClient": "turnwise.sync",
    "TaskInHand": "turnwise._following",
    "TaskStatus": "turnwise.dialects.tasking_client",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
