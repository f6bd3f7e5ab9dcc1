"""`turnwise call` and `turnwise list`."""

import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from ..client import Client
from ..dialects.asking import wire_dict
from ..dialects.words import Mode
from ..errors import DeadlineExceeded, TurnwiseError, Unanswerable
from .answering import NEEDS_ANSWER, Answers, NobodyAnswers
from .failing import worded
from .handing import (
    INBOX,
    STILL_THERE,
    UNREACHABLE,
    AuthorizationEnv,
    Caller,
    HandingOver,
    Hook,
    InboxURL,
    Seconds,
    TokenEnv,
    handing_over,
    positive,
)
from .key_options import KeysEnv, KeysFile, key_source
from .keys import NO_SOURCE, KeySource, NoKeys
from .loading import NotFound
from .metering import Meter
from .showing import as_json, fail, legible, note
from .targets import is_url, target_of
from .tracing import trace

STDIN = "-"

_KINDS: Mapping[type, set[str]] = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    dict: {"object"},
    list: {"array"},
    str: {"string"},
    type(None): {"null"},
}

Target = Annotated[
    str, typer.Argument(help="A URL, a server (module:attribute, file.py), or a command in quotes.", metavar="TARGET")
]
AsJSON = Annotated[bool, typer.Option("--json", help="JSON on standard output, for scripts.")]
Headers = Annotated[
    list[str] | None, typer.Option("--header", metavar="HEADER", help="'Name: value', for a URL; give several.")
]
Trace = Annotated[bool, typer.Option("--trace", help="Show each exchange, with its instance and its state.")]
AnswersFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A JSON file with answers, by key or by message; - reads a pipe.")
]
Roots = Annotated[list[Path] | None, typer.Option(metavar="FOLDER", help="A folder to tell servers of; give several.")]
Timeout = Annotated[float | None, typer.Option(callback=positive, metavar="SECONDS", help="For the whole call.")]
Version = Annotated[
    str, typer.Option("--mode", metavar="VERSION", help=f"The version to speak: {' | '.join(get_args(Mode))}")
]


