"""`turnwise call` and `turnwise list`."""

import asyncio
import json
import sys
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from ..client import Client
from ..dialects.asking import wire_dict
from ..dialects.words import Mode
from ..errors import CallbackFailed, ConnectionLost, MCPError, TurnwiseError, Unanswerable
from .answering import NEEDS_ANSWER, Answers, NobodyAnswers
from .handing import HandingOver, handing_over, variable
from .loading import NotFound
from .metering import Meter
from .showing import as_json, fail, legible, note
from .targets import target_of
from .tracing import trace

UNREACHABLE = 3
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
Headers = Annotated[list[str] | None, typer.Option("--header", help="'Name: value', for a URL; give several.")]
Trace = Annotated[bool, typer.Option("--trace", help="Show each exchange, with its instance and its state.")]
Version = Annotated[str, typer.Option("--mode", help="The version to speak.")]


def call(  # noqa: PLR0913, PLR0917 - a command's options
    target: Target,
    tool: Annotated[str, typer.Argument(help="The tool to call.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="name=value, or name:=json; text is taken as the tool's schema says.")
    ] = None,
    answers: Annotated[Path | None, typer.Option(help="A JSON file with answers, by key or by message.")] = None,
    root: Annotated[list[Path] | None, typer.Option(help="A folder to tell servers of; give several.")] = None,
    is_json: AsJSON = False,
    traced: Trace = False,
    header: Headers = None,
    mode: Version = "auto",
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds for the whole call.")] = None,
    inbox: Annotated[str | None, typer.Option(help="The URL of an inbox, where people answer.")] = None,
    inbox_token_env: Annotated[str | None, typer.Option(help="A variable with the inbox's token.")] = None,
    inbox_authorization_env: Annotated[
        str | None, typer.Option(help="A variable with the Authorization that the inbox shows to the server.")
    ] = None,
    leave: Annotated[bool, typer.Option("--leave", help="Leave the call in the inbox, and do not wait.")] = False,
) -> None:
    """Call a tool, and answer what it asks at the terminal, from a file, or at an inbox."""
    handing = handing_over(inbox, inbox_token_env, inbox_authorization_env, leaves=leave)
    if handing is not None and answers is not None:
        raise typer.BadParameter("give --answers or --inbox, not both")
    given = Answers(_answers(answers), root or (), is_attended=sys.stdin.isatty())
    client = _client(
        target,
        header,
        mode,
        **(_callbacks(given) if handing is None else handing.options),
        answer_order="one-by-one",
        logging_callback=lambda params: note(legible(f"{params.level}: {params.data}"), "dim"),
        log_level="info",
    )
    if traced:
        trace(client)
    result = _run(_called(client, tool, arguments or (), given, timeout, handing, is_json=is_json))
    if result is not None:
        _end(result, is_json)


def wait(
    item: Annotated[str, typer.Argument(help="Its id, as `turnwise call --leave` printed it.", metavar="ITEM")],
    inbox: Annotated[str, typer.Option(help="The URL of the inbox.")],
    inbox_token_env: Annotated[str | None, typer.Option(help="A variable with the inbox's token.")] = None,
    is_json: AsJSON = False,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds to wait; the call stays there.")] = None,
) -> None:
    """Wait for a call that was left in an inbox, and show its result."""
    client = _client(inbox, None, "auto", inbox=inbox, inbox_token=variable("--inbox-token-env", inbox_token_env))
    _end(_run(client.wait_for(item, deadline=timeout)), is_json)


def _end(result: Any, is_json: bool) -> NoReturn:
    if is_json or not hasattr(result, "content"):
        typer.echo(as_json(wire_dict(result)))
    else:
        _show(result)
    raise typer.Exit(1 if getattr(result, "is_error", False) else 0)


def _callbacks(given: Answers) -> dict[str, Any]:
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
    async with client:
        tools = {found.name: found async for found in client.iter_tools()}
        if tool not in tools:
            near = ", ".join(sorted(tools)) or "none"
            fail(f"there is no tool {tool!r}; there are: {near}")
        arguments = parsed(words, tools[tool].input_schema)
        if handing is not None:
            return await handing.called(client, tool, arguments, seconds, is_json=is_json)
        meter = Meter(tool)
        answers.before = meter.stop
        try:
            return await client.call_tool(tool, arguments, progress_callback=meter.tell, deadline=seconds)
        finally:
            meter.stop()


def list_offers(
    target: Target, is_json: AsJSON = False, header: Headers = None, mode: Version = "auto", traced: Trace = False
) -> None:
    """What a server offers: tools with their arguments, prompts and resources."""
    client = _client(target, header, mode)
    if traced:
        trace(client)
    found = _run(_listed(client))
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
        kinds = _kinds(properties[name]) if name in properties else {"string"}
        arguments[name] = _json(name, value) if is_json else _value(value, kinds)
    return arguments


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


def _answers(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"{path} is an object: answers by key or by message")
    return found


def _client(name: str, headers: Sequence[str] | None, mode: str, **options: Any) -> Client:
    if mode not in get_args(Mode):
        raise typer.BadParameter(f"--mode is one of {', '.join(get_args(Mode))}")
    if headers:
        if wrong := [header for header in headers if not header.partition(":")[0].strip() or ":" not in header]:
            raise typer.BadParameter(f"a header is 'Name: value', not {wrong[0]!r}")
        pairs = (header.partition(":") for header in headers)
        options["headers"] = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        return Client(target_of(name), mode=mode, **options)  # type: ignore[arg-type]
    except (NotFound, ValueError, TypeError) as error:
        fail(str(error), 2)


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except ConnectionLost as error:
        fail(str(error), UNREACHABLE)
    except Unanswerable as error:
        fail(str(error), NEEDS_ANSWER)
    except NobodyAnswers as error:
        typer.echo(as_json(error.question), err=True)
        fail(str(error), NEEDS_ANSWER)
    except CallbackFailed as error:
        fail(str(error))
    except MCPError as error:
        fail(f"the server refuses ({error.code}): {error.message}")
    except TurnwiseError as error:
        fail(f"{type(error).__name__}: {error}")


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
