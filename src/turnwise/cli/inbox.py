"""`turnwise inbox`: a page, and an API, on which people answer what calls ask."""

import asyncio
import errno
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

import typer

from ..errors import CallerError
from ..transports.door import LOCAL
from .inbox_secrets import CANNOT_SERVE, BadSecrets, Secrets, find_secrets
from .key_options import key_source
from .keys import NoKeys
from .reloading import SIGNAL, hold_back, let_through
from .serve import LEVELS, checked_level
from .serving import listen, log_lines, serve_figures
from .showing import fail, note

if TYPE_CHECKING:
    from ..inbox.desk import Inbox
    from ..inbox.door import Door
    from ..inbox.postgres import PostgresInboxStore
    from ..inbox.sqlite import SQLiteInboxStore

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

    listening: socket.socket
    host: str
    url: str | None
    log_level: str
    metrics: tuple[str, int] | None


def inbox(  # noqa: PLR0913, PLR0917 - a command's options
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8420,
    store: Annotated[str, typer.Option(help="An SQLite file, or postgresql://… for several inboxes.")] = "inbox.db",
    url: Annotated[str | None, typer.Option(help="Where people reach it, if that is by a proxy.")] = None,
    keys_file: Annotated[
        str | None, typer.Option(help="A file with one key a line, which seal the store; the first is used for new.")
    ] = None,
    keys_env: Annotated[str | None, typer.Option(help="A variable with keys between commas.")] = None,
    tokens_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with name:token lines: who may come in; with `caller` or `reader` behind it, for less."
        ),
    ] = None,
    allowed_host: Annotated[list[str] | None, typer.Option(help="A Host that is let in; give several.")] = None,
    caller_header: Annotated[
        str | None, typer.Option(help="The header by which a proxy tells people apart, such as X-Real-IP.")
    ] = None,
    server: Annotated[
        list[str] | None, typer.Option(help="A server, or the beginning of its URL, whose calls are taken; all unless.")
    ] = None,
    credentials_file: Annotated[
        Path | None,
        typer.Option(help="A file with lines of a server's URL and its Authorization, for calls with none."),
    ] = None,
    hook_secret_env: Annotated[
        str | None, typer.Option(help="A variable with secrets (whsec_…) between spaces, which sign hooks.")
    ] = None,
    hook: Annotated[
        list[str] | None, typer.Option(help="A URL that is told of every question and end; give several.")
    ] = None,
    allowed_hook: Annotated[
        list[str] | None, typer.Option(help="A URL, or its beginning, that callers may have told; any unless given.")
    ] = None,
    hook_words: Annotated[bool, typer.Option("--hook-words", help="Tell it what the questions say, too.")] = False,
    retention: Annotated[float, typer.Option(min=0.0, help="Days for which what has ended is kept.")] = 30.0,
    metrics_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Serve figures for Prometheus.")] = None,
    metrics_host: Annotated[str, typer.Option(help="The address for figures.")] = "127.0.0.1",
    takeover: Annotated[float, typer.Option(min=0.5, help="Seconds until a dead inbox's work is taken up.")] = 30.0,
    log_level: Annotated[str, typer.Option(callback=checked_level, help=" | ".join(LEVELS))] = "info",
) -> None:
    """Serve an inbox: people answer there what calls ask, and the calls go on from there. SIGHUP reads keys, tokens and
    credentials again.
    """
    hold_back()
    try:
        from ..inbox import app  # noqa: F401 - so that nothing is drawn or written for pages that cannot be shown
        from ..inbox.desk import Inbox
        from ..inbox.door import Door
        from ..inbox.working import WorkOptions
    except ModuleNotFoundError as error:
        _explain(error)
    source, is_shared = key_source(keys_file, keys_env), store.startswith(POSTGRES)
    _check(url, store, has_keys=bool(source), has_tokens=tokens_file is not None)
    log_lines(log_level.upper())
    is_secure = (url or "").startswith("https://")
    if host not in (*LOCAL, "::1") and not is_secure:
        note(f"Others reach {host}, and tokens travel in the clear: put a proxy with TLS before it; say --url.", "red")
    with _listening(host, port) as listening:
        found = find_secrets(source, tokens_file, None if is_shared else Path(store))
        found = found._replace(credentials=credentials_file)
        kept = _store(store, found)
        try:
            desk = Inbox(
                kept,
                url=url,
                **_hooks(hook_secret_env, hook, hook_words),
                allowed_hooks=allowed_hook or None,
                servers=server or None,
                credentials=found.read_credentials(),
                work=WorkOptions(retention=retention * DAY, claim_seconds=takeover),
            )
            hosts = None if allowed_host is None and url is None else [*(allowed_host or ()), *_names(url)]
            tokens = found.read_tokens()
            door = Door(tokens, kept, is_secure=is_secure, bind=host, hosts=hosts, caller_header=caller_header)
        except (ValueError, BadSecrets) as error:
            fail(str(error), 2)
        found.warn()
        metrics = None if metrics_port is None else (metrics_host, metrics_port)
        raise typer.Exit(_serve(desk, door, _Place(listening, host, url, log_level, metrics), found))