def call(  # noqa: PLR0913, PLR0917 - a command's options
    target: Target,
    tool: Annotated[str, typer.Argument(help="The tool to call.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="name=value, or name:=json; text is taken as the tool's schema says.")
    ] = None,
    answers: AnswersFile = None,
    root: Roots = None,
    is_json: AsJSON = False,
    traced: Trace = False,
    header: Headers = None,
    mode: Version = "auto",
    timeout: Timeout = None,
    keys_file: KeysFile = None,
    keys_env: KeysEnv = None,
    inbox: InboxURL = None,
    inbox_token_env: TokenEnv = None,
    inbox_authorization_env: AuthorizationEnv = None,
    caller: Caller = None,
    hook: Hook = None,
    seconds: Seconds = None,
    leave: Annotated[bool, typer.Option("--leave", help="Leave the call in the inbox, and do not wait.")] = False,
) -> None:
    """Call a tool, and answer what it asks at the terminal, from a file, or at an inbox."""
    url = _default_inbox(target) if inbox is None and answers is None else inbox
    terms = {"caller": caller, "hook": hook, "seconds": seconds}
    handing = handing_over(url, inbox_token_env, inbox_authorization_env, leaves=leave, **terms)
    if handing is not None and answers is not None:
        raise typer.BadParameter("give --answers or --inbox, not both")
    if handing is not None and not is_url(target):
        raise typer.BadParameter(
            "an inbox carries on calls of servers at a URL alone: start this one with `turnwise serve`, and call that"
        )
    given = attending(answers, root)
    client = made_client(
        target,
        header,
        mode,
        key_source(keys_file, keys_env),
        **(callbacks(given) if handing is None else handing.options),
        answer_order="one-by-one",
        logging_callback=lambda params: note(legible(f"{params.level}: {params.data}"), "dim"),
        log_level="info",
    )
    if traced:
        trace(client)
    work = _called(client, tool, arguments or (), given, timeout, handing, is_json=is_json)
    result = run_client(aside(work) if handing is None else work, is_json=is_json)
    if result is not None:
        end_with(result, is_json)


def _default_inbox(target: str) -> str | None:
    """The inbox of the environment. It carries on calls of servers at a URL alone; others are asked about here."""
    return os.environ.get(INBOX, "").strip() if is_url(target) else None


def end_with(result: Any, is_json: bool) -> NoReturn:
    """Show a result, and end."""
    if is_json or not hasattr(result, "content"):
        typer.echo(as_json(wire_dict(result)))
    else:
        _show(result)
    raise typer.Exit(1 if getattr(result, "is_error", False) else 0)


def callbacks(given: Answers) -> dict[str, Any]:
    """What a client is told of who answers."""
    return {
        "elicitation_callback": given.elicit,
        "sampling_callback": given.sample,
        "list_roots_callback": given.list_roots,
    }


async def _called(  # noqa: PLR0913 - what the command was told
    client: Client,
    tool: str,
    words: Sequence[str],
    answers: Answers,
    seconds: float | None,
    handing: HandingOver | None,
    *,
    is_json: bool,
) -> Any:
    tools: dict[str, Any] = {}

    async def look() -> None:
        tools.update({found.name: found async for found in client.iter_tools()})

    async with reached(client, seconds, look) as left:
        if tool not in tools:
            near = ", ".join(sorted(tools)) or "none"
            fail(f"there is no tool {tool!r}; there are: {near}")
        arguments = parsed(words, tools[tool].input_schema)
        if handing is not None:
            return await handing.called(client, tool, arguments, seconds, is_json=is_json)
        meter = Meter(tool)
        answers.before = meter.stop
        try:
            return await client.call_tool(tool, arguments, progress_callback=meter.tell, deadline=left)
        except DeadlineExceeded:
            fail(f"{tool} was not finished within {seconds:g} s", STILL_THERE)
        finally:
            meter.stop()


@asynccontextmanager
async def reached(
    client: Client, seconds: float | None, look: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[float | None]:
    """A client that has reached its server, and looked at what it is to know first; how much is left of the seconds.
    The command ends where they are over before.
    """
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(seconds):
                await stack.enter_async_context(client)
                if look is not None:
                    await look()
        except TimeoutError:
            fail(f"the server has not answered within {seconds:g} s", UNREACHABLE)
        yield None if seconds is None else max(0.001, seconds - (time.monotonic() - began))


def list_offers(
    target: Target, is_json: AsJSON = False, header: Headers = None, mode: Version = "auto", traced: Trace = False
) -> None:
    """What a server offers: tools with their arguments, prompts and resources."""
    client = made_client(target, header, mode)
    if traced:
        trace(client)
    found = run_client(aside(_listed(client)))
    if is_json:
        typer.echo(as_json(found))
        return
    for kind, items in found.items():
        for item in items:
            name = item.get("uriTemplate") or item.get("uri") or item["name"]
            typer.echo(legible(f"{kind[:-1]:9} {name}{_signature(item)}"))
            if item.get("description"):
                typer.echo(legible(f"          {item['description'].splitlines()[0]}"))


async def _listed(client: Client) -> dict[str, list[Any]]:
    async with client:
        offers: Mapping[str, Any] = (
            {} if client.server_capabilities is None else client.server_capabilities.model_dump(exclude_none=True)
        )
        found: dict[str, list[Any]] = {}
        if "tools" in offers:
            found["tools"] = [wire_dict(item) async for item in client.iter_tools()]
        if "prompts" in offers:
            found["prompts"] = [wire_dict(item) async for item in client.iter_prompts()]
        if "resources" in offers:
            found["resources"] = [wire_dict(item) async for item in client.iter_resources()]
            found["templates"] = [wire_dict(item) async for item in client.iter_resource_templates()]
        return found


def parsed(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that words stand for: `name:=json` as it says, `name=text` by the schema's type."""
    arguments: dict[str, Any] = {}
    properties = schema.get("properties", {})
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.rstrip(":"):
            raise typer.BadParameter(f"an argument is name=value, not {word!r}")
        is_json = name.endswith(":")
        name = name.removesuffix(":")
        _check_word(name, word, arguments)
        if properties and name not in properties and not schema.get("additionalProperties"):
            note(f"there is no argument {legible(name)}; there are: {legible(', '.join(properties))}", "red")
        part = properties.get(name, {"type": "string"})
        arguments[name] = _json(name, value) if is_json else _value(value, _kinds(part))
        if not is_json:
            _check_list(name, value, part, arguments[name])
    return arguments


def _check_word(name: str, word: str, known: Mapping[str, Any]) -> None:
    if name in known:
        raise typer.BadParameter(f"{name} is given twice")
    try:
        word.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{word!r} is no text: it is not UTF-8") from None


def _check_list(name: str, text: str, part: Any, value: Any) -> None:
    """BadParameter where a list or an object is wanted and text was given that is none, with how to write it."""
    kinds = _kinds(part)
    if not kinds or kinds - {"array", "object", "null"} or kinds & _KINDS[type(value)]:
        return
    if "array" not in kinds:
        raise typer.BadParameter(f"{name} is an object, as JSON: {name}:='{{...}}'")
    listed = [_value(one.strip(), _item_kinds(part)) for one in text.split(",") if one.strip()]
    raise typer.BadParameter(f"{name} is a list, as JSON: {shlex.quote(f'{name}:={as_json(listed)}')}")


def _item_kinds(part: Any) -> set[str]:
    """The types of what is in a list."""
    parts = [part, *(part.get("anyOf") or ()), *(part.get("oneOf") or ())]
    return set().union(*(_kinds(one.get("items")) for one in parts if isinstance(one, Mapping)))


def _kinds(part: Any) -> set[str]:
    """The types that a schema names, in whichever way; none where it does not say."""
    if not isinstance(part, Mapping):
        return set()
    named = part.get("type")
    kinds = {kind for kind in (named if isinstance(named, list) else [named]) if isinstance(kind, str)}
    others = [part.get(word) for word in ("anyOf", "oneOf")]
    return kinds.union(*(_kinds(one) for other in others if isinstance(other, list) for one in other))


def _value(text: str, kinds: set[str]) -> Any:
    """Text that may be text is text, unless it reads as another type that may be; the server says what is wrong."""
    if kinds and kinds <= {"string", "null"}:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if "string" in kinds and not kinds & _KINDS[type(value)] else value


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise typer.BadParameter(f"{name}: not JSON: {text!r}") from None


def attending(path: Path | None, roots: Sequence[Path] | None) -> Answers:
    """Who answers: a file or a pipe, and then who is at the terminal."""
    return Answers(_answers(path), roots or (), is_attended=sys.stdin.isatty() and str(path) != STDIN)


def _answers(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(sys.stdin.read() if str(path) == STDIN else path.read_text())
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise typer.BadParameter(f"{'standard input' if str(path) == STDIN else path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"answers are an object, by key or by message, and {path} has none")
    return found


def made_client(
    name: str, headers: Sequence[str] | None, mode: str, source: KeySource = NO_SOURCE, **options: Any
) -> Client:
    """A client of what was named; the command ends where there is no such thing."""
    if mode not in get_args(Mode):
        raise typer.BadParameter(f"--mode is one of {', '.join(get_args(Mode))}")
    if headers:
        if wrong := [header for header in headers if not header.partition(":")[0].strip() or ":" not in header]:
            raise typer.BadParameter(f"a header is 'Name: value', not {wrong[0]!r}")
        pairs = (header.partition(":") for header in headers)
        options["headers"] = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        return Client(target_of(name, source), mode=mode, **options)  # type: ignore[arg-type]
    except (NotFound, NoKeys, ValueError, TypeError) as error:
        fail(str(error), 2)


def run_client(work: Coroutine[Any, Any, Any], *, is_json: bool = False) -> Any:
    """What comes of some work of a client; where it fails, the command ends, with a code that says how. A question that
    nobody answers is what scripts read, where they read JSON.
    """
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Unanswerable as error:
        fail(str(error), NEEDS_ANSWER)
    except NobodyAnswers as error:
        typer.echo(as_json(error.question), err=not is_json)
        fail(str(error), NEEDS_ANSWER)
    except TurnwiseError as error:
        fail(*worded(error))


async def aside(work: Coroutine[Any, Any, Any]) -> Any:
    """Some work with a server in this process: what its author prints is no result."""
    with redirect_stdout(sys.stderr):
        return await work


def _show(result: Any) -> None:
    for part in result.content:
        if part.type == "text":
            typer.echo(legible(part.text, lines=True))
        else:
            kind = getattr(part, "mime_type", None) or getattr(part, "uri", "")
            typer.echo(legible(f"[{part.type} {kind}]"))
    if not result.content and result.structured_content is not None:
        typer.echo(as_json(result.structured_content))


def _signature(item: Mapping[str, Any]) -> str:
    if "inputSchema" in item:
        required = item["inputSchema"].get("required", ())
        names = item["inputSchema"].get("properties", {})
        return "".join(f" {name}=" if name in required else f" [{name}=]" for name in names)
    return "".join(
        f" {part['name']}=" if part.get("required") else f" [{part['name']}=]" for part in item.get("arguments", ())
    )
