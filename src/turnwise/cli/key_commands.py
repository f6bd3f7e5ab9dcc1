"""`turnwise keys`: new, rotate, check."""

import os
import secrets
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .._sealed import KeyRing
from .keys import KeySource, NoKeys
from .showing import fail

keys = typer.Typer(no_args_is_help=True, help="Make, rotate and check the keys that seal states.")

File = Annotated[Path, typer.Argument(help="A file with one key a line; the first mints.", metavar="FILE")]


class Phase(StrEnum):
    """A rotation has three phases; between two of them, all instances have to have the file of the first."""

    add = "add"
    mint = "mint"
    drop = "drop"


_DONE = {
    Phase.add: "A new key is in the file, last. Bring the file to all instances (SIGHUP reads it), then: --phase mint",
    Phase.mint: "The new key is first, and mints. Bring the file to all instances; when no state under the old key can "
    "be alive any more (an hour unless you set a ttl, and for as long as tasks are kept), then: --phase drop",
    Phase.drop: "Only {first} is left, which mints. Bring the file to all instances.",
}

_NEXT = {Phase.add: Phase.mint, Phase.mint: Phase.drop, Phase.drop: Phase.add}
_MARK = "# The last phase of a rotation: "


@keys.command()
def new(
    file: Annotated[Path | None, typer.Option(help="Write it to this new file, which only you can read.")] = None,
) -> None:
    """A new key, on standard output or in a file."""
    key = secrets.token_urlsafe(32)
    if file is None:
        typer.echo(key)
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        fail(f"{file}: {error.strerror}")
    with os.fdopen(descriptor, "w") as stream:
        stream.write(f"{key}\n")
    typer.echo(f"{file} has one key. Give it to all instances: turnwise serve ... --keys-file {file}", err=True)


@keys.command()
def rotate(
    file: File, phase: Annotated[Phase, typer.Option(help="add, then mint, then drop; each on all instances.")]
) -> None:
    """One phase of a rotation, in which no flow is lost."""
    found = _read(KeySource(str(file)))
    last = _last(file, found)
    if last is phase:
        fail(f"--phase {phase} is done, as {file} says; next is --phase {_NEXT[phase]}")
    if last is Phase.add and phase is Phase.drop:
        fail(
            f"the new key in {file} does not mint yet, and --phase drop would drop it: next is --phase mint. "
            "To give the rotation up, delete its last line"
        )
    if phase is Phase.add:
        found = [*found, secrets.token_urlsafe(32)]
    elif len(found) < 2:
        fail(f"{file} has one key: a rotation begins with --phase add")
    else:
        found = [found[-1], *found[:-1]] if phase is Phase.mint else found[:1]
    _write(file, found, phase)
    typer.echo(_DONE[phase].format(first=_id(found[0])), err=True)


def _last(file: Path, found: list[str]) -> Phase | None:
    """The phase of a rotation in which the file is, as it says; None where it says nothing that its keys bear out."""
    lines = file.read_text().splitlines()
    last = next((phase for phase in Phase if f"{_MARK}{phase}" in lines), None)
    return None if last is not Phase.drop and len(found) < 2 else last


def _id(key: str) -> str:
    return KeyRing([key]).ids[0]


@keys.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="A file with one key a line.", metavar="FILE")] = None,
    env: Annotated[str | None, typer.Option(help="A variable with keys between commas.")] = None,
) -> None:
    """Whether keys are good, and by which ids they are known; ids are no secret, so that instances can be compared."""
    if (file is None) == (env is None):
        raise typer.BadParameter("give a FILE or --env")
    source = KeySource(None if file is None else str(file), env)
    for number, key in enumerate(_read(source)):
        typer.echo(f"{_id(key)}  {'mints and verifies' if number == 0 else 'verifies'}")
    if (warning := source.warning()) is not None:
        fail(warning)


def _read(source: KeySource) -> list[str]:
    try:
        return source.read()
    except NoKeys as error:
        fail(str(error))


def _write(file: Path, found: list[str], phase: Phase) -> None:
    """All of the file or none of it: a server may be reading. It stays its owner's, and its group's to read."""
    descriptor, name = tempfile.mkstemp(dir=file.resolve().parent, prefix=f".{file.name}.")
    with os.fdopen(descriptor, "w") as stream:
        if os.name == "posix":
            before = file.stat()
            try:
                os.fchown(stream.fileno(), before.st_uid, before.st_gid)
            except PermissionError:
                os.unlink(name)
                fail(f"{file} is somebody else's: rotate its keys as who owns it")
            os.fchmod(stream.fileno(), 0o600 | (before.st_mode & 0o040))
        stream.write("".join(f"{line}\n" for line in (f"{_MARK}{phase}", *found)))
    os.replace(name, file.resolve())
