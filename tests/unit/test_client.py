"""The client, joined to servers in the same process: its methods, its life, what it tells and hears, and its limits."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import mcp_types as types
import pytest
from pydantic import BaseModel

from tests.unit.joined import DISCOVERED, ENVIRONMENT, PATIENCE, Json, Peer, Tap, accept, accepting, run, text
from turnwise import (
    Asking,
    Client,
    Command,
    ConnectionLost,
    Context,
    DeadlineExceeded,
    HandshakeRequired,
    InvalidReply,
    MCPError,
    MCPServer,
    ResponseCache,
    TurnwiseError,
    UnexpectedStatus,
    UnknownResultType,
    UnsupportedVersion,
)
from turnwise.errors import AuthorError, CallerError
from turnwise.transports.http import HTTP

SILENT: Any = {"mode": "2026-07-28"}


def shop(**options: Any) -> MCPServer[Any]:
    """A server with one of everything."""
    server: MCPServer[Any] = MCPServer("shop", version="1.2", title="The Shop", instructions="Ask for tea.", **options)

    @server.tool()
    async def add(left: int, right: int) -> int:
        return left + right

    @server.tool()
    async def greet(ctx: Context) -> str:
        name = await ctx.elicit("Your name?", str, key="name")
        return f"Hello, {name.data}!" if name.action == "accept" else "Hello!"

    @server.tool()
    async def whose(ctx: Context) -> dict[str, Any]:
        """What this very request says of its client."""
        return {"meta": dict(ctx.call.meta), "info": None if ctx.client_info is None else ctx.client_info.name}

    @server.prompt()
    async def letter(to: str) -> str:
        return f"Write to {to}."

    @server.resource("shop://hours")
    async def hours() -> str:
        return "9 to 5"

    @server.resource("shop://shelf/{number}")
    async def shelf(number: str) -> str:
        return f"shelf {number}"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        known = dict(context.arguments or {}) if context is not None else {}
        return [f"{argument.value}-{ref.type}", *known.values()]

    return server


# Methods


async def visit_everything() -> None:
    async with Client(shop(), elicitation_callback=accepting(value="Ada")) as client:
        called = await client.call_tool("add", {"left": 1, "right": 2})
        assert isinstance(called, types.CallToolResult)
        assert called.structured_content == {"result": 3}
        assert text(await client.call_tool("greet")) == "Hello, Ada!"
        prompt = await client.get_prompt("letter", {"to": "Bob"})
        assert isinstance(prompt, types.GetPromptResult)
        assert isinstance(prompt.messages[0].content, types.TextContent)
        read = await client.read_resource("shop://hours")
        assert isinstance(read, types.ReadResourceResult)
        assert [part.text for part in read.contents if isinstance(part, types.TextResourceContents)] == ["9 to 5"]
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "greet", "whose"]
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["letter"]
        assert [str(entry.uri) for entry in (await client.list_resources()).resources] == ["shop://hours"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["shop://shelf/{number}"]
        assert isinstance(await client.discover(), types.DiscoverResult)


def test_every_method_gives_the_official_type() -> None:
    run(visit_everything())


def test_a_server_is_known_once_it_was_asked() -> None:
    async def visit() -> None:
        async with Client(shop()) as client:
            assert client.protocol_version == "2026-07-28"
            assert client.server_info is not None
            assert (client.server_info.name, client.server_info.title) == ("shop", "The Shop")
            assert client.server_capabilities.tools is not None
            assert client.instructions == "Ask for tea."

    run(visit())


def test_a_server_need_not_say_who_it_is() -> None:
    async def visit() -> None:
        async with Client(Peer(lambda method, params: DISCOVERED)) as client:
            assert client.server_info is None
            assert client.instructions is None
            assert client.server_capabilities == types.ServerCapabilities()

    run(visit())


def test_completions_take_official_references_plain_ones_and_what_is_chosen_already() -> None:
    async def visit() -> None:
        async with Client(shop()) as client:
            argument = {"name": "to", "value": "A"}
            reference = types.PromptReference(type="ref/prompt", name="letter")
            result = await client.complete(reference, argument)
            assert isinstance(result, types.CompleteResult)
            assert result.completion.values == ["A-ref/prompt"]
            template = {"type": "ref/resource", "uri": "shop://shelf/{number}"}
            chosen = await client.complete(template, argument, {"floor": "2"})
            assert chosen.completion.values == ["A-ref/resource", "2"]

    run(visit())


def test_a_raw_request_is_one_round_and_may_end_with_a_question() -> None:
    async def visit() -> None:
        async with Client(shop(), elicitation_callback=accepting(value="nobody asks me")) as client:
            asked = await client.request("tools/call", {"name": "greet"})
            assert asked["resultType"] == "input_required"
            assert list(asked["inputRequests"]) == ["name"]
            retry = {"name": "greet", "inputResponses": {"name": accept(value="Eve")}}
            done = await client.request("tools/call", {**retry, "requestState": asked["requestState"]})
            assert done["structuredContent"] == {"result": "Hello, Eve!"}

    run(visit())


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read", "no/such/method"])
def test_a_raw_request_that_is_wrong_is_refused_by_the_server(method: str) -> None:
    async def visit() -> None:
        async with Client(shop()) as client:
            with pytest.raises(MCPError):
                await client.request(method)

    run(visit())


def test_an_error_of_the_protocol_is_raised_with_its_code_and_data() -> None:
    async def visit() -> None:
        async with Client(shop()) as client:
            with pytest.raises(MCPError, match="not found: shop://nothing") as raised:
                await client.read_resource("shop://nothing")
            assert (raised.value.code, raised.value.data) == (-32602, {"uri": "shop://nothing"})
            with pytest.raises(MCPError, match="Unknown tool: sell"):
                await client.call_tool("sell")

    run(visit())


def test_a_failed_tool_gives_a_result_for_the_model() -> None:
    async def visit() -> None:
        async with Client(shop()) as client:
            assert (await client.call_tool("add", {"left": "one"})).is_error

    run(visit())


def test_calls_of_one_client_run_at_the_same_time() -> None:
    server: MCPServer[Any] = MCPServer("x")
    meeting = asyncio.Barrier(3)

    @server.tool()
    async def meet(ctx: Context) -> str:
        name = await ctx.elicit("Who?", str)
        await meeting.wait()
        return str(name)

    async def visit() -> None:
        async with Client(server, elicitation_callback=accepting(value="me")) as client:
            await asyncio.gather(*(client.call_tool("meet") for _ in range(3)))

    run(visit())


@pytest.mark.parametrize(
    "reply",
    [
        b"null",
        b"[]",
        b'{"jsonrpc": "2.0", "id": 77, "result": {"content": []}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": []}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {"content": 5}}',
        b'{"jsonrpc": "2.0", "id": 1, "error": "no"}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required"}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required", "inputRequests": []}}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required", "requestState": 5}}',
    ],
)
def test_a_reply_that_is_none_is_the_peers_mistake(reply: bytes) -> None:
    async def visit() -> None:
        async with Client(Peer(lambda method, params: reply), **SILENT) as client:
            with pytest.raises(InvalidReply):
                await client.call_tool("it")

    run(visit())


def test_a_result_of_an_unknown_type_is_not_taken_for_one() -> None:
    async def visit() -> None:
        async with Client(Peer(lambda method, params: {"resultType": "later", "content": []}), **SILENT) as client:
            with pytest.raises(UnknownResultType):
                await client.call_tool("it")

    run(visit())


# What a client says of itself


def test_a_request_says_who_the_client_is_what_it_can_do_and_what_it_wants_to_hear() -> None:
    tap = Tap(shop())
    info = types.Implementation(name="tester", version="3")

    async def visit() -> None:
        options: Any = {"client_info": info, "log_level": "warning", "capabilities": {"experimental": {"x": {}}}}
        callback = accepting(value="x")
        async with Client(tap, sampling_callback=callback, list_roots_callback=callback, **options) as client:
            await client.call_tool("add", {"left": 1, "right": 1}, meta={"com.example/trace": "abc"})

    run(visit())
    meta = tap.requests[-1]["params"]["_meta"]
    prefix = "io.modelcontextprotocol"
    assert meta == {
        f"{prefix}/protocolVersion": "2026-07-28",
        f"{prefix}/clientInfo": {"name": "tester", "version": "3"},
        f"{prefix}/clientCapabilities": {
            "sampling": {"tools": {}},
            "roots": {},
            "experimental": {"x": {}},
            "extensions": {f"{prefix}/tasks": {}},
        },
        f"{prefix}/logLevel": "warning",
        "com.example/trace": "abc",
    }


def test_a_client_without_callbacks_declares_no_capabilities() -> None:
    tap = Tap(shop())

    async def visit() -> None:
        async with Client(tap, tasks=False):
            pass

    run(visit())
    assert tap.requests[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {}


# The life of a client


def test_on_entering_the_server_is_asked_who_it_is() -> None:
    tap = Tap(shop())

    async def visit() -> None:
        async with Client(tap):
            assert tap.methods == ["server/discover"]

    run(visit())


def test_with_a_version_nothing_is_sent_on_entering() -> None:
    tap = Tap(shop())

    async def visit() -> None:
        async with Client(tap, mode="2026-07-28") as client:
            assert tap.methods == []
            for ask in (lambda: client.server_info, lambda: client.server_capabilities, lambda: client.instructions):
                with pytest.raises(CallerError, match="discover"):
                    ask()
            await client.discover()
            assert client.server_info is not None

    run(visit())


METHODS: list[Callable[[Client], Any]] = [
    lambda client: client.discover(),
    lambda client: client.request("tools/list"),
    lambda client: client.call_tool("add"),
    lambda client: client.get_prompt("letter"),
    lambda client: client.read_resource("shop://hours"),
    lambda client: client.list_tools(),
    lambda client: client.list_prompts(),
    lambda client: client.list_resources(),
    lambda client: client.list_resource_templates(),
    lambda client: anext(client.iter_tools()),
    lambda client: client.complete({"type": "ref/prompt", "name": "letter"}, {"name": "to", "value": ""}),
    lambda client: client.begin("add"),
    lambda client: client.begin_prompt("letter"),
    lambda client: client.begin_resource("shop://hours"),
    lambda client: client.listen(tools_list_changed=True),
]


@pytest.mark.parametrize("use", METHODS)
def test_a_client_is_used_inside_its_block(use: Callable[[Client], Any]) -> None:
    async def visit() -> None:
        client = Client(shop())
        with pytest.raises(CallerError, match="async with"):
            await use(client)
        async with client:
            pass
        with pytest.raises(CallerError, match="async with"):
            await use(client)

    run(visit())


def test_a_client_is_entered_once_at_a_time() -> None:
    async def visit() -> None:
        async with Client(shop()) as client:
            with pytest.raises(CallerError, match="open already"):
                await client.__aenter__()
            assert not (await client.call_tool("add", {"left": 1, "right": 1})).is_error

    run(visit())


def test_a_client_may_be_entered_again_when_it_was_left() -> None:
    client = Client(shop())

    async def visit() -> None:
        async with client:
            assert not (await client.call_tool("add", {"left": 1, "right": 1})).is_error

    run(visit())
    run(visit())


def test_the_life_of_a_server_in_memory_is_that_of_its_client() -> None:
    life: list[str] = []

    @asynccontextmanager
    async def lifespan(server: MCPServer[Any]) -> AsyncIterator[None]:
        life.append("begins")
        yield
        life.append("ends")

    async def visit() -> None:
        async with Client(shop(lifespan=lifespan)):
            assert life == ["begins"]

    run(visit())
    assert life == ["begins", "ends"]


def test_a_client_that_is_left_twice_ends_the_server_of_no_other() -> None:
    life: list[str] = []

    @asynccontextmanager
    async def lifespan(server: MCPServer[Any]) -> AsyncIterator[None]:
        yield
        life.append("ends")

    async def visit() -> None:
        server = shop(lifespan=lifespan)
        async with Client(server):
            other = Client(server)
            await other.__aenter__()
            await other.__aexit__()
            await other.__aexit__()
            assert not life

    run(visit())


def test_who_begins_with_one_that_leaves_at_once_has_a_server_that_lives() -> None:
    lives = 0

    @asynccontextmanager
    async def lifespan(server: MCPServer[Any]) -> AsyncIterator[None]:
        nonlocal lives
        await asyncio.sleep(0.01)
        lives += 1
        yield
        lives -= 1

    async def visit() -> None:
        server = shop(lifespan=lifespan)

        async def leave_at_once() -> None:
            await server.start()
            await server.stop()

        async def stay() -> None:
            async with Client(server):
                await asyncio.sleep(0.05)
                assert lives == 1

        await asyncio.gather(leave_at_once(), stay())
        assert lives == 0

    run(visit())


def test_a_lifespan_that_waits_for_what_was_cancelled_is_not_waited_for() -> None:
    @asynccontextmanager
    async def lifespan(server: MCPServer[Any]) -> AsyncIterator[None]:
        other = asyncio.create_task(asyncio.sleep(60))
        other.cancel()
        await other
        yield

    async def visit() -> None:
        with pytest.raises(AuthorError, match="the lifespan was cancelled"):
            await Client(shop(lifespan=lifespan)).__aenter__()

    run(asyncio.wait_for(visit(), 5))


def refuse(error: Exception) -> Callable[[str, Json], Any]:
    async def answer(method: str, params: Json) -> Any:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(refuse(MCPError(-32601, "Method not found")), HandshakeRequired, id="unknown method"),
        pytest.param(refuse(MCPError(-32600, "initialize first")), HandshakeRequired, id="wants a handshake"),
        pytest.param(refuse(UnexpectedStatus(404)), HandshakeRequired, id="HTTP 404"),
        pytest.param(refuse(UnexpectedStatus(503)), UnexpectedStatus, id="HTTP 503"),
        pytest.param(refuse(ConnectionLost("gone", sent=False)), ConnectionLost, id="nobody there"),
        pytest.param(refuse(MCPError(-32021, "need more")), MCPError, id="a capability is missing"),
        pytest.param(
            refuse(MCPError(-32022, "no", {"supported": ["2099-01-01"]})), UnsupportedVersion, id="another version"
        ),
        pytest.param(
            lambda method, params: {"supportedVersions": ["2099-01-01"], "capabilities": {}},
            UnsupportedVersion,
            id="discovered another version",
        ),
        pytest.param(lambda method, params: {}, HandshakeRequired, id="discovered nothing"),
    ],
)
def test_a_client_that_cannot_begin_lets_go_of_everything(answer: Any, expected: type[TurnwiseError]) -> None:
    peer = Peer(answer)
    client = Client(peer)

    async def visit() -> None:
        with pytest.raises(expected) as raised:
            await client.__aenter__()
        assert type(raised.value) is expected
        assert (peer.opened, peer.closed) == (1, 1)
        with pytest.raises(CallerError):
            await client.call_tool("add")

    run(visit())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"elicitation": None}, TypeError),
        ({"input_required_max_rounds": -1}, ValueError),
        ({"input_required_max_rounds": True}, ValueError),
        ({"input_required_max_rounds": 1.5}, ValueError),
        ({"answer_order": "all"}, ValueError),
        ({"mode": "2023-01-01"}, ValueError),
        ({"log_level": "loud"}, ValueError),
        ({"deadline": 0}, ValueError),
        ({"deadline": -1}, ValueError),
        ({"deadline": float("nan")}, ValueError),
        ({"read_timeout_seconds": 0}, ValueError),
        ({"read_timeout_seconds": "5"}, ValueError),
        ({"headers": {"X-Test": "1"}}, ValueError),
        ({"auth": object()}, ValueError),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        Client(shop(), **options)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("python server.py", ValueError),
        ("ftp://example.com/mcp", ValueError),
        ("http://", ValueError),
        ("https://user:secret@example.com/mcp", ValueError),
        ([], ValueError),
        (["python", 5], ValueError),
        (5, TypeError),
        (b"python", TypeError),
        (None, TypeError),
    ],
)
def test_what_is_no_server_is_refused(target: Any, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        Client(target)


def test_a_call_takes_only_the_options_that_it_has() -> None:
    async def visit() -> None:
        wrong: Any = {"timeout": 5}
        async with Client(shop()) as client:
            with pytest.raises(TypeError, match="timeout"):
                await client.get_prompt("letter", {"to": "x"}, **wrong)
            with pytest.raises(TypeError, match="must be a text"):
                await client.call_tool(5)  # type: ignore[arg-type]

    run(visit())


@pytest.mark.parametrize("target", [HTTP("http://localhost/mcp"), Command(["true"]), ["true"], "https://localhost/mcp"])
def test_making_a_client_does_nothing_yet(target: Any) -> None:
    assert Client(target, cache=ResponseCache()).protocol_version == "2026-07-28"


# Telling while a call lasts


def busy() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("busy")

    @server.tool()
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 3, "one")
        await ctx.report_progress(2.5)
        await ctx.debug("too low")
        await ctx.warning({"low": "fuel"}, logger_name="engine")
        return "done"

    return server


def test_progress_reaches_the_callback_of_its_call_in_order() -> None:
    told: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append((done, total, message))

    async def visit() -> None:
        async with Client(busy()) as client:
            assert text(await client.call_tool("work", progress_callback=progress)) == "done"
            await client.call_tool("work")

    run(visit())
    assert told == [(1.0, 3, "one"), (2.5, None, None)]


def test_log_lines_of_the_wanted_level_reach_the_callback() -> None:
    told: list[Any] = []

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        told.append((params.level, params.data, params.logger))

    async def visit() -> None:
        async with Client(busy(), logging_callback=logged, log_level="info") as client:
            await client.call_tool("work")

    run(visit())
    assert told == [("warning", {"low": "fuel"}, "engine")]


def test_plain_functions_may_listen_to_news() -> None:
    told: list[Any] = []

    async def visit() -> None:
        async with Client(busy(), logging_callback=told.append, log_level="warning") as client:
            await client.call_tool("work", progress_callback=lambda *news: told.append(news))

    run(visit())
    assert [told[0], told[1], told[2].data] == [(1.0, 3, "one"), (2.5, None, None), {"low": "fuel"}]


def test_a_callback_for_news_that_fails_does_not_fail_the_call(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("the screen is off")

    async def visit() -> None:
        async with Client(busy(), logging_callback=broken, log_level="debug") as client:
            assert text(await client.call_tool("work", progress_callback=broken)) == "done"

    run(visit())
    assert sum("failed" in record.message for record in caplog.records) == 4


@pytest.mark.parametrize(
    "news",
    [
        {"method": "notifications/progress"},
        {"method": "notifications/progress", "params": {"progress": "far"}},
        {"method": "notifications/message", "params": {"level": "loud"}},
        {"method": "notifications/unheard-of", "params": []},
        {"method": 5},
    ],
)
def test_news_that_cannot_be_read_do_not_fail_the_call(news: Json) -> None:
    async def answer(method: str, params: Json) -> Json:
        assert peer.notify is not None
        await peer.notify({"jsonrpc": "2.0", **news})
        return {"content": []}

    peer = Peer(answer)

    async def never(*_: Any) -> None:
        raise AssertionError

    async def visit() -> None:
        async with Client(peer, logging_callback=never, log_level="info", **SILENT) as client:
            assert (await client.call_tool("it", progress_callback=never)).content == []

    run(visit())


# Time


class Patient:
    """A server whose tool waits until it is cancelled, and says so."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.server: MCPServer[Any] = MCPServer("patient")
        self.server.add_tool(self.wait)
        self.server.add_tool(self.ask)

    async def wait(self) -> str:
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "never"

    async def ask(self, ctx: Context) -> str:
        await ctx.elicit("Well?", str)
        return "answered"


