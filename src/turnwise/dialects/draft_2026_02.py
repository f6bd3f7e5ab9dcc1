"""Multi round-trip requests as first drafted, on 3 February 2026: questions, answers and state at the top of messages.

A reply that asks is neither a result nor an error: beside its id it has `input_requests`, `request_state`, or both. A
retry has `input_responses`, each wrapped in `result`, and the state, beside its method and parameters. The draft names
no version; ours for it is `DRAFT-2026-02-03`, in `initialize` or in the header.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .._json import encode
from .._messages import Ask, Call, Done, Outcome, Reply
from .._sessions import Session
from ..errors import InvalidParams
from .asking import request_of
from .replying import result_reply
from .tasking import related_meta

Handler = Callable[[Call], Awaitable[Outcome]]


class FirstDraft:
    """How this wire asks."""

    def given(self, message: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        """What a retry brings beside its parameters. An answer that is not wrapped as it should be is none."""
        answers, state = message.get("input_responses"), message.get("request_state")
        if not isinstance(answers, dict | None):
            raise InvalidParams("input_responses must be an object")
        if not isinstance(state, str | None):
            raise InvalidParams("request_state must be a string")
        wrapped = {key: answer for key, answer in (answers or {}).items() if isinstance(answer, dict)}
        return {key: answer["result"] for key, answer in wrapped.items() if "result" in answer}, state

    def dress(self, result: dict[str, Any]) -> dict[str, Any]:
        """As it is: this draft tells its replies apart by their members."""
        return {name: part for name, part in result.items() if name != "resultType"}

    async def serve(self, session: Session, call: Call, handler: Handler) -> Reply:
        """One round."""
        outcome = await handler(call)
        if isinstance(outcome, Done):
            return Reply(200, result_reply(call.id, self.dress(outcome.result)))
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": call.id}
        if isinstance(outcome, Ask):
            reply["input_requests"] = {key: request_of(question) for key, question in outcome.questions.items()}
        if outcome.carrier is not None:
            return Reply(200, encode({**reply, "request_state": outcome.carrier}))
        return Reply(200, encode({**reply, "_meta": related_meta(call.target)}))  # A task, whose state is in a store.
