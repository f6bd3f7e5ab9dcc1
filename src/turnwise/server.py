"""The server: what an author registers, and how it is run.

`MCPServer` fills the catalogue, frames the server's life, and hands out applications for the transports.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar, Unpack

from . import _hosting, _moving, _registering, _tasking, _wires
from ._budgets import Budget, check_budget
from ._bus import Change, SubscriptionBus, bus_of
from ._catalogue import Catalogue, Endpoint, visit
from ._guards import FlowStore, Guard, MemoryStore, check_store
from ._hosting import HttpOptions
from ._life import Life
from ._messages import Ask, CacheHint, Call, Done, Outcome, Yield
from ._noting import Observer
from ._registering import PromptOptions, ResourceOptions, ToolOptions
from ._rounds import play
from ._routes import Routes
from ._sealed import RequestStateSecurity, check_security
from ._sessions import SessionLimits, Sessions
from ._shedding import Gauge, Load, checked
from ._terms import Terms
from .auth import AuthSettings, TokenVerifier, check_auth
from .context import Context
from .dialects import content, listing
from .dialects.asking import is_input_required, returned
from .dialects.v2026_07_28 import Wire
from .errors import AuthorError, URLElicitationRequired
from .tasks.dispatch import LocalDispatcher
from .tasks.model import TaskStore
from .tasks.options import TaskOptions
from .tasks.runtime import Tasks
from .transports.asgi import App
from .transports.stdio import serve_stdio

if TYPE_CHECKING:
    from mcp_types import Icon

log = logging.getLogger("turnwise.server")

F = TypeVar("F", bound=Callable[..., Any])
LifespanT = TypeVar("LifespanT", default=Any)
Transport = Literal["stdio", "http", "streamable-http"]


class MCPServer(Generic[LifespanT]):
    """An MCP server whose tools, prompts and resources may ask in the middle."""

    @_moving.explained("MCPServer", _moving.SERVER)
    def __init__(  # noqa: PLR0913, PLR0917 - those by place are in the official SDK's order
        self,
        name: str,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: "list[Icon] | None" = None,
        version: str = "0.0.0",
        *,
        lifespan: "Callable[[MCPServer[LifespanT]], AbstractAsyncContextManager[LifespanT]] | None" = None,
        request_state_security: RequestStateSecurity | None = None,
        token_verifier: TokenVerifier | None = None,
        auth: AuthSettings | None = None,
        cache_hints: Mapping[str, CacheHint] | None = None,
        page_size: int | None = None,
        subscriptions: SubscriptionBus | Literal[False] | None = None,
        store: FlowStore | None = None,
        budget: Budget | None = None,
        shed_when: Callable[[Load], bool] | None = None,
        telemetry: Observer | Sequence[Observer] | None = None,
        tasks: "TaskStore | TaskOptions | None" = None,
        dialects: Sequence[str] = (),
        sessions: SessionLimits | Literal[False] | None = None,
        log_level: str | None = None,
    ) -> None:
        if not name:
            raise ValueError("a server needs a name: tokens are bound to it")
        check_auth(token_verifier, auth)
        check_security(request_state_security)
        if page_size is not None and page_size < 1:
            raise ValueError("page_size must be at least 1")
        check_store(store)
        check_budget(budget)
        self.name, self.title, self.version = name, title, version
        self.description, self.instructions, self.website_url, self.icons = (
            description,
            instructions,
            website_url,
            icons,
        )
        self._log_level = _hosting.checked_level(log_level)
        self._is_draining, self._routes = False, Routes()
        self.lifespan_state: Any = None
        self._life = Life(self, lifespan)
        self._auth = (token_verifier, auth)
        self._security = request_state_security or RequestStateSecurity.inherited()
        self._bus: SubscriptionBus | None = bus_of(subscriptions)
        info = listing.definition(
            name=name, version=version, title=title, description=description, website_url=website_url, icons=icons
        )
        self._store = store or (MemoryStore() if self._security.is_process_local else None)
        gauge = None if shed_when is None else Gauge()
        self._catalogue = Catalogue(self, info, self._security, self._bus, self._terms(budget, shed_when, gauge))
        self._catalogue.watch(gauge, *_observers(telemetry))
        self._catalogue.instructions = instructions
        self._catalogue.page_size = page_size
        self._catalogue.hints = listing.checked_hints(cache_hints or {})
        self.tasks: Tasks | None = None
        if tasks is not None:
            self._keep_tasks(tasks)
        if not isinstance(sessions, SessionLimits) and sessions not in (None, False):
            raise TypeError(f"sessions is a SessionLimits(...) or False, not {sessions!r}")
        self._sessions = None if sessions is False else Sessions(sessions or SessionLimits())
        self._handshake = _wires.handshake(self._catalogue, self._security, self._sessions, dialects)
        self.wire = Wire(self._catalogue, self._handshake)

    def _terms(self, budget: Budget | None, shed_when: Callable[[Load], bool] | None, gauge: Gauge | None) -> Terms:
        budget = budget or Budget()
        codec, ttl = self._security.codec, self._security.ttl
        guard = None if self._store is None else Guard(self._store, codec, ttl, budget)
        if shed_when is None or gauge is None:
            return Terms(budget=budget, guard=guard)
        policy = checked(shed_when)
        return Terms(budget=budget, guard=guard, is_overloaded=lambda: policy(gauge.load()))

    def _keep_tasks(self, tasks: "TaskStore | TaskOptions") -> None:
        """Have calls that outlive their requests, and workers for them."""
        options = tasks if isinstance(tasks, TaskOptions) else TaskOptions(store=tasks)
        self.tasks = self._catalogue.tasks = _tasking.install(self._catalogue, options, self._security)
        if options.workers > 0:
            self.work_on_tasks()

    def work_on_tasks(self) -> None:
        """Have this process play legs of tasks for as long as the server lives."""
        if self.tasks is None:
            raise AuthorError("this server keeps no tasks")
        dispatcher = self.tasks.options.dispatcher or LocalDispatcher()
        self._life.take_up(partial(dispatcher.run, self.tasks))

    # Registering

    def tool(self, name: str | None = None, **options: Unpack[ToolOptions]) -> Callable[[F], F]:
        """Serve a function as a tool: its signature is the input schema, its docstring the description."""
        _registering.refuse_bare("tool", name)

        def decorate(fn: F) -> F:
            self.add_tool(fn, name, **options)
            return fn

        return decorate

    def add_tool(self, fn: Callable[..., Any], name: str | None = None, **options: Unpack[ToolOptions]) -> None:
        """Serve a function as a tool; one of the same name is replaced."""
        endpoint = _registering.tool(fn, name, options, self._catalogue.terms)
        if endpoint.terms.task in ("always", "optional") and self.tasks is None:
            self._keep_tasks(TaskOptions())
        self._put(self._catalogue.tools, endpoint.definition["name"], endpoint)
        self._catalogue.mark(endpoint.definition["name"], endpoint.marks)

    def remove_tool(self, name: str) -> None:
        """Stop serving a tool; KeyError if there is none."""
        del self._catalogue.tools[name]
        self._catalogue.mark(name, {})

    def prompt(self, name: str | None = None, **options: Unpack[PromptOptions]) -> Callable[[F], F]:
        """Serve a function as a prompt."""
        _registering.refuse_bare("prompt", name)

        def decorate(fn: F) -> F:
            endpoint = _registering.prompt(fn, name, options, self._catalogue.terms)
            self._put(self._catalogue.prompts, endpoint.definition["name"], endpoint)
            return fn

        return decorate

    def remove_prompt(self, name: str) -> None:
        """Stop serving a prompt; KeyError if there is none."""
        del self._catalogue.prompts[name]

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Serve a function as a resource, or as a template if the URI has `{parameters}`."""
        _registering.refuse_bare("resource", uri)

        def decorate(fn: F) -> F:
            endpoint = _registering.resource(fn, uri, options, self._catalogue.terms)
            shelf = self._catalogue.resources if endpoint.template is None else self._catalogue.templates
            self._put(shelf, uri, endpoint)
            return fn

        return decorate

    def remove_resource(self, uri: str) -> None:
        """Stop serving a resource or template; KeyError if there is none."""
        shelf = self._catalogue.templates if uri in self._catalogue.templates else self._catalogue.resources
        del shelf[uri]

    def completion(self) -> Callable[[F], F]:
        """Serve completions: `async def (ref, argument, context) -> Completion | list[str] | None`."""

        def decorate(fn: F) -> F:
            async def complete(call: Call) -> Outcome:
                return Done(content.completion_result(await fn(*_registering.completion_arguments(call.params))))

            self._catalogue.handlers["completion/complete"] = complete
            return fn

        return decorate

    def handler(self, method: str) -> Callable[[F], F]:
        """Serve a method by hand: `async def (ctx, params: dict) -> result model or mapping`.

        It replaces what the catalogue would have answered. State that it returns is sealed, and answers are read from
        the context, as in a tool.
        """
        _registering.refuse_bare("handler", method)

        def decorate(fn: F) -> F:
            async def run(context: Context[Any, Any]) -> dict[str, Any]:
                try:
                    value = await fn(context, dict(context.call.params))
                except URLElicitationRequired as required:
                    visit(context, required)
                if is_input_required(value):
                    context.hand_out(*returned(value))
                return content.raw_result(value)

            self._catalogue.handlers[method] = lambda call: self._catalogue.serve(call, run, self._catalogue.terms)
            return fn

        return decorate

    def custom_route(
        self, path: str, methods: Sequence[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[F], F]:
        """Serve a page beside the endpoint: `async def (request) -> response`, as Starlette has them.

        It is let in by `Host` and `Origin` as the endpoint is, and asks for no token. Starlette has to be installed.
        """

        def decorate(fn: F) -> F:
            self._routes.add(path, fn, methods, name, include_in_schema)
            return fn

        return decorate

    def _put(self, shelf: dict[str, Endpoint], name: str, endpoint: Endpoint) -> None:
        if name in shelf:
            log.warning("%r is registered twice; the later one is served", name)
        shelf[name] = endpoint

    async def publish(self, change: Change) -> None:
        """Tell the subscribers of a change."""
        if self._bus is not None:
            await self._bus.publish(change)

    async def read_resource(self, uri: str, context: Context[Any, Any]) -> list[Any]:
        """The contents of a resource, read from inside a call; its answers are its own, so it cannot ask."""
        from mcp_types import ReadResourceResult

        call = replace(context.call, method="resources/read", target=uri, answers={}, state=None)
        endpoint, call = self._catalogue.find(call)
        outcome = await play(Context(call, self, None), endpoint.run)
        if isinstance(outcome, Ask | Yield):
            raise AuthorError(f"the resource {uri} asks for input; it cannot be read from inside another call")
        return list(ReadResourceResult.model_validate(outcome).contents)

    # Running

    async def start(self) -> None:
        """Enter the lifespan. Transports do this; it is for those who mount the server in something else."""
        self._catalogue.is_closing = False
        if self._sessions is not None:
            self._sessions.is_closing = False
        await self._life.start()

    async def stop(self) -> None:
        """Leave the lifespan."""
        if self._sessions is not None and self._sessions.is_closing:
            self._sessions.close_all()
        await self._life.stop()

    def close_subscriptions(self) -> None:
        """End subscriptions and what waits for a person in good order, as a shutdown begins; calls that work go on."""
        self._catalogue.is_closing = True
        if self._sessions is not None:
            self._sessions.wind_up()
        if self._bus is not None:
            self._bus.close()

    def asgi(self, **options: Unpack[HttpOptions]) -> App:
        """An ASGI application, to be served by itself or mounted in another.

        `host` is the address it will be bound to: on localhost only local Host and Origin values are let in, unless
        `allowed_hosts` and `allowed_origins` say otherwise. The host of a protected resource's own URL is let in too.
        `limits` bounds how many requests are under way; `probes=True` serves `/healthz` and `/readyz`.
        """
        _hosting.warn_of_siblings(self._security, self._sessions)
        parts = _hosting.Parts(
            self.wire, self._handshake, self._life, self.start, self.stop, self._trouble, self._routes.find
        )
        return _hosting.application(parts, *self._auth, options)

    def _trouble(self) -> str | None:
        """Why this server should get no new calls."""
        if self._is_draining or self._catalogue.is_closing:
            return "shutting down"
        return self._life.fault if self._life.is_ready else "not started"

    streamable_http_app = asgi

    def run(self, transport: Transport = "stdio", **options: Any) -> None:
        """Serve until stopped: over standard streams, or over HTTP with `host`, `port` and the options of `asgi`.

        Ctrl-C ends it in good order, and it returns. With `log_level` in the constructor, lines of this level and above
        go to standard error.
        """
        if self._log_level is not None:
            logging.basicConfig(level=self._log_level)
        if transport == "stdio":
            _moving.refuse("run", options, _moving.HTTP)
            with suppress(KeyboardInterrupt):
                asyncio.run(self.run_stdio_async(**options))
        elif transport in ("http", "streamable-http"):
            with suppress(KeyboardInterrupt):
                self._http_server(**options).run()
        else:
            raise ValueError(f"unknown transport {transport!r}: stdio or http")

    async def run_stdio_async(self, *, max_message: int = _hosting.MAX_BODY) -> None:
        """Serve over standard streams until standard input ends."""
        await self.start()
        try:
            await serve_stdio(self.wire, max_message=max_message, on_end=self.close_subscriptions)
        finally:
            await self.stop()

    async def run_http_async(self, **options: Any) -> None:
        """Serve over HTTP in the running loop."""
        await self._http_server(**options).serve()

    run_streamable_http_async = run_http_async

    def _http_server(
        self, *, host: str = "127.0.0.1", port: int = 8000, log_level: str | None = None, **options: Any
    ) -> Any:
        _hosting.check_options("run", options, "port", "log_level")
        level = (log_level or self._log_level or "info").lower()
        from .transports.uvicorn import Endpoint, Stages, make_server

        app, stages = self.asgi(host=host, **options), Stages(self.close_subscriptions)
        endpoint = Endpoint(self.name, options.get("path", "/mcp"))
        return make_server(app, host, port, level, stages, endpoint=endpoint)

    def drain(self) -> None:
        """Say at `/readyz` that this server is about to leave; calls are served on."""
        self._is_draining = True

    def use_keys(self, keys: Sequence[bytes | bytearray | str]) -> None:
        """Go on with other keys, as a rotation does: `keys[0]` mints from now on, every key verifies."""
        self._security.use_keys(keys)

    @property
    def has_drawn_keys(self) -> bool:
        """Whether the keys are not the author's, but drawn for this run."""
        return self._security.is_process_local or self._security.is_inherited

    @property
    def has_sessions(self) -> bool:
        """Whether clients of 2025-11-25 and before are served, whose sessions one process keeps."""
        return self._sessions is not None

    def observe(self, observer: Observer) -> None:
        """Have one more observer told of every round, beside `telemetry`."""
        self._catalogue.watch(self._catalogue.gauge, *self._catalogue.observers, observer)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _moving.no_attribute(self, name)


def _observers(telemetry: Observer | Sequence[Observer] | None) -> Sequence[Observer]:
    if telemetry is None:
        return ()
    return telemetry if isinstance(telemetry, Sequence) else (telemetry,)
