"""`turnwise inbox`: a page, and an API, on which people answer what calls ask."""

import asyncio
import os
import secrets
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import typer

from ..errors import CallerError
from ..transports.door import LOCAL
from .key_options import key_source
from .keys import KeySource, NoKeys
from .serve import LEVELS, checked_level
from .showing import fail, note

if TYPE_CHECKING:
    from ..inbox.desk import Inbox
    from ..inbox.door import Door
    from ..inbox.postgres import PostgresInboxStore
    from ..inbox.sqlite import SQLiteInboxStore

CANNOT_SERVE = 3
DAY = 24 * 3600.0
GRACE = 5
_SERVED = {
    "access_log": False,
    "proxy_headers": False,
    "server_header": False,
    "ws": "none",
    "lifespan": "on",
    "timeout_graceful_shutdown": GRACE,
}
POSTGRES = ("postgresql://", "postgres://")


class _Place(NamedTuple):
    """Where an inbox is served, and under which name."""

    host: str
    port: int
    url: str | None
    log_level: str


def inbox(  # noqa: PLR0913, PLR0917 - a command's options
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8420,
    store: Annotated[str, typer.Option(help="An SQLite file, or postgresql://… for several inboxes.")] = "inbox.db",
    url: Annotated[str | None, typer.Option(help="Where people reach it, if that is by a proxy.")] = None,
    keys_file: Annotated[
        str | None, typer.Option(help="A file with one key a line, which seal the store; the first is used for new.")
    ] = None,
    keys_env: Annotated[str | None, typer.Option(help="A variable with keys between commas.")] = None,
    tokens_file: Annotated[Path | None, typer.Option(help="A file with name:token lines: who may come in.")] = None,
    allowed_host: Annotated[list[str] | None, typer.Option(help="A Host that is let in; give several.")] = None,
    server: Annotated[
        list[str] | None, typer.Option(help="A server, or the beginning of its URL, whose calls are taken; all unless.")
    ] = None,
    hook_secret_env: Annotated[
        str | None, typer.Option(help="A variable with secrets (whsec_…) between spaces, which sign hooks.")
    ] = None,
    retention: Annotated[float, typer.Option(min=0.0, help="Days for which what has ended is kept.")] = 30.0,
    takeover: Annotated[float, typer.Option(min=0.5, help="Seconds until a dead inbox's work is taken up.")] = 30.0,
    log_level: Annotated[str, typer.Option(callback=checked_level, help=" | ".join(LEVELS))] = "warning",
) -> None:
    """Serve an inbox: people answer there what calls ask, and the calls go on from there."""
    try:
        from ..inbox.desk import Inbox
        from ..inbox.door import Door
        from ..inbox.working import WorkOptions
    except ModuleNotFoundError as error:
        _explain(error)
    if url is not None and not url.startswith(("http://", "https://")):
        fail(f"--url is where people reach the inbox, with its scheme: https://{url}", 2)
    if not store.startswith(POSTGRES) and ("://" in store or not Path(store).absolute().parent.is_dir()):
        fail(f"--store is the path of a file, in a folder that is there, or {POSTGRES[0]}...; not {store}", 2)
    kept = _store(store, key_source(keys_file, keys_env))
    tokens, drawn = _tokens(tokens_file, None if store.startswith(POSTGRES) else Path(store))
    is_secure = (url or "").startswith("https://")
    try:
        desk = Inbox(
            kept,
            url=url,
            hook_secrets=_secrets(hook_secret_env),
            servers=server or None,
            work=WorkOptions(retention=retention * DAY, claim_seconds=takeover),
        )
        hosts = None if allowed_host is None and url is None else [*(allowed_host or ()), *_names(url)]
        door = Door(tokens, kept, is_secure=is_secure, bind=host, hosts=hosts)
    except ValueError as error:
        fail(str(error), 2)
    if host not in (*LOCAL, "::1") and not is_secure:
        note(f"Others reach {host}, and tokens travel in the clear: put a proxy with TLS before it; say --url.", "red")
    raise typer.Exit(_serve(desk, door, _Place(host, port, url, log_level), drawn))


