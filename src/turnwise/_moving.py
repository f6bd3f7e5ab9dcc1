"""What those look for who come from another library, and what it is called here. Told where something is refused.

The guides to moving have the same in their tables; a test holds the two together.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_JSON = "leave it out: a reply is plain JSON unless a call has something to say before it ends"
_STATELESS = "leave it out: 2026-07-28 knows no sessions, and MCPServer(sessions=False) turns older clients away"
_HOSTS = 'it is allowed_hosts=[...] and allowed_origins=[...] here, and ["*"] lets all in'
_TWO_ENDPOINTS = 'the transport with two endpoints (HTTP+SSE) is not served; run("http") is'
_ERRORS = "leave it out: only the text of a ToolError is sent"
_TWICE = "leave it out: what is registered twice is warned of in the log"
_PATHS = "leave it out: what would climb out of its place, by .. or a leading slash, never matches a template"
_MIDDLEWARE = "nothing stands around calls here: decorate the functions, or wrap the application, server.asgi()"
_COMPOSED = "a server is not made of others: register the functions, or mount two applications"
_CLIENT = "call it as clients do: async with Client(server) as client"

SERVER: Mapping[str, str] = {
    "auth_server_provider": "a server here verifies tokens, token_verifier= and auth=, and gives out none",
    "debug": 'leave it out: what goes wrong is in the log, and log_level="DEBUG" shows more of it',
    "dependencies": "leave it out: dependencies are named where the server is installed from",
    "extensions": "a method of your own is @server.handler(method)",
    "middleware": _MIDDLEWARE,
    "resource_security": _PATHS,
    "resources": "register each: server.resource(uri)(fn)",
    "tools": "register each: server.add_tool(fn)",
    "warn_on_duplicate_prompts": _TWICE,
    "warn_on_duplicate_resources": _TWICE,
    "warn_on_duplicate_tools": _TWICE,
    "cache_scope": "it is cache_hints={method: CacheHint(...)} here",
    "cache_ttl": "it is cache_hints={method: CacheHint(...)} here",
    "client_log_level": "leave it out: each client says from which level on it wants log lines",
    "dereference_schemas": "leave it out: schemas are published as pydantic writes them",
    "experimental_capabilities": "a method of your own is @server.handler(method)",
    "list_page_size": "it is page_size= here",
    "mask_error_details": _ERRORS,
    "on_duplicate": _TWICE,
    "providers": _COMPOSED,
    "session_state_store": "local variables last for a call; between calls, use a store of yours",
    "strict_input_validation": "leave it out; for strict arguments, annotate with Field(strict=True)",
    "transforms": _COMPOSED,
}
"""Options of the constructor."""

HTTP: Mapping[str, str] = {
    "event_store": "leave it out: the streams of a session can be taken up again as they are",
    "json_response": _JSON,
    "max_request_body_size": "it is max_body= here",
    "max_sessions": "it is MCPServer(sessions=SessionLimits(most=...)) here",
    "message_path": _TWO_ENDPOINTS,
    "retry_interval": "leave it out: clients are told when to come back",
    "session_idle_timeout": "it is MCPServer(sessions=SessionLimits(idle=...)) here",
    "sse_path": _TWO_ENDPOINTS,
    "stateless_http": _STATELESS,
    "streamable_http_path": "it is path= here",
    "transport_security": _HOSTS,
    "host_origin_protection": _HOSTS,
    "middleware": "wrap the application: server.asgi() is one of ASGI",
    "show_banner": "leave it out: there is none",
    "sockets": "run uvicorn yourself, with server.asgi()",
    "stateless": _STATELESS,
    "uvicorn_config": "run uvicorn yourself, with server.asgi()",
}
"""Options of `run` and `asgi`."""

FUNCTION: Mapping[str, str] = {
    "security": _PATHS,
    "app": "interfaces in the host are said by meta=",
    "auth": "look at ctx.access_token in the function",
    "output_schema": "it is made of the return annotation; structured_output=False leaves it out",
    "run_in_thread": "leave it out: a plain def runs in a thread",
    "tags": "there are none; what clients are to see goes into meta=",
    "timeout": "leave it out, or use asyncio.timeout in the function",
}
"""Options of `tool`, `prompt` and `resource`."""

ATTRIBUTES: Mapping[str, str] = {
    "add_prompt": "register the function: server.prompt(name)(fn)",
    "add_resource": "register a function: server.resource(uri)(fn)",
    "call_tool": _CLIENT,
    "get_prompt": _CLIENT,
    "list_prompts": _CLIENT,
    "list_resource_templates": _CLIENT,
    "list_resources": _CLIENT,
    "list_tools": _CLIENT,
    "middleware": _MIDDLEWARE,
    "run_sse_async": _TWO_ENDPOINTS,
    "session_manager": "nothing has to be run beside the application; mounted, it starts by itself",
    "sse_app": _TWO_ENDPOINTS,
    "add_middleware": _MIDDLEWARE,
    "disable": "remove_tool, remove_prompt and remove_resource take something away for all clients",
    "enable": "everything that is registered is served",
    "from_fastapi": _COMPOSED,
    "from_openapi": _COMPOSED,
    "http_app": "it is server.asgi() here",
    "mount": _COMPOSED,
    "render_prompt": _CLIENT,
    "run_async": "it is run_stdio_async() or run_http_async() here",
}
"""Attributes of a server."""


_STATE = "local variables last for a call, over its rounds; between calls, use a store of yours"
_VISIBLE = "every client sees the same: remove_tool, remove_prompt and remove_resource of the server take away for all"
_EXTENSIONS = "what the client can do is ctx.client_capabilities; a method of your own is @server.handler(method)"
_INSIDE = "call the function itself"

CONTEXT: Mapping[str, str] = {
    "client_extension_settings": _EXTENSIONS,
    "client_id": "it is in ctx.access_token",
    "client_supports_extension": _EXTENSIONS,
    "close_standalone_sse_stream": "leave it out: nothing of a call is on that stream",
    "delete_state": _STATE,
    "disable_components": _VISIBLE,
    "enable_components": _VISIBLE,
    "fastmcp": "it is ctx.mcp_server here",
    "get_prompt": _INSIDE,
    "get_state": _STATE,
    "is_background_task": "it is ctx.is_task here",
    "lifespan_context": "it is ctx.lifespan here",
    "list_prompts": _INSIDE,
    "list_resources": _INSIDE,
    "origin_request_id": "ctx.flow_id is the same in all rounds of a call",
    "reset_visibility": _VISIBLE,
    "send_notification": _EXTENSIONS,
    "session_id": "2026-07-28 knows no sessions; ctx.flow_id is the same in all rounds of a call",
    "set_state": _STATE,
    "task_id": "ctx.is_task says whether it is one, and ctx.flow_id is the same in all its legs",
    "transport": "ctx.headers is None on standard streams",
}
"""Attributes of a context."""

ASKED: Mapping[str, str] = {
    "response_description": "write Annotated[str, Field(description=...)] as the schema",
    "response_title": "write Annotated[str, Field(title=...)] as the schema",
    "response_type": "it is schema= here",
}
"""Options of `ctx.elicit`. It is called in every round, so they are looked for only when it has failed."""
_UNEXPECTED = re.compile(r"Context\.elicit\(\) got an unexpected keyword argument '(\w+)'")


def unknown(what: str, name: str, words: Mapping[str, str], known: Collection[str] = ()) -> str:
    """What is said of an option that there is not."""
    told = f"{what} has no option {name!r}"
    if name in words:
        return f"{told}: {words[name]}"
    return f"{told}: there are {', '.join(known)}" if known else told


def refuse(what: str, options: Mapping[str, Any], words: Mapping[str, str]) -> None:
    """TypeError for an option of another library, with what it is called here."""
    if found := options.keys() & words.keys():
        raise TypeError(unknown(what, min(found), words))


def explained(what: str, words: Mapping[str, str]) -> Callable[[F], F]:
    """Have a function refuse options of another library in such words. All else is as it was."""

    def decorate(fn: F) -> F:
        @wraps(fn)
        def call(*args: Any, **options: Any) -> Any:
            refuse(what, options, words)
            return fn(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


def option_of_asking(error: Exception) -> str | None:
    """What is said of an exception that is about an option of another library's `ctx.elicit`."""
    found = _UNEXPECTED.match(str(error)) if isinstance(error, TypeError) else None
    return None if found is None or found[1] not in ASKED else unknown("ctx.elicit", found[1], ASKED)


def no_attribute(found: Any, name: str, known: Mapping[str, str] = ATTRIBUTES) -> AttributeError:
    """What is said of an attribute that a server, or a context, does not have."""
    told = f"{type(found).__name__!r} object has no attribute {name!r}"
    words = known.get(name)
    return AttributeError(told if words is None else f"{told}: {words}", name=name, obj=found)
