"""The wire of protocol 2026-07-28: no session, every request complete in itself, questions in results.

Bytes in, bytes out. `Wire.answer` is the one way in for every transport: it decodes a message once, holds it against
the rules of the protocol, hands a `Call` to the service, and encodes what comes back once. Whatever goes wrong on the
way ends in `_refuse`, the only place where an exception becomes a reply, by the one table in `verdict`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from .._bus import Change, SubscriptionBus
from .._json import decode
from .._messages import Ask, CacheHint, Call, Outcome, Post, Reply, Yield
from ..errors import (
    HeaderMismatch,
    InvalidArguments,
    InvalidParams,
    InvalidRequestState,
    MalformedMessage,
    MCPError,
    MissingClientCapability,
    ToolError,
    UnknownMethod,
    UnsupportedVersion,
)
from . import mirrored
from .asking import request_of
from .listing import CACHEABLE, cache_members, page
from .notifying import changed, notification
from .replying import Told, refuse, result_reply, unreadable
from .tasking import check_takes_tasks
from .words import (
    CAPABILITIES,
    FILTER,
    LEVELS,
    LISTS,
    LOG_LEVEL,
    NAMED,
    PROTOCOL,
    SERVER_INFO,
    SUBSCRIPTION,
    VERSION,
)

log = logging.getLogger("turnwise.server")

FOLLOWED = WATCHED = 1000
"""So many tasks, and so many resources, may one subscription be about."""
_ID = (int, str)
_RESERVED = frozenset((*range(-32099, -32019), -32002, -32042))
_VERSION = VERSION.encode()


class Service(Protocol):
    """What the wire needs to know of a server."""

    info: Mapping[str, Any]
    instructions: str | None
    page_size: int | None
    bus: SubscriptionBus | None
    is_closing: bool
    marked: dict[str, Mapping[bytes, tuple[str, ...]]]
    """The tools that have mirrored parameters, and the headers that mirror them."""

    @property
    def handlers(self) -> Mapping[str, Callable[[Call], Awaitable[Outcome]]]:
        """Who serves which method."""
        ...

    def entries(self, method: str) -> Mapping[str, dict[str, Any]]:
        """The definitions that a list method shows."""
        ...

    def hint(self, call: Call) -> CacheHint:
        """How long a result keeps."""
        ...

    def capabilities(self) -> dict[str, Any]:
        """What the server offers."""
        ...

    async def own_tasks(self, call: Call, task_ids: list[str]) -> list[str]:
        """Those of these tasks that are the caller's."""
        ...

    def follow_tasks(self, call: Call, task_ids: list[str]) -> AsyncIterator[dict[str, Any]]:
        """These tasks, as they change."""
        ...


class Others(Protocol):
    """Who is asked for a message that is not of this version."""

    async def answer(self, message: Any, post: Post) -> Reply | None:
        """The reply, or None where nobody knows the message."""
        ...


