"""The samples of the guides for clients, run against servers: most of those are samples of the other guides."""

import asyncio
import builtins
import datetime
import json
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.shared.auth import AuthorizationCodeResult
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route

from tests.docs.loading import ENVIRONMENT, load
from tests.ports import free_port
from tests.wires.serving import serving
from turnwise import (
    AccessToken,
    AuthSettings,
    Client,
    ConnectionLost,
    Context,
    MCPError,
    MCPServer,
    Pending,
    ToolError,
)

Accept = dict[str, Any]


def accept(**content: Any) -> Accept:
    return {"action": "accept", "content": content}


@contextmanager
def served(app: Any, port: int | None = None, **options: Any) -> Iterator[int]:
    """An application on a port of its own, in a thread of its own."""
    with serving(app, port=port or 0, log_level="critical", **options) as found:
        yield found


@contextmanager
def at_url(server: MCPServer[Any]) -> Iterator[str]:
    with served(server.asgi()) as port:
        yield f"http://127.0.0.1:{port}/mcp"
    server.close_subscriptions()


def typing(monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[str]:
    """A user at the terminal; gives what was shown as prompts."""
    left, prompts = list(lines), []

    def read(prompt: str = "") -> str:
        prompts.append(prompt)
        return left.pop(0)

    monkeypatch.setattr(builtins, "input", read)
    return prompts


# Connecting


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that no authority of the world has signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "company")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return folder / "cert.pem", folder / "key.pem"


async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
    writer.close()