def test_a_call_that_is_cancelled_is_cancelled_in_the_server() -> None:
    async def visit() -> None:
        patient = Patient()
        async with Client(patient.server) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            await patient.began.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert patient.cancelled.is_set()

    run(visit())


LIMITS: list[tuple[Json, Json]] = [
    ({}, {"deadline": 0.02}),
    ({}, {"read_timeout_seconds": 0.02}),
    ({"deadline": 0.02}, {}),
    ({"read_timeout_seconds": 0.02}, {}),
    ({"deadline": 60}, {"deadline": 0.02}),
    ({"read_timeout_seconds": 60}, {"read_timeout_seconds": 0.02}),
    ({"read_timeout_seconds": None}, {"deadline": 0.02}),
]


@pytest.mark.parametrize(("options", "wishes"), LIMITS)
def test_a_call_that_takes_too_long_is_given_up_and_cancelled(options: Any, wishes: Any) -> None:
    async def visit() -> None:
        patient = Patient()
        async with Client(patient.server, **options) as client:
            with pytest.raises(DeadlineExceeded) as raised:
                await client.call_tool("wait", **wishes)
            assert isinstance(raised.value, TimeoutError)
            assert patient.cancelled.is_set()

    run(visit())


def test_a_deadline_holds_for_the_callbacks_too() -> None:
    fate: list[str] = []

    async def think(asking: Asking, params: Any) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            fate.append("cancelled")
            raise

    async def visit() -> None:
        async with Client(Patient().server, elicitation_callback=think) as client:
            with pytest.raises(DeadlineExceeded, match="tools/call"):
                await client.call_tool("ask", deadline=0.02)

    run(visit())
    assert fate == ["cancelled"]


