"""The client's half of the first draft: questions and answers stand beside `result` and `params`, in snake_case.

"The response may include input requests that the client must complete. It may also include some request state that the
client must return back to the server."
"""

from typing import Any

from .._messages import Incoming, Outgoing
from .handshake_client import HandshakeCaller


class Caller(HandshakeCaller):
    """One client, speaking the first draft."""

    def _members(self, params: dict[str, Any]) -> dict[str, Any]:
        members: dict[str, Any] = {"params": params}
        if "inputResponses" in params:
            answers = params.pop("inputResponses")
            members["input_responses"] = {key: {"result": answer} for key, answer in answers.items()}
        if "requestState" in params:
            members["request_state"] = params.pop("requestState")
        return members

    def read(self, request: Outgoing, incoming: Incoming) -> dict[str, Any]:
        """The result, or what the message asks in place of one."""
        message = incoming.message
        if isinstance(message, dict) and message.keys() & {"input_requests", "request_state"}:
            others = {name: value for name, value in message.items() if name not in ("input_requests", "request_state")}
            asked: dict[str, Any] = {"resultType": "input_required"}
            if "input_requests" in message:
                asked["inputRequests"] = message["input_requests"]
            if "request_state" in message:
                asked["requestState"] = message["request_state"]
            if "result" not in others and "error" not in others:
                incoming = incoming._replace(message={**others, "result": asked})
        return super().read(request, incoming)
