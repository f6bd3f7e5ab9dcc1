"""`turnwise prompt` and `turnwise read`: prompts and resources, which may ask as tools do."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from ..client import Client
from ..dialects.asking import wire_dict
from ..errors import DeadlineExceeded
from .answering import Answers, said
from .calling import (
    STDIN,
    AnswersFile,
    AsJSON,
    Headers,
    Roots,
    Target,
    Timeout,
    Trace,
    Version,
    answers_in,
    aside,
    callbacks,
    made_client,
    parsed,
    run_client,
)
from .handing import STILL_THERE, UNREACHABLE
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
    found = _got(client, timeout, lambda: client.get_prompt(name, words, deadline=timeout), is_json=is_json)
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
    found = _got(client, timeout, lambda: client.read_resource(uri, deadline=timeout), is_json=is_json)
    if is_json:
        typer.echo(as_json(wire_dict(found)))
        return
    for part in found.contents:
        text = getattr(part, "text", None) or f"[{part.mime_type or 'bytes'} {part.uri}]"
        typer.echo(legible(text, lines=True))


def _client(
    target: str, answers: Path | None, root: list[Path] | None, header: list[str] | None, mode: str, *, traced: bool
) -> Client:
    is_attended = sys.stdin.isatty() and str(answers) != STDIN
    given = Answers(answers_in(answers), root or (), is_attended=is_attended)
    client = made_client(target, header, mode, answer_order="one-by-one", **callbacks(given))
    if traced:
        trace(client)
    return client


def _got(client: Client, seconds: float | None, get: Callable[[], Awaitable[Any]], *, is_json: bool) -> Any:
    async def work() -> Any:
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(seconds):
                    await stack.enter_async_context(client)
            except TimeoutError:
                fail(f"the server has not answered within {seconds:g} s", UNREACHABLE)
            try:
                return await get()
            except DeadlineExceeded as error:
                fail(str(error), STILL_THERE)

    return run_client(aside(work()), is_json=is_json)
