"""What `turnwise inbox` is trusted with: where it comes from, and what stays as it is where a file is not good."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.inbox.offices import ANN, BOB, KEY, NOW, item, run
from turnwise import CallerError
from turnwise.cli.inbox_secrets import NOBODY, BadSecrets, Secrets, find_secrets
from turnwise.cli.keys import NO_SOURCE, KeySource, NoKeys
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.rights import Member
from turnwise.inbox.sqlite import SQLiteInboxStore

OTHER = "another-key-of-the-inbox-for-tests"


def written(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(0o600)
    return path


@asynccontextmanager
async def desk_with(path: Path, **sealed: str) -> AsyncIterator[Inbox]:
    """An inbox whose store has these items, each under its key; it begins with the usual one."""
    store = SQLiteInboxStore(path, [KEY])
    for name, key in sealed.items():
        store.use_keys([key])
        one = item(name)
        await store.add(replace(one, status="done", changed=NOW) if name.startswith("ended") else one)
    store.use_keys([KEY])
    try:
        yield Inbox(store)
    finally:
        await store.aclose()


def test_tokens_are_those_of_a_file_with_names_or_of_the_inboxs_own_or_the_one_that_was_drawn(tmp_path: Path) -> None:
    names, own = written(tmp_path / "names", f"ann:{ANN}", f"bob:{BOB}"), written(tmp_path / "own", f" {ANN} ")
    assert Secrets(NO_SOURCE, names, is_own=False).read_tokens() == {ANN: Member("ann"), BOB: Member("bob")}
    assert Secrets(NO_SOURCE, own, is_own=True).read_tokens() == {ANN: Member(NOBODY)}
    neither = Secrets(NO_SOURCE, None, is_own=True, drawn=BOB)
    assert (neither.read_tokens(), neither.read_credentials()) == ({BOB: Member(NOBODY)}, {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "names: has no token in it"),
        (b"ann:short\n", "names: the token of 'ann'"),
        (b"no name\n", "names: line 1"),
        (b"\xff\xfe", "names: is no text"),
        (None, "names: No such file"),
    ],
)
def test_tokens_that_are_not_good_are_told_with_their_file(tmp_path: Path, text: bytes | None, why: str) -> None:
    if text is not None:
        (tmp_path / "names").write_bytes(text)
    with pytest.raises(BadSecrets, match=why):
        Secrets(NO_SOURCE, tmp_path / "names", is_own=False).read_tokens()


def test_what_is_not_given_is_drawn_once_and_kept_beside_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "inbox.db"
    first = find_secrets(NO_SOURCE, None, store)
    assert "A key was drawn" in capsys.readouterr().err
    written(store, "something")
    again = find_secrets(NO_SOURCE, None, store)
    assert capsys.readouterr().err == ""
    assert (again.read_tokens(), again.keys.read()) == (first.read_tokens(), first.keys.read())
    assert list(first.read_tokens()) == [first.drawn] == [again.drawn]
    for end in (".key", ".token"):
        assert (tmp_path / f"inbox.db{end}").stat().st_mode & 0o777 == 0o600


def test_what_is_given_is_not_drawn(tmp_path: Path) -> None:
    tokens, keys = written(tmp_path / "names", f"ann:{ANN}"), KeySource(str(written(tmp_path / "keys", KEY)))
    found = find_secrets(keys, tokens, tmp_path / "inbox.db")
    assert (found.keys, found.tokens, found.is_own, found.drawn) == (keys, tokens, False, None)
    assert find_secrets(NO_SOURCE, tokens, None).keys == NO_SOURCE
    elsewhere = find_secrets(keys, None, None)
    assert (elsewhere.tokens, list(elsewhere.read_tokens())) == (None, [elsewhere.drawn])
    assert find_secrets(keys, None, None).drawn != elsewhere.drawn
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys", "names"]


def test_a_store_without_its_key_is_not_opened_with_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = written(tmp_path / "inbox.db", "something")
    with pytest.raises(typer.Exit) as ended:
        find_secrets(NO_SOURCE, None, store)
    assert ended.value.exit_code == 2
    assert "nothing in the store can be read" in capsys.readouterr().err
    assert not (tmp_path / "inbox.db.key").exists()
    written(store)
    assert find_secrets(NO_SOURCE, None, store).keys.read(), "an empty file is no store yet"


def test_a_secret_that_cannot_be_written_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        find_secrets(NO_SOURCE, None, tmp_path / "nowhere" / "inbox.db")
    assert ended.value.exit_code == 3
    assert "inbox.db.key: No such file" in capsys.readouterr().err


def test_files_that_others_may_read_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("keys", "names", "ways")
    paths = [written(tmp_path / name, "x") for name in names]
    for path, mode in zip(paths, (0o644, 0o600, 0o604), strict=True):
        path.chmod(mode)
    Secrets(KeySource(str(paths[0])), paths[1], is_own=False, credentials=paths[2]).warn()
    said = capsys.readouterr().err
    assert [name for name in names if f"{name} can be read by others" in said] == ["keys", "ways"]
    Secrets(KeySource(variable="KEYS"), None, is_own=True).warn()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("sealed", "count", "end"),
    [
        ({"b": OTHER}, "1 call of 2", "them. 1 of them is still open."),
        ({"ended": OTHER}, "1 call of 2", "them."),
        ({"b": OTHER, "c": OTHER}, "2 calls of 3", "them. 2 of them are still open."),
    ],
)
def test_what_stays_shut_is_told(
    tmp_path: Path, sealed: dict[str, str], count: str, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        async with desk_with(tmp_path / "inbox.db", a=KEY, **sealed) as desk:
            await Secrets(KeySource(variable="K"), None, is_own=True).check(desk, [KEY])

    run(work())
    told = f"{count} in the store cannot be read: no key of $K opens {end}"
    assert capsys.readouterr().err.strip() == told


@pytest.mark.parametrize("sealed", [{}, {"a": KEY}, {"a": KEY, "ended": KEY}])
def test_of_a_store_that_is_open_nothing_is_told(
    tmp_path: Path, sealed: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        async with desk_with(tmp_path / "inbox.db", **sealed) as desk:
            await Secrets(KeySource(variable="K"), None, is_own=True).check(desk, [KEY])

    run(work())
    assert capsys.readouterr().err == ""


def test_keys_that_open_nothing_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with desk_with(tmp_path / "inbox.db", a=OTHER, ended=OTHER) as desk:
            with pytest.raises(NoKeys, match="holds 2 calls, sealed under other keys than those of"):
                await Secrets(KeySource(variable="K"), None, is_own=True).check(desk, [KEY])

    run(work())


def reloaded(home: Path, *, keys: str, names: str, ways: str | None, **sealed: str) -> tuple[Any, ...]:
    """Under which key an inbox seals once it has read these files again, who comes in, and what a server is shown."""
    written(home / "keys", keys)
    written(home / "names", names)
    credentials = None if ways is None else written(home / "ways", ways)

    async def work() -> tuple[Any, ...]:
        async with desk_with(home / "inbox.db", **sealed) as desk:
            door = Door({ANN: "ann"}, desk.store)
            source = KeySource(str(home / "keys"))
            await Secrets(source, home / "names", is_own=False, credentials=credentials).reload(desk, door)
            before = await desk.store.sealed_elsewhere([KEY])
            await desk.store.add(item("new"))
            is_other = (await desk.store.sealed_elsewhere([KEY])).shut > before.shut
            callers = [getattr(door.member_of(token), "name", None) for token in (ANN, BOB)]
            return OTHER if is_other else KEY, callers, desk._credentials.of("https://a/mcp")

    return run(work())


WAY, GOOD = "https://a Bearer x", f"bob:{BOB}"


@pytest.mark.parametrize(
    ("keys", "names", "ways", "after", "said"),
    [
        (f"{OTHER}\n{KEY}", GOOD, WAY, (OTHER, [None, "bob"], "Bearer x"), "2 keys|1 token |credentials for 1 server "),
        (f"{OTHER}\n{KEY}", GOOD, None, (OTHER, [None, "bob"], None), "2 keys|1 token "),
        ("short", GOOD, WAY, (KEY, [None, "bob"], "Bearer x"), "keys stay as they are|1 token |credentials for 1"),
        (OTHER, GOOD, WAY, (KEY, [None, "bob"], "Bearer x"), "opens 1 open call. Put the new key first|1 token |"),
        (KEY, "nobody", WAY, (KEY, ["ann", None], "Bearer x"), "1 key |tokens stay as they are|credentials for 1"),
        (KEY, GOOD, "https://a", (KEY, [None, "bob"], None), "1 key |1 token |credentials stay as they are"),
    ],
)
def test_what_is_good_is_taken_up_and_what_is_not_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keys: str, names: str, ways: str | None, after: Any, said: str
) -> None:
    caplog.set_level(logging.INFO, logger="turnwise.inbox")
    assert reloaded(tmp_path, keys=keys, names=names, ways=ways, a=KEY) == after
    messages = [record.getMessage() for record in caplog.records]
    for words, message in zip(said.split("|"), messages, strict=True):
        assert words in message


def test_keys_that_open_nothing_are_not_taken_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert reloaded(tmp_path, keys=OTHER, names=GOOD, ways=None, ended=KEY)[0] == KEY
    assert "the keys stay as they are: the store holds 1 call, sealed under other keys" in caplog.text


def test_while_the_store_is_away_keys_and_credentials_stay_and_tokens_do_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise CallerError("the store is away")

    files = [written(tmp_path / name, text) for name, text in (("keys", KEY), ("names", GOOD), ("ways", WAY))]

    async def work() -> None:
        async with desk_with(tmp_path / "inbox.db") as desk:
            door = Door({ANN: "ann"}, desk.store)
            monkeypatch.setattr(desk.store, "sealed_elsewhere", away)
            monkeypatch.setattr(desk.store, "page", away)
            await Secrets(KeySource(str(files[0])), files[1], is_own=False, credentials=files[2]).reload(desk, door)
            assert door.member_of(BOB) == Member("bob")

    run(work())
    assert "the keys stay as they are: the store is away" in caplog.text
    assert "the credentials stay as they are: the store is away" in caplog.text


def test_keys_that_shut_what_is_shut_already_or_over_are_taken(tmp_path: Path) -> None:
    third = "a-third-key-of-the-inbox-for-tests!"
    facts = {"names": GOOD, "ways": None, "ended": KEY, "b": third, "c": OTHER}
    assert reloaded(tmp_path, keys=OTHER, **facts)[0] == OTHER  # type: ignore[arg-type]
