"""The client: `await client.call_tool(...)` gives a result, however many rounds it took.

`begin` and `resume` are the same calls with the questions handed to you instead of a callback. The client knows
no web framework, and servers only by what they answer.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from typing_extensions import Unpack

from . import _connecting, _inboxing, _pending
from ._bus import Change
from ._caching import Keys, ResponseCache
from ._claims import claimed
from ._connecting import CallOptions, ClientOptions, Target, ToolCallOptions
from ._conversation import Conversation, Progress, Wishes, pages
from ._following import TaskCalls, TaskInHand
from ._inboxing import InboxCalls
from ._listening import Subscription, listen, listen_live
from ._live import LiveConversation
from ._messages import Done
from ._negotiating import Negotiation
from ._pending import Pending, PendingStore
from ._version import __version__
from .dialects import calling
from .dialects.v2026_07_28_client import Caller
from .errors import BecameTask, CallerError, MCPError
from .transports.http import HTTP
from .transports.memory import Memory
from .transports.process import Process

if TYPE_CHECKING:
    import mcp_types as types

log = logging.getLogger("turnwise.client")

Begun = Done[Any] | Pending | TaskInHand
CLAIM_SECONDS = 30.0
"""For how long a call that is being carried on stays with a process that no longer says so."""
_FORGOTTEN = {
    "tools": ("tools/list",),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
    "resource": ("resources/read",),
}


class Client(TaskCalls, InboxCalls):
    """A client of one server: a URL, a server object in this process, or a command to start.

    Use it as `async with Client(...) as client`. Its calls may run concurrently.
    """

    def __init__(self, target: Target, **options: Unpack[ClientOptions]) -> None:
        _connecting.check_options(options)
        self._channel, self._server = _connecting.connect(target, options)
        self._store = options.get("pending_store")
        self._inbox = _inboxing.line(options)
        cache = options.get("cache", True)
        self._cache = cache if isinstance(cache, ResponseCache) else ResponseCache() if cache else None
        own: Any = object()
        self._keys = Keys(own, self._server if isinstance(self._channel, HTTP) else own)
        info, log_level = calling.introduction(options.get("client_info"), __version__), options.get("log_level")
        caller = Caller(info, log_level, has_headers=not isinstance(self._channel, Memory | Process))
        self._conversation = Conversation(
            self._channel, caller, _connecting.manners(options, self._server), self._forget
        )
        name = _connecting.remembered(target, self._server)
        self._negotiation = Negotiation(self._conversation, info, log_level, name, self._discovery)
        self._mode = options.get("mode", "auto")
        self._discovered: dict[str, Any] | None = None
        self._is_open = False
        self._changes = 0

    async def __aenter__(self) -> Self:
        if self._is_open:
            raise CallerError("this client is open already; one `async with` at a time")
        await self._channel.open()
        self._is_open = True
        try:
            self._conversation, self._discovered = await self._negotiation.opened(self._mode)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._is_open:  # A server in this process would count who leaves twice as two.
            return
        self._is_open = False
        conversation, self._conversation = self._conversation, self._negotiation.plain
        await conversation.aclose()

    @property
    def protocol_version(self) -> str:
        """The version that is spoken."""
        return self._conversation.caller.version

    @property
    def server_info(self) -> "types.Implementation | None":
        """Who the server says it is; None where it does not say."""
        return calling.server_info(self._known())

    @property
    def server_capabilities(self) -> "types.ServerCapabilities":
        """What the server offers."""
        return cast("types.ServerCapabilities", calling.typed("server/discover", self._known()).capabilities)

    @property
    def instructions(self) -> str | None:
        """What the server says about its use."""
        return cast("str | None", calling.typed("server/discover", self._known()).instructions)

    def _known(self) -> dict[str, Any]:
        if self._discovered is None:
            raise CallerError("the server was not asked yet: await client.discover() first")
        return self._discovered

    async def discover(self) -> "types.DiscoverResult":
        """Ask the server who it is and what it offers; one with a handshake has said it then."""
        if not isinstance(self._open, LiveConversation):
            self._discovered = await self._discovery(None)
        return cast("types.DiscoverResult", calling.typed("server/discover", self._known()))

    async def _discovery(self, seconds: float | None) -> dict[str, Any]:
        result = await self._fetch("server/discover", {}, Wishes(request_seconds=seconds))
        calling.check_versions(result)
        return result

    async def ping(self) -> None:
        """Ask the server for a sign of life. Only versions with a handshake have this."""
        await self._live.request("ping", {}, Wishes())

    async def roots_changed(self) -> None:
        """Tell the server that `list_roots_callback` has a new answer. Only versions with a handshake have this."""
        await self._live.session.tell(calling.roots_changed())

    @property
    def _live(self) -> LiveConversation:
        if not isinstance(self._open, LiveConversation):
            raise CallerError(f"{self.protocol_version} has no such message: what it needs to know, it asks for")
        return self._open

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One round of any method: the result as it came, which may be a question or a task."""
        try:
            return await self._open.request(method, params or {}, Wishes())
        except BecameTask as became:
            return dict(became.result)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        progress_callback: Progress | None = None,
        **options: Unpack[ToolCallOptions],
    ) -> "types.CallToolResult":
        """Call a tool, answering whatever it asks."""
        wishes = _connecting.wishes(cast("CallOptions", options), progress_callback, read_timeout_seconds)
        result, _ = await self._called("tools/call", calling.call_params("name", name, arguments), wishes)
        return cast("types.CallToolResult", self._finished("tools/call", name, result))

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> "types.GetPromptResult":
        """Get a prompt, answering whatever it asks."""
        params = calling.call_params("name", name, arguments)
        result, _ = await self._called("prompts/get", params, _connecting.wishes(options))
        return cast("types.GetPromptResult", calling.typed("prompts/get", result))

    async def read_resource(self, uri: str, **options: Unpack[CallOptions]) -> "types.ReadResourceResult":
        """Read a resource, answering whatever it asks."""
        result = await self._fetch("resources/read", calling.call_params("uri", uri), _connecting.wishes(options))
        return cast("types.ReadResourceResult", calling.typed("resources/read", result))

    async def list_tools(self, *, cursor: str | None = None) -> "types.ListToolsResult":
        """One page of the tools. Over HTTP, those whose definitions break the rules for headers are left out."""
        return cast("types.ListToolsResult", await self._page("tools/list", cursor))

    async def list_prompts(self, *, cursor: str | None = None) -> "types.ListPromptsResult":
        """One page of the prompts."""
        return cast("types.ListPromptsResult", await self._page("prompts/list", cursor))

    async def list_resources(self, *, cursor: str | None = None) -> "types.ListResourcesResult":
        """One page of the resources."""
        return cast("types.ListResourcesResult", await self._page("resources/list", cursor))

    async def list_resource_templates(self, *, cursor: str | None = None) -> "types.ListResourceTemplatesResult":
        """One page of the resource templates."""
        return cast("types.ListResourceTemplatesResult", await self._page("resources/templates/list", cursor))

    def iter_tools(self) -> "AsyncIterator[types.Tool]":
        """All tools, page by page."""
        return self._entries("tools/list")

    def iter_prompts(self) -> "AsyncIterator[types.Prompt]":
        """All prompts, page by page."""
        return self._entries("prompts/list")

    def iter_resources(self) -> "AsyncIterator[types.Resource]":
        """All resources, page by page."""
        return self._entries("resources/list")

    def iter_resource_templates(self) -> "AsyncIterator[types.ResourceTemplate]":
        """All resource templates, page by page."""
        return self._entries("resources/templates/list")

    async def complete(
        self,
        ref: "types.PromptReference | types.ResourceTemplateReference | Mapping[str, Any]",
        argument: Mapping[str, str],
        context_arguments: Mapping[str, str] | None = None,
    ) -> "types.CompleteResult":
        """Suggestions for an argument of a prompt or a resource template."""
        params = calling.completion_params(ref, argument, context_arguments)
        result = await self._open.request("completion/complete", params, Wishes())
        return cast("types.CompleteResult", calling.typed("completion/complete", result))

    def listen(
        self,
        *,
        tools_list_changed: bool = False,
        prompts_list_changed: bool = False,
        resources_list_changed: bool = False,
        resource_subscriptions: Sequence[str] = (),
    ) -> AbstractAsyncContextManager[Subscription]:
        """`async with client.listen(...) as subscription`, then `async for change in subscription`."""
        lists = (tools_list_changed, prompts_list_changed, resources_list_changed)
        wanted = calling.subscription_filter(*lists, resource_subscriptions)
        if isinstance(self._open, LiveConversation):
            return listen_live(self._open, wanted, self._forget)
        return listen(self._open, wanted, self._forget)

    async def begin(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> "Done[types.CallToolResult] | Pending | TaskInHand":
        """Call a tool as far as it gets without a person: its result, the call with its questions, or its task."""
        return await self._begin("tools/call", calling.call_params("name", tool, arguments), options)

    async def begin_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> "Done[types.GetPromptResult] | Pending":
        """Get a prompt as far as it gets without a person."""
        begun = await self._begin("prompts/get", calling.call_params("name", name, arguments), options)
        return cast("Done[types.GetPromptResult] | Pending", begun)

    async def begin_resource(
        self, uri: str, **options: Unpack[CallOptions]
    ) -> "Done[types.ReadResourceResult] | Pending":
        """Read a resource as far as it gets without a person."""
        begun = await self._begin("resources/read", calling.call_params("uri", uri), options)
        return cast("Done[types.ReadResourceResult] | Pending", begun)

    async def _begin(self, method: str, params: Mapping[str, Any], options: CallOptions) -> Begun:
        outcome = await self._open.carry_on(_pending.begun(method, params, self._server), _connecting.wishes(options))
        if self._store is not None and isinstance(outcome, Pending):
            return await self._store.keep(outcome)
        return self._shown(outcome, method, params)

    async def resume(
        self, pending: Pending | str, answers: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> "Done[Any] | Pending | TaskInHand":
        """Answer a call that was put down, here or elsewhere: its result, the call with what is still asked, or the
        task that it became.

        An answer is an official result, or a dict with its `action`; to a form also the dict of its fields, or the
        value of its only field, which accept it. With a store, the call may be named by its id, and of two that answer
        it one gets AlreadyAnswered. Where the server cannot be reached the answers are kept, and the call can be
        resumed again.
        """
        if self._store is None:
            if isinstance(pending, str):
                raise CallerError("a call is named by its id only where the client has a pending_store")
            answered = pending.answered(answers or {})
        else:
            answered = await self._answered(self._store, pending, answers or {})
        self._check_server(pending if isinstance(pending, Pending) else answered)
        if answered.unanswered:
            return answered
        wishes = _connecting.wishes(options)
        if self._store is not None:
            return await self._carry_on_stored(self._store, answered.id, wishes)
        outcome = await self._open.carry_on(answered, wishes)
        return self._shown(outcome, answered.method, answered.params)

    async def _answered(self, store: PendingStore, pending: Pending | str, answers: Mapping[str, Any]) -> Pending:
        """A stored call with these answers, and with those that were added to it in hand."""
        if isinstance(pending, str):
            stored, number = await store.get(pending), None
        else:
            stored, number = await store.get(pending.id), pending.round
            in_hand = {key: answer for key, answer in pending.answers.items() if key not in stored.answers}
            answers = {**in_hand, **answers}
        self._check_server(pending if isinstance(pending, Pending) else stored)
        return await store.answer(stored.id, answers, round=number) if answers else stored

    async def _carry_on_stored(self, store: PendingStore, pending_id: str, wishes: Wishes) -> Begun:
        found = await claimed(store.claim(pending_id, CLAIM_SECONDS), partial(_unclaimed, store))
        renewing = asyncio.create_task(_renewed(store, found))
        try:
            outcome = await self._open.carry_on(found, wishes)
            shown = self._shown(outcome, found.method, found.params)
        except BaseException:
            await _pending.noted(store.keep(found), pending_id, "its claim is not given back")
            raise
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
        if isinstance(shown, Pending):
            return await store.keep(shown)
        await _pending.noted(store.forget(pending_id), pending_id, "it is done, and still there to be resumed")
        return shown

    def _check_server(self, pending: Pending) -> None:
        """A call and its state belong to the server that asked. A command may be spelled otherwise elsewhere."""
        has_url = isinstance(self._channel, HTTP) or (pending.server or "").startswith(("http://", "https://"))
        if has_url and pending.server not in (None, self._server):
            raise CallerError(
                f"this call belongs to {pending.server}, and this is a client of {self._server}; "
                "where both are the same server, use dataclasses.replace(pending, server=None)"
            )

    def _shown(self, outcome: Begun, method: str, params: Mapping[str, Any]) -> Begun:
        if not isinstance(outcome, Done):
            return outcome
        return Done(self._finished(method, params.get("name", ""), outcome.result))

    def _finished(self, method: str, name: str, result: dict[str, Any]) -> Any:
        if method == "tools/call":
            self._conversation.caller.check_result(name, result)
        return calling.typed(method, result)

    @property
    def _open(self) -> Conversation:
        if not self._is_open:
            raise CallerError("this client is not open: use it inside `async with Client(...) as client`")
        return self._conversation

    async def _page(self, method: str, cursor: str | None) -> Any:
        return calling.typed(method, await self._raw_page(method, cursor))

    async def _raw_page(self, method: str, cursor: str | None) -> dict[str, Any]:
        try:
            return await self._fetch(method, calling.page_params(cursor), Wishes())
        except MCPError:
            # "If a cursor becomes invalid [...] the client SHOULD discard all cached pages"
            if cursor is not None and self._cache is not None:
                self._cache.forget(self._keys, method)
            raise

    async def _entries(self, method: str) -> AsyncIterator[Any]:
        async for page in pages(method, partial(self._raw_page, method)):
            for entry in calling.entries(method, calling.typed(method, page)):
                yield entry

    async def _fetch(self, method: str, params: dict[str, Any], wishes: Wishes) -> dict[str, Any]:
        """A result that may be used again, if it was not the result of a retry: that depends on answers."""
        conversation, cache = self._open, self._cache if wishes.meta is None else None
        if cache is not None and (found := cache.get(self._keys, method, params, time.monotonic())) is not None:
            return conversation.caller.learn(found) if method == "tools/list" else found
        changes = self._changes
        if method == "resources/read":
            result, rounds = await self._called(method, params, wishes)
        else:
            result, rounds = await conversation.request(method, params, wishes), 1
        seconds, is_public = calling.freshness(method, result)
        if cache is not None and rounds == 1 and seconds > 0 and changes == self._changes:
            owner = self._keys.public if is_public else self._keys.private
            cache.put(owner, method, params, result, time.monotonic() + seconds)
        return conversation.caller.learn(result) if method == "tools/list" else result

    def _forget(self, change: Change) -> None:
        """A change that was told ends the freshness of what it is about, and of what is under way."""
        self._changes += 1
        if self._cache is not None:
            params = {"uri": change.uri} if change.kind == "resource" and change.uri is not None else None
            for method in _FORGOTTEN[change.kind]:
                self._cache.forget(self._keys, method, params)


async def _unclaimed(store: PendingStore, claimed: Pending) -> None:
    await _pending.noted(store.keep(claimed), claimed.id, "its claim is not given back")


async def _renewed(store: PendingStore, claimed: Pending) -> None:
    """Keep a call for as long as it is carried on here."""
    while True:
        await asyncio.sleep(CLAIM_SECONDS / 3)
        try:
            await store.renew(claimed, CLAIM_SECONDS)
        except CallerError as error:
            log.warning("call %s may be carried on by another process as well: %s", claimed.id, error)
            return
