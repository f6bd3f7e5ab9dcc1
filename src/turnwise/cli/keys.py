"""Keys for a server, from a file or from the environment."""

import os
import shlex
from pathlib import Path
from typing import NamedTuple

from .._sealed import KeyRing


class NoKeys(Exception):
    """The keys cannot be had; the message says why. `advice` is for who has never had any."""

    def __init__(self, reason: str, advice: str = "") -> None:
        self.reason = reason
        super().__init__(f"{reason}. {advice}" if advice else reason)


class KeySource(NamedTuple):
    """Where keys come from: a file with one key a line, or a variable with keys between commas. The first mints."""

    file: str | None = None
    variable: str | None = None

    def __bool__(self) -> bool:
        return self.file is not None or self.variable is not None

    def read(self) -> list[str]:
        """The keys, which are good; NoKeys where they are not."""
        keys = self._from_file(Path(self.file)) if self.file is not None else self._from_variable()
        try:
            KeyRing(keys)
        except ValueError as error:
            raise NoKeys(f"{self.name}: {error}") from None
        return keys

    @property
    def name(self) -> str:
        """What to call it."""
        return self.file if self.file is not None else f"${self.variable}"

    def warning(self) -> str | None:
        """What an operator should know of it."""
        if self.file is None or os.name != "posix":
            return None
        try:
            found = os.stat(self.file)
        except OSError:  # It was there a moment ago; when it is read again, that is told.
            return None
        is_lent = found.st_uid == 0 != os.geteuid()  # Root keeps it and lends it to a group, as secrets are mounted.
        mode, too_much = ("640", 0o027) if is_lent else ("600", 0o077)
        return f"{self.file} can be read by others: chmod {mode} {self.file}" if found.st_mode & too_much else None

    def _from_file(self, path: Path) -> list[str]:
        try:
            text = path.read_text()
        except FileNotFoundError as error:
            advice = f"This makes one: turnwise keys new --file {shlex.quote(str(path))}"
            raise NoKeys(f"{path}: {error.strerror}", advice) from None
        except (OSError, UnicodeDecodeError) as error:
            raise NoKeys(f"{path}: {error.strerror if isinstance(error, OSError) else 'is no text'}") from None
        keys = [line.strip() for line in text.splitlines()]
        return [key for key in keys if key and not key.startswith("#")]

    def _from_variable(self) -> list[str]:
        text = os.environ.get(self.variable or "")
        if not text:
            raise NoKeys(f"the variable {self.variable} is not set")
        return [key.strip() for key in text.split(",") if key.strip()]


NO_SOURCE = KeySource()
