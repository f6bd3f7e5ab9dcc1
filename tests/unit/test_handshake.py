"""The wires of 2024-11-05 to 2025-11-25 on the server: how they open, what a session serves, and who it is for.

What holds over HTTP and on a lasting line is held over both.
"""

import asyncio
import gc
import json
import logging
import weakref
from typing import Annotated, Any

import pytest
from mcp_types.methods import validate_server_result
from pydantic import BaseModel, Field

from tests.unit.handshaken import (
    META,
    NEWEST,
    ROADS,
    VERSIONS,
    Pipe,
    Web,
    body,
    calling,
    cancelling,
    kinds,
    notification,
    opening,
    pipe,
    request,
    run,
    sessions,
    text,
    until,
    web,
)
from turnwise import Change, Context, MCPServer, SessionLimits, ToolError

BATCHED = VERSIONS[:2]
UNBATCHED = VERSIONS[2:]
roads = pytest.mark.parametrize("road", ROADS, ids=["http", "line"])
versions = pytest.mark.parametrize("version", VERSIONS)


class Sum(BaseModel):
    total: int


def add_tools(server: MCPServer[Any]) -> None:
    @server.tool()
    async def add(a: int, b: Annotated[int, Field(description="the other")]) -> Sum:
        return Sum(total=a + b)

    @server.tool()
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    @server.tool()
    async def fail(how: str) -> str:
        raise ToolError("out of stock") if how == "told" else RuntimeError("hunter2")

    @server.tool()
    async def shout(ctx: Context) -> str:
        for level in ("debug", "info", "warning", "error"):
            await ctx.log(level, f"said at {level}", logger_name="shouts")
        return "shouted"

    @server.tool()
    async def whoami(ctx: Context) -> str:
        who = "nobody" if ctx.client_info is None else ctx.client_info.name
        return f"{who} {ctx.protocol_version}"

    @server.tool()
    async def wait(ctx: Context) -> str:
        await ctx.report_progress(1)
        await asyncio.Event().wait()
        return "never"


def add_the_rest(server: MCPServer[Any]) -> None:
    @server.prompt()
    async def review(code: str) -> str:
        """Review some code."""
        return f"Please review {code}"

    @server.resource("memo://today", mime_type="text/plain")
    async def today() -> str:
        return "rain"

    @server.resource("memo://{day}")
    async def memo(day: str) -> str:
        return f"{day}: nothing"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        return [word for word in ("python", "pytest") if word.startswith(argument.value)]


def make_server(**options: Any) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("hands", version="1.2", instructions="Ask.", **options)
    add_tools(server)
    add_the_rest(server)
    return server


# Opening


@roads
@versions
def test_a_version_that_is_served_is_spoken(road: Any, version: str) -> None:
    async def main() -> None:
        client = Web(make_server()) if road is web else Pipe(make_server())
        result = await client.open(version)
        assert result["protocolVersion"] == version
        assert result["serverInfo"] == {"name": "hands", "version": "1.2"}
        assert result["instructions"] == "Ask."
        validate_server_result("initialize", version, result)
        reply = await client.played("whoami")
        assert text(reply) == f"test {version}"
        await client.close()

    run(main())


@roads
@pytest.mark.parametrize("asked", ["1999-01-01", "2031-01-01", "", "2026-07-28", "DRAFT-2026-v1"])
def test_a_version_that_is_not_served_here_is_answered_with_the_newest(road: Any, asked: str) -> None:
    async def main() -> Any:
        async with road(make_server()) as client:
            return await client.open(asked)

    assert run(main())["protocolVersion"] == NEWEST


def test_what_is_offered_is_what_there_is() -> None:
    async def offered(server: MCPServer[Any]) -> Any:
        return (await Web(server).open())["capabilities"]

    changing = {"listChanged": True}
    assert run(offered(make_server())) == {
        "logging": {},
        "tools": changing,
        "prompts": changing,
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
    }
    assert run(offered(MCPServer("bare"))) == {"logging": {}}
    still = run(offered(make_server(subscriptions=False)))
    assert still == {"logging": {}, "tools": {}, "prompts": {}, "resources": {}, "completions": {}}


@roads
@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"protocolVersion": 5},
        {"protocolVersion": None},
        {"protocolVersion": NEWEST, "capabilities": []},
        {"protocolVersion": NEWEST, "capabilities": {"experimental": {"x": "y" * 70_000}}},
    ],
    ids=["none", "empty", "number", "null", "list", "large"],
)
def test_an_opening_of_the_wrong_shape_is_refused_and_opens_nothing(road: Any, params: Any) -> None:
    async def main() -> None:
        server = make_server()
        client = Web(server) if road is web else Pipe(server)
        await client.say(request("initialize", params, 7))
        reply = await client.next()
        assert (reply["id"], reply["error"]["code"]) == (7, -32602)
        assert len(sessions(server)) == 0
        assert isinstance(client, Web) or client.session is None
        await client.close()

    run(main())


@roads
@pytest.mark.parametrize("odd", [{"id": None}, {"id": [1]}, {"id": 1.5}, {"jsonrpc": "1.0"}, {"jsonrpc": None}])
def test_an_opening_that_is_no_request_opens_nothing(road: Any, odd: dict[str, Any]) -> None:
    async def main() -> None:
        server = make_server()
        client = Web(server) if road is web else Pipe(server)
        await client.say({**opening(), **odd})
        reply = await client.next()
        assert reply["error"]["code"] == -32600
        assert "result" not in reply
        assert len(sessions(server)) == 0
        await client.close()

    run(main())


