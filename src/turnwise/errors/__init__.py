"""Every exception of the library, in one tree.

    TurnwiseError
    ├── ToolError                    the author's words to the model: the one text of a handler that is sent
    │   ├── InvalidArguments         a call's arguments do not fit the signature
    │   ├── Declined                 a declared parameter was not given: the user declined or cancelled
    │   ├── EffectUnknown            a guarded step was begun earlier, and nobody knows what came of it
    │   └── ClientRefused            the client answered a question with an error
    ├── StepFailed                   a journaled step raised; the same on every replay
    ├── VerifierUnavailable          a token verifier that cannot know: the client gets 503, and comes back later
    ├── AuthorError                  your mistake, found at registration or while a round is played
    │   ├── InvalidSignature         a function cannot be served as it is written
    │   ├── ReplayMismatch           a recorded step was called again with other arguments
    │   ├── LedgerTooLarge           a flow recorded more than a token may carry
    │   ├── EndlessFlow              a flow went round more often than its budget allows
    │   └── RoundOver                a context was used after its round had ended
    ├── CallerError                  the mistake of who uses a client
    │   ├── CallbackFailed           a callback raised, or gave no answer
    │   ├── InvalidAnswer            an answer that does not fit its question; it was not sent
    │   ├── AlreadyAnswered          somebody else was quicker
    │   │   └── BeingCarriedOn       somebody else has the call at this moment, or died with it a moment ago
    │   ├── HandOverFailed           a call that an inbox did not take; it is in the exception
    │   ├── StoreFull                a store that takes no more large entries; the tokens stay large
    │   └── UnknownPending           no call with this id is waiting
    └── PeerError                    the peer's mistake, or the peer's word
        ├── MCPError                 a JSON-RPC error: raised by an author to send one, or received
        │   ├── StateExpired         a server that no longer takes the state of a call
        │   ├── URLElicitationRequired  pages that the user has to visit before the call can be served
        │   └── VisitDeclined        the user did not agree to visit such a page
        ├── MalformedMessage         bytes that are no request of the protocol
        ├── UnknownSession           a session that has ended, or never was
        ├── TooManySessions          more clients than a server keeps sessions for
        ├── HeaderMismatch           HTTP headers that contradict the body
        ├── UnsupportedVersion       a protocol version that is not served here
        ├── UnknownMethod            a method that nobody serves
        ├── InvalidParams            parameters of the wrong shape, an unknown name, a stale cursor
        │   └── ResourceNotFound     no resource has this URI
        ├── MissingClientCapability  a question that this client did not declare it can answer
        ├── UnknownResultType        a result of a kind that the protocol does not have
        ├── TooManyRounds            a server that goes on asking
        ├── Unanswerable             a question for which there is no callback
        ├── UnknownInputRequest      a question of a kind that the protocol does not have
        ├── MalformedQuestion        a question that cannot be put to anybody
        ├── InvalidReply             an answer that is no reply to the request
        ├── UnexpectedStatus         an HTTP status without an error of the protocol
        ├── AuthorizationFailed      the authorization that a server wants was not to be had
        ├── RedirectRefused          a redirect that is not followed
        ├── BecameTask               a task in place of a result; inside of a client only
        ├── TaskCancelled            a task that was stopped
        ├── InboxFailed              a call that came to no result in the inbox it was handed over to
        ├── ConnectionLost           nobody there, or the line broke before the reply
        ├── DeadlineExceeded         no result in the time that was given
        ├── HandshakeRequired        a server of an older version, which wants `initialize` first
        └── InvalidRequestState      a token that was changed, expired, or belongs to another call

The room knows no error codes and no HTTP statuses: each dialect has one table for those.
"""

from .own import (
    AlreadyAnswered,
    AuthorError,
    BeingCarriedOn,
    CallbackFailed,
    CallerError,
    ClientRefused,
    Declined,
    EffectUnknown,
    EndlessFlow,
    HandOverFailed,
    InvalidAnswer,
    InvalidArguments,
    InvalidSignature,
    LedgerTooLarge,
    ReplayMismatch,
    RoundOver,
    StepFailed,
    StoreFull,
    ToolError,
    TurnwiseError,
    UnknownPending,
    VerifierUnavailable,
)
from .peers import (
    AuthorizationFailed,
    BecameTask,
    ConnectionLost,
    DeadlineExceeded,
    HandshakeRequired,
    HeaderMismatch,
    InboxFailed,
    InvalidParams,
    InvalidReply,
    InvalidRequestState,
    MalformedMessage,
    MalformedQuestion,
    MCPError,
    MissingClientCapability,
    PeerError,
    RedirectRefused,
    ResourceNotFound,
    StateExpired,
    TaskCancelled,
    TooManyRounds,
    TooManySessions,
    Unanswerable,
    UnexpectedStatus,
    UnknownInputRequest,
    UnknownMethod,
    UnknownResultType,
    UnknownSession,
    UnsupportedVersion,
    URLElicitationRequired,
    VisitDeclined,
)

__all__ = [
    "AlreadyAnswered",
    "AuthorError",
    "AuthorizationFailed",
    "BecameTask",
    "BeingCarriedOn",
    "CallbackFailed",
    "CallerError",
    "ClientRefused",
    "ConnectionLost",
    "DeadlineExceeded",
    "Declined",
    "EffectUnknown",
    "EndlessFlow",
    "HandOverFailed",
    "HandshakeRequired",
    "HeaderMismatch",
    "InboxFailed",
    "InvalidAnswer",
    "InvalidArguments",
    "InvalidParams",
    "InvalidReply",
    "InvalidRequestState",
    "InvalidSignature",
    "LedgerTooLarge",
    "MCPError",
    "MalformedMessage",
    "MalformedQuestion",
    "MissingClientCapability",
    "PeerError",
    "RedirectRefused",
    "ReplayMismatch",
    "ResourceNotFound",
    "RoundOver",
    "StateExpired",
    "StepFailed",
    "StoreFull",
    "TaskCancelled",
    "TooManyRounds",
    "TooManySessions",
    "ToolError",
    "TurnwiseError",
    "URLElicitationRequired",
    "Unanswerable",
    "UnexpectedStatus",
    "UnknownInputRequest",
    "UnknownMethod",
    "UnknownPending",
    "UnknownResultType",
    "UnknownSession",
    "UnsupportedVersion",
    "VerifierUnavailable",
    "VisitDeclined",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # As users import them, and as tracebacks are to show them.