def test_the_time_for_a_request_does_not_run_while_a_callback_thinks() -> None:
    async def think(asking: Asking, params: Any) -> Json:
        await asyncio.sleep(0.06)  # Longer than a request may take: this is what is tested.
        return accept(value="x")

    async def visit() -> None:
        async with Client(Patient().server, elicitation_callback=think) as client:
            assert text(await client.call_tool("ask", read_timeout_seconds=0.05)) == "answered"

    run(visit())


def test_another_timeout_stays_what_it_is() -> None:
    async def visit() -> None:
        patient = Patient()
        async with Client(patient.server, deadline=60) as client:
            with pytest.raises(TimeoutError) as raised:
                async with asyncio.timeout(0.02):
                    await client.call_tool("wait")
            assert not isinstance(raised.value, DeadlineExceeded)
            assert patient.cancelled.is_set()

    run(visit())


# Lists


def library(count: int, **options: Any) -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("library", **options)
    for number in range(count):
        server.add_tool(lambda: "", f"tool{number}")
        server.prompt(f"prompt{number}")(lambda: "")
        server.resource(f"book://{number}", name=f"book{number}")(lambda: "")
        server.resource(f"shelf://{number}/{{place}}", name=f"shelf{number}")(_place)
    return server


def _place(place: str) -> str:
    return place


