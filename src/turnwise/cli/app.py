"""The commands, and what they have in common. Exit codes: 0 done, 1 not found or refused, 2 wrong usage, 3 cannot
serve or reach, 4 a question that nobody answers.
"""

from typing import Annotated

import typer

from .._version import __version__
from .calling import call, list_offers, wait
from .dev import dev, stdio
from .doctor import doctor
from .inbox import inbox
from .key_commands import keys
from .new import new
from .serve import serve
from .tasks import tasks, worker
from .token_command import token

app = typer.Typer(
    name="turnwise",
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
app.command()(wait)
app.command("list")(list_offers)
app.command()(inbox)
app.command()(doctor)
app.command()(worker)
app.add_typer(tasks, name="tasks")
app.add_typer(keys, name="keys")
app.add_typer(token, name="token")


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
