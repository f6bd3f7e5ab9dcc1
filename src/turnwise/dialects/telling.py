"""An exchange in a few words, for a person who follows a call."""

from typing import Any

from .._json import decode


def asked(body: bytes) -> str:
    """What a request is aimed at, and what it brings."""
    params = decode(body).get("params") or {}
    answers, state = params.get("inputResponses"), params.get("requestState")
    return _joined(
        params.get("name") or params.get("uri"),
        f"answers {', '.join(answers)}" if answers else None,
        f"state {len(state)} bytes" if isinstance(state, str) else None,
    )


def came(message: Any) -> str:
    """What came of it."""
    if "error" in message:
        return f"error {message['error'].get('code')}: {message['error'].get('message')}"
    result = message.get("result") or {}
    questions, state = result.get("inputRequests"), result.get("requestState")
    return _joined(
        result.get("resultType", "complete"),
        f"asks {', '.join(questions)}" if questions else None,
        f"state {len(state)} bytes" if isinstance(state, str) else None,
    )


def _joined(*parts: Any) -> str:
    return "  ".join(str(part) for part in parts if part)
