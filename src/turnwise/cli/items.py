"""`turnwise wait`, `turnwise hand-over` and `turnwise items`: calls in an inbox, from a shell."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._following import TaskInHand
from .._inboxing import InboxLine
from .._json import decode
from .._pending import Pending
from ..dialects.tasking import moment
from ..errors import CallerError, ConnectionLost, HandOverFailed, PeerError, UnexpectedStatus
from .calling import AsJSON, end_with, made_client, run_client
from .handing import (
    UNKNOWN_ITEM,
    AuthorizationEnv,
    Caller,
    Hook,
    InboxURL,
    Seconds,
    TokenEnv,
    code_of,
    ended,
    inbox_at,
    options_of,
    positive,
    token_in,
    variable,
)
from .showing import WIDE, as_json, fail, legible

MOST = 100
_NOT_FOUND = 404
_MOMENTS = {"came", "asked", "until", "changed", "restarted"}

ItemId = Annotated[str, typer.Argument(help="Its id, as `turnwise call --leave` printed it.", metavar="ITEM")]
ByStatus = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help="waiting | going | held | done | failed | expired; the first three unless given.",
    ),
]

items = typer.Typer(no_args_is_help=True, help="Look at calls in an inbox, and withdraw them.")


def wait(
    item: ItemId,
    inbox: InboxURL = None,
    inbox_token_env: TokenEnv = None,
    inbox_authorization_env: AuthorizationEnv = None,
    is_json: AsJSON = False,
    timeout: Annotated[
        float | None, typer.Option(callback=positive, metavar="SECONDS", help="How long to wait; the call stays there.")
    ] = None,
) -> None:
    """Wait for a call that was left in an inbox, and show its result. Exit codes: 1 the server refused or the tool
    failed, 3 the inbox is away, 5 it still waits, 6 no such call, 7 a wrong token, 8 withdrawn, expired or failed.
    """
    url = inbox_at(inbox)
    way = variable("--inbox-authorization-env", inbox_authorization_env)
    client = made_client(url, None, "auto", inbox=url, inbox_token=token_in(inbox_token_env), inbox_authorization=way)
    end_with(run_client(ended(client, item, timeout, options_of(url, inbox_token_env))), is_json)


def hand_over(  # noqa: PLR0913, PLR0917 - a command's options
    file: Annotated[
        Path, typer.Argument(help="A call as `turnwise call` or Pending.to_json wrote it; - reads it from a pipe.")
    ],
    inbox: InboxURL = None,
    inbox_token_env: TokenEnv = None,
    inbox_authorization_env: AuthorizationEnv = None,
    caller: Caller = None,
    hook: Hook = None,
    seconds: Seconds = None,
    is_json: AsJSON = False,
) -> None:
    """Hand over a call that could not be handed over before, and print its id there and where it is answered."""
    call, url = _read(file), inbox_at(inbox)
    authorization = variable("--inbox-authorization-env", inbox_authorization_env)
    options: dict[str, Any] = {
        "inbox": url,
        "inbox_token": token_in(inbox_token_env),
        "inbox_authorization": authorization,
    }
    client = made_client(url, None, "auto", **options)

    async def work() -> Any:
        try:
            return await client.hand_over(call, caller=caller, hook=hook, seconds=seconds)
        except HandOverFailed as error:
            fail(str(error), code_of(error))

    item = run_client(work())
    typer.echo(as_json({"item": item.id, "url": item.url}) if is_json else legible(f"{item.id} {item.url}"))


def _read(file: Path) -> Pending | TaskInHand:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        facts = decode(text)
        if not isinstance(facts, Mapping):
            raise ValueError("it is no object")
        return Pending.from_json(text, raw_questions=True) if "turnwise" in facts else TaskInHand.from_json(text)
    except OSError as error:
        fail(f"{file}: {error.strerror}", 2)
    except (ValueError, CallerError) as error:
        fail(f"{file}: not a call to hand over: {error}", 2)


@items.command("list")
def list_items(
    inbox: InboxURL = None,
    inbox_token_env: TokenEnv = None,
    status: ByStatus = None,
    search: Annotated[
        str, typer.Option(metavar="WORDS", help="What is to be in questions, tool, server, caller.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="How many at most.")] = 1000,
    is_json: AsJSON = False,
) -> None:
    """What waits, oldest question first; with ended ones, what changed last comes first."""
    line, found, after = _line(inbox, inbox_token_env), list[Any](), None
    while len(found) < limit:
        wanted = [("status", one) for one in status or ()] + [("limit", str(min(MOST, limit - len(found))))]
        wanted += [("q", search)] * bool(search) + [("after", after or "")] * bool(after)
        page = _asked(line, "GET", f"/items?{urlencode(wanted)}")
        found += page["items"]
        if not (after := page.get("after")):
            break
    if is_json:
        for one in found:
            typer.echo(as_json(one))
        return
    table = Table(box=None)
    for name in ("item", "status", "tool", "caller", "since", "what it asks"):
        table.add_column(name, no_wrap=name == "item")
    for one in found:
        cells = (one["id"], one["status"], one["target"], one["caller"], moment(one["asked"]), one["headline"])
        table.add_row(*(Text(legible(str(cell))) for cell in cells))
    Console(width=None if sys.stdout.isatty() else WIDE).print(table)


@items.command()
def show(item: ItemId, inbox: InboxURL = None, inbox_token_env: TokenEnv = None, is_json: AsJSON = False) -> None:
    """One call: what it is, what it asks, who answered."""
    seen = _asked(_line(inbox, inbox_token_env), "GET", f"/items/{quote(item, safe='')}", item)
    if is_json:
        typer.echo(as_json(seen))
        return
    for name, value in seen.items():
        if value not in (None, [], {}, ""):
            typer.echo(f"{name:>10}  {legible(_told(name, value))}")


def _told(name: str, value: Any) -> str:
    """A fact of a call in one line: moments as such, and who answered what when."""
    if name in _MOMENTS:
        return moment(value)
    if name == "given":
        value = [{**one, "at": moment(one["at"])} for one in value]
    return value if isinstance(value, str) else as_json(value)


@items.command()
def withdraw(item: ItemId, inbox: InboxURL = None, inbox_token_env: TokenEnv = None) -> None:
    """End a call without a result. The server of a task is asked to stop it."""
    seen = _asked(_line(inbox, inbox_token_env), "DELETE", f"/items/{quote(item, safe='')}", item)
    typer.echo(legible(f"{seen['id']} is {seen['error']}"))


def _line(inbox: str | None, token_env: str | None) -> InboxLine:
    try:
        return InboxLine(inbox_at(inbox), token_in(token_env), None)
    except ValueError as error:
        fail(str(error), 2)


def _asked(line: InboxLine, verb: str, path: str, item: str = "") -> dict[str, Any]:
    async def work() -> dict[str, Any]:
        try:
            return await line.asked(verb, path)
        except (UnexpectedStatus, ConnectionLost) as error:
            is_unknown = item and isinstance(error, UnexpectedStatus) and error.status == _NOT_FOUND
            fail(str(error), UNKNOWN_ITEM if is_unknown else code_of(error))
        except PeerError as error:
            fail(str(error))

    seen: dict[str, Any] = run_client(work())
    return seen