def test_over_http_every_opening_opens_a_session_of_its_own() -> None:
    async def main() -> None:
        server = make_server()
        client = Web(server)
        await client.open()
        first = client.session_id
        reply = await client.reply(opening(VERSIONS[0]))
        second = dict(reply.headers)[b"mcp-session-id"].decode()
        assert second != first
        assert len(sessions(server)) == 2
        assert body(await client.reply(request("ping")))["result"] == {}
        server.close_subscriptions()

    run(main())


def test_on_a_line_another_opening_begins_anew_and_ends_what_was() -> None:
    async def main() -> None:
        server = make_server()
        async with pipe(server) as client:
            await client.asked("resources/subscribe", {"uri": "memo://today"})
            await until(lambda: client.session.listening is not None)
            before = client.session
            assert (await client.open(VERSIONS[1]))["protocolVersion"] == VERSIONS[1]
            assert client.session is not before
            assert client.session.uris == set()
            await until(lambda: before.listening is not None and before.listening.cancelled())
            assert text(await client.played("whoami")) == f"test {VERSIONS[1]}"

    run(main())


def test_before_an_opening_nothing_is_served_but_the_version_without_one() -> None:
    async def main() -> None:
        server = make_server()
        for client in (Web(server), Pipe(server)):
            for message in (request("ping"), request("tools/list"), calling("whoami"), calling("whoami", id="x")):
                await client.say(message)
                reply = await client.next()
                assert reply["error"]["code"] in (-32600, -32602), reply
                assert "data" not in reply["error"] or reply["error"]["data"] == {"supported": ["2026-07-28"]}
            await client.close()
        assert len(sessions(server)) == 0

    run(main())


# Sessions over HTTP


def test_a_session_is_named_in_a_header_when_it_is_opened_and_in_no_other_reply() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            assert client.session_id is not None
            assert len(client.session_id) >= 32
            reply = await client.reply(request("ping"))
            assert (reply.status, list(reply.headers)) == (200, [])

    run(main())


def test_without_its_header_a_request_belongs_to_no_session() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            for message in (request("ping"), calling("whoami"), {"jsonrpc": "2.0", "id": 1, "result": {}}):
                reply = await client.reply(message, mcp_session_id=None)
                assert reply.status == 400

    run(main())


def test_an_unknown_an_ended_and_a_strangers_session_are_told_alike() -> None:
    async def main() -> None:
        server = make_server()
        alice, bob, carol = Web(server, "alice"), Web(server, "bob"), Web(server, "carol")
        for client in (alice, bob, carol):
            await client.open()
        await carol.attend("DELETE")
        mine = alice.session_id
        told = []
        for stranger, name in ((bob, mine), (bob, "x" * 32), (carol, carol.session_id), (bob, ""), (bob, "s1.abc")):
            if not name:
                continue
            for message in (request("ping", id=3), notification("notifications/initialized"), cancelling(1)):
                reply = await stranger.reply(message, mcp_session_id=name)
                told.append((reply.status, reply.body and reply.body.replace(b',"id":3', b""), reply.headers))
            for verb in ("GET", "DELETE"):
                attended = await stranger.attend(verb, mcp_session_id=name)
                assert attended is not None
                told.append((attended.status, attended.body, attended.headers))
        assert len(set(map(str, told))) == 1, set(map(str, told))
        assert told[0][0] == 404
        assert body(await alice.reply(request("ping")))["result"] == {}

    run(main())


def test_a_stranger_cannot_answer_cancel_or_take_up_what_is_not_theirs() -> None:
    async def main() -> None:
        server = make_server()
        alice, bob = Web(server, "alice"), Web(server, "bob")
        await alice.open()
        await bob.open()
        call = await alice.call("wait", progressToken=1)
        await alice.next()
        last = alice.events[-1].id
        for message in (cancelling(call), {"jsonrpc": "2.0", "id": 1, "result": {}}):
            assert (await bob.reply(message, mcp_session_id=alice.session_id)).status == 404
            await bob.reply(message)
        stolen = await bob.attend("GET", mcp_session_id=alice.session_id, last_event_id=last)
        assert stolen is not None
        assert (stolen.status, stolen.events) == (404, None)
        await asyncio.sleep(0)
        assert call in alice.session.calls
        await alice.close()
        server.close_subscriptions()

    run(main())


@pytest.mark.parametrize("spoken", ["1999-01-01", "2031-01-01", "2025-11-26", "x", "DRAFT-2026-v1"])
def test_a_version_header_that_is_not_served_is_a_bad_request(spoken: str) -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            for message in (request("ping"), notification("notifications/initialized")):
                reply = await client.reply(message, mcp_protocol_version=spoken)
                assert (reply.status, body(reply)["error"]["code"]) == (400, -32600)
            for verb in ("GET", "DELETE"):
                attended = await client.attend(verb, mcp_protocol_version=spoken)
                assert attended is not None
                assert attended.status == 400
            assert body(await client.reply(request("ping")))["result"] == {}

    run(main())