def test_a_list_comes_page_by_page() -> None:
    async def visit() -> None:
        async with Client(library(5, page_size=2)) as client:
            first = await client.list_tools()
            second = await client.list_tools(cursor=first.next_cursor)
            third = await client.list_tools(cursor=second.next_cursor)
            assert [len(page.tools) for page in (first, second, third)] == [2, 2, 1]
            assert third.next_cursor is None
            with pytest.raises(MCPError, match="cursor"):
                await client.list_tools(cursor="made up")

    run(visit())


@pytest.mark.parametrize("size", [1, 2, 5, None])
def test_iterating_reads_all_pages(size: int | None) -> None:
    async def visit() -> None:
        async with Client(library(5, page_size=size)) as client:
            assert [tool.name async for tool in client.iter_tools()] == [f"tool{number}" for number in range(5)]
            assert [prompt.name async for prompt in client.iter_prompts()] == [f"prompt{number}" for number in range(5)]
            assert [entry.name async for entry in client.iter_resources()] == [f"book{number}" for number in range(5)]
            templates = [template.name async for template in client.iter_resource_templates()]
            assert templates == [f"shelf{number}" for number in range(5)]

    run(visit())


def test_pages_are_fetched_when_they_are_wanted() -> None:
    tap = Tap(library(5, page_size=2))

    async def visit() -> None:
        async with Client(tap, **SILENT) as client:
            tools = client.iter_tools()
            await anext(tools)
            await anext(tools)
            assert len(tap.requests) == 1
            await anext(tools)
            assert len(tap.requests) == 2

    run(visit())


