"""Any `httpx2.Auth` over HTTP: what it adds arrives, what it asks for is got, and nothing of it goes astray."""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator
from typing import Any

import httpx2
import pytest

from tests.unit.scripted import (
    DONE,
    Line,
    Peer,
    Request,
    Script,
    dripping,
    event,
    http,
    is_done,
    run,
    serving,
    text_of,
    visiting,
)
from turnwise import (
    AuthorizationFailed,
    ConnectionLost,
    DeadlineExceeded,
    PeerError,
    RedirectRefused,
    UnexpectedStatus,
)

Flow = Generator[httpx2.Request, httpx2.Response, None]
ASKED = "Bearer of a secret"


async def content(request: Request, line: Line) -> None:
    await line.json(request.reply(DONE))


async def stream(request: Request, line: Line) -> None:
    await line.events()
    await line.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}))
    await line.chunk(event(request.reply(DONE)))
    await line.chunk()


def guarded(script: Script = content, scheme: str = "Bearer") -> Script:
    """Only for those who bring the credential."""

    async def answer(request: Request, line: Line) -> None:
        if request.headers.get("authorization") == ASKED:
            await script(request, line)
        else:
            await line.json({"error": "invalid_token"}, 401, www_authenticate=scheme)

    return answer


class Stamp(httpx2.Auth):
    """Adds a credential to every request."""

    def auth_flow(self, request: httpx2.Request) -> Flow:
        request.headers["Authorization"] = ASKED
        yield request


class Fetch(httpx2.Auth):
    """Fetches a credential where it is told that one is needed."""

    requires_response_body = True

    def __init__(self, issuer: Peer) -> None:
        self._issuer = issuer
        self.challenges: list[str] = []

    def auth_flow(self, request: httpx2.Request) -> Flow:
        response = yield request
        if response.status_code == 401:
            self.challenges.append(f"{response.headers['www-authenticate']} {response.json()['error']}")
            token = yield httpx2.Request("POST", f"{self._issuer.origin}/token", data={"grant": "x"})
            request.headers["Authorization"] = token.json()["token"]
            yield request


class FetchOnlyWhatItNeeds(Fetch):
    """The same, in the way of the official SDK: it reads the bodies that it wants, and leaves the others."""

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        response = yield request
        if response.status_code == 401:
            await response.aread()
            self.challenges.append(f"{response.headers['www-authenticate']} {response.json()['error']}")
            token = yield httpx2.Request("POST", f"{self._issuer.origin}/token", data={"grant": "x"})
            request.headers["Authorization"] = json.loads(await token.aread())["token"]
            yield request


async def issuing(request: Request, line: Line) -> None:
    await line.json({"token": ASKED})


def test_a_credential_is_added_to_every_request() -> None:
    async def flow() -> list[Request]:
        async with visiting(guarded(), auth=Stamp(), headers={"X-Tenant": "a"}) as (client, peer):
            for _ in range(3):
                assert text_of(await client.call_tool("t", {"a": 1})) == "done"
            return peer.requests

    for request in run(flow()):
        assert request.headers["authorization"] == ASKED
        assert request.headers["x-tenant"] == "a"
        assert request.headers["mcp-method"] == "tools/call"
        assert request.headers["content-type"] == "application/json"
        assert request.params == {"name": "t", "arguments": {"a": 1}}


def test_the_parts_of_httpx2_work() -> None:
    async def flow(auth: httpx2.Auth) -> str:
        async with visiting(content, auth=auth) as (client, peer):
            await client.call_tool("t", {})
            return peer.requests[0].headers["authorization"]

    assert run(flow(httpx2.BasicAuth("user", "password"))) == "Basic dXNlcjpwYXNzd29yZA=="


@pytest.mark.parametrize("kind", [Fetch, FetchOnlyWhatItNeeds])
@pytest.mark.parametrize("script", [content, stream])
def test_a_credential_is_fetched_elsewhere_and_the_request_is_sent_again(kind: type[Fetch], script: Script) -> None:
    async def flow() -> None:
        async with serving(issuing) as issuer:
            auth = kind(issuer)
            async with visiting(guarded(script), auth=auth, headers={"X-Api-Key": "mine"}) as (client, peer):
                assert text_of(await client.call_tool("t", {"a": 1})) == "done"
                first, second = peer.requests
            (fetched,) = issuer.requests
            assert auth.challenges == ["Bearer invalid_token"]
            assert first.body == second.body
            assert "authorization" not in first.headers
            assert second.headers["authorization"] == ASKED
            assert fetched.body == b"grant=x"
            assert "x-api-key" not in fetched.headers
            assert not any(name.startswith("mcp-") for name in fetched.headers)

    run(flow())


@pytest.mark.parametrize("kind", [Fetch, FetchOnlyWhatItNeeds])
def test_a_reply_of_any_size_is_read_under_authorization(kind: type[Fetch]) -> None:
    async def large(request: Request, line: Line) -> None:
        await line.json(request.reply({"content": [{"type": "text", "text": "x" * 2_000_000}]}))

    async def flow() -> int:
        async with serving(issuing) as issuer, visiting(guarded(large), auth=kind(issuer)) as (client, _):
            return len(text_of(await client.call_tool("t", {})))

    assert run(flow()) == 2_000_000


