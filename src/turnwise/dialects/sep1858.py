"""Multi-turn SSE, SEP-1858: a stream that says what it needs, and ends; the answers come with its last event's id.

    event: buffer_input      from here on, keep your answers
    event: message           the requests, one each
    event: input_required    send the answers, all at once, with Last-Event-ID

The proposal has the instances share a store for what a call had come to. Here the id of the last event is that: the
original request and its token, sealed, so that any instance can go on. What does not fit into a header is put into the
server's store, and the id names it. The proposal leaves its version open; ours is `DRAFT-SEP-1858`.
"""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from .._guards import Guard
from .._json import decode, encode
from .._messages import Ask, Call, Done, Outcome, Post, Question, Reply
from .._sealed import RequestStateSecurity
from .._sessions import Session
from ..errors import AuthorError, ClientRefused, InvalidParams, InvalidRequestState, MalformedMessage
from .replying import result_reply
from .streaming import LAST_EVENT, event
from .v2025_11_25 import live_request
from .words import HANDSHAKES

LONGEST_ID = 6 * 1024
"""What fits into a header behind the usual proxies, which take lines of 8 KiB."""
MOST_ANSWERS = 1000
_SEALED, _STORED = "turn", "turn in a store"

Handler = Callable[[Call], Awaitable[Outcome]]


class MultiTurn:
    """How this wire asks."""

    def __init__(self, security: RequestStateSecurity, guard: Guard | None) -> None:
        self._security = security
        self._guard = guard

    def given(self, message: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        """Nothing: answers come by themselves, as an array."""
        return {}, None

    def dress(self, result: dict[str, Any]) -> dict[str, Any]:
        """As it is."""
        return {name: part for name, part in result.items() if name != "resultType"}

    async def serve(self, session: Session, call: Call, handler: Handler) -> Reply:
        """One turn. There is no way to say that another instance is to go on with nothing asked, so this one does."""
        while not isinstance(outcome := await handler(call), Done | Ask):
            call = replace(call, answers={}, state=outcome.carrier)
        if isinstance(outcome, Done):
            return Reply(200, result_reply(call.id, self.dress(outcome.result)))
        last = await self._sealed(call, outcome.carrier, [*outcome.questions])
        return Reply(200, None, (), _turn(outcome.questions, last))

    async def left(self, post: Post) -> tuple[dict[str, Any], str, list[str]]:
        """The request that was left, its token, and the ids of what it asked."""
        last = (post.headers or {}).get(LAST_EVENT)
        if last is None:
            raise MalformedMessage("Invalid request: an array of responses comes with the header Last-Event-ID")
        request_id, method, params, state, asked = await self._opened(last.decode("latin-1"))
        return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}, state, asked

    def answers(self, messages: list[Any], asked: Collection[str]) -> Mapping[str, Any]:
        """The answers to what was asked; ClientRefused where one of them is an error."""
        if len(messages) > MOST_ANSWERS:
            raise MalformedMessage(f"Invalid request: at most {MOST_ANSWERS} responses are taken at once")
        answers = {}
        for message in messages:
            is_response = isinstance(message, dict) and message.get("jsonrpc") == "2.0" and "method" not in message
            if not is_response or not isinstance(message.get("id"), str):
                raise MalformedMessage(
                    "Invalid request: every member of the array is a response, under its request's id"
                )
            if message["id"] not in asked:
                continue
            if isinstance(message.get("error"), dict):
                raise ClientRefused(message["id"], message["error"].get("code"), message["error"].get("message"))
            answers[message["id"]] = message.get("result")
        return answers

    async def _sealed(self, call: Call, state: str, asked: list[str]) -> str:
        """The id of a turn's last event."""
        params = decode(call.post.body)["params"]
        facts = [call.id, call.method, params, state, asked]
        token = self._security.codec.seal(encode([_SEALED, facts]))
        if len(token) <= LONGEST_ID:
            return token
        if self._guard is None:
            raise AuthorError(
                f"this turn's id would have {len(token)} bytes, and a header takes {LONGEST_ID}: "
                "give the server a store, MCPServer(store=...)"
            )
        name = secrets.token_hex(16)
        await self._guard.put(name, facts)
        return self._security.codec.seal(encode([_STORED, name]))

    async def _opened(self, token: str) -> Any:
        try:
            kind, facts = decode(self._security.opened(token))
            if kind == _STORED and self._guard is not None:
                kind, facts = _SEALED, await self._guard.get(facts)
            if kind == _SEALED:
                return facts
        except (InvalidRequestState, ValueError, TypeError):
            pass
        raise InvalidParams("Last-Event-ID names no turn of this server")


async def _turn(questions: Mapping[str, Question], last: str) -> AsyncGenerator[bytes, None]:
    yield event(None, "1", "buffer_input")
    for number, (key, question) in enumerate(questions.items(), 2):
        # The request's id is the question's key: the answer comes back under it.
        yield event(live_request(key, question, HANDSHAKES[-1]), str(number))
    yield event(None, last, "input_required")
