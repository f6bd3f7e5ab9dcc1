"""What clients share on every wire that opens with `initialize`: how a session is begun, and the words said in it.

The versions of this kind differ in how a server asks; each has a `Caller` of its own that says how.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .._json import encode
from .._messages import Incoming, Outgoing
from ..errors import InvalidReply, UnsupportedVersion
from . import v2026_07_28_client
from .words import DRAFTS, HANDSHAKES, ROOTS, SERVER_INFO, SESSION

INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32600, -32601, -32602, -32603
UNASSOCIATED = "{method} may be asked only in the course of a request of the client's; this belongs to none (SEP-2260)"
OVER = "The request that this was asked in is over (SEP-2260)"
LONGEST_ID = 64 * 1024
"""Characters of an event's id that are still sent back in a header."""
_VERSION_HEADER = "MCP-Protocol-Version"


class Turn:
    """What a server says in the course of one request and means for this room. On most wires that is nothing: whoever
    makes the request hears it all.
    """

    def takes(self, message: Any) -> bool:
        """Whether this was meant for nobody else."""
        return False

    def ended(self, incoming: Incoming) -> Incoming:
        """The reply, or what was made of it."""
        return incoming


NO_TURN = Turn()


class HandshakeCaller(v2026_07_28_client.Caller):
    """One client after its handshake: nothing is repeated in each request that was said in the first one."""

    marks: Mapping[str, bool] = MappingProxyType({})

    def __init__(self, before: v2026_07_28_client.Caller, version: str) -> None:
        super().__init__({}, None, has_headers=False)
        self._ids = before._ids  # A late reply to what was sent before must find nobody.
        self.version = version

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
        own = dict(meta or {})
        if with_progress:
            own["progressToken"] = number
        whole = {**params, "_meta": own} if own else dict(params)
        message = {"jsonrpc": "2.0", "id": number, "method": method, **self._members(whole)}
        return Outgoing(number, method, encode(message), {}, self.is_safe(method, params), lasts=True, marks=self.marks)

    def turn(self, request: Outgoing) -> Turn:
        """Who collects what is meant for this wire alone."""
        return NO_TURN

    def _members(self, params: dict[str, Any]) -> dict[str, Any]:
        """Where the parameters stand in a message."""
        return {"params": params}


def opening(version: str, capabilities: Mapping[str, Any], info: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `initialize`."""
    declared = dict(capabilities)
    if isinstance(declared.get("roots"), dict):
        declared["roots"] = {"listChanged": True, **declared["roots"]}
    return {"protocolVersion": version, "capabilities": declared, "clientInfo": dict(info)}


def negotiated(result: Mapping[str, Any], wanted: str) -> str:
    """The version that the server chose; UnsupportedVersion where it is none of ours."""
    version, info = result.get("protocolVersion"), result.get("serverInfo")
    if not isinstance(version, str) or not isinstance(result.get("capabilities"), dict) or not isinstance(info, dict):
        raise InvalidReply("the result of initialize has no version, no capabilities or no server")
    if version not in HANDSHAKES and (version not in DRAFTS or version != wanted):
        raise UnsupportedVersion(wanted, [version])
    return version


def offered(data: Any) -> str | None:
    """The newest version that a server names when it refuses the one it was asked for, if it is one of ours."""
    named = data.get("supported") if isinstance(data, dict) else None
    ours = [version for version in HANDSHAKES if isinstance(named, list) and version in named]
    return ours[-1] if ours else None


def discovered(result: Mapping[str, Any], version: str) -> dict[str, Any]:
    """The result of `initialize` in the shape of a discovery."""
    told = {name: result[name] for name in ("capabilities", "instructions") if result.get(name) is not None}
    return {"supportedVersions": [version], "_meta": {SERVER_INFO: result["serverInfo"]}, **told}


def session_headers(version: str, headers: Mapping[str, str] | None) -> dict[str, str]:
    """What every request of a session carries over HTTP."""
    own = {_VERSION_HEADER: version}
    session = (headers or {}).get(SESSION)
    if session is None:
        return own
    # "The session ID MUST only contain visible ASCII characters (ranging from 0x21 to 0x7E)."
    if not all("\x21" <= character <= "\x7e" for character in session):
        raise InvalidReply("the id of the session has characters that a header cannot carry")
    return {**own, SESSION: session}


def can_be_sent(event_id: str) -> bool:
    """Whether the id of an event fits the header that names it."""
    return 0 < len(event_id) <= LONGEST_ID and event_id.isprintable() and event_id == event_id.strip()


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A message that has no reply."""
    message = {"jsonrpc": "2.0", "method": method}
    return encode(message if params is None else {**message, "params": params})


def response(request_id: str | int, result: Mapping[str, Any]) -> bytes:
    """The answer to a question of the server's."""
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def refusal(request_id: str | int, code: int, message: str, data: Any = None) -> bytes:
    """The error in place of an answer."""
    error = {"code": code, "message": message}
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error if data is None else {**error, "data": data}})


def missing_callback(version: str, method: str) -> tuple[int, str]:
    """What a server is told that asks what nobody here can answer.

    2025-11-25: "elicitation/create request with a mode not declared in client capabilities: -32602"; "Client does not
    support roots: -32601"; the older versions and the other questions have only what JSON-RPC says of unknown methods.
    """
    if method == "elicitation/create" and version >= HANDSHAKES[-1]:
        return INVALID_PARAMS, "The client did not declare elicitation in this mode"
    return METHOD_NOT_FOUND, "Roots not supported" if method == ROOTS else f"Method not found: {method}"