def test_a_version_header_may_be_missing_since_the_session_knows_it() -> None:
    async def main() -> None:
        for version in VERSIONS:
            async with web(make_server(), version) as client:
                reply = await client.reply(calling("whoami"), mcp_protocol_version=None)
                assert text(body(reply)) == f"test {version}"

    run(main())


def test_delete_ends_a_session_with_all_that_it_had() -> None:
    async def main() -> None:
        around = asyncio.all_tasks()
        server = make_server()
        client = Web(server)
        await client.open()
        await client.listen()
        await client.call("wait", progressToken=1)
        await client.next()
        streams = [weakref.ref(stream) for stream in client.session.streams.values()]
        readers = list(client.tasks)
        assert len(streams) == len(readers) == 2
        reply = await client.attend("DELETE")
        assert reply is not None
        assert (reply.status, reply.body, reply.events) == (204, None, None)
        await asyncio.wait_for(asyncio.gather(*readers), 2)
        await until(lambda: asyncio.all_tasks() == around)
        assert len(sessions(server)) == 0
        again = await client.attend("DELETE")
        assert again is not None
        assert again.status == 404
        assert (await client.reply(request("ping"))).status == 404
        del readers
        gc.collect()
        assert [stream() for stream in streams] == [None, None]

    run(main())


def test_there_is_no_room_for_more_clients_than_the_limit() -> None:
    async def main() -> None:
        server = make_server(sessions=SessionLimits(most=2, idle=10))
        first, second, third = Web(server), Web(server), Web(server)
        await first.open()
        await second.open()
        reply = await third.reply(opening(), mcp_protocol_version=None)
        assert (reply.status, body(reply)["error"]["code"]) == (503, -32000)
        assert "at most 2" in body(reply)["error"]["message"]
        assert reply.headers == ((b"retry-after", b"30"),)
        await first.attend("DELETE")
        await third.open()
        third.now += 10
        await third.open()
        assert (await second.reply(request("ping"))).status == 404

    run(main())


@pytest.mark.parametrize(("seconds", "limit"), [(9.9, None), (10, "idle")])
def test_a_client_that_was_silent_for_too_long_has_to_open_again(seconds: float, limit: str | None) -> None:
    async def main() -> int:
        client = Web(make_server(sessions=SessionLimits(idle=10)))
        await client.open()
        client.now += seconds
        return (await client.reply(request("ping"))).status

    assert run(main()) == (200 if limit is None else 404)


def test_a_client_that_talks_all_the_time_has_to_open_again_when_its_session_is_old() -> None:
    async def main() -> list[int]:
        client = Web(make_server(sessions=SessionLimits(idle=10, age=30)))
        await client.open()
        statuses = []
        for _ in range(6):
            client.now += 6
            statuses.append((await client.reply(notification("notifications/roots/list_changed"))).status)
        return statuses

    assert run(main()) == [202, 202, 202, 202, 404, 404]


def test_who_listens_is_not_idle_and_who_stopped_listening_is() -> None:
    async def main() -> None:
        client = Web(make_server(sessions=SessionLimits(idle=10)))
        await client.open()
        await client.listen()
        client.now += 1000
        assert (await client.reply(request("ping"))).status == 200
        client.now += 1000
        await client.close()
        assert (await client.reply(request("ping"))).status == 404

    run(main())


def test_a_session_that_expires_stops_what_it_had_under_way() -> None:
    async def main() -> None:
        around = asyncio.all_tasks()
        server = make_server(sessions=SessionLimits(idle=10))
        client, other = Web(server), Web(server)
        await client.open()
        await client.call("wait", progressToken=1)
        await client.next()
        await client.close()
        assert len(asyncio.all_tasks() - around) == 1
        other.now += 10
        await other.open()
        assert len(sessions(server)) == 1
        await until(lambda: asyncio.all_tasks() == around)

    run(main())


def test_a_shutdown_ends_every_session_and_every_stream() -> None:
    async def main() -> None:
        server = make_server()
        clients = [Web(server) for _ in range(3)]
        for client in clients:
            await client.open()
            await client.listen()
            await client.call("wait", progressToken=1)
            await client.next()
        tasks = [task for client in clients for task in client.tasks]
        assert len(tasks) == 6
        server.close_subscriptions()
        done, working = await asyncio.wait(tasks, timeout=2, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 3:
            done, working = await asyncio.wait(tasks, timeout=0.05)
        assert len(working) == 3  # Calls may finish in the time that a shutdown leaves them.
        await server.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), 2)
        assert len(sessions(server)) == 0
        assert (await clients[0].reply(request("ping"))).status == 404

    run(main())


# What a session serves


@roads
@versions
def test_ping_is_answered_with_nothing(road: Any, version: str) -> None:
    async def main() -> None:
        async with road(make_server(), version) as client:
            assert (await client.asked("ping"))["result"] == {}
            assert (await client.asked("ping", {}))["result"] == {}
            await client.say(request("ping", id="a text"))
            assert await client.next() == {"jsonrpc": "2.0", "id": "a text", "result": {}}

    run(main())


@roads
def test_without_a_level_everything_is_logged(road: Any) -> None:
    async def main() -> list[Any]:
        async with road(make_server()) as client:
            await client.played("shout")
            return [message["params"] for message in client.said if message.get("method") == "notifications/message"]

    logged = run(main())
    assert [params["level"] for params in logged] == ["debug", "info", "warning", "error"]
    assert logged[0] == {"level": "debug", "data": "said at debug", "logger": "shouts"}


