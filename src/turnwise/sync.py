"""The client for scripts: the same calls, without `await`.

Everything runs in the thread that calls, while a call lasts. Callbacks are plain functions, and may block: nothing else
is going on. Where an event loop runs already, use `Client`.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from typing_extensions import Unpack

from ._connecting import CallOptions, ClientOptions, Target, ToolCallOptions
from ._conversation import Progress
from ._following import OnStatus, TaskInHand
from ._inboxing import InboxItem
from ._messages import Done
from ._pending import Pending
from .client import Client
from .dialects.tasking_client import TaskStatus
from .errors import CallerError

if TYPE_CHECKING:
    import mcp_types as types

T = TypeVar("T")
_IN_USE = "another thread is using this client: one at a time, or a client each"
_ASKED = ("elicitation_callback", "sampling_callback", "list_roots_callback")


class SyncClient:
    """A client of one server, for code without an event loop: `with SyncClient(...) as client`.

    It takes what `Client` takes.
    """

    def __init__(self, target: Target, **options: Unpack[ClientOptions]) -> None:
        given: Any = dict(options)
        for name in _ASKED:
            if given.get(name) is not None:
                given[name] = _interruptible(given[name])
        self._client = Client(target, **given)
        self._runner: asyncio.Runner | None = None
        self._turn = threading.Lock()

    def __enter__(self) -> Self:
        _refuse_loops()
        if self._runner is not None:
            raise CallerError("this client is open already; one `with` at a time")
        self._runner = asyncio.Runner()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._runner.close()
            self._runner = None
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._turn.locked():
            raise CallerError(_IN_USE)
        try:
            self._run(self._client.__aexit__())
        finally:
            if self._runner is not None:
                self._runner.close()
            self._runner = None

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            work.close()
            raise CallerError("this client is not open: use it inside `with SyncClient(...) as client`")
        try:
            _refuse_loops()
        except CallerError:
            work.close()
            raise
        if not self._turn.acquire(blocking=False):
            work.close()
            raise CallerError(_IN_USE)
        try:
            return self._runner.run(work)
        finally:
            self._turn.release()

    @property
    def protocol_version(self) -> str:
        """The version that is spoken."""
        return self._client.protocol_version

    @property
    def server_info(self) -> "types.Implementation | None":
        """Who the server says it is; None where it does not say."""
        return self._client.server_info

    @property
    def server_capabilities(self) -> "types.ServerCapabilities":
        """What the server offers."""
        return self._client.server_capabilities

    @property
    def instructions(self) -> str | None:
        """What the server says about its use."""
        return self._client.instructions

    def discover(self) -> "types.DiscoverResult":
        """Ask the server who it is and what it offers."""
        return self._run(self._client.discover())

    def ping(self) -> None:
        """Ask the server for a sign of life. Only versions with a handshake have this."""
        self._run(self._client.ping())

    def roots_changed(self) -> None:
        """Tell the server that `list_roots_callback` has a new answer. Only versions with a handshake have this."""
        self._run(self._client.roots_changed())

    def request(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One round of any method: the result as it came, which may be a question or a task."""
        return self._run(self._client.request(method, params))

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        read_timeout_seconds: float | None = None,
        progress_callback: Progress | None = None,
        **options: Unpack[ToolCallOptions],
    ) -> "types.CallToolResult":
        """Call a tool, answering whatever it asks."""
        return self._run(self._client.call_tool(name, arguments, read_timeout_seconds, progress_callback, **options))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> "types.GetPromptResult":
        """Get a prompt, answering whatever it asks."""
        return self._run(self._client.get_prompt(name, arguments, **options))

    def read_resource(self, uri: str, **options: Unpack[CallOptions]) -> "types.ReadResourceResult":
        """Read a resource, answering whatever it asks."""
        return self._run(self._client.read_resource(uri, **options))

    def list_tools(self, *, cursor: str | None = None) -> "types.ListToolsResult":
        """One page of the tools."""
        return self._run(self._client.list_tools(cursor=cursor))

    def list_prompts(self, *, cursor: str | None = None) -> "types.ListPromptsResult":
        """One page of the prompts."""
        return self._run(self._client.list_prompts(cursor=cursor))

    def list_resources(self, *, cursor: str | None = None) -> "types.ListResourcesResult":
        """One page of the resources."""
        return self._run(self._client.list_resources(cursor=cursor))

    def list_resource_templates(self, *, cursor: str | None = None) -> "types.ListResourceTemplatesResult":
        """One page of the resource templates."""
        return self._run(self._client.list_resource_templates(cursor=cursor))

    def iter_tools(self) -> "Iterator[types.Tool]":
        """All tools, page by page."""
        return self._each(self._client.iter_tools())

    def iter_prompts(self) -> "Iterator[types.Prompt]":
        """All prompts, page by page."""
        return self._each(self._client.iter_prompts())

    def iter_resources(self) -> "Iterator[types.Resource]":
        """All resources, page by page."""
        return self._each(self._client.iter_resources())

    def iter_resource_templates(self) -> "Iterator[types.ResourceTemplate]":
        """All resource templates, page by page."""
        return self._each(self._client.iter_resource_templates())

    def complete(
        self,
        ref: "types.PromptReference | types.ResourceTemplateReference | Mapping[str, Any]",
        argument: Mapping[str, str],
        context_arguments: Mapping[str, str] | None = None,
    ) -> "types.CompleteResult":
        """Suggestions for an argument of a prompt or a resource template."""
        return self._run(self._client.complete(ref, argument, context_arguments))

    def begin(
        self, tool: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> "Done[types.CallToolResult] | Pending | TaskInHand":
        """Call a tool as far as it gets without a person: its result, the call with its questions, or its task."""
        return self._run(self._client.begin(tool, arguments, **options))

    def begin_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallOptions]
    ) -> "Done[types.GetPromptResult] | Pending":
        """Get a prompt as far as it gets without a person."""
        return self._run(self._client.begin_prompt(name, arguments, **options))

    def begin_resource(self, uri: str, **options: Unpack[CallOptions]) -> "Done[types.ReadResourceResult] | Pending":
        """Read a resource as far as it gets without a person."""
        return self._run(self._client.begin_resource(uri, **options))

    def resume(
        self, pending: Pending | str, answers: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> "Done[Any] | Pending | TaskInHand":
        """Answer a call that was put down, here or elsewhere: its result, the call as it is now, or its task."""
        return self._run(self._client.resume(pending, answers, **options))

    def follow_task(
        self, task: TaskInHand | str, *, on_status: OnStatus | None = None, deadline: float | None = None
    ) -> "types.CallToolResult":
        """Bring a task to its end, answering whatever it asks."""
        return self._run(self._client.follow_task(task, on_status=on_status, deadline=deadline))

    def get_task(self, task_id: str) -> TaskStatus:
        """A task as it is now."""
        return self._run(self._client.get_task(task_id))

    def update_task(self, task_id: str, answers: Mapping[str, Any]) -> None:
        """Answer questions of a task, all or some."""
        self._run(self._client.update_task(task_id, answers))

    def cancel_task(self, task_id: str) -> None:
        """Ask the server to stop a task."""
        self._run(self._client.cancel_task(task_id))

    def hand_over(
        self,
        call: Pending | TaskInHand,
        *,
        caller: str | None = None,
        hook: str | None = None,
        seconds: float | None = None,
        restart_expired: bool | None = None,
    ) -> InboxItem:
        """Leave a call with its questions, or a task, in the inbox."""
        terms = {"caller": caller, "hook": hook, "seconds": seconds, "restart_expired": restart_expired}
        return self._run(self._client.hand_over(call, **terms))  # type: ignore[arg-type]

    def wait_for(self, item: InboxItem | str, *, deadline: float | None = None) -> Any:
        """The result of what was handed over."""
        return self._run(self._client.wait_for(item, deadline=deadline))

    def _each(self, entries: Any) -> Iterator[Any]:
        end = object()

        async def following() -> Any:
            return await anext(entries, end)

        while (entry := self._run(following())) is not end:
            yield entry


def _interruptible(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but Ctrl-C reaches a function that waits for a person; the loop would only note it for later."""

    def call(*args: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return callback(*args)
        handler = signal.getsignal(signal.SIGINT)
        if not isinstance(handler, partial):  # Not the loop's, so it is the script's own.
            return callback(*args)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return callback(*args)
        finally:
            signal.signal(signal.SIGINT, handler)

    return call


def _refuse_loops() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise CallerError("an event loop runs here already: use `async with Client(...)`")
