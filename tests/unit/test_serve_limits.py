"""How many requests are taken: in all, from one caller, and in which time; and that all is counted down again."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.deploy.commanding import Answered, Door, Served, headers_of, reply_on, serving, until, written
from turnwise import AccessToken, AuthSettings, MCPServer
from turnwise.transports import asgi
from turnwise.transports import turnstile as turnstiles
from turnwise.transports.turnstile import RequestLimits, Turnstile

SOME, OTHERS = {"X-Real-IP": "203.0.113.7"}, {"X-Real-IP": "203.0.113.8"}
HERE = "http://127.0.0.1/mcp"


# Over real sockets


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Door]]:
    place = tmp_path_factory.mktemp("narrow")
    limits = ["--max-in-flight", "3", "--per-caller", "2", "--caller-header", "X-Real-IP"]
    with serving(place, *limits) as served:
        yield served, served.ready()


def is_turned_away(answered: Answered, status: int) -> bool:
    assert answered.status == status, answered
    assert int(answered.headers["retry-after"]) >= 1
    return bool(answered.error)


def test_a_caller_with_too_much_under_way_gets_429_and_others_are_served(narrow: tuple[Served, Door]) -> None:
    served, door = narrow
    connections = [door.begin("wait", {"name": f"mine {number}"}, SOME) for number in range(2)]
    for number in range(2):
        served.began(f"mine {number}")
    assert is_turned_away(door.call("who", headers=SOME), 429)
    assert door.call("who", headers=OTHERS).status == 200
    assert door.call("who").status == 200
    for number, connection in enumerate(connections):
        served.let_end(f"mine {number}")
        assert reply_on(connection).text == f"mine {number}"
        connection.close()
    assert door.call("who", headers=SOME).status == 200


def test_a_server_with_too_much_under_way_gives_503_and_those_inside_are_finished(narrow: tuple[Served, Door]) -> None:
    served, door = narrow
    names = [f"all {number}" for number in range(3)]
    connections = [door.begin("wait", {"name": name}, {"X-Real-IP": name}) for name in names]
    for name in names:
        served.began(name)
    assert is_turned_away(door.call("who", headers=OTHERS), 503)
    assert is_turned_away(door.call("who"), 503)
    assert door.get("/healthz").status == 200
    assert door.get("/readyz").status == 200
    for name, connection in zip(names, connections, strict=True):
        served.let_end(name)
        assert reply_on(connection).text == name
        connection.close()
    assert door.call("who").status == 200


def test_clients_that_hang_up_leave_their_place_to_others(narrow: tuple[Served, Door]) -> None:
    served, door = narrow
    for turn in range(4):
        names = [f"gone {turn} {number}" for number in range(2)]
        connections = [door.begin("wait", {"name": name}, SOME) for name in names]
        for name, connection in zip(names, connections, strict=True):
            served.began(name)
            connection.close()
        for name in names:
            until((served.place / f"{name} was cancelled").exists)
    until(lambda: door.call("who", headers=SOME).status == 200)


def test_bodies_that_never_come_leave_their_place_too(narrow: tuple[Served, Door]) -> None:
    _, door = narrow
    for _ in range(6):
        connection = door.begin("who", {}, {"X-Real-IP": "203.0.113.9", "Content-Length": "100000"})
        connection.close()
    until(lambda: door.call("who", headers={"X-Real-IP": "203.0.113.9"}).status == 200)
    assert door.call("who").status == 200


def test_a_rate_lets_a_burst_through_and_then_tells_when_to_come_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--rate", "0.01", "--burst", "3", "--caller-header", "X-Real-IP") as served:
        door = served.ready()
        assert [door.call("who", headers=SOME).status for _ in range(4)] == [200, 200, 200, 429]
        refused = door.call("who", headers=SOME)
        assert 90 <= int(refused.headers["retry-after"]) <= 100
        assert refused.error == "More than 0.01 requests a second"
        assert door.call("who", headers=OTHERS).status == 200
        assert door.get("/readyz").status == 200


def test_a_body_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, "--max-body", "2000") as served:
        door = served.ready()
        assert door.call("order", {"item": "x" * 3000}).status == 413
        assert door.call("order", {"item": "x"}).status == 200


# In one process


class Visitors:
    """Clients of an application, each at an address and perhaps with a token."""

    def __init__(self, limits: RequestLimits | None, **options: Any) -> None:
        self.gate, self.came, self.inside = asyncio.Event(), asyncio.Event(), 0
        server: MCPServer[Any] = MCPServer("narrow", **options)

        @server.tool()
        async def wait() -> str:
            self.inside += 1
            self.came.set()
            try:
                await self.gate.wait()
            finally:
                self.inside -= 1
            return "waited"

        @server.tool()
        async def fail() -> str:
            raise ZeroDivisionError

        self._app = server.asgi(limits=limits, allowed_hosts=["*"])

    async def call(self, tool: str, address: str = "203.0.113.7", **headers: str) -> int:
        transport = httpx2.ASGITransport(app=self._app, client=(address, 1))
        async with httpx2.AsyncClient(transport=transport) as client:
            reply = await client.post(HERE, content=written(tool), headers=headers_of(tool, **headers))
            return reply.status_code

    async def begin(self, *arguments: str, **headers: str) -> "asyncio.Task[int]":
        self.came.clear()
        task = asyncio.ensure_future(self.call("wait", *arguments, **headers))
        await self.came.wait()
        return task


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def patiently() -> None:
        await asyncio.wait_for(work(), 20)

    asyncio.run(patiently())


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token, "app", [], subject=token, issuer="https://login.example.com", resource=HERE)


def test_callers_are_told_apart_by_their_address() -> None:
    async def work() -> None:
        visitors = Visitors(RequestLimits(per_caller=1))
        waiting = await visitors.begin("203.0.113.7")
        assert await visitors.call("fail", "203.0.113.7") == 429
        assert await visitors.call("fail", "203.0.113.8") == 200
        assert await visitors.call("fail", "203.0.113.8", **{"X-Real-IP": "203.0.113.7"}) == 200
        visitors.gate.set()
        assert await waiting == 200

    run(work)


class Trickling:
    """A request whose body does not come to its end."""

    def __init__(self, app: Any) -> None:
        self.began = asyncio.Event()
        self.statuses: list[int] = []
        self.headers: dict[bytes, bytes] = {}
        headers = [(name.lower().encode(), value.encode()) for name, value in headers_of("fail").items()]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [(b"host", b"localhost"), *headers]}
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if self.began.is_set():
            await asyncio.Event().wait()
        self.began.set()
        return {"type": "http.request", "body": b"{", "more_body": True}

    async def _send(self, message: Any) -> None:
        if "status" in message:
            self.statuses.append(message["status"])
            self.headers = dict(message["headers"])


def test_a_body_that_trickles_holds_no_place() -> None:
    async def work() -> None:
        visitors = Visitors(RequestLimits(in_flight=1))
        slow = [Trickling(visitors._app) for _ in range(3)]
        for one in slow:
            await one.began.wait()
        assert await visitors.call("fail") == 200
        for one in slow:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in slow), return_exceptions=True)

    run(work)


@pytest.mark.parametrize("limits", [RequestLimits(in_flight=1), None])
def test_a_body_that_does_not_come_in_time_is_waited_for_no_longer(
    limits: RequestLimits | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "BODY_WITHIN", 0.01)

    async def work() -> None:
        visitors = Visitors(limits)
        assert await visitors.call("fail") == 200
        for _ in range(2):
            slow = Trickling(visitors._app)
            await slow.task
            assert (slow.statuses, slow.headers[b"connection"]) == ([408], b"close")
        assert await visitors.call("fail") == 200

    run(work)


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_whoever_connects_from_this_machine_may_be_a_proxy_and_is_not_one_caller(address: str) -> None:
    async def work() -> None:
        visitors = Visitors(RequestLimits(per_caller=1, in_flight=3))
        waiting = [await visitors.begin(address) for _ in range(3)]
        assert visitors.inside == 3
        assert await visitors.call("fail", address) == 503
        visitors.gate.set()
        assert await asyncio.gather(*waiting) == [200] * 3

    run(work)


def test_callers_are_told_apart_by_the_header_that_a_proxy_sets() -> None:
    async def work() -> None:
        visitors = Visitors(RequestLimits(per_caller=1, caller_header="X-Real-IP"))
        waiting = await visitors.begin("127.0.0.1", **SOME)
        assert await visitors.call("fail", "127.0.0.1", **SOME) == 429
        assert await visitors.call("fail", "127.0.0.1", **OTHERS) == 200
        visitors.gate.set()
        assert await waiting == 200

    run(work)


def test_callers_with_a_token_are_told_apart_by_their_principal_and_by_nothing_else() -> None:
    async def work() -> None:
        settings = AuthSettings(issuer_url="https://login.example.com", resource_server_url=HERE)
        limits = RequestLimits(per_caller=1, caller_header="X-Real-IP")
        visitors = Visitors(limits, token_verifier=Verifier(), auth=settings)
        ada, bob = {"Authorization": "Bearer ada"}, {"Authorization": "Bearer bob"}
        waiting = await visitors.begin("203.0.113.7", **ada, **SOME)
        assert await visitors.call("fail", "203.0.113.8", **ada, **OTHERS) == 429
        assert await visitors.call("fail", "203.0.113.7", **bob, **SOME) == 200
        assert await visitors.call("fail", "203.0.113.7", **SOME) == 401
        visitors.gate.set()
        assert await waiting == 200

    run(work)


def test_nothing_stays_in_the_counts_whatever_becomes_of_requests() -> None:
    async def work() -> None:
        visitors = Visitors(RequestLimits(per_caller=2, in_flight=3))
        for _ in range(20):
            waiting = [await visitors.begin(), await visitors.begin()]
            assert await visitors.call("fail") == 429
            for task in waiting:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            assert await visitors.call("fail") == 200
            assert await visitors.call("no such tool") == 200
        counts: Any = visitors._app._turnstile
        assert (counts._count, counts._inside) == (0, {})

    run(work)


# The turnstile by itself


def test_a_caller_cannot_pass_for_many_by_writing_more_into_the_header() -> None:
    turnstile = Turnstile(RequestLimits(caller_header="X-Forwarded-For"))

    def named(value: bytes) -> str | None:
        return turnstile.caller(None, {b"x-forwarded-for": value}, "10.0.0.1")

    assert {named(b"1.2.3.4"), named(b"9.9.9.9, 1.2.3.4"), named(b"a,b,  1.2.3.4 ")} == {"named 1.2.3.4"}


def test_a_rate_is_an_average_and_a_burst_fills_up_again() -> None:
    turnstile, now = Turnstile(RequestLimits(rate=2, burst=4)), 1000.0
    assert [turnstile.enter("ada", now) is None for _ in range(5)] == [True] * 4 + [False]
    assert turnstile.enter("bob", now) is None
    refusal = turnstile.enter("ada", now)
    assert refusal is not None
    assert (refusal.status, refusal.retry_after, refusal.headers) == (429, 1, [(b"retry-after", b"1")])
    assert [turnstile.enter("ada", now + 1) is None for _ in range(3)] == [True, True, False]
    assert [turnstile.enter("ada", now + 100) is None for _ in range(5)] == [True] * 4 + [False]


def test_a_clock_that_goes_back_gives_nobody_more_and_locks_nobody_out() -> None:
    turnstile = Turnstile(RequestLimits(rate=1, burst=1))
    assert turnstile.enter("ada", 1000.0) is None
    assert turnstile.enter("ada", 900.0) is not None
    assert turnstile.enter("ada", 901.0) is None


def test_who_is_refused_for_what_is_under_way_is_not_counted_for_the_rate() -> None:
    turnstile = Turnstile(RequestLimits(per_caller=1, rate=1, burst=2))
    assert turnstile.enter("ada", 0.0) is None
    for _ in range(5):
        assert turnstile.enter("ada", 0.0) is not None
    turnstile.leave("ada")
    assert turnstile.enter("ada", 0.0) is None


def test_only_so_many_callers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turnstiles, "MOST_CALLERS", 10)
    turnstile = Turnstile(RequestLimits(rate=1, burst=1))
    for number in range(1000):
        assert turnstile.enter(f"caller {number}", 0.0) is None
        turnstile.leave(f"caller {number}")
    assert len(turnstile._paces) == 10
    assert turnstile._inside == {}


@pytest.mark.parametrize(
    "wrong",
    [{"in_flight": 0}, {"per_caller": -1}, {"burst": 1.5}, {"rate": 0}, {"rate": float("inf")}, {"in_flight": True}],
)
def test_limits_that_limit_nothing_or_everything_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RequestLimits(**wrong)
