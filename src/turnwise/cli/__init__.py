"""The `turnwise` command."""

import sys
from typing import Any


def main() -> None:
    """The entry point."""
    try:
        _app()(prog_name="turnwise")  # Also as python -m turnwise.cli, so that shells complete the same command.
    except KeyboardInterrupt:
        sys.exit(130)


def _app() -> Any:
    """What the command needs beside the library is an extra."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit("The command needs a few more packages: pip install 'turnwise[cli]'")
    return app
