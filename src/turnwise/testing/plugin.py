"""Fixtures for pytest, wherever Turnwise is installed: `turnwise_client`, `frozen_clock`, `turnwise_transcript`."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ..server import MCPServer
from .clocks import FrozenClock
from .connection import Connection, connect
from .flows import Flow
from .scripts import Script
from .transcripts import Transcript

CLIENTS = pytest.StashKey[list[Connection]]()
FAILED = pytest.StashKey[bool]()
RECORDED = pytest.StashKey[dict[Path, tuple[str, str]]]()
RECORD = "--turnwise-record"
LONGEST = 180
"""Bytes of a transcript's name: a file system takes 255, and there are a number and an ending to come."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How transcripts are written anew."""
    parser.getgroup("turnwise").addoption(RECORD, action="store_true", help="write transcripts anew")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> "Generator[None, Any, None]":
    """Where a test fails, show what its clients said."""
    report = (yield).get_result()
    if report.failed and call.when == "call":
        item.stash[FAILED] = True
        for client in item.stash.get(CLIENTS, []):
            report.sections.append(("turnwise rounds", Flow(client.rounds).told()))


@pytest.fixture
def frozen_clock() -> FrozenClock:
    """A clock that stands still. In a test that has it, servers of `turnwise_client` go by it."""
    return FrozenClock()


@pytest.fixture
def turnwise_client(
    request: pytest.FixtureRequest,
) -> "Iterator[Callable[..., AbstractAsyncContextManager[Connection]]]":
    """`async with turnwise_client(server, answers) as client`, which is `connect`. All answers have to be asked for,
    and where the test fails its rounds are shown.
    """
    clients = request.node.stash[CLIENTS] = []

    @asynccontextmanager
    async def opened(
        server: MCPServer[Any], answers: Mapping[str, Any] | Script | None = None, **options: Any
    ) -> AsyncIterator[Connection]:
        if "frozen_clock" in request.fixturenames:
            options.setdefault("now", request.getfixturevalue("frozen_clock"))
        async with connect(server, answers, **options) as client:
            clients.append(client)
            yield client

    yield opened
    unused = [name for client in clients if client.script is not None for name in client.script.unused]
    if unused and not request.node.stash.get(FAILED, False):
        pytest.fail(f"nobody asked for these answers: {', '.join(unused)}", pytrace=False)


@pytest.fixture
def turnwise_transcript(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`turnwise_transcript(client)`: what the client said is what is in `transcripts/`, beside the test, under the name
    of its module, its class and itself, or under a `name` of your own; `--turnwise-record` writes it. The second one of
    a test under the same name is `#2`.
    """
    uses: Counter[str] = Counter()

    def checked(client: Any, name: str | None = None) -> None:
        __tracebackhide__ = True
        parts = _parts(request) if name is None else [name]
        kept = file_name(parts)
        if name is not None and kept != (name or None):
            raise ValueError(f"a transcript's name is that of a file, without folders, and not {name!r}")
        uses[kept] += 1
        number = f"#{uses[kept]}" if uses[kept] > 1 else ""
        path = Path(request.path).parent / "transcripts" / f"{kept}{number}.txt"
        said = Transcript.of(client.rounds, " ".join(f"{'.'.join(parts)}{number}".split()))
        if request.config.getoption(RECORD):
            _record(request, path, said)
        elif path.is_file():
            Transcript.read(path).check(said)
        else:
            pytest.fail(f"there is no {path.name} yet: {RECORD} writes it", pytrace=False)

    return checked


def _parts(request: pytest.FixtureRequest) -> list[str]:
    """A test by the names of its module, of the classes that it is in, and of itself."""
    inner = [node.name for node in request.node.listchain() if isinstance(node, pytest.Class | pytest.Item)]
    return [request.path.name.removesuffix(".py"), *inner]


def file_name(parts: Sequence[str]) -> str:
    """What a file is called that belongs to a test. Where something had to be left out, or differs from another only in
    what some file systems do not keep apart, a hash tells the names from each other.
    """
    *around, test = parts
    tame = ".".join([*(re.sub(r"[^\w-]", "_", part) for part in around), re.sub(r"[^\w\[\] .,=+@-]", "_", test)])
    cut = tame.encode()[:LONGEST].decode(errors="ignore")
    parameters = test.partition("[")[2]
    if cut == ".".join(parts) and parameters == parameters.lower():
        return cut
    return f"{cut}-{sha256(chr(0).join(parts).encode(errors='backslashreplace')).hexdigest()[:8]}"


def _record(request: pytest.FixtureRequest, path: Path, said: Transcript) -> None:
    """Write it, unless another test has just written something else there."""
    __tracebackhide__ = True
    recorded = request.config.stash.setdefault(RECORDED, {})
    other, text = recorded.get(path, (request.node.nodeid, ""))
    if other != request.node.nodeid and text.partition("\n")[2] != str(said).partition("\n")[2]:
        pytest.fail(f"{path.name} is that of {other}, which says something else: give another name", pytrace=False)
    recorded[path] = (request.node.nodeid, str(said))
    said.write(path)
