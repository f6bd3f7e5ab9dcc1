"""`turnwise dev`: serve a server while it is being written. `turnwise stdio`: serve it over standard streams."""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import TurnwiseError
from .hosts import hosts, started
from .key_options import KeysEnv, KeysFile, key_source
from .keys import NoKeys
from .loading import Exited, NotFound, load, load_keyed
from .serving import REFUSED, ServeOptions, listen
from .showing import fail, note
from .supervising import Supervisor

LOOK_SECONDS = 0.5
_PASSED_OVER = {"__pycache__", "node_modules", "site-packages"}

Server = Annotated[str, typer.Argument(help="module:attribute or file.py:attribute.", metavar="SERVER")]


def dev(
    server: Server,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8000,
    path: Annotated[str, typer.Option(help="Where the endpoint is.")] = "/mcp",
    keys_file: KeysFile = None,
    keys_env: KeysEnv = None,
) -> None:
    """Serve, and start anew whenever a Python file here changes. Questions that are open survive that."""
    if os.name != "posix":
        fail("turnwise dev needs a POSIX system; use: turnwise serve")
    key_source(keys_file, keys_env)
    try:
        name = load(server).name
    except Exception as error:  # The author's own; it may be mended while this runs.
        if isinstance(error, NotFound) and not isinstance(error, Exited):
            fail(str(error), 2)
        note(str(error) if isinstance(error, Exited) else f"{type(error).__name__}: {error}", "red")
        name = server.partition(":")[0].removesuffix(".py")
    _check_port(port)
    _say_hosts(name, server, f"http://127.0.0.1:{port}{path}")
    keys: dict[str, Any] = {"keys_file": keys_file, "keys_env": keys_env, "says_keys": False, "is_patient": True}
    options = ServeOptions(server=server, port=port, path=path, grace=1, names_instance=True, **keys)
    supervisor = Supervisor(options, None)
    threading.Thread(target=_watch, args=(supervisor, Path.cwd()), daemon=True).start()
    raise typer.Exit(supervisor.run())


def stdio(server: Server, keys_file: KeysFile = None, keys_env: KeysEnv = None) -> None:
    """Serve over standard streams, for hosts that start servers themselves."""
    try:
        load_keyed(server, key_source(keys_file, keys_env)).run("stdio")
    except (NotFound, NoKeys) as error:
        fail(str(error), 2)
    except TurnwiseError as error:
        fail(str(error))


def _check_port(port: int) -> None:
    """Before much is said of where it is served."""
    try:
        listen("127.0.0.1", port).close()
    except OSError as error:
        fail(str(error), REFUSED)


def _say_hosts(name: str, server: str, url: str) -> None:
    for host in (*hosts(name, url), started(name, _whole(server), sys.executable, str(Path.cwd()))):
        note(f"{host.name}, {host.file}:", "bold")
        note(host.written(), "dim")
    note(f"Try it: turnwise list {url}", "bold")


def _whole(server: str) -> str:
    """The server by a name that holds in any folder."""
    place, colon, attribute = server.partition(":")
    return f"{Path(place).resolve()}{colon}{attribute}" if place.endswith(".py") else server


def _watch(supervisor: Supervisor, folder: Path) -> None:
    seen = _times(folder)
    while True:
        time.sleep(LOOK_SECONDS)
        now = _times(folder)
        changed = [path for path, when in now.items() if seen.get(path) != when] or [*seen.keys() - now.keys()]
        if changed:
            note(f"{Path(changed[0]).name} has changed", "dim")
            supervisor.start_anew()
        seen = now


def _times(folder: Path) -> dict[str, float]:
    times = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _PASSED_OVER and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                try:
                    times[path] = os.stat(path).st_mtime
                except OSError:
                    continue
    return times
