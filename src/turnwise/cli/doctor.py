"""`turnwise doctor`: what is wrong with how a server is served, found by asking it."""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, redirect_stdout
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .._terms import Terms
from ..client import Client
from ..dialects.words import INSTANCE, INSTANCE_KEYS
from ..errors import TurnwiseError
from ..server import MCPServer
from .calling import Headers, made_client
from .failing import worded
from .key_options import key_source
from .keys import KeySource, NoKeys
from .loading import NotFound, load_or_say
from .showing import as_json, fail, legible
from .targets import is_url

LOOKS = 12
"""So many requests look for the instances behind a balancer."""
SKEW = 5.0
BUFFERED = 3.0
"""Seconds after which a stream that has said nothing is held up on its way."""

STYLES = {"good": "green", "look": "yellow", "bad": "red"}


class Finding(NamedTuple):
    """Something that was looked at: good, worth a look, or bad."""

    how: str
    about: str
    what: str


class Visit(NamedTuple):
    """A server that is being served: who calls it, how many instances are to answer, and for how long to wait."""

    url: str
    headers: Sequence[str] | None
    instances: int | None
    seconds: float

    def client(self) -> Client:
        """Somebody who goes there."""
        return made_client(self.url, self.headers, "auto", cache=False)


def doctor(  # noqa: PLR0913, PLR0917 - a command's options
    target: Annotated[
        str | None,
        typer.Argument(help="A URL, or a server: module:attribute. If none: keys alone.", metavar="TARGET"),
    ] = None,
    keys_file: Annotated[str | None, typer.Option(help="A file with one key a line.")] = None,
    keys_env: Annotated[str | None, typer.Option(help="A variable with keys between commas.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="How many processes are to share the port.")] = 1,
    instances: Annotated[
        int | None, typer.Option(min=1, help="How many processes are to answer at a URL; fewer is bad.")
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each reply from a URL.")] = 10.0,
    header: Headers = None,
    is_json: Annotated[bool, typer.Option("--json", help="JSON on standard output: a line for each finding.")] = False,
) -> None:
    """Look for what goes wrong where a server is deployed: keys, workers, proxies, clocks. Exit code 1: it is bad."""
    source = key_source(keys_file, keys_env)
    if target is None and not source:
        raise typer.BadParameter("give a TARGET, or --keys-file or --keys-env")
    findings = _keys(source)
    if target is not None and is_url(target):
        findings += asyncio.run(_gathered(_visited(Visit(target, header, instances, timeout))))
    elif instances is not None or header:
        raise typer.BadParameter("--instances and --header are for a URL")
    elif target is not None:
        findings += asyncio.run(_gathered(_read(_loaded(target, source, workers), source, workers)))
    for finding in findings:
        _say(finding, is_json=is_json)
    raise typer.Exit(1 if any(finding.how == "bad" for finding in findings) else 0)


def _say(finding: Finding, *, is_json: bool) -> None:
    if is_json:
        typer.echo(as_json(finding._asdict()))
    else:
        typer.secho(legible(f"{finding.how:5} {finding.about}: {finding.what}"), fg=STYLES[finding.how])


def _loaded(target: str, source: KeySource, workers: int) -> MCPServer[Any]:
    """The server with keys as it would have them where it is served."""
    place = target.partition(":")[0]
    if (len(target.split()) > 1 and not Path(place).is_file()) or ("/" in target and not place.endswith(".py")):
        fail(f"doctor takes a URL with http:// or https://, module:attribute or file.py, not {target!r}", 2)
    drawn = [secrets.token_urlsafe(32)] if workers > 1 and not source else []
    try:
        with redirect_stdout(sys.stderr):  # What its author prints is no finding.
            try:
                return load_or_say(target, source, drawn)
            except NoKeys:  # What is wrong with them is told; the rest is looked at without.
                return load_or_say(target)
    except NotFound as error:
        fail(str(error), 2)


async def _gathered(found: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in found]


def _keys(source: KeySource) -> list[Finding]:
    if not source:
        return []
    try:
        keys = source.read()
    except NoKeys as error:
        return [Finding("bad", "keys", str(error))]
    findings = [Finding("good", "keys", f"{len(keys)} in {source.name}, the first mints")]
    if len(set(keys)) < len(keys):
        findings.append(Finding("look", "keys", f"one is in {source.name} twice"))
    if (warning := source.warning()) is not None:
        findings.append(Finding("bad", "keys", warning))
    return findings


async def _read(server: MCPServer[Any], source: KeySource, workers: int) -> AsyncIterator[Finding]:
    """What a server's own settings tell."""
    if server.has_drawn_keys and not source:
        how = "bad" if workers > 1 else "look"
        yield Finding(how, "keys", "the server has none of its own: states are good for one process, and until it ends")
    if workers > 1 and server.has_sessions:
        yield Finding("look", "workers", "clients of 2025-11-25 and before need one worker for each port")
    if server.tasks is not None and not getattr(server.tasks.store, "is_durable", True):
        yield Finding("bad" if workers > 1 else "look", "tasks", "they are kept in memory, and end with the process")
    if risky := [name for name, one in server._catalogue.tools.items() if _is_unguarded(one.terms)]:
        names = f"{', '.join(risky)} {'has' if len(risky) == 1 else 'have'}"
        yield Finding("look", "store", f"{names} effects, and there is none: a step with once=True would be refused")
    async with Client(server) as client:
        tools = await client.list_tools()
    yield Finding("good" if tools.tools else "look", "tools", f"{len(tools.tools)}")


def _is_unguarded(terms: Terms) -> bool:
    return terms.effects and terms.guard is None


async def _visited(visit: Visit) -> AsyncIterator[Finding]:
    """What a server that is being served tells, and what stands between."""
    try:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(visit.seconds):
                client = await stack.enter_async_context(visit.client())
            yield Finding("good", "reached", f"{client.protocol_version}, {_name(client)}")
            for look in (_clock(visit), _instances(visit), _streams(client)):
                async for finding in look:
                    yield finding
    except TimeoutError:
        yield Finding("bad", "reached", f"the server does not answer within {visit.seconds:g} s")
    except TurnwiseError as error:
        yield Finding("bad", "reached", worded(error)[0])


def _client(visit: Visit, seen: list[Mapping[str, str]]) -> Client:
    """A client on connections of its own, and the headers of every reply that it gets."""
    client = visit.client()
    channel: Any = client._channel
    channel.shows_headers = True
    exchange: Callable[..., Awaitable[Any]] = channel.exchange

    async def noted(request: Any, notified: Any) -> Any:
        reply = await exchange(request, notified)
        seen.append(reply.headers or {})
        return reply

    channel.exchange = noted
    return client


def _name(client: Client) -> str:
    info = client.server_info
    return "a server without a name" if info is None else f"{info.name} {info.version}"


async def _clock(visit: Visit) -> AsyncIterator[Finding]:
    seen: list[Mapping[str, str]] = []
    async with asyncio.timeout(visit.seconds), _client(visit, seen) as client:
        before = time.time()
        await client.discover()
        after = time.time()
    told = seen[-1].get("Date") if seen else None
    if told is None:
        yield Finding("look", "clock", "the server does not tell the time")
        return
    theirs = parsedate_to_datetime(told).timestamp()
    skew = max(theirs - after, before - 1 - theirs, 0.0)  # A date has no parts of seconds.
    how = "good" if skew < SKEW else "bad"
    more = "" if how == "good" else ": states expire too early or too late where clocks differ"
    yield Finding(how, "clock", f"within {skew:.0f} s of this one{more}")


async def _instances(visit: Visit) -> AsyncIterator[Finding]:
    seen: list[Mapping[str, str]] = []
    known: dict[str, str] = {}
    wanted = visit.instances or 0
    for number in range(max(LOOKS, LOOKS * wanted)):  # A balancer may go by connections or by requests, or by chance.
        if number >= LOOKS and len(known) >= wanted:
            break
        async with asyncio.timeout(visit.seconds), _client(visit, seen):
            pass
        known = {headers[INSTANCE]: headers.get(INSTANCE_KEYS, "unknown") for headers in seen if INSTANCE in headers}
    if not known:
        how = "bad" if wanted else "look"
        yield Finding(how, "instances", "nobody says who answers; turnwise serve --instance-header does")
        return
    how = "bad" if len(known) < wanted else "look" if visit.instances and len(known) > wanted else "good"
    more = "" if how == "good" else f", and there should be {wanted}"
    yield Finding(how, "instances", f"{len(known)} answered {len(seen)} times{more}: {', '.join(sorted(known))}")
    yield _compared({name: ids.split() for name, ids in sorted(known.items())})


def _compared(keys: Mapping[str, list[str]]) -> Finding:
    """Whether what one instance seals another opens. The first of its keys is the one that mints."""
    if any(ids == ["unknown"] for ids in keys.values()):
        return Finding("look", "keys", "not every instance says by which ids its keys are known")
    for name, ids in keys.items():
        for other, theirs in keys.items():
            if ids[0] not in theirs:
                why = f"{name} mints with {ids[0]}, which {other} does not have, and refuses"
                return Finding("bad", "keys", f"{why}: give all instances the same, in the same order")
    if len({tuple(ids) for ids in keys.values()}) > 1:
        return Finding(
            "look", "keys", "not the same everywhere, as while they are changed; each opens what others seal"
        )
    [first, *_] = next(iter(keys.values()))
    return Finding("good", "keys", f"the same wherever somebody answered; {first} mints")


async def _streams(client: Client) -> AsyncIterator[Finding]:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(BUFFERED), client.listen(tools_list_changed=True):
            seconds = time.perf_counter() - began
    except TimeoutError:
        yield Finding("bad", "streams", "the first event does not come through: does a proxy buffer responses?")
    except TurnwiseError as error:
        yield Finding("look", "streams", f"no subscriptions: {worded(error)[0]}")
    else:
        yield Finding("good", "streams", f"the first event came after {seconds * 1000:.0f} ms")