@pytest.mark.parametrize("length", [1, 3])
def test_pages_that_lead_in_a_circle_are_the_peers_mistake(length: int) -> None:
    def answer(method: str, params: Json) -> Json:
        return {"tools": [], "nextCursor": str((int(params.get("cursor", 0)) + 1) % length)}

    async def visit() -> None:
        async with Client(Peer(answer), **SILENT) as client:
            with pytest.raises(InvalidReply, match="do not end"):
                async for _ in client.iter_tools():
                    pass

    run(visit())


def test_pages_that_never_end_are_the_peers_mistake() -> None:
    def answer(method: str, params: Json) -> Json:
        number = int(params.get("cursor", 0))
        assert number < 5_000, "the client would have gone on for ever"
        return {"prompts": [], "nextCursor": str(number + 1)}

    async def visit() -> None:
        async with Client(Peer(answer), **SILENT) as client:
            with pytest.raises(InvalidReply, match="do not end"):
                async for _ in client.iter_prompts():
                    pass

    run(visit())


def test_a_cursor_that_is_an_empty_text_is_one() -> None:
    asked: list[Json] = []

    def answer(method: str, params: Json) -> Json:
        asked.append(params)
        return {"tools": []} if "cursor" in params else {"tools": [], "nextCursor": ""}

    async def visit() -> None:
        async with Client(Peer(answer), **SILENT) as client:
            assert [tool async for tool in client.iter_tools()] == []
            assert (await client.list_tools()).next_cursor == ""

    run(visit())
    assert [params.get("cursor") for params in asked] == [None, "", None]


