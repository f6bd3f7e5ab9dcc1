"""Fixtures for pytest, wherever Turnwise is installed: `turnwise_client`, `frozen_clock`, `turnwise_transcript`."""

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
RECORD = "--turnwise-record"


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
    of the test; `--turnwise-record` writes it.
    """

    def checked(client: Any, name: str | None = None) -> None:
        path = Path(request.path).parent / "transcripts" / f"{name or request.node.name}.txt"
        said = Transcript.of(client.rounds, name or request.node.name)
        if request.config.getoption(RECORD):
            said.write(path)
        elif path.is_file():
            Transcript.read(path).check(said)
        else:
            pytest.fail(f"there is no {path.name} yet: {RECORD} writes it", pytrace=False)

    return checked