@asynccontextmanager
async def tunnelling(asked: list[str]) -> AsyncIterator[str]:
    """A proxy that does what CONNECT says."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.decode().partition("\r\n")[0])
        host, _, port = asked[-1].split()[1].partition(":")
        beyond = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(copied(reader, beyond[1]), copied(beyond[0], writer))

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as proxy:
        yield f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"


def test_a_client_of_a_url_sends_the_headers_that_it_was_given() -> None:
    server = MCPServer("who")

    @server.tool()
    async def token(ctx: Context) -> str:
        return (ctx.headers or {})["authorization"]

    async def run(url: str) -> Any:
        async with load("clients/connecting.py").of_a_url(url, "let-me-in") as client:
            return (await client.call_tool("token")).structured_content

    with at_url(server) as url:
        assert asyncio.run(run(url)) == {"result": "Bearer let-me-in"}


def test_a_client_in_a_company_trusts_its_authority_and_goes_through_its_proxy(tmp_path: Path) -> None:
    sample, server = load("clients/connecting.py"), load("serving/over_http.py").server
    cert, key = certificate(tmp_path)
    asked: list[str] = []

    async def run(url: str) -> Any:
        async with tunnelling(asked) as proxy, sample.of_a_url_in_the_company(url, cert, proxy) as client:
            return (await client.call_tool("tick")).structured_content

    with served(server.asgi(), ssl_certfile=cert, ssl_keyfile=key) as port:
        assert asyncio.run(run(f"https://127.0.0.1:{port}/mcp")) == {"result": "tick"}
        assert asked == [f"CONNECT 127.0.0.1:{port} HTTP/1.1"]
        with pytest.raises(ConnectionLost, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(entered(f"https://127.0.0.1:{port}/mcp"))


async def entered(url: str) -> None:
    async with Client(url):
        pass


def test_a_client_of_a_command_starts_the_server_where_and_with_what_it_is_told(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import os\n"
        "from turnwise import MCPServer\n"
        "server = MCPServer('weather')\n"
        "@server.tool()\n"
        "def where() -> list[str]: return [os.environ['WEATHER_KEY'], os.getcwd()]\n"
        "server.run('stdio')\n"
    )

    async def run() -> Any:
        args = ["/usr/bin/env", f"PYTHONPATH={ENVIRONMENT['PYTHONPATH']}", sys.executable, str(script)]
        async with load("clients/connecting.py").of_a_command(args, tmp_path, "k-1") as client:
            return (await client.call_tool("where")).structured_content

    assert asyncio.run(run()) == {"result": ["k-1", str(tmp_path)]}


def test_a_client_of_a_server_object_needs_no_network() -> None:
    async def run() -> Any:
        async with load("clients/connecting.py").of_a_server(load("serving/over_stdio.py").server) as client:
            return (await client.call_tool("tick")).structured_content

    assert asyncio.run(run()) == {"result": "tick"}


# Answering


def test_a_form_at_a_terminal_is_filled_in_looked_at_and_sent_or_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sample, server = load("clients/forms.py"), load("start/booking.py").server

    async def run() -> Any:
        async with sample.client_of(server) as client:
            return (await client.call_tool("book", {"flight": "TW 2322"})).structured_content["result"]

    prompts = typing(monkeypatch, "12", "", "yes")
    assert asyncio.run(run()) == "Booked row 12 on TW 2322."
    assert prompts[0] == "Row, or nothing: "
    assert prompts[2].startswith("Send {'row': 12}?")
    assert "asks, for book: Which seat on TW 2322?" in capsys.readouterr().out
    typing(monkeypatch, "12", "", "no")
    assert asyncio.run(run()) == "Nothing was booked."
    typing(monkeypatch, "12", "", "")
    assert asyncio.run(run()) == "Nothing was booked."


def test_a_page_is_shown_in_full_and_opened_only_if_the_user_says_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server, opened = load("asking/pages.py"), []

    def browse(url: str) -> bool:
        opened.append(url)
        server.paid.add(url.rpartition("/")[2])
        return True

    monkeypatch.setattr(webbrowser, "open", browse)

    async def run() -> Any:
        async with load("clients/pages.py").client_of(server.server) as client:
            return (await client.call_tool("buy", {"event": "the opera"})).structured_content

    typing(monkeypatch, "no")
    assert asyncio.run(run()) == {"result": "No ticket was bought."}
    assert opened == []
    typing(monkeypatch, "yes")
    assert asyncio.run(run()) == {"result": "One ticket for the opera."}
    shown = capsys.readouterr().out
    assert f"It leads to pay.example.com. The whole address: {opened[0]}\n" in shown
    assert "Careful" not in shown


def test_what_is_unusual_about_a_page_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = MCPServer("odd")

    @server.tool()
    async def go(ctx: Context) -> str:
        return (await ctx.elicit_url("Sign in", "http://ada@xn--bnk-ula.example/")).action

    async def run() -> Any:
        async with load("clients/pages.py").client_of(server) as client:
            return (await client.call_tool("go")).structured_content

    typing(monkeypatch, "no")
    assert asyncio.run(run()) == {"result": "decline"}
    assert capsys.readouterr().out.count("Careful: ") == 3


def test_the_model_and_the_folders_are_asked_for() -> None:
    async def run() -> list[Any]:
        async with load("clients/model.py").client_of(load("asking/model.py").server) as client:
            summary = await client.call_tool("summarize", {"text": "a long story"})
            folders = await client.call_tool("folders")
            return [summary.structured_content["result"], folders.structured_content["result"]]

    summary, folders = asyncio.run(run())
    assert summary == "In short: Summarize in one sentence: a long story"
    assert folders == [Path.home().as_uri()]


# Limits, and what is told on the way


def test_a_call_is_given_up_at_its_deadline_and_the_server_stops() -> None:
    server, stopped = MCPServer("reports"), []

    @server.tool()
    async def build() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(True)
            raise
        return "built"

    said = asyncio.run(load("clients/limits.py").report(server))
    assert said == "No report: tools/call was not finished within 0.2 s"
    assert stopped == [True]


def test_progress_and_log_lines_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    server = MCPServer("reports")

    @server.tool()
    async def build(ctx: Context) -> str:
        await ctx.debug("not for everybody")
        await ctx.info("building")
        await ctx.report_progress(1, total=2, message="half of it")
        return "built"

    with at_url(server) as url:
        asyncio.run(load("clients/told.py").build(url))
    assert capsys.readouterr().out == "[info] building\n1 of 2: half of it\n"


# Lists, changes, caching


def test_a_client_looks_around(capsys: pytest.CaptureFixture[str]) -> None:
    server = MCPServer("letters", instructions="Write well.", page_size=1)

    @server.tool()
    def send() -> str:
        """Send a letter."""
        return "sent"

    @server.prompt()
    def letter(recipient: str) -> str:
        return f"A letter to {recipient}"

    @server.prompt()
    def card(recipient: str) -> str:
        return f"A card to {recipient}"

    @server.resource("letters://signature")
    def signature() -> str:
        return "Yours, Ada"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        return [name for name in ("Ann", "Bob") if name.startswith(argument.value)]

    asyncio.run(load("clients/lists.py").look_around(server))
    shown = capsys.readouterr().out
    for expected in ("Write well. True", "send Send a letter.", "Yours, Ada", "A letter to Bob", "['Bob']"):
        assert expected in shown


def test_a_resource_is_shown_again_when_it_changes_and_after_the_line_broke() -> None:
    sample, notes = load("clients/listening.py"), load("serving/changes.py")
    app, url, seen, shown = notes.server.asgi(), "", list[str](), threading.Event()

    @notes.server.tool()  # type: ignore[untyped-decorator]
    async def close() -> None:
        notes.server.close_subscriptions()

    async def at_once(seconds: float) -> None:
        assert seconds == 1

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        """The first subscription breaks off when the resource was shown once."""
        if dict(scope["headers"])[b"mcp-method"] != b"subscriptions/listen" or shown.is_set():
            await app(scope, receive, send)
            return
        serving = asyncio.create_task(app(scope, receive, send))
        await asyncio.to_thread(shown.wait)
        serving.cancel()
        await asyncio.wait([serving])

    async def show(text: str) -> None:
        seen.append(text)
        shown.set()
        async with Client(url) as client:
            if len(seen) == 2:
                await client.call_tool("write", {"number": "1", "text": "Buy bread"})
            if len(seen) == 3:
                await client.call_tool("close")

    vars(sample)["asyncio"] = SimpleNamespace(sleep=at_once)
    with served(breaking) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        asyncio.run(sample.follow(url, "notes://1", show))
    assert ["Buy milk" in text for text in seen] == [True, True, False]
    assert "Buy bread" in seen[2]


def test_what_is_public_is_fetched_once_for_all_users_of_a_cache() -> None:
    atlas = load("serving/caching.py").server
    fetched: list[str] = []
    app = atlas.asgi()

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        fetched.append(dict(scope["headers"])[b"mcp-method"].decode())
        await app(scope, receive, send)

    sample = load("clients/caching.py")
    with served(counted) as port:
        url = f"http://127.0.0.1:{port}/mcp"
        names = [asyncio.run(sample.tools_for(url, token)) for token in ("alice", "bob")]
    assert names == [["distance_by_car", "distance_by_train", "distance_on_foot"]] * 2
    assert fetched.count("tools/list") == 2  # Two pages, for both users.


# Errors


def test_each_error_is_told_apart() -> None:
    order = load("clients/errors.py").order
    server = MCPServer("shop")

    @server.tool(name="order")
    async def order_(article: str) -> str:
        match article:
            case "lamp":
                raise ToolError("There are no lamps.")
            case "car":
                raise MCPError(-31000, "Closed on Sundays")
        return f"{article} is ordered"

    assert asyncio.run(order(server, "hat")) == "{'result': 'hat is ordered'}"
    assert asyncio.run(order(server, "lamp")) == "There are no lamps."
    assert asyncio.run(order(server, "car")) == "The server says no: Closed on Sundays (-31000)"
    assert asyncio.run(order(f"http://127.0.0.1:{free_port()}/mcp", "hat")) == "It was not ordered. Try again later."
    ends = [sys.executable, "-c", "input()"]
    assert asyncio.run(order(ends, "hat")) == "Whether it was ordered is not known."
    other = Starlette(routes=[Route("/mcp", lambda request: JSONResponse({"detail": "?"}, 502), methods=["POST"])])
    with served(other) as port:
        assert asyncio.run(order(f"http://127.0.0.1:{port}/mcp", "hat")).startswith("It did not work: HTTP 502")


# OAuth


class Verifier:
    def __init__(self, url: str) -> None:
        self.url = url

    async def verify_token(self, token: str) -> AccessToken | None:
        issuer = self.url.removesuffix("/mcp")
        return AccessToken(token, "c-1", resource=self.url, subject="ada", issuer=issuer) if token == "t-1" else None


def authorization_server(issuer: str, server: MCPServer[Any]) -> Starlette:
    """An authorization server that agrees to everything, with an MCP server beside it."""

    async def metadata(request: Request) -> JSONResponse:
        ends = {f"{name}_endpoint": f"{issuer}/{name}" for name in ("authorization", "token", "registration")}
        return JSONResponse({"issuer": issuer, **ends, "code_challenge_methods_supported": ["S256"]})

    async def registration(request: Request) -> JSONResponse:
        return JSONResponse({**await request.json(), "client_id": "c-1"}, 201)

    async def token(request: Request) -> JSONResponse:
        assert b"code=agreed" in await request.body()
        return JSONResponse({"access_token": "t-1", "token_type": "Bearer", "expires_in": 3600})

    return Starlette(
        routes=[
            Route("/.well-known/oauth-authorization-server", metadata),
            Route("/registration", registration, methods=["POST"]),
            Route("/token", token, methods=["POST"]),
            Mount("/", app=server.asgi()),
        ]
    )


class Agreeing:
    """A user who agrees at once."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    async def open(self, url: str) -> None:
        self.pages.append(url)

    async def code(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code="agreed", state=dict(parse_qsl(urlsplit(self.pages[-1]).query))["state"])


