"""How the wires that open with `initialize` do so, and how a message finds its session again.

A session is kept in memory, or, on wires whose calls wait for nobody, sealed into its own id, which any instance can
read. On a line that lasts, as a process's standard streams, the line is the session.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from .._json import decode, encode
from .._messages import Post, Reply
from .._sealed import RequestStateSecurity
from .._sessions import Session, Sessions
from ..errors import InvalidParams, InvalidRequestState, MalformedMessage, UnknownSession, UnsupportedVersion
from .replying import result_reply
from .tasking import SHAPES
from .words import HANDSHAKES, SEP_1858, TASKS, VERSION

SESSION, PROTOCOL = b"mcp-session-id", b"mcp-protocol-version"
EVERYTHING: Mapping[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
LARGEST_OPENING = 64 * 1024
"""Bytes of `initialize`: what it says is kept for as long as the session."""
LONGEST_ID = 6 * 1024
"""Characters of a session's id where it carries what the client said of itself."""
_KEPT = ("elicitation", "sampling", "roots", "tasks", "extensions")
"""What is remembered of a client's capabilities: what a server looks at."""
_SEALED = "handshake"


class Offer(Protocol):
    """What a server says of itself."""

    info: Mapping[str, Any]
    instructions: str | None

    def capabilities(self) -> dict[str, Any]:
        """What it offers."""
        ...


class Reception:
    """Where sessions are opened and found."""

    def __init__(
        self, offer: Offer, sessions: Sessions, security: RequestStateSecurity, versions: Collection[str]
    ) -> None:
        self._offer = offer
        self._sessions = sessions
        self._security = security
        self._versions = versions

    def initialize(self, message: dict[str, Any], post: Post) -> Reply:
        """Open a session, in the version that the client names or in the newest of ours."""
        params = message.get("params")
        asked = params.get("protocolVersion") if isinstance(params, dict) else None
        if not isinstance(params, dict) or not isinstance(asked, str):
            raise InvalidParams("params.protocolVersion must be a string")
        capabilities, client = params.get("capabilities", {}), params.get("clientInfo")
        if not isinstance(capabilities, dict):
            raise InvalidParams("params.capabilities must be an object")
        capabilities = {name: part for name, part in capabilities.items() if name in _KEPT and len(encode(part)) < 1024}
        if isinstance(client, dict):
            client = {name: client[name][:200] for name in ("name", "version") if isinstance(client.get(name), str)}
        if len(post.body) > LARGEST_OPENING:
            raise InvalidParams(f"initialize has more than {LARGEST_OPENING} bytes")
        is_served = asked in self._versions and not (asked == SEP_1858 and post.line is not None)
        version = asked if is_served else HANDSHAKES[-1]
        session, headers = self._opened(version, capabilities, client, post)
        result = {
            "protocolVersion": version,
            "capabilities": offered(self._offer.capabilities(), session, is_known=_is_known(post)),
            "serverInfo": dict(self._offer.info),
        }
        if self._offer.instructions is not None:
            result["instructions"] = self._offer.instructions
        return Reply(200, result_reply(message["id"], result), headers)

    def _opened(
        self, version: str, capabilities: dict[str, Any], client: Any, post: Post
    ) -> tuple[Session, list[tuple[bytes, bytes]]]:
        principal = _principal(post)
        if post.line is not None:
            if post.line.session is not None:
                post.line.session.close()
            post.line.session = session = Session("", version, capabilities, client, principal, post.now)
            return session, []
        if version in HANDSHAKES:
            session = self._sessions.open(version, capabilities, client, principal, post.now)
            return session, [(b"mcp-session-id", session.id.encode())]
        facts = [_SEALED, self._offer.info["name"], int(post.now), version, capabilities, client, principal]
        token = self._security.codec.seal(encode(facts))
        if len(token) > LONGEST_ID:
            raise InvalidParams("the client says more of itself than a header can carry")
        return _stateless(version, capabilities, client, principal, post.now), [(b"mcp-session-id", token.encode())]

    def find(self, post: Post) -> Session | None:
        """The session that a message belongs to, None where it belongs to none; UnknownSession where that is over."""
        if post.line is not None:
            session: Session | None = post.line.session
            return session
        if post.headers is None:
            return None
        spoken = post.headers.get(PROTOCOL, b"").decode("latin-1")
        session_id = post.headers.get(SESSION, b"").decode("latin-1")
        if spoken == VERSION or (not session_id and spoken not in self._versions):
            return None
        if spoken and spoken not in self._versions:
            raise UnsupportedVersion(spoken, tuple(self._versions))
        if not session_id:
            if spoken in HANDSHAKES:
                raise MalformedMessage("Mcp-Session-Id is missing: initialize opens a session, and its reply names it")
            # These wires need no session; who opens none is taken to be able to answer whatever it is asked.
            return _stateless(spoken, EVERYTHING, None, _principal(post), post.now)
        session = self._sessions.find(session_id, _principal(post), post.now) or self._unsealed(session_id, post)
        if session is None or (spoken and spoken not in HANDSHAKES and spoken != session.version):
            raise UnknownSession
        return session

    def _unsealed(self, session_id: str, post: Post) -> Session | None:
        try:
            kind, name, opened, version, capabilities, client, principal = decode(self._security.opened(session_id))
        except (InvalidRequestState, ValueError, TypeError):
            return None
        is_ours = kind == _SEALED and name == self._offer.info["name"]
        is_fresh = is_ours and post.now < opened + self._sessions.limits.age
        if not is_fresh or version not in self._versions or principal != _principal(post):
            return None
        return _stateless(version, capabilities, client, principal, opened)


def _stateless(
    version: str, capabilities: Mapping[str, Any], client: Any, principal: str | None, now: float
) -> Session:
    return Session("", version, capabilities, client, principal, now, is_kept=False)


def _principal(post: Post) -> str | None:
    return None if post.access is None else post.access.principal


def _is_known(post: Post) -> bool:
    """Whether a caller can be told from others: by a token, or because the line is its own."""
    return post.headers is None or post.access is not None


def offered(capabilities: dict[str, Any], session: Session, *, is_known: bool) -> dict[str, Any]:
    """What the server offers in a session. One that is not kept has nowhere to note a level or a subscription. Tasks
    are a capability here, where later they are an extension; a list of them is for callers that are known.
    """
    shown = {name: part for name, part in capabilities.items() if name != "extensions"}
    if TASKS in capabilities.get("extensions", {}) and session.version in SHAPES:
        tasks: dict[str, Any] = {"cancel": {}, "requests": {"tools": {"call": {}}}}
        shown["tasks"] = {"list": {}, **tasks} if is_known else tasks
    if session.is_kept:
        return shown
    return {name: part if name == "tasks" else {} for name, part in shown.items() if name != "logging"}