class Wire:
    """One server, spoken to in 2026-07-28. `others` serve those who open in another version."""

    def __init__(self, service: Service, others: "Others | None" = None) -> None:
        self._service = service
        self._others = others
        self._meta = {SERVER_INFO: dict(service.info)}
        self._own: dict[str, Callable[[Call], Awaitable[dict[str, Any]]]] = {
            "server/discover": self._discover,
            "subscriptions/listen": self._listen,
            **dict.fromkeys(LISTS, self._list),
        }

    async def answer(self, post: Post) -> Reply:
        """The reply to one message, whatever its bytes are."""
        message: Any = None
        try:
            try:
                message = decode(post.body)
            except ValueError as error:
                raise unreadable(error) from None
            if type(message) is not dict or type(message.get("id")) not in _ID or message.get("jsonrpc") != "2.0":
                return await self._unusual(message, post)
            if post.tracker is not None and "method" in message:
                post.tracker.begin(message["id"])
            call = self._call(message, post)
            handler = self._service.handlers.get(call.method)
            if handler is not None:
                return Reply(200, self._encode(call, await handler(call)))
            own = self._own.get(call.method)
            if own is None:
                raise UnknownMethod(call.method)
            return Reply(200, result_reply(call.id, self._complete(call, await own(call))))
        except _Foreign as foreign:
            fault = foreign.fault
        except Exception as error:
            return refuse(message, error, verdict, self._dressed)
        # Not inside the handler: whatever others log would have this version's complaint above it.
        reply = None if self._others is None else await self._others.answer(message, post)
        return reply or refuse(message, fault, verdict, self._dressed)

    async def _unusual(self, message: Any, post: Post) -> Reply:
        """The reply to what is no request: a notification, or nothing that this version knows."""
        reply = None if self._others is None else await self._others.answer(message, post)
        if reply is None:
            _check(message)
            reply = self._notified(message, post)
        return reply

    def _call(self, message: dict[str, Any], post: Post) -> Call:
        method: Any = message.get("method")
        params: Any = message.get("params")
        meta: Any = params.get("_meta") if type(params) is dict else None
        version: Any = meta.get(PROTOCOL) if type(meta) is dict else None
        if type(method) is not str or version != VERSION:
            raise _Foreign(_foreign(message, method, params, version, post))
        member = NAMED.get(method)
        target = None if member is None else params.get(member)
        if member is not None and type(target) is not str:
            raise InvalidParams(f"params.{member} must be a string", status=400)
        headers = post.headers
        if headers is not None and not _mirrors(headers, method, target):
            mirrored.check(headers, method, target, version)
        if type(capabilities := meta.get(CAPABILITIES)) is not dict:
            raise InvalidParams(f"_meta must carry {CAPABILITIES}", status=400)
        if (level := meta.get(LOG_LEVEL)) is not None and level not in LEVELS:
            raise InvalidParams(f"Invalid log level: {LOG_LEVEL} must be one of {', '.join(LEVELS)}", status=400)
        if target is None:
            return Call(message["id"], method, params, "", {}, {}, None, meta, capabilities, version, post)
        arguments, answers, state = self._given(method, params, target, post)
        return Call(message["id"], method, params, target, arguments, answers, state, meta, capabilities, version, post)

    def _given(self, method: str, params: dict[str, Any], target: str, post: Post) -> tuple[Any, Any, Any]:
        """The arguments, answers and token that a call brings."""
        arguments, answers, state = params.get("arguments"), params.get("inputResponses"), params.get("requestState")
        if type(arguments) is not dict:
            arguments = _absent(arguments, "arguments", "an object")
        if type(answers) is not dict:
            answers = _absent(answers, "inputResponses", "an object")
        if state is not None and type(state) is not str:
            raise InvalidParams("params.requestState must be a string", status=400)
        params.pop("task", None)  # Of 2025-11-25: "servers MUST ignore it (treat the field as unknown)".
        if self._service.marked and post.headers is not None and method == "tools/call":
            mirrored.check_parameters(post.headers, self._service.marked.get(target, {}), arguments)
        return arguments, answers, state

    def _encode(self, call: Call, outcome: Outcome) -> bytes:
        if isinstance(outcome, (Ask, Yield)):
            questions = outcome.questions if isinstance(outcome, Ask) else {}
            result = {
                "resultType": "input_required",
                # Present even when empty: some clients do not retry a result without it.
                "inputRequests": {key: request_of(question) for key, question in questions.items()},
                "requestState": outcome.carrier,
                "_meta": self._meta,
            }
            return result_reply(call.id, result)
        return result_reply(call.id, self._complete(call, outcome.result))

    def _dressed(self, result: dict[str, Any]) -> dict[str, Any]:
        return {**result, "resultType": "complete", "_meta": self._meta}

    def _complete(self, call: Call, result: dict[str, Any]) -> dict[str, Any]:
        result.setdefault("resultType", "complete")
        result["_meta"] = {**result["_meta"], **self._meta} if "_meta" in result else self._meta
        if call.method in CACHEABLE:
            return {**cache_members(self._service.hint(call)), **result}
        return result

    def _notified(self, message: dict[str, Any], post: Post) -> Reply:
        params = message.get("params")
        if message["method"] == "notifications/cancelled" and post.tracker is not None and isinstance(params, dict):
            request_id: Any = params.get("requestId")
            if type(request_id) in (str, int):
                log.info("request %r was cancelled by the client: %.200r", request_id, params.get("reason"))
                post.tracker.cancel(request_id)
        return Reply(202, None)

    async def _discover(self, call: Call) -> dict[str, Any]:
        result = {"supportedVersions": [VERSION], "capabilities": self._service.capabilities()}
        if self._service.instructions is not None:
            result["instructions"] = self._service.instructions
        return result

    async def _list(self, call: Call) -> dict[str, Any]:
        entries = self._service.entries(call.method)
        shown, cursor = page(entries, call.params.get("cursor"), self._service.page_size)
        result: dict[str, Any] = {LISTS[call.method]: shown}
        return result if cursor is None else {**result, "nextCursor": cursor}

    async def _followed(self, call: Call, asked: Any) -> list[str] | None:
        """Those of the tasks that the client wants to hear of which are its own."""
        if asked is None:
            return None
        if not isinstance(asked, list) or not all(isinstance(task, str) for task in asked):
            raise InvalidParams("notifications.taskIds must be a list of ids", status=400)
        check_takes_tasks(call)
        if len(asked) > FOLLOWED:
            raise InvalidParams(f"at most {FOLLOWED} tasks are followed at a time", status=400)
        return await self._service.own_tasks(call, list(dict.fromkeys(asked)))

    async def _follow(self, call: Call, tasks: list[str]) -> None:
        async for task in self._service.follow_tasks(call, tasks):
            params = {"_meta": {SUBSCRIPTION: call.id}, **task}
            await call.post.emit(notification("notifications/tasks", params))

    async def _listen(self, call: Call) -> dict[str, Any]:
        bus = self._service.bus
        if bus is None:
            raise UnknownMethod(call.method)
        lists, uris = _wanted(call.params.get("notifications"))
        accepted: dict[str, Any] = dict.fromkeys((name for name, kind in FILTER.items() if kind in lists), True)
        if uris:
            accepted["resourceSubscriptions"] = sorted(uris)
        if (tasks := await self._followed(call, call.params["notifications"].get("taskIds"))) is not None:
            accepted["taskIds"] = tasks
        meta = {SUBSCRIPTION: call.id}
        acknowledged = {"_meta": meta, "notifications": accepted}
        async with bus.subscribe(lambda change: _matches(change, lists, uris)) as changes:
            await call.post.emit(notification("notifications/subscriptions/acknowledged", acknowledged))
            following = asyncio.create_task(self._follow(call, tasks)) if tasks else None
            try:
                if not self._service.is_closing:
                    async for change in changes:
                        await call.post.emit(changed(change, call.id))
            finally:
                if following is not None:
                    following.cancel()
        if call.post.tracker is not None:
            # One page wants this notification when a server ends a subscription, another the result below. On a shared
            # channel both are sent; on a stream of its own its end says as much.
            await call.post.emit(notification("notifications/cancelled", {"_meta": meta, "requestId": call.id}))
        return {"_meta": meta}


