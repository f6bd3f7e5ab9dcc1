"""What all wires share that open with `initialize`: the messages of a session, and the methods that live in one.

`Handshake` stands behind the wire of 2026-07-28 and is asked for whatever that one does not know: by how a client
opens, both are served at one endpoint. Which version a session speaks is settled when it is opened; what differs
between the versions is a `Manner`, one file each: where answers come from, and how a call asks.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Protocol

from .._bus import SubscriptionBus
from .._json import encode
from .._messages import Call, Outcome, Post, Reply
from .._sealed import RequestStateSecurity
from .._sessions import Session, Sessions, Underway
from ..errors import InvalidParams, MalformedMessage, UnknownMethod
from .listing import page
from .opening import Reception
from .refusing import verdict
from .replying import readable_id, refuse, result_reply
from .streaming import LAST_EVENT, STANDALONE, framed, listen, resumed, speak
from .tasking import SHAPES
from .words import CAPABILITIES, CLIENT_INFO, DRAFT_2026_02, HANDSHAKES, LEVELS, LISTS, LOG_LEVEL, NAMED, SEP_1858

log = logging.getLogger("turnwise.server")

BATCH = 100
"""So many messages may come at once, in versions that let them."""
WATCHED = 1000
"""So many resources may one session watch."""

_NAMED = {**NAMED, "tasks/result": "taskId"}

Handler = Callable[[Call], Awaitable[Outcome]]


class Service(Protocol):
    """What these wires need to know of a server."""

    info: Mapping[str, Any]
    instructions: str | None
    page_size: int | None
    bus: SubscriptionBus | None

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """Who serves which method."""
        ...

    def entries(self, method: str) -> Mapping[str, dict[str, Any]]:
        """The definitions that a list method shows."""
        ...

    def capabilities(self) -> dict[str, Any]:
        """What the server offers."""
        ...

    def task_support(self, tool: str) -> str | None:
        """Whether a tool is called as a task."""
        ...


class Manner(Protocol):
    """How one of these wires asks, and how it is answered."""

    def given(self, message: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        """The answers and the token that a request brings."""
        ...

    async def serve(self, session: Session, call: Call, handler: Handler) -> Reply:
        """One request that may ask, to its reply."""
        ...

    def dress(self, result: dict[str, Any]) -> dict[str, Any]:
        """A complete result, as this wire writes it."""
        ...


class Turns(Manner, Protocol):
    """A manner in which answers come as an array of responses."""

    async def left(self, post: Post) -> tuple[dict[str, Any], str, list[str]]:
        """The request that the responses belong to, its token, and the ids of what it asked."""
        ...

    def answers(self, messages: list[Any], asked: Collection[str]) -> Mapping[str, Any]:
        """What the responses say to what was asked."""
        ...


class Handshake:
    """One server, spoken to in versions that open with `initialize`."""

    def __init__(
        self,
        service: Service,
        sessions: Sessions,
        security: RequestStateSecurity,
        manners: Mapping[str, Manner],
        turns: Turns | None = None,
    ) -> None:
        self._service = service
        self._sessions = sessions
        self._manners = manners if turns is None else {**manners, SEP_1858: turns}
        self._turns = turns
        self._reception = Reception(service, sessions, security, self._manners.keys())
        self._own: dict[str, Callable[[Session, Call], dict[str, Any]]] = {
            "ping": lambda session, call: {},
            "logging/setLevel": self._set_level,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            **dict.fromkeys(LISTS, self._list),
        }

    async def answer(self, message: Any, post: Post) -> Reply | None:
        """The reply to a message that is not of 2026-07-28, or None where it is of none of these versions either."""
        try:
            if _is_opening(message):
                return self._reception.initialize(message, post)
            session = self._reception.find(post)
            if session is None:
                return None
            if isinstance(message, list):
                return await self._several(session, message, post)
        except Exception as error:
            return refuse(message, error, verdict, dict)
        return await self._replied(session, message, post)

    async def attend(self, verb: str, post: Post) -> Reply | None:
        """The reply to GET, which opens a stream, or to DELETE, which ends a session; None where neither is served."""
        try:
            session = self._reception.find(post)
            if session is None or not session.is_kept:
                return None
            if verb == "DELETE":
                self._sessions.close(session)
                return Reply(204, None)
            if (last := (post.headers or {}).get(LAST_EVENT)) is not None:
                return resumed(session, last)
            stream = session.stream(STANDALONE)
            await self._listen(session, stream.put)
            return Reply(200, None, (), framed(session, stream))
        except Exception as error:
            return refuse(None, error, verdict, dict)

    # Messages

    async def _several(self, session: Session, messages: list[Any], post: Post) -> Reply:
        """An array: the answers of a turn, or, as the two oldest versions have it, a batch."""
        if self._turns is not None and session.version == SEP_1858:
            message, state, asked = await self._turns.left(post)
            try:
                answers = self._turns.answers(messages, asked)
                call = self._call(session, message, replace(post, body=encode(message)))
                return await self._served(session, replace(call, answers=answers, state=state))
            except Exception as error:
                return refuse(message, error, verdict, self._turns.dress)
        if session.version not in HANDSHAKES[:2]:
            raise MalformedMessage("Invalid request: batches are not part of this protocol version")
        if not 0 < len(messages) <= BATCH:
            raise MalformedMessage(f"Invalid request: a batch has 1 to {BATCH} messages")

        async def replies(inner: Post) -> bytes | None:
            parts = [self._part(session, message, replace(inner, body=encode(message))) for message in messages]
            found = await asyncio.gather(*parts)
            bodies = [reply.body for reply in found if reply is not None and reply.body is not None]
            return b"[" + b",".join(bodies) + b"]" if bodies else None

        if not any(isinstance(message, dict) and "id" in message and "method" in message for message in messages):
            told = await replies(post)
            return Reply(202, None) if told is None else Reply(400, told)
        if post.line is not None:
            return Reply(200, await replies(replace(post, tracker=None)))
        return await speak(session, f"batch {id(messages)}", post, self._sessions.limits.calls, replies)

    async def _part(self, session: Session, message: Any, post: Post) -> Reply | None:
        """The reply to one message of a batch; None where its call is cancelled meanwhile."""
        request_id = readable_id(message)
        if request_id is None:
            return await self._replied(session, message, post)
        task = asyncio.ensure_future(self._replied(session, message, post))
        try:
            session.begin(request_id, Underway(task))
        except MalformedMessage as error:
            return refuse(message, error, verdict, dict)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        return None if task.cancelled() else task.result()

    async def _replied(self, session: Session, message: Any, post: Post) -> Reply:
        try:
            return await self._one(session, message, post)
        except Exception as error:
            return refuse(message, error, verdict, self._manners[session.version].dress)

    async def _one(self, session: Session, message: Any, post: Post) -> Reply:
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise MalformedMessage('Invalid request: "jsonrpc": "2.0" is required')
        method = message.get("method")
        if method is None and ("result" in message or "error" in message):
            if session.version == SEP_1858 and LAST_EVENT in (post.headers or {}):
                raise MalformedMessage("Invalid request: the answers of a turn come as an array")
            return _settle(session, message)
        if method is None and session.version == DRAFT_2026_02 and "input_responses" in message:
            # "Currently there is no required response to this message."
            params = {"_meta": message.get("_meta")}
            answered = {"id": None, **message, "method": "tasks/input_response", "params": params}
            await self._served(session, self._call(session, answered, post))
            return Reply(202, None)
        if not isinstance(method, str) or method == "initialize":
            raise MalformedMessage('Invalid request: "method" is required, and initialize comes alone')
        if "id" not in message:
            return await self._notified(session, method, message.get("params"), post)
        if type(message["id"]) not in (str, int):
            raise MalformedMessage("Invalid request: an id is a string or an integer")
        return await self._served(session, self._call(session, message, post))

    def _call(self, session: Session, message: dict[str, Any], post: Post) -> Call:
        method, params = message["method"], message.get("params", {})
        if not isinstance(params, dict) or not isinstance(params.get("_meta", {}), dict):
            raise InvalidParams("params must be an object, and so must its _meta")
        member = _NAMED.get(method)
        target, arguments = "" if member is None else params.get(member), params.get("arguments")
        if not isinstance(target, str):
            raise InvalidParams(f"params.{member} must be a string")
        if member is not None and not isinstance(arguments, dict | None):
            raise InvalidParams("params.arguments must be an object")
        answers, state = self._manners[session.version].given(message, params)
        meta = dict(params.get("_meta", {}))
        if session.is_kept:
            meta[LOG_LEVEL] = session.level or LEVELS[0]
        elif meta.get(LOG_LEVEL) not in LEVELS:
            meta.pop(LOG_LEVEL, None)
        if session.client is not None:
            meta[CLIENT_INFO] = session.client
        declared = session.capabilities if session.is_kept else meta.get(CAPABILITIES, session.capabilities)
        if not isinstance(declared, Mapping):
            raise InvalidParams(f"{CAPABILITIES} must be an object")
        given = arguments or {}
        return Call(message["id"], method, params, target, given, answers, state, meta, declared, session.version, post)

    async def _served(self, session: Session, call: Call) -> Reply:
        manner = self._manners[session.version]
        handler = self._service.handlers.get(call.method)
        if handler is not None:
            return await manner.serve(session, call, handler)
        own = self._own.get(call.method)
        if own is None:
            raise UnknownMethod(call.method)
        return Reply(200, result_reply(call.id, manner.dress(own(session, call))))

    async def _notified(self, session: Session, method: str, params: Any, post: Post) -> Reply:
        if method == "notifications/cancelled" and isinstance(params, dict):
            request_id: Any = params.get("requestId")
            if type(request_id) in (str, int):
                log.info("request %r was cancelled by the client: %.200r", request_id, params.get("reason"))
                if (task := session.calls.get(request_id)) is not None:
                    task.cancel()
                elif post.tracker is not None:
                    post.tracker.cancel(request_id)
        elif method == "notifications/initialized" and post.line is not None and post.headers is None:
            await self._listen(session, post.line.emit)
        return Reply(202, None)

    # Methods

    def _set_level(self, session: Session, call: Call) -> dict[str, Any]:
        level = call.params.get("level")
        if not session.is_kept:
            raise UnknownMethod(call.method)
        if level not in LEVELS:
            raise InvalidParams(f"params.level must be one of {', '.join(LEVELS)}")
        session.level = level
        return {}

    def _subscribe(self, session: Session, call: Call) -> dict[str, Any]:
        session.uris.add(self._watched(session, call))
        return {}

    def _unsubscribe(self, session: Session, call: Call) -> dict[str, Any]:
        session.uris.discard(self._watched(session, call))
        return {}

    def _watched(self, session: Session, call: Call) -> str:
        uri = call.params.get("uri")
        if self._service.bus is None or not session.is_kept:
            raise UnknownMethod(call.method)
        if not isinstance(uri, str):
            raise InvalidParams("params.uri must be a string")
        if len(session.uris) >= WATCHED and uri not in session.uris:
            raise InvalidParams(f"at most {WATCHED} resources are watched at a time")
        return uri

    def _list(self, session: Session, call: Call) -> dict[str, Any]:
        shown, cursor = page(self._service.entries(call.method), call.params.get("cursor"), self._service.page_size)
        if call.method == "tools/list":
            has_tasks = session.version in SHAPES
            shown = [_plainer(tool, self._service.task_support(tool["name"]) if has_tasks else None) for tool in shown]
        result: dict[str, Any] = {LISTS[call.method]: shown}
        return result if cursor is None else {**result, "nextCursor": cursor}

    async def _listen(self, session: Session, emit: Callable[[bytes], Awaitable[None]]) -> None:
        """Have a session told of changes from now on."""
        if self._service.bus is not None and (session.listening is None or session.listening.done()):
            await listen(self._service.bus, session, emit)


def _is_opening(message: Any) -> bool:
    if not isinstance(message, dict) or message.get("method") != "initialize":
        return False
    return message.get("jsonrpc") == "2.0" and type(message.get("id")) in (str, int)


def _settle(session: Session, message: dict[str, Any]) -> Reply:
    """An answer of the client to a request of ours; one that nobody waits for is passed over."""
    number: Any = message.get("id")
    future = session.waits.pop(number, None) if type(number) is int else None
    if future is None or future.done():
        log.info("an answer came to no request that is under way: %.100r", number)
    else:
        future.set_result(message)
    return Reply(202, None)


def _plainer(tool: dict[str, Any], support: str | None) -> dict[str, Any]:
    """A tool as these versions know it: with an output schema only for objects, and whether it is called as a task."""
    schema = tool.get("outputSchema")
    if support is not None:
        tool = {**tool, "execution": {"taskSupport": support}}
    if schema is None or schema.get("type") == "object":
        return tool
    return {name: part for name, part in tool.items() if name != "outputSchema"}