def test_the_official_provider_signs_a_user_in_once() -> None:
    port, user = free_port(), Agreeing()
    issuer = f"http://127.0.0.1:{port}"
    url = f"{issuer}/mcp"
    server = MCPServer(
        "notes",
        token_verifier=Verifier(url),
        auth=AuthSettings(issuer_url=issuer, resource_server_url=url),
    )

    @server.tool()
    async def whoami(ctx: Context) -> str:
        assert ctx.access_token is not None
        return str(ctx.access_token.subject)

    async def run() -> list[Any]:
        async with load("clients/oauth.py").client_of(url, user) as client:
            return [(await client.call_tool("whoami")).structured_content for _ in range(2)]

    with served(authorization_server(issuer, server), port):
        assert asyncio.run(run()) == [{"result": "ada"}] * 2
    assert len(user.pages) == 1
    assert user.pages[0].startswith(f"{issuer}/authorization?")


# Blocking, and a channel of one's own


def test_a_script_without_an_event_loop_books_a_seat(capsys: pytest.CaptureFixture[str]) -> None:
    load("clients/blocking.py").book(load("start/booking.py").server)
    assert capsys.readouterr().out == "seats_left\nbook\n{'result': 'Booked row 12 on TW 2322.'}\n"


def test_a_channel_of_ones_own_sees_every_exchange() -> None:
    with at_url(load("start/booking.py").server) as url:
        assert asyncio.run(load("clients/recording.py").rounds(url)) == 1