def test_a_stream_is_heard_under_authorization_while_it_comes() -> None:
    heard = asyncio.Event()

    async def script(request: Request, line: Line) -> None:
        await line.events()
        await line.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}))
        await heard.wait()
        await line.chunk(event(request.reply(DONE)))
        await line.chunk()

    async def progress(*_: Any) -> None:
        heard.set()

    async def flow() -> str:
        async with visiting(guarded(script), auth=Stamp()) as (client, _):
            return text_of(await client.call_tool("t", {}, progress_callback=progress))

    assert run(flow()) == "done"


class Copy(httpx2.Auth):
    """Sends a request of its own making in place of the one that it was given."""

    def auth_flow(self, request: httpx2.Request) -> Flow:
        headers = {**request.headers, "Authorization": ASKED}
        yield httpx2.Request(request.method, request.url, headers=headers, content=request.content)


def test_a_flow_may_send_a_copy_of_the_request() -> None:
    assert is_done(guarded(), auth=Copy())


def test_a_credential_that_is_not_taken_is_told_with_the_challenge() -> None:
    async def wrong(request: Request, line: Line) -> None:
        await line.json({"token": "Bearer of nothing"})

    async def flow() -> None:
        async with serving(wrong) as issuer, visiting(guarded(), auth=Fetch(issuer)) as (client, peer):
            with pytest.raises(UnexpectedStatus) as caught:
                await client.call_tool("t", {})
            assert caught.value.status == 401
            assert caught.value.headers == {"WWW-Authenticate": "Bearer"}
            assert len(peer.requests) == 2

    run(flow())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_credential_does_not_follow_a_redirect_to_another_origin(status: int) -> None:
    async def flow() -> None:
        async with serving(content) as other:

            async def script(request: Request, line: Line) -> None:
                await line.send(http(b"", status, kind=None, location=other.url))

            async with visiting(script, auth=Stamp()) as (client, _):
                with pytest.raises(RedirectRefused):
                    await client.call_tool("t", {})
            assert other.connections == 0

    run(flow())


def test_a_request_is_authorized_again_where_a_redirect_within_the_origin_leads() -> None:
    async def script(request: Request, line: Line) -> None:
        if request.path == "/moved":
            await guarded()(request, line)
        else:
            await line.send(http(b"", 307, kind=None, location="/moved"))

    assert is_done(script, auth=Stamp())


class Fails(httpx2.Auth):
    """Fails before anything is sent, or after."""

    def __init__(self, error: Exception, before: bool) -> None:
        self._error = error
        self._before = before

    def auth_flow(self, request: httpx2.Request) -> Flow:
        if self._before:
            raise self._error
        yield request
        raise self._error


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), KeyError("x"), httpx2.ConnectError("x"), PermissionError("x"), TimeoutError("x")]
)
@pytest.mark.parametrize("before", [True, False])
def test_a_flow_that_fails_is_told_by_its_own_error(error: Exception, before: bool) -> None:
    async def flow() -> int:
        async with visiting(content, auth=Fails(error, before)) as (client, peer):
            with pytest.raises(AuthorizationFailed) as caught:
                await client.list_prompts()
            assert caught.value.__cause__ is error
            return len(peer.requests)

    assert run(flow()) == (0 if before else 1)


def test_an_issuer_that_is_not_there_is_a_lost_connection() -> None:
    async def flow() -> None:
        async with serving(issuing) as issuer:
            auth = Fetch(issuer)
        async with visiting(guarded(), auth=auth) as (client, _):
            with pytest.raises(ConnectionLost):
                await client.call_tool("t", {})

    run(flow())


def test_a_call_that_was_served_is_not_sent_again_because_its_flow_went_on_in_vain() -> None:
    class Reports(httpx2.Auth):
        def __init__(self, url: str) -> None:
            self._url = url

        def auth_flow(self, request: httpx2.Request) -> Flow:
            yield request
            yield httpx2.Request("POST", self._url)

    async def flow() -> int:
        async with serving(content) as nobody:
            pass
        async with visiting(content, auth=Reports(nobody.url)) as (client, peer):
            with pytest.raises(ConnectionLost):
                await client.call_tool("t", {})
            return len(peer.requests)

    assert run(flow()) == 1


@pytest.mark.parametrize("endless", [True, False])
def test_an_issuer_that_hangs_is_left_in_time(endless: bool) -> None:
    async def script(request: Request, line: Line) -> None:
        if endless:
            await line.events()
            await dripping(line)
        await line.gone.wait()

    async def flow() -> None:
        async with serving(script) as issuer, visiting(guarded(), auth=Fetch(issuer)) as (client, _):
            with pytest.raises(DeadlineExceeded):
                await client.call_tool("t", {}, read_timeout_seconds=0.15)

    run(flow())


def test_a_flow_that_sends_nothing_is_told() -> None:
    class Nothing(httpx2.Auth):
        async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            if not request.url:
                yield request

    async def flow() -> int:
        async with visiting(content, auth=Nothing()) as (client, peer):
            with pytest.raises(PeerError):
                await client.call_tool("t", {})
            return len(peer.requests)

    assert run(flow()) == 0