@roads
@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", 4),
        ("info", 3),
        ("notice", 2),
        ("warning", 2),
        ("error", 1),
        ("critical", 0),
        ("alert", 0),
        ("emergency", 0),
    ],
)
def test_only_what_reaches_the_level_is_logged(road: Any, level: str, heard: int) -> None:
    async def main() -> int:
        async with road(make_server()) as client:
            assert (await client.asked("logging/setLevel", {"level": level}))["result"] == {}
            await client.played("shout")
            return kinds(client.said).count("notifications/message")

    assert run(main()) == heard


@roads
@pytest.mark.parametrize("params", [{}, {"level": "loud"}, {"level": 3}, {"level": None}, {"level": ["debug"]}, None])
def test_a_level_that_there_is_not_is_refused_and_the_old_one_stays(road: Any, params: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            await client.asked("logging/setLevel", {"level": "error"})
            assert (await client.asked("logging/setLevel", params))["error"]["code"] == -32602
            await client.played("shout")
            assert kinds(client.said).count("notifications/message") == 1

    run(main())


def test_a_level_is_that_of_one_session() -> None:
    async def main() -> list[int]:
        server = make_server()
        async with web(server) as one, web(server) as two:
            await one.asked("logging/setLevel", {"level": "emergency"})
            await one.played("shout")
            await two.played("shout")
            return [kinds(client.said).count("notifications/message") for client in (one, two)]

    assert run(main()) == [0, 4]


@roads
def test_lists_show_what_is_registered_page_by_page(road: Any) -> None:
    async def main() -> None:
        async with road(make_server(page_size=2)) as client:
            names: list[str] = []
            params: dict[str, Any] | None = None
            for _ in range(3):
                result = (await client.asked("tools/list", params))["result"]
                names += [tool["name"] for tool in result["tools"]]
                params = {"cursor": result.get("nextCursor")}
            assert names == ["add", "total", "fail", "shout", "whoami", "wait"]
            assert params == {"cursor": None}
            assert (await client.asked("tools/list", {"cursor": "nonsense"}))["error"]["code"] == -32602
            assert [entry["name"] for entry in (await client.asked("prompts/list"))["result"]["prompts"]] == ["review"]
            shown = (await client.asked("resources/list"))["result"]["resources"]
            assert [entry["uri"] for entry in shown] == ["memo://today"]
            templates = (await client.asked("resources/templates/list"))["result"]["resourceTemplates"]
            assert [entry["uriTemplate"] for entry in templates] == ["memo://{day}"]

    run(main())


@roads
@versions
def test_results_are_what_their_version_knows_and_no_more(road: Any, version: str) -> None:
    asked: list[tuple[str, dict[str, Any]]] = [
        ("tools/list", {}),
        ("prompts/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
        ("prompts/get", {"name": "review", "arguments": {"code": "x"}}),
        ("resources/read", {"uri": "memo://today"}),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "code", "value": "py"}},
        ),
    ]

    async def main() -> None:
        async with road(make_server(), version) as client:
            for method, params in asked:
                result = (await client.asked(method, params))["result"]
                assert not result.keys() & {"resultType", "ttlMs", "cacheScope", "_meta"}, (method, result)
                validate_server_result(method, version, result)

    run(main())


@roads
def test_a_structured_result_is_an_object_and_other_values_are_text_alone(road: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            result = (await client.played("add", arguments={"a": 1, "b": 2}))["result"]
            assert result["structuredContent"] == {"total": 3}
            assert json.loads(result["content"][0]["text"]) == {"total": 3}
            result = (await client.played("total", arguments={"numbers": [1, 2]}))["result"]
            assert text({"result": result}) == "3"
            assert isinstance(result.get("structuredContent", {}), dict)
            tools = {tool["name"]: tool for tool in (await client.asked("tools/list"))["result"]["tools"]}
            assert tools["add"]["outputSchema"]["type"] == "object"
            assert tools["total"].get("outputSchema", {"type": "object"})["type"] == "object"
            assert ("outputSchema" in tools["total"]) == ("structuredContent" in result)

    run(main())


@roads
def test_prompts_resources_and_completions_are_served(road: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            prompt = (await client.asked("prompts/get", {"name": "review", "arguments": {"code": "x"}}))["result"]
            assert prompt["messages"][0]["content"]["text"] == "Please review x"
            for uri, words in (("memo://today", "rain"), ("memo://monday", "monday: nothing")):
                read = (await client.asked("resources/read", {"uri": uri}))["result"]
                assert [(part["uri"], part["text"]) for part in read["contents"]] == [(uri, words)]
            params = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "code", "value": "pyt"}}
            assert (await client.asked("completion/complete", params))["result"]["completion"]["values"] == [
                "python",
                "pytest",
            ]

    run(main())


