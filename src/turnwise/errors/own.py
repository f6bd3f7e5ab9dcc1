"""What is wrong on this side: an author's words to the model, and mistakes of authors and of who uses a client."""

from collections.abc import Sequence
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


class VerifierUnavailable(TurnwiseError):
    """Whoever could tell if a token is valid does not answer; the client should come back later."""

    def __init__(self, message: str, *, retry_after: int = 10) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AuthorError(TurnwiseError):
    """The server's code is at fault; the wire learns nothing but that the call failed."""


class InvalidSignature(AuthorError, TypeError):
    """A function cannot be served as a tool, prompt or resource as it is written. `where` is its file and line."""

    where: str | None = None


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

    def __init__(self, what: str = "its context cannot ask or record any more") -> None:
        super().__init__(f"this round has ended; {what}: a question belongs to a request that is under way (SEP-2260)")


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

    def __init__(self, key: str, reason: str, asked: str | None = None) -> None:
        self.key = key
        self.reason = reason
        question = "" if asked is None else f" ({asked if len(asked) <= 80 else asked[:80] + '...'})"
        super().__init__(f"the answer to {key!r}{question} does not fit: {reason}")


class AlreadyAnswered(CallerError):
    """A waiting call was answered, or is being carried on, by somebody else."""

    def __init__(self, pending_id: str, what: str) -> None:
        self.pending_id = pending_id
        super().__init__(f"call {pending_id}: {what}")


class BeingCarriedOn(AlreadyAnswered):
    """Another process carries the call on. If it died, the call can be taken when its claim has run out."""


class HandOverFailed(CallerError):
    """An inbox does not take a call, or cannot be reached. `call` is the call, as it was to be handed over."""

    def __init__(self, call: Any, reason: str) -> None:
        self.call = call
        super().__init__(f"call {call.id} was not handed over: {reason}")


class StoreFull(CallerError):
    """A store takes no more large entries. Tokens stay as large as they are; `Budget.max_bytes` says how large."""


class UnknownPending(CallerError, LookupError):
    """No call with this id is waiting: it is finished, was forgotten, or never was."""

    def __init__(self, pending_id: str) -> None:
        self.pending_id = pending_id
        super().__init__(f"no call with the id {pending_id} is waiting")
