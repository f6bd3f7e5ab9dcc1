"""`turnwise prompt` and `turnwise read`: prompts and resources, which may ask as tools do."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..client import Client
from ..dialects.asking import wire_dict
from ..errors import DeadlineExceeded
from .answering import said
from .calling import (
    AnswersFile,
    AsJSON,
    Headers,
    Roots,
    Target,
    Timeout,
    Trace,
    Version,
    aside,
    attending,
    callbacks,
    made_client,
    parsed,
    reached,
    run_client,
)
from .handing import STILL_THERE
from .showing import as_json, fail, legible
from .tracing import trace


def prompt(  # noqa: PLR0913, PLR0917 - a command's options
    target: Target,
    name: Annotated[str, typer.Argument(help="The prompt to get.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="name=value.")] = None,
    answers: AnswersFile = None,
    root: Roots = None,
    is_json: AsJSON = False,
    traced: Trace = False,
    header: Headers = None,
    mode: Version = "auto",
    timeout: Timeout = None,
) -> None:
    """Get a prompt, and answer what it asks at the terminal or from a file."""
    words = {key: str(value) for key, value in parsed(arguments or (), {}).items()}
    client = _client(target, answers, root, header, mode, traced=traced)
    found = _got(client, timeout, lambda left: client.get_prompt(name, words, deadline=left), is_json=is_json)
    if is_json:
        typer.echo(as_json(wire_dict(found)))
        return
    for line in said(wire_dict(found)):
        typer.echo(legible(line, lines=True))


def read(  # noqa: PLR0913, PLR0917 - a command's options
    target: Target,
    uri: Annotated[str, typer.Argument(help="The resource to read.")],
    answers: AnswersFile = None,
    root: Roots = None,
    is_json: AsJSON = False,
    traced: Trace = False,
    header: Headers = None,
    mode: Version = "auto",
    timeout: Timeout = None,
) -> None:
    """Read a resource, and answer what it asks at the terminal or from a file."""
    client = _client(target, answers, root, header, mode, traced=traced)
    found = _got(client, timeout, lambda left: client.read_resource(uri, deadline=left), is_json=is_json)
    if is_json:
        typer.echo(as_json(wire_dict(found)))
        return
    for part in found.contents:
        text = getattr(part, "text", None) or f"[{part.mime_type or 'bytes'} {part.uri}]"
        typer.echo(legible(text, lines=True))


def _client(
    target: str, answers: Path | None, root: list[Path] | None, header: list[str] | None, mode: str, *, traced: bool
) -> Client:
    client = made_client(target, header, mode, answer_order="one-by-one", **callbacks(attending(answers, root)))
    if traced:
        trace(client)
    return client


def _got(client: Client, seconds: float | None, get: Callable[[float | None], Awaitable[Any]], *, is_json: bool) -> Any:
    async def work() -> Any:
        async with reached(client, seconds) as left:
            try:
                return await get(left)
            except DeadlineExceeded:
                fail(f"it was not finished within {seconds:g} s", STILL_THERE)

    return run_client(aside(work()), is_json=is_json)
