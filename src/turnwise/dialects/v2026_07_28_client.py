"""The client's half of protocol 2026-07-28: requests that are complete in themselves, and what their replies say.

A `Caller` writes one client's requests and reads the replies. It remembers what the tool list says about headers, about
results, and about which tools may be called twice. It does no I/O.
"""

import itertools
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from .._json import encode
from .._messages import Incoming, Outgoing
from .._schemas import Check, check_for_peers
from ..errors import InvalidReply, InvalidSignature, MCPError, UnexpectedStatus, UnknownResultType
from . import mirrored
from .listing import mirrored_parameters
from .tasking_client import became
from .words import (
    CAPABILITIES,
    CLIENT_INFO,
    HANDSHAKES,
    LISTS,
    LOG_LEVEL,
    MOST_QUESTIONS,
    NAMED,
    PROTOCOL,
    SUBSCRIPTION,
    TARGETS,
    VERSION,
)

LONGEST_STATE = 1024 * 1024
MOST_OF_OUTPUT = 100_000
"""So many steps it may take to read the output schema of a tool, when the first result comes."""
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022
UNKNOWN_METHOD = -32601
_FEW_KEYS = 4
_DOOR = (401, 403, 421, 429, 503)

_SAFE = {*LISTS, *TARGETS, "server/discover", "completion/complete"} - {"tools/call"} | {
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
}
"""Methods that only read, and those that say the same when they are said twice."""
_OPENING = ("server/discover", "initialize")
""""The `initialize` request MUST NOT be cancelled by clients"; and a server that has only heard the other may wait for
it.
"""

log = logging.getLogger("turnwise.client")


class Tool(NamedTuple):
    """What has to be known of a tool to call it: headers that repeat arguments, whether it may be called twice, and
    what makes a check of its results.
    """

    marks: Mapping[bytes, tuple[str, ...]]
    safe: bool
    check: Callable[[], Check | None]


class Caller:
    """One client, speaking 2026-07-28."""

    version: str = VERSION

    def __init__(self, info: Mapping[str, Any], log_level: str | None, *, has_headers: bool) -> None:
        self._meta: dict[str, Any] = {PROTOCOL: VERSION, CLIENT_INFO: dict(info)}
        if log_level is not None:
            self._meta[LOG_LEVEL] = log_level
        self._has_headers = has_headers
        self._ids = itertools.count(1)
        self._tools: dict[str, Tool] = {}

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        meta: Mapping[str, Any] | None = None,
        *,
        with_progress: bool = False,
    ) -> Outgoing:
        """A request under an id of its own."""
        number = next(self._ids)
        own = {**self._meta, CAPABILITIES: capabilities}
        if meta:
            own = {**meta, **own}
        if with_progress:
            own["progressToken"] = number
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": own}}
        tool = self._tools.get(str(params.get("name"))) if method == "tools/call" else None
        headers = self._headers(method, params, tool) if self._has_headers else {}
        safe = method in _SAFE or (tool is not None and tool.safe)
        return Outgoing(number, method, encode(message), headers, safe)

    def is_safe(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether sending this twice does no harm."""
        tool = self._tools.get(str(params.get("name"))) if method == "tools/call" else None
        return method in _SAFE or (tool is not None and tool.safe)

    def _headers(self, method: str, params: Mapping[str, Any], tool: Tool | None) -> dict[str, str]:
        name = params.get(NAMED[method]) if method in NAMED else None
        headers = mirrored.written(method, name if isinstance(name, str) else None, VERSION)
        if tool is not None and tool.marks:
            headers |= mirrored.written_parameters(tool.marks, params.get("arguments", {}))
        return headers

    def read(self, request: Outgoing, incoming: Incoming) -> dict[str, Any]:
        """The result; MCPError where the server refused, InvalidReply where this is no reply."""
        message = incoming.message
        if type(message) is not dict or message.get("jsonrpc") != "2.0" or "method" in message:
            raise _no_reply(incoming, "not a JSON-RPC response")
        number, result = message.get("id"), message.get("result")
        is_mine = number == request.id and type(number) is type(request.id)
        if not is_mine or "error" in message or type(result) is not dict:
            raise _refusal(request, incoming, is_mine)
        kind = result.get("resultType", "complete")
        if kind == "input_required":
            _check_interim(request, result, incoming.raw)
        elif kind == "task" and self.version == VERSION:
            if request.method != "tasks/get":  # There, two of the extension's examples have it in place of "complete".
                raise became(request.method, result)
        elif kind != "complete":
            raise UnknownResultType(kind)
        return result

    def learn(self, result: dict[str, Any]) -> dict[str, Any]:
        """Remember the tools of a list, and leave out those that cannot be called.

        "the client MUST exclude the invalid tool from the result of `tools/list`", where headers are sent.
        """
        tools = result.get("tools")
        if not isinstance(tools, list):
            raise InvalidReply("the list of tools has no tools")
        kept = [tool for tool in tools if self._remember(tool)]
        return {**result, "tools": kept}

    def _remember(self, tool: Any) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            return True  # The official type says better what is missing.
        try:
            marks = mirrored_parameters(name, tool["inputSchema"]) if self._has_headers else {}
        except (InvalidSignature, LookupError, AttributeError, TypeError, RecursionError) as error:
            log.warning("tool %r is left out of the list: %s", name, error)
            self._tools.pop(name, None)
            return False
        hints = tool.get("annotations") or {}
        safe = isinstance(hints, dict) and (hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True)
        self._tools[name] = Tool(marks, safe, cache(partial(_result_check, name, tool.get("outputSchema"))))
        return True

    def check_result(self, name: str, result: Mapping[str, Any]) -> None:
        """Hold a tool's structured result against the schema that it was listed with."""
        tool = self._tools.get(name)
        check = None if tool is None or result.get("isError") is True else tool.check()
        if check is None:
            return
        if "structuredContent" not in result:
            raise InvalidReply(f"tool {name!r} has an output schema and returned no structured content")
        try:
            check(result["structuredContent"])
        except ValueError as error:
            raise InvalidReply(f"the result of tool {name!r} does not fit its own schema: {error}") from None


def is_older(error: MCPError | UnexpectedStatus) -> bool:
    """Whether a server that answers discovery so speaks only versions with a handshake: no error of this version, and
    a status, if there is one, that says nothing else.
    """
    if isinstance(error, MCPError):
        return error.code not in (HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION)
    return error.status in (400, 404, 405) and not error.is_told


def speaks_older(supported: Sequence[str]) -> bool:
    """Whether a server that names these versions is worth a handshake."""
    return any(version in HANDSHAKES for version in supported)


def owner(message: Any) -> Any:
    """The id of the request that a message on a shared channel belongs to, or None."""
    if not isinstance(message, dict):
        return None
    if "method" not in message:
        return message.get("id")
    params = message.get("params")
    if not isinstance(params, dict):
        return None
    meta = params.get("_meta")
    subscription = meta.get(SUBSCRIPTION) if isinstance(meta, dict) else None
    return params.get("progressToken") if subscription is None else subscription


def cancellation(request: Outgoing, reason: str) -> bytes | None:
    """The notification that ends a request; None where an older server would not expect one."""
    if request.method in _OPENING:
        return None
    params = {"requestId": request.id, "reason": reason}
    return encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})


