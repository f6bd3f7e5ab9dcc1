"""Every exception of the library, in one tree.

    TurnwiseError
    ├── ToolError                    the author's words to the model: the one text of a handler that is sent
    │   ├── InvalidArguments         a call's arguments do not fit the signature
    │   ├── Declined                 a declared parameter was not given: the user declined or cancelled
    │   ├── EffectUnknown            a guarded step was begun earlier, and nobody knows what came of it
    │   └── ClientRefused            the client answered a question with an error
    ├── StepFailed                   a journaled step raised; the same on every replay
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
    │   └── UnknownPending           no call with this id is waiting
    └── PeerError                    the peer's mistake, or the peer's word
        ├── MCPError                 a JSON-RPC error: raised by an author to send one, or received
        │   ├── StateExpired         a server that no longer takes the state of a call
        │   └── URLElicitationRequired  pages that the user has to visit before the call can be served
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
        ├── ConnectionLost           nobody there, or the line broke before the reply
        ├── DeadlineExceeded         no result in the time that was given
        ├── HandshakeRequired        a server of an older version, which wants `initialize` first
        └── InvalidRequestState      a token that was changed, expired, or belongs to another call

The room knows no error codes and no HTTP statuses: each dialect has one table for those.
"""

from collections.abc import Mapping, Sequence
from typing import Any


class TurnwiseError(Exception):
    """The root of the tree."""


class ToolError(TurnwiseError):
    """Raised by an author: the text becomes the tool's error result, for the model to read."""


class InvalidArguments(ToolError):
    """The arguments of a call do not fit the function's signature."""


class Declined(ToolError):
    """The user declined or cancelled a question whose answer a parameter needs."""


class EffectUnknown(ToolError):
    """A step with `once=True` was begun before and did not report. Doing it again could double it; saying that it was
    done could be a lie. Ask the service that was called, by the step's idempotency key, or hand it to a person.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"It is not known whether {what!r} was done: it was begun earlier and did not report.")


class ClientRefused(ToolError):
    """The client answered a question with an error in place of an answer, which only wires with a handshake let it."""

    def __init__(self, method: str, code: Any, message: Any) -> None:
        self.method = method
        self.code = code
        super().__init__(f"The client did not answer {method}: {message} ({code})")


class StepFailed(TurnwiseError):
    """What a failed step raises, in the round where it ran and in every replay: the error's kind and text."""

    def __init__(self, key: str, kind: str, text: str) -> None:
        self.key = key
        self.kind = kind
        self.text = text
        super().__init__(f"step {key!r} failed with {kind}: {text}")


class AuthorError(TurnwiseError):
    """The server's code is at fault; the wire learns nothing but that the call failed."""


class InvalidSignature(AuthorError, TypeError):
    """A function cannot be served as a tool, prompt or resource as it is written."""


class ReplayMismatch(AuthorError):
    """A step already ran under other arguments; running it again could double its effect."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"step {key!r} ran earlier in this flow with other arguments; "
            'pass name= to tell two steps apart, or on_change="rerun" if running it again is harmless'
        )


class LedgerTooLarge(AuthorError):
    """A flow's token would be larger than the budget allows."""

    def __init__(self, size: int, limit: int, largest: Sequence[tuple[str, int]]) -> None:
        self.size = size
        self.largest = tuple(largest)
        names = ", ".join(f"{key!r} ({count} bytes)" for key, count in largest)
        super().__init__(
            f"the flow's token has {size} bytes, at most {limit} are allowed; its largest entries: {names}. "
            "Let steps return less (an id in place of a document), bound long answers (max_length), or give the "
            "server a store: MCPServer(store=...)"
        )


class EndlessFlow(AuthorError):
    """A flow was still asking when the rounds of its budget were used up."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        super().__init__(f"the flow asked {rounds} times without an end; does a question change in every round?")


class RoundOver(AuthorError):
    """A context was used by a task that outlived the round it belongs to."""


class CallerError(TurnwiseError):
    """The code that uses a client is at fault; what was answered before is kept."""


class CallbackFailed(CallerError):
    """The callback for a question raised, and the cause is chained; or it gave an error in place of an answer, and
    `told` is that.
    """

    def __init__(self, key: str, method: str, reason: str, told: Any = None) -> None:
        self.key = key
        self.method = method
        self.told = told
        super().__init__(f"the callback for {method} (question {key!r}) failed: {reason}")


class InvalidAnswer(CallerError):
    """An answer does not fit the question. It was not sent."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"the answer to {key!r} does not fit: {reason}")


class AlreadyAnswered(CallerError):
    """A waiting call was answered, or is being carried on, by somebody else."""

    def __init__(self, pending_id: str, what: str) -> None:
        self.pending_id = pending_id
        super().__init__(f"call {pending_id}: {what}")


class BeingCarriedOn(AlreadyAnswered):
    """Another process carries the call on. If it died, the call can be taken when its claim has run out."""


class UnknownPending(CallerError, LookupError):
    """No call with this id is waiting: it is finished, was forgotten, or never was."""

    def __init__(self, pending_id: str) -> None:
        self.pending_id = pending_id
        super().__init__(f"no call with the id {pending_id} is waiting")


class PeerError(TurnwiseError):
    """The other side sent something wrong, or said no."""