@pytest.mark.parametrize("name", ["shop", "turnwise", "mcp", "FastMCP", "\u202eevil", "x" * 10_000, ""])
def test_what_a_server_says_of_itself_changes_nothing(name: str) -> None:
    seen: list[Any] = []
    who = {"io.modelcontextprotocol/serverInfo": {"name": name, "version": "999", "title": name}}

    def answer(method: str, params: Json) -> Json:
        seen.append((method, {key: part for key, part in params.items() if key != "_meta"}))
        if method == "server/discover":
            return {**DISCOVERED, "_meta": who}
        return {"content": [{"type": "text", "text": "same"}], "_meta": who}

    async def visit() -> None:
        async with Client(Peer(answer)) as client:
            assert client.server_info is not None
            assert client.server_info.name == name
            assert text(await client.call_tool("it", {"x": 1})) == "same"

    run(visit())
    assert seen == [("server/discover", {}), ("tools/call", {"name": "it", "arguments": {"x": 1}})]


# Structured results


OUTPUT: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def measured(result: Json, schema: Json = OUTPUT) -> Peer:
    listed = {"tools": [{"name": "measure", "inputSchema": {"type": "object"}, "outputSchema": schema}]}
    return Peer(lambda method, params: listed if method == "tools/list" else {"content": [], **result})


