"""`turnwise doctor`: what is wrong with how a server is served, found by asking it."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, NamedTuple

import typer

from .._terms import Terms
from ..client import Client
from ..dialects.words import INSTANCE, INSTANCE_KEYS
from ..errors import ConnectionLost, TurnwiseError
from ..server import MCPServer
from .key_options import key_source
from .keys import KeySource, NoKeys
from .loading import NotFound, load_or_say
from .showing import fail, legible, note

LOOKS = 12
"""So many requests look for the instances behind a balancer."""
SKEW = 5.0
BUFFERED = 3.0
"""Seconds after which a stream that has said nothing is held up on its way."""

STYLES = {"good": "green", "look": "yellow", "bad": "red"}


class Finding(NamedTuple):
    """Something that was looked at: good, worth a look, or bad."""

    how: str
    what: str


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(help="A URL, or a server: module:attribute. If none: keys alone.", metavar="TARGET"),
    ] = None,
    keys_file: Annotated[str | None, typer.Option(help="A file with one key a line.")] = None,
    keys_env: Annotated[str | None, typer.Option(help="A variable with keys between commas.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="How many processes are to share the port.")] = 1,
) -> None:
    """Look for what goes wrong where a server is deployed: keys, workers, proxies, clocks. Exit code 1: it is bad."""
    source = key_source(keys_file, keys_env)
    if target is None and not source:
        raise typer.BadParameter("give a TARGET, or --keys-file or --keys-env")
    try:
        findings = [*_keys(source), *([] if target is None else _looked_at(target, source, workers))]
    except NotFound as error:
        fail(str(error), 2)
    for finding in findings:
        note(legible(f"{finding.how:5} {finding.what}"), STYLES[finding.how])
    raise typer.Exit(1 if any(finding.how == "bad" for finding in findings) else 0)


def _looked_at(target: str, source: KeySource, workers: int) -> list[Finding]:
    is_url = target.startswith(("http://", "https://"))
    found = _visited(target) if is_url else _read(_loaded(target, source), source, workers)
    return asyncio.run(_gathered(found))


def _loaded(target: str, source: KeySource) -> MCPServer[Any]:
    try:
        return load_or_say(target, source)
    except NoKeys:  # What is wrong with them is told; the rest is looked at without.
        return load_or_say(target)


async def _gathered(found: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in found]


def _keys(source: KeySource) -> list[Finding]:
    if not source:
        return []
    try:
        keys = source.read()
    except NoKeys as error:
        return [Finding("bad", f"keys: {error}")]
    findings = [Finding("good", f"keys: {len(keys)} in {source.name}, the first mints")]
    if len(set(keys)) < len(keys):
        findings.append(Finding("look", f"keys: one is in {source.name} twice"))
    if (warning := source.warning()) is not None:
        findings.append(Finding("bad", f"keys: {warning}"))
    return findings


async def _read(server: MCPServer[Any], source: KeySource, workers: int) -> AsyncIterator[Finding]:
    """What a server's own settings tell."""
    if server.has_drawn_keys and not source:
        how = "bad" if workers > 1 else "look"
        yield Finding(how, "keys: the server has none of its own: states are good for one process, and until it ends")
    if workers > 1 and server.has_sessions:
        yield Finding("look", "workers: clients of 2025-11-25 and before need one worker for each port")
    if server.tasks is not None and not getattr(server.tasks.store, "is_durable", True):
        yield Finding("bad" if workers > 1 else "look", "tasks: they are kept in memory, and end with the process")
    if workers > 1 and (risky := [name for name, one in server._catalogue.tools.items() if _is_unguarded(one.terms)]):
        names = ", ".join(risky)
        yield Finding("look", f"store: {names} has effects, and there is none: a step with once=True would be refused")
    async with Client(server) as client:
        tools = await client.list_tools()
    yield Finding("good" if tools.tools else "look", f"tools: {len(tools.tools)}")


def _is_unguarded(terms: Terms) -> bool:
    return terms.effects and terms.guard is None


async def _visited(url: str) -> AsyncIterator[Finding]:
    """What a server that is being served tells, and what stands between."""
    try:
        async with Client(url, cache=False) as client:
            yield Finding("good", f"reached: {client.protocol_version}, {_name(client)}")
            for look in (_clock(url), _instances(url), _streams(client)):
                async for finding in look:
                    yield finding
    except ConnectionLost as error:
        yield Finding("bad", str(error))
    except TurnwiseError as error:
        yield Finding("bad", f"{type(error).__name__}: {error}")


def _client(url: str, seen: list[Mapping[str, str]]) -> Client:
    """A client on connections of its own, and the headers of every reply that it gets."""
    client = Client(url, cache=False)
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


async def _clock(url: str) -> AsyncIterator[Finding]:
    seen: list[Mapping[str, str]] = []
    async with _client(url, seen) as client:
        before = time.time()
        await client.discover()
        after = time.time()
    told = seen[-1].get("Date") if seen else None
    if told is None:
        yield Finding("look", "clock: the server does not tell the time")
        return
    theirs = parsedate_to_datetime(told).timestamp()
    skew = max(theirs - after, before - 1 - theirs, 0.0)  # A date has no parts of seconds.
    how = "good" if skew < SKEW else "bad"
    more = "" if how == "good" else ": states expire too early or too late where clocks differ"
    yield Finding(how, f"clock: within {skew:.0f} s of this one{more}")


async def _instances(url: str) -> AsyncIterator[Finding]:
    seen: list[Mapping[str, str]] = []
    for _ in range(LOOKS):  # A balancer may well go by connections, and it may go by requests.
        async with _client(url, seen):
            pass
    known = {headers[INSTANCE]: headers.get(INSTANCE_KEYS, "unknown") for headers in seen if INSTANCE in headers}
    if not known:
        yield Finding("look", "instances: nobody says who answers; turnwise serve --instance-header does")
        return
    yield Finding("good", f"instances: {len(known)} answered {len(seen)} times: {', '.join(sorted(known))}")
    yield _compared({name: ids.split() for name, ids in sorted(known.items())})


def _compared(keys: Mapping[str, list[str]]) -> Finding:
    """Whether what one instance seals another opens. The first of its keys is the one that mints."""
    if any(ids == ["unknown"] for ids in keys.values()):
        return Finding("look", "keys: not every instance says by which ids its keys are known")
    for name, ids in keys.items():
        for other, theirs in keys.items():
            if ids[0] not in theirs:
                why = f"{name} mints with {ids[0]}, which {other} does not have, and refuses"
                return Finding("bad", f"keys: {why}: give all instances the same, in the same order")
    if len({tuple(ids) for ids in keys.values()}) > 1:
        return Finding("look", "keys: not the same everywhere, as while they are changed; each opens what others seal")
    [first, *_] = next(iter(keys.values()))
    return Finding("good", f"keys: the same wherever somebody answered; {first} mints")


async def _streams(client: Client) -> AsyncIterator[Finding]:
    began = time.perf_counter()
    try:
        async with asyncio.timeout(BUFFERED), client.listen(tools_list_changed=True):
            seconds = time.perf_counter() - began
    except TimeoutError:
        yield Finding("bad", "streams: the first event does not come through: does a proxy buffer responses?")
    except TurnwiseError as error:
        yield Finding("look", f"streams: no subscriptions: {error}")
    else:
        yield Finding("good", f"streams: the first event came after {seconds * 1000:.0f} ms")
