"""Effects that happen at most once, while processes are killed in the middle of one and clients come and go."""

import asyncio
import itertools
import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.processes import (
    KEY,
    META,
    PATIENCE,
    Fleet,
    Instance,
    accept,
    environment,
    fleet_of,
    headers,
    in_time,
    post,
    text_of,
    until,
)
from turnwise import Client, Done, MCPError, Pending, SQLiteStore

SERVER = r"""
import asyncio, os, sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from mcp_types import ToolAnnotations
from turnwise import Budget, Context, MCPServer, RequestStateSecurity, SQLiteStore

PLACE = Path(os.environ["PLACE"])
server = MCPServer(
    "till",
    request_state_security=RequestStateSecurity(keys=[os.environ["KEY"]]),
    store=SQLiteStore(PLACE / "guards.db"),
    budget=Budget(patience=float(os.environ["GUARD_PATIENCE"])),
)

def note(effect: str, about: str) -> None:
    with open(PLACE / "effects.log", "a") as log:
        log.write(f"{os.getpid()} {effect} {about}\n")

@contextmanager
def telling(order: str):
    try:
        yield
    except asyncio.CancelledError:
        note("cancelled", f"call-for-{order}")
        raise

async def charge(order: str) -> str:
    note("charge", order)
    while (PLACE / f"hold {order}").exists():
        await asyncio.sleep(0.02)
    return f"receipt for {order}"

@server.tool(effects=True)
async def pay(order: str, ctx: Context) -> str:
    with telling(order):
        return await ctx.step(charge, order, once=True)

@server.tool(effects=True)
async def pay_for_sure(order: str, ctx: Context) -> str:
    return await ctx.step(charge, order, once=True, on_unknown="rerun")

@server.tool(effects=True, annotations=ToolAnnotations(idempotent_hint=True))
async def pay_again(order: str, ctx: Context) -> str:
    return await ctx.step(charge, order, once=True)

@server.tool(single_use=True)
async def pay_after_two_questions(order: str, ctx: Context) -> str:
    await ctx.elicit("Sure?", bool, key="sure")
    await ctx.elicit("Really?", bool, key="really")
    return await ctx.step(charge, order, once=True)

@server.tool(single_use=True)
async def pay_with_one_token(order: str, ctx: Context) -> str:
    return await ctx.step(charge, order, once=True)

@server.tool()
async def amend(order: dict[str, Any], ctx: Context) -> str:
    order["lines"].append("gift wrap")
    sure = await ctx.elicit("Sure?", bool, key="sure")
    return f"{order['lines']} {sure.data}"

server.run("http", port=int(sys.argv[1]))
"""
PATIENT, IMPATIENT = "5", "0.2"
orders = (f"order-{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def till(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two instances that wait long for one who is at it, and a third that does not."""
    place = tmp_path_factory.mktemp("till")
    instances = [
        Instance(
            ["-c", SERVER],
            environment(KEY=KEY, PLACE=str(place), GUARD_PATIENCE=patience),
            place / f"{number}.log",
        )
        for number, patience in enumerate((PATIENT, PATIENT, IMPATIENT))
    ]
    with fleet_of(instances, place / "effects.log") as fleet:
        yield fleet


@pytest.fixture
def fleet(till: Fleet) -> Fleet:
    till.heal()
    till.balancer.begin()
    return till


@contextmanager
def held(fleet: Fleet, order: str) -> Iterator[Path]:
    """While this lasts, whoever charges for this order does not come to an end."""
    hold = fleet.effects_log.with_name(f"hold {order}")
    hold.touch()
    try:
        yield hold
    finally:
        hold.unlink(missing_ok=True)


@contextmanager
def in_background(fleet: Fleet, instance: int, tool: str, order: str, state: str) -> Iterator["Future[dict[str, Any]]"]:
    port = fleet.instances[instance].port
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(lambda: post(port, tool, {"order": order}, requestState=state))


def token(fleet: Fleet, tool: str, order: str) -> str:
    """The first round of a tool with effects: it gives a token and does nothing."""
    opened = post(fleet.instances[0].port, tool, {"order": order})
    assert opened["inputRequests"] == {}
    state: str = opened["requestState"]
    return state


def test_a_process_that_is_killed_in_the_middle_of_an_effect_leaves_it_unknown_and_not_doubled(fleet: Fleet) -> None:
    order = next(orders)
    state = token(fleet, "pay", order)
    with held(fleet, order), in_background(fleet, 0, "pay", order, state) as reply:
        until(lambda: fleet.effects(order) == ["charge"])
        fleet.instances[0].kill()
        with pytest.raises(RemoteDisconnected):
            reply.result()
    again = post(fleet.instances[2].port, "pay", {"order": order}, requestState=state)
    assert again["isError"]
    assert again["content"][0]["text"].startswith("It is not known whether 'charge' was done")
    assert fleet.effects(order) == ["charge"]


def test_an_effect_that_may_be_repeated_is_taken_over_from_a_process_that_was_killed(fleet: Fleet) -> None:
    order = next(orders)
    state = token(fleet, "pay_for_sure", order)
    with held(fleet, order), in_background(fleet, 0, "pay_for_sure", order, state) as reply:
        until(lambda: fleet.effects(order) == ["charge"])
        fleet.instances[0].kill()
        with pytest.raises(RemoteDisconnected):
            reply.result()
    for instance in (2, 1):
        again = post(fleet.instances[instance].port, "pay_for_sure", {"order": order}, requestState=state)
        assert again["content"][0]["text"] == f"receipt for {order}"
    assert fleet.effects(order) == ["charge", "charge"]


def test_who_comes_while_another_process_is_at_it_waits_for_what_comes_of_it(fleet: Fleet) -> None:
    order = next(orders)
    state = token(fleet, "pay", order)
    with held(fleet, order) as hold, in_background(fleet, 0, "pay", order, state) as first:
        until(lambda: fleet.effects(order) == ["charge"])
        with in_background(fleet, 1, "pay", order, state) as second:
            hold.unlink()
            texts = [reply.result()["content"][0]["text"] for reply in (first, second)]
    assert texts == [f"receipt for {order}"] * 2
    assert fleet.effects(order) == ["charge"]


def hang_up(fleet: Fleet, instance: int, tool: str, order: str, state: str) -> socket.socket:
    """A request whose client is about to go away."""
    params = {"name": tool, "arguments": {"order": order}, "requestState": state, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    lines = {"Host": "localhost", "Content-Length": str(len(body)), **headers(tool)}
    head = "\r\n".join(["POST /mcp HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "", ""])
    connection = socket.create_connection(("127.0.0.1", fleet.instances[instance].port))
    connection.sendall(head.encode() + body)
    return connection


def until_cancelled(fleet: Fleet, order: str) -> None:
    """Wait until the instance knows that the client has gone."""
    until(lambda: fleet.effects(f"call-for-{order}") == ["cancelled"])


def test_an_effect_is_finished_though_the_client_has_gone(fleet: Fleet) -> None:
    order = next(orders)
    state = token(fleet, "pay", order)
    with held(fleet, order) as hold:
        with hang_up(fleet, 0, "pay", order, state):
            until(lambda: fleet.effects(order) == ["charge"])
        until_cancelled(fleet, order)
        hold.unlink()
        again = post(fleet.instances[1].port, "pay", {"order": order}, requestState=state)
    assert again["content"][0]["text"] == f"receipt for {order}"
    assert fleet.effects(order) == ["charge"]


def wait_in_vain(connection: socket.socket) -> None:
    """Long enough for the instance to look out for a client that goes."""
    connection.settimeout(0.3)
    with pytest.raises(TimeoutError):
        connection.recv(1)


@contextmanager
def guards(fleet: Fleet) -> Iterator[sqlite3.Connection]:
    """The store that the instances share, opened beside them."""
    with closing(sqlite3.connect(fleet.effects_log.with_name("guards.db"), isolation_level=None)) as store:
        yield store


def test_a_client_that_goes_while_the_store_is_busy_leaves_nothing_half_begun(fleet: Fleet) -> None:
    """The record of the beginning is written after the client has gone; what it announces has to come."""
    order = next(orders)
    state = token(fleet, "pay", order)
    with guards(fleet) as store:
        store.execute("BEGIN IMMEDIATE")
        count = "SELECT count(*) FROM guards"
        before = store.execute(count).fetchone()
        with hang_up(fleet, 0, "pay", order, state) as connection:
            wait_in_vain(connection)  # The request is at the store, which does not let it in.
        until_cancelled(fleet, order)
        store.execute("ROLLBACK")
        until(lambda: store.execute(count).fetchone() != before)
    again = post(fleet.instances[2].port, "pay", {"order": order}, requestState=state)
    assert again["content"][0]["text"] == f"receipt for {order}"
    assert fleet.effects(order) == ["charge"]


def test_a_token_that_is_good_for_one_reply_is_good_until_there_is_one(fleet: Fleet) -> None:
    order = next(orders)
    state = token(fleet, "pay_with_one_token", order)
    with held(fleet, order) as hold:
        with hang_up(fleet, 0, "pay_with_one_token", order, state) as connection:
            wait_in_vain(connection)
        token(fleet, "pay", next(orders))  # The same instance, which has seen the end of that connection before.
        hold.unlink()
        again = post(fleet.instances[1].port, "pay_with_one_token", {"order": order}, requestState=state)
    assert again["content"][0]["text"] == f"receipt for {order}"
    assert fleet.effects(order) == ["charge"]


def test_a_tool_that_says_it_may_be_repeated_is_sent_again_by_the_client_itself(fleet: Fleet) -> None:
    order = next(orders)

    async def work() -> str:
        async with Client(fleet.url) as client:
            await client.list_tools()
            fleet.balancer.lost = {1, 3}
            return text_of(await client.call_tool("pay_again", {"order": order}))

    assert in_time(work()) == f"receipt for {order}"
    assert len(fleet.balancer.calls) == 4
    assert fleet.effects(order) == ["charge"]


def test_a_call_that_went_on_is_not_begun_anew_by_an_old_copy_of_it(fleet: Fleet) -> None:
    """The copy waits at the first question; the call itself was paid long ago."""
    order = next(orders)

    async def work() -> None:
        async with Client(fleet.url) as client:
            first = await client.begin("pay_after_two_questions", {"order": order})
            assert isinstance(first, Pending)
            second = await client.resume(first, {"sure": accept(True)})
            assert isinstance(second, Pending)
            assert isinstance(await client.resume(second, {"really": accept(True)}), Done)
            with suppress(MCPError):
                again = await client.resume(Pending.from_json(first.to_json()), {"sure": accept(True)})
                assert not isinstance(again, Pending), "the call was begun anew"

    in_time(work())
    assert fleet.effects(order) == ["charge"]


def test_a_function_may_change_the_arguments_that_it_was_given(fleet: Fleet) -> None:
    arguments = {"order": {"lines": ["book"]}}
    asked = post(fleet.instances[0].port, "amend", arguments)
    answers = {"sure": accept(True)}
    port = fleet.instances[1].port
    done = post(port, "amend", arguments, inputResponses=answers, requestState=asked["requestState"])
    assert done["content"][0]["text"] == "['book', 'gift wrap'] True"


STRANGER = r"""
import asyncio, sys
from turnwise import SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    print(type(await store.find(sys.argv[2])).__name__)
    await store.aclose()

asyncio.run(main())
"""


def test_two_stores_of_one_process_may_share_a_file_with_another_process(tmp_path: Path) -> None:
    path = tmp_path / "guards.db"

    def seen_by_a_stranger(key: str) -> str:
        command = [sys.executable, "-c", STRANGER, str(path), key]
        return subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout.strip()

    async def work() -> None:
        first, second = SQLiteStore(path), SQLiteStore(path)
        await first.begin("one", PATIENCE)
        await second.begin("two", PATIENCE)
        assert await asyncio.to_thread(seen_by_a_stranger, "two") == "Running"
        await first.begin("three", PATIENCE)
        seen = await asyncio.to_thread(seen_by_a_stranger, "three")
        await asyncio.gather(first.aclose(), second.aclose())
        assert seen == "Running"

    in_time(work())
