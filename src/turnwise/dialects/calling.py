"""What a client says of itself, what it calls, and how results are read, on every wire."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from ..errors import HandshakeRequired, InvalidReply, MCPError, UnsupportedVersion
from .asking import wire_dict
from .handshake_client import notification
from .listing import CACHEABLE
from .tasking_client import EXTENSION
from .words import CHANGES, ELICIT, FILTER, LISTS, ROOTS, SAMPLE, SERVER_INFO, VERSION

if TYPE_CHECKING:
    from mcp_types import Implementation

LONGEST_FRESHNESS = 24 * 3600.0
ELICITATION: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}}
PEOPLE: Mapping[str, Any] = {**ELICITATION, "sampling": {}, "roots": {}}
"""What people at an inbox can answer."""
_DECLARED: Mapping[str, Mapping[str, Any]] = {
    ELICIT: ELICITATION,
    SAMPLE: {"sampling": {"tools": {}}},
    ROOTS: {"roots": {}},
}
_OPTIONS = {
    "elicitation": (ELICIT, "elicitation_callback="),
    "sampling": (SAMPLE, "sampling_callback="),
    "roots": (ROOTS, "list_roots_callback="),
}
_RESULTS = {
    "tools/call": "CallToolResult",
    "prompts/get": "GetPromptResult",
    "resources/read": "ReadResourceResult",
    "tools/list": "ListToolsResult",
    "prompts/list": "ListPromptsResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "completion/complete": "CompleteResult",
    "server/discover": "DiscoverResult",
}


def declared(methods: Iterable[str], more: Mapping[str, Any] | None, *, tasks: bool = False) -> dict[str, Any]:
    """The capabilities of a client that answers these questions, and that takes tasks."""
    capabilities: dict[str, Any] = {}
    for method in methods:
        capabilities |= _DECLARED[method]
    capabilities |= more or {}
    if tasks:
        capabilities["extensions"] = {**EXTENSION, **capabilities.get("extensions", {})}
    return capabilities


def advised(error: MCPError, methods: Collection[str]) -> MCPError:
    """An error that says what a client would have to declare, with the options that do. It answers `methods`."""
    required = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    known = [_OPTIONS[name] for name in _OPTIONS if isinstance(required, dict) and name in required]
    options = [option for method, option in known if method not in methods]
    if not options:
        return error
    return MCPError(error.code, error.message, error.data, f"pass {' and '.join(options)} to the client")


def introduction(info: "Implementation | None", version: str) -> dict[str, Any]:
    """Who the client says it is."""
    return {"name": "turnwise", "version": version} if info is None else wire_dict(info)


def call_params(member: str, target: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The parameters of a call."""
    if not isinstance(target, str):
        raise TypeError(f"{member} must be a text, not {type(target).__name__}")
    if not isinstance(arguments, Mapping | None):
        raise TypeError(f"arguments must be a mapping, not {type(arguments).__name__}")
    return {member: target} if arguments is None else {member: target, "arguments": dict(arguments)}


def completion_params(
    ref: "BaseModel | Mapping[str, Any]", argument: Mapping[str, str], context: Mapping[str, str] | None
) -> dict[str, Any]:
    """The parameters of a completion."""
    plain = wire_dict(ref) if isinstance(ref, BaseModel) else dict(ref)
    params = {"ref": plain, "argument": dict(argument)}
    return params if context is None else {**params, "context": {"arguments": dict(context)}}


def roots_changed() -> bytes:
    """The notification that the client's folders are no longer those it named."""
    return notification("notifications/roots/list_changed")


def subscription_filter(tools: bool, prompts: bool, resources: bool, uris: Sequence[str]) -> dict[str, Any]:
    """What a subscription wants to hear of."""
    wanted: dict[str, Any] = {}
    for name, wants in (
        ("toolsListChanged", tools),
        ("promptsListChanged", prompts),
        ("resourcesListChanged", resources),
    ):
        if wants:
            wanted[name] = True
    return {**wanted, "resourceSubscriptions": list(uris)} if uris else wanted


