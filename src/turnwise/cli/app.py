"""The commands, and what they have in common. Exit codes: 0 done, 1 not found or refused, 2 wrong usage, 3 cannot
serve or reach, 4 a question that nobody answers, 5 the time is over; of a call in an inbox 6 unknown, 7 a wrong token,
8 ended without a result.
"""

from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .._version import __version__
from .calling import call, list_offers
from .dev import dev, stdio
from .doctor import doctor
from .getting import prompt, read
from .inbox import inbox
from .items import hand_over, items, wait
from .key_commands import keys
from .new import new
from .serve import serve
from .tasks import tasks, worker
from .token_command import token


def _unnamed_flags(parameters: list[Any]) -> list[Any]:
    """A flag takes no value, and help is not to name the type of one."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _unnamed_flags(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _unnamed_flags(super().get_params(ctx))


app = typer.Typer(
    name="turnwise",
    cls=_Group,
    no_args_is_help=True,
    help="MCP servers whose tools can ask.",
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.command()(new)
app.command()(dev)
app.command()(serve)
app.command()(stdio)
app.command()(call)
app.command(short_help="Wait for a call that was left in an inbox, and show its result.")(wait)
app.command("hand-over")(hand_over)
app.command("list")(list_offers)
app.command()(prompt)
app.command()(read)
app.command(short_help="Serve an inbox: people answer there what calls ask, and the calls go on from there.")(inbox)
app.command()(doctor)
app.command()(worker)
app.add_typer(items, name="items", cls=_Group)
app.add_typer(tasks, name="tasks", cls=_Group)
app.add_typer(keys, name="keys", cls=_Group)
app.add_typer(token, name="token", cls=_Group)
for _typer in (app, items, tasks, keys, token):
    for _info in _typer.registered_commands:
        _info.cls = _Command


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"turnwise {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which release this is.")
    ] = False,
) -> None:
    """MCP servers whose tools can ask: serve them, and look after their tasks."""
