"""The client's half of SEP-1858, multi-turn SSE: a stream asks, ends, and goes on in the reply to the answers.

"The `buffer_input` event tells the client to buffer its responses to server-sent requests instead of immediately
POSTing them. [...] The `input_required` event tells the client to (1) exit the SSE event processing loop without
attempting to reconnect, and (2) POST a JSON array of its buffered responses, including a `Last-Event-ID` header."

For the loop of a call that is a question like any other. Its state holds the id of the event, the id of the request
that is still to be answered, and the ids of the questions as they came.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from .._json import decode, encode
from .._messages import Incoming, Mark, Outgoing
from ..errors import CallerError, InvalidReply
from .handshake_client import HandshakeCaller, Turn, can_be_sent
from .words import MOST_QUESTIONS, TARGETS

BUFFER, REQUIRED = "buffer_input", "input_required"


class Caller(HandshakeCaller):
    """One client, speaking this proposal."""

    marks: Mapping[str, bool] = MappingProxyType({BUFFER: False, REQUIRED: True})

    def request(
        self,
        method: str,
        params: Mapping[str, Any],
        capabilities: Mapping[str, Any],
        meta: Mapping[str, Any] | None = None,
        *,
        with_progress: bool = False,
    ) -> Outgoing:
        """A request, or the answers with which an earlier one goes on."""
        state = params.get("requestState")
        if state is None or method not in TARGETS:
            return super().request(method, params, capabilities, meta, with_progress=with_progress)
        event, request_id, ids = _read_state(state)
        answers = params.get("inputResponses", {})
        responses = [{"jsonrpc": "2.0", "id": ids[key], "result": answer} for key, answer in answers.items()]
        safe = self.is_safe(method, params)
        headers = {"Last-Event-ID": event}
        return Outgoing(request_id, method, encode(responses), headers, safe, lasts=True, marks=self.marks)

    def turn(self, request: Outgoing) -> Turn:
        """Who collects what a server asks in the course of this request."""
        return _Buffer(request)


class _Buffer(Turn):
    """The questions of one stream, from `buffer_input` to `input_required`."""

    def __init__(self, request: Outgoing) -> None:
        self._request = request
        self._asked: dict[str, tuple[Any, Mapping[str, Any]]] | None = None

    def takes(self, message: Any) -> bool:
        if isinstance(message, Mark):
            self._asked = {}
            return True
        if self._asked is None or "id" not in message or message["method"] == "ping":
            return False
        number = message["id"]
        if not isinstance(number, str | int) or str(number) in self._asked or len(self._asked) == MOST_QUESTIONS:
            raise InvalidReply("the server asks under an id that is none, or twice under the same one, or too much")
        self._asked[str(number)] = number, {name: message[name] for name in ("method", "params") if name in message}
        return True

    def ended(self, incoming: Incoming) -> Incoming:
        mark = incoming.message
        if not isinstance(mark, Mark):
            return incoming
        if not can_be_sent(mark.id):
            raise InvalidReply("the server asks under an event id that no header can carry")
        asked = self._asked or {}
        state = [mark.id, self._request.id, {key: number for key, (number, _) in asked.items()}]
        result = {
            "resultType": "input_required",
            "inputRequests": {key: question for key, (_, question) in asked.items()},
            "requestState": encode(state).decode(),
        }
        message = {"jsonrpc": "2.0", "id": self._request.id, "result": result}
        return incoming._replace(message=message, raw=encode(message))


def _read_state(state: str) -> tuple[str, str | int, Mapping[str, Any]]:
    try:
        event, request_id, ids = decode(state)
        if isinstance(event, str) and isinstance(request_id, str | int) and isinstance(ids, dict):
            return event, request_id, ids
    except (ValueError, TypeError):
        pass
    raise CallerError("the state of this call is not of the wire that is spoken here")
