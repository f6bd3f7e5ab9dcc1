"""`turnwise worker`, and `turnwise tasks`: list, show, cancel, purge."""

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Coroutine
from contextlib import redirect_stdout
from dataclasses import replace
from typing import Annotated, Any, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..dialects.tasking import moment
from ..errors import CallerError, InvalidRequestState
from ..server import MCPServer
from ..tasks.explaining import explained
from ..tasks.model import Status, Task
from ..tasks.runtime import Seen, Tasks
from .key_options import KeysEnv, KeysFile, key_source
from .keys import KeySource, NoKeys
from .loading import NotFound, load_keyed
from .showing import WIDE, fail, legible, note

Server = Annotated[str, typer.Argument(help="The server: module:attribute or file.py:attribute.", metavar="SERVER")]
TaskId = Annotated[str, typer.Argument(help="The task's id.", metavar="TASK")]
AsJSON = Annotated[bool, typer.Option("--json", help="One JSON object a line, for scripts.")]

NOWHERE = KeySource()
GIVE = "give those of turnwise serve, with --keys-file or --keys-env"


def _status(name: str | None) -> str | None:
    if name is not None and name not in get_args(Status):
        raise typer.BadParameter(f"a status is one of {', '.join(get_args(Status))}")
    return name


ByStatus = Annotated[str | None, typer.Option("--status", callback=_status, help="Only tasks of this status.")]

tasks = typer.Typer(no_args_is_help=True, help="Look after a server's tasks.")


def worker(
    server: Server,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Legs at a time; the server's own number unless given.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log what is played.")] = False,
    keys_file: KeysFile = None,
    keys_env: KeysEnv = None,
) -> None:
    """Play the tasks of a server, without serving it. SIGTERM or Ctrl-C: legs under way are finished or given back."""
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    source = key_source(keys_file, keys_env)
    loaded = _loaded(server, source)
    found = _kept_by(loaded)
    if loaded.has_drawn_keys and not source:
        fail(f"{loaded.name} brings no keys, and tasks are played with those that they were begun with: {GIVE}")
    found.options = replace(found.options, workers=workers or found.options.workers or 32)
    _run(_work(loaded, found))


async def _work(server: Any, found: Tasks) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stopped.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)  # A second one ends it at once.

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    server.work_on_tasks()
    starting, waiting = asyncio.create_task(server.start()), asyncio.create_task(stopped.wait())
    await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # What it waits for may never come; it is cancelled with the loop.
        return
    await starting
    typer.echo(f"Playing the tasks of {server.name} as {found.owner}. Ctrl-C ends it in good order.", err=True)
    await waiting
    await server.stop()


@tasks.command("list")
def list_tasks(
    server: Server,
    status: ByStatus = None,
    as_json: AsJSON = False,
    keys_file: KeysFile = None,
    keys_env: KeysEnv = None,
) -> None:
    """All tasks, with their ages; at the end how many there are of each status."""
    source = key_source(keys_file, keys_env)
    loaded = _looked_at(server, source)
    found = _kept_by(loaded)

    async def run() -> tuple[list[Task], Any]:
        listed: list[Task] = []
        while page := await found.store.list(status=status, after=listed[-1].id if listed else "", most=1000):
            listed += page
        return listed, await found.store.counts(time.time())

    listed, counts = _run(run())
    if any(_is_sealed(found, task) for task in listed):
        note(_why_sealed(loaded, source))
    if as_json:
        for task in listed:
            sys.stdout.write(json.dumps(_facts(found, task)) + "\n")
        return
    table = Table(box=None)
    for name in ("task", "tool", "status", "since", "what it waits for"):
        table.add_column(name, no_wrap=name == "task")
    for task in listed:
        cells = (task.id, task.tool, task.status, moment(task.updated), _explained(found, task))
        table.add_row(*(Text(legible(cell)) for cell in cells))
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    console.print(table)
    for name, (count, oldest) in counts.items():
        console.print(f"{count} {name}, the oldest {oldest:.0f} s")


@tasks.command()
def show(
    server: Server, task: TaskId, as_json: AsJSON = False, keys_file: KeysFile = None, keys_env: KeysEnv = None
) -> None:
    """One task: what it is, and what it waits for."""
    source = key_source(keys_file, keys_env)
    loaded = _looked_at(server, source)
    found = _kept_by(loaded)
    seen = _run(found.store.get(task, None))
    if seen is None:
        fail(f"no task {task!r}")
    if _is_sealed(found, seen):
        note(_why_sealed(loaded, source))
    facts = _facts(found, seen)
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    for name, value in facts.items():
        typer.echo(f"{name:>10}  {legible(str(value))}")


@tasks.command()
def cancel(server: Server, task: TaskId) -> None:
    """Stop a task. One that is being played stops when its worker hears of it, within seconds."""
    found = _tasks(server)
    seen = _run(found.store.cancel(task, None, time.time()))
    if seen is None:
        fail(f"no task {task!r}")
    typer.echo(f"{task} is {'asked to stop' if seen.status == 'working' else seen.status}")


@tasks.command()
def purge(server: Server) -> None:
    """Forget tasks that are over their time."""
    typer.echo(f"{_run(_tasks(server).store.purge(time.time()))} tasks forgotten")


def _loaded(name: str, source: KeySource = NOWHERE) -> MCPServer[Any]:
    try:
        return load_keyed(name, source)
    except (NotFound, NoKeys) as error:
        fail(str(error))


def _looked_at(name: str, source: KeySource = NOWHERE) -> MCPServer[Any]:
    """A server of which something is to be printed: what its author prints is not that."""
    with redirect_stdout(sys.stderr):
        return _loaded(name, source)


def _kept_by(server: MCPServer[Any]) -> Tasks:
    if server.tasks is None:
        fail(f"{server.name} keeps no tasks")
    if not getattr(server.tasks.store, "is_durable", True):
        fail(f"{server.name} keeps its tasks in its own memory, where no other process sees them")
    return server.tasks


def _tasks(name: str) -> Tasks:
    return _kept_by(_looked_at(name))


def _facts(found: Tasks, task: Task) -> dict[str, Any]:
    return {
        "task": task.id,
        "tool": task.tool,
        "status": task.status,
        "message": task.message,
        "created": moment(task.created),
        "updated": moment(task.updated),
        "ttl": task.ttl,
        "legs": task.epoch,
        "now": _explained(found, task),
    }


def _explained(found: Tasks, task: Task) -> str:
    seen = _opened(found, task)
    return explained(task, seen.requests if seen else {}, time.time(), seen.result if seen else None)


def _is_sealed(found: Tasks, task: Task) -> bool:
    """Whether it waits for answers to questions that cannot be read here."""
    return task.status == "input_required" and _opened(found, task) is None


def _opened(found: Tasks, task: Task) -> Seen | None:
    """A task with its questions or its result; None where they are sealed under keys that are not here. The rest can
    still be told.
    """
    try:
        return found.seen(task)
    except InvalidRequestState:
        return None


def _why_sealed(server: MCPServer[Any], source: KeySource) -> str:
    if source:
        return f"What is sealed was sealed under a key that is not in {source.name}."
    if server.has_drawn_keys:
        return f"What is sealed needs a key, and {server.name} brings none: {GIVE}."
    return f"What is sealed was sealed under a key that {server.name} does not have: {GIVE}."


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    try:
        return asyncio.run(work)
    except CallerError as error:
        fail(str(error))
