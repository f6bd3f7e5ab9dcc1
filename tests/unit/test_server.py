"""The server object: what is refused when it is built, and what it warns of."""

import asyncio
import logging
from typing import Any

import pytest

import turnwise
from turnwise import AuthSettings, CacheHint, Context, InvalidSignature, MCPServer, RequestStateSecurity
from turnwise.testing import connect

KEY = b"0123456789abcdef0123456789abcdef"


def test_a_server_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name"):
        MCPServer("")


@pytest.mark.parametrize("size", [0, -1])
def test_a_page_has_at_least_one_entry(size: int) -> None:
    with pytest.raises(ValueError, match="page_size"):
        MCPServer("s", page_size=size)


def test_a_verifier_and_its_settings_go_together() -> None:
    settings = AuthSettings(issuer_url="https://auth.example", resource_server_url="https://api.example/mcp")
    with pytest.raises(ValueError, match="together"):
        MCPServer("s", auth=settings)


def test_only_results_that_can_be_cached_have_hints() -> None:
    with pytest.raises(ValueError, match="tools/call"):
        MCPServer("s", cache_hints={"tools/call": CacheHint(1)})


@pytest.mark.parametrize("decorator", ["tool", "prompt", "resource", "handler"])
def test_a_decorator_without_parentheses_is_named(decorator: str) -> None:
    bare: Any = getattr(MCPServer("s"), decorator)
    with pytest.raises(TypeError, match=f"@server.{decorator}"):
        bare(lambda: "x")


def test_a_name_that_is_taken_is_warned_of_and_the_later_one_served(caplog: pytest.LogCaptureFixture) -> None:
    server = MCPServer("s")
    server.tool("same")(lambda: "first")
    server.tool("same")(lambda: "second")
    assert "'same' is registered twice" in caplog.text


def test_a_transport_that_nobody_knows_is_refused() -> None:
    unknown: Any = "pigeon"
    with pytest.raises(ValueError, match="pigeon"):
        MCPServer("s").run(unknown)


def test_workers_that_share_no_key_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    caplog.set_level(logging.WARNING, "turnwise")
    MCPServer("alone").asgi()
    assert "RequestStateSecurity(keys=[...])" in caplog.text


@pytest.mark.parametrize("workers", ["1", "", "many"])
def test_one_worker_is_not_warned_of(
    workers: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", workers)
    MCPServer("alone").asgi()
    assert not caplog.records


def test_workers_that_share_a_key_are_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    security = RequestStateSecurity(keys=[KEY])
    MCPServer("fleet", request_state_security=security, sessions=False).asgi()
    assert not caplog.records
    MCPServer("fleet", request_state_security=security).asgi()
    assert "clients of 2025-11-25 and before have a session in one of them" in caplog.text


@pytest.mark.parametrize("sessions", [True, 5, "many"])
def test_sessions_are_limited_or_turned_off(sessions: Any) -> None:
    with pytest.raises(TypeError, match="sessions is a SessionLimits"):
        MCPServer("s", sessions=sessions)


def test_a_list_of_keys_is_not_a_policy() -> None:
    keys: Any = [KEY]
    with pytest.raises(TypeError, match="RequestStateSecurity"):
        MCPServer("s", request_state_security=keys)


def test_a_context_without_its_annotation_is_not_taken_for_an_argument() -> None:
    async def tool(ctx):  # type: ignore[no-untyped-def]
        return "x"

    with pytest.raises(TypeError, match="ctx: Context"):
        MCPServer("s").add_tool(tool)


@pytest.mark.parametrize("name", ["a b", "x" * 129, "caf\u00e9", "a/b", "a\n"])
def test_a_tools_name_has_the_characters_that_every_client_takes(name: str) -> None:
    with pytest.raises(InvalidSignature, match="1 to 128 of the characters"):
        MCPServer("names").add_tool(lambda: "it", name)
    MCPServer("names").add_tool(lambda: "it", "A-z_0.9" + "x" * 121)


@pytest.mark.parametrize("milliseconds", [-1, 1.5, True, "60000", None])
def test_freshness_is_a_whole_number_of_milliseconds(milliseconds: Any) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        CacheHint(ttl_ms=milliseconds)


# What others call otherwise


def test_what_a_server_is_given_by_place_is_in_the_order_of_the_official_one() -> None:
    icons: Any = []
    server = MCPServer("bank", "The Bank", "A bank.", "Be polite.", "https://bank.example", icons, "1.2")
    facts = (server.title, server.description, server.instructions, server.website_url, server.icons, server.version)
    assert facts == ("The Bank", "A bank.", "Be polite.", "https://bank.example", icons, "1.2")


@pytest.mark.parametrize(
    ("option", "told"),
    [("debug", "leave it out"), ("middleware", "wrap the application"), ("list_page_size", "page_size=")],
)
def test_an_option_of_another_library_is_refused_with_what_it_is_here(option: str, told: str) -> None:
    options: Any = {option: None}
    with pytest.raises(TypeError, match=f"MCPServer has no option '{option}': .*{told}"):
        MCPServer("s", **options)


def test_an_option_that_nobody_knows_is_refused_as_python_does() -> None:
    options: Any = {"colour": "red"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        MCPServer("s", **options)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("stateless_http", "leave it out"),
        ("json_response", "leave it out"),
        ("streamable_http_path", "it is path= here"),
        ("transport_security", "it is allowed_hosts="),
        ("max_request_body_size", "it is max_body= here"),
        ("colour", "there are path, host, .*, port, log_level"),
    ],
)
def test_an_option_of_running_is_refused_with_what_it_is_here(option: str, told: str) -> None:
    with pytest.raises(TypeError, match=f"run has no option '{option}': {told}"):
        MCPServer("s").run("http", **{option: True})