# A call in hand


def test_a_call_is_put_down_in_a_file_and_picked_up_from_it(tmp_path: Path) -> None:
    sample, file = load("in_hand/putting_down.py"), tmp_path / "call.json"
    with at_url(load("start/booking.py").server) as url:
        sample.begin(url, "TW 2322", file)
        assert file.stat().st_mode & 0o077 == 0
        assert Pending.from_json(file.read_text()).target == "book"
        assert sample.finish(url, file, 12) == "{'result': 'Booked row 12 on TW 2322.'}"
    assert not file.exists()


def test_answers_may_come_one_at_a_time() -> None:
    said = asyncio.run(load("in_hand/partly.py").plan(load("asking/together.py").server))
    assert said == "{'result': 'York to Bath'}"


def test_of_two_people_at_a_desk_one_answers(tmp_path: Path) -> None:
    sample, server = load("in_hand/desk.py"), load("start/booking.py").server

    async def run() -> None:
        one, other = sample.Desk(server, tmp_path / "calls.db"), sample.Desk(server, tmp_path / "calls.db")
        async with one.client, other.client:
            assert await one.begin("seats_left", {"flight": "TW 2322"}) == "{'result': 7}"
            begun = await one.begin("book", {"flight": "TW 2322"})
            ((call, key, message),) = await other.waiting()
            assert (begun, message) == (f"waits as {call}", "Which seat on TW 2322?")
            assert (await one.answer(call, key, {"row": 99})).startswith("Please look again: row: 99")
            both = await asyncio.gather(one.answer(call, key, {"row": 1}), other.answer(call, key, {"row": 2}))
            assert sorted(both)[0] == "Somebody else was quicker."
            assert sorted(both)[1].startswith("{'result': 'Booked row ")
            assert await one.waiting() == []
        await one.store.aclose()
        await other.store.aclose()

    asyncio.run(run())