def _explain(error: ImportError) -> Any:
    """Say what to install. The store in PostgreSQL says by itself which extra it needs, and brings the cause along."""
    missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    if missing.name not in ("fastapi", "starlette", "jinja2", "asyncpg"):
        raise error
    extra = "postgres" if missing.name == "asyncpg" else "inbox"
    fail(f"The inbox needs a few more packages: pip install 'turnwise[{extra}]'", CANNOT_SERVE)


def _names(url: str | None) -> list[str]:
    return [] if url is None else [urlsplit(url).netloc.lower(), *LOCAL]


def _store(name: str, source: KeySource) -> "SQLiteInboxStore | PostgresInboxStore":
    """The store of this name. SQLite without keys gets a file with one beside it."""
    try:
        if name.startswith(POSTGRES):
            if not source:
                fail("an inbox in PostgreSQL is shared, and so are its keys: give --keys-file or --keys-env", 2)
            from ..inbox.postgres import PostgresInboxStore

            return PostgresInboxStore(name, source.read())
        from ..inbox.sqlite import SQLiteInboxStore

        keys = source if source else _drawn(Path(name))
        found = SQLiteInboxStore(name, keys.read())
    except ImportError as error:
        _explain(error)
    except NoKeys as error:
        fail(str(error), 2)
    if warning := keys.warning():
        note(warning, "red")
    return found


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
        return path.read_text().strip()
    except OSError as error:
        fail(f"{path}: {error.strerror}", CANNOT_SERVE)
    return secret


def _tokens(path: Path | None, store: Path | None) -> tuple[dict[str, str], str | None]:
    """Names by token, and the token that was drawn if none was given. That of a store in a file is kept beside it: who
    waits for a call goes on waiting when the inbox is started again.
    """
    from ..inbox.door import read_tokens

    if path is None:
        drawn = secrets.token_urlsafe(24)
        if store is not None:
            drawn = _written(store.with_name(store.name + ".token"), drawn)
        return {drawn: "you"}, drawn
    try:
        tokens = read_tokens(path.read_text())
    except (OSError, ValueError) as error:
        fail(f"{path}: {error.strerror if isinstance(error, OSError) else error}", 2)
    if not tokens:
        fail(f"{path} has no token in it: lines are name:token", 2)
    if warning := KeySource(str(path)).warning():
        note(warning, "red")
    return tokens, None


def _secrets(variable: str | None) -> list[str]:
    if variable is None:
        return []
    if not (text := os.environ.get(variable)):
        fail(f"the variable {variable} is not set", 2)
    return text.split()


def _serve(desk: "Inbox", door: "Door", place: _Place, drawn: str | None) -> int:
    """Until a signal: 0 where it ended in good order."""
    import uvicorn

    from ..inbox.app import create_app

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                port = self.servers[0].sockets[0].getsockname()[1]
                _welcome(desk, place, port, drawn)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            desk.let_go()  # Those who wait for changes would keep it from ending.
            await super().shutdown(sockets)

    options: Any = {"host": place.host, "port": place.port, "log_level": place.log_level, **_SERVED}
    config = uvicorn.Config(create_app(desk, door), **options)

    async def run() -> bool:
        await desk.store.changes(None)  # Whether it can be used, before anybody comes.
        server = Server(config)
        await server.serve()
        await desk.store.aclose()
        return server.started

    try:
        return 0 if asyncio.run(run()) else CANNOT_SERVE
    except CallerError as error:
        fail(str(error), CANNOT_SERVE)
    except KeyboardInterrupt:
        return 0


def _welcome(desk: "Inbox", place: _Place, port: int, drawn: str | None) -> None:
    host = f"[{place.host}]" if ":" in place.host else place.host
    desk.url = (place.url or f"http://{host}:{port}").rstrip("/")
    note(f"The inbox is at {desk.url}/")
    if drawn is not None:
        note(f"Sign in at {desk.url}/login with the token {drawn}")
