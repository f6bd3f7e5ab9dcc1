"""What `turnwise inbox` is trusted with: the keys that seal its store, the tokens of who may come in, and credentials
for servers. They are read when it starts and again on SIGHUP; where a file is not good, what was read before stays in
use.
"""

import logging
import os
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..errors import CallerError
from .keys import KeySource, NoKeys
from .showing import fail, note

if TYPE_CHECKING:
    from ..inbox.desk import Inbox
    from ..inbox.door import Door
    from ..inbox.rights import Member

CANNOT_SERVE = 3
NOBODY = "owner"
"""Who has the token that was drawn."""

log = logging.getLogger("turnwise.inbox")

T = TypeVar("T")


class BadSecrets(Exception):
    """The tokens, or the credentials, cannot be had; the message says why."""


class Secrets(NamedTuple):
    """Where keys and tokens come from. `drawn` is a token that no file has."""

    keys: KeySource
    tokens: Path | None
    is_own: bool
    """Whether the file of tokens is the inbox's own, with one token in it and no name."""
    drawn: str | None = None
    credentials: Path | None = None
    """The file with what the inbox shows to servers."""

    def read_tokens(self) -> "dict[str, Member]":
        """Members by token; BadSecrets where there are none that are good."""
        from ..inbox.door import check_tokens, read_tokens
        from ..inbox.rights import Member

        def parsed(text: str) -> dict[str, Member]:
            tokens = {text.strip(): Member(NOBODY)} if self.is_own else read_tokens(text)
            if not tokens:
                raise ValueError("has no token in it: lines are name:token")
            return check_tokens(tokens)

        return {self.drawn or "": Member(NOBODY)} if self.tokens is None else _read(self.tokens, parsed)

    def read_credentials(self) -> dict[str, str]:
        """What the inbox shows to servers, by the beginning of their URL; BadSecrets where a line is not good."""
        from ..inbox.places import read_credentials

        return {} if self.credentials is None else _read(self.credentials, read_credentials)

    def warn(self) -> None:
        """Say what others may read, to who starts the inbox."""
        for warning in self._warnings():
            note(warning, "red")

    def _warnings(self) -> list[str]:
        files = [path for path in (self.tokens, self.credentials) if path is not None]
        sources = (self.keys, *(KeySource(str(path)) for path in files))
        return [warning for source in sources if source and (warning := source.warning())]

    async def check(self, desk: "Inbox", keys: Sequence[str]) -> None:
        """NoKeys where none of these keys opens anything in the store; a word where some of it stays shut."""
        shut, count, waiting = await desk.store.sealed_elsewhere(keys)
        calls = _many(shut, "call")
        if shut and shut == count:
            raise NoKeys(
                f"the store holds {calls}, sealed under other keys than those of {self.keys.name}",
                "Start the inbox with the keys that it had before, or with another --store",
            )
        if shut:
            open_ones = f" {waiting} of them {'is' if waiting == 1 else 'are'} still open." if waiting else ""
            note(
                f"{calls} of {count} in the store cannot be read: no key of {self.keys.name} opens them.{open_ones}",
                "red",
            )

    async def _check_open(self, desk: "Inbox", keys: Sequence[str]) -> None:
        """NoKeys where these keys would shut calls that are open, and that those in use open."""
        waiting = (await desk.store.sealed_elsewhere(keys)).waiting - (await desk.store.sealed_elsewhere()).waiting
        if waiting > 0:
            raise NoKeys(
                f"no key of {self.keys.name} opens {_many(waiting, 'open call')}",
                "Put the new key first and keep the others: open calls are sealed under it soon, and the others can go",
            )

    async def reload(self, desk: "Inbox", door: "Door") -> None:
        """Take up keys, tokens and credentials anew; what cannot be had stays as it is."""
        for warning in self._warnings():
            log.warning("%s", warning)
        try:
            keys = self.keys.read()
            await self._check_open(desk, keys)
            await self.check(desk, keys)
            desk.use_keys(keys)
            log.info("%s from %s; the first one seals", _many(len(keys), "key"), self.keys.name)
        except (NoKeys, CallerError) as error:
            log.error("the keys stay as they are: %s", error)
        try:
            tokens = self.read_tokens()
            door.use_tokens(tokens)
            if self.tokens is not None:
                log.info("%s from %s", _many(len(tokens), "token"), self.tokens)
        except BadSecrets as error:
            log.error("the tokens stay as they are: %s", error)
        if self.credentials is not None:
            await self._reload_credentials(desk)

    async def _reload_credentials(self, desk: "Inbox") -> None:
        try:
            credentials = self.read_credentials()
            await desk.use_credentials(credentials)
            many = _many(len(credentials), "server")
            log.info("credentials for %s from %s; what is held goes on", many, self.credentials)
        except (BadSecrets, CallerError) as error:
            log.error("the credentials stay as they are: %s", error)


def _read(path: Path, parse: Callable[[str], dict[str, T]]) -> dict[str, T]:
    try:
        return parse(path.read_text())
    except UnicodeDecodeError:
        raise BadSecrets(f"{path}: is no text") from None
    except (OSError, ValueError) as error:
        raise BadSecrets(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from None


def _many(count: int, word: str) -> str:
    return f"1 {word}" if count == 1 else f"{count} {word}s"


def find_secrets(source: KeySource, tokens: Path | None, store: Path | None) -> Secrets:
    """The secrets of an inbox. For a store in a file, what is not given is drawn and kept beside it: who waits for a
    call goes on waiting when the inbox is started again.
    """
    keys = source if source or store is None else _drawn(store)
    if tokens is not None:
        return Secrets(keys, tokens, is_own=False)
    token = secrets.token_urlsafe(24)
    if store is None:
        return Secrets(keys, None, is_own=True, drawn=token)
    path = store.with_name(store.name + ".token")
    return Secrets(keys, path, is_own=True, drawn=_written(path, token))


def _drawn(store: Path) -> KeySource:
    """The file with the key of a store, beside it; drawn with the store."""
    path = store.with_name(store.name + ".key")
    if not path.exists():
        if store.exists() and store.stat().st_size:
            fail(f"{path}, with the key of {store}, is not there: without it nothing in the store can be read", 2)
        _written(path, secrets.token_urlsafe(32))
        note(f"A key was drawn for {store}: it is in {path}. Keep both, and keep them apart in backups.")
    return KeySource(str(path))


def _written(path: Path, secret: str) -> str:
    """A secret in a file that only its owner reads: this one, or the one that is there."""
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "w") as opened:
            opened.write(secret + "\n")
    except FileExistsError:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        fail(f"{path}: {error.strerror}", CANNOT_SERVE)
    return secret
