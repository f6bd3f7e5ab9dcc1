"""The options by which commands are given keys."""

from typing import Annotated

import typer

from .keys import KeySource

KeysFile = Annotated[str | None, typer.Option(help="A file with one key a line; the first mints.")]
KeysEnv = Annotated[str | None, typer.Option(help="A variable with keys between commas.")]


def key_source(keys_file: str | None, keys_env: str | None) -> KeySource:
    """Where keys come from; BadParameter where that is said twice."""
    if keys_file is not None and keys_env is not None:
        raise typer.BadParameter("give --keys-file or --keys-env, not both")
    return KeySource(keys_file, keys_env)
