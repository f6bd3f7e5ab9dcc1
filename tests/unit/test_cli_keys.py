"""`turnwise keys`: made, rotated and checked in processes of their own."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.unit.test_cli_call import Commands, Told, commands
from turnwise._sealed import KeyRing
from turnwise.cli.app import app


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with commands({}, tmp_path_factory.mktemp("keys")) as begun:
        yield begun


@pytest.fixture
def here(origin: Commands, tmp_path: Path) -> Commands:
    return origin._replace(folder=tmp_path)


def one(here: Commands, *words: str) -> Told:
    (told,) = here.run(["keys", *words])
    return told


def test_a_new_key_is_said_or_written_to_a_file_of_its_own(here: Commands) -> None:
    first, second = here.run(["keys", "new"], ["keys", "new"])
    assert (first.code, first.err, len(first.out)) == (0, "", 44)
    assert first.out != second.out
    written = one(here, "new", "--file", "ring")
    assert (written.code, written.out) == (0, "")
    assert "ring has one key" in written.err
    assert stat.S_IMODE((here.folder / "ring").stat().st_mode) == 0o600
    assert one(here, "new", "--file", "ring") == (1, "", "ring: File exists\n")
    assert one(here, "new", "--file", "no/ring") == (1, "", "no/ring: No such file or directory\n")


def ring_of(here: Commands) -> list[str]:
    """The keys in the file, without what it says about itself."""
    return [line for line in (here.folder / "ring").read_text().splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(("before", "after"), [(0o640, 0o640), (0o600, 0o600), (0o664, 0o640), (0o644, 0o640)])
def test_a_rotation_leaves_the_file_to_who_may_read_it(here: Commands, before: int, after: int) -> None:
    lent = here.folder / f"lent-{before:o}"
    lent.write_text("k" * 32)
    lent.chmod(before)
    if os.geteuid() == 0:
        os.chown(lent, 0, 12345)
    assert one(here, "rotate", lent.name, "--phase", "add").code == 0
    found = lent.stat()
    assert stat.S_IMODE(found.st_mode) == after
    assert found.st_gid == (12345 if os.geteuid() == 0 else os.getegid())


def test_keys_of_somebody_else_are_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "keys"
    theirs.write_text("k" * 32)

    def refused(*facts: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fchown", refused)
    told = CliRunner().invoke(app, ["keys", "rotate", str(theirs), "--phase", "add"])
    assert (told.exit_code, "somebody else's" in told.stderr) == (1, True)
    assert (theirs.read_text(), [*tmp_path.iterdir()]) == ("k" * 32, [theirs])


def test_a_rotation_has_three_phases_and_checks_tell_them_apart(here: Commands) -> None:
    one(here, "new", "--file", "ring")
    (old,) = ring_of(here)
    alone = one(here, "check", "ring")
    assert alone.out.endswith("  mints and verifies\n")
    assert one(here, "rotate", "ring", "--phase", "mint").code == 1
    added = one(here, "rotate", "ring", "--phase", "add")
    assert (added.code, added.out) == (0, "")
    assert "then: --phase mint" in added.err
    first, new = ring_of(here)
    assert first == old
    assert one(here, "check", "ring").out.splitlines()[0] == alone.out.strip()
    assert one(here, "rotate", "ring", "--phase", "mint").code == 0
    assert ring_of(here) == [new, old]
    again = one(here, "rotate", "ring", "--phase", "mint")
    assert (again.code, again.err) == (1, "--phase mint is done, as ring says; next is --phase drop\n")
    assert ring_of(here) == [new, old]
    left = KeyRing([new]).ids[0]
    assert one(here, "rotate", "ring", "--phase", "drop") == (
        0,
        "",
        f"Only {left} is left, which mints. Bring the file to all instances.\n",
    )
    assert ring_of(here) == [new]
    assert stat.S_IMODE((here.folder / "ring").stat().st_mode) == 0o600
    assert one(here, "rotate", "ring", "--phase", "drop").code == 1
    assert one(here, "rotate", "ring", "--phase", "turn").code == 2
    assert [path.name for path in here.folder.iterdir() if path.name.startswith(".ring")] == []


def test_a_new_key_that_does_not_mint_yet_is_not_dropped_and_can_be_taken_out_by_hand(here: Commands) -> None:
    one(here, "new", "--file", "ring")
    (old,) = ring_of(here)
    one(here, "rotate", "ring", "--phase", "add")
    added = (here.folder / "ring").read_text()
    dropped = one(here, "rotate", "ring", "--phase", "drop")
    assert dropped.code == 1
    assert dropped.err == (
        "the new key in ring does not mint yet, and --phase drop would drop it: next is --phase mint. "
        "To give the rotation up, delete its last line\n"
    )
    assert (here.folder / "ring").read_text() == added
    (here.folder / "ring").write_text(added.rpartition("\n")[0].rpartition("\n")[0] + "\n")
    assert ring_of(here) == [old]
    assert one(here, "rotate", "ring", "--phase", "add").code == 0
    assert (ring_of(here)[0], len(ring_of(here))) == (old, 2)


def test_keys_that_are_not_good_are_said(here: Commands) -> None:
    (here.folder / "short").write_text("hunter2\n")
    (here.folder / "empty").write_text("# none\n")
    (here.folder / "open").write_text("k" * 32)
    os.chmod(here.folder / "open", 0o644)
    variable = here._replace(env={**here.env, "KEYS": f"{'a' * 32}, {'b' * 32}", "SHORT": "hunter2"})
    short, empty, seen, good, weak, unset, neither, both, nowhere = variable.run(
        ["keys", "check", "short"],
        ["keys", "check", "empty"],
        ["keys", "check", "open"],
        ["keys", "check", "--env", "KEYS"],
        ["keys", "check", "--env", "SHORT"],
        ["keys", "check", "--env", "NO_KEYS"],
        ["keys", "check"],
        ["keys", "check", "open", "--env", "KEYS"],
        ["keys", "rotate", "nowhere", "--phase", "add"],
    )
    assert [told.code for told in (short, empty, seen, weak, unset, nowhere)] == [1] * 6
    assert short.err.startswith("short: ")
    assert empty.err.startswith("empty: ")
    assert weak.err.startswith("$SHORT: ")
    assert "hunter2" not in short.err + weak.err
    assert seen.err == "open can be read by others: chmod 600 open\n"
    assert unset.err == "the variable NO_KEYS is not set\n"
    assert nowhere.err == "nowhere: No such file or directory. This makes one: turnwise keys new --file nowhere\n"
    assert [line.split("  ")[1] for line in good.out.splitlines()] == ["mints and verifies", "verifies"]
    assert (neither.code, both.code) == (2, 2)