def payments() -> tuple[MCPServer[Any], list[str]]:
    """A server that does something before its last question, and the flows in which it did."""
    server, done = MCPServer("payments"), list[str]()

    @server.tool()
    async def pay(ctx: Context) -> str:
        amount = await ctx.elicit("How much?", int, key="amount")
        if not done or done[-1] != ctx.flow_id:
            done.append(ctx.flow_id)
        await ctx.elicit("A receipt?", bool, key="receipt")
        return f"{amount.data} paid" if amount.action == "accept" else "nothing paid"

    return server, done


async def waited_too_long(server: MCPServer[Any]) -> Pending:
    """A call whose first question is answered, and whose state the server no longer takes."""
    async with Client(server) as client:
        asked = await client.begin("pay")
        assert isinstance(asked, Pending)
        pending = await client.resume(asked, {"amount": accept(value=5)})
        assert isinstance(pending, Pending)
    data = json.loads(pending.to_json())
    return Pending.from_json(json.dumps({**data, "state": "s1.expired"}))


def test_a_call_that_waited_too_long_is_begun_again_only_if_that_is_wanted() -> None:
    server, done = payments()

    async def run() -> tuple[str, Any]:
        pending = await waited_too_long(server)
        refused = await load("in_hand/expired.py").finish(server, pending, {"receipt": accept(value=True)})
        assert len(done) == 1
        async with Client(server) as client:
            outcome = await client.resume(pending, {"receipt": accept(value=True)})
        return refused, outcome

    refused, outcome = asyncio.run(run())
    assert refused == "pay waited for too long. Begin it again?"
    assert outcome.result.structured_content == {"result": "5 paid"}
    assert len(done) == 2, "the step before the last question happened again, under another flow id"


# Older servers


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2024-11-05"])
def test_folders_that_come_and_go_are_known_to_servers_of_every_version(version: Any) -> None:
    sample = load("clients/older.py")
    server = MCPServer("editor")

    @server.tool()
    async def folders(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots()]

    async def edit() -> list[Any]:
        editor = sample.Editor(server, ["file:///a"])
        editor.client = Client(server, mode=version, list_roots_callback=editor.roots)
        async with editor.client as client:
            first = await client.call_tool("folders")
            await editor.add("file:///b")
            return [first.structured_content, (await client.call_tool("folders")).structured_content]

    before, after = asyncio.run(edit())
    assert before == {"result": ["file:///a"]}
    assert after == {"result": ["file:///a", "file:///b"]}


def test_an_editor_finds_out_what_its_server_speaks() -> None:
    editor = load("clients/older.py").Editor(MCPServer("editor"), [])

    async def meet() -> str:
        async with editor.client as client:
            return str(client.protocol_version)

    assert asyncio.run(meet()) == "2026-07-28"
