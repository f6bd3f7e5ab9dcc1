"""A server by its name: `module:attribute`, or `file.py:attribute`, as in `shop:server`. Where it is the only one, the
module or the file is enough.
"""

import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .._sealed import provide_keys
from ..server import MCPServer
from .keys import NO_SOURCE, KeySource, NoKeys

_LIBRARY = str(Path(__file__).parents[1]) + os.sep
_OTHERS = ("<frozen ", _LIBRARY, *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")))
"""Where files begin that are no author's."""
_LOADERS = ("<frozen importlib", _LIBRARY, str(Path(importlib.__file__).parent) + os.sep)
"""Where files begin that import an author's."""


class NotFound(Exception):
    """There is no server of this name; the message says what there is."""


class Exited(NotFound):
    """The author's module called `sys.exit` while it was imported, and may yet be mended."""


def load_or_say(name: str, source: KeySource = NO_SOURCE, held: Sequence[str] = ()) -> MCPServer[Any]:
    """The same as `load_keyed`, for commands that have no use for what the author's module raises: it is NotFound."""
    try:
        return load_keyed(name, source, held)
    except (NotFound, NoKeys):
        raise
    except Exception as error:
        raise NotFound(unimported(name, error)) from None


def unimported(name: str, error: Exception) -> str:
    """That a server's module cannot be imported, with what it raised and where, in a line."""
    known = isinstance(error, SyntaxError) or getattr(error, "where", None) is not None  # It says so by itself.
    place = "" if known else _place(error)
    return f"{name.partition(':')[0]} cannot be imported: {type(error).__name__}: {error}{place}"


def _exited(name: str, error: SystemExit) -> str:
    called = "sys.exit()" if error.code is None else f"sys.exit({error.code!r})"
    return f"{name.partition(':')[0]} cannot be imported: it called {called}{_place(error)}"


def _place(error: BaseException) -> str:
    """The line of the author's own in which it came about."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_OTHERS)]
    where = (own or frames)[-1]
    return f" ({Path(where.filename).name}, line {where.lineno})"


def own_frames(error: BaseException) -> TracebackType | None:
    """A traceback without what stands before the first frame of the author's; None where there is no such frame."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_LOADERS):
        frames = frames.tb_next
    return frames


def load_keyed(name: str, source: KeySource, held: Sequence[str] = ()) -> MCPServer[Any]:
    """Import the server with the keys that it is to have; `held` are those that were read or drawn before. NoKeys where
    it cannot have them.
    """
    keys = [*held] or (source.read() if source else [])
    if keys:
        provide_keys(keys)
    server = load(name)
    if keys and server._security.is_process_local:  # Its store is the process's own too.
        raise NoKeys(
            f"{name} draws a key for one process alone, RequestStateSecurity.ephemeral(): leave that out, or "
            "serve it by one worker, without keys"
        )
    if source:
        try:
            server.use_keys(keys)
        except TypeError as error:
            raise NoKeys(str(error)) from None
    return server


def load(name: str) -> MCPServer[Any]:
    """Import the server: the one of this attribute; without one, `server`, or the only one that there is. What
    importing it raises is the author's, and comes out as it is; to exit is Exited.
    """
    place, _, attribute = name.partition(":")
    sys.path.insert(0, "")
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _from_name(place)
    except SystemExit as error:
        raise Exited(_exited(place, error)) from None
    found = getattr(module, attribute or "server", None)
    if isinstance(found, MCPServer):
        return found
    servers = {key: value for key, value in vars(module).items() if isinstance(value, MCPServer)}
    if not attribute and len({id(value) for value in servers.values()}) == 1:
        return next(iter(servers.values()))
    hint = f"it has {', '.join(servers)}" if servers else "it has no MCPServer"
    raise NotFound(f"{place} has no server {attribute or 'server'!r}: {hint}")


def _from_name(place: str) -> Any:
    if not all(part.isidentifier() for part in place.split(".")):
        raise NotFound(f"{place!r} is no module; a server is named module:attribute or file.py:attribute")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name != place.partition(".")[0] and error.name != place:
            raise
        raise NotFound(f"no module {place!r}; a server is named module:attribute or file.py:attribute") from None


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise NotFound(f"no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