def _check(url: str | None, store: str, *, has_keys: bool, has_tokens: bool) -> None:
    """End where what was said cannot be meant."""
    if url is not None and not url.startswith(("http://", "https://")):
        fail(f"--url is where people reach the inbox, with its scheme: https://{url}", 2)
    if url is not None and any(mark in url for mark in "?#@"):
        fail(f"--url is a scheme, a host and a path, with neither ? nor # nor a user in it; not {url}", 2)
    if not store.startswith(POSTGRES) and ("://" in store or not Path(store).absolute().parent.is_dir()):
        fail(f"--store is the path of a file, in a folder that is there, or {POSTGRES[0]}...; not {store}", 2)
    if not store.startswith(POSTGRES):
        return
    if not has_keys:
        fail("an inbox in PostgreSQL is shared, and so are its keys: give --keys-file or --keys-env", 2)
    if not has_tokens and not sys.stderr.isatty():
        fail("an inbox in PostgreSQL is shared, and so is who may come in: give --tokens-file", 2)


def _explain(error: ImportError) -> NoReturn:
    """Say what to install. The store in PostgreSQL says by itself which extra it needs, and brings the cause along."""
    missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    if missing.name not in ("fastapi", "starlette", "jinja2", "asyncpg"):
        raise error
    extra = "postgres" if missing.name == "asyncpg" else "inbox"
    fail(f"The inbox needs a few more packages: pip install 'turnwise[{extra}]'", CANNOT_SERVE)


def _names(url: str | None) -> list[str]:
    return [] if url is None else [urlsplit(url).netloc.lower(), *LOCAL]


def _store(name: str, found: Secrets) -> "SQLiteInboxStore | PostgresInboxStore":
    """The store of this name, under these keys."""
    try:
        keys = found.keys.read()
        if name.startswith(POSTGRES):
            from ..inbox.postgres import PostgresInboxStore

            return PostgresInboxStore(name, keys)
        from ..inbox.sqlite import SQLiteInboxStore

        return SQLiteInboxStore(name, keys)
    except ImportError as error:
        _explain(error)
    except NoKeys as error:
        fail(str(error), 2)


def _listening(host: str, port: int) -> socket.socket:
    """A socket, before anything is drawn or made for an inbox that could not be served."""
    try:
        return listen(host, port)
    except OSError as error:
        hint = "; does an inbox run there already? --port takes another" if error.errno == errno.EADDRINUSE else ""
        fail(f"{host}:{port} cannot be listened on: {error.strerror or error}{hint}", CANNOT_SERVE)


def _hooks(variable: str | None, urls: list[str] | None, words: bool) -> dict[str, Any]:
    return {"hook_secrets": _secrets(variable), "hooks": urls or (), "hook_words": words}


def _secrets(variable: str | None) -> list[str]:
    if variable is None:
        return []
    if not (text := os.environ.get(variable)):
        fail(f"the variable {variable} is not set", 2)
    return text.split()


def _app(desk: "Inbox", door: "Door", place: _Place) -> Any:
    """The application, at the path that the URL has."""
    from ..inbox.app import create_app

    try:
        return create_app(desk, door, base=urlsplit(place.url or "").path)
    except ValueError as error:
        fail(f"--url {place.url}: {error}", 2)


def _serve(desk: "Inbox", door: "Door", place: _Place, found: Secrets) -> int:
    """Until a signal: 0 where it ended in good order."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                _welcome(desk, place, found)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            desk.let_go()  # Those who wait for changes would keep it from ending.
            await super().shutdown(sockets)

    level = "debug" if place.log_level == "debug" else "warning"  # Of its own uvicorn says little that is news.
    options: Any = {"log_level": level, "log_config": None, **_SERVED}
    server = Server(uvicorn.Config(_app(desk, door, place), **options))

    async def run() -> bool:
        await found.check(desk, found.keys.read())  # Whether the store can be used and read, before anybody comes.
        async with _counting(desk, place.metrics):
            with _heeding(lambda: found.reload(desk, door)):
                await server.serve(sockets=[place.listening])
        await desk.store.aclose()
        return server.started

    try:
        return 0 if asyncio.run(run()) else CANNOT_SERVE
    except (CallerError, NoKeys, OSError) as error:
        fail(str(error), CANNOT_SERVE)
    except KeyboardInterrupt:
        return 0


@contextmanager
def _heeding(reload: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[None]:
    """Read again what is in files whenever SIGHUP comes, where there is such a signal."""
    if SIGNAL is None:
        yield
        return
    loop, under_way = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def heed() -> None:
        under_way.add(task := loop.create_task(reload()))
        task.add_done_callback(under_way.discard)

    loop.add_signal_handler(SIGNAL, heed)
    let_through()
    try:
        yield
    finally:
        hold_back()
        loop.remove_signal_handler(SIGNAL)


@asynccontextmanager
async def _counting(desk: "Inbox", metrics: tuple[str, int] | None) -> AsyncIterator[None]:
    """Figures for Prometheus, where they are wanted."""
    if metrics is None:
        yield
        return
    from ..inbox.figures import Figures

    desk.notes = figures = Figures()
    serve_figures(*metrics)
    following = asyncio.create_task(figures.follow(desk))
    try:
        yield
    finally:
        following.cancel()


def _welcome(desk: "Inbox", place: _Place, found: Secrets) -> None:
    port = place.listening.getsockname()[1]
    host = f"[{place.host}]" if ":" in place.host else place.host
    desk.url = (place.url or f"http://{host}:{port}").rstrip("/")
    note(f"The inbox is at {desk.url}/")
    if found.drawn is None:
        return
    # What is no terminal is a journal, which keeps what it is told and shows it to others.
    is_private = sys.stderr.isatty() or found.tokens is None
    note(f"Sign in at {desk.url}/login with the token {found.drawn if is_private else f'in {found.tokens}'}")
