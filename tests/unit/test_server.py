"""The server object: what is refused when it is built, and what it warns of."""

import logging
from typing import Any

import pytest

from turnwise import AuthSettings, CacheHint, MCPServer, RequestStateSecurity

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
