"""What a client is told, made into a channel to its server and the manners of its calls."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast, get_args

from ._caching import ResponseCache
from ._conversation import AnswerOrder, Callback, Manners, Progress, Wishes
from ._messages import Channel
from ._pending import PendingStore
from .dialects import calling
from .dialects.v2026_07_28_client import cancellation, owner
from .dialects.words import ELICIT, LEVELS, ROOTS, SAMPLE, Mode
from .transports.authorizing import Auth
from .transports.http import HTTP
from .transports.memory import Memory, Servable
from .transports.process import Command, Process

if TYPE_CHECKING:
    import mcp_types as types

Authorization = str | Callable[[], str | Awaitable[str]]
Target = str | Servable | Sequence[str] | Command | Channel


class ClientOptions(TypedDict, total=False):
    """What a client may be told besides its server."""

    elicitation_callback: Callback | None
    """`(asking, params)`, plain or async, which returns an `ElicitResult` or a dict."""
    sampling_callback: Callback | None
    """`(asking, params)`, plain or async, which returns a `CreateMessageResult` or a dict."""
    list_roots_callback: Callback | None
    """`(asking)`, plain or async, which returns a `ListRootsResult` or a dict."""
    logging_callback: Callback | None
    """`(params)`, plain or async: the server's log lines, of `log_level` and above."""
    log_level: "types.LoggingLevel | None"
    client_info: "types.Implementation | None"
    capabilities: Mapping[str, Any] | None
    """More capabilities than the callbacks stand for, as the wire writes them."""
    tasks: bool
    """Whether calls may become tasks of the server, which are followed to their end; so unless told."""
    input_required_max_rounds: int
    """How often a server may ask in one call; 10 unless told."""
    answer_order: AnswerOrder
    """Whether the callbacks of one round run together, or one by one in the order of the questions."""
    read_timeout_seconds: float | None
    """For each single request; 300 unless told, None for no limit."""
    deadline: float | None
    """Seconds for a whole call, with all its rounds and callbacks."""
    restart_expired: bool
    """Begin a call anew, once, where the server no longer takes its state; true unless told. An inbox does so only
    where this is given as true.
    """
    headers: Mapping[str, str] | None
    """More HTTP headers."""
    auth: Auth | None
    """Any `httpx2.Auth`, such as the official SDK's OAuth provider."""
    cache: bool | ResponseCache
    """Whether results are used again while the server calls them fresh; a cache to share with other clients."""
    mode: Mode
    """The version to speak; "auto" asks the server on entering and takes the newest that both have."""
    pending_store: PendingStore | None
    """Where `begin` and `resume` keep what waits."""
    raw_questions: bool
    """Whether calls that are put down may hold questions that are not what they claim to be, and can only be declined
    or cancelled: for who shows them as they came. So with an inbox; otherwise such a question ends the call.
    """
    inbox: str | None
    """The URL of an inbox: what no callback answers is asked there, and the call goes on from there."""
    inbox_token: str | None
    """The token that the inbox wants."""
    inbox_authorization: Authorization | None
    """The Authorization header that the inbox is to show to the server, where the server wants one; or a function,
    plain or async, which is asked for it again whenever the server no longer takes the last one. None is given to the
    inbox of its own accord.
    """
    review_samples: bool
    """Whether what `sampling_callback` says is a draft, which people see and may change in the inbox before the server
    gets it. Without a person nothing of it is sent.
    """


class ToolCallOptions(TypedDict, total=False):
    """What a single call may be told by name alone."""

    deadline: float | None
    meta: Mapping[str, Any] | None
    restart_expired: bool | None


class CallOptions(ToolCallOptions, total=False):
    """What a single call may be told besides."""

    read_timeout_seconds: float | None
    progress_callback: Progress | None


