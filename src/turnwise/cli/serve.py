"""`turnwise serve`."""

import os
from typing import Annotated, Any

import typer

from .._hosting import MAX_BODY
from ..transports.turnstile import RequestLimits
from .key_options import key_source
from .reloading import hold_back
from .serving import ServeOptions, serve_here
from .supervising import Supervisor

LEVELS = ("debug", "info", "warning", "error")

_LIMITS = RequestLimits()


def checked_level(name: str) -> str:
    """A level of the log; BadParameter where it is none."""
    if name not in LEVELS:
        raise typer.BadParameter(f"a level is one of {', '.join(LEVELS)}")
    return name


def _path(path: str) -> str:
    if not path.startswith("/"):
        raise typer.BadParameter("a path begins with /")
    return path


def serve(  # noqa: PLR0913, PLR0917 - a command's options
    server: Annotated[str, typer.Argument(help="module:attribute or file.py:attribute.", metavar="SERVER")],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8000,
    path: Annotated[str, typer.Option(callback=_path, help="Where the endpoint is.")] = "/mcp",
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port.")] = 1,
    hung_after: Annotated[
        float,
        typer.Option(min=0, help="Seconds after which one of several workers that hangs is replaced; 0: never."),
    ] = 60.0,
    keys_file: Annotated[
        str | None, typer.Option(help="A file with one key a line; the first mints. SIGHUP reads it again.")
    ] = None,
    keys_env: Annotated[str | None, typer.Option(help="A variable with keys between commas.")] = None,
    metrics_port: Annotated[int | None, typer.Option(min=1, max=65535, help="Serve figures for Prometheus.")] = None,
    metrics_host: Annotated[str, typer.Option(help="The address for figures.")] = "127.0.0.1",
    allowed_host: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A Host that is let in; give several.")
    ] = None,
    allowed_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="An Origin that is let in; give several.")
    ] = None,
    access_log: Annotated[bool, typer.Option(help="A line for each request, on standard output.")] = True,
    log_level: Annotated[str, typer.Option(callback=checked_level, help=" | ".join(LEVELS))] = "info",
    max_body: Annotated[int, typer.Option(min=1, help="Bytes that a request may have.")] = MAX_BODY,
    max_in_flight: Annotated[int, typer.Option(min=1, help="Requests at a time in one worker.")] = _LIMITS.in_flight,
    per_caller: Annotated[int, typer.Option(min=1, help="Of those, from one caller.")] = _LIMITS.per_caller,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Requests a second from one caller.")] = None,
    burst: Annotated[int, typer.Option(min=1, help="How many at once before --rate counts.")] = _LIMITS.burst,
    caller_header: Annotated[
        str | None, typer.Option(help="The header by which a proxy tells callers apart, such as X-Real-IP.")
    ] = None,
    instance_header: Annotated[
        bool, typer.Option("--instance-header", help="Name host, process and the ids of keys in each response.")
    ] = False,
    drain: Annotated[float, typer.Option(min=0, help="Seconds to serve on after SIGTERM, with /readyz at 503.")] = 0.0,
    grace: Annotated[int, typer.Option(min=0, help="Seconds for requests under way to finish.")] = 30,
) -> None:
    """Serve an MCP server over HTTP. SIGTERM ends it in good order; SIGHUP reads the keys again."""
    hold_back()
    key_source(keys_file, keys_env)
    if workers > 1 and os.name != "posix":
        raise typer.BadParameter("several workers share a port on POSIX systems only")
    limits: dict[str, Any] = {
        "in_flight": max_in_flight,
        "per_caller": per_caller,
        "rate": rate,
        "burst": burst,
        "caller_header": caller_header,
    }
    try:
        RequestLimits(**limits)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    options = ServeOptions(
        server=server,
        host=host,
        port=port,
        path=path,
        keys_file=keys_file,
        keys_env=keys_env,
        allowed_hosts=allowed_host or (),
        allowed_origins=allowed_origin or (),
        access_log=access_log,
        log_level=log_level,
        metrics=metrics_port is not None,
        max_body=max_body,
        limits=limits,
        drain=drain,
        grace=grace,
        workers=workers,
        hung_after=hung_after,
        names_instance=instance_header,
    )
    metrics = None if metrics_port is None else (metrics_host, metrics_port)
    raise typer.Exit(_run(options, metrics))


def _run(options: ServeOptions, metrics: tuple[str, int] | None) -> int:
    return Supervisor(options, metrics).run() if options.workers > 1 else serve_here(options, metrics=metrics)
