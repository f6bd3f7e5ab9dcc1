"""The words that the rooms share: what is called, what is asked, what comes of it.

Plain records. They know no wire format, no transport and no clock.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, NotRequired, Protocol, Required

from typing_extensions import TypedDict, TypeVar

if TYPE_CHECKING:
    from mcp_types import IncludeContext, ModelPreferences, SamplingMessage, Tool, ToolChoice

T = TypeVar("T", default=Any)

Emit = Callable[[bytes], Awaitable[None]]


class Identity(Protocol):
    """Who is calling, as an access token says: `principal` is the same for every token of one person and client."""

    @property
    def principal(self) -> str:
        """Client, issuer and subject in one text."""
        ...


class Tracker(Protocol):
    """Which requests are under way, for transports on which many share one channel."""

    def begin(self, request_id: str | int) -> None:
        """The current task serves this request; MalformedMessage if another one does."""
        ...

    def cancel(self, request_id: str | int) -> None:
        """Stop serving it, if it is known."""
        ...


class Line:
    """A lasting connection on which many requests share one channel. `emit` says something unasked; `session` is what a
    wire keeps of the connection between messages; `cut`, where there is one, ends the connection and not the request.
    """

    __slots__ = ("cut", "emit", "session")

    def __init__(self, emit: Emit, cut: Callable[[], None] | None = None) -> None:
        self.emit = emit
        self.cut = cut
        self.session: Any = None


@dataclass(slots=True)  # Like `Call` and `Question` a value, but for its pace; frozen, it would take longer to make.
class Post:
    """One message as it reached a transport. `headers` is None where the transport has none; `task` is the one that
    serves it, where the transport knows; `line` is the connection that it came over, where that lasts.
    """

    body: bytes
    emit: Emit
    now: float
    headers: Mapping[bytes, bytes] | None = None
    access: Identity | None = None
    tracker: Tracker | None = None
    task: "asyncio.Task[Any] | None" = None
    line: Line | None = None
    pace: Any = None
    """How often this request was told how far it has come, on wires where one request has several rounds too."""


class Reply(NamedTuple):
    """What goes back: a JSON body, or None where nothing may be answered. `events` are whole server-sent events, in
    place of a body; `headers` go with either.
    """

    status: int
    body: bytes | None
    headers: Sequence[tuple[bytes, bytes]] = ()
    events: AsyncGenerator[bytes, None] | None = None


@dataclass(slots=True)
class Call:
    """One request, decoded: the method, what it is aimed at, and what the client says of itself. `state` is the token
    that it brought, or the flow's ledger itself where the call is `held`: it waits here for its answers.
    """

    id: str | int
    method: str
    params: Mapping[str, Any]
    target: str
    arguments: dict[str, Any]
    answers: Mapping[str, Any]
    state: Any
    meta: Mapping[str, Any]
    capabilities: Mapping[str, Any]
    version: str
    post: Post
    held: bool = False


@dataclass(slots=True)
class Question:
    """Something that only the client's side can answer.

    `key` names it on the wire, `params` is the request as the client sees it, `needs` the capability it takes,
    and `read` turns an answer into the author's value or raises ValueError. `tidy` keeps of an answer what is worth
    recording, as the ledger has it: its kind and its value. `quick` is there for forms, and gives the data of one that
    was accepted where that takes no detours. `name` is what the author calls a page, on wires where pages have names.
    """

    key: str
    method: str
    params: Mapping[str, Any]
    needs: Mapping[str, Any]
    fingerprint: str
    read: Callable[[Any], Any]
    tidy: Callable[[Any], tuple[str, Any]]
    quick: Any = None
    name: str | None = None


_FORM_ONLY: Mapping[str, Any] = {"form": {}}
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def lacking(needs: Mapping[str, Any], declared: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the client would have to declare for a question and did not."""
    for name, parts in needs.items():
        have = declared.get(name)
        if type(have) is not dict:
            return needs
        # "an empty object is equivalent to declaring support for form mode only"
        if parts.keys() <= have.keys() or (not have and parts == _FORM_ONLY):
            continue
        return needs
    return _NOTHING


class Done(NamedTuple, Generic[T]):
    """The call is finished, with this result."""

    result: T


class Ask(NamedTuple):
    """The call needs answers first. `carrier` is the ledger, or the token that it was sealed into."""

    questions: Mapping[str, Question]
    carrier: Any


class Yield(NamedTuple):
    """The call is to be carried on by whoever gets the retry; nothing is asked."""

    carrier: Any


Outcome = Done[dict[str, Any]] | Ask | Yield


def result_type(outcome: Outcome) -> str:
    """What came of a round, in the word that the protocol has for it."""
    return "complete" if isinstance(outcome, Done) else "input_required"


class Outgoing(NamedTuple):
    """One request as it leaves a client. `headers` repeat the body for HTTP; `safe` says that sending it twice does
    no harm; `lasts` that it belongs to a session, so that a stream which breaks is taken up again, and hanging up
    cancels nothing. `marks` are the kinds of events that say something besides messages, and whether one ends the
    exchange.
    """

    id: str | int
    method: str
    body: bytes
    headers: Mapping[str, str]
    safe: bool
    lasts: bool = False
    marks: Mapping[str, bool] = MappingProxyType({})