def test_an_option_of_the_application_is_refused_without_those_of_running() -> None:
    wrong: Any = {"port": 8000}
    with pytest.raises(TypeError, match=r"asgi has no option 'port': there are path, [a-z_, ]*, witness$"):
        MCPServer("s").asgi(**wrong)


def test_an_option_of_http_is_refused_on_standard_streams_too() -> None:
    with pytest.raises(TypeError, match="run has no option 'show_banner': leave it out"):
        MCPServer("s").run(show_banner=False)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("tags", "goes into meta="),
        ("output_schema", "structured_output=False"),
        ("colour", "there are title, .*, budget"),
    ],
)
def test_an_option_of_a_tool_is_refused_with_what_it_is_here(option: str, told: str) -> None:
    options: Any = {option: None}
    with pytest.raises(TypeError, match=f"a tool has no option '{option}': .*{told}"):
        MCPServer("s").tool(**options)(lambda: "x")


def test_a_method_of_another_library_is_no_attribute_and_it_is_said_what_is() -> None:
    server: Any = MCPServer("s")
    with pytest.raises(AttributeError, match=r"'call_tool': .*Client\(server\)"):
        _ = server.call_tool
    with pytest.raises(AttributeError, match=r"has no attribute 'colour'$"):
        _ = server.colour
    assert not hasattr(server, "mount")


def test_a_name_of_another_librarys_context_is_no_attribute_and_it_is_said_what_is() -> None:
    server = MCPServer("s")
    seen: list[str] = []

    @server.tool()
    def look(name: str, ctx: Context) -> bool:
        try:
            getattr(ctx, name)
        except AttributeError as error:
            seen.append(str(error))
        return hasattr(ctx, name)

    async def run() -> None:
        async with connect(server) as client:
            for name in ("set_state", "fastmcp", "colour"):
                told = await client.request("tools/call", {"name": "look", "arguments": {"name": name}})
                assert told["structuredContent"] == {"result": False}

    asyncio.run(run())
    assert seen == [
        "'Context' object has no attribute 'set_state': local variables last for a call, over its rounds; "
        "between calls, use a store of yours",
        "'Context' object has no attribute 'fastmcp': it is ctx.mcp_server here",
        "'Context' object has no attribute 'colour'",
    ]


@pytest.mark.parametrize(
    ("option", "told"), [("response_type", "it is schema= here"), ("response_title", "Field(title="), ("colour", None)]
)
def test_an_option_of_another_librarys_asking_is_explained_in_the_log(
    option: str, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    server = MCPServer("s")

    @server.tool()
    async def ask(ctx: Context) -> str:
        options: Any = {option: str}
        await ctx.elicit("Who?", **options)
        return "never"

    async def run() -> None:
        async with connect(server) as client:
            assert (await client.request("tools/call", {"name": "ask"}))["isError"]

    asyncio.run(run())
    assert f"unexpected keyword argument '{option}'" in caplog.text
    assert (f"ctx.elicit has no option '{option}'" in caplog.text) is (told is not None)
    assert told is None or told in caplog.text


@pytest.mark.parametrize("level", ["DEBUG", "debug"])
def test_the_level_of_the_log_is_that_of_the_run(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(logging, "basicConfig", lambda **options: seen.append(options))
    monkeypatch.setattr("turnwise.transports.uvicorn.make_server", lambda *args, **options: Run(seen, args[3]))
    MCPServer("s", log_level=level).run("http")
    MCPServer("s", log_level=level).run("http", log_level="error")
    MCPServer("s").run("http")
    assert seen == [{"level": "DEBUG"}, "debug", {"level": "DEBUG"}, "error", "info"]


class Run:
    """Stands for a web server that is told a level."""

    def __init__(self, seen: list[Any], level: str) -> None:
        self.seen = seen
        self.level = level

    def run(self) -> None:
        self.seen.append(self.level)


@pytest.mark.parametrize("level", ["loud", 10])
def test_a_level_that_nobody_knows_is_refused(level: Any) -> None:
    with pytest.raises(ValueError, match="log_level is DEBUG"):
        MCPServer("s", log_level=level)


def test_names_that_are_imported_later_are_listed_with_the_others() -> None:
    assert set(turnwise.__all__) <= set(dir(turnwise))
    assert {"Client", "SyncClient", "Icon"} <= set(dir(turnwise))