@roads
@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("no/such", {}, -32601),
        ("server/discover", {}, -32601),
        ("subscriptions/listen", {"notifications": {}}, -32601),
        ("sampling/createMessage", {}, -32601),
        ("resources/read", {"uri": "nowhere://"}, -32002),
        ("resources/read", {"uri": 5}, -32602),
        ("resources/read", {}, -32602),
        ("prompts/get", {"name": "nobody"}, -32602),
        ("prompts/get", {"name": "review"}, -32602),
        ("tools/call", {"name": "nobody"}, -32602),
        ("tools/call", {"name": ["add"]}, -32602),
        ("tools/call", {"name": "add", "arguments": [1]}, -32602),
        ("tools/call", {"name": "add", "_meta": 5}, -32602),
        ("completion/complete", {}, -32602),
    ],
)
def test_what_cannot_be_served_is_refused_in_the_words_of_these_versions(
    road: Any, method: str, params: dict[str, Any], code: int
) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            reply = await client.asked(method, params)
            assert reply["error"]["code"] == code, reply
            assert (await client.asked("ping"))["result"] == {}

    run(main())


def test_a_resource_that_is_not_there_is_named() -> None:
    async def main() -> Any:
        async with web(make_server()) as client:
            return (await client.asked("resources/read", {"uri": "nowhere://"}))["error"]

    assert run(main()) == {
        "code": -32002,
        "message": "Resource not found: nowhere://",
        "data": {"uri": "nowhere://"},
    }


def test_errors_over_http_come_with_their_status() -> None:
    async def main() -> list[int]:
        async with web(make_server()) as client:
            sent: list[Any] = [
                request("no/such"),
                request("resources/read", {"uri": "nowhere://"}),
                request("tools/call", {"name": 5}),
                {"jsonrpc": "2.0", "id": 1},
                {"jsonrpc": "1.0", "id": 1, "method": "ping"},
                request("ping", id=None),
                request("ping", id=1.5),
                b"{",
            ]
            return [(await client.reply(message)).status for message in sent]

    assert run(main()) == [200, 200, 200, 400, 400, 400, 400, 400]