def _result_check(name: str, schema: Any) -> Check | None:
    if not isinstance(schema, Mapping):
        return None
    try:
        return check_for_peers(schema, MOST_OF_OUTPUT, with_formats=False)
    except ValueError as error:
        log.warning("the results of tool %r cannot be checked, its output schema cannot be used: %s", name, error)
        return None


def _refusal(request: Outgoing, incoming: Incoming, is_mine: bool) -> Exception:
    """What is wrong with a reply that has no result. An error may come without an id: its request was not readable."""
    message = incoming.message
    if not is_mine and (message.get("id") is not None or "error" not in message):
        return _no_reply(incoming, f"the reply is to {message.get('id')!r}, the request was {request.id!r}")
    return _error(incoming, message) if "error" in message else _no_reply(incoming, "the result is no object")


def _no_reply(incoming: Incoming, reason: str) -> Exception:
    if incoming.status >= 300:
        return UnexpectedStatus(incoming.status, incoming.raw[:200].decode("utf-8", "replace"), incoming.headers)
    return InvalidReply(reason)


def _error(incoming: Incoming, message: Mapping[str, Any]) -> Exception:
    error = message["error"]
    if not isinstance(error, dict) or type(error.get("code")) is not int or type(error.get("message")) is not str:
        return _no_reply(incoming, "the error has no code and message")
    if "result" in message:
        return InvalidReply("the reply has both a result and an error")
    if incoming.status in _DOOR or (incoming.status == 404 and error["code"] != UNKNOWN_METHOD):
        # Something before the protocol said no: what to do about it depends on the status, not on the code.
        return UnexpectedStatus(incoming.status, error["message"], incoming.headers, is_told=True)
    return MCPError(error["code"], error["message"], error.get("data"))


def _check_interim(request: Outgoing, result: dict[str, Any], raw: bytes) -> None:
    if request.method not in TARGETS:
        raise InvalidReply(f"{request.method} cannot be answered with a question")
    requests, state = result.get("inputRequests"), result.get("requestState")
    if requests is not None and type(requests) is not dict:
        raise InvalidReply("inputRequests is no object")
    if requests is not None and len(requests) > MOST_QUESTIONS:
        raise InvalidReply(f"more than {MOST_QUESTIONS} questions at once")
    if state is not None and type(state) is not str:
        raise InvalidReply("requestState is no string")
    if requests is None and state is None:
        raise InvalidReply("the result asks nothing and has no state: it cannot be retried")
    if state is not None and len(state) > LONGEST_STATE:
        raise InvalidReply(f"requestState has {len(state)} characters; at most {LONGEST_STATE} are carried")
    if requests:
        _check_keys(requests, raw)


def _check_keys(requests: Mapping[str, Any], raw: bytes) -> None:
    """Two questions under one key would leave one of them unseen. Only a suspicious text is read a second time."""
    if b"\\" not in raw:
        keys = {b"inputRequests", *(key.encode() for key in requests)}
        if len(keys) <= _FEW_KEYS:  # To look for each is quicker, where there are not many.
            if all(raw.count(b'"%b"' % key) == 1 for key in keys):
                return
        elif sum(text in keys for text in raw.split(b'"')[1::2]) == len(keys):
            return
    try:
        json.loads(raw, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise InvalidReply(f"the reply cannot be read: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidReply("the reply has the same key twice in one object")
    return found