def _mirrors(headers: Mapping[bytes, bytes], method: str, target: str | None) -> bool:
    """Whether the headers repeat the body letter by letter, as they mostly do; whatever else they do is looked into."""
    return (
        target is not None
        and target.isascii()
        and target.isidentifier()
        and headers.get(mirrored.NAME) == target.encode()
        and headers.get(mirrored.METHOD) == method.encode()
        and headers.get(mirrored.VERSION) == _VERSION
    )


def verdict(error: Exception, text: str) -> Told | None:
    """The one table of this wire."""
    match error:
        case MCPError():
            return 200, _lawful(error.code), text, error.data
        case MalformedMessage():
            return error.status, -32600 if error.parsed else -32700, text
        case HeaderMismatch():
            return 400, -32020, text
        case MissingClientCapability():
            return 400, -32021, text, {"requiredCapabilities": error.required}
        case UnsupportedVersion():
            return 400, -32022, text, {"supported": list(error.supported), "requested": error.requested}
        case UnknownMethod():
            return 404, -32601, text
        case InvalidParams():
            return error.status, -32602, text, error.data
        case InvalidRequestState():
            return 200, -32602, "Invalid or expired requestState"
        case ToolError():
            return 200, -32602 if isinstance(error, InvalidArguments) else -32603, text
        case _:
            return None


def _lawful(code: int) -> int:
    """The code of an author's error, unless it is one whose meaning is the specification's alone, or once was."""
    if code not in _RESERVED:
        return code
    log.warning("a function raised MCPError(%d): the code is reserved, so that clients get -32603", code)
    return -32603


def _check(message: Any) -> None:
    """Hold a message against JSON-RPC: one request or notification, with an id that can be echoed."""
    if type(message) is not dict:
        raise MalformedMessage("Invalid request: one JSON-RPC object is expected; batches are not part of the protocol")
    if message.get("jsonrpc") != "2.0" or type(message.get("method")) is not str:
        raise MalformedMessage(
            'Invalid request: "jsonrpc": "2.0" and "method" are required; responses are not accepted'
        )
    if "id" in message and type(message["id"]) not in (str, int):
        raise MalformedMessage("Invalid request: an id is a string or an integer")


class _Foreign(Exception):
    """A message is not of this version; `fault` is what this version has to say about it."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault


def _foreign(message: dict[str, Any], method: Any, params: Any, version: Any, post: Post) -> Exception:
    try:
        _check(message)
        if type(version) is str:
            if post.headers is not None:
                mirrored.check(post.headers, method, params.get(NAMED.get(method, "")), version)
            return UnsupportedVersion(version, (VERSION,))
    except (MalformedMessage, HeaderMismatch) as error:
        return error
    if method == "initialize" and type(params) is dict and "_meta" not in params:
        return UnsupportedVersion(str(params.get("protocolVersion")), (VERSION,))
    return InvalidParams(f"_meta must carry {PROTOCOL}", data={"supported": [VERSION]}, status=400)


def _absent(value: Any, name: str, expected: str) -> dict[str, Any]:
    if value is not None:
        raise InvalidParams(f"params.{name} must be {expected}", status=400)
    return {}


def _wanted(asked: Any) -> tuple[set[str], set[str]]:
    """What a listener asks for. A list that is empty now may change too."""
    if not isinstance(asked, dict):
        raise InvalidParams("params.notifications must be an object", status=400)
    uris = asked.get("resourceSubscriptions") or []
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        raise InvalidParams("notifications.resourceSubscriptions must be a list of URIs", status=400)
    if len(uris) > WATCHED:
        raise InvalidParams(f"at most {WATCHED} resources are watched at a time", status=400)
    return {kind for name, kind in FILTER.items() if asked.get(name) is True}, set(uris)


def _matches(change: Change, lists: set[str], uris: set[str]) -> bool:
    return change.uri in uris if change.kind == "resource" else change.kind in lists
