"""What a caller without a client library writes: the two bodies, the headers, and what it reads from the replies.

It checks nothing on the way, so it is the least that two POSTs of an HTTP library can cost.
"""

from itertools import count
from typing import Any

import orjson

from bench.clients.driving import VISITORS
from bench.wire import META, VERSION

HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": VERSION,
    "Mcp-Method": "tools/call",
    "Mcp-Name": "greet",
}
_ids = count(1)


def first_round(city: str) -> bytes:
    return _request({"name": "greet", "arguments": {"city": city}})


def second_round(city: str, reply: bytes) -> bytes:
    """The retry, with the question answered."""
    asked = orjson.loads(reply)["result"]
    ((key, question),) = asked["inputRequests"].items()
    answer = {"action": "accept", "content": {"name": VISITORS[question["params"]["message"]]}}
    return _request(
        {
            "name": "greet",
            "arguments": {"city": city},
            "inputResponses": {key: answer},
            "requestState": asked["requestState"],
        }
    )


def greeting(reply: bytes) -> str:
    text: str = orjson.loads(reply)["result"]["content"][0]["text"]
    return text


def _request(params: dict[str, Any]) -> bytes:
    message = {"jsonrpc": "2.0", "id": next(_ids), "method": "tools/call", "params": {**params, "_meta": META}}
    return orjson.dumps(message)
