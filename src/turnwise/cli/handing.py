"""What the commands have in common that go to an inbox: which one, with which token, and how they end there."""

import asyncio
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from .._following import TaskInHand
from .._messages import Done
from ..client import Client
from ..errors import (
    CallerError,
    ConnectionLost,
    DeadlineExceeded,
    HandOverFailed,
    InboxFailed,
    UnexpectedStatus,
    UnknownPending,
)
from .showing import as_json, fail, legible, note

UNREACHABLE, STILL_THERE, UNKNOWN_ITEM, WRONG_TOKEN, NO_RESULT = 3, 5, 6, 7, 8
INBOX, TOKEN = "TURNWISE_INBOX", "TURNWISE_INBOX_TOKEN"
_UNREADY = 500


def positive(seconds: float | None) -> float | None:
    """A time to wait; BadParameter where it is none. A range would be shown as such, and take the room of names."""
    if seconds is not None and not seconds > 0:
        raise typer.BadParameter("it is a number of seconds, above 0")
    return seconds


InboxURL = Annotated[
    str | None, typer.Option("--inbox", metavar="URL", help=f"An inbox, where people answer; ${INBOX} unless given.")
]
TokenEnv = Annotated[
    str | None, typer.Option("--inbox-token-env", metavar="NAME", help=f"A variable with its token, unless {TOKEN}.")
]
AuthorizationEnv = Annotated[
    str | None,
    typer.Option(
        "--inbox-authorization-env",
        metavar="NAME",
        help="A variable with the Authorization that the inbox shows to the server.",
    ),
]
Caller = Annotated[
    str | None, typer.Option(metavar="NAME", help="Who is shown there as the caller; the token's name unless given.")
]
Hook = Annotated[str | None, typer.Option(metavar="URL", help="What the inbox tells of questions and of the end.")]
Seconds = Annotated[
    float | None,
    typer.Option(callback=positive, metavar="SECONDS", help="After so long the call has expired in the inbox."),
]


class HandingOver(NamedTuple):
    """The inbox that questions go to, on which terms, and whether the call is left there."""

    url: str
    token: str | None
    authorization: str | None
    terms: Mapping[str, Any]
    leaves: bool = False
    again: str = ""
    """The options that say the same another time."""

    @property
    def options(self) -> dict[str, Any]:
        """What the client is told."""
        return {"inbox": self.url, "inbox_token": self.token, "inbox_authorization": self.authorization}

    async def called(
        self, client: Client, tool: str, arguments: Mapping[str, Any], seconds: float | None, *, is_json: bool
    ) -> Any:
        """The result of a call, or None where it was left in the inbox."""
        outcome = await client.begin(tool, arguments, deadline=seconds)
        if isinstance(outcome, Done):
            return outcome.result
        try:
            item = await client.hand_over(outcome, **self.terms)
        except HandOverFailed as error:
            self._keep(error)
        if self.leaves:
            typer.echo(as_json({"item": item.id, "url": item.url}) if is_json else legible(f"{item.id} {item.url}"))
            return None
        note(f"It waits for answers at {legible(item.url)}", "dim")
        return await ended(client, item.id, seconds, self.again)

    def _keep(self, error: HandOverFailed) -> NoReturn:
        """Put a call into a file that the inbox has not taken, and end: its server was asked, and it is not lost."""
        path = _written(error.call)
        command = f"turnwise hand-over {shlex.quote(str(path))} {self.again}"
        fail(
            f"{error}\nThe call is in {path}, with what its server remembers of it. Later:\n  {command}", code_of(error)
        )


def handing_over(
    url: str | None, token_env: str | None, authorization_env: str | None, *, leaves: bool = False, **terms: Any
) -> HandingOver | None:
    """What the options of a command say; None where no inbox is named."""
    given = {name: term for name, term in terms.items() if term is not None}
    if not url:
        if token_env is not None or authorization_env is not None or leaves or given:
            raise typer.BadParameter(
                "--inbox-token-env, --inbox-authorization-env, --leave, --caller, --hook and --seconds belong to "
                f"--inbox, or to {INBOX} and a server at a URL"
            )
        return None
    token, way = token_in(token_env), variable("--inbox-authorization-env", authorization_env)
    return HandingOver(url, token, way, given, leaves, options_of(url, token_env))


def options_of(url: str, token_env: str | None) -> str:
    """The options that lead to an inbox once more."""
    return f"--inbox {shlex.quote(url)}" + (f" --inbox-token-env {shlex.quote(token_env)}" if token_env else "")


def inbox_at(url: str | None) -> str:
    """The inbox that is meant; BadParameter where none is."""
    if not (found := url or os.environ.get(INBOX, "").strip()):
        raise typer.BadParameter(f"which inbox? Give --inbox URL, or set {INBOX}")
    return found


def token_in(name: str | None) -> str | None:
    """The token for the inbox, where there is one."""
    return variable("--inbox-token-env", name) if name is not None else os.environ.get(TOKEN, "").strip() or None


def variable(option: str, name: str | None) -> str | None:
    """What a variable holds. Its name is not repeated, for it may be the secret itself, given by mistake."""
    if name is None:
        return None
    if not (text := os.environ.get(name, "").strip()):
        raise typer.BadParameter(f"there is no variable of the name that {option} gives")
    return text


async def ended(client: Client, item: str, seconds: float | None, options: str) -> Any:
    """The result of a call in an inbox; where there is none, the command ends with a code that says why."""
    again = f"turnwise wait {shlex.quote(item)} {options}"
    try:
        return await client.wait_for(item, deadline=seconds)
    except UnknownPending:
        fail(
            f"the inbox knows no call {item}: it never came there, or ended so long ago that it was forgotten",
            UNKNOWN_ITEM,
        )
    except DeadlineExceeded:
        fail(f"call {item} has no result after {seconds} s, and stays in the inbox. Later: {again}", STILL_THERE)
    except InboxFailed as error:
        fail(str(error), NO_RESULT)
    except asyncio.CancelledError:
        note(f"Call {legible(item)} stays in the inbox. Later: {again}")
        raise
    except (UnexpectedStatus, ConnectionLost) as error:
        fail(f"{error}\nWhat has come to the inbox stays there. Later: {again}", code_of(error))


def code_of(error: BaseException) -> int:
    """With which code a command ends where the inbox was away, or did not take what it was sent."""
    cause = error.__cause__ if isinstance(error, HandOverFailed) else error
    if isinstance(cause, ConnectionLost):
        return UNREACHABLE
    if isinstance(cause, UnexpectedStatus):
        return WRONG_TOKEN if cause.status == 401 else UNREACHABLE if cause.status >= _UNREADY else 1
    return 1


def _written(call: Any) -> Path:
    """A call in a file that only its owner reads: here, or where files may be written for a while."""
    kind = "task" if isinstance(call, TaskInHand) else "call"
    name = f"turnwise-{kind}-{re.sub(r'[^A-Za-z0-9_-]', '_', call.id)[:80]}"
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        try:
            file, path = tempfile.mkstemp(".json", f"{name}-", folder)  # For its owner alone, and never an old one.
        except OSError:
            continue
        with os.fdopen(file, "w", encoding="utf-8") as opened:
            opened.write(call.to_json() + "\n")
        return Path(path)
    typer.echo(call.to_json())
    raise CallerError(f"call {call.id} was not handed over, and no file could be written: it is on standard output")
