"""How a call failed, as the command says it: in a sentence, without names of classes or a web server's HTML."""

from http import HTTPStatus

from ..errors import ConnectionLost, HandshakeRequired, InvalidReply, MCPError, TurnwiseError, UnexpectedStatus
from .handing import UNREACHABLE

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
_UNAUTHORIZED, _FAILS = 401, 500


def worded(error: TurnwiseError) -> tuple[str, int]:
    """What is wrong, and the code with which a command ends."""
    if isinstance(error, ConnectionLost):
        if any(word in str(error) for word in _NO_TLS):
            return (
                "the server cannot be reached: it does not speak TLS there; try http:// in place of https://",
                UNREACHABLE,
            )
        return str(error), UNREACHABLE
    if isinstance(error, UnexpectedStatus):
        return _answered(error)
    if isinstance(error, HandshakeRequired) and isinstance(error.__cause__, UnexpectedStatus):
        status = error.__cause__
        if not status.is_told:
            return f"nothing speaks MCP at this URL: it answers {_status(status)}", 1
    if isinstance(error, InvalidReply):
        return f"what came back is no reply of MCP: {error}", 1
    if isinstance(error, MCPError):
        return f"the server refuses ({error.code}): {error.message}", 1
    return str(error), 1


def _answered(error: UnexpectedStatus) -> tuple[str, int]:
    if error.status >= _FAILS:
        return f"the server, or a proxy before it, answers {_status(error)}", UNREACHABLE
    hint = "; --header 'Authorization: Bearer ...' says who calls" if error.status == _UNAUTHORIZED else ""
    return f"the server answers {_status(error)}{hint}", 1


def _status(error: UnexpectedStatus) -> str:
    """A status with its name, and what was said, unless that is a page."""
    try:
        name = f"{error.status} {HTTPStatus(error.status).phrase}"
    except ValueError:
        name = str(error.status)
    said = error.text.strip()
    return name if not said or said.startswith("<") or said in name else f"{name}: {' '.join(said.split())}"