@pytest.mark.parametrize("result", [{}, {"structuredContent": {"n": "1"}}, {"structuredContent": {}}])
def test_a_result_is_held_against_the_schema_that_its_tool_was_listed_with(result: Json) -> None:
    async def visit() -> None:
        async with Client(measured(result), **SILENT) as client:
            assert not (await client.call_tool("measure")).is_error
            await client.list_tools()
            with pytest.raises(InvalidReply, match="measure"):
                await client.call_tool("measure")

    run(visit())


@pytest.mark.parametrize("result", [{"structuredContent": {"n": 1}}, {"isError": True}])
def test_a_result_that_fits_or_is_an_error_is_taken(result: Json) -> None:
    async def visit() -> None:
        async with Client(measured(result), **SILENT) as client:
            await client.list_tools()
            await client.call_tool("measure")

    run(visit())


@pytest.mark.parametrize(
    ("form", "value"),
    [("date-time", "2026-11-16T14:01:18"), ("date", "16.11."), ("email", "nobody"), ("uri", "a"), ("uuid", "1")],
)
def test_formats_in_the_schema_of_a_result_are_annotations(form: str, value: str) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "string", "format": form}}}

    async def visit() -> None:
        async with Client(measured({"structuredContent": {"at": value}}, schema), **SILENT) as client:
            await client.list_tools()
            assert (await client.call_tool("measure")).structured_content == {"at": value}

    run(visit())


