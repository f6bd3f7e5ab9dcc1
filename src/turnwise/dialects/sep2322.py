"""Multi round-trip requests as the approved text of SEP-2322 has them, before they became part of 2026-07-28.

The version is `DRAFT-2026-v1`, named in `initialize` or in the header. Questions go out as results with a `resultType`,
answers come back in the parameters of a retry. What the final version says in every request, this one says once.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .._messages import Ask, Call, Done, Outcome, Reply
from .._sessions import Session
from ..errors import InvalidParams
from .asking import request_of
from .replying import result_reply
from .tasking import related_meta

Handler = Callable[[Call], Awaitable[Outcome]]


class Approved:
    """How this wire asks."""

    def given(self, message: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        """What a retry brings in its parameters."""
        answers, state = params.get("inputResponses"), params.get("requestState")
        if not isinstance(answers, dict | None):
            raise InvalidParams("params.inputResponses must be an object")
        if not isinstance(state, str | None):
            raise InvalidParams("params.requestState must be a string")
        return answers or {}, state

    def dress(self, result: dict[str, Any]) -> dict[str, Any]:
        """Every result says that it is complete."""
        return {"resultType": "complete", **result}

    async def serve(self, session: Session, call: Call, handler: Handler) -> Reply:
        """One round."""
        outcome = await handler(call)
        if isinstance(outcome, Done):
            return Reply(200, result_reply(call.id, self.dress(outcome.result)))
        result: dict[str, Any] = {"resultType": "input_required"}
        if isinstance(outcome, Ask):
            result["inputRequests"] = {key: request_of(question) for key, question in outcome.questions.items()}
        if outcome.carrier is not None:
            result["requestState"] = outcome.carrier
        else:
            result["_meta"] = related_meta(call.target)  # A task, whose state is in a store.
        return Reply(200, result_reply(call.id, result))