@roads
def test_a_tool_that_fails_has_a_result_that_says_so_and_no_secret(road: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[Any]:
        async with road(make_server()) as client:
            asked: list[tuple[str, dict[str, Any]]] = [
                ("fail", {"how": "told"}),
                ("fail", {"how": "odd"}),
                ("add", {"a": "x", "b": 1}),
                ("add", {}),
            ]
            return [(await client.played(tool, arguments=arguments))["result"] for tool, arguments in asked]

    with caplog.at_level(logging.ERROR, "turnwise"):
        results = run(main())
    assert [record.getMessage() for record in caplog.records] == ["tools/call 'fail' failed"]
    assert [result["isError"] for result in results] == [True] * 4
    words = [result["content"][0]["text"] for result in results]
    assert words[0] == "out of stock"
    assert words[1] == "The tool failed; the server's log says why."
    assert words[2].startswith("Invalid arguments")
    assert "b" in words[3]


@roads
def test_a_method_that_an_author_serves_by_hand_is_served_here_too(road: Any) -> None:
    server = make_server()

    @server.handler("example/own")
    async def own(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"given": params["x"], "version": ctx.protocol_version}

    async def main() -> Any:
        async with road(server) as client:
            return (await client.asked("example/own", {"x": 1}))["result"]

    assert run(main()) == {"given": 1, "version": NEWEST}


@roads
@pytest.mark.parametrize(
    "message",
    [
        notification("notifications/initialized"),
        notification("notifications/roots/list_changed"),
        notification("notifications/progress", {"progressToken": 1, "progress": 1}),
        notification("notifications/no/such"),
        notification("notifications/cancelled"),
        notification("notifications/cancelled", {"requestId": 99}),
        notification("notifications/cancelled", {"requestId": None}),
        notification("notifications/cancelled", {"requestId": {}}),
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]},
    ],
)
def test_a_notification_is_accepted_and_not_answered(road: Any, message: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            if isinstance(client, Web):
                reply = await client.reply(message)
                assert (reply.status, reply.body, reply.events) == (202, None, None)
            else:
                await client.say(message)
            assert (await client.asked("ping"))["result"] == {}
            assert kinds(client.said)[-1:] == ["result"]
            assert client.heard.empty()

    run(main())


# Changes


@roads
def test_a_client_is_told_what_changes_and_of_resources_only_those_it_watches(road: Any) -> None:
    async def main() -> list[Any]:
        server = make_server()
        async with road(server) as client:
            if isinstance(client, Web):
                await client.listen()
            await until(lambda: client.session.listening is not None)
            assert (await client.asked("resources/subscribe", {"uri": "memo://today"}))["result"] == {}
            client.said.clear()
            for change in (
                Change("resource", "memo://other"),
                Change("resource", "memo://today"),
                Change("tools"),
                Change("prompts"),
                Change("resources"),
            ):
                await server.publish(change)
            heard = [await client.next() for _ in range(4)]
            assert (await client.asked("resources/unsubscribe", {"uri": "memo://today"}))["result"] == {}
            await server.publish(Change("resource", "memo://today"))
            await server.publish(Change("tools"))
            return [*heard, await client.next()]

    assert run(main()) == [
        notification("notifications/resources/updated", {"uri": "memo://today"}),
        notification("notifications/tools/list_changed", {}),
        notification("notifications/prompts/list_changed", {}),
        notification("notifications/resources/list_changed", {}),
        notification("notifications/tools/list_changed", {}),
    ]


def test_on_a_line_nothing_is_missed_that_changes_after_the_client_said_that_it_is_ready() -> None:
    server = make_server()

    @server.tool()
    async def touch(ctx: Context) -> str:
        await ctx.notify_tools_changed()
        return "touched"

    async def main() -> set[str]:
        client = Pipe(server)
        await client.say(opening())
        await client.next()
        ready, call = notification("notifications/initialized"), calling("touch", id=2)
        await asyncio.gather(*(client._carry(json.dumps(message).encode()) for message in (ready, call)))
        await client.say(request("ping", id=3))
        while (await client.next()).get("id") != 3:
            pass
        await client.close()
        return set(kinds(client.said))

    assert run(main()) == {"result", "notifications/tools/list_changed"}


def test_changes_come_on_the_stream_of_get_and_on_no_other() -> None:
    async def main() -> None:
        server = make_server()
        async with web(server) as client:
            await client.listen()
            reply = await client.reply(calling("wait", progressToken=1))
            assert reply.events is not None
            assert [b"progress" in await anext(reply.events) for _ in range(2)] == [False, True]
            await server.publish(Change("tools"))
            assert (await client.next())["method"] == "notifications/tools/list_changed"
            await client.attend("DELETE")
            assert [raw async for raw in reply.events] == []

    run(main())


def test_each_session_hears_of_what_it_watches_itself() -> None:
    async def main() -> None:
        server = make_server()
        async with web(server) as one, web(server) as two:
            for client, uri in ((one, "memo://one"), (two, "memo://two")):
                await client.listen()
                await client.asked("resources/subscribe", {"uri": uri})
                client.said.clear()
            await server.publish(Change("resource", "memo://two"))
            await server.publish(Change("resource", "memo://one"))
            assert (await one.next())["params"] == {"uri": "memo://one"}
            assert (await two.next())["params"] == {"uri": "memo://two"}
            assert one.heard.empty()
            assert two.heard.empty()

    run(main())


def test_what_changed_while_the_connection_was_down_is_told_to_who_comes_back() -> None:
    async def main() -> None:
        server = make_server()
        client = Web(server)
        await client.open()
        await client.listen()
        await server.publish(Change("tools"))
        await client.next()
        last = client.events[-1]
        await client.close()
        await server.publish(Change("prompts"))
        await until(lambda: client.session.streams["s"]._events[-1].number == 2)
        await client.listen(last_event_id=last.id)
        assert (await client.next())["method"] == "notifications/prompts/list_changed"
        await client.close()
        await server.publish(Change("resources"))
        await client.listen()
        assert (await client.next())["method"] == "notifications/resources/list_changed"
        assert len({event.id for event in client.events}) == len(client.events) == 3
        await client.close()
        server.close_subscriptions()

    run(main())


def test_a_second_stream_of_get_takes_the_place_of_the_first_and_nothing_is_said_twice() -> None:
    async def main() -> None:
        server = make_server()
        async with web(server) as client:
            await client.listen()
            (first,) = client.tasks
            await client.listen()
            await asyncio.wait_for(first, 2)
            await server.publish(Change("tools"))
            await client.next()
            await asyncio.sleep(0)
            assert client.heard.empty()

    run(main())


@roads
@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
def test_a_subscription_names_its_resource(road: Any, method: str) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            for params in ({}, {"uri": 5}, {"uri": None}, None):
                assert (await client.asked(method, params))["error"]["code"] == -32602
            assert client.session.uris == set()

    run(main())


def test_one_session_watches_only_so_many_resources() -> None:
    async def main() -> None:
        async with web(make_server()) as client:
            for number in range(1000):
                reply = await client.reply(request("resources/subscribe", {"uri": f"memo://{number}"}))
                assert "result" in body(reply)
            assert "error" in body(await client.reply(request("resources/subscribe", {"uri": "memo://more"})))
            assert "result" in body(await client.reply(request("resources/subscribe", {"uri": "memo://5"})))
            await client.reply(request("resources/unsubscribe", {"uri": "memo://5"}))
            assert "result" in body(await client.reply(request("resources/subscribe", {"uri": "memo://more"})))

    run(main())


@roads
def test_where_nothing_is_published_nothing_can_be_subscribed_to(road: Any) -> None:
    async def main() -> None:
        async with road(make_server(subscriptions=False)) as client:
            reply = await client.asked("resources/subscribe", {"uri": "memo://today"})
            assert reply["error"]["code"] == -32601
            assert client.session.listening is None

    run(main())


# Batches


@roads
@pytest.mark.parametrize("version", BATCHED)
def test_the_two_oldest_versions_take_several_messages_at_once(road: Any, version: str) -> None:
    async def main() -> Any:
        async with road(make_server(), version) as client:
            await client.say(
                [
                    request("ping", id=1),
                    notification("notifications/roots/list_changed"),
                    calling("add", {"a": 1, "b": 2}, id="two"),
                    request("no/such", id=3),
                    {"jsonrpc": "2.0", "id": 99, "result": {}},
                    5,
                    opening(id=6),
                ]
            )
            return await client.next()

    replies = run(main())
    assert isinstance(replies, list)
    assert [reply.get("id") for reply in replies] == [1, "two", 3, None, 6]
    assert [reply.get("error", {}).get("code") for reply in replies] == [None, None, -32601, -32600, -32600]
    assert replies[1]["result"]["structuredContent"] == {"total": 3}


@roads
@pytest.mark.parametrize("version", UNBATCHED)
@pytest.mark.parametrize("batch", [[request("ping")], [], [notification("notifications/initialized")]])
def test_later_versions_take_one_message_at_a_time(road: Any, version: str, batch: list[Any]) -> None:
    async def main() -> None:
        async with road(make_server(), version) as client:
            await client.say(batch)
            reply = await client.next()
            assert reply["error"]["code"] == -32600
            assert "id" not in reply
            if isinstance(client, Web):
                assert (await client.reply(batch)).status == 400

    run(main())


@roads
@pytest.mark.parametrize("size", [0, 101])
def test_a_batch_has_at_least_one_message_and_not_too_many(road: Any, size: int) -> None:
    async def main() -> Any:
        async with road(make_server(), BATCHED[1]) as client:
            await client.say([request("ping", id=number) for number in range(size)])
            refused = await client.next()
            await client.say([request("ping", id=number) for number in range(100)])
            assert len(await client.next()) == 100
            return refused["error"]["code"]

    assert run(main()) == -32600


def test_a_batch_of_what_needs_no_reply_is_accepted() -> None:
    async def main() -> None:
        async with web(make_server(), BATCHED[1]) as client:
            batch = [notification("notifications/roots/list_changed"), {"jsonrpc": "2.0", "id": 1, "result": {}}]
            reply = await client.reply(batch)
            assert (reply.status, reply.body, reply.events) == (202, None, None)

    run(main())


@pytest.mark.parametrize("batch", [[1, 2], [None], [{}], [{"jsonrpc": "2.0", "id": 1}]])
def test_a_batch_of_what_are_no_messages_is_a_bad_request(batch: list[Any]) -> None:
    async def main() -> None:
        async with web(make_server(), BATCHED[1]) as client:
            reply = await client.reply(batch)
            assert reply.status == 400
            assert [part["error"]["code"] for part in json.loads(reply.body or b"")] == [-32600] * len(batch)

    run(main())


def test_a_batch_that_says_it_is_ready_does_not_take_the_changes_away_from_get() -> None:
    async def main() -> None:
        server = make_server()
        async with web(server, BATCHED[1]) as client:
            reply = await client.reply([notification("notifications/initialized"), request("ping")])
            assert reply.status == 200
            await client.listen()
            await server.publish(Change("tools"))
            assert (await client.next())["method"] == "notifications/tools/list_changed"

    run(main())


# Two eras at one endpoint


def modern(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    return request(method, {**(params or {}), "_meta": META}, id)


@roads
def test_requests_of_2026_and_of_a_session_take_turns(road: Any) -> None:
    async def main() -> None:
        async with road(make_server()) as client:
            for number in range(3):
                asked = modern("tools/call", {"name": "whoami", "arguments": {}}, f"new {number}")
                if isinstance(client, Web):
                    reply = body(await client.reply(asked, **spoken("tools/call", "whoami")))
                else:
                    await client.say(asked)
                    reply = await client.next()
                assert text(reply) == "nobody 2026-07-28"
                assert reply["result"]["resultType"] == "complete"
                old = await client.played("whoami")
                assert text(old) == f"test {NEWEST}"
                assert "resultType" not in old["result"]

    run(main())


def spoken(method: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    named = {} if name is None else {"mcp_name": name}
    return {"mcp_protocol_version": "2026-07-28", "mcp_method": method, **named, **more}


@pytest.mark.parametrize("stale", ["gone", "x" * 32, "s1.abc", "é"])
def test_a_request_of_2026_is_served_whatever_session_it_names(stale: str) -> None:
    async def main() -> Any:
        client = Web(make_server())
        asked = modern("tools/call", {"name": "whoami", "arguments": {}})
        reply = await client.reply(asked, **spoken("tools/call", "whoami", mcp_session_id=stale))
        return reply.status, text(body(reply))

    assert run(main()) == (200, "nobody 2026-07-28")


@roads
def test_a_call_of_2026_asks_in_its_result_even_in_the_middle_of_a_session(road: Any) -> None:
    server = make_server()

    @server.tool()
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Well?", str, key="q")).action)

    async def main() -> Any:
        async with road(server) as client:
            live = await client.call("ask")
            question = await client.next()
            assert question["method"] == "elicitation/create"
            asked = modern("tools/call", {"name": "ask", "arguments": {}}, "new")
            if isinstance(client, Web):
                reply = body(await client.reply(asked, **spoken("tools/call", "ask")))
            else:
                await client.say(asked)
                reply = await client.next()
            assert reply["result"]["resultType"] == "input_required"
            await client.say({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
            done = await client.next()
            assert (done["id"], text(done)) == (live, "decline")

    run(main())


@roads
def test_a_server_without_sessions_says_which_versions_there_are(road: Any) -> None:
    async def main() -> Any:
        server = make_server(sessions=False)
        client = Web(server) if road is web else Pipe(server)
        await client.say(opening())
        refused = await client.next()
        asked = modern("tools/call", {"name": "whoami", "arguments": {}})
        if isinstance(client, Web):
            reply = body(await client.reply(asked, **spoken("tools/call", "whoami")))
        else:
            await client.say(asked)
            reply = await client.next()
        assert text(reply) == "nobody 2026-07-28"
        await client.close()
        return refused["error"]

    error = run(main())
    assert error["code"] == -32022
    assert error["data"] == {"supported": ["2026-07-28"], "requested": NEWEST}


def test_drafts_need_sessions_and_have_names() -> None:
    with pytest.raises(ValueError, match="sessions=False"):
        MCPServer("x", sessions=False, dialects=["DRAFT-2026-v1"])
    with pytest.raises(ValueError, match="not 'DRAFT-X'"):
        MCPServer("x", dialects=["DRAFT-X"])
    with pytest.raises(TypeError, match="a list"):
        MCPServer("x", dialects="DRAFT-2026-v1")


# At the door


async def knock(
    server: MCPServer[Any], verb: str, message: Any = None, **headers: str | None
) -> tuple[int, dict[bytes, bytes], bytes]:
    """One exchange with the application as an ASGI server has it: status, headers and body."""
    whole = {"host": "127.0.0.1", "content-type": "application/json", "accept": "application/json, text/event-stream"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    listed = [(name.encode(), value.encode()) for name, value in (whole | named).items() if value is not None]
    sent: list[dict[str, Any]] = []
    inbox = [{"type": "http.request", "body": b"" if message is None else json.dumps(message).encode()}]

    async def receive() -> dict[str, Any]:
        if not inbox:
            await asyncio.Event().wait()
        return inbox.pop()

    async def send(part: Any) -> None:
        sent.append(part)

    scope = {"type": "http", "method": verb, "path": "/mcp", "root_path": "", "headers": listed}
    await asyncio.wait_for(server.asgi()(scope, receive, send), 2)
    start, *parts = sent
    return start["status"], dict(start["headers"]), b"".join(part["body"] for part in parts)


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
@pytest.mark.parametrize("named", ["no session", "no sessions", "2026"])
def test_verbs_that_belong_to_no_session_are_not_allowed(verb: str, named: str) -> None:
    async def main() -> None:
        server = make_server(sessions=False) if named == "no sessions" else make_server()
        client = Web(server)
        if named != "no sessions":
            await client.open()
        session = None if named == "no session" else client.session_id or "x" * 32
        spoken = "2026-07-28" if named == "2026" else NEWEST
        status, headers, _ = await knock(server, verb, mcp_session_id=session, mcp_protocol_version=spoken)
        assert (status, headers[b"allow"]) == (405, b"POST")

    run(main())


def test_a_session_over_http_from_opening_to_delete() -> None:
    async def main() -> None:
        server = make_server()
        status, headers, raw = await knock(server, "POST", opening())
        assert (status, headers[b"content-type"]) == (200, b"application/json")
        assert json.loads(raw)["result"]["protocolVersion"] == NEWEST
        mine = headers[b"mcp-session-id"].decode()
        status, headers, raw = await knock(
            server, "POST", notification("notifications/initialized"), mcp_session_id=mine
        )
        assert (status, raw) == (202, b"")
        status, headers, raw = await knock(server, "POST", calling("shout"), mcp_session_id=mine)
        assert (status, headers[b"content-type"]) == (200, b"text/event-stream")
        assert headers[b"x-accel-buffering"] == b"no"
        assert raw.count(b"\r\n\r\n") == 7
        assert (await knock(server, "DELETE", mcp_session_id=mine))[::2] == (204, b"")
        assert (await knock(server, "DELETE", mcp_session_id=mine))[0] == 404
        assert (await knock(server, "GET", mcp_session_id=mine))[0] == 404

    run(main())


@pytest.mark.parametrize("verb", ["GET", "DELETE", "POST"])
def test_pages_of_elsewhere_do_not_reach_a_session(verb: str) -> None:
    async def main() -> None:
        server = make_server()
        async with web(server) as client:
            session = client.session_id
            status, *_ = await knock(
                server, verb, request("ping"), mcp_session_id=session, origin="https://evil.example"
            )
            assert status == 403
            assert (await knock(server, verb, request("ping"), mcp_session_id=session, host="evil.example"))[0] == 421
            assert len(sessions(server)) == 1

    run(main())


# Many clients


def test_where_sessions_are_many_the_one_that_was_silent_longest_makes_room(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = make_server(sessions=SessionLimits(most=2))
        first, second, third = Web(server), Web(server), Web(server)
        await first.open()
        await second.open()
        for client in (second, third):
            client.now += 61
        assert (await second.reply(request("ping"))).status == 200
        await third.open()
        assert (await first.reply(request("ping"))).status == 404
        assert (await second.reply(request("ping"))).status == 200

    run(main())
    assert caplog.text.count("there are as many sessions as are kept, 2") == 1


def test_of_a_client_only_that_is_kept_which_a_server_looks_at() -> None:
    async def main() -> None:
        server = make_server()
        client = Web(server)
        much: dict[str, Any] = {str(number): {} for number in range(1000)}
        params = {
            "protocolVersion": NEWEST,
            "capabilities": {"experimental": much, "elicitation": {}, "sampling": much},
            "clientInfo": {"name": "n" * 1000, "version": "1", "icons": [much]},
        }
        assert (await client.reply(request("initialize", params), mcp_protocol_version=None)).status == 200
        [session] = sessions(server)._sessions.values()
        assert session.capabilities == {"elicitation": {}}
        assert session.client == {"name": "n" * 200, "version": "1"}

    run(main())


def test_a_session_with_a_call_under_way_is_not_too_old() -> None:
    async def main() -> None:
        client = Web(make_server(sessions=SessionLimits(age=10)))
        await client.open()
        await client.call("wait", progressToken=1)
        await client.next()
        client.now += 11
        assert (await client.reply(request("ping"))).status == 200

    run(main())