class MCPError(PeerError):
    """A JSON-RPC error with a code of its own."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        super().__init__(message)


class StateExpired(MCPError):
    """The server refuses the state that a call was put down with: it waited too long, or the keys changed."""


class URLElicitationRequired(MCPError):
    """Raised by an author: the call can be served only after the user has visited these pages.

    Clients of 2025-11-25 get an error that says so, and call again. Others are asked, as by a returned question.
    """

    def __init__(self, elicitations: "Sequence[Any]", message: str = "URL elicitation required") -> None:
        self.elicitations = tuple(elicitations)
        if not self.elicitations:
            raise ValueError("URLElicitationRequired names at least one page")
        super().__init__(-32042, message)


class VisitDeclined(MCPError):
    """The server does the call only after a page was visited, and the user did not agree to that."""


class MalformedMessage(PeerError):
    """The bytes are not JSON (`parsed` is false), or not one request or notification."""

    def __init__(self, message: str, *, parsed: bool = True, status: int = 400) -> None:
        self.parsed = parsed
        self.status = status
        super().__init__(message)


class UnknownSession(PeerError):
    """The request names a session that is not this caller's, or no longer there."""

    def __init__(self) -> None:
        super().__init__("Session not found: it has ended, and a new one is opened with initialize")


class TooManySessions(PeerError):
    """No session can be opened, or no call in this one, before others end."""

    def __init__(self, most: int, what: str = "sessions") -> None:
        self.most = most
        super().__init__(f"Too many {what}: at most {most} at a time")


class HeaderMismatch(PeerError):
    """A mirrored HTTP header is missing, malformed, or differs from the body."""


class UnsupportedVersion(PeerError):
    """The request names a protocol version that this server does not speak."""

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        self.requested = requested
        self.supported = tuple(supported)
        super().__init__(f"Unsupported protocol version: {requested}")


class UnknownMethod(PeerError):
    """Nobody serves this method."""

    def __init__(self, method: str) -> None:
        self.method = method
        super().__init__(f"Method not found: {method}")


class InvalidParams(PeerError):
    """The parameters are of the wrong shape; `status` is 400 where the request itself is malformed."""

    def __init__(self, message: str, *, data: Any = None, status: int = 200) -> None:
        self.data = data
        self.status = status
        super().__init__(message)


class ResourceNotFound(InvalidParams):
    """No resource and no template matches the URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        super().__init__(f"Resource not found: {uri}", data={"uri": uri})


class MissingClientCapability(PeerError):
    """The client declared no support for what it would have to be asked."""

    def __init__(self, required: Mapping[str, Any]) -> None:
        self.required = dict(required)
        super().__init__(f"The client did not declare a required capability: {', '.join(sorted(required))}")


class UnknownResultType(PeerError):
    """The server's result is neither complete nor a question."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(f"the server sent a result of unknown type {kind!r}")


class TooManyRounds(PeerError):
    """The server was still asking when the rounds were used up."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        super().__init__(f"the server was still asking after {rounds} rounds")


class Unanswerable(PeerError):
    """The server asks something for which no callback was given. `is_live` where it asks while the call waits: such a
    call cannot be put down.
    """

    def __init__(self, key: str, method: Any, *, is_live: bool = False) -> None:
        self.key = key
        self.method = method
        self.is_live = is_live
        names = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "list_roots"}
        other = "; the server asks while the call waits, so it cannot be put down" if is_live else ", or use begin()"
        hint = f": pass {names[method]}_callback={other}" if method in names else ""
        super().__init__(f"no callback answers {method} (question {key!r}){hint}")


class UnknownInputRequest(PeerError):
    """The server asks with a method that no question of the protocol has."""

    def __init__(self, key: str, method: Any) -> None:
        self.key = key
        self.method = method
        super().__init__(f"the server asks {method!r} (question {key!r}), which is no input request of the protocol")


class MalformedQuestion(PeerError):
    """The server's question is not complete, or not safe to show."""

    def __init__(self, key: str, reason: str) -> None:
        self.key = key
        self.reason = reason
        super().__init__(f"the server's question {key!r} cannot be asked: {reason}")


class InvalidReply(PeerError):
    """What came back is no reply to the request: not JSON, of the wrong shape, or too large."""


class UnexpectedStatus(PeerError):
    """The server, or something before it, answered with a status that says what is wrong; `is_told` where it said so
    in the words of JSON-RPC.
    """

    def __init__(
        self, status: int, text: str = "", headers: Mapping[str, str] | None = None, *, is_told: bool = False
    ) -> None:
        self.status = status
        self.is_told = is_told
        self.text = text
        self.headers = dict(headers or {})
        super().__init__(f"HTTP {status}: {text}" if text else f"HTTP {status}")


class AuthorizationFailed(PeerError):
    """What was given as `auth` could not authorize a request; its own error is the cause."""


class BecameTask(PeerError):
    """A call was answered with a task in place of a result; whoever sent it knows what to do."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        self.result = result
        super().__init__("the call has become a task")


class TaskCancelled(PeerError):
    """A task was stopped before it came to a result."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(f"task {task_id} was cancelled")


class RedirectRefused(PeerError):
    """A redirect to another origin, or of a kind that changes the request. Nothing was sent there."""

    def __init__(self, status: int, location: str) -> None:
        self.status = status
        self.location = location
        super().__init__(f"HTTP {status}: the server redirects to {location!r}, which is not followed")


class ConnectionLost(PeerError):
    """The server could not be reached (`sent` is false), or the line broke and the request may have been served."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        self.reason = reason
        self.sent = sent
        super().__init__(reason)


class DeadlineExceeded(PeerError, TimeoutError):
    """The time for one request, or for a whole call, is over; the server was told to stop."""


class HandshakeRequired(PeerError):
    """The server does not answer in a version without a handshake."""


class InvalidRequestState(PeerError):
    """A token that was not minted here, or not for this call. The reason is for the log alone."""

    def __init__(self, reason: str = "not a token of this server") -> None:
        self.reason = reason
        super().__init__(reason)
