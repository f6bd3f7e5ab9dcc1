"""What the other side did wrong, or said."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from .own import TurnwiseError


class PeerError(TurnwiseError):
    """The other side sent something wrong, or said no."""


class MCPError(PeerError):
    """A JSON-RPC error with a code of its own. `message` is the peer's; `advice`, for who reads it here, is shown after
    it and sent to nobody.
    """

    advice: str | None = None

    def __init__(self, code: int, message: str, data: Any = None, advice: str | None = None) -> None:
        self.code = code
        self.message = message
        self.data = data
        self.advice = advice
        super().__init__(message if not advice else f"{message} ({advice})")


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
        super().__init__("Session not found: it has ended, or was opened at another instance; initialize opens one")


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
        names = [f"{name}.{part}" for name, parts in required.items() for part in parts or ()]
        names += [name for name, parts in required.items() if not parts]
        super().__init__(f"The client did not declare a required capability: {', '.join(sorted(names))}")


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

    @property
    def retry_after(self) -> int | None:
        """After how many seconds to come again, where a server that has too much to do says so."""
        told = next((value for name, value in self.headers.items() if name.lower() == "retry-after"), "").strip()
        is_told = self.status in (429, 503) and told.isascii() and told.isdigit() and len(told) < 10
        return int(told) if is_told else None


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


class InboxFailed(PeerError):
    """A call that was handed over to an inbox came to an end without a result: it was withdrawn, it expired, or it
    failed. `status` says which, as the inbox does.
    """

    def __init__(self, item_id: str, status: str, reason: str) -> None:
        self.item_id = item_id
        self.status = status
        super().__init__(f"call {item_id} came to no result in the inbox: {reason}")


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
    """The time for one request, or for a whole call, is over. The server was told to stop; a call that waits in an
    inbox by then stays there, and `item` is where.
    """

    def __init__(self, reason: str, item: Any = None) -> None:
        self.item = item
        super().__init__(reason)


class HandshakeRequired(PeerError):
    """The server does not answer in a version without a handshake."""


Kind = Literal["format", "key", "changed", "claims", "expired", "deadline", "store", "codec"]
"""Why a token is refused, in a word."""


class InvalidRequestState(PeerError):
    """A token that was not minted here, or not for this call. The reason is for the log alone; `kind` is the reason in
    a word, for counting: format, key, changed, claims, expired, deadline, store or codec.
    """

    def __init__(self, reason: str = "not a token of this server", kind: Kind = "format") -> None:
        self.reason = reason
        self.kind = kind
        super().__init__(reason)
