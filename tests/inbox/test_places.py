"""Which URLs are meant where an operator names some: nothing that only looks as if it were under them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.inbox import offices
from tests.inbox.offices import accept, asks, begun, is_over, make_server, opened, run, until
from tests.wires.serving import serving
from turnwise import CallerError
from turnwise.cli.app import app as command
from turnwise.inbox import carrying
from turnwise.inbox.carrying import Clients
from turnwise.inbox.desk import Inbox
from turnwise.inbox.places import Credentials, allowed

PLACE = "https://tools.example/tenant-a"
OURS = "Bearer of tenant a"


@pytest.mark.parametrize(
    "url", [PLACE, f"{PLACE}/", f"{PLACE}/mcp", f"{PLACE}/a/.well-known/x", f"{PLACE}/mcp?to=../x"]
)
def test_a_place_and_what_is_under_it_are_meant(url: str) -> None:
    assert allowed(url, ["https://other.example", PLACE])
    assert allowed(url, [f"{PLACE}/"]) is (url != PLACE)
    assert Credentials({PLACE: OURS}).of(url) == OURS


@pytest.mark.parametrize(
    "rest",
    [
        "-evil/mcp",
        "/../evil/mcp",
        "/./mcp",
        "/..",
        "/x/../../evil",
        "/%2e%2e/evil/mcp",
        "/%2E./evil/mcp",
        "/%252e%252e/evil/mcp",
        "/..%2fevil/mcp",
        "/x%2f..%2f..%2fevil",
        "/..\\evil",
        "/..;x=1/evil",
    ],
)
def test_what_leads_elsewhere_is_not(rest: str) -> None:
    assert not allowed(PLACE + rest, [PLACE])
    assert Credentials({PLACE: OURS}).of(PLACE + rest) is None


def test_anything_is_meant_where_nobody_says() -> None:
    assert allowed(f"{PLACE}/../evil", None)


class Tenants:
    """Two servers at one origin, and a way from the one to the other."""

    def __init__(self, leads_to: str) -> None:
        self._app = make_server().asgi(path="/tenant-b/mcp")
        self._leads_to = leads_to.encode()
        self.shown: list[tuple[str, str | None]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        shown = dict(scope["headers"]).get(b"authorization")
        self.shown.append((scope["path"], shown and shown.decode()))
        if scope["path"] == "/tenant-a/mcp":
            await send({"type": "http.response.start", "status": 307, "headers": [(b"location", self._leads_to)]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await self._app({**scope, "path": scope["path"].replace("tenant-a/mcp/", "tenant-b/mcp")}, receive, send)


@pytest.mark.parametrize(("leads_to", "ends"), [("/tenant-b/mcp", "failed"), ("/tenant-a/mcp/", "waiting")])
def test_a_redirect_out_of_a_servers_place_is_not_followed_with_its_credentials(
    tmp_path: Path, leads_to: str, ends: str
) -> None:
    tenants = Tenants(leads_to)

    async def work(origin: str) -> None:
        place = f"{origin}/tenant-a"
        async with opened(tmp_path / "inbox.db", servers=[place], credentials={place: OURS}) as inbox:
            call = await begun(f"{origin}/tenant-b/mcp")
            tenants.shown.clear()
            moved = offices.pending("moved", server=f"{place}/mcp", state=call.state, requests=call.requests)
            with pytest.raises(CallerError, match="not taken here"):
                await inbox.hand_over(call, caller="agent")
            await inbox.hand_over(moved, caller="agent")
            await inbox.answer("moved", {"title": accept(title="a leak")}, round=0, by="ann")
            item = await until(inbox, "moved", lambda seen: is_over(seen) or asks("level")(seen) or seen.tries > 0)
            paths = {path for path, _ in tenants.shown}
            if ends == "failed":
                assert paths == {"/tenant-a/mcp"}, item
            else:
                assert paths == {"/tenant-a/mcp", "/tenant-a/mcp/"}

    with serving(tenants, lifespan="on", log_level="critical") as port:
        run(work(f"http://127.0.0.1:{port}"))


def test_the_command_may_hold_hooks_of_callers_to_some_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desks: list[Inbox] = []

    def serve(desk: Inbox, *rest: Any) -> int:
        desks.append(desk)
        return 0

    monkeypatch.setattr("turnwise.cli.inbox._serve", serve)
    monkeypatch.setenv("HOOKS", "whsec_" + "c2VjcmV0" * 6)
    words = ["inbox", "--port", "0", "--store", str(tmp_path / "inbox.db"), "--hook-secret-env", "HOOKS"]
    for more in ([], ["--allowed-hook", "https://chat.example/hooks", "--allowed-hook", "https://other.example"]):
        assert CliRunner().invoke(command, [*words, *more]).exit_code == 0
    free, held = desks
    free._check_hook("https://anywhere.example/x")
    for hook in ("https://chat.example/hooks/1", "https://other.example/x"):
        held._check_hook(hook)
    for hook in ("https://chat.example/admin", "https://chat.example/hooks/../admin", "http://127.0.0.1:9/"):
        with pytest.raises(CallerError, match="not told here"):
            held._check_hook(hook)


# Clients that nobody needs


class Idle:
    """A client that takes a while to be closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def __aenter__(self) -> None:
        """Open it."""

    async def __aexit__(self, *reason: object) -> None:
        self.closed += 1
        await asyncio.sleep(0.01)


def test_calls_that_end_together_sweep_together(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Idle] = []

    def client(*key: Any) -> Idle:
        made.append(Idle())
        return made[-1]

    async def give(client: Any) -> int:
        await asyncio.sleep(0)
        return 1

    async def work() -> None:
        clients = Clients()
        for number in range(4):
            await clients.using(f"http://idle/{number}", None if number % 2 else OURS, give)
        monkeypatch.setattr(carrying, "IDLE_SECONDS", -1.0)
        busy = [clients.using(f"http://busy/{number}", None, give) for number in range(4)]
        assert await asyncio.gather(*busy) == [1] * 4, "what came is not lost over what others have to tidy up"
        await clients.aclose()

    monkeypatch.setattr(carrying, "_client", client)
    asyncio.run(work())
    assert [one.closed for one in made] == [1] * 8