def granted(wanted: Mapping[str, Any], discovered: Mapping[str, Any]) -> dict[str, Any]:
    """The part of these wishes that a server can grant, by what it says of itself in a handshake."""
    offers = {kind: offer for kind, offer in discovered["capabilities"].items() if isinstance(offer, dict)}
    kept = {
        name: True
        for name, kind in FILTER.items()
        if wanted.get(name) and offers.get(kind, {}).get("listChanged") is True
    }
    uris = wanted.get("resourceSubscriptions") if offers.get("resources", {}).get("subscribe") is True else None
    return {**kept, "resourceSubscriptions": uris} if uris else kept


def is_granted(honored: Mapping[str, Any], message: Mapping[str, Any]) -> bool:
    """Whether a change is one of those that a subscription was granted; a resource may be part of a subscribed one."""
    if any(message["method"] == CHANGES[kind] for name, kind in FILTER.items() if name in honored):
        return True
    params = message.get("params")
    uri = params.get("uri") if isinstance(params, dict) else None
    return (
        message["method"] == CHANGES["resource"]
        and isinstance(uri, str)
        and any(uri == whole or uri.startswith(whole.rstrip("/") + "/") for whole in subscribed(honored))
    )


def subscribed(honored: Mapping[str, Any]) -> Sequence[str]:
    """The resources that a subscription is about."""
    uris: Sequence[str] = honored.get("resourceSubscriptions", ())
    return uris


@cache
def _reader(method: str) -> Callable[[Any], Any]:
    """How a result of this method is read; the official types are imported when the first one comes."""
    import mcp_types

    kind: type[BaseModel] = getattr(mcp_types, _RESULTS[method])
    return kind.__pydantic_validator__.validate_python


def typed(method: str, result: Mapping[str, Any]) -> Any:
    """A complete result as its official type."""
    try:
        return _reader(method)(result)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in fault["loc"])
        raise InvalidReply(f"the result of {method} is not what it should be: {place}: {fault['msg']}") from None


def page_params(cursor: str | None) -> dict[str, Any]:
    """The parameters for one page of a list."""
    return {} if cursor is None else {"cursor": cursor}


def next_cursor(result: Mapping[str, Any]) -> str | None:
    """Where the page after this one begins; None after the last."""
    cursor = result.get("nextCursor")
    if not isinstance(cursor, str | None):
        raise InvalidReply("a cursor is no text")
    return cursor


def entries(method: str, result: Any) -> list[Any]:
    """The entries of one page."""
    names = {"resourceTemplates": "resource_templates"}
    member = LISTS[method]
    found: list[Any] = getattr(result, names.get(member, member))
    return found


def freshness(method: str, result: Mapping[str, Any]) -> tuple[float, bool]:
    """For how many seconds a result is fresh, and whether other clients may share it."""
    ttl = result.get("ttlMs")
    if method not in CACHEABLE or type(ttl) is not int or ttl <= 0:
        return 0.0, False
    return min(ttl, LONGEST_FRESHNESS * 1000) / 1000, result.get("cacheScope") == "public"


def check_versions(result: Mapping[str, Any]) -> None:
    """UnsupportedVersion where a discovered server does not speak this wire; HandshakeRequired where it only says yes
    to everything, as some that know nothing of discovery do.
    """
    versions = result.get("supportedVersions")
    if not isinstance(versions, list):
        raise HandshakeRequired("the server answers server/discover, and names no versions")
    if VERSION not in versions:
        raise UnsupportedVersion(VERSION, [str(version) for version in versions])


def server_info(result: Mapping[str, Any]) -> "Implementation | None":
    """Who the server says it is."""
    from mcp_types import Implementation

    meta = result.get("_meta")
    info = meta.get(SERVER_INFO) if isinstance(meta, dict) else None
    try:
        return None if info is None else Implementation.model_validate(info)
    except ValidationError:
        return None