class Mark(NamedTuple):
    """A server-sent event that is no message: its kind and its id are all it says."""

    kind: str
    id: str


class Incoming(NamedTuple):
    """What came back: the decoded message, its bytes, and such headers as advise what to do about it."""

    status: int
    message: Any
    raw: bytes
    headers: Mapping[str, str] | None = None


Notified = Callable[[Any], Awaitable[None]]


class Channel(Protocol):
    """A way to a server. One exchange is one request and its reply; what the server says meanwhile goes to `notified`,
    message by message. Cancelling an exchange tells the server.
    """

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """Send and wait; ConnectionLost, UnexpectedStatus, RedirectRefused or InvalidReply where no reply comes."""
        ...

    async def open(self) -> None:
        """Get ready; called once, before the first exchange."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...


class Lasting(Channel, Protocol):
    """A channel that can carry a session as well: messages without a reply, and what a server says unasked."""

    unasked: "Callable[[Any], None] | None"
    """Who is given what belongs to no request that is under way."""
    cancels: bool
    """Whether an exchange that is cancelled tells the server, also in a session."""

    async def ready(self) -> int:
        """The number of the connection; another one knows nothing of what was said on this."""
        ...

    async def tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send what has no reply; UnexpectedStatus where it is not taken."""
        ...

    async def watch(self, headers: Mapping[str, str], notified: Notified, opened: "Callable[[], None]") -> None:
        """Hear what the server says unasked, for as long as this lasts; `opened` is called when that begins."""
        ...

    async def leave(self, headers: Mapping[str, str]) -> None:
        """Tell the server that the session is over; it may not care."""
        ...


@dataclass(frozen=True, slots=True)
class Elicit(Generic[T]):
    """Ask the user to fill in a form; `schema` is a pydantic model or a dataclass, and for a single value a plain type,
    or a list of texts to choose from.
    """

    message: str
    schema: type[T] | list[T]
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ElicitURL:
    """Ask the user to visit a page; the answer says whether they agreed, not what they did there."""

    message: str
    url: str
    elicitation_id: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What a model request may say besides its messages."""

    max_tokens: int = 1024
    system_prompt: str | None = None
    include_context: "IncludeContext | None" = None
    temperature: float | None = None
    stop_sequences: "list[str] | None" = None
    metadata: "dict[str, Any] | None" = None
    model_preferences: "ModelPreferences | None" = None
    tools: "list[Tool] | None" = None
    tool_choice: "ToolChoice | None" = None


class SampleOptions(TypedDict, total=False):
    """The same for `ctx.sample`, without tools."""

    max_tokens: int
    system_prompt: str | None
    include_context: "IncludeContext | None"
    temperature: float | None
    stop_sequences: list[str] | None
    metadata: dict[str, Any] | None
    model_preferences: "ModelPreferences | None"


class SampleWithTools(SampleOptions):
    """The same with tools, which the model may use in its reply."""

    tools: "Required[list[Tool]]"
    tool_choice: "NotRequired[ToolChoice | None]"


@dataclass(frozen=True, slots=True)
class Sample(Sampling):
    """Ask the client's model; `messages` may be a plain text."""

    messages: "str | list[SamplingMessage]" = ""
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ListRoots:
    """Ask which folders the client works in."""

    key: str | None = None


Marker = Elicit[Any] | ElicitURL | Sample | ListRoots


@dataclass(slots=True)  # Made for every recorded answer in every round, and a frozen one takes twice as long.
class AcceptedElicitation(Generic[T]):
    """The user accepted; `data` is what they gave."""

    data: T
    action: Literal["accept"] = "accept"


@dataclass(frozen=True, slots=True)
class AcceptedUrlElicitation:
    """The user agreed to visit the page."""

    action: Literal["accept"] = "accept"


@dataclass(frozen=True, slots=True)
class DeclinedElicitation:
    """The user said no."""

    action: Literal["decline"] = "decline"


@dataclass(frozen=True, slots=True)
class CancelledElicitation:
    """The user closed the question without an answer."""

    action: Literal["cancel"] = "cancel"


ElicitationResult = AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation
UrlElicitationResult = AcceptedUrlElicitation | DeclinedElicitation | CancelledElicitation


@dataclass(frozen=True, slots=True)
class CacheHint:
    """How long a client may take a result for fresh, and whether it may be shared between users."""

    ttl_ms: int = 0
    scope: Literal["public", "private"] = "private"

    def __post_init__(self) -> None:
        if type(self.ttl_ms) is not int or self.ttl_ms < 0:
            raise ValueError(f"ttl_ms must be a whole number of milliseconds, 0 or more, not {self.ttl_ms!r}")
        if self.scope not in ("public", "private"):
            raise ValueError(f"scope must be 'public' or 'private', not {self.scope!r}")