def check_options(options: ClientOptions) -> None:
    """ValueError where an option is not what it should be."""
    unknown = options.keys() - ClientOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"Client has no option {', '.join(sorted(unknown))}")
    rounds = options.get("input_required_max_rounds", 10)
    if type(rounds) is not int or rounds < 0:
        raise ValueError(f"input_required_max_rounds is a whole number, not {rounds!r}")
    if options.get("answer_order", "together") not in ("together", "one-by-one"):
        raise ValueError(f"answer_order is 'together' or 'one-by-one', not {options['answer_order']!r}")
    if options.get("mode", "auto") not in get_args(Mode):
        raise ValueError(f"mode is one of {', '.join(map(repr, get_args(Mode)))}, not {options['mode']!r}")
    if options.get("log_level") not in (None, *LEVELS):
        raise ValueError(f"log_level is one of {', '.join(LEVELS)}, not {options['log_level']!r}")
    for name, value in options.items():
        if name.endswith("_callback") and value is not None and not callable(value):
            raise TypeError(f"{name} is a function, not {type(value).__name__}")
    for name in ("read_timeout_seconds", "deadline"):
        seconds = options.get(name)
        if seconds is not None and not (isinstance(seconds, int | float) and seconds > 0):
            raise ValueError(f"{name} is a number of seconds above 0, or None, not {seconds!r}")


def connect(target: Target, options: ClientOptions) -> tuple[Channel, str | None]:
    """A channel to the server, and what the server is called."""
    headers, auth = options.get("headers"), options.get("auth")
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        http = HTTP(target, headers=headers, auth=auth)
        return http, http.url
    if headers is not None or auth is not None:
        raise ValueError("headers= and auth= belong to a URL; an HTTP(...) target is given its own")
    if isinstance(target, str):
        raise ValueError(f'not a URL: {target!r}; a command is a list, such as ["python", "server.py"]')
    if isinstance(target, HTTP):
        return target, target.url
    if isinstance(target, Command) or (isinstance(target, Sequence) and not isinstance(target, bytes)):
        command = target if isinstance(target, Command) else Command(tuple(target))
        return Process(command, owner, cancellation), " ".join(command.args)
    if hasattr(target, "wire"):
        return Memory(cast("Servable", target)), None
    if hasattr(target, "exchange"):
        return target, None
    raise TypeError(f"a client wants a URL, a server, a command or a channel, not {type(target).__name__}")


def remembered(target: Target, server: str | None) -> str | None:
    """By what a server is recognised when it is met again: its address, or how it is started. It is not for showing: a
    command may have secrets in it.
    """
    return repr((target, target.env)) if isinstance(target, Command) else server


def manners(options: ClientOptions, server: str | None) -> Manners:
    """How this client behaves."""
    given = {
        ELICIT: options.get("elicitation_callback"),
        SAMPLE: None if options.get("review_samples") else options.get("sampling_callback"),
        ROOTS: options.get("list_roots_callback"),
    }
    callbacks = {method: callback for method, callback in given.items() if callback is not None}
    more = options.get("capabilities")
    return Manners(
        callbacks=callbacks,
        capabilities=calling.declared(callbacks, more, tasks=options.get("tasks", True)),
        in_hand={
            **(calling.PEOPLE if options.get("inbox") is not None else {}),
            **calling.declared({ELICIT, *callbacks}, more, tasks=options.get("tasks", True)),
        },
        raw_questions=options.get("raw_questions", _has_inbox(options)),
        max_rounds=options.get("input_required_max_rounds", 10),
        answer_order=options.get("answer_order", "together"),
        request_seconds=options.get("read_timeout_seconds", 300.0),
        deadline=options.get("deadline"),
        restart_expired=options.get("restart_expired", True),
        logging_callback=options.get("logging_callback"),
        server=server,
    )


def _has_inbox(options: ClientOptions) -> bool:
    store = options.get("pending_store")
    return options.get("inbox") is not None or getattr(store, "shows_raw", False)


def wishes(options: CallOptions, progress: Progress | None = None, seconds: float | None = None) -> Wishes:
    """What one call wants; some of it may have come by its place."""
    if not options:
        return Wishes(None, progress, seconds)
    unknown = options.keys() - CallOptions.__annotations__.keys()
    if unknown:
        raise TypeError(f"a call has no option {', '.join(sorted(unknown))}")
    return Wishes(
        options.get("meta"),
        options.get("progress_callback", progress),
        options.get("read_timeout_seconds", seconds),
        options.get("deadline"),
        options.get("restart_expired"),
    )
