"""All wires at once on one process: nobody gets what is another's, and nothing stays behind."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import aiohttp
import uvicorn

from tests.wires import tool
from tests.wires.clients import APPROVED, FINAL, FIRST_DRAFT, MULTI_TURN, Http, opened
from tests.wires.people import Person
from turnwise import MCPServer

VERSIONS = (FINAL, "2025-11-25", MULTI_TURN, APPROVED, FIRST_DRAFT)
FORMS = ("inline", "declared", "returned")
FLOWS, AT_A_TIME = 200, 40


async def flow(http: aiohttp.ClientSession, url: str, number: int, seen: dict[str, int]) -> None:
    """One client, which says nothing that another one says: a call, and a prompt beside it on the same session."""
    version, form = VERSIONS[number % len(VERSIONS)], FORMS[number % len(FORMS)]
    channel = Http(http, url)
    wire = await opened(channel, version)
    person, other, city = Person(f"person-{number}", number), Person(f"reader-{number}", -number), f"city-{number}"
    call = wire.call("tools/call", {"name": form, "arguments": {"city": city}}, person.answer)
    prompt = wire.call("prompts/get", {"name": "letter", "arguments": {"city": city}}, other.answer)
    done, letter = await asyncio.gather(call, prompt)
    assert done["result"]["structuredContent"] == {
        "booking": f"a room in {city}",
        "guest": {"name": f"person-{number}", "age": number},
        "motto": f"person-{number}: A motto for {city}",
        "folders": [f"file:///person-{number}/{number}"],
        "meal": f"soup for person-{number}",
        "row": number,
    }
    text = letter["result"]["messages"][0]["content"]["text"]
    assert text == f"A letter about soup for reader-{number} on the way to {city}"
    assert len(person.asked) == 5
    assert all(city in asked or asked.endswith(("createMessage", "list")) for asked in person.asked)
    assert other.asked == [f"Which meal to {city}?"]
    await wire.close()
    seen[version] = seen.get(version, 0) + 1


async def settled(expected: set[Any]) -> set[Any]:
    """The tasks that are there besides these, once those that are ending have ended."""
    for _ in range(200):
        if not (extra := asyncio.all_tasks() - expected):
            break
        await asyncio.sleep(0.01)
    return extra


@asynccontextmanager
async def served(server: MCPServer) -> AsyncIterator[str]:
    """The address of a server in this very loop; when it is left, no session and no task may be there that was not."""
    web = uvicorn.Server(uvicorn.Config(server.asgi(), log_level="warning", lifespan="off", ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(web.serve([listener]))
        before = asyncio.all_tasks()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        assert server._sessions is not None
        assert len(server._sessions) == 0
        assert await settled(before) == set()
        web.should_exit = True
        await running


def test_two_hundred_flows_on_all_wires_do_not_touch_each_other_and_leave_nothing_behind() -> None:
    async def run() -> dict[str, int]:
        seen, numbers = dict[str, int](), itertools.count(1)
        connector = aiohttp.TCPConnector(limit=0)
        async with served(tool.make_server()) as url, aiohttp.ClientSession(connector=connector) as http:

            async def visitor() -> None:
                while (number := next(numbers)) <= FLOWS:
                    await flow(http, url, number, seen)

            await asyncio.gather(*(visitor() for _ in range(AT_A_TIME)))
        return seen

    assert asyncio.run(asyncio.wait_for(run(), 60)) == dict.fromkeys(VERSIONS, FLOWS // len(VERSIONS))


def test_a_session_that_ends_in_the_middle_of_a_question_leaves_nothing_behind() -> None:
    """DELETE while a call waits for its answer: the call, its stream and the session are given up."""

    async def run() -> None:
        server = tool.make_server()
        async with served(server) as url, aiohttp.ClientSession() as http:
            wire = await opened(Http(http, url), "2025-11-25")
            call = wire.message("tools/call", {"name": "inline", "arguments": {"city": "Rome"}})
            async with aclosing(wire.channel.exchange(call, wire.headers)) as events:
                async for event in events:
                    if event.data is not None:
                        break
                assert event.data["method"] == "elicitation/create"
                assert server._sessions is not None
                [session] = server._sessions._sessions.values()
                assert (len(session.waits), len(session.calls)) == (1, 1)
                await wire.close()
                assert [event async for event in events] == []
        assert (session.calls, session.waits) == ({}, {})

    asyncio.run(asyncio.wait_for(run(), 60))
