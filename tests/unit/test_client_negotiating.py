"""Which version is spoken over HTTP: the newest, unless a server gives a sign that it is older."""

import asyncio
from typing import Any

import pytest

from tests.unit.joined import DISCOVERED
from tests.unit.older import NEWEST, Older, methods
from tests.unit.scripted import DONE, Line, Peer, Request, Script, http, run, serving
from turnwise import Client, HandshakeRequired, MCPServer, UnexpectedStatus, UnsupportedVersion, _negotiating


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_negotiating, "_OLDER", type(_negotiating._OLDER)())


def at_discovery(reply: Any, server: Older | None = None) -> Script:
    """A server that answers discovery so, and has a handshake."""
    older = Older() if server is None else server

    async def script(request: Request, line: Line) -> None:
        if request.method == "POST" and request.message.get("method") == "server/discover":
            await reply(request, line)
        else:
            await older(request, line)

    return script


def refusing(code: int, status: int = 200, data: Any = None) -> Any:
    async def reply(request: Request, line: Line) -> None:
        await line.json(request.refusal(code, data), status)

    return reply


def answering(result: Any) -> Any:
    async def reply(request: Request, line: Line) -> None:
        await line.json(request.reply(result))

    return reply


def plain(status: int) -> Any:
    async def reply(request: Request, line: Line) -> None:
        await line.send(http(b"Bad Request: no valid session", status, kind="text/plain"))

    return reply


async def met(script: Script, times: int = 1) -> tuple[list[str], Peer]:
    """The versions that were spoken with the server, one client after the other."""
    versions = []
    async with serving(script) as peer:
        for _ in range(times):
            async with Client(peer.url) as client:
                versions.append(client.protocol_version)
                await client.call_tool("t", {})
        return versions, peer


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(refusing(-32601), id="unknown method"),
        pytest.param(refusing(-32600, 400), id="HTTP 400, no session"),
        pytest.param(refusing(-32000, 400), id="HTTP 400, an unsupported version in the server's own words"),
        pytest.param(refusing(-32602), id="invalid parameters"),
        pytest.param(refusing(-32022, 400, {"supported": ["2025-06-18"]}), id="names an older version"),
        pytest.param(plain(400), id="plain 400"),
        pytest.param(plain(404), id="plain 404"),
        pytest.param(plain(405), id="plain 405"),
        pytest.param(answering({}), id="says yes to everything"),
        pytest.param(
            answering({"supportedVersions": ["2025-11-25"], "capabilities": {}}), id="discovers older versions"
        ),
    ],
)
def test_a_server_that_gives_a_sign_of_age_is_shaken_hands_with(reply: Any) -> None:
    versions, peer = run(met(at_discovery(reply)))
    assert versions == [NEWEST]
    assert methods(peer)[:2] == ["server/discover", "initialize"]


def test_a_server_that_can_do_both_is_spoken_to_in_the_newest() -> None:
    versions, peer = run(met(dual()))
    assert versions == ["2026-07-28"]
    assert methods(peer) == ["server/discover", "tools/call"]


def dual() -> Script:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.reply(DISCOVERED if request.rpc == "server/discover" else DONE))

    return script


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503])
def test_a_status_that_says_something_else_is_no_sign_of_age(status: int) -> None:
    with pytest.raises(UnexpectedStatus, match=str(status)):
        run(met(at_discovery(plain(status))))


@pytest.mark.parametrize("versions", [["2099-01-01"], ["2099-01-01", 7]])
def test_a_server_that_is_newer_is_not_shaken_hands_with(versions: Any) -> None:
    async def flow() -> None:
        async with serving(at_discovery(answering({"supportedVersions": versions, "capabilities": {}}))) as peer:
            with pytest.raises(UnsupportedVersion):
                async with Client(peer.url):
                    pass
            assert methods(peer) == ["server/discover"]

    run(flow())


def test_a_server_that_understands_neither_is_none() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.json(request.refusal(-32601))

    with pytest.raises(HandshakeRequired, match="2026-07-28"):
        run(met(script))


def test_a_server_that_wants_authorization_for_the_handshake_says_so() -> None:
    async def script(request: Request, line: Line) -> None:
        await line.send(http(b"", 400 if request.rpc == "server/discover" else 401, kind=None))

    with pytest.raises(UnexpectedStatus, match="401"):
        run(met(script))


def test_an_older_server_is_remembered() -> None:
    versions, peer = run(met(at_discovery(refusing(-32601)), times=3))
    assert versions == [NEWEST] * 3
    assert methods(peer).count("server/discover") == 1


def test_a_server_that_was_renewed_is_found_out_about() -> None:
    is_new = False
    older = at_discovery(refusing(-32601))

    async def script(request: Request, line: Line) -> None:
        if not is_new:
            await older(request, line)
        elif request.method == "POST" and request.message.get("method") == "initialize":
            await line.json(request.refusal(-32601), 404)
        else:
            await dual()(request, line)

    async def flow() -> list[str]:
        nonlocal is_new
        versions = []
        async with serving(script) as peer:
            for renewed in (False, True, True):
                is_new = renewed
                async with Client(peer.url) as client:
                    versions.append(client.protocol_version)
        return versions

    assert run(flow()) == [NEWEST, "2026-07-28", "2026-07-28"]
    assert not _negotiating._OLDER


def test_several_clients_at_once_may_find_that_a_server_was_renewed() -> None:
    async def flow() -> list[str]:
        asked, all_asked = 0, asyncio.Event()

        async def script(request: Request, line: Line) -> None:
            nonlocal asked
            if request.method == "POST" and request.message.get("method") == "initialize":
                asked += 1
                if asked == 3:
                    all_asked.set()
                await all_asked.wait()
                await line.json(request.refusal(-32601), 404)
            else:
                await dual()(request, line)

        async def version(url: str) -> str:
            async with Client(url) as client:
                return client.protocol_version

        async with serving(script) as peer:
            _negotiating._OLDER[peer.url] = None
            return await asyncio.gather(*(version(peer.url) for _ in range(3)))

    assert run(flow()) == ["2026-07-28"] * 3


def test_only_so_many_servers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_negotiating, "MOST_REMEMBERED", 2)

    async def flow() -> None:
        for _ in range(4):
            await met(at_discovery(refusing(-32601)))

    run(flow())
    assert len(_negotiating._OLDER) == 2


def test_a_client_can_be_entered_again() -> None:
    async def flow() -> list[str]:
        versions = []
        async with serving(at_discovery(refusing(-32601))) as peer:
            client = Client(peer.url)
            for _ in range(2):
                async with client:
                    versions.append(client.protocol_version)
                    await client.call_tool("t", {})
        return versions

    assert run(flow()) == [NEWEST] * 2


def test_a_server_in_this_process_is_spoken_to_in_the_newest() -> None:
    async def flow() -> str:
        async with Client(MCPServer("own")) as client:
            return client.protocol_version

    assert run(flow()) == "2026-07-28"