@pytest.mark.parametrize("mode", ["2026-07-28", "2025-11-25"])
def test_a_time_without_a_zone_comes_as_the_tool_returned_it(mode: Any) -> None:
    class Event(BaseModel):
        at: datetime

    server = MCPServer("calendar")

    @server.tool()
    def event() -> Event:
        return Event(at=datetime(2026, 11, 16, 14, 1, 18))

    async def visit() -> None:
        async with Client(server, mode=mode) as client:
            await client.list_tools()
            assert (await client.call_tool("event")).structured_content == {"at": "2026-11-16T14:01:18"}

    run(visit())


def test_a_result_takes_as_many_steps_to_check_as_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}}

    async def visit() -> None:
        async with Client(measured({"structuredContent": {"n": [1] * 30_000}}, schema), **SILENT) as client:
            await client.list_tools()
            await client.call_tool("measure")

    run(visit())
    assert "taken unchecked" in caplog.text


def test_a_schema_that_is_none_is_not_held_against_the_tool() -> None:
    async def visit() -> None:
        async with Client(measured({}, {"type": "nonsense"}), **SILENT) as client:
            await client.list_tools()
            await client.call_tool("measure")

    run(visit())


def test_the_schemas_of_results_are_read_when_results_come(caplog: pytest.LogCaptureFixture) -> None:
    async def visit() -> None:
        async with Client(measured({}, {"type": "object", "anyOf": [{}] * 20_000}), **SILENT) as client:
            await client.list_tools()
            assert not caplog.text
            await client.call_tool("measure")
            await client.call_tool("measure")
            assert caplog.text.count("the results of tool 'measure' cannot be checked") == 1

    run(visit())


# What it costs


def loaded(code: str) -> set[str]:
    names = "starlette uvicorn fastapi aiohttp.web aiohttp mcp mcp_types httpx2 jsonschema sqlite3"
    report = f"\nimport sys; print([name for name in {names.split()!r} if name in sys.modules])"
    command = [sys.executable, "-c", code + report]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT, timeout=PATIENCE)
    return set(eval(out.stdout))


def test_importing_the_client_loads_no_web_framework_and_no_other_sdk() -> None:
    assert loaded("import turnwise.client, turnwise.sync") <= {"sqlite3"}


def test_a_client_of_a_url_loads_an_http_library_when_it_is_opened() -> None:
    making = "import asyncio, turnwise; client = turnwise.Client('http://localhost:1/mcp', mode='2026-07-28')\n"
    assert "aiohttp" not in loaded(making)
    opening = "async def main():\n    async with client: pass\nasyncio.run(main())"
    opened = loaded(making + opening)
    assert "aiohttp" in opened
    assert not opened & {"aiohttp.web", "starlette", "uvicorn", "fastapi", "mcp"}
