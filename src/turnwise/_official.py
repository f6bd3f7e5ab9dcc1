"""The names under which tools written for the official SDK find things on a context, over the same ledger. Of names
that only FastMCP has it is said what they are here.
"""

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, cast

from . import _moving
from .dialects import asking

if TYPE_CHECKING:
    from mcp_types import (
        ClientCapabilities,
        CreateMessageResult,
        ElicitResult,
        ListRootsResult,
        LoggingLevel,
        SamplingMessage,
    )


class RequestView:
    """A request's facts, by the official SDK's names."""

    def __init__(self, context: Any) -> None:
        self.session = context.session
        self.request_id = context.call.id
        self.meta = context.call.meta
        self.protocol_version = context.protocol_version
        self.lifespan_context = context.lifespan


class Session:
    """What tools written for the official SDK call on `ctx.session`."""

    def __init__(self, context: Any) -> None:
        self._context = context

    @property
    def client_capabilities(self) -> "ClientCapabilities":
        """What the client says it can do."""
        return cast("ClientCapabilities", self._context.client_capabilities)

    def create_message(
        self,
        messages: "list[SamplingMessage]",
        *,
        max_tokens: int,
        related_request_id: Any = None,
        **options: Any,
    ) -> "Coroutine[Any, Any, CreateMessageResult]":
        """Ask the client's model."""
        asked: Coroutine[Any, Any, CreateMessageResult] = self._context.sample(
            messages, max_tokens=max_tokens, **options
        )
        return asked

    async def list_roots(self) -> "ListRootsResult":
        """Ask which folders the client works in."""
        from mcp_types import ListRootsResult

        return ListRootsResult(roots=await self._context.roots())

    def elicit_form(
        self, message: str, requested_schema: Mapping[str, Any], related_request_id: Any = None, key: str | None = None
    ) -> "Coroutine[Any, Any, ElicitResult]":
        """Ask the user to fill in a form described by a JSON Schema."""
        asked: Coroutine[Any, Any, ElicitResult] = self._context._ask(asking.raw_form(message, requested_schema, key))
        return asked

    elicit = elicit_form

    async def elicit_url(
        self, message: str, url: str, elicitation_id: str | None = None, related_request_id: Any = None
    ) -> "ElicitResult":
        """Ask the user to visit a page."""
        from mcp_types import ElicitResult

        outcome = await self._context.elicit_url(message, url, elicitation_id)
        return ElicitResult(action=outcome.action)

    async def send_log_message(
        self, level: "LoggingLevel", data: Any, logger: str | None = None, related_request_id: Any = None
    ) -> None:
        """Send a log line."""
        await self._context.log(level, data, logger_name=logger)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call has come."""
        await self._context.report_progress(progress, total, message)

    async def send_tool_list_changed(self) -> None:
        """Tell subscribers that the list of tools changed."""
        await self._context.notify_tools_changed()

    async def send_prompt_list_changed(self) -> None:
        """Tell subscribers that the list of prompts changed."""
        await self._context.notify_prompts_changed()

    async def send_resource_list_changed(self) -> None:
        """Tell subscribers that the list of resources changed."""
        await self._context.notify_resources_changed()

    async def send_resource_updated(self, uri: str) -> None:
        """Tell subscribers that a resource changed."""
        await self._context.notify_resource_updated(uri)


class OfficialNames:
    """The same on a context."""

    __slots__ = ()

    @property
    def session(self) -> Session:
        """The names under which the official SDK asks, over the same ledger."""
        return Session(self)

    @property
    def request_context(self) -> RequestView:
        """The names under which the official SDK keeps request facts."""
        return RequestView(self)

    async def close_sse_stream(self) -> None:
        """The official SDK's name of `close_stream`."""
        cast("Any", self).close_stream()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _moving.no_attribute(self, name, _moving.CONTEXT)
