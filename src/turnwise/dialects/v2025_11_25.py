"""The wires of 2024-11-05 to 2025-11-25: a question is a request to the client, sent while the call waits.

The function is not kept waiting. It is played round by round as on every other wire, with the ledger held here in
place of a token; what waits for a person is this loop. So a tool is the same everywhere: no transaction stays open
over a question, and what a later round does again it does again on all of them.

"Servers MUST send server-to-client requests only in association with an originating client request" (SEP-2260) holds
by construction: a request leaves here only out of a call that is under way, on that call's own stream.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from .._json import encode
from .._messages import Ask, Call, Done, Outcome, Post, Question, Reply
from .._sessions import Session
from ..errors import ClientRefused, MissingClientCapability, ToolError
from .asking import request_of
from .notifying import notification
from .refusing import verdict
from .replying import refuse, result_reply
from .streaming import speak
from .words import ELICIT, HANDSHAKES

Handler = Callable[[Call], Awaitable[Outcome]]


class Live:
    """How these wires ask. At most so many calls of one session are under way at a time."""

    def __init__(self, most_calls: int) -> None:
        self._most_calls = most_calls

    def given(self, message: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        """Nothing: answers come while the call waits."""
        return {}, None

    def dress(self, result: dict[str, Any]) -> dict[str, Any]:
        """Without what these versions do not know: structured results are objects."""
        unknown = {"resultType", "ttlMs", "cacheScope"}
        if not isinstance(result.get("structuredContent", {}), dict):
            unknown.add("structuredContent")
        return (
            {name: part for name, part in result.items() if name not in unknown} if unknown & result.keys() else result
        )

    async def serve(self, session: Session, call: Call, handler: Handler) -> Reply:
        """Play the call to its end, asking on its own stream."""
        if call.post.line is not None or call.post.headers is None:
            return Reply(200, await self._finished(session, call, handler))

        async def finished(post: Post) -> bytes | None:
            return await self._finished(session, replace(call, post=post), handler)

        return await speak(session, call.id, call.post, self._most_calls, finished)

    async def _finished(self, session: Session, call: Call, handler: Handler) -> bytes | None:
        try:
            return result_reply(call.id, self.dress(await _played(session, replace(call, held=True), handler)))
        except Exception as error:
            message = {"id": call.id, "method": call.method, "params": call.params}
            return refuse(message, error, verdict, self.dress).body


async def _played(session: Session, call: Call, handler: Handler) -> dict[str, Any]:
    """As many rounds as it takes."""
    while True:
        try:
            outcome = await handler(call)
        except MissingClientCapability as error:
            raise ToolError(str(error)) from None
        if isinstance(outcome, Done):
            result: dict[str, Any] = outcome.result
            return result
        answers = await _asked(session, call, outcome.questions) if isinstance(outcome, Ask) else {}
        call = replace(call, answers=answers, state=outcome.carrier, post=replace(call.post, now=time.time()))


async def _asked(session: Session, call: Call, questions: Mapping[str, Question]) -> dict[str, Any]:
    """The client's answers to all questions of a round; ClientRefused where it has none to one of them."""
    asked = {key: session.expect() for key in questions}
    try:
        for key, question in questions.items():
            await call.post.emit(live_request(asked[key][0], question, session.version))
        waiting = {future: question for (_, future), question in zip(asked.values(), questions.values(), strict=True)}
        left = set(waiting)
        while left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                _check_answered(waiting[future], future.result())
        return {key: future.result()["result"] for key, (_, future) in asked.items()}
    except ClientRefused:
        for number, future in asked.values():
            if not future.done():
                await call.post.emit(notification("notifications/cancelled", {"requestId": number}))
        raise
    finally:
        for number, future in asked.values():
            session.waits.pop(number, None)
            if future.done() and not future.cancelled():
                future.exception()  # Looked at: of several that fail together, one is raised.


def _check_answered(question: Question, message: Mapping[str, Any]) -> None:
    if "result" not in message:
        error = message["error"] if isinstance(message.get("error"), dict) else {}
        raise ClientRefused(question.method, error.get("code"), error.get("message"))


def live_request(number: int | str, question: Question, version: str) -> bytes:
    """A question as a request, in the words of a version."""
    body = request_of(question)
    if question.method == ELICIT:
        params = dict(body["params"])
        if params["mode"] == "url":
            params["elicitationId"] = question.name or uuid.uuid4().hex
        elif version < HANDSHAKES[-1]:
            del params["mode"]
        body["params"] = params
    return encode({"jsonrpc": "2.0", "id": number, **body})
